use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farside_testbed::{deadline, soon};
use proptest::prelude::*;

use super::message::Found;
use super::*;
use crate::emulated::{Ask, Packet, RequestId};
use crate::region::Nearby;

const STARTER_BYTES: u64 = 4096;
const SECRET: [u8; 16] = [7; 16];
const NOISY: ProcessId = ProcessId::new(2);

fn open(process: u32, job_id: u64) -> Arc<ShmEndpoint> {
    let process = ProcessId::new(process);
    let starter_bytes = STARTER_BYTES as usize;
    ShmEndpoint::open(ShmConfig {
        process,
        process_count: 3,
        job_id,
        secret: SECRET,
        starter_bytes,
        user_by_system_call: true,
    })
    .unwrap()
}

fn new_job() -> u64 {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    u64::from(std::process::id()) << 32 | 1 << 31 | JOBS.fetch_add(1, Ordering::Relaxed)
}

/// Random data on a socket: valid messages and invalid ones; some carry a descriptor.
fn noise() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let sound = (0..9, 0..4_u32, prop_oneof![Just(STARTER_BYTES), any::<u64>()], any::<bool>()).prop_map(
        |(kind, number, bytes, right)| {
            let secret = if right { SECRET } else { [0; 16] };
            let probe = Probe { address: bytes, bytes: [number as u8; 16] };
            let greeting = Greeting { secret, process: ProcessId::new(number), starter_bytes: bytes, probe };
            let (slot, generation) = (number, u32::from(!right));
            match kind {
                0 => Message::Hello(greeting).encode(),
                1 => Message::Welcome(greeting).encode(),
                2 => Message::Fetch { slot, generation }.encode(),
                3 => Message::Fetched(Fetched {
                    slot,
                    generation,
                    found: if right { Found::Shared(bytes) } else { Found::Private },
                })
                .encode(),
                4 => Message::User(b"noise").encode(),
                5 => Message::Packet(&Packet::Revoke(RegionName { slot, generation }).encode(&[])).encode(),
                6 => Message::Packet(&Packet::Released(RegionName { slot, generation }).encode(&[])).encode(),
                7 => Message::Packet(if right { b"noise" } else { &[] }).encode(),
                _ => {
                    let ask = Ask::Get { offset: bytes, bytes: if right { 8 } else { u32::MAX } };
                    let region = RegionName { slot, generation };
                    Message::Packet(&Packet::Request { id: RequestId::default(), region, ask }.encode(&[])).encode()
                }
            }
        },
    );
    let unsound = prop::collection::vec(any::<u8>(), 1..40);
    (prop_oneof![3 => sound, 1 => unsound], any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Random data comes over a socket, from a stranger or from a process that knows the secret.
    /// The endpoint does not panic, and serves other peers.
    #[test]
    fn noise_on_a_socket_does_no_harm(greets: bool, noise in prop::collection::vec(noise(), 1..20)) {
        let job_id = new_job();
        let (served, friend) = (open(0, job_id), open(1, job_id));
        let memory = SharedMemory::create("noise", STARTER_BYTES as usize).unwrap();
        let socket = net::MessageSocket::connect(&name(&served.config, served.process())).unwrap();
        let probe = Probe { address: 8, bytes: [0; 16] };
        let hello = Message::Hello(Greeting { secret: SECRET, process: NOISY, starter_bytes: STARTER_BYTES, probe }).encode();
        let hello = greets.then_some((hello, true));
        for (message, with_memory) in hello.into_iter().chain(noise) {
            // Sending fails once the endpoint has closed the socket.
            let _ = socket.send(&message, with_memory.then(|| memory.fd()));
            served.progress();
        }
        drop(socket);
        served.progress();

        // A noisy process that knows the secret may have claimed the friend's place; then the
        // friend is the one reported as gone.
        let gone: Vec<_> = std::iter::from_fn(|| served.receive()).collect();
        assert!(!gone.contains(&Event::Disconnected { process: served.process() }), "a process does not lose itself");
        if gone.contains(&Event::Disconnected { process: friend.process() }) {
            return Ok(());
        }
        let deadline = deadline();
        let key = served.starter().key();
        std::thread::scope(|scope| {
            let attaching = scope.spawn(|| friend.attach(key, deadline));
            while !attaching.is_finished() {
                served.progress();
                std::thread::yield_now();
            }
            let region = attaching.join().expect("attaching does not panic").expect("the endpoint serves its friend");
            region.put(0, b"friend", deadline).unwrap();
        });
        let mut found = [0; 6];
        served.starter().as_remote().get(0, &mut found, deadline).unwrap();
        assert_eq!(&found, b"friend");
    }
}

