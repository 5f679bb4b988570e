//! [`Turns::run`]: a server as a task of tokio.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::task::yield_now;
use ::tokio::time::sleep_until;

use super::Turns;

impl Turns {
    /// Serves until `end` is ready, or the task is dropped. Requires the feature `tokio`.
    ///
    /// Handlers run on the thread of this task: one that takes long holds up the runtime. What an
    /// `async` handler awaits may be anything of tokio.
    ///
    /// ```
    /// use farside_rpc::{Client, Credentials, Never, Server, Service};
    ///
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// runtime.block_on(async {
    ///     let name = format!("shm:awaited-{}", std::process::id());
    ///     let later = Service::new("later").async_procedure("echo", |_, number: u64| async move {
    ///         tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    ///         Ok::<_, Never>(number)
    ///     });
    ///     let turns = Server::builder().listen(&name)?.provider(0, later).turns()?;
    ///     let (end, ended) = tokio::sync::oneshot::channel::<()>();
    ///     let server = tokio::spawn(turns.run(async { drop(ended.await) }));
    ///
    ///     let connect = move || Client::connect(&name, Credentials::own_user());
    ///     let client = tokio::task::spawn_blocking(connect).await??;
    ///     let echo = client.procedure::<u64, u64, Never>("later", 0, "echo");
    ///     // The first call of a procedure asks the server for it, and waits for the answer.
    ///     let echo = tokio::task::spawn_blocking(move || echo.call(&1).map(|_| echo)).await??;
    ///     assert_eq!(echo.start(&7)?.await?, 7);
    ///     drop(end);
    ///     server.await??;
    ///     # drop(client);
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system's error, if tokio cannot watch the server's descriptor.
    ///
    /// # Panics
    /// Outside of a runtime of tokio, or in one without I/O and time.
    pub async fn run(mut self, end: impl Future<Output = ()>) -> io::Result<()> {
        let descriptor = self.as_fd().try_clone_to_owned()?;
        // SAFETY: `watched` owns the descriptor, which is open until `watched` closes it, and which
        // nothing else knows. An `OwnedFd` always returns the same descriptor.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        let mut end = pin!(end);
        loop {
            let has_more = self.turn(Duration::ZERO) > 0 || self.may_have_more();
            let mut due = pin!(async {
                match self.due() {
                    // Other tasks have their turn.
                    _ if has_more => yield_now().await,
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            });
            let has_ended = poll_fn(|context| {
                if end.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(true));
                }
                if let Poll::Ready(ready) = watched.poll_read_ready(context) {
                    ready?.clear_ready();
                    return Poll::Ready(Ok(false));
                }
                due.as_mut().poll(context).map(|()| Ok::<_, io::Error>(false))
            });
            if has_ended.await? {
                return Ok(());
            }
        }
    }
}
