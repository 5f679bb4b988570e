//! Whoever connects to process 0, until it has proven that it belongs to the job.
//!
//! A stranger costs a descriptor and a few hundred bytes. There are at most so many, the oldest go first, and each has a few
//! seconds; so nobody can keep the processes of the job from coming by being there.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, tcp};
use farside_sys::process::random_bytes;

use super::super::SILENCE_MAX;
use super::super::greeting::{self, Answer, Challenge, Claim, Exchange, GREETING_BYTES_MAX, Nonce, Seat, Secret, Side};
use super::Door;
use crate::control::frames::{FrameReader, FrameWriter};
use crate::control::link::Link;

/// How long a stranger may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many there are at once, besides one for each process of the job.
const STRANGERS_MORE: usize = 64;
/// How long nobody is taken in when the system has no descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// Those who have connected and not proven anything.
#[derive(Debug)]
pub(crate) struct Strangers {
    door: Door,
    count_max: usize,
    /// The oldest first.
    waiting: VecDeque<Stranger>,
    /// Until then the listener is left alone.
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

/// A process that knows the secret and wants to come in.
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

    /// So many may come at once.
    pub(crate) fn expect(&mut self, processes: u32) {
        self.count_max = processes as usize + STRANGERS_MORE;
    }

    /// What there is to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        let listener = self.paused_until.is_none().then_some(self.door.listener.as_fd());
        let streams = self.waiting.iter().map(|stranger| stranger.stream.as_fd());
        listener.into_iter().chain(streams).map(|fd| Interest { fd, writable: false })
    }

    /// When [`meet`](Self::meet) has something to do even if nobody says anything.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|stranger| stranger.until).chain(self.paused_until).min()
    }

    /// Takes in who has connected, and hears what they say. Returns those who know the secret, and what is to be said about others.
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
                    let request = greeting::Request::decode(&message);
                    match request.map(|request| stranger.examine(&request, &self.door.secret)) {
                        Some(Ok(request)) => requests.push(request),
                        Some(Err(why)) => turned_away.push(why),
                        // It speaks something else.
                        None => {}
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && now < stranger.until => {
                    self.waiting.push_back(stranger);
                }
                // Too late, too long, or gone.
                Ok(None) | Err(_) => {}
            }
        }
        (requests, turned_away)
    }

    fn take_in(&mut self, now: Instant) {
        loop {
            match self.door.listener.accept() {
                Ok((stream, address)) => {
                    if self.waiting.len() == self.count_max {
                        self.waiting.pop_front();
                    }
                    // One that is gone again by now is no loss.
                    self.waiting.extend(Stranger::challenge(stream, address, now + PATIENCE));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    // No descriptors or no memory: those who wait longest make room.
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
        tcp::tend(&stream, SILENCE_MAX).ok()?;
        let host_nonce = random_bytes().ok()?;
        say(&stream, &Challenge { host_nonce }.encode());
        Some(Self { stream, address, reader: FrameReader::new(GREETING_BYTES_MAX), host_nonce, until })
    }

    /// Whether it knows the secret.
    fn examine(self, request: &greeting::Request, secret: &Secret) -> Result<Request, String> {
        let greeting::Request { claim, nonce, proof } = *request;
        let exchange = Exchange { host_nonce: self.host_nonce, nonce, claim };
        if exchange.is_proven(Side::Member, secret, &proof) {
            return Ok(Request { stranger: self, exchange, secret: secret.clone() });
        }
        say(&self.stream, &Answer::WrongSecret.encode());
        let (address, process) = (self.address.ip(), claim.process);
        Err(format!("a process at {address} that calls itself process {process} and has another FARSIDE_SECRET"))
    }
}

impl Request {
    /// What it says it is.
    pub(crate) fn claim(&self) -> &Claim {
        &self.exchange.claim
    }

    pub(crate) fn refuse(self, answer: Answer) {
        say(&self.stranger.stream, &answer.encode());
    }

    /// Lets it in: the stream becomes its link.
    pub(crate) fn welcome(self, seat: Seat) -> Link {
        let Self { stranger: Stranger { stream, mut reader, .. }, exchange, secret } = self;
        say(&stream, &Answer::Welcome(seat, exchange.proof(Side::Host(seat), &secret)).encode());
        reader.accept_all();
        Link::over_stream(stream, reader, exchange.pad(&secret))
    }
}

/// Says one of the first few words on a stream, whose buffers have room for them.
fn say(stream: &TcpStream, message: &[u8]) {
    let mut writer = FrameWriter::default();
    writer.push(message);
    // Who is gone needs no answer, and is found out by reading.
    let _ = writer.flush(stream);
}
