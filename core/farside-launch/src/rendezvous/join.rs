//! Joining a job as a process other than process 0.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, tcp, wait_ready};
use farside_sys::process::random_bytes;

use super::SILENCE_MAX;
use super::greeting::{
    Answer, Challenge, Claim, Exchange, GREETING_BYTES_MAX, ProvenAnswer, Request, Seat, Secret, Side,
};
use crate::control::TcpControl;
use crate::control::frames::{FrameReader, FrameWriter};
use crate::error::{LaunchError as Error, RendezvousError, Result};

/// The time that an address has to answer before the next is tried.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The time that process 0 has to begin the greeting. It has no other work, but many processes may
/// connect at once.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// The shortest and the longest pause before all addresses are tried again.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// An attempt to join a job.
#[derive(Debug)]
pub(crate) struct Joining<'a> {
    pub(crate) claim: Claim,
    /// Names or addresses of process 0 with their ports, the best first.
    pub(crate) targets: &'a [(String, u16)],
    pub(crate) secret: &'a Secret,
    /// The time limit of the attempt.
    pub(crate) time: Duration,
}

/// The reason why an attempt failed.
#[derive(Debug)]
enum Failure {
    /// The next attempt may succeed.
    Passing(String),
    /// The next attempt may succeed. The program at this address has not proven that it knows the
    /// secret.
    Unproven(SocketAddr),
    /// All further attempts would fail, too.
    Final(Error),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Passing(error.to_string())
    }
}

impl Joining<'_> {
    /// Connects to process 0, and tries again until the time is up. Returns the link and this
    /// process's seat.
    ///
    /// # Errors
    /// [`Error::Rendezvous`].
    pub(crate) fn join(&self) -> Result<(TcpControl, Seat)> {
        let deadline = Instant::now() + self.time;
        let mut pause = PAUSE_MIN;
        loop {
            let mut causes = Vec::new();
            let mut unproven = None;
            for target in self.targets {
                match self.try_target(target, deadline) {
                    Ok(joined) => {
                        let Seat { process, processes } = joined.1;
                        tracing::debug!(process, processes, host = target.0, port = target.1, "joined the job");
                        return Ok(joined);
                    }
                    Err(Failure::Final(error)) => return Err(error),
                    Err(Failure::Unproven(address)) => {
                        tracing::debug!(%address, "the program there does not know the secret");
                        unproven = Some(address.to_string());
                        causes.push(format!("another job answers at {address}"));
                    }
                    Err(Failure::Passing(cause)) => {
                        tracing::debug!(host = target.0, port = target.1, cause, "process 0 not reached");
                        causes.push(cause);
                    }
                }
            }
            if Instant::now() + pause >= deadline {
                // One of several addresses may belong to another machine with another job.
                if let (Some(address), 1) = (unproven, self.targets.len()) {
                    return Err(RendezvousError::WrongSecret { rank: self.claim.process, address }.into());
                }
                causes.dedup();
                return Err(self.unreachable(causes.join("; ")));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn unreachable(&self, cause: String) -> Error {
        let address = self.targets.iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(" or ");
        RendezvousError::Unreachable { rank: self.claim.process, address, after: self.time, cause }.into()
    }

    /// Tries all addresses of a name.
    fn try_target(&self, target: &(String, u16), deadline: Instant) -> Result<(TcpControl, Seat), Failure> {
        let mut failure = Failure::Passing(format!("the name {} has no address", target.0));
        for address in (target.0.as_str(), target.1).to_socket_addrs()? {
            match self.try_address(address, deadline) {
                Err(passing @ (Failure::Passing(_) | Failure::Unproven(_))) => failure = passing,
                other => return other,
            }
        }
        Err(failure)
    }

    fn try_address(&self, address: SocketAddr, deadline: Instant) -> Result<(TcpControl, Seat), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Passing("its deadline passed".into()));
        }
        let stream = TcpStream::connect_timeout(&address, left.min(CONNECT_MAX))?;
        // Without a listener, a stream can connect to itself.
        if stream.local_addr()? == stream.peer_addr()? {
            return Err(Failure::Passing("no program listens there".into()));
        }
        tcp::configure(&stream, SILENCE_MAX)?;
        self.greet(stream, address, deadline)
    }

    fn greet(&self, stream: TcpStream, address: SocketAddr, deadline: Instant) -> Result<(TcpControl, Seat), Failure> {
        let stranger = || Failure::Passing("a program that is not a process of this job answers there".into());
        let mut reader = FrameReader::new(GREETING_BYTES_MAX);
        let challenge = await_message(&stream, &mut reader, deadline.min(Instant::now() + GREETING_MAX))?;
        let Challenge { host_nonce } = Challenge::decode(&challenge).ok_or_else(stranger)?;
        let Self { claim, secret, .. } = *self;
        let exchange = Exchange { host_nonce, nonce: random_bytes()?, claim };
        let proof = exchange.proof(Side::Member, secret);
        let mut writer = FrameWriter::default();
        writer.push(&Request { claim, nonce: exchange.nonce, proof }.encode());
        // This is the stream's first message, and smaller than the stream's buffers.
        writer.flush(&stream)?;
        // Process 0 answers when it knows of all groups.
        let answer = await_message(&stream, &mut reader, deadline)?;
        let answer = ProvenAnswer::decode(&answer).ok_or_else(stranger)?;
        let answer = answer.verified(&exchange, secret).ok_or(Failure::Unproven(address))?;
        let (rank, address) = (claim.process, address.to_string());
        let refusal = match answer {
            Answer::Welcome(seat) => {
                reader.accept_all();
                return Ok((TcpControl::new(stream, reader, exchange.pad(secret)), seat));
            }
            Answer::WrongSecret => RendezvousError::WrongSecret { rank, address },
            Answer::Taken => RendezvousError::RankTaken { rank, address },
            Answer::OtherSize(host_processes) => {
                RendezvousError::OtherSize { rank, processes: claim.processes, host_processes, address }
            }
            Answer::OtherGroups(host_groups) => {
                RendezvousError::OtherGroups { group: claim.group, groups: claim.groups, host_groups, address }
            }
        };
        Err(Failure::Final(refusal.into()))
    }
}