/// A stranger that sees the name of one process cannot keep another from its own.
#[test]
fn a_name_in_use_does_not_tell_the_next() {
    let job_id = new_job();
    let first = open(0, job_id);
    let seen = String::from_utf8(name(&first.config, first.process())).unwrap();
    let begin = format!("farside/{job_id:016x}/");
    let rest = seen.strip_prefix(&begin).unwrap().strip_prefix('0').unwrap();
    let _taken = net::Listener::bind(format!("{begin}1{rest}").as_bytes()).unwrap();
    open(1, job_id);
}

/// Idle connections take few descriptors, and do not keep a peer out.
#[test]
fn idle_connections_are_few_and_end() {
    let job_id = new_job();
    let (served, friend) = (open(0, job_id), open(1, job_id));
    let strangers_max = served.config.process_count as usize + strangers::BESIDE_PEERS;
    let idle: Vec<_> = (0..3 * strangers_max)
        .map(|_| net::MessageSocket::connect(&name(&served.config, served.process())).unwrap())
        .collect();
    served.progress();
    assert_eq!(served.lock().links.len(), strangers_max);
    let (listener, until) = served.listening(&served.lock());
    assert!(listener.is_none() && until.is_some(), "nothing more is accepted now, and the sleep is not for ever");
    let key = served.starter().key();
    std::thread::scope(|scope| {
        let attaching = scope.spawn(|| friend.attach(key, deadline()));
        while !attaching.is_finished() {
            served.progress();
            assert!(served.lock().links.len() <= strangers_max + 1);
            served.wait(&[], Some(soon()));
        }
        attaching.join().unwrap().expect("a peer gets in");
    });
    let mut buffer = [0; 10];
    assert!(matches!(idle[0].receive(&mut buffer), Ok(None)), "the first stranger is shown out");
}

/// Two endpoints in one thread. The second has attached private memory of the first.
#[derive(Debug)]
struct Held {
    owner: Arc<ShmEndpoint>,
    holder: Arc<ShmEndpoint>,
    region: UserRegion,
    remote: RemoteRegion,
}

impl Held {
    fn new(user_by_system_call: bool) -> Self {
        let job_id = new_job();
        let [owner, holder] = [0, 1].map(|process| {
            let (process, starter_bytes) = (ProcessId::new(process), STARTER_BYTES as usize);
            let secret = SECRET;
            let config = ShmConfig { process, process_count: 3, job_id, secret, starter_bytes, user_by_system_call };
            ShmEndpoint::open(config).unwrap()
        });
        let (region, remote) = hold(&owner, &holder);
        Self { owner, holder, region, remote }
    }

    fn nearby(&self) -> Option<Arc<Nearby>> {
        match self.holder.lock().attached.get(&self.region.key()) {
            Some(Attached::Nearby(nearby)) => Some(nearby.clone()),
            _ => None,
        }
    }

    /// Lets both sides make all the progress that they can.
    fn settle(&self) {
        for _ in 0..20 {
            self.owner.progress();
            self.holder.progress();
        }
    }
}

/// Registers private memory at one endpoint and attaches it at the other.
/// More connections wait at a process than its listener keeps.
#[test]
fn a_full_listener_is_tried_again() {
    let job_id = new_job();
    let (busy, caller) = (open(0, job_id), open(1, job_id));
    while net::MessageSocket::connect(&name(&busy.config, busy.process())).is_ok() {}
    let key = busy.starter().key();
    let late = caller.attach(key, soon());
    assert!(matches!(late, Err(FabricError::Deadline { .. })), "{late:?}");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                busy.progress();
                std::thread::yield_now();
            }
        });
        let attached = caller.attach(key, deadline());
        done.store(true, Ordering::Relaxed);
        attached.unwrap();
    });
}

