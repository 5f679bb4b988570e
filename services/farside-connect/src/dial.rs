//! The client's side of a greeting.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::FabricError;
use farside_sys::net::{Interest, MessageSocket, Waker, is_end, tcp, wait_ready};
use farside_sys::process::{random_bytes, user_id};
use farside_wire::Decoder;

use crate::address::Address;
use crate::door::{PATIENCE, SILENCE_MAX, abstract_name};
use crate::error::ConnectError;
use crate::greeting::{Credentials, Hello, MAGIC, Nearby, Proof, Reply, Side, VERSION, Welcome};
use crate::path::Path;
use crate::path::rdma::{Rdma, RdmaPath};
use crate::path::shm::{Offer, ShmPath, Wakers};
use crate::path::tcp::TcpPath;
use crate::socket::{Socket, Stream, look_up};

/// The carriers of a connection to an address of TCP.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// RDMA for bulk data.
    pub rdma: Option<Rdma>,
    /// Not shared memory, also on one machine.
    pub is_over_network: bool,
}

/// Connects to a server.
///
/// # Errors
/// [`ConnectError`].
pub fn dial(
    address: &Address,
    credentials: &Credentials,
    ways: &Ways,
    deadline: Instant,
) -> Result<(Box<dyn Path>, Welcome), ConnectError> {
    let followed = address.follow().map_err(|cause| ConnectError::of(address, cause))?;
    let dialled = dial_at(&followed, address, credentials, ways.rdma.as_ref(), false, deadline)?;
    let offered = dialled.1.nearby.as_ref().filter(|_| ways.rdma.is_none() && !ways.is_over_network);
    let Some(nearby) = offered.and_then(Nearby::here) else { return Ok(dialled) };
    let deadline = deadline.min(Instant::now() + PATIENCE);
    match dial_at(&nearby, address, credentials, None, true, deadline) {
        Ok(near) if near.1.incarnation == dialled.1.incarnation => Ok(near),
        // Another server has the name there, or the name is out of reach.
        _ => Ok(dialled),
    }
}

/// Connects to a server at `followed`, which errors call `address`. One that `must_be_own` runs as
/// this user, and proves that it knows the token.
fn dial_at(
    followed: &Address,
    address: &Address,
    credentials: &Credentials,
    rdma: Option<&Rdma>,
    must_be_own: bool,
    deadline: Instant,
) -> Result<(Box<dyn Path>, Welcome), ConnectError> {
    let failed = |cause: Error| ConnectError::of(address, cause);
    let rdma_failed =
        |error: FabricError| ConnectError::Rdma { address: address.to_string(), cause: error.to_string() };
    if let (Some(rdma), Address::Tcp { .. }) = (rdma, followed) {
        rdma.check().map_err(rdma_failed)?;
    }
    let mut socket = Socket::new(connect(followed, deadline).map_err(failed)?);
    let nonce = random_bytes().map_err(failed)?;
    let token = credentials.token.as_ref();
    // Any user may take a name of this machine. A token or the system must vouch for the server.
    let is_own_user = match &socket.stream {
        Stream::Unix(socket) => socket.peer().map_err(failed)?.uid == user_id(),
        Stream::Tcp(_) => false,
    };
    if socket.is_unix() && !is_own_user && (token.is_none() || must_be_own) {
        return Err(ConnectError::OtherUser { address: address.to_string() });
    }
    let hello = Hello { magic: MAGIC, version: VERSION, nonce, token: token.map(|(name, _)| name.clone()) };
    // A server that refuses at once has said why.
    let said = socket.send(&farside_wire::encode(&hello, Vec::new()), None);
    said.or_else(|error| if is_end(&error) { Ok(()) } else { Err(error) }).map_err(failed)?;
    let server = match hear(&mut socket, deadline, address)?.0 {
        Reply::Challenge { nonce } => nonce,
        Reply::Refused(refusal) => return Err(ConnectError::refused(address, refusal)),
        Reply::Welcome(_) => return Err(failed(ErrorKind::InvalidData.into())),
    };
    let proof = token.map_or([0; 32], |(_, secret)| secret.proof(Side::Client, &nonce, &server));
    let offer = match socket.is_unix() {
        true => Some(Offer::new().map_err(|cause| failed(Error::other(cause)))?),
        false => None,
    };
    let secret = offer.as_ref().map(Offer::secret);
    let proof = farside_wire::encode(&Proof { proof, secret }, Vec::new());
    socket.send(&proof, offer.as_ref().map(Offer::fd)).map_err(failed)?;
    let (reply, waker) = hear(&mut socket, deadline, address)?;
    let welcome = match reply {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused(refusal) => return Err(ConnectError::refused(address, refusal)),
        Reply::Challenge { .. } => return Err(failed(ErrorKind::InvalidData.into())),
    };
    if let Some((_, secret)) = token {
        // A server of the same user that knows no tokens makes no proof.
        if (!is_own_user || must_be_own) && !secret.is_proven(Side::Server, &nonce, &server, &welcome.proof) {
            return Err(ConnectError::Impostor { address: address.to_string() });
        }
    }
    let Some(offer) = offer else {
        let Stream::Tcp(stream) = socket.stream else { return Err(failed(ErrorKind::InvalidData.into())) };
        // Where the server offers no RDMA, messages do.
        let rdma = match (rdma, &welcome.rdma, token) {
            (Some(rdma), Some(offer), Some((_, secret))) => {
                let proof = secret.proof(Side::ClientByRdma, &nonce, &server);
                let deadline = deadline.min(Instant::now() + PATIENCE);
                let ip = stream.peer_addr().map_err(failed)?.ip();
                Some(Arc::new(RdmaPath::connect(rdma, offer, ip, &proof, deadline).map_err(rdma_failed)?))
            }
            _ => None,
        };
        return Ok((Box::new(TcpPath::new(stream, rdma)), welcome));
    };
    let (_, own) = receive(&mut socket, deadline).map_err(failed)?;
    let (Some(peer), Some(own), Some(peer_secret)) = (waker, own, welcome.secret) else {
        return Err(failed(Error::new(ErrorKind::InvalidData, "the server sent no wakers")));
    };
    let Stream::Unix(socket) = socket.stream else { return Err(failed(ErrorKind::InvalidData.into())) };
    let identity = socket.peer().map_err(failed)?;
    let wakers = Wakers { own: Waker::from_fd(own), peer: Waker::from_fd(peer) };
    Ok((Box::new(ShmPath::new(offer, wakers, socket, identity, peer_secret)), welcome))
}

