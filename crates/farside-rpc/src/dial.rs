//! The client's side of a greeting.

use std::io::{Error, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Instant;

use farside_sys::net::{Interest, MessageSocket, tcp, wait_ready};
use farside_sys::process::{random_bytes, user_id};
use farside_wire::Decoder;

use crate::address::Address;
use crate::door::{SILENCE_MAX, abstract_name};
use crate::error::ConnectError;
use crate::greeting::{Credentials, Hello, MAGIC, Proof, Reply, Side, VERSION, Welcome};
use crate::path::Path;
use crate::path::shm::{Offer, ShmPath};
use crate::path::tcp::TcpPath;
use crate::socket::{Socket, Stream};

/// Connects to a server.
///
/// # Errors
/// [`ConnectError`].
pub(crate) fn dial(
    address: &Address,
    credentials: &Credentials,
    deadline: Instant,
) -> Result<(Box<dyn Path>, Welcome), ConnectError> {
    let failed = |cause: Error| ConnectError::of(address, cause);
    let followed = address.follow().map_err(failed)?;
    let mut socket = Socket::new(connect(&followed, deadline).map_err(failed)?);
    let nonce = random_bytes().map_err(failed)?;
    let token = credentials.token.as_ref();
    // Any user may take a name of this machine. A token or the system must vouch for the server.
    let is_own_user = match &socket.stream {
        Stream::Unix(socket) => socket.peer().map_err(failed)?.uid == user_id(),
        Stream::Tcp(_) => false,
    };
    if socket.is_unix() && !is_own_user && token.is_none() {
        return Err(ConnectError::OtherUser { address: address.to_string() });
    }
    let hello = Hello { magic: MAGIC, version: VERSION, nonce, token: token.map(|(name, _)| name.clone()) };
    socket.send(&farside_wire::encode(&hello, Vec::new()), None).map_err(failed)?;
    let server = match hear(&mut socket, deadline, address)? {
        Reply::Challenge { nonce } => nonce,
        Reply::Refused(refusal) => return Err(ConnectError::refused(address, refusal)),
        Reply::Welcome(_) => return Err(failed(ErrorKind::InvalidData.into())),
    };
    let proof = token.map_or([0; 32], |(_, secret)| secret.proof(Side::Client, &nonce, &server));
    let proof = farside_wire::encode(&Proof { proof }, Vec::new());
    let offer = match socket.is_unix() {
        true => Some(Offer::new().map_err(|cause| failed(Error::other(cause)))?),
        false => None,
    };
    match &offer {
        None => socket.send(&proof, None).map_err(failed)?,
        Some(offer) => {
            let [memory, own, other] = offer.descriptors();
            for (message, fd) in [(&proof[..], memory), (b"w", own), (b"w", other)] {
                // A server that refuses after the proof closes at once, and has said why.
                match socket.send(message, Some(fd)) {
                    Err(error) if !farside_sys::net::is_end(&error) => return Err(failed(error)),
                    _ => {}
                }
            }
        }
    }
    let welcome = match hear(&mut socket, deadline, address)? {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused(refusal) => return Err(ConnectError::refused(address, refusal)),
        Reply::Challenge { .. } => return Err(failed(ErrorKind::InvalidData.into())),
    };
    if let Some((_, secret)) = token {
        // A server of the same user that knows no tokens makes no proof.
        if !is_own_user && !secret.is_proven(Side::Server, &nonce, &server, &welcome.proof) {
            return Err(ConnectError::Impostor { address: address.to_string() });
        }
    }
    let path: Box<dyn Path> = match (socket.stream, offer) {
        (Stream::Unix(socket), Some(offer)) => {
            let identity = socket.peer().map_err(failed)?;
            Box::new(ShmPath::new(offer, socket, identity))
        }
        (Stream::Tcp(stream), _) => Box::new(TcpPath::new(stream)),
        (Stream::Unix(_), None) => return Err(failed(ErrorKind::InvalidData.into())),
    };
    Ok((path, welcome))
}

fn connect(address: &Address, deadline: Instant) -> std::io::Result<Stream> {
    match address {
        Address::Shm(name) => Ok(Stream::Unix(MessageSocket::connect(&abstract_name(name))?)),
        Address::ShmPath(path) => Ok(Stream::Unix(MessageSocket::connect_path(path)?)),
        Address::Tcp { host, port } => {
            let mut failure = Error::new(ErrorKind::NotFound, format!("the host {host:?} has no address"));
            for address in (host.as_str(), *port).to_socket_addrs()? {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                match TcpStream::connect_timeout(&address, left) {
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

fn hear(socket: &mut Socket, deadline: Instant, address: &Address) -> Result<Reply, ConnectError> {
    let failed = |cause: Error| ConnectError::of(address, cause);
    let mut was_reset = false;
    loop {
        let received = match socket.receive() {
            // A Unix socket reports once that the server left words unread, before its last words.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !was_reset => {
                was_reset = true;
                continue;
            }
            received => received.map_err(failed)?,
        };
        if let Some((message, _)) = received {
            let invalid = |error| failed(Error::new(ErrorKind::InvalidData, error));
            return farside_wire::decode(Decoder::new(&message), 0).map_err(invalid);
        }
        if Instant::now() >= deadline {
            return Err(failed(ErrorKind::TimedOut.into()));
        }
        wait_ready(&[Interest { fd: socket.as_fd(), writable: false }], Some(deadline)).map_err(failed)?;
    }
}