fn await_message(stream: &TcpStream, reader: &mut FrameReader, deadline: Instant) -> std::io::Result<Vec<u8>> {
    loop {
        match reader.receive(stream) {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => return Err(std::io::Error::other("the connection was closed during the greeting")),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            return Err(std::io::Error::other("the program that listens there sent no greeting"));
        }
        wait_ready(&[Interest { fd: stream.as_fd(), writable: false }], Some(deadline))?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn say(stream: &TcpStream, message: &[u8]) {
        let mut writer = FrameWriter::default();
        writer.push(message);
        // The other end may have left.
        let _ = writer.flush(stream);
    }

    /// A program that has the port gives every answer, and does not know the secret. No answer is
    /// believed.
    #[test]
    fn an_answer_without_a_proof_is_not_final() {
        let seat = Seat { process: 1, processes: 2 };
        for answer in [Answer::Welcome(seat), Answer::WrongSecret, Answer::Taken, Answer::OtherSize(7)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let targets = [("127.0.0.1".to_owned(), listener.local_addr().unwrap().port())];
            let claim = Claim::ungrouped(1, 2);
            let answers = thread::spawn(move || {
                // The first connection, and at least one more.
                for _ in 0..2 {
                    let (stream, _) = listener.accept().unwrap();
                    say(&stream, &Challenge { host_nonce: [1; 16] }.encode());
                    let exchange = Exchange { host_nonce: [1; 16], nonce: [2; 16], claim };
                    say(&stream, &ProvenAnswer::new(answer, &exchange, &Secret::new(b"another")).encode());
                }
            });
            let secret = Secret::new(b"the job's");
            let joining = Joining { claim, targets: &targets, secret: &secret, time: Duration::from_millis(400) };
            let Err(Error::Rendezvous(error)) = joining.join() else { panic!("{answer:?} is believed") };
            let is_passing = matches!(error, RendezvousError::WrongSecret { .. } | RendezvousError::Unreachable { .. });
            assert!(is_passing, "{answer:?} is final: {error}");
            // On a busy machine the attempt may have had no second round.
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, targets[0].1));
            answers.join().unwrap();
        }
    }
}
