//! [`Connect::on_tokio`]: a client whose connections a task of tokio serves.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ::tokio::io::Interest;
use ::tokio::runtime::Handle;
use ::tokio::time::{Sleep, sleep_until};
use farside_connect::link::Link;
use farside_connect::{LinkEnd, Watched};

use super::{Calls, Connect, Receive};

impl Connect {
    /// Receives in a task of the current runtime of tokio, in place of the threads that wait and of
    /// a thread of the library. Requires the feature `tokio`.
    ///
    /// An awaited call then wakes one thread where it wakes two otherwise. The runtime must run
    /// while calls are under way, and have I/O and time. A function that blocks, such as
    /// [`Procedure::call`](super::Procedure::call), must not be called on its only thread: it would
    /// wait for what only this thread receives, until its deadline. When the runtime ends, the
    /// connection does. The first call of a procedure is made by a thread of the library, which
    /// asks the server for it. With [`spin`](Self::spin), the task looks for that long after each
    /// arrival before it sleeps. Others of the runtime have their turns meanwhile.
    ///
    /// *Cost*: no thread, and five descriptors a connection over shared memory, two over TCP.
    ///
    /// ```
    /// use farside_rpc::{Client, Credentials, Handling, Never, Server, Service};
    ///
    /// let name = format!("shm:on-tokio-{}", std::process::id());
    /// let echo = Service::new("echo")
    ///     .procedure("it", Handling::Inline, |_, x: u64| Ok::<_, Never>(x));
    /// let server = Server::builder().listen(&name)?.provider(0, echo).start()?;
    ///
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// runtime.block_on(async {
    ///     let client = Client::to(&name, Credentials::own_user())?.on_tokio().connect()?;
    ///     let echo = client.procedure::<u64, u64, Never>("echo", 0, "it");
    ///     for x in 0..10 {
    ///         assert_eq!(echo.start(&x)?.await?, x);
    ///     }
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Outside of a runtime of tokio. In one without I/O or time, the task panics, which tokio
    /// prints, and calls fail.
    #[must_use]
    pub fn on_tokio(mut self) -> Self {
        self.receiver = Some(Arc::new(Handle::current()));
        self
    }
}

impl Receive for Handle {
    fn receive(&self, link: Arc<Link>, calls: Arc<Calls>, spin: Duration) {
        let task = Task { link, calls, spin };
        // Its end, of whatever kind, is that of the link.
        drop(self.spawn(async move { task.run().await }));
    }
}

/// The task that receives. Dropping it ends the connection.
struct Task {
    link: Arc<Link>,
    calls: Arc<Calls>,
    /// For how long it looks before it sleeps.
    spin: Duration,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.link.close(LinkEnd::Here);
        self.calls.wake_all(true);
    }
}

impl Task {
    /// Receives until the connection ends.
    async fn run(&self) -> io::Result<()> {
        let (socket, waker) = self.link.path().descriptors();
        let socket = Watched::new(socket, Interest::READABLE | Interest::WRITABLE)?;
        let waker = waker.map(|waker| Watched::new(waker, Interest::READABLE)).transpose()?;
        let mut alarm = pin!(sleep_until(Instant::now().into()));
        let mut wakes_at = None;
        let mut looks_until = None;
        loop {
            // News from here on ends the next sleep.
            self.calls.driver.take_news();
            let received = self.link.receive();
            self.calls.wake_all(received.is_err());
            match received {
                Err(_) => return Ok(()),
                // The tasks that have their answers now are next.
                Ok(1..) => {
                    looks_until = (!self.spin.is_zero()).then(|| Instant::now() + self.spin);
                    yield_now().await;
                }
                Ok(0) if looks_until.is_some_and(|until| Instant::now() < until) => yield_now().await,
                Ok(0) => {
                    let at = self.calls.driver.next_look();
                    if let Some(at) = at.filter(|_| at != wakes_at) {
                        alarm.as_mut().reset(at.into());
                    }
                    wakes_at = at;
                    let alarm = wakes_at.map(|_| alarm.as_mut());
                    self.sleep(&socket, waker.as_ref(), alarm).await;
                }
            }
        }
    }

    /// Sleeps until something may have arrived, or may be sent, or the alarm rings.
    async fn sleep(&self, socket: &Watched, waker: Option<&Watched>, mut alarm: Option<Pin<&mut Sleep>>) {
        let path = self.link.path();
        let (mut is_prepared, mut may_look) = (false, false);
        poll_fn(|context| {
            self.calls.driver.sleeps(context.waker());
            if !is_prepared {
                is_prepared = path.prepare_sleep();
                if !is_prepared {
                    return Poll::Ready(());
                }
            }
            let mut is_awake = self.calls.driver.take_news();
            if let Poll::Ready(ready) = socket.poll_readable(context) {
                (is_awake, may_look) = (true, true);
                // A failure is that of the runtime, which ends.
                if ready.is_ok_and(|ready| ready.is_read_closed()) {
                    path.note_end();
                }
            }
            is_awake |= socket.poll_writable(context).is_ready();
            is_awake |= waker.is_some_and(|waker| waker.poll_readable(context).is_ready());
            is_awake |= alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(context).is_ready());
            if is_awake { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        path.end_sleep();
        if may_look {
            path.look();
        }
    }
}

/// Lets the tasks that are woken already have their turn. That of tokio lets it look at all its
/// descriptors in between.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
