//! The connections of the server: [`Door`], [`Guest`].
//!
//! A connection that has not proven the token is ended after a while, and earlier if there are many
//! others: the oldest gives way to the newest. One that has proven it is ended if nothing moves.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep};

/// The number of connections that have proven the token.
const VIEWERS_MAX: usize = 512;
/// The number of connections that have not.
const STRANGERS_MAX: usize = 128;
/// The time in which a connection proves the token.
const PROOF_TIME: Duration = Duration::from_secs(30);
/// The pause after the system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All connections.
pub(super) struct Crowd {
    places: Arc<Semaphore>,
    turned_away: AtomicU64,
}

impl Default for Crowd {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(VIEWERS_MAX)), turned_away: AtomicU64::new(0) }
    }
}

impl Crowd {
    /// The number of connections that have proven the token.
    pub(super) fn viewers(&self) -> usize {
        VIEWERS_MAX - self.places.available_permits()
    }

    /// The number of connections that gave way, or for which there was no place.
    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }
}

/// The state of a connection: it has proven the token, or not. Clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing(Arc<OnceLock<OwnedSemaphorePermit>>);

impl Standing {
    fn is_proven(&self) -> bool {
        self.0.get().is_some()
    }

    /// Notes that the connection has proven the token. Returns whether there is a place for it.
    pub(super) fn prove(&self, crowd: &Crowd) -> bool {
        if self.is_proven() {
            return true;
        }
        match Arc::clone(&crowd.places).try_acquire_owned() {
            // Requests of one connection come one after the other.
            Ok(place) => self.0.set(place).is_ok(),
            Err(_) => {
                crowd.turned_away.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }
}

impl Connected<IncomingStream<'_, Door>> for Standing {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.io().standing.clone()
    }
}

/// Accepts connections.
pub(super) struct Door {
    listener: TcpListener,
    crowd: Arc<Crowd>,
    idle_time: Duration,
    /// Connections that had not proven the token when this was last looked at, the oldest first.
    /// Dropping the sender ends the connection.
    strangers: VecDeque<(Standing, oneshot::Sender<()>)>,
}

impl Door {
    pub(super) fn new(listener: TcpListener, crowd: Arc<Crowd>, idle_time: Duration) -> Self {
        Self { listener, crowd, idle_time, strangers: VecDeque::new() }
    }

    fn admit(&mut self, stream: TcpStream) -> Guest {
        self.strangers.retain(|(standing, gives_way)| !standing.is_proven() && !gives_way.is_closed());
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.pop_front();
            self.crowd.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        // Without it, a small answer may wait. A connection that lacks it works as well.
        let _ = stream.set_nodelay(true);
        let (standing, (sender, gives_way)) = (Standing::default(), oneshot::channel());
        self.strangers.push_back((standing.clone(), sender));
        let (idle_time, late) = (self.idle_time, Box::pin(tokio::time::sleep(PROOF_TIME)));
        Guest { stream, standing, gives_way, late, idle_time }
    }
}

impl Listener for Door {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        // Of many that come at once, each can prove its token before the next ones push it out.
        tokio::task::yield_now().await;
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (self.admit(stream), address),
                // The process has no descriptor left, or the client has gone already.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection.
pub(super) struct Guest {
    stream: TcpStream,
    standing: Standing,
    /// Ready when the connection has to give way.
    gives_way: oneshot::Receiver<()>,
    /// Ready when the time of the connection is over.
    late: Pin<Box<Sleep>>,
    /// The time in which a viewer takes some bytes, or asks for some.
    idle_time: Duration,
}

impl Guest {
    /// Fails if the connection has to end. Otherwise the task is woken when it has to.
    fn check_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let gives_way = !self.standing.is_proven() && Pin::new(&mut self.gives_way).poll(cx).is_ready();
        if gives_way || self.late.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Notes that bytes have moved.
    fn has_moved(&mut self) {
        if self.standing.is_proven() {
            let until = Instant::now() + self.idle_time;
            self.late.as_mut().reset(until);
        }
    }

    /// Ends a step: a step that waits is bounded.
    fn after<T>(&mut self, cx: &mut Context<'_>, step: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if step.is_pending() {
            self.check_time(cx)?;
            return Poll::Pending;
        }
        self.has_moved();
        step
    }
}

impl AsyncRead for Guest {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.after(cx, step)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let step = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.after(cx, step)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let step = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.after(cx, step)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
