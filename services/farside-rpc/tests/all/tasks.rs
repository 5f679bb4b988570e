//! Calls that are awaited or have a function, handlers that are `async`, and calls of handlers.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use farside_rpc::server::Builder;
use farside_rpc::{Call, CallError, Client, ConnectError, Handling, LinkEnd, Never, Ran, Server, Service};

use farside_testbed::{deadline, limit, wait_until};

use crate::{credentials, everywhere, hold_until_cancelled, near, start, tokens, turn_for, unique};

/// Tells the thread that runs a task to poll it.
struct Wakes(mpsc::Sender<()>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        // A task that has ended may be woken.
        let _ = self.0.send(());
    }
}

/// Runs a task on this thread. It is polled when it is woken.
#[track_caller]
pub(crate) fn run<T>(task: impl Future<Output = T>) -> T {
    let (sender, wakes) = mpsc::channel();
    let (mut task, waker) = (pin!(task), Waker::from(Arc::new(Wakes(sender))));
    loop {
        if let Poll::Ready(result) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        wakes.recv_timeout(limit()).expect("the task is woken");
    }
}

/// A task that ends when it is asked to.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Signal {
    fn set(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let tasks = std::mem::take(&mut state.1);
        drop(state);
        tasks.into_iter().for_each(Waker::wake);
    }
}

impl Future for Signal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1.push(context.waker().clone());
        Poll::Pending
    }
}

#[track_caller]
fn wait_for(counter: &AtomicU32, count: u32) {
    wait_until("the counter has increased", || counter.load(Ordering::Relaxed) >= count);
}

/// The answers of `sleep` wait for `may_answer`: none overtakes the client's clock.
fn echo(may_answer: &'static AtomicBool) -> Service {
    Service::new("echo")
        .procedure("inline", Handling::Inline, |_, number: u64| Ok::<_, String>(number))
        .procedure(
            "pooled",
            Handling::Pooled,
            |_, number: u64| {
                if number == 7 { Err("seven".to_string()) } else { Ok(number) }
            },
        )
        .procedure("bytes", Handling::Pooled, |_, count: u64| Ok::<_, Never>(vec![9_u8; count as usize]))
        .procedure("sleep", Handling::Pooled, move |call: &Call, (): ()| {
            hold_until_cancelled(call);
            wait_until("the answer may be sent", || may_answer.load(Ordering::Relaxed));
            Ok::<_, Never>(())
        })
}

fn with_echo(builder: Builder) -> Builder {
    static MAY_ANSWER: AtomicBool = AtomicBool::new(true);
    builder.provider(0, echo(&MAY_ANSWER))
}

#[test]
fn results_are_awaited() {
    everywhere(with_echo, |client| {
        for name in ["inline", "pooled"] {
            let echo = client.procedure::<u64, u64, String>("echo", 0, name);
            for number in 0..200 {
                let expected =
                    if (name, number) == ("pooled", 7) { Err(CallError::Service("seven".into())) } else { Ok(number) };
                assert_eq!(run(async { echo.start(&number)?.await }), expected);
            }
        }
        // A thread that waits takes turns with the driver.
        assert_eq!(client.ping(3), Ok(3));
        let bytes = client.procedure::<u64, Vec<u8>, Never>("echo", 0, "bytes");
        for count in [0, 1000, 3 << 20] {
            assert_eq!(run(async { bytes.start(&count)?.await }).unwrap().len() as u64, count);
        }
    });
}

#[test]
fn functions_get_results() {
    everywhere(with_echo, |client| {
        let (sender, results) = mpsc::channel::<(u64, Result<u64, _>)>();
        let echo = client.procedure::<u64, u64, String>("echo", 0, "pooled");
        for number in 0..1000 {
            // As many as the server allows at once.
            if number >= 200 {
                let (number, result) = results.recv_timeout(limit()).unwrap();
                assert_eq!(result.is_ok(), number != 7);
            }
            let sender = sender.clone();
            let call = echo.start(&number).unwrap();
            // The function runs on this thread if the result is there.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                call.then(move |result| {
                    sender.send((number, result)).unwrap();
                    // The driver goes on.
                    assert_ne!(number % 100, 5, "this panic is part of the test");
                });
            }));
        }
        for _ in 0..200 {
            let (number, result) = results.recv_timeout(limit()).unwrap();
            assert_eq!(result.is_ok(), number != 7);
        }
    });
}