fn hold(owner: &ShmEndpoint, holder: &ShmEndpoint) -> (UserRegion, RemoteRegion) {
    let region = owner.register_user(Arc::new(UserMemory::owned(vec![0; 100]))).unwrap();
    let remote = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| holder.attach(region.key(), deadline()));
        while !attaching.is_finished() {
            owner.progress();
            std::thread::yield_now();
        }
        attaching.join().unwrap().unwrap()
    });
    (region, remote)
}

#[test]
fn a_system_call_under_way_is_waited_for() {
    let held = Held::new(true);
    held.remote.put(3, b"by a system call", deadline()).unwrap();
    let nearby = held.nearby().expect("a process may read itself");
    let pass = nearby.enter().unwrap();
    let over = held.owner.deregister(held.region.key()).unwrap();
    held.settle();
    assert!(!over.has_ended(), "an access is under way");
    assert!(held.holder.attached(held.region.key()).is_none());
    let late = held.remote.put(0, b"x", deadline());
    assert!(matches!(late, Err(FabricError::StaleKey { .. })), "{late:?}");
    drop(pass);
    held.settle();
    assert!(over.has_ended());
    assert_eq!(&held.region.memory().take_back().unwrap()[3..19], b"by a system call");
}

/// An owner that gives up its holder waits for the end of the connection, which the holder delays.
#[test]
fn a_holder_given_up_is_waited_for_until_its_sockets_close() {
    for (is_holder_first, is_mutual) in [(false, false), (false, true), (true, false), (true, true)] {
        let held = Held::new(true);
        let mutual = is_mutual.then(|| hold(&held.holder, &held.owner));
        let (owner, holder) = (held.owner.process(), held.holder.process());
        let nearby = held.nearby().expect("a process may read itself");
        let pass = nearby.enter().unwrap();
        if is_holder_first {
            held.holder.forget(owner);
        } else {
            held.owner.forget(holder);
        }
        held.settle();
        let over = held.owner.deregister(held.region.key()).unwrap();
        held.settle();
        assert!(!over.has_ended(), "an access is under way");
        let late = held.remote.put(0, b"x", deadline());
        assert!(matches!(late, Err(FabricError::Disconnected { .. })), "{late:?}");
        drop(pass);
        held.settle();
        assert!(over.has_ended());
        assert!(held.region.memory().take_back().is_some());
        if let Some((region, _)) = mutual {
            let over = held.holder.deregister(region.key()).unwrap();
            held.settle();
            assert!(over.has_ended() && region.memory().take_back().is_some());
        }
        let state = held.holder.lock();
        assert!(state.reach.is_at_rest(), "nothing is kept of those that are gone: {:?}", state.reach);
        drop(state);
        assert!(held.owner.lock().reach.is_at_rest());
    }
}

/// The owner gives up a holder because of `misbehave`, while an access of the holder is under way.
/// It waits for that access all the same.
fn given_up_and_waited_for(misbehave: impl FnOnce(&Held)) {
    let held = Held::new(true);
    let nearby = held.nearby().expect("a process may read itself");
    let pass = nearby.enter().unwrap();
    misbehave(&held);
    held.owner.progress();
    assert!(held.owner.lock().gone[held.holder.process().index()], "it was given up");
    let over = held.owner.deregister(held.region.key()).unwrap();
    held.settle();
    assert!(!over.has_ended(), "an access is under way");
    drop(pass);
    held.settle();
    assert!(over.has_ended() && held.region.memory().take_back().is_some());
}

/// A lack of room for the owner's answer is not the end of the connection: the holder is alive and
/// may be accessing the memory.
#[test]
fn a_holder_that_asks_and_does_not_read_is_waited_for() {
    given_up_and_waited_for(|held| {
        while held.owner.send(held.holder.process(), b"unread").is_ok() {}
        let unknown = RemoteKey { slot: 9, ..held.region.key() };
        held.holder.ask_for(unknown, deadline()).unwrap();
    });
}

