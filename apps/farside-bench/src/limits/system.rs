//! Round trips by the system's own means: a pair of eventfds, and a TCP stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};
use farside_sys::net::{Interest, Listener, MessageSocket, Waker, wait_ready};

use super::Yardstick;
use crate::BenchError;
use crate::stats::median;
use crate::timing::{TOGETHER, time_batches};

/// The time for the other worker to connect.
const PATIENCE: Duration = Duration::from_secs(30);

/// Round trips between the workers 0 and 1, in nanoseconds.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    line: Line,
    name: &'static str,
    trips: u64,
}

#[derive(Debug)]
enum Line {
    Eventfds { own: Waker, other: Waker },
    Stream { stream: TcpStream, spins: bool },
}

fn failed(cause: std::io::Error) -> BenchError {
    BenchError::System { doing: "measuring round trips over", path: PathBuf::from("a socket"), cause }
}

impl RoundTrips {
    /// Round trips by two eventfds, on which each side blocks. Collective for two workers.
    pub(crate) fn by_eventfds(me: &Worker, trips: u64) -> Result<Self, BenchError> {
        let name = format!("farside-bench-{}", me.broadcast(WorkerId::FIRST, me.is_first().then(std::process::id))?);
        let (own, other) = if me.is_first() {
            let listener = Listener::bind(name.as_bytes()).map_err(failed)?;
            me.barrier()?;
            wait_readable(&listener)?;
            let socket = listener.accept().map_err(failed)?;
            let (own, other) = (Waker::blocking().map_err(failed)?, Waker::blocking().map_err(failed)?);
            for waker in [&other, &own] {
                socket.send(b"w", Some(waker.as_fd())).map_err(failed)?;
            }
            // The other side has both before the socket closes.
            me.barrier()?;
            (own, other)
        } else {
            me.barrier()?;
            let socket = MessageSocket::connect(name.as_bytes()).map_err(failed)?;
            let wakers = (take(&socket)?, take(&socket)?);
            me.barrier()?;
            wakers
        };
        Ok(Self { line: Line::Eventfds { own, other }, name: "eventfd ping-pong", trips })
    }

    /// Round trips of 8 bytes by a TCP stream on the loopback device, on which each side blocks, or
    /// reads until something is there. Collective for two workers.
    pub(crate) fn by_tcp(me: &Worker, trips: u64, spins: bool) -> Result<Self, BenchError> {
        let stream = tcp_stream(me)?;
        stream.set_nonblocking(spins).map_err(failed)?;
        let name = if spins { "spinning TCP ping-pong" } else { "TCP ping-pong" };
        Ok(Self { line: Line::Stream { stream, spins }, name, trips })
    }
}

/// A TCP stream on the loopback device between the workers 0 and 1. Collective for them.
fn tcp_stream(me: &Worker) -> Result<TcpStream, BenchError> {
    let listener = match me.is_first() {
        true => Some(TcpListener::bind("127.0.0.1:0").map_err(failed)?),
        false => None,
    };
    let port = listener.as_ref().map(|listener| listener.local_addr().map(|address| address.port()));
    let port = me.broadcast(WorkerId::FIRST, port.transpose().map_err(failed)?)?;
    let stream = match listener {
        Some(listener) => listener.accept().map_err(failed)?.0,
        None => TcpStream::connect(("127.0.0.1", port)).map_err(failed)?,
    };
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    Ok(stream)
}

/// The bytes a second of a bare TCP stream from worker 1 to worker 0.
#[derive(Debug)]
pub(crate) struct ByteStream(TcpStream);

impl ByteStream {
    /// Collective for two workers.
    pub(crate) fn new(me: &Worker) -> Result<Self, BenchError> {
        tcp_stream(me).map(Self)
    }

    /// Moves `total` bytes, at most `room` at once. Collective for two workers; worker 0 gets the
    /// rate.
    pub(crate) fn per_second(&mut self, me: &Worker, total: usize, room: &mut [u8]) -> Result<f64, BenchError> {
        me.barrier()?;
        let (start, mut left) = (Instant::now(), total);
        while left > 0 {
            let piece = left.min(room.len());
            match me.is_first() {
                true => self.0.read_exact(&mut room[..piece]).map_err(failed)?,
                false => self.0.write_all(&room[..piece]).map_err(failed)?,
            }
            left -= piece;
        }
        Ok(total as f64 / start.elapsed().as_secs_f64())
    }
}

fn wait_readable(of: &impl AsFd) -> Result<(), BenchError> {
    wait_ready(&[Interest { fd: of.as_fd(), writable: false }], Some(Instant::now() + PATIENCE)).map_err(failed)?;
    Ok(())
}

fn take(socket: &MessageSocket) -> Result<Waker, BenchError> {
    wait_readable(socket)?;
    let received = socket.receive(&mut [0; 8]).map_err(failed)?;
    let fd: Option<OwnedFd> = received.and_then(|received| received.fd);
    Ok(Waker::from_fd(fd.ok_or_else(|| failed(ErrorKind::UnexpectedEof.into()))?))
}

impl Line {
    fn send(&mut self) -> Result<(), BenchError> {
        match self {
            Self::Eventfds { other, .. } => {
                other.wake();
                Ok(())
            }
            Self::Stream { stream, .. } => stream.write_all(&[7; 8]).map_err(failed),
        }
    }

    fn receive(&mut self) -> Result<(), BenchError> {
        match self {
            Self::Eventfds { own, .. } => {
                own.reset();
                Ok(())
            }
            Self::Stream { stream, spins: false } => stream.read_exact(&mut [0; 8]).map_err(failed),
            Self::Stream { stream, spins: true } => {
                let until = Instant::now() + PATIENCE;
                // Eight bytes arrive together.
                while let Err(error) = stream.read_exact(&mut [0; 8]) {
                    if error.kind() != ErrorKind::WouldBlock || Instant::now() > until {
                        return Err(failed(error));
                    }
                }
                Ok(())
            }
        }
    }
}

impl Yardstick for RoundTrips {
    fn name(&self) -> &str {
        self.name
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        let line = &mut self.line;
        let batches = time_batches(self.trips, TOGETHER, || {
            line.send()?;
            line.receive()
        })?;
        Ok(median(&batches))
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        for _ in 0..self.trips {
            self.line.receive()?;
            self.line.send()?;
        }
        Ok(())
    }
}
