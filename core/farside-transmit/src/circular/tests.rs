use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::LinearCircular;
use farside_fabric::ids::ProcessId;
use farside_fabric::queue::QueueOptions;
use farside_fabric::region::RemoteRegion;
use farside_fabric::sim::{SimFabric, SimOptions};
use farside_fabric::transport::{RemoteKey, Transport};

const STARTER: usize = 64 << 10;

/// A source that counts the chunks that it has given out.
#[derive(Debug)]
struct Counted {
    end: Arc<dyn Transport>,
    out: Arc<AtomicUsize>,
}

impl ChunkSource for Counted {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        self.out.fetch_add(1, Ordering::Relaxed);
        self.end.take(bytes)
    }

    fn give_back(&self, chunk: Chunk) {
        self.out.fetch_sub(1, Ordering::Relaxed);
        self.end.give_back(chunk);
    }
}

/// Two simulated processes; the first has transmitters to the second.
struct Here {
    fabric: SimFabric,
    end: Arc<dyn Transport>,
    _there: Arc<dyn Transport>,
    region: RemoteRegion,
    out: Arc<AtomicUsize>,
}

impl Here {
    fn new(seed: u64) -> Self {
        let fabric =
            SimFabric::new(2, STARTER, seed, SimOptions { delay_max_ns: 50, ..SimOptions::default() }).unwrap();
        let [end, there] = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
        let region = end.attach(RemoteKey::starter(there.process(), STARTER as u64), later()).unwrap();
        Self { fabric, end, _there: there, region, out: Arc::default() }
    }

    fn circular(&self, options: CircularOptions) -> Circular {
        Circular::new(Box::new(Counted { end: self.end.clone(), out: self.out.clone() }), options)
    }

    fn transmitter(&self) -> Transmitter {
        Transmitter::open(&self.end, ProcessId::new(1), QueueOptions { depth: 16 }).unwrap()
    }
}

fn later() -> Instant {
    farside_testbed::deadline()
}

/// The place of a unit: its region and its offset there.
fn place(unit: &Unit) -> (u32, u64) {
    let part = unit.part(0..unit.bytes());
    (part.region().key().slot, part.offset())
}

/// A source that gives less than the requested size.
#[derive(Debug)]
struct Short(Arc<dyn Transport>);

impl ChunkSource for Short {
    fn take(&self, bytes: usize) -> Result<Chunk, FabricError> {
        let chunk = self.0.take(bytes)?;
        Chunk::new(chunk.region().clone(), 0, bytes - 1)
    }

    fn give_back(&self, _: Chunk) {}
}

#[test]
#[should_panic = "at least the requested size"]
fn no_unit_lies_beyond_its_chunk() {
    let here = Here::new(5);
    let _ = Circular::new(Box::new(Short(here.end.clone())), CircularOptions::default()).take();
}

#[test]
fn it_grows_to_its_limit_and_says_so() {
    let here = Here::new(1);
    for (growth, counts) in [(Growth::Linear, [2, 4, 6, 7]), (Growth::Exponential, [2, 4, 7, 7])] {
        let mut circular = here.circular(CircularOptions { unit_bytes: 100, units: 2, growth, units_max: 7 });
        let mut held = Vec::new();
        let mut seen = BTreeSet::new();
        while held.len() < 7 {
            held.push(circular.take().unwrap());
            seen.insert(circular.unit_count());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), BTreeSet::from(counts).into_iter().collect::<Vec<_>>());
        let places: BTreeSet<_> = held.iter().map(place).collect();
        assert!(places.len() == 7 && places.iter().all(|(_, offset)| offset.is_multiple_of(64)));
        let refused = circular.take().unwrap_err();
        assert!(matches!(refused, FabricError::MemoryLimit { bytes: 128, held: 896, limit: 896 }), "{refused}");
        // A unit that the caller holds itself is not waited for.
        assert!(matches!(circular.take_by(later()), Err(FabricError::MemoryLimit { .. })));
        drop(held);
        assert!(circular.take().is_ok());
    }
    assert_eq!(here.out.load(Ordering::Relaxed), 0, "all chunks are given back");
}

