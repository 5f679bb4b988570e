//! [`Turns::run`]: a server as a task of tokio.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use ::tokio::io::Interest;
use ::tokio::task::yield_now;
use ::tokio::time::sleep_until;
use farside_connect::Watched;

use super::turns::DRAIN_STEP;
use super::{Turns, Unfinished};

/// How [`Turns::run_and_drain`] ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Calls had not ended.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// Tokio cannot watch the server's descriptor.
    #[error("cannot watch the server's descriptor: {0}; run the server in a runtime with I/O and time")]
    System(#[from] io::Error),
}

impl Turns {
    /// Serves until `end` is ready, or the task is dropped. Then calls that are under way are cut
    /// off; [`run_and_drain`](Self::run_and_drain) waits for them. Requires the feature `tokio`.
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
        self.serve_until(pin!(end), |_| false).await
    }

    /// Serves until `end` is ready. Then accepts no more connections and calls, waits for the calls
    /// that were accepted, and until clients have taken their answers, at most for `time`. Requires
    /// the feature `tokio`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farside_rpc::Server;
    ///
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// let turns = runtime.block_on(async {
    ///     Server::builder().listen(format!("shm:drained-{}", std::process::id()))?.turns()
    /// })?;
    /// let monitor = turns.monitor();
    /// let end = async { tokio::time::sleep(Duration::from_millis(10)).await };
    /// runtime.block_on(turns.run_and_drain(end, Duration::from_secs(5)))?;
    /// assert_eq!(monitor.connection_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::Unfinished`] lists the calls that were still under way at the end.
    /// [`RunError::System`] as for [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub async fn run_and_drain(mut self, end: impl Future<Output = ()>, time: Duration) -> Result<(), RunError> {
        self.serve_until(pin!(end), |_| false).await?;
        self.stop();
        let by = Instant::now() + time;
        while !self.is_drained() && Instant::now() < by {
            let step = by.min(Instant::now() + DRAIN_STEP);
            self.serve_until(pin!(sleep_until(step.into())), Self::is_drained).await?;
        }
        Ok(self.unfinished()?)
    }

    /// Serves until `end` is ready or `is_done` after a turn.
    async fn serve_until(
        &mut self,
        mut end: Pin<&mut impl Future<Output = ()>>,
        is_done: impl Fn(&Self) -> bool,
    ) -> io::Result<()> {
        let watched = Watched::new(self.as_fd(), Interest::READABLE)?;
        loop {
            let has_more = self.turn(Duration::ZERO) > 0 || self.may_have_more();
            if is_done(self) {
                return Ok(());
            }
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
                if let Poll::Ready(ready) = watched.poll_readable(context) {
                    return Poll::Ready(ready.map(|_| false));
                }
                due.as_mut().poll(context).map(|()| Ok::<_, io::Error>(false))
            });
            if has_ended.await? {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::tokio::sync::{Notify, oneshot};
    use farside_testbed::limit;

    use super::*;
    use crate::testing::connect;
    use crate::{Credentials, Never, Server, Service};

    /// A call that was accepted ends after the server was asked to. One that does not end is named.
    #[test]
    fn a_task_drains_and_names_what_is_left() {
        let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for ends in [true, false] {
            let name = format!("shm:drains-{ends}-{}", std::process::id());
            let release = Arc::new(Notify::new());
            let released = release.clone();
            let service = Service::new("held").async_procedure("wait", move |_, (): ()| {
                let released = released.clone();
                async move {
                    released.notified().await;
                    Ok::<_, Never>(7_u8)
                }
            });
            let drained = runtime.block_on(async {
                let turns = Server::builder().listen(&name).unwrap().provider(0, service).turns().unwrap();
                let monitor = turns.monitor();
                let (end, ended) = oneshot::channel::<()>();
                let time = if ends { limit() } else { Duration::from_millis(20) };
                let server = ::tokio::spawn(turns.run_and_drain(async { drop(ended.await) }, time));
                let call = ::tokio::task::spawn_blocking(move || {
                    let client = connect(&name, Credentials::own_user());
                    client.procedure::<(), u8, Never>("held", 0, "wait").call(&())
                });
                let arrived = async {
                    let mut look = ::tokio::time::interval(Duration::from_millis(1));
                    while monitor.dump().calls.is_empty() {
                        look.tick().await;
                    }
                };
                ::tokio::time::timeout(limit(), arrived).await.expect("a call arrives");
                drop(end);
                if ends {
                    // The server takes notice, and waits for the call.
                    for _ in 0..10 {
                        ::tokio::task::yield_now().await;
                    }
                    assert!(!server.is_finished());
                    release.notify_one();
                    assert_eq!(call.await.unwrap(), Ok(7));
                } else {
                    call.await.unwrap().unwrap_err();
                }
                server.await.unwrap()
            });
            match drained {
                Ok(()) => assert!(ends),
                Err(RunError::Unfinished(left)) => {
                    assert!(!ends && left.calls[0].procedure == "held/0/wait", "{left}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
