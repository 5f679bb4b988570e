//! Servers of remote procedures that are tasks of tokio.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::{CallError, Client, Credentials, Handling, Never, Server, Service, Tokens};
use farside_testbed::limit;
use tokio::runtime::Builder;
use tokio::sync::{Barrier, oneshot};
use tokio::time::{interval, timeout};

const TOKEN: (&str, &str) = ("tester", "a secret of the tests");
/// The calls that wait for each other.
const MEETING: usize = 50;

fn service() -> Service {
    Service::new("tasks")
        .procedure("pooled", Handling::Pooled, |_, number: u64| Ok::<_, Never>(number + 1))
        .procedure("sum", Handling::Pooled, |_, memory: Bulk<Read>| {
            let bytes = memory.pull_all().map_err(|error| error.to_string())?;
            Ok::<_, String>(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        })
        .async_procedure("meet", {
            // All wait at the same time, or none goes on.
            let barrier = Arc::new(Barrier::new(MEETING));
            move |_, number: u64| {
                let barrier = barrier.clone();
                async move {
                    barrier.wait().await;
                    // The runtime's clock goes on, too.
                    let mut ticks = interval(Duration::from_millis(1));
                    ticks.tick().await;
                    ticks.tick().await;
                    Ok::<_, Never>(number)
                }
            }
        })
        .async_procedure("sleep", |_, (): ()| async {
            Ok::<_, Never>(timeout(Duration::from_secs(86_400), pending::<()>()).await.unwrap_or_default())
        })
}

/// The server is the only task of its runtime's thread. Clients are threads and tasks elsewhere.
#[test]
fn a_server_is_a_task() {
    for address in [format!("shm:tokio-{}", std::process::id()), "tcp://127.0.0.1:0".to_string()] {
        for spin in [Duration::ZERO, Duration::from_micros(200)] {
            let tokens = Tokens::new().with(TOKEN.0, TOKEN.1, ["test"]);
            let builder = Server::builder().listen(&address).unwrap().tokens(tokens).spin(spin);
            let turns = builder.provider(0, service()).turns().unwrap();
            let address = turns.addresses()[0].to_string();
            let (end, ended) = oneshot::channel::<()>();
            let server = std::thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async { tokio::spawn(turns.run(async { drop(ended.await) })).await.unwrap() })
            });
            let credentials = Credentials::token(TOKEN.0, TOKEN.1);
            let client = Client::to(&address, credentials).unwrap().deadline(limit());
            let client = client.connect().unwrap();
            let pooled = client.procedure::<u64, u64, Never>("tasks", 0, "pooled");
            (0..100).for_each(|number| assert_eq!(pooled.call(&number), Ok(number + 1)));
            let sum = client.procedure::<Bulk<Read>, u64, String>("tasks", 0, "sum");
            assert_eq!(sum.call(&vec![1; 3 << 20].into()), Ok(3 << 20));
            let meet = client.procedure::<u64, u64, Never>("tasks", 0, "meet");
            // The handlers wait at the same time, and the client's task holds up no thread.
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let calls: Vec<_> = (0..MEETING as u64).map(|number| meet.start(&number).unwrap()).collect();
                for (number, call) in (0..).zip(calls) {
                    assert_eq!(call.await, Ok(number));
                }
            });
            // A deadline that passes while nothing arrives is noticed.
            let hasty = client.deadline(Duration::from_millis(50));
            let error = hasty.procedure::<(), (), Never>("tasks", 0, "sleep").call(&()).unwrap_err();
            assert!(matches!(error, CallError::Deadline { .. }), "{error}");
            drop(end);
            server.join().unwrap().unwrap();
        }
    }
}
