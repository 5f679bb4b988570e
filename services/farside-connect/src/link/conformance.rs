//! The duties of a connection in Mercury's terms (III-B), over each path: unexpected and expected
//! messages, reads and writes of registered memory, and cancelling.

use std::sync::Mutex;
use std::thread;

use farside_sys::shm::{Mapping, MemoryPreference};
use farside_testbed::{deadline, limit, spin_for, wait_until};

use super::*;
use crate::lock::lock;
use crate::path::conformance::with_each;
use crate::patience::Cancellation;
use crate::remote::{Description, Holder, Remote, expose, expose_in_result};

/// Larger than a frame, than a piece and than what RDMA is worth while for.
const BYTES: usize = 3 << 20;

/// The frames that a side was sent.
type Heard = Arc<Mutex<Vec<(Head, Vec<u8>)>>>;

struct Notes(Heard);

impl Upper for Notes {
    fn frame(&self, _: &Arc<Link>, head: Head, body: &[u8]) -> Result<(), LinkEnd> {
        lock(&self.0).push((head, body.to_vec()));
        Ok(())
    }

    fn ended(&self, _: &LinkEnd) {}
}

/// Both ends of a connection, and what each has heard.
struct Both {
    client: Arc<Link>,
    server: Arc<Link>,
    heard: [Heard; 2],
}

/// Runs a check over each path. Meanwhile this thread receives for both sides: it made the network
/// that is simulated, so it alone can have time pass there.
fn everywhere(name: &str, check: impl Fn(&Both) + Sync) {
    with_each(name, |make| {
        let ([near, far], heard) = (make(), <[Heard; 2]>::default());
        let [client, server] = heard.clone().map(|heard| Box::new(Notes(heard)));
        let limits = Limits::of_server(1, Duration::ZERO, 16, Arc::new(Unsent::new(1 << 30)));
        let client = Link::new(near, client, Limits::of_client(Duration::ZERO));
        let both = Both { client, server: Link::new(far, server, limits), heard };
        thread::scope(|scope| {
            let checking = scope.spawn(|| check(&both));
            while !checking.is_finished() {
                let is_idle = !both.server.path.pass_time();
                for link in [&both.client, &both.server] {
                    link.look();
                }
                if is_idle {
                    thread::park_timeout(Duration::from_micros(50));
                }
            }
            checking.join().unwrap_or_else(|_| panic!("over {}", both.client.path.name()));
        });
    });
}

fn patience() -> Patience {
    Patience::until(deadline())
}

/// Waits for the next frame that a side hears.
fn next(heard: &Heard) -> (Head, Vec<u8>) {
    spin_for("a frame", || {
        let mut frames = lock(heard);
        (!frames.is_empty()).then(|| frames.remove(0))
    })
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|index| (index * 31 % 253) as u8 ^ seed).collect()
}

/// Memory of one side as the other has it.
fn remote(link: &Arc<Link>, memory: Description) -> Remote {
    let segments = Segments::unpack(&memory.segments).unwrap();
    let holder = Holder::Caller { time: limit(), _connection: Arc::new(()) };
    Remote { holder, link: link.clone(), memory, segments }
}

/// Memory of the heap, and memory that peers may map, with the same bytes. It is to be written, or
/// to be read.
fn areas(bytes: &[u8], may_write: bool) -> [Arc<Area>; 2] {
    let mapping = Mapping::create("conformance", bytes.len(), MemoryPreference::default()).unwrap();
    mapping.write(0, bytes).unwrap();
    let memory = Arc::new(Allocated::new(mapping, bytes.len(), true));
    [Area::owned(bytes.to_vec(), may_write), Area::mapped(memory, &[(0, bytes.len())], may_write)].map(Arc::new)
}

/// Memory of the client's arguments, as the server has it.
fn remote_argument(both: &Both, area: &Arc<Area>) -> Remote {
    let described = expose(&both.client, std::slice::from_ref(area)).remove(0);
    // What was said of the memory arrives before the call that describes it.
    both.client.send(Head::new(Kind::Call, 1), &[]).unwrap();
    next(&both.heard[1]);
    remote(&both.server, described)
}

#[test]
fn unexpected_and_expected_messages_arrive() {
    everywhere("messages", |Both { client, server, heard: [answers, calls] }| {
        for number in 0..100 {
            client.send(Head::new(Kind::Call, number), &[b"un", b"expected"]).unwrap();
            let (head, body) = next(calls);
            assert_eq!((head.kind, head.id, &body[..]), (Kind::Call, number, &b"unexpected"[..]));
            server.send(Head::new(Kind::Answer, number), &[b"expected"]).unwrap();
            let (head, body) = next(answers);
            assert_eq!((head.kind, head.id, &body[..]), (Kind::Answer, number, &b"expected"[..]));
        }
    });
}

