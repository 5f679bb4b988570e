//! Where connections begin: [`Door`] listens, and [`Guest`] is a connection until it is greeted.
//!
//! A door judges each connection when it accepts it, by the user at its other end. A guest that
//! says nothing costs one descriptor, and is sent away after a few seconds.

use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_sys::net::{Listener, MessageSocket, Waker, tcp};
use farside_sys::process::{Origin, random_bytes, user_id};
use farside_sys::topology::hostname;
use farside_wire::{Decoder, Wire};

use crate::address::Address;
pub use crate::greeting::Nearby;
use crate::greeting::{Hello, MAGIC, Mac32, Nonce, Proof, Refusal, Reply, Side, Tokens, VERSION, Welcome};
use crate::path::Path;
pub use crate::path::rdma::RdmaDoor;
use crate::path::shm::{Offer, Secret, ShmPath, Wakers};
use crate::path::tcp::TcpPath;
use crate::peer::Peer;
use crate::socket::{Socket, Stream, look_up, send_tcp};

/// The time for a greeting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The time after which a client hears that it has not proven a token. Together with
/// [`OUTSIDERS_MAX`] it bounds how many secrets can be tried.
const REFUSED_AFTER: Duration = Duration::from_millis(500);
/// How many connections of other users and machines may be in their greeting. They cannot keep out
/// the own user.
pub const OUTSIDERS_MAX: u32 = 192;
/// After this time without an answer from the other machine, a connection has failed. The system
/// looks once a second, so a cut is noticed within 5 s.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(4);

/// Hosts that mean all addresses of a machine, of IPv4 and of IPv6.
const EVERYWHERE: [&str; 2] = ["::", "*"];

/// A listening socket.
#[derive(Debug)]
pub struct Door {
    listener: Listening,
    address: Address,
    origin: Origin,
}

#[derive(Debug)]
enum Listening {
    Unix(Listener),
    /// Its socket in the file system goes with the door, if it is still this one.
    UnixPath(Listener, PathBuf, Option<FileNumber>),
    Tcp(TcpListener),
}

impl Door {
    /// Listens at an address.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there; otherwise the system's error.
    pub fn open(address: &Address) -> Result<Self> {
        let (listener, address) = match address {
            Address::Shm(name) => (Listening::Unix(Listener::bind(&abstract_name(name))?), address.clone()),
            Address::ShmPath(path) => {
                let _only = lock_folder(path);
                let listener = bind_path(path)?;
                (Listening::UnixPath(listener, path.clone(), number_of(path)), address.clone())
            }
            Address::Tcp { host, port } => {
                let listener = bind_tcp(host, *port)?;
                let port = listener.local_addr()?.port();
                (Listening::Tcp(listener), Address::Tcp { host: host.clone(), port })
            }
            Address::File(_) => {
                let why = "a server listens on shm or tcp, and announces itself in a file: see Builder::announce";
                return Err(Error::new(ErrorKind::InvalidInput, why));
            }
        };
        Ok(Self { listener, address, origin: Origin::here() })
    }

    /// Where it listens. The port is the real one.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The address under which programs of other machines may find the door.
    pub fn address_from_elsewhere(&self) -> Address {
        named(&self.address)
    }

    /// Returns whether programs of other machines may come.
    pub fn is_network(&self) -> bool {
        matches!(self.listener, Listening::Tcp(_))
    }

