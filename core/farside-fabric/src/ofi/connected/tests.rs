//! Connected endpoints, over the provider that `FARSIDE_TEST_CONNECTED` names, or `tcp`.

use super::*;

const PROOF: [u8; PROOF_BYTES] = [7; PROOF_BYTES];

fn provider() -> String {
    std::env::var("FARSIDE_TEST_CONNECTED").unwrap_or_else(|_| "tcp".into())
}

fn listener() -> Listener {
    let address = std::env::var("FARSIDE_TEST_ADDRESS").unwrap_or_else(|_| "127.0.0.1".into());
    Listener::open(&provider(), Some(address.parse().unwrap())).unwrap()
}

fn wait() -> Wait<'static> {
    Wait { deadline: farside_testbed::deadline(), is_wanted: &|| true }
}

fn thread() -> Waiter<'static> {
    Waiter::Thread(wait())
}

fn ready<T>(polled: Poll<T>) -> T {
    match polled {
        Poll::Ready(found) => found,
        Poll::Pending => panic!("a thread is never pending"),
    }
}

/// The client's and the server's end.
fn pair() -> [Connection; 2] {
    let mut listener = listener();
    let address = listener.address();
    std::thread::scope(|scope| {
        let client = scope
            .spawn(move || Connection::connect(&provider(), address, &PROOF, farside_testbed::deadline()).unwrap());
        let request = listener.next(&Waker::new().unwrap()).unwrap();
        assert_eq!(request.proof(), Some(&PROOF));
        let server = request.open().unwrap();
        server.accept().unwrap();
        [client.join().unwrap(), server]
    })
}

fn memory(bytes: usize) -> Arc<Mapping> {
    let memory = Mapping::create("connected", bytes, MemoryPreference::default()).unwrap();
    memory.write(0, &(0..bytes).map(|index| (index * 31 % 253) as u8).collect::<Vec<_>>()).unwrap();
    Arc::new(memory)
}

fn move_all(
    connection: &Connection,
    is_write: bool,
    memory: RemoteMemory,
    pieces: &[Piece],
) -> Result<(), TransferEnd> {
    let mut slot = ready(connection.slot(thread()))?;
    let kept: Kept = Arc::new(());
    ready(slot.begin(is_write, memory, pieces, &kept, thread()))?;
    ready(slot.wait(thread()))
}

#[test]
fn bytes_are_read_and_written() {
    farside_testbed::needs!("fabric");
    let [client, server] = pair();
    for (owner, other) in [(&client, &server), (&server, &client)] {
        let memory = memory(1 << 20);
        let shown = owner.register(memory.clone(), true).unwrap().unwrap();
        let mut slot = ready(other.slot(thread())).unwrap();
        let kept: Kept = Arc::new(());
        ready(slot.begin(false, shown.remote, &[(100, 1000), (500_000, 3)], &kept, thread())).unwrap();
        ready(slot.wait(thread())).unwrap();
        let (mut found, mut expected) = (vec![0; 1003], vec![0; 1003]);
        slot.read(0, &mut found);
        memory.read(100, &mut expected[..1000]).unwrap();
        memory.read(500_000, &mut expected[1000..]).unwrap();
        assert!(found == expected);
        slot.write(10, b"written");
        slot.write(0, b"0123456789");
        ready(slot.begin(true, shown.remote, &[(7, 10), (30, 7)], &kept, thread())).unwrap();
        ready(slot.wait(thread())).unwrap();
        let mut found = [0; 30];
        memory.read(7, &mut found).unwrap();
        assert_eq!((&found[..10], &found[23..]), (&b"0123456789"[..], &b"written"[..]));
        drop(slot);
        // The thread that makes progress may be the one that drops it.
        let until = farside_testbed::deadline();
        while Arc::strong_count(&kept) > 1 {
            assert!(!farside_testbed::is_past(until), "it is kept after its transfers");
            std::thread::yield_now();
        }
        assert_eq!(other.moved_bytes(), 1020);
    }
}

#[test]
fn all_slots_are_used_at_once_and_again() {
    farside_testbed::needs!("fabric");
    let [client, server] = pair();
    let memory = memory(SLOT_BYTES);
    let shown = client.register(memory, false).unwrap().unwrap();
    for _ in 0..5 {
        let mut slots: Vec<_> = (0..SLOTS).map(|_| ready(server.slot(thread())).unwrap()).collect();
        let now = Wait { deadline: farside_testbed::now(), is_wanted: &|| true };
        assert_eq!(ready(server.slot(Waiter::Thread(now))).unwrap_err(), TransferEnd::Deadline);
        let unwanted = Waiter::Thread(Wait { is_wanted: &|| false, ..wait() });
        assert_eq!(ready(server.slot(unwanted)).unwrap_err(), TransferEnd::Unwanted);
        let pieces: Vec<_> = (0..PIECES_MAX as u64).map(|index| (index * 10_000, 10_000)).collect();
        let kept: Kept = Arc::new(());
        for slot in &mut slots {
            ready(slot.begin(false, shown.remote, &pieces, &kept, thread())).unwrap();
        }
        slots.iter().for_each(|slot| ready(slot.wait(thread())).unwrap());
    }
}

