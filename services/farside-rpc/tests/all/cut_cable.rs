//! A server and a client in two networks, and a cable between them that is cut.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farside_rpc::{CallError, Client, ConnectError, Credentials, Handling, Never, Ran, Server, Service};
use farside_sys::process::enter_network;
use farside_testbed::netns::{Pair, Side, with_privileges};
use farside_testbed::{limit, wait_until};

use super::{credentials, tokens, unique};

/// The calls have far more time than the test. So a call that ends has heard of the cut.
const DEADLINE: Duration = Duration::from_secs(86_400);

/// Runs something on a host.
fn on<T: Send>(pair: &Pair, side: Side, run: impl FnOnce() -> T + Send) -> T {
    let namespace = pair.namespace(side).unwrap();
    let enter_and_run = || {
        enter_network(namespace.as_fd()).unwrap();
        run()
    };
    thread::scope(|scope| scope.spawn(enter_and_run).join().unwrap())
}

mod deep {
    use super::*;

    /// A server that listens at a path of the file system is found from another network. There its
    /// abstract name is unknown.
    #[test]
    fn a_path_of_the_file_system_crosses_networks() {
        farside_testbed::needs!("netns");
        with_privileges(2 * limit(), || {
            let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
            let path = std::env::temp_dir().join(unique("across"));
            let addresses = [format!("shm:{}", path.display()), format!("shm:{}", unique("across"))];
            let echo = Service::new("echo").procedure("it", Handling::Inline, |_, x: u64| Ok::<_, Never>(x));
            let server = on(&pair, Side::A, || {
                let builder = addresses.iter().fold(Server::builder(), |builder, one| builder.listen(one).unwrap());
                builder.provider(0, echo).start().unwrap()
            });
            let call = |address: &str| {
                let client = Client::connect(address, Credentials::own_user())?;
                assert_eq!(client.procedure::<u64, u64, Never>("echo", 0, "it").call(&7), Ok(7));
                Ok(())
            };
            let [by_path, by_name] = [0, 1].map(|one| on(&pair, Side::B, || call(&addresses[one])));
            assert_eq!(by_path, Ok(()));
            assert!(matches!(by_name, Err(ConnectError::Absent { .. })), "{by_name:?}");
            assert_eq!(on(&pair, Side::A, || call(&addresses[1])), Ok(()));
            drop(server);
            assert!(!path.exists());
        });
    }

    /// A call waits for its answer, and a second connection is idle. The caller, the handler and
    /// the server hear of the cut. The client connects again when the cable is mended.
    #[test]
    fn both_sides_hear_of_a_cut_cable() {
        static RUNS: AtomicBool = AtomicBool::new(false);
        static WAS_TOLD: AtomicBool = AtomicBool::new(false);
        farside_testbed::needs!("netns");
        with_privileges(2 * limit(), || {
            let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
            let service = Service::new("patience").procedure("wait", Handling::Pooled, |call, (): ()| {
                RUNS.store(true, Ordering::Relaxed);
                wait_until("the handler hears of the cut", || call.is_cancelled());
                WAS_TOLD.store(true, Ordering::Relaxed);
                Ok::<_, Never>(())
            });
            let server = on(&pair, Side::A, || {
                let builder = Server::builder().listen(format!("tcp://{}:0", Side::A.address())).unwrap();
                builder.tokens(tokens()).provider(0, service).start().unwrap()
            });
            let connect = || {
                let client = Client::to(server.addresses()[0].to_string(), credentials()).unwrap();
                client.deadline(DEADLINE).connect().unwrap()
            };
            let [client, idle] = [(); 2].map(|()| on(&pair, Side::B, connect));
            let error = on(&pair, Side::B, || {
                let pending = client.procedure::<(), (), Never>("patience", 0, "wait").start(&()).unwrap();
                wait_until("the handler runs", || RUNS.load(Ordering::Relaxed));
                pair.cut().unwrap();
                pending.wait().unwrap_err()
            });
            assert!(matches!(error, CallError::Lost { ran: Ran::Maybe, .. }), "{error}");
            wait_until("the handler hears of the cut", || WAS_TOLD.load(Ordering::Relaxed));
            wait_until("the server has no connections", || server.dump().connections.is_empty());
            pair.reconnect().unwrap();
            // The system may say for a moment that there is no route.
            for client in [client, idle] {
                wait_until("the server answers", || on(&pair, Side::B, || client.ping(7)) == Ok(7));
            }
        });
    }
}
