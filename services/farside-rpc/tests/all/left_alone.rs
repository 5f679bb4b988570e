//! Calls that nothing waits for, streams that tasks read, and readers that are slow.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::server::Builder;
use farside_rpc::{CallError, Handling, Never, Ran, Service, Stage, Stream, Wire};

use farside_testbed::{wait_for, wait_until};

use crate::tasks::run;
use crate::{everywhere, hold_until_cancelled, paths, start};

/// How soon the items of a stream come.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
enum Pace {
    AtOnce,
    /// Each when the reader has those before it.
    OneByOne,
    /// Three of them at once, and no other before the call is over.
    Three,
}

/// `progress` counts the bytes that handlers have pulled, or the items that a reader has.
fn service(builder: Builder, progress: &Arc<AtomicU64>) -> Builder {
    let (pulled, received) = (progress.clone(), progress.clone());
    let service = Service::new("alone")
        .procedure("pull", Handling::Pooled, move |_, memory: Bulk<Read>| {
            let bytes = memory.pull_all().map_err(|error| error.to_string())?;
            pulled.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            Ok::<_, String>(())
        })
        .procedure("bytes", Handling::Pooled, |_, count: u64| Ok::<_, Never>(vec![3_u8; count as usize]))
        .procedure("count", Handling::Pooled, move |call, (count, pace): (u64, Pace)| {
            let (call, received) = (call.clone(), received.clone());
            let pause = move |item: &u64| match pace {
                Pace::OneByOne => wait_until("the items", || received.load(Ordering::SeqCst) == *item),
                Pace::Three if *item == 3 => hold_until_cancelled(&call),
                Pace::AtOnce | Pace::Three => {}
            };
            Ok::<_, Never>(Stream::new((0..count).inspect(pause)))
        });
    builder.provider(0, service)
}

#[test]
fn tasks_read_streams() {
    let received = Arc::default();
    everywhere(
        |builder| service(builder, &received),
        |client| {
            let count = client.procedure::<(u64, Pace), Stream<u64>, Never>("alone", 0, "count");
            let sum = async |count: u64, mut stream: Stream<u64>| {
                let mut next = 0;
                while let Some(number) = stream.next_async().await {
                    assert_eq!(number, Ok(next));
                    next += 1;
                    received.store(next, Ordering::SeqCst);
                }
                assert!(stream.next_async().await.is_none());
                assert_eq!(next, count);
            };
            for (items, pace) in [(0, Pace::AtOnce), (1, Pace::AtOnce), (100_000, Pace::AtOnce), (50, Pace::OneByOne)] {
                received.store(0, Ordering::SeqCst);
                run(async { sum(items, count.start(&(items, pace)).unwrap().await.unwrap()).await });
            }
            // Also one that a thread began, and together with another call.
            received.store(0, Ordering::SeqCst);
            let stream = count.call(&(50, Pace::OneByOne)).unwrap();
            assert_eq!(client.ping(1), Ok(1));
            run(sum(50, stream));
            let hurried = client.deadline(Duration::from_millis(200));
            let count = hurried.procedure::<(u64, Pace), Stream<u64>, Never>("alone", 0, "count");
            let end = run(async {
                let mut stream = count.start(&(10, Pace::Three)).unwrap().await?;
                loop {
                    match stream.next_async().await {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Err(error),
                        None => return Ok(()),
                    }
                }
            });
            assert!(matches!(end, Err(CallError::Deadline { .. })), "{end:?}");
        },
    );
}

/// The caller goes on with something else. Its memory is pulled, and its call runs.
#[test]
fn a_call_that_nothing_waits_for_goes_on() {
    for address in paths() {
        let pulled = Arc::default();
        let (_server, client) = start(address, |builder| service(builder, &pulled));
        let pull = client.procedure::<Bulk<Read>, (), String>("alone", 0, "pull");
        // Small segments travel by messages, also on one machine.
        let bytes = 3 << 20;
        let sent = vec![1; bytes];
        farside_rpc::bulk::scope(|scope| {
            let calls: Vec<_> = (0..5).map(|_| pull.start(&scope.lend_all(sent.chunks(100))).unwrap()).collect();
            wait_until("the calls make progress", || pulled.load(Ordering::SeqCst) >= 5 * bytes as u64);
            calls.into_iter().for_each(|call| assert_eq!(call.wait(), Ok(())));
        });
    }
}