#[test]
fn an_awaited_call_ends_at_its_deadline_and_with_its_server() {
    static MAY_ANSWER: AtomicBool = AtomicBool::new(false);
    let serve = |builder: Builder| builder.provider(0, echo(&MAY_ANSWER)).pool(2);
    let (first, client) = start("tcp://127.0.0.1:0", serve);
    let hasty = client.deadline(Duration::from_millis(50));
    let sleep = hasty.procedure::<(), (), Never>("echo", 0, "sleep");
    for _ in 0..3 {
        let error = run(async { sleep.start(&())?.await }).unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    }
    MAY_ANSWER.store(true, Ordering::Relaxed);
    let sleep = client.procedure::<(), (), Never>("echo", 0, "sleep");
    let (sender, results) = mpsc::channel();
    for _ in 0..3 {
        let sender = sender.clone();
        sleep.start(&()).unwrap().then(move |result| sender.send(result).unwrap());
    }
    let last = sleep.start(&()).unwrap();
    drop(first);
    // A call that had not been read yet may be refused.
    let is_lost = |result| {
        let lost = CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::ByPeer };
        [Err(lost), Err(CallError::ShuttingDown)].contains(&result)
    };
    for _ in 0..3 {
        assert!(is_lost(results.recv_timeout(limit()).unwrap()));
    }
    assert!(is_lost(run(last)));
}

/// Calls begin on this thread before their server does. It goes on, and they end well.
#[test]
fn to_connect_holds_up_no_task() {
    let address = format!("shm:{}", unique("later"));
    let connect = |deadline| Client::to(&address, credentials()).unwrap().deadline(deadline).lazily();
    let client = connect(limit());
    let echo = client.procedure::<u64, u64, String>("echo", 0, "pooled");
    let [awaited, waited, dropped] = [1, 2, 3].map(|number| echo.start(&number).unwrap());
    let (sender, results) = mpsc::channel();
    echo.start(&4).unwrap().then(move |result| sender.send(result).unwrap());
    drop(dropped);
    let server = with_echo(Server::builder().listen(&address).unwrap().tokens(tokens())).start().unwrap();
    assert_eq!((run(awaited), waited.wait()), (Ok(1), Ok(2)));
    assert_eq!(results.recv_timeout(limit()), Ok(Ok(4)));
    // The dropped one was not sent.
    let pooled = server.stats().into_iter().find(|stats| stats.name == "echo/0/pooled").unwrap();
    assert_eq!((pooled.done, pooled.refused), (3, 0));
    drop(server);
    // Where no server comes, the result says so.
    let echo = connect(Duration::from_millis(50)).procedure::<u64, u64, String>("echo", 0, "pooled");
    let error = run(echo.start(&5).unwrap()).unwrap_err();
    assert!(matches!(error, CallError::Connect(ConnectError::Absent { .. })), "{error}");
}

#[test]
fn a_dropped_future_cancels() {
    everywhere(with_echo, |client| {
        let sleep = client.procedure::<(), (), Never>("echo", 0, "sleep");
        let mut pending = Box::pin(sleep.start(&()).unwrap());
        let polled = pending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        drop(pending);
        // Both threads of the pool are free.
        let echo = client.procedure::<u64, u64, String>("echo", 0, "pooled");
        let calls = [1, 2, 3].map(|number| echo.start(&number).unwrap());
        assert_eq!(calls.map(|call| call.wait()), [Ok(1), Ok(2), Ok(3)]);
    });
}

