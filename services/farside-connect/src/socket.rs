//! [`Socket`]: what a greeting travels over: whole messages on a Unix socket or a TCP stream. And
//! [`look_up`]: the addresses of a host.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use farside_sys::net::MessageSocket;

use crate::greeting::GREETING_BYTES_MAX;

/// A socket during the greeting. Does not block.
#[derive(Debug)]
pub struct Socket {
    /// The socket itself.
    pub stream: Stream,
    /// The bytes of a message that has not arrived whole.
    partial: Vec<u8>,
}

/// The kinds of sockets.
#[derive(Debug)]
pub enum Stream {
    /// Of this machine.
    Unix(MessageSocket),
    /// Of a network.
    Tcp(TcpStream),
}

impl Socket {
    /// Begins a greeting on a socket.
    pub fn new(stream: Stream) -> Self {
        Self { stream, partial: Vec::new() }
    }

    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.stream, Stream::Unix(_))
    }

    /// Sends a message. The first messages of a connection always find room.
    pub fn send(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<()> {
        let sent = match &self.stream {
            Stream::Unix(socket) => socket.send(message, fd),
            Stream::Tcp(stream) => send_tcp(stream, message),
        };
        crate::kills::point();
        sent
    }

    /// Takes a message and the descriptor that came with it. `None` if none has arrived whole.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the connection; `InvalidData` if the message is too long; or
    /// the system's error.
    pub fn receive(&mut self) -> Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
        let received = match &self.stream {
            Stream::Unix(socket) => receive_unix(socket),
            Stream::Tcp(stream) => receive_tcp(stream, &mut self.partial).map(|message| (message, None)),
        };
        match received {
            Ok(message) => {
                crate::kills::point();
                Ok(Some(message))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Sends a message of a greeting over TCP.
pub(crate) fn send_tcp(mut stream: &TcpStream, message: &[u8]) -> Result<()> {
    let length = u32::try_from(message.len()).expect("a greeting is short");
    stream.write_all(&[&length.to_le_bytes()[..], message].concat())
}

fn receive_unix(socket: &MessageSocket) -> Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut buffer = vec![0; GREETING_BYTES_MAX];
    let received = socket.receive(&mut buffer)?.ok_or(ErrorKind::UnexpectedEof)?;
    if received.fd_is_lost {
        return Err(farside_sys::net::too_many_open_files());
    }
    buffer.truncate(received.bytes);
    Ok((buffer, received.fd))
}

fn receive_tcp(mut stream: &TcpStream, partial: &mut Vec<u8>) -> Result<Vec<u8>> {
    loop {
        let wanted = match partial.first_chunk() {
            None => 4,
            Some(length) => match u32::from_le_bytes(*length) as usize {
                length if length == 0 || length > GREETING_BYTES_MAX => {
                    let why = format!("a message of {length} bytes; a greeting has 1 to {GREETING_BYTES_MAX}");
                    return Err(Error::new(ErrorKind::InvalidData, why));
                }
                length => 4 + length,
            },
        };
        if partial.len() == wanted {
            return Ok(std::mem::take(partial).split_off(4));
        }
        let before = partial.len();
        partial.resize(wanted, 0);
        // Nothing behind the message is read: it belongs to the path.
        let read = stream.read(&mut partial[before..]);
        partial.truncate(before + read.as_ref().map_or(0, |bytes| *bytes));
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Unix(socket) => socket.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// Finds the addresses of a host. The system's function has no deadline, so a thread calls it. The
/// thread may go on for longer than this function waits.
pub(crate) fn look_up(host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    let (name, (answer, answered)) = (host.to_owned(), mpsc::sync_channel(1));
    let ask = move || answer.send((name, port).to_socket_addrs().map(Vec::from_iter));
    thread::Builder::new().name("farside lookup".into()).spawn(ask)?;
    let found = answered.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    found.unwrap_or_else(|_| {
        let why = format!("no name server told the address of {host:?} in time; use its number, or allow more time");
        Err(Error::new(ErrorKind::HostUnreachable, why))
    })
}