#[test]
fn flushes_that_have_no_time_do_not_overrun_the_queue() {
    let options = SimOptions { needs_target_progress: true, ..SimOptions::default() };
    let fabric = SimFabric::new(2, STARTER, 6, options).unwrap();
    let [end, there] = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
    let key = RemoteKey::starter(there.process(), STARTER as u64);
    let region = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| end.attach(key, later()));
        while !attaching.is_finished() {
            there.progress();
            std::thread::yield_now();
        }
        attaching.join().unwrap().unwrap()
    });
    let transmitter = Transmitter::open(&end, there.process(), QueueOptions { depth: 16 }).unwrap();
    let memory = end.register(64).unwrap();
    let tag = transmitter.put(Span::new(&memory, 0, 8).unwrap(), &region, 0, later()).unwrap();
    for _ in 0..20 {
        let flushed = transmitter.flush(farside_testbed::now());
        assert!(matches!(flushed, Err(FabricError::Deadline { .. })), "{flushed:?}");
    }
    let deadline = later();
    while !transmitter.has_passed(tag) {
        assert!(!farside_testbed::is_past(deadline), "the put has not ended by the deadline");
        there.progress();
        transmitter.progress().unwrap();
    }
}

#[test]
fn waiting_for_a_unit_signals_unsignalled_puts() {
    let here = Here::new(2);
    let transmitter = here.transmitter();
    // There are fewer units than operations in a window, so no signal is due.
    let options = CircularOptions { unit_bytes: 8, units: 2, growth: Growth::Linear, units_max: 2 };
    let mut circular = here.circular(options);
    for number in 0..100_u64 {
        let unit = circular.take_by(later()).unwrap();
        unit.write(0, &number.to_le_bytes());
        transmitter.put_unit(&unit, 0..8, &here.region, 0, later()).unwrap();
    }
    assert_eq!(circular.unit_count(), 2);
}

#[test]
fn a_chunk_with_a_unit_under_way_stays_registered() {
    let here = Here::new(3);
    let transmitter = here.transmitter();
    let mut circular = here.circular(CircularOptions { unit_bytes: 8, units: 1, growth: Growth::Linear, units_max: 2 });
    let [busy, idle] = [0, 1].map(|_| circular.take().unwrap());
    transmitter.put_unit(&busy, 0..8, &here.region, 0, later()).unwrap();
    drop((busy, idle));
    drop(circular);
    assert_eq!(here.out.load(Ordering::Relaxed), 1, "one is given back, and one stays");
}

#[test]
fn units_of_a_transmitter_that_failed_come_back_or_are_set_aside() {
    let here = Here::new(4);
    let transmitter = here.transmitter();
    let mut circular = here.circular(CircularOptions { unit_bytes: 8, units: 4, growth: Growth::Linear, units_max: 4 });
    for _ in 0..4 {
        let unit = circular.take().unwrap();
        transmitter.put_unit(&unit, 0..8, &here.region, 0, later()).unwrap();
    }
    here.fabric.kill(ProcessId::new(1));
    // The simulator copies the data of a put, and so releases the memory at once.
    let unit = circular.take_by(later()).unwrap();
    let lost = transmitter.put_unit(&unit, 0..8, &here.region, 0, later());
    assert!(matches!(lost, Err(FabricError::Disconnected { .. })), "{lost:?}");
    assert!(matches!(transmitter.flush(later()), Err(FabricError::Disconnected { .. })));
    assert_eq!((circular.quarantined(), transmitter.quarantined()), (0, 0));
}

#[test]
#[should_panic(expected = "0..9 of a unit of 8 bytes")]
fn a_unit_ends_where_it_ends() {
    let here = Here::new(5);
    let unit = here.circular(CircularOptions { unit_bytes: 8, ..CircularOptions::default() }).take().unwrap();
    unit.write(0, &[0; 9]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take {
        bytes: usize,
    },
    /// Posts with a held unit, on one of two transmitters.
    Post {
        which: usize,
        on: usize,
    },
    Drop {
        which: usize,
    },
    Progress,
    Flush {
        on: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..70_usize).prop_map(|bytes| Step::Take { bytes }),
        4 => (0..4_usize, 0..2_usize).prop_map(|(which, on)| Step::Post { which, on }),
        4 => (0..4_usize).prop_map(|which| Step::Drop { which }),
        2 => Just(Step::Progress),
        1 => (0..2_usize).prop_map(|on| Step::Flush { on }),
    ]
}