/// The word that a call is given up waits behind others, and the client does nothing more.
#[test]
fn a_busy_server_hears_that_a_call_is_given_up() {
    for address in paths() {
        let (started, [is_blocked, may_go]) = (Arc::new(AtomicU64::new(0)), <[Arc<AtomicBool>; 2]>::default());
        let (starts, [blocks, goes]) = (started.clone(), [is_blocked.clone(), may_go.clone()]);
        let service = Service::new("busy")
            .procedure("hold", Handling::Pooled, move |call, _: Vec<u8>| {
                starts.fetch_add(1, Ordering::SeqCst);
                hold_until_cancelled(call);
                Ok::<_, Never>(())
            })
            // Meanwhile the server receives nothing.
            .procedure("block", Handling::Inline, move |_, ()| {
                blocks.store(true, Ordering::SeqCst);
                wait_until("the server may go on", || goes.load(Ordering::SeqCst));
                Ok::<_, Never>(())
            });
        let (server, client) = start(address, |builder| builder.pool(1).provider(0, service));
        let hold = client.procedure::<Vec<u8>, (), Never>("busy", 0, "hold");
        let held = hold.start(&Vec::new()).unwrap();
        wait_until("the handler runs", || started.load(Ordering::SeqCst) == 1);
        let block = client.procedure::<(), (), Never>("busy", 0, "block");
        let blocking = block.start(&()).unwrap();
        wait_until("the server is busy", || is_blocked.load(Ordering::SeqCst));
        // More than a connection takes that no one reads.
        let others: Vec<_> = (0..200).map(|_| hold.start(&vec![1; 60_000]).unwrap()).collect();
        drop((others, held, blocking));
        may_go.store(true, Ordering::SeqCst);
        wait_until("all calls end", || server.dump().calls.is_empty());
    }
}

/// A handler that has begun when its deadline passes may have done something.
#[test]
fn a_task_that_is_late_may_have_run() {
    let wakers = Arc::new(Mutex::new(Vec::new()));
    let serve = |builder: Builder| {
        let wakers = wakers.clone();
        // A handler that nothing could wake would end at once.
        let forever = move |_, (): ()| {
            let wakers = wakers.clone();
            poll_fn(move |context| {
                wakers.lock().unwrap().push(context.waker().clone());
                Poll::<Result<(), Never>>::Pending
            })
        };
        let service = Service::new("late").async_procedure("forever", forever);
        builder.max_time(Duration::from_millis(200)).provider(0, service)
    };
    everywhere(serve, |client| {
        let late = client.procedure::<(), (), Never>("late", 0, "forever");
        // On a busy machine, the time of a call may pass before its handler begins.
        let error = wait_for("a call that begins", || match late.call(&()).unwrap_err() {
            CallError::Deadline { stage: Stage::Queued } => None,
            error => Some(error),
        });
        assert_eq!(error, CallError::Deadline { stage: Stage::Waiting });
        assert_eq!(error.ran(), Ran::Maybe);
    });
}

mod timing {
    use std::thread;

    use super::*;

    /// Longer than a connection waits for a peer that takes nothing.
    #[test]
    fn a_slow_reader_keeps_its_connection() {
        let none = Arc::default();
        let (_server, client) = start("tcp://127.0.0.1:0", |builder| service(builder, &none));
        let bytes = client.procedure::<u64, Vec<u8>, Never>("alone", 0, "bytes");
        let count = client.procedure::<(u64, Pace), Stream<u64>, Never>("alone", 0, "count");
        let stream = count.call(&(1_000_000, Pace::AtOnce)).unwrap();
        let calls: Vec<_> = (0..200).map(|_| bytes.start(&60_000).unwrap()).collect();
        thread::sleep(Duration::from_secs(8));
        for call in calls {
            assert_eq!(call.wait().unwrap().len(), 60_000);
        }
        assert!(stream.eq((0..1_000_000).map(Ok)));
    }
}
