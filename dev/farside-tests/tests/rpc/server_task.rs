//! Servers of remote procedures that are tasks of tokio.

use std::time::Duration;

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::{CallError, Client, Credentials, Handling, Never, Server, Service, Tokens};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

const TOKEN: (&str, &str) = ("tester", "a secret of the tests");

fn service() -> Service {
    Service::new("tasks")
        .procedure("pooled", Handling::Pooled, |_, number: u64| Ok::<_, Never>(number + 1))
        .procedure("sum", Handling::Pooled, |_, memory: Bulk<Read>| {
            let bytes = memory.pull_all().map_err(|error| error.to_string())?;
            Ok::<_, String>(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        })
        .async_procedure("sleep", |_, millis: u64| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok::<_, Never>(millis)
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
            let client = Client::to(&address, credentials).unwrap().deadline(Duration::from_secs(60));
            let client = client.connect().unwrap();
            let pooled = client.procedure::<u64, u64, Never>("tasks", 0, "pooled");
            (0..100).for_each(|number| assert_eq!(pooled.call(&number), Ok(number + 1)));
            let sum = client.procedure::<Bulk<Read>, u64, String>("tasks", 0, "sum");
            assert_eq!(sum.call(&vec![1; 3 << 20].into()), Ok(3 << 20));
            let sleep = client.procedure::<u64, u64, Never>("tasks", 0, "sleep");
            // The handlers wait at the same time, and the client's task holds up no thread.
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let calls: Vec<_> = (0..50).map(|_| sleep.start(&20).unwrap()).collect();
                for call in calls {
                    assert_eq!(call.await, Ok(20));
                }
            });
            // A deadline that passes while nothing arrives is noticed.
            let hasty = Client::to(&address, Credentials::token(TOKEN.0, TOKEN.1)).unwrap();
            let hasty = hasty.deadline(Duration::from_millis(50)).connect().unwrap();
            let error = hasty.procedure::<u64, u64, Never>("tasks", 0, "sleep").call(&3_600_000).unwrap_err();
            assert!(matches!(error, CallError::Deadline { .. }), "{error}");
            drop(end);
            server.join().unwrap().unwrap();
        }
    }
}