/// The server reads and writes memory of the client's arguments.
#[test]
fn registered_memory_is_read_and_written() {
    const PARTS: [(usize, usize); 5] = [(0, 1), (BYTES - 1, 1), (4095, 4099), (70_001, 1 << 20), (0, BYTES)];
    everywhere("registered", |both| {
        let expected = pattern(1);
        for area in areas(&expected, false) {
            let memory = remote_argument(both, &area);
            let has_rdma = both.server.path.rdma().is_some_and(|rdma| rdma.connection().is_some());
            assert_eq!(memory.is_registered(BYTES), has_rdma && area.allocated().is_some());
            for (offset, bytes) in PARTS {
                let mut found = vec![0; bytes];
                memory.pull(offset as u64, &mut found).unwrap();
                assert!(found == expected[offset..offset + bytes], "{offset} {bytes}");
            }
        }
        for area in areas(&expected, true) {
            let memory = remote_argument(both, &area);
            let mut expected = expected.clone();
            for (offset, bytes) in PARTS {
                let new = &pattern(bytes as u8 ^ 7)[..bytes];
                expected[offset..offset + bytes].copy_from_slice(new);
                memory.push(offset as u64, new).unwrap();
                let mut found = vec![0; BYTES];
                area.copy_out(0, &mut found).unwrap();
                assert!(found == expected, "{offset} {bytes}");
            }
        }
    });
}

/// The client reads memory of the server's results, until it releases it.
#[test]
fn memory_of_results_is_read_until_it_is_released() {
    everywhere("results", |Both { client, server, heard: [answers, _] }| {
        let expected = pattern(2);
        for area in areas(&expected, false) {
            let described = expose_in_result(server, &[Some(area)]).remove(0).unwrap();
            server.send(Head::new(Kind::Answer, 1), &[]).unwrap();
            next(answers);
            let memory = remote(client, described);
            let mut found = vec![0; BYTES];
            memory.pull(0, &mut found).unwrap();
            assert!(found == expected);
            drop(memory);
            wait_until("the memory is released", || server.exposed_count() == 0);
        }
    });
}

/// Access to memory that is taken back, read-only or out of range is refused, and the connection
/// goes on.
#[test]
fn what_is_not_allowed_is_refused() {
    everywhere("refused", |both| {
        let Both { client, server, .. } = both;
        for may_write in [false, true] {
            for area in areas(&pattern(3), may_write) {
                let memory = remote_argument(both, &area);
                client.withdraw(memory.memory.number);
                for bytes in [1, BYTES] {
                    let done = match may_write {
                        true => memory.push(0, &vec![0; bytes]),
                        false => memory.pull(0, &mut vec![0; bytes]),
                    };
                    assert_eq!(done, Err(TransferError::Gone), "{may_write} {bytes}");
                }
            }
        }
        let number = client.expose(Arc::new(Area::owned(vec![5; 10], false))).0;
        assert_eq!(server.push(number, 0, &[1], &patience()), Err(TransferError::ReadOnly));
        assert!(matches!(
            server.fetch(number, 5, &mut [0; 6], &patience()),
            Err(TransferError::Link(LinkEnd::Protocol(_)))
        ));
        assert_eq!(server.fetch(number, 4, &mut [0; 6], &patience()), Ok(()));
    });
}

/// A transfer that its peer does not serve ends when it is cancelled.
#[test]
fn a_transfer_is_cancelled() {
    everywhere("cancelled", |Both { client, server, .. }| {
        let number = client.expose(Arc::new(Area::owned(vec![0; BYTES], true))).0;
        // No other thread receives for the client meanwhile.
        let _lead = loop {
            if let Some(drive) = client.try_drive() {
                break drive;
            }
            thread::yield_now();
        };
        let cancelled = Arc::<Cancellation>::default();
        let patience = Patience { cancelled: Some(cancelled.clone()), ..patience() };
        thread::scope(|scope| {
            let pushing = scope.spawn(|| server.push(number, 0, &vec![1; BYTES], &patience));
            let fetching = scope.spawn(|| server.fetch(number, 0, &mut vec![0; BYTES], &patience));
            // Both have asked, and wait.
            wait_until("both wait", || server.exposed_count() >= 2);
            assert!(!pushing.is_finished() && !fetching.is_finished());
            cancelled.set();
            assert_eq!(pushing.join().unwrap(), Err(TransferError::Cancelled));
            assert_eq!(fetching.join().unwrap(), Err(TransferError::Cancelled));
        });
    });
}
