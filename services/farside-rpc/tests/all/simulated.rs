//! Servers and clients over a simulated network.

use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::server::Builder;
use farside_rpc::sim::{Profile, Simulation};
use farside_rpc::{CallError, Handling, LinkEnd, Never, Pending, Procedure, Server, Service, Stream};
use farside_testbed::{limit, scaled, wait_until};

fn service(builder: Builder) -> Builder {
    let memory = Memory::new(1 << 20).unwrap();
    memory.write(0, &[3; 1 << 20]).unwrap();
    let service = Service::new("far")
        .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("length", Handling::Pooled, |_, bytes: Vec<u8>| Ok::<_, Never>(bytes.len() as u64))
        .procedure("bytes", Handling::Pooled, |_, bytes: u64| Ok::<_, Never>(vec![7_u8; bytes as usize]))
        .procedure("many", Handling::Pooled, |_, count: u32| Ok::<_, Never>(Stream::new(0..count)))
        .procedure("shown", Handling::Pooled, move |_, bytes: u64| {
            Ok::<_, Never>(memory.to_read(0..bytes as usize).expect("the part is inside"))
        })
        .procedure("copy", Handling::Pooled, |_, (from, to): (Bulk<Read>, Bulk<Write>)| {
            to.push(0, &from.pull_all().map_err(|error| error.to_string())?).map_err(|error| error.to_string())
        })
        .async_procedure("pull", |_, memory: Bulk<Read>| async move {
            let bytes = memory.bytes() as usize;
            let pulled = memory.pull_async(0, bytes).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(pulled.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        });
    builder.provider(0, service).max_time(Duration::from_secs(600))
}

fn simulate(seed: u64) -> Simulation {
    Simulation::new(service(Server::builder()), Profile::default(), seed).unwrap()
}

/// All that a client can do takes place in one thread.
#[test]
fn everything_works_over_a_simulated_network() {
    let simulation = simulate(1);
    let client = simulation.connect().unwrap().deadline(limit());
    assert_eq!(client.ping(9), Ok(9));
    let length = client.procedure::<Vec<u8>, u64, Never>("far", 0, "length");
    for bytes in [0, 10, 65_536, 3 << 20] {
        assert_eq!(length.call(&vec![1; bytes]), Ok(bytes as u64));
    }
    let many = client.procedure::<u32, Stream<u32>, Never>("far", 0, "many");
    assert_eq!(many.call(&100_000).unwrap().map(Result::unwrap).map(u64::from).sum::<u64>(), 4_999_950_000);
    let copy = client.procedure::<(Bulk<Read>, Bulk<Write>), (), String>("far", 0, "copy");
    let pull = client.procedure::<Bulk<Read>, u64, String>("far", 0, "pull");
    let shown = client.procedure::<u64, Bulk<Read>, Never>("far", 0, "shown");
    for bytes in [1, 5000, 1 << 20, 9 << 20] {
        let (sent, mut room) = (vec![5; bytes], vec![0; bytes]);
        scope(|scope| copy.call(&(scope.lend(&sent), scope.lend_mut(&mut room)))).unwrap();
        assert!(room == sent, "{bytes} bytes");
        assert_eq!(pull.call(&sent.into()), Ok(5 * bytes as u64));
        let bytes = bytes.min(1 << 20);
        assert!(shown.call(&(bytes as u64)).unwrap().pull_all().unwrap() == vec![3; bytes]);
    }
    // It took its time: the bytes that crossed the client's line, at the least.
    assert!(simulation.now() > Duration::from_millis(25), "{:?}", simulation.now());
    drop(client);
    while simulation.step() {}
}

/// Threads fetch long results for functions, while this one receives for them.
#[test]
fn long_results_reach_functions() {
    let simulation = simulate(2);
    let client = simulation.connect().unwrap().deadline(limit());
    let bytes = client.procedure::<u64, Vec<u8>, Never>("far", 0, "bytes");
    for _ in 0..scaled(100) {
        let (sender, results) = mpsc::channel();
        for _ in 0..2 {
            let sender = sender.clone();
            // All results are waited for.
            bytes.start(&100_000).unwrap().then(move |result| drop(sender.send(result)));
        }
        drop(sender);
        wait_until("all results", || {
            loop {
                match results.try_recv() {
                    Ok(result) => assert!(result == Ok(vec![7; 100_000])),
                    Err(TryRecvError::Disconnected) => return true,
                    Err(TryRecvError::Empty) if simulation.step() => {}
                    Err(TryRecvError::Empty) => {
                        thread::yield_now();
                        return false;
                    }
                }
            }
        });
    }
}

/// Calls of many clients, each with some under way. Returns the time that each call took.
fn ends_of_calls(seed: u64, clients: usize, calls: usize) -> Vec<Duration> {
    let simulation = simulate(seed);
    let clients: Vec<_> = (0..clients).map(|_| simulation.connect().unwrap()).collect();
    let pulls: Vec<_> =
        clients.iter().map(|client| client.procedure::<Bulk<Read>, u64, String>("far", 0, "pull")).collect();
    // The first call asks for the procedure's number.
    pulls.iter().for_each(|pull| assert_eq!(pull.call(&vec![1].into()), Ok(1)));
    let begun = simulation.now();
    let start = |pull: &Procedure<_, _, _>| pull.start(&vec![1; 100_000].into()).unwrap();
    let started: Vec<_> = pulls.iter().flat_map(|pull| (0..calls).map(move |_| start(pull))).collect();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let simulation = Arc::new(simulation);
    for pending in started {
        let (ends, simulation) = (ends.clone(), Arc::downgrade(&simulation));
        pending.then(move |result| {
            assert_eq!(result, Ok(100_000));
            let now = simulation.upgrade().expect("calls end before the simulation").now();
            ends.lock().unwrap().push(now - begun);
        });
    }
    while simulation.step() {}
    ends.lock().unwrap().clone()
}

#[test]
fn a_seed_repeats_what_happened() {
    let first = ends_of_calls(1, 20, 5);
    assert_eq!(first.len(), 100);
    assert_eq!(first, ends_of_calls(1, 20, 5));
    assert_ne!(first, ends_of_calls(2, 20, 5));
}

/// The server's line is shared, and many clients get all of it together.
#[test]
fn clients_share_the_servers_line() {
    for clients in [1, 16, 128] {
        let ends = ends_of_calls(3, clients, 4);
        let rate = ends.len() as f64 * 100_000.0 / ends[ends.len() - 1].as_secs_f64();
        let line = 1.25e9 * clients.min(10) as f64;
        assert!(rate < line && rate > 0.5 * line, "{clients} clients: {rate:.3e} of {line:.3e} bytes/s");
    }
}

#[test]
fn the_end_of_a_server_reaches_its_clients() {
    let simulation = simulate(1);
    let client = simulation.connect().unwrap();
    let echo = client.procedure::<u64, u64, Never>("far", 0, "echo");
    assert_eq!(echo.call(&1), Ok(1));
    let pending: Pending<u64, Never> = echo.start(&2).unwrap();
    drop(simulation);
    let error = pending.wait().unwrap_err();
    assert!(matches!(error, CallError::Lost { cause: LinkEnd::ByPeer, .. }), "{error}");
}

/// A connection that is cut off ends for its client, and for no other.
#[test]
fn a_connection_can_be_cut_off() {
    let simulation = simulate(1);
    let clients = [simulation.connect().unwrap(), simulation.connect().unwrap()];
    let [kept, cut] = clients.each_ref().map(|client| client.procedure::<u64, u64, Never>("far", 0, "echo"));
    assert_eq!((kept.call(&1), cut.call(&1)), (Ok(1), Ok(1)));
    let [left, lost] = [&kept, &cut].map(|echo| echo.start(&2).unwrap());
    simulation.cut(1);
    let error = lost.wait().unwrap_err();
    assert!(matches!(error, CallError::Lost { cause: LinkEnd::ByPeer, .. }), "{error}");
    assert_eq!((left.wait(), kept.call(&3)), (Ok(2), Ok(3)));
    assert!(cut.call(&3).is_err());
}