/// A task is woken when a slot is free, and when its transfer has ended.
#[test]
fn tasks_are_woken() {
    farside_testbed::needs!("fabric");
    struct Woken(Mutex<bool>, Condvar);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }
    }
    let [client, server] = pair();
    let shown = client.register(memory(SLOT_BYTES), false).unwrap().unwrap();
    let woken = Arc::new(Woken(Mutex::new(false), Condvar::new()));
    let task = Task::from(woken.clone());
    let wait_until_woken = || {
        let found = woken.1.wait_timeout_while(woken.0.lock().unwrap(), farside_testbed::limit(), |woken| !*woken);
        let (mut woken, timeout) = found.unwrap();
        assert!(!timeout.timed_out());
        *woken = false;
    };
    let mut taken: Vec<_> = (0..SLOTS).map(|_| ready(server.slot(thread())).unwrap()).collect();
    assert!(server.slot(Waiter::Task(&task)).is_pending());
    taken.pop();
    wait_until_woken();
    let Poll::Ready(Ok(mut slot)) = server.slot(Waiter::Task(&task)) else { panic!("a slot is free") };
    let kept: Kept = Arc::new(());
    for _ in 0..20 {
        while slot.begin(false, shown.remote, &[(0, SLOT_BYTES)], &kept, Waiter::Task(&task)).is_pending() {
            wait_until_woken();
        }
        while slot.wait(Waiter::Task(&task)).is_pending() {
            wait_until_woken();
        }
    }
    assert_eq!(server.moved_bytes(), 20 * SLOT_BYTES as u64);
}

#[test]
fn what_is_not_allowed_ends_the_connection() {
    farside_testbed::needs!("fabric");
    type Wrong = fn(Registered, &Connection) -> (RemoteMemory, Piece);
    let wrong: [(bool, Wrong); 5] = [
        (true, |shown, _| (shown.remote, (0, 10))),
        (false, |shown, _| (shown.remote, (1 << 20, 1))),
        (false, |shown, _| (shown.remote, ((1 << 20) - 1, 2))),
        (false, |shown, _| (RemoteMemory { key: shown.remote.key ^ 0x55, ..shown.remote }, (0, 10))),
        (false, |shown, owner| {
            owner.deregister(shown.number);
            (shown.remote, (0, 10))
        }),
    ];
    for (is_write, wrong) in wrong {
        let [client, server] = pair();
        let memory = memory(1 << 20);
        let shown = client.register(memory.clone(), false).unwrap().unwrap();
        let (remote, piece) = wrong(shown, &client);
        let end = move_all(&server, is_write, remote, &[piece]).unwrap_err();
        assert!(matches!(end, TransferEnd::Failed(_)), "{end:?}");
        assert!(matches!(ready(server.slot(thread())).unwrap_err(), TransferEnd::Failed(_)));
        let mut found = [0; 3];
        memory.read(0, &mut found).unwrap();
        assert_eq!(found, [0, 31, 62]);
    }
}

#[test]
fn keys_of_other_connections_are_of_no_use() {
    farside_testbed::needs!("fabric");
    let ([client, server], [_other, other_server]) = (pair(), pair());
    let shown = client.register(memory(1 << 20), false).unwrap().unwrap();
    assert!(move_all(&other_server, false, shown.remote, &[(0, 10)]).is_err());
    move_all(&server, false, shown.remote, &[(0, 10)]).unwrap();
}

#[test]
fn the_end_of_the_peer_is_an_error() {
    farside_testbed::needs!("fabric");
    let [client, server] = pair();
    let shown = client.register(memory(1 << 20), false).unwrap().unwrap();
    drop(client);
    let end = move_all(&server, false, shown.remote, &[(0, 10)]).unwrap_err();
    assert!(matches!(end, TransferEnd::Failed(_)), "{end:?}");
}

#[test]
fn memory_stays_while_libfabric_may_access_it() {
    farside_testbed::needs!("fabric");
    let [client, _server] = pair();
    let memory = memory(4096);
    let weak = Arc::downgrade(&memory);
    let shown = client.register(memory, false).unwrap().unwrap();
    client.deregister(shown.number);
    // The device stops at once.
    assert_eq!(weak.strong_count() > 0, provider() == "tcp");
    drop(client);
    assert_eq!(weak.strong_count(), 0);
}

#[test]
fn memories_are_bounded() {
    farside_testbed::needs!("fabric");
    let [client, _server] = pair();
    let memory = memory(4096);
    let count = (0..200).filter(|_| client.register(memory.clone(), false).unwrap().is_some()).count();
    assert_eq!(count, MEMORIES_MAX);
}

#[test]
fn a_client_that_is_rejected_learns_it() {
    farside_testbed::needs!("fabric");
    let mut listener = listener();
    let address = listener.address();
    let client =
        std::thread::spawn(move || Connection::connect(&provider(), address, &PROOF, farside_testbed::deadline()));
    let request = listener.next(&Waker::new().unwrap()).unwrap();
    listener.reject(request);
    let error = client.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn a_listener_wakes() {
    farside_testbed::needs!("fabric");
    let waker = Waker::new().unwrap();
    waker.wake();
    assert!(listener().next(&waker).is_none());
}

/// A stranger that is no endpoint of libfabric.
#[test]
fn bytes_of_a_stranger_are_no_request() {
    farside_testbed::needs!("fabric");
    use std::io::Write as _;
    if provider() != "tcp" {
        return;
    }
    let mut listener = listener();
    let address = listener.address();
    let mut strangers: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    strangers.iter_mut().for_each(|stranger| stranger.write_all(&[0xff; 500]).unwrap());
    let client =
        std::thread::spawn(move || Connection::connect(&provider(), address, &PROOF, farside_testbed::deadline()));
    let request = listener.next(&Waker::new().unwrap()).unwrap();
    assert_eq!(request.proof(), Some(&PROOF));
    let server = request.open().unwrap();
    server.accept().unwrap();
    client.join().unwrap().unwrap();
}

#[test]
fn other_providers_are_refused() {
    farside_testbed::needs!("fabric");
    let error = Listener::open("sockets", None).unwrap_err().to_string();
    assert!(error.contains("name verbs"), "{error}");
}