    /// Accepts a waiting connection.
    ///
    /// # Errors
    /// `WouldBlock` if none waits; otherwise the system's error.
    pub fn accept(&self) -> Result<Guest> {
        let (stream, mut peer) = match &self.listener {
            Listening::Unix(listener) | Listening::UnixPath(listener, ..) => {
                let socket = listener.accept()?;
                let identity = socket.peer()?;
                let peer = Peer { user: Some(identity.uid), process: identity.pid, ..Peer::default() };
                (Stream::Unix(socket), peer)
            }
            Listening::Tcp(listener) => {
                let (stream, network) = listener.accept()?;
                tcp::configure(&stream, SILENCE_MAX)?;
                (Stream::Tcp(stream), Peer { network: Some(network), ..Peer::default() })
            }
        };
        peer.is_own_user = peer.user == Some(user_id());
        Ok(Guest {
            socket: Socket::new(stream),
            peer,
            stage: Stage::Silent,
            until: Instant::now() + PATIENCE,
            refusal: None,
            number: 0,
        })
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.listener {
            Listening::Unix(listener) | Listening::UnixPath(listener, ..) => listener.as_fd(),
            Listening::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Listening::UnixPath(_, path, number) = &self.listener
            && self.origin.is_here()
        {
            let _only = lock_folder(path);
            // It may have been removed already, and another server may have one there.
            if number_of(path) == *number {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The name of a socket in the abstract namespace.
pub fn abstract_name(name: &str) -> Vec<u8> {
    format!("farside-rpc/{name}").into_bytes()
}

/// The device and the number of a file.
type FileNumber = (u64, u64);

fn number_of(path: &std::path::Path) -> Option<FileNumber> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Keeps other servers from looking at sockets in the folder of `path`, until the result is
/// dropped. One that is bound and does not listen yet looks like one that was left behind. Goes on
/// without if the folder cannot be locked in a second.
fn lock_folder(path: &std::path::Path) -> Option<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = File::open(parent.unwrap_or(std::path::Path::new("."))).ok()?;
    for _ in 0..1000 {
        match folder.try_lock() {
            Ok(()) => return Some(folder),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            // The file system has no locks.
            Err(TryLockError::Error(_)) => break,
        }
    }
    None
}

fn bind_path(path: &std::path::Path) -> Result<Listener> {
    match Listener::bind_path(path) {
        // A server that was killed leaves its socket behind; nothing listens there.
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_socket(path) => {
            match MessageSocket::connect_path(path) {
                Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                    Listener::bind_path(path)
                }
                _ => Err(error),
            }
        }
        bound => bound,
    }
}

fn is_socket(path: &std::path::Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// An address with the name of this machine in place of "everywhere", if the name has an address.
fn named(address: &Address) -> Address {
    match address {
        Address::Tcp { host, port } if EVERYWHERE.contains(&&**host) || host == "0.0.0.0" => {
            let name = hostname();
            let found = look_up(&name, *port, Instant::now() + PATIENCE);
            let is_known = found.is_ok_and(|found| !found.is_empty());
            Address::Tcp { host: if is_known { name } else { host.clone() }, port: *port }
        }
        other => other.clone(),
    }
}

fn bind_tcp(host: &str, port: u16) -> Result<TcpListener> {
    if EVERYWHERE.contains(&host) {
        return tcp::listen_everywhere(port);
    }
    let mut failure = Error::new(ErrorKind::NotFound, format!("the host {host:?} has no address"));
    for address in look_up(host, port, Instant::now() + PATIENCE)? {
        match tcp::listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The rules by which a server judges its clients, and its answers to them.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The tokens that clients may prove.
    pub tokens: Tokens,
    /// See [`Welcome`].
    pub incarnation: u64,
    /// See [`Welcome`].
    pub calls_max: u32,
    /// See [`Welcome`].
    pub bytes_max: u64,
    /// Where clients of TCP may connect for RDMA.
    pub rdma: Option<Arc<RdmaDoor>>,
    /// For clients that come over TCP.
    pub nearby: Option<Nearby>,
}

/// A connection that is not greeted yet.
#[derive(Debug)]
pub struct Guest {
    socket: Socket,
    peer: Peer,
    stage: Stage,
    until: Instant,
    /// The refusal that it gets in place of an answer.
    refusal: Option<Refusal>,
    /// The number of the connection at the server.
    number: u64,
}

#[derive(Debug)]
enum Stage {
    Silent,
    Challenged {
        client: Nonce,
        server: Nonce,
        token: Option<String>,
    },
    /// The proof was right.
    Proven {
        server_proof: Mac32,
        /// With what the client may come by RDMA.
        rdma_proof: Option<Mac32>,
        memory: Option<(OwnedFd, Secret)>,
    },
    /// It has no token or a wrong one, and hears so when its time is over.
    Unproven(Refusal),
}

/// A connection that is greeted.
#[derive(Debug)]
pub struct Greeted {
    /// The server's end.
    pub path: Box<dyn Path>,
    /// The client.
    pub peer: Peer,
}

/// The state of a guest after a step of its greeting.
#[derive(Debug)]
pub enum Progress {
    /// It has not said everything.
    Waiting(Guest),
    /// It is a connection now.
    Greeted(Greeted),
    /// It was refused, or left.
    Gone,
}

impl Guest {
    /// When it is sent away.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Ends the guest's time. A guest whose refusal was held back hears it now.
    pub fn expire(self) {
        if let Stage::Unproven(refusal) = &self.stage {
            self.refuse(refusal.clone());
        }
    }

    /// The same guest, with a number for its connection.
    #[must_use]
    pub fn with_number(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// Returns whether the guest is another user, or on another machine.
    pub fn is_outsider(&self) -> bool {
        !self.peer.is_own_user
    }

    /// Sends away a user whom no token would let in, and others while there are too many.
    pub fn judge(self, policy: &Policy, has_room_for_outsiders: bool) -> Option<Self> {
        if self.socket.is_unix() && self.is_outsider() {
            if policy.tokens.is_empty() {
                self.refuse(Refusal::OtherUser);
                return None;
            }
            if !has_room_for_outsiders {
                self.refuse(Refusal::Full { max: OUTSIDERS_MAX });
                return None;
            }
        }
        Some(self)
    }

    /// Refuses the guest as soon as it has said something. If its words were still unread, it might
    /// not get the answer.
    pub fn refuse_later(mut self, why: Refusal) -> Self {
        self.refusal = Some(why);
        self
    }

    fn refuse(&self, why: Refusal) {
        // A guest that has left does not mind.
        let _ = self.say(&Reply::Refused(why));
    }

    fn say(&self, reply: &Reply) -> Result<()> {
        self.socket.send(&farside_wire::encode(reply, Vec::new()), None)
    }

    /// Reads what the guest said, and answers.
    pub fn advance(mut self, policy: &Policy) -> Progress {
        loop {
            if let Stage::Unproven(_) = self.stage {
                return Progress::Waiting(self);
            }
            match self.socket.receive() {
                Ok(Some((message, fd))) => match self.hear(&message, fd, policy) {
                    Ok(None) => {}
                    Ok(Some(reply)) => {
                        if self.say(&reply).is_err() {
                            return Progress::Gone;
                        }
                    }
                    Err(refusal @ (Refusal::NeedsToken | Refusal::Unproven)) => {
                        self.stage = Stage::Unproven(refusal);
                        self.until = Instant::now() + REFUSED_AFTER;
                    }
                    Err(refusal) => {
                        self.refuse(refusal);
                        return Progress::Gone;
                    }
                },
                Ok(None) if Instant::now() > self.until => return Progress::Gone,
                Ok(None) => return Progress::Waiting(self),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.refuse(malformed(error));
                    return Progress::Gone;
                }
                Err(_) => return Progress::Gone,
            }
            if let Stage::Proven { .. } = self.stage {
                return self.welcome(policy);
            }
        }
    }

    fn hear(
        &mut self,
        message: &[u8],
        fd: Option<OwnedFd>,
        policy: &Policy,
    ) -> std::result::Result<Option<Reply>, Refusal> {
        match &mut self.stage {
            Stage::Silent => {
                if let Some(refusal) = self.refusal.take() {
                    return Err(refusal);
                }
                let (client, token) = self.hear_hello(message, policy)?;
                let server = random_bytes().map_err(malformed)?;
                self.stage = Stage::Challenged { client, server, token };
                Ok(Some(Reply::Challenge { nonce: server }))
            }
            Stage::Challenged { client, server, token } => {
                let Proof { proof, secret } = read(message)?;
                let (server_proof, rdma_proof) = match token.take() {
                    None => ([0; 32], None),
                    Some(name) => {
                        // A token that is unknown is refused like one whose proof is wrong, and in
                        // the same time.
                        let unknown = (crate::greeting::Secret::new(&[]), Vec::new());
                        let found = policy.tokens.find(&name);
                        let (secret, rights) = found.unwrap_or(&unknown);
                        let is_proven = secret.is_proven(Side::Client, client, server, &proof);
                        if !is_proven || found.is_none() {
                            return Err(Refusal::Unproven);
                        }
                        self.peer.rights.clone_from(rights);
                        self.peer.token = Some(name);
                        let proof = |side| secret.proof(side, client, server);
                        (proof(Side::Server), Some(proof(Side::ClientByRdma)))
                    }
                };
                self.stage = Stage::Proven { server_proof, rdma_proof, memory: fd.zip(secret) };
                Ok(None)
            }
            Stage::Proven { .. } | Stage::Unproven(_) => Ok(None),
        }
    }

    fn hear_hello(&self, message: &[u8], policy: &Policy) -> std::result::Result<(Nonce, Option<String>), Refusal> {
        // Magic and version come first in every version.
        let (magic, version) = message.split_at_checked(12).map_or((&[][..], 0), |(start, _)| {
            (&start[..8], u32::from_le_bytes([start[8], start[9], start[10], start[11]]))
        });
        if magic != MAGIC {
            return Err(malformed("it is not of this library"));
        }
        if version != VERSION {
            return Err(Refusal::Version { server: VERSION, client: version });
        }
        let Hello { nonce, token, .. } = read(message)?;
        match token {
            None if self.socket.is_unix() && !self.peer.is_own_user => Err(Refusal::OtherUser),
            None if !self.socket.is_unix() => Err(Refusal::NeedsToken),
            None => Ok((nonce, None)),
            Some(_) if policy.tokens.is_empty() && self.peer.is_own_user => Ok((nonce, None)),
            Some(token) => Ok((nonce, Some(token))),
        }
    }

    fn welcome(self, policy: &Policy) -> Progress {
        let Stage::Proven { server_proof: proof, rdma_proof, memory } = self.stage else { return Progress::Gone };
        let Policy { incarnation, calls_max, bytes_max, .. } = *policy;
        let connection = self.number;
        let door = policy.rdma.as_ref().filter(|_| !self.socket.is_unix());
        let rdma = door.zip(rdma_proof).map(|(door, proof)| (door.offer(), door.expect(proof)));
        let (offer, rdma) = rdma.unzip();
        let nearby = policy.nearby.clone().filter(|_| !self.socket.is_unix());
        let welcome = |secret| {
            let rdma = offer;
            let welcome = Welcome { proof, secret, incarnation, connection, calls_max, bytes_max, rdma, nearby };
            farside_wire::encode(&Reply::Welcome(welcome), Vec::new())
        };
        let path: Result<Box<dyn Path>> = match self.socket.stream {
            Stream::Tcp(stream) => {
                send_tcp(&stream, &welcome(None)).map(|()| Box::new(TcpPath::new(stream, rdma)) as _)
            }
            Stream::Unix(socket) => memory
                .ok_or_else(|| Error::new(ErrorKind::InvalidData, "it sent no memory"))
                .and_then(|(fd, peer_secret)| begin_shm(socket, fd, peer_secret, welcome)),
        };
        match path {
            Ok(path) => Progress::Greeted(Greeted { path, peer: self.peer }),
            Err(_) => Progress::Gone,
        }
    }
}

/// Begins the path in shared memory. The client begins to send when it has the welcome, so
/// everything is ready by then.
fn begin_shm(
    socket: MessageSocket,
    memory: OwnedFd,
    peer_secret: Secret,
    welcome: impl FnOnce(Option<Secret>) -> Vec<u8>,
) -> Result<Box<dyn Path>> {
    let offer = match Offer::accept(memory) {
        Ok(offer) => offer,
        Err(error) => {
            let refused = farside_wire::encode(&Reply::Refused(malformed(&error)), Vec::new());
            socket.send(&refused, None)?;
            return Err(Error::other(error));
        }
    };
    let ((own, client_wakes), (client_own, peer)) = (Waker::pair()?, Waker::pair()?);
    let identity = socket.peer()?;
    socket.send(&welcome(Some(offer.secret())), Some(client_wakes.as_fd()))?;
    crate::kills::point();
    socket.send(b"w", Some(client_own.as_fd()))?;
    crate::kills::point();
    Ok(Box::new(ShmPath::new(offer, Wakers { own, peer }, socket, identity, peer_secret)))
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn malformed(why: impl ToString) -> Refusal {
    Refusal::Malformed { why: why.to_string() }
}

fn read<T: Wire>(message: &[u8]) -> std::result::Result<T, Refusal> {
    farside_wire::decode(Decoder::new(message), 0).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;

    #[test]
    fn everywhere_is_a_name_from_elsewhere() {
        let named = |text: &str| named(&text.parse().unwrap()).to_string();
        for text in ["shm:kv", "tcp://host:7000", "tcp://[::1]:0", "tcp://127.0.0.1:1"] {
            assert_eq!(named(text), text);
        }
        let name = hostname();
        let is_known = (&*name, 1).to_socket_addrs().is_ok_and(|mut found| found.next().is_some());
        for text in ["tcp://[::]:7", "tcp://*:7", "tcp://0.0.0.0:7"] {
            let expected = if is_known { format!("tcp://{name}:7") } else { text.into() };
            assert_eq!(named(text), expected);
        }
    }
}
