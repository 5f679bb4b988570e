//! Clients for which a task of tokio receives.

use std::future::poll_fn;
use std::sync::{Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use farside_rpc::{
    CallError, Client, ConnectError, Credentials, Handling, Never, Procedure, Server, Service, Stream, Tokens,
};

use farside_testbed::{limit, wait_until};
use tokio::time::{interval, timeout};

use crate::cases::{Running, runtime};

const TOKEN: (&str, &str) = ("tester", "a secret of the tests");
/// The wakers of the handlers of `never`. A handler without a waker would be answered for.
static WAKERS: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

fn serve(address: &str) -> Server {
    let service = Service::new("answers")
        .procedure("add", Handling::Inline, |_, number: u64| Ok::<_, Never>(number + 1))
        .procedure("length", Handling::Pooled, |_, bytes: Vec<u8>| Ok::<_, Never>(bytes.len()))
        .procedure("bytes", Handling::Pooled, |_, bytes: usize| Ok::<_, Never>(vec![7_u8; bytes]))
        .procedure("count", Handling::Pooled, |_, to: u64| Ok::<_, Never>(Stream::new(0..to)))
        .async_procedure("never", |_, (): ()| {
            poll_fn(|context| {
                WAKERS.lock().unwrap().push(context.waker().clone());
                Poll::<Result<(), Never>>::Pending
            })
        });
    let tokens = Tokens::new().with(TOKEN.0, TOKEN.1, ["test"]);
    Server::builder().listen(address).unwrap().tokens(tokens).provider(0, service).start().unwrap()
}

/// Must be called in a runtime.
fn connect(address: &str, spin: Duration) -> Client {
    let client = Client::to(address, Credentials::token(TOKEN.0, TOKEN.1)).unwrap();
    client.deadline(limit()).spin(spin).on_tokio().connect().unwrap()
}

fn never(client: &Client) -> Procedure<(), (), Never> {
    client.procedure("answers", 0, "never")
}

/// An address over shared memory, and one over TCP.
fn addresses() -> [String; 2] {
    [format!("shm:client-task-{}-{:?}", std::process::id(), std::thread::current().id()), "tcp://127.0.0.1:0".into()]
}

#[test]
fn a_runtime_of_one_thread_does_everything() {
    let spins = [Duration::ZERO, Duration::from_micros(200)];
    for (address, spin) in addresses().into_iter().flat_map(|address| spins.map(|spin| (address.clone(), spin))) {
        let server = serve(&address);
        let address = server.addresses()[0].to_string();
        runtime().block_on(async {
            let client = connect(&address, spin);
            let add = client.procedure::<u64, u64, Never>("answers", 0, "add");
            for number in 0..1000 {
                assert_eq!(add.start(&number).unwrap().await, Ok(number + 1));
            }
            let started: Vec<_> = (0..200).map(|number| add.start(&number).unwrap()).collect();
            for (number, call) in (0..).zip(started) {
                assert_eq!(call.await, Ok(number + 1));
            }
            // More than finds room at once.
            let length = client.procedure::<Vec<u8>, usize, Never>("answers", 0, "length");
            let started: Vec<_> = (0..50).map(|_| length.start(&vec![1; 60_000]).unwrap()).collect();
            for call in started {
                assert_eq!(call.await, Ok(60_000));
            }
            let bytes = client.procedure::<usize, Vec<u8>, Never>("answers", 0, "bytes");
            assert_eq!(bytes.start(&3_000_000).unwrap().await.map(|bytes| bytes.len()), Ok(3_000_000));
            let count = client.procedure::<u64, Stream<u64>, Never>("answers", 0, "count");
            let mut items = count.start(&10_000).unwrap().await.unwrap();
            for number in 0..10_000 {
                assert_eq!(items.next_async().await, Some(Ok(number)));
            }
            assert_eq!(items.next_async().await, None);
            // A function that panics in the task harms no other call.
            add.start(&1).unwrap().then(|_| panic!("as the test wants"));
            assert_eq!(add.start(&2).unwrap().await, Ok(3));
            // A deadline that passes while nothing arrives is noticed, also if there is a later
            // one.
            let patient = never(&client).start(&()).unwrap();
            let hasty = never(&client.deadline(Duration::from_millis(50)));
            for _ in 0..3 {
                let error = hasty.start(&()).unwrap().await.unwrap_err();
                assert!(matches!(error, CallError::Deadline { .. }), "{error}");
            }
            drop(patient);
            under_way(&server, 0).await;
            // A server that goes away is noticed, and another one is found.
            let waiting = never(&client).start(&()).unwrap();
            under_way(&server, 1).await;
            drop(server);
            let error = waiting.await.unwrap_err();
            assert!(matches!(error, CallError::Lost { .. }), "{error}");
            let _server = serve(&address);
            assert_eq!(add.start(&8).unwrap().await, Ok(9));
        });
    }
}

/// Waits until as many calls are under way in the server.
async fn under_way(server: &Server, calls: usize) {
    let look = async {
        let mut again = interval(Duration::from_millis(2));
        while server.dump().calls.len() != calls {
            again.tick().await;
        }
    };
    timeout(limit(), look).await.unwrap_or_else(|_| panic!("not {calls} calls: {:?}", server.dump().calls));
}

/// Its threads wait for what the task receives.
#[test]
fn a_runtime_that_ends_ends_the_connection() {
    for address in addresses() {
        let server = serve(&address);
        let address = server.addresses()[0].to_string();
        let running = Running::start();
        let client = running.enter(|| connect(&address, Duration::ZERO));
        let add = client.procedure::<u64, u64, Never>("answers", 0, "add");
        for number in 0..100 {
            assert_eq!(add.call(&number), Ok(number + 1));
        }
        let (sender, ends) = mpsc::channel();
        let never = never(&client);
        let waits = std::thread::spawn(move || sender.send(never.call(&()).unwrap_err()).unwrap());
        wait_until("the call begins", || !server.dump().calls.is_empty());
        drop(running);
        let error = ends.recv_timeout(limit()).unwrap();
        assert!(matches!(error, CallError::Lost { .. }), "{error}");
        waits.join().unwrap();
        let error = client.ping(1).unwrap_err();
        assert!(matches!(error, CallError::Connect(ConnectError::RuntimeEnded { .. })), "{error}");
    }
}