/// Far more handlers wait than there are threads.
#[test]
fn async_handlers_occupy_no_thread_while_they_wait() {
    static WAITING: AtomicU32 = AtomicU32::new(0);
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Dropped;
    impl Drop for Dropped {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let signal = Signal::default();
    let current = Arc::new(Mutex::new(signal));
    let served = current.clone();
    let serve = move |builder: Builder| {
        let (current, stuck) = (served.clone(), Signal::default());
        let service = Service::new("tasks")
            .async_procedure("wait", move |_, number: u64| {
                let signal = current.lock().unwrap().clone();
                async move {
                    WAITING.fetch_add(1, Ordering::Relaxed);
                    signal.await;
                    if number == 3 {
                        panic!("three");
                    }
                    if number == 4 { Err("four".to_string()) } else { Ok(number) }
                }
            })
            .async_procedure("stuck", move |_, (): ()| {
                let (stuck, dropped) = (stuck.clone(), Dropped);
                async move {
                    WAITING.fetch_add(1, Ordering::Relaxed);
                    stuck.await;
                    drop(dropped);
                    Ok::<_, Never>(())
                }
            })
            .async_procedure("lost", |_, (): ()| async {
                std::future::pending::<()>().await;
                Ok::<_, Never>(())
            });
        builder.provider(0, service)
    };
    everywhere(serve, |client| {
        let (waiting, dropped) = (WAITING.load(Ordering::Relaxed), DROPPED.load(Ordering::Relaxed));
        let signal = Signal::default();
        *current.lock().unwrap() = signal.clone();
        let wait = client.procedure::<u64, u64, String>("tasks", 0, "wait");
        let calls: Vec<_> = (0..100).map(|number| wait.start(&number).unwrap()).collect();
        let stuck = client.procedure::<(), (), Never>("tasks", 0, "stuck");
        let cancelled = stuck.start(&()).unwrap();
        // The functions run until all handlers wait.
        wait_for(&WAITING, waiting + 101);
        cancelled.cancel();
        wait_for(&DROPPED, dropped + 1);
        signal.set();
        for (number, call) in (0..).zip(calls) {
            let expected = match number {
                3 => Err(CallError::Panicked("three".into())),
                4 => Err(CallError::Service("four".into())),
                _ => Ok(number),
            };
            assert_eq!(call.wait(), expected);
        }
        // A handler that nothing can wake any more is answered for.
        let lost = client.procedure::<(), (), Never>("tasks", 0, "lost");
        assert_eq!(lost.call(&()), Err(CallError::Cancelled));
        // A handler that waits when its client leaves is dropped.
        let abandoned = stuck.start(&()).unwrap();
        wait_for(&WAITING, waiting + 102);
        drop(abandoned);
        wait_for(&DROPPED, dropped + 2);
        // So is one whose deadline passes, although its client says nothing. On a busy machine, the
        // deadline may pass before the handler begins.
        let hasty = client.deadline(Duration::from_millis(200)).procedure::<(), (), Never>("tasks", 0, "stuck");
        let refused = || client.stats().unwrap().into_iter().find(|one| one.name == "tasks/0/stuck").unwrap().refused;
        let silent = farside_testbed::wait_for("a call that begins", || {
            let (waiting, refused_before) = (WAITING.load(Ordering::Relaxed), refused());
            let silent = hasty.start(&()).ok()?;
            let has_begun =
                || WAITING.load(Ordering::Relaxed) > waiting || DROPPED.load(Ordering::Relaxed) > dropped + 2;
            wait_until("the call begins or is refused", || has_begun() || refused() > refused_before);
            has_begun().then_some(silent)
        });
        wait_for(&DROPPED, dropped + 3);
        assert!(silent.wait().is_err());
    });
}

#[test]
fn a_shutdown_waits_for_async_handlers() {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let signal = Signal::default();
    let waits = signal.clone();
    let service = Service::new("tasks").async_procedure("wait", move |_, (): ()| {
        STARTED.fetch_add(1, Ordering::Relaxed);
        let waits = waits.clone();
        async move {
            waits.await;
            Ok::<_, Never>(5_u64)
        }
    });
    let (server, client) = start(near(), |builder| builder.provider(0, service).pool(1));
    let call = client.procedure::<(), u64, Never>("tasks", 0, "wait").start(&()).unwrap();
    assert_eq!(client.ping(1), Ok(1));
    wait_for(&STARTED, 1);
    let shutdown = std::thread::spawn(move || server.shutdown(deadline()));
    wait_until("the server shuts down", || client.ping(2) == Err(CallError::ShuttingDown));
    assert!(!shutdown.is_finished());
    signal.set();
    assert_eq!(call.wait(), Ok(5));
    assert_eq!(shutdown.join().unwrap(), Ok(()));
}

/// A handler calls another server, which does not answer: both calls end with the first one's
/// deadline.
#[test]
fn calls_of_a_handler_inherit_its_deadline() {
    static MAY_ANSWER: AtomicBool = AtomicBool::new(false);
    // The other server answers when all is over: its answer must not overtake the deadline.
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let (inner, other) = start(near(), |builder| builder.pool(1).provider(0, echo(&IS_OVER)));
    let other = other.deadline(Duration::from_secs(86_400));
    let (sender, ends) = mpsc::channel();
    let outer = Service::new("outer").procedure("ask", Handling::Pooled, move |_, (): ()| {
        let result = other.procedure::<(), (), Never>("echo", 0, "sleep").call(&());
        sender.send(result).unwrap();
        // The answer must not overtake the client's clock.
        wait_until("the answer may be sent", || MAY_ANSWER.load(Ordering::Relaxed));
        Ok::<_, Never>(())
    });
    let (server, hasty) = start(near(), |builder| builder.provider(0, outer).pool(1));
    let ask = hasty.deadline(Duration::from_millis(200)).procedure::<(), (), Never>("outer", 0, "ask");
    // On a busy machine, the deadline may pass before the handler begins.
    let ended = farside_testbed::wait_for("a handler that begins", || {
        MAY_ANSWER.store(false, Ordering::Relaxed);
        assert!(ask.call(&()).is_err());
        MAY_ANSWER.store(true, Ordering::Relaxed);
        ends.try_recv().ok()
    });
    IS_OVER.store(true, Ordering::Relaxed);
    assert!(matches!(ended, Err(CallError::Deadline { .. } | CallError::Cancelled)), "{ended:?}");
    drop((server, inner));
}

/// A handler that is woken again and again lets others run: on the only thread of a pool, and in
/// the turns of a server without one.
#[test]
fn a_handler_that_wakes_itself_takes_turns() {
    let service = || {
        let is_set = Arc::new(AtomicBool::new(false));
        let seen = is_set.clone();
        Service::new("tasks")
            .async_procedure("until", move |_, (): ()| {
                let seen = seen.clone();
                std::future::poll_fn(move |context| {
                    context.waker().wake_by_ref();
                    context.waker().wake_by_ref();
                    if seen.load(Ordering::Relaxed) { Poll::Ready(Ok::<_, Never>(7_u64)) } else { Poll::Pending }
                })
            })
            .procedure("set", Handling::Pooled, move |_, (): ()| {
                is_set.store(true, Ordering::Relaxed);
                Ok::<_, Never>(())
            })
    };
    let check = |client: &Client| {
        let until = client.procedure::<(), u64, Never>("tasks", 0, "until");
        let call = until.start(&()).unwrap();
        client.procedure::<(), (), Never>("tasks", 0, "set").call(&()).unwrap();
        assert_eq!(call.wait(), Ok(7));
    };
    let (server, client) = start(near(), |builder| builder.provider(0, service()).pool(1));
    check(&client);
    drop((client, server));
    let builder = Server::builder().listen(near()).unwrap().tokens(tokens());
    turn_for(builder.provider(0, service()).turns().unwrap(), check);
}

/// A handler that waits for ever is dropped with its server.
#[test]
fn handlers_that_wait_end_with_their_server() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Dropped;
    impl Drop for Dropped {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let never = Signal::default();
    let (sender, begun) = mpsc::channel();
    let waits = never.clone();
    let service = Service::new("tasks").async_procedure("wait", move |_, (): ()| {
        let (waits, dropped) = (waits.clone(), Dropped);
        sender.send(()).unwrap();
        async move {
            waits.await;
            drop(dropped);
            Ok::<_, Never>(())
        }
    });
    let (server, client) = start(near(), |builder| builder.provider(0, service).pool(1));
    let wait = client.procedure::<(), (), Never>("tasks", 0, "wait");
    let calls = [(); 3].map(|()| wait.start(&()).unwrap());
    (0..3).for_each(|_| begun.recv_timeout(limit()).unwrap());
    drop(server);
    wait_for(&DROPPED, 3);
    for call in calls {
        let lost = call.wait().unwrap_err();
        assert!(matches!(lost, CallError::Lost { .. } | CallError::Cancelled), "{lost}");
    }
    drop(never);
}

mod timing {
    use std::thread;

    use super::*;

    /// One thread connects in vain; another's short deadline passes meanwhile.
    #[test]
    fn a_thread_that_connects_does_not_hold_up_others() {
        // It accepts, and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", silent.local_addr().unwrap());
        let client = Client::to(address, credentials()).unwrap().deadline(Duration::from_secs(3)).lazily();
        let patient = client.clone();
        let first = thread::spawn(move || patient.ping(1));
        thread::sleep(Duration::from_millis(50));
        let error = client.deadline(Duration::from_millis(50)).ping(2).unwrap_err();
        assert!(matches!(error, CallError::Connect(_)), "{error}");
        assert!(!first.is_finished());
        drop(silent);
        assert!(first.join().unwrap().is_err());
    }
}
