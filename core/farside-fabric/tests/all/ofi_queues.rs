//! Queues over libfabric: unsignalled puts, and the release of buffers when a peer is lost.
//!
//! `tests/all/ofi.rs` describes the variables that choose the providers.

use std::sync::Arc;
use std::time::Instant;

use farside_fabric::memory::Growth;
use farside_fabric::ofi::{OfiConfig, OfiEndpoint};
use farside_fabric::{Carrier, FabricError, LocalRegion, ProcessId, RemoteKey, RemoteRegion, Transport};
use farside_transmit::{Circular, CircularOptions, Queue, QueueOptions, Span, Transmitter};

const BYTES: usize = 1 << 20;

/// Two ends of `tcp` in one thread, which makes the progress of both.
struct Pair {
    here: Arc<dyn Transport>,
    there: Arc<OfiEndpoint>,
    memory: LocalRegion,
    region: RemoteRegion,
    deadline: Instant,
}

impl Pair {
    /// Opens both, or returns `None` if `tcp` is not to be tested.
    fn open() -> Option<Self> {
        let providers = std::env::var("FARSIDE_TEST_PROVIDERS");
        if providers.is_err() && farside_testbed::is_left_out("fabric") {
            return None;
        }
        let providers = providers.unwrap_or_else(|_| "tcp".to_owned());
        if !providers.split(',').any(|provider| provider == "tcp") {
            return None;
        }
        let open = |number| {
            OfiEndpoint::open(OfiConfig {
                process: ProcessId::new(number),
                process_count: 2,
                starter_bytes: BYTES,
                provider: Some("tcp".to_owned()),
                address: Some("127.0.0.1".to_owned()),
                device: None,
            })
        };
        let ends = (0..2).map(open).collect::<Result<_, _>>().expect("libfabric can be opened");
        let [here, there]: [Arc<OfiEndpoint>; 2] = crate::over_ofi::introduced(ends).unwrap().try_into().unwrap();
        let here: Arc<dyn Transport> = here;
        let deadline = farside_testbed::deadline();
        let memory = here.register(BYTES).unwrap();
        let key = RemoteKey::starter(there.process(), BYTES as u64);
        let region = std::thread::scope(|scope| {
            let attaching = scope.spawn(|| here.attach(key, deadline));
            while !attaching.is_finished() {
                there.progress();
                std::thread::yield_now();
            }
            attaching.join().unwrap().unwrap()
        });
        Some(Self { here, there, memory, region, deadline })
    }

    fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        while !condition() {
            assert!(!farside_testbed::is_past(self.deadline), "{what} does not happen");
            self.there.progress();
        }
    }

    fn span(&self, offset: u64, bytes: usize) -> Span<'_> {
        Span::new(&self.memory, offset, bytes).unwrap()
    }
}

/// The target makes no progress at first, so a signal that arrives then arrived too early.
#[test]
fn no_signal_arrives_before_the_target_has_the_data() {
    let Some(pair) = Pair::open() else { return };
    let queue = Queue::open(&pair.here, pair.there.process(), QueueOptions::default()).unwrap();
    for number in 0..20 {
        queue.put(pair.span(number * 4096, 4096), &pair.region, number * 4096, None).unwrap();
    }
    queue.put(pair.span(0, 8), &pair.region, 0, Some(1)).unwrap();
    queue.get(pair.span(8, 8), &pair.region, 8, Some(2)).unwrap();
    for _ in 0..1000 {
        assert_eq!(queue.poll().unwrap(), 0);
    }
    pair.until("a signal", || queue.poll().unwrap() == 2);
}

/// A queue may be dropped with puts under way. They complete, and a new queue opens meanwhile.
#[test]
fn queues_are_dropped_and_opened_again() {
    let Some(pair) = Pair::open() else { return };
    for round in 1..50_u64 {
        let queue = Queue::open(&pair.here, pair.there.process(), QueueOptions { depth: 16 }).unwrap();
        for number in 0..10 {
            pair.memory.as_remote().put(number * 8, &(round * 100 + number).to_le_bytes(), pair.deadline).unwrap();
            queue.put(pair.span(number * 8, 8), &pair.region, number * 8, None).unwrap();
        }
        if round % 2 == 0 {
            queue.signal(round).unwrap();
            pair.until("a signal", || queue.poll().unwrap() == round);
        } else {
            drop(queue);
            let word = || {
                let mut bytes = [0; 8];
                pair.there.starter().as_remote().get(72, &mut bytes, pair.deadline).unwrap();
                u64::from_le_bytes(bytes)
            };
            pair.until("the last put", || {
                pair.here.progress();
                word() == round * 100 + 9
            });
        }
    }
}

/// Units under way to a lost peer stay in quarantine until libfabric has released them.
#[test]
fn a_lost_peer_leaves_units_in_quarantine() {
    let Some(pair) = Pair::open() else { return };
    let transmitter = Transmitter::open(&pair.here, pair.there.process(), QueueOptions { depth: 32 }).unwrap();
    let options = CircularOptions { unit_bytes: 8192, units: 8, growth: Growth::Linear, units_max: 24 };
    let mut units = Circular::new(Box::new(pair.here.clone()), options);
    for number in 0..8 {
        let unit = units.take().unwrap();
        unit.write(0, &[number; 8192]);
        transmitter.put_unit(&unit, 0..8192, &pair.region, 8192 * u64::from(number), pair.deadline).unwrap();
    }
    assert!(!transmitter.has_failed());
    pair.here.forget(pair.there.process());
    let unit = units.take().unwrap();
    let refused = transmitter.put_unit(&unit, 0..8, &pair.region, 0, pair.deadline);
    assert!(matches!(refused, Err(FabricError::Disconnected { .. })), "{refused:?}");
    drop(unit);
    let flushed = transmitter.flush(pair.deadline);
    assert!(matches!(flushed, Err(FabricError::Disconnected { .. })), "{flushed:?}");
    assert!(transmitter.quarantined() > 0, "libfabric may still send what was posted");
    // Units under way are not handed out again; the others are.
    let taken: Vec<_> = (0..16).map(|_| units.take().expect("eight more may be made, and eight more")).collect();
    let starts: std::collections::BTreeSet<_> =
        taken.iter().map(|unit| (unit.part(0..1).region().key().slot, unit.part(0..1).offset())).collect();
    assert_eq!(starts.len(), 16, "no unit is handed out twice");
    assert_eq!(units.quarantined(), 8);
    let full = units.take();
    assert!(matches!(full, Err(FabricError::MemoryLimit { .. })), "{full:?}");
}