fn connect(address: &Address, deadline: Instant) -> std::io::Result<Stream> {
    match address {
        Address::Shm(name) => Ok(Stream::Unix(MessageSocket::connect(&abstract_name(name))?)),
        Address::ShmPath(path) => Ok(Stream::Unix(MessageSocket::connect_path(path)?)),
        Address::Tcp { host, port } => {
            let mut failure = Error::new(ErrorKind::NotFound, format!("the host {host:?} has no address"));
            let mut addresses = VecDeque::from(look_up(host, *port, deadline)?);
            while let Some(address) = addresses.pop_front() {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                // One that does not answer leaves the others their part of the time.
                let part = (left / (addresses.len() as u32 + 1)).max(Duration::from_millis(1));
                match TcpStream::connect_timeout(&address, part) {
                    Ok(stream) => {
                        tcp::configure(&stream, SILENCE_MAX)?;
                        return Ok(Stream::Tcp(stream));
                    }
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        }
        Address::File(_) => Err(ErrorKind::InvalidInput.into()),
    }
}

/// Waits for a reply, and the descriptor that came with it.
fn hear(socket: &mut Socket, deadline: Instant, address: &Address) -> Result<(Reply, Option<OwnedFd>), ConnectError> {
    let failed = |cause: Error| ConnectError::of(address, cause);
    let (message, fd) = receive(socket, deadline).map_err(failed)?;
    let invalid = |error| failed(Error::new(ErrorKind::InvalidData, error));
    Ok((farside_wire::decode(Decoder::new(&message), 0).map_err(invalid)?, fd))
}

fn receive(socket: &mut Socket, deadline: Instant) -> std::io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut was_reset = false;
    loop {
        match socket.receive() {
            // A Unix socket reports once that the server left words unread, before its last words.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !was_reset => was_reset = true,
            Err(error) => return Err(error),
            Ok(Some(received)) => return Ok(received),
            Ok(None) if Instant::now() >= deadline => return Err(ErrorKind::TimedOut.into()),
            Ok(None) => {
                wait_ready(&[Interest { fd: socket.as_fd(), writable: false }], Some(deadline))?;
            }
        }
    }
}