/// The system reports an empty message in the same way as the end.
#[test]
fn a_holder_that_sends_an_empty_message_is_waited_for() {
    given_up_and_waited_for(|held| {
        let socket = held.holder.lock().links[0].socket().as_fd().try_clone_to_owned().unwrap();
        std::os::unix::net::UnixDatagram::from(socket).send(&[]).unwrap();
    });
}

/// The result may be a region, a refusal or nothing.
#[test]
fn results_without_a_waiter_are_not_kept() {
    let held = Held::new(true);
    let Held { owner, holder, .. } = &held;
    let shared = owner.register(100).unwrap().key();
    let served = |key| {
        std::thread::scope(|scope| {
            let attaching = scope.spawn(move || holder.attach(key, deadline()));
            while !attaching.is_finished() {
                owner.progress();
                std::thread::yield_now();
            }
            attaching.join().unwrap()
        })
    };
    let is_empty = || holder.lock().fetches.is_empty();
    for slot in 100..110 {
        let refused = served(RemoteKey { slot, ..shared });
        assert!(matches!(refused, Err(FabricError::StaleKey { .. })) && is_empty(), "{refused:?}");
    }
    // No answer arrives. One of the two threads keeps waiting.
    let attached = std::thread::scope(|scope| {
        let patient = scope.spawn(|| holder.attach(shared, deadline()));
        let late = holder.attach(shared, soon());
        assert!(matches!(late, Err(FabricError::Deadline { .. })), "{late:?}");
        while !patient.is_finished() {
            owner.progress();
            std::thread::yield_now();
        }
        patient.join().unwrap()
    });
    attached.expect("it is there");
    assert!(is_empty());
    let unanswered = RemoteKey { slot: 200, ..shared };
    let late = holder.attach(unanswered, soon());
    assert!(matches!(late, Err(FabricError::Deadline { .. })), "{late:?}");
    held.settle();
    assert!(is_empty() && matches!(served(unanswered), Err(FabricError::StaleKey { .. })) && is_empty());
}

/// The last refused access completes like others: a thread that waits for that is notified.
#[test]
fn a_refused_access_is_not_under_way() {
    let held = Held::new(true);
    let nearby = held.nearby().expect("a process may read itself");
    nearby.refuse();
    let put = std::thread::scope(|scope| {
        let putting = scope.spawn(|| held.remote.put(3, b"by its owner", deadline()));
        while !putting.is_finished() {
            held.owner.progress();
            std::thread::yield_now();
        }
        putting.join().unwrap()
    });
    put.unwrap();
    nearby.close();
    // The owner has not been asked to withdraw anything, but no access begins any more: a refused
    // one does not even try.
    assert!(nearby.is_idle());
    let put = held.holder.post(held.region.key(), Operation::Put { offset: 0, data: vec![7; 3] }).unwrap();
    held.settle();
    assert!(matches!(put.try_take(), Some(Ok(_))), "the owner is asked");
    let over = held.owner.deregister(held.region.key()).unwrap();
    held.settle();
    assert!(over.has_ended());
    assert_eq!(&held.region.memory().take_back().unwrap()[..15], b"\x07\x07\x07by its owner");
}

#[test]
fn memory_that_is_held_outlives_its_end() {
    let held = Held::new(true);
    let memory = Arc::downgrade(held.region.memory());
    let Held { owner, region, remote, holder: _holder } = held;
    drop((owner, region));
    assert!(memory.upgrade().is_some(), "a holder may be writing there");
    remote.put(0, b"x", deadline()).unwrap();
}

#[test]
fn without_system_calls_the_owner_is_asked() {
    let held = Held::new(false);
    assert!(held.nearby().is_none());
    let put = held.holder.post(held.region.key(), Operation::Put { offset: 50, data: vec![7; 50] }).unwrap();
    assert!(!put.has_ended(), "no side has made progress");
    held.settle();
    assert!(put.has_ended());
    let over = held.owner.deregister(held.region.key()).unwrap();
    held.settle();
    assert!(over.has_ended());
    assert_eq!(held.region.memory().take_back().unwrap()[50..], [7; 50]);
}