/// The test's record of a unit that was taken.
struct Piece {
    unit: Unit,
    pattern: u8,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nothing held or in flight overlaps a newly taken unit, and a put sends the bytes that were
    /// there at its posting. The simulator takes the bytes at the posting, so a unit is filled with
    /// another pattern as soon as it is reused.
    #[test]
    fn units_in_use_are_never_handed_out(seed: u64, steps in prop::collection::vec(step(), 0..300), cuts: bool) {
        let here = Here::new(seed);
        let transmitters = [here.transmitter(), here.transmitter()];
        let options = CircularOptions { unit_bytes: 64, units: 1, growth: Growth::Exponential, units_max: 6 };
        let mut whole = here.circular(options);
        let mut linear = LinearCircular::new(here.circular(options));
        let mut held: Vec<Piece> = Vec::new();
        // By region and offset of a byte: the tags that must be passed before the byte is reused.
        let mut under_way: BTreeMap<(u32, u64), Vec<(usize, u64)>> = BTreeMap::new();
        let mut next_pattern = 0_u8;
        for step in steps {
            match step {
                Step::Take { bytes } => {
                    let taken = if cuts { linear.take(bytes) } else { whole.take() };
                    if cuts && bytes > 64 {
                        let is_refused = matches!(taken, Err(FabricError::OutOfRange { .. }));
                        prop_assert!(is_refused);
                        continue;
                    }
                    let unit = match taken {
                        Ok(unit) => unit,
                        Err(FabricError::MemoryLimit { .. }) => continue,
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    };
                    prop_assert_eq!(unit.bytes(), if cuts { bytes } else { 64 });
                    let (slot, start) = place(&unit);
                    for at in start..start + unit.bytes() as u64 {
                        for other in &held {
                            let (other_slot, other_start) = place(&other.unit);
                            let overlaps = other_slot == slot && (other_start..other_start + other.unit.bytes() as u64).contains(&at);
                            prop_assert!(!overlaps, "a byte is held twice");
                        }
                        for (on, tag) in under_way.remove(&(slot, at)).unwrap_or_default() {
                            prop_assert!(transmitters[on].has_passed(tag), "a byte under way is handed out");
                        }
                    }
                    next_pattern = next_pattern.wrapping_add(1);
                    unit.write(0, &vec![next_pattern; unit.bytes()]);
                    held.push(Piece { unit, pattern: next_pattern });
                }
                Step::Post { which, on } if which < held.len() => {
                    let Piece { unit, pattern } = &held[which];
                    let mut found = vec![0; unit.bytes()];
                    unit.read(0, &mut found);
                    prop_assert!(found.iter().all(|byte| byte == pattern), "memory that is held was written");
                    transmitters[on].put_unit(unit, 0..unit.bytes(), &here.region, 0, later()).unwrap();
                    let tag = transmitters[on].tag_now();
                    let (slot, start) = place(unit);
                    for at in start..start + unit.bytes() as u64 {
                        under_way.entry((slot, at)).or_default().push((on, tag));
                    }
                }
                Step::Drop { which } if which < held.len() => drop(held.swap_remove(which)),
                Step::Post { .. } | Step::Drop { .. } => {}
                Step::Progress => here.end.progress(),
                Step::Flush { on } => transmitters[on].flush(later()).unwrap(),
            }
            prop_assert!(whole.unit_count() <= 6 && linear.units().unit_count() <= 6);
        }
        drop(held);
        transmitters.iter().for_each(|transmitter| transmitter.flush(later()).unwrap());
        drop((whole, linear));
        prop_assert_eq!(here.out.load(Ordering::Relaxed), 0, "all chunks are given back");
    }
}
