//! Connections to process 0 that have not yet proven that they belong to the job.
//!
//! A stranger costs a descriptor and a few hundred bytes. Their number is limited, the oldest leave
//! first, and each has a few seconds. So strangers cannot keep the processes of the job out.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, tcp};
use farside_sys::process::random_bytes;

use super::super::SILENCE_MAX;
use super::super::greeting::{
    self, Answer, Challenge, Claim, Exchange, GREETING_BYTES_MAX, Nonce, ProvenAnswer, Seat, Secret, Side,
};
use super::Door;
use crate::control::frames::{FrameReader, FrameWriter};
use crate::control::link::Link;

/// The time that a stranger has to make its request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum number of strangers beyond one for each process of the job.
const STRANGERS_MORE: usize = 64;
/// The number of connections that are accepted before existing ones get their turn.
const ACCEPTS_AT_A_TIME: usize = 64;
/// The pause in accepting connections when the system has no descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections without a proof.
#[derive(Debug)]
pub(crate) struct Strangers {
    door: Door,
    count_max: usize,
    /// The strangers, the oldest first.
    waiting: VecDeque<Stranger>,
    /// The end of the pause in accepting connections.
    paused_until: Option<Instant>,
}

#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    address: SocketAddr,
    reader: FrameReader,
    host_nonce: Nonce,
    until: Instant,
}

/// A process that knows the secret and asks to join.
#[derive(Debug)]
pub(crate) struct Request {
    stranger: Stranger,
    exchange: Exchange,
    secret: Secret,
}

impl Strangers {
    pub(crate) fn new(door: Door) -> Self {
        Self { door, count_max: STRANGERS_MORE, waiting: VecDeque::new(), paused_until: None }
    }

    /// Raises the limit of strangers for a job of this many processes.
    pub(crate) fn expect(&mut self, processes: u32) {
        self.count_max = processes as usize + STRANGERS_MORE;
    }

    /// Returns the descriptors to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        let listener = self.paused_until.is_none().then_some(self.door.listener.as_fd());
        let streams = self.waiting.iter().map(|stranger| stranger.stream.as_fd());
        listener.into_iter().chain(streams).map(|fd| Interest { fd, writable: false })
    }

    /// Returns when [`meet`](Self::meet) has work even if no bytes arrive.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|stranger| stranger.until).chain(self.paused_until).min()
    }

    /// Accepts connections and reads their requests. Returns the requests with a valid proof, and
    /// descriptions of the others.
    pub(crate) fn meet(&mut self) -> (Vec<Request>, Vec<String>) {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|until| now < *until);
        if self.paused_until.is_none() {
            self.take_in(now);
        }
        let (mut requests, mut turned_away) = (Vec::new(), Vec::new());
        for mut stranger in std::mem::take(&mut self.waiting) {
            match stranger.reader.receive(&stranger.stream) {
                Ok(Some(message)) => {
                    let Some(request) = greeting::Request::decode(&message) else {
                        tracing::debug!(address = %stranger.address, "stranger dropped: its message is no request");
                        continue;
                    };
                    match stranger.examine(&request, &self.door.secret) {
                        Ok(request) => requests.push(request),
                        Err(why) => turned_away.push(why),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && now < stranger.until => {
                    self.waiting.push_back(stranger);
                }
                Ok(None) => tracing::debug!(address = %stranger.address, "stranger left"),
                Err(error) => tracing::debug!(address = %stranger.address, %error, "stranger dropped"),
            }
        }
        (requests, turned_away)
    }

    fn take_in(&mut self, now: Instant) {
        // The others get their turn after these.
        for _ in 0..ACCEPTS_AT_A_TIME {
            match self.door.listener.accept() {
                Ok((stream, address)) => {
                    if self.waiting.len() == self.count_max {
                        self.waiting.pop_front();
                    }
                    // A connection that fails here has already been closed.
                    self.waiting.extend(Stranger::challenge(stream, address, now + PATIENCE));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    // No descriptors or no memory: the oldest stranger makes room.
                    tracing::warn!(%error, "cannot accept a connection: trying again soon");
                    self.waiting.pop_front();
                    self.paused_until = Some(now + PAUSE);
                    return;
                }
            }
        }
    }
}

impl Stranger {
    fn challenge(stream: TcpStream, address: SocketAddr, until: Instant) -> Option<Self> {
        tcp::configure(&stream, SILENCE_MAX).ok()?;
        let host_nonce = random_bytes().ok()?;
        say(&stream, &Challenge { host_nonce }.encode());
        Some(Self { stream, address, reader: FrameReader::new(GREETING_BYTES_MAX), host_nonce, until })
    }

    /// Checks whether the stranger knows the secret. Otherwise describes it.
    fn examine(self, request: &greeting::Request, secret: &Secret) -> Result<Request, String> {
        let greeting::Request { claim, nonce, proof } = *request;
        let exchange = Exchange { host_nonce: self.host_nonce, nonce, claim };
        if exchange.is_proven(Side::Member, secret, &proof) {
            return Ok(Request { stranger: self, exchange, secret: secret.clone() });
        }
        say(&self.stream, &ProvenAnswer::new(Answer::WrongSecret, &exchange, secret).encode());
        let (address, process) = (self.address.ip(), claim.process);
        Err(format!("a process at {address}, which claims to be process {process} but has another FARSIDE_SECRET"))
    }
}

impl Request {
    /// Returns the place that it claims.
    pub(crate) fn claim(&self) -> &Claim {
        &self.exchange.claim
    }

    /// Returns the address from which it connected.
    pub(crate) fn address(&self) -> SocketAddr {
        self.stranger.address
    }

    /// Answers why it cannot join, and closes the stream.
    pub(crate) fn refuse(self, answer: Answer) {
        say(&self.stranger.stream, &ProvenAnswer::new(answer, &self.exchange, &self.secret).encode());
    }

    /// Admits it: the stream becomes its link.
    pub(crate) fn welcome(self, seat: Seat) -> Link {
        let Self { stranger: Stranger { stream, mut reader, .. }, exchange, secret } = self;
        say(&stream, &ProvenAnswer::new(Answer::Welcome(seat), &exchange, &secret).encode());
        reader.accept_all();
        Link::over_stream(stream, reader, exchange.pad(&secret))
    }
}

/// Sends one of the first messages on a stream, whose buffers have room for them.
fn say(stream: &TcpStream, message: &[u8]) {
    let mut writer = FrameWriter::default();
    writer.push(message);
    // If the stranger is gone, the next read reports it.
    let _ = writer.flush(stream);
}
