//! The path between processes of one machine: two rings in memory that both map.
//!
//! The client creates the memory and the server two wakers; both are sent through the socket of the
//! door. A waker's two sides are separate, so that a client cannot make the server block. The
//! socket stays open: its end is the end of the connection. A sender publishes a record, and wakes
//! the receiver if its doorbell says that it sleeps ([`farside_fabric::bell`]).
//!
//! Later, the socket carries memory for bulk data that one side shares with the other: a message
//! with its number and its descriptor. It is sent before the first frame that names the memory, so
//! the receiver of that frame finds it in the socket.

/// The atomics of the marks. The model checker has its own in their place.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}
mod mark;
mod memory;

use std::collections::{HashMap, VecDeque};
use std::io::{Error, ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

use farside_fabric::bell::{Fencing, SleepToken};
use farside_fabric::ring::{Header, Next, record_bytes};
use farside_sys::net::{MESSAGE_BYTES_MAX, MessageSocket, PeerIdentity, Waker};
use farside_sys::process::{random_bytes, user_id};
use farside_sys::process_memory;
use farside_sys::shm::{Mapping, ShmError};
use farside_wire::{Decoder, Wire};

use self::memory::{RingReceiver, RingSender, Shared};
use super::{Direct, LinkEnd, Path};
use crate::allocated::Allocated;
use crate::frame::{BODY_BYTES_MAX, HEAD_BYTES, Head};
use crate::lock::lock;
use crate::segments::Segment;

/// The number of looks at an empty ring between two looks at the socket.
const LOOKS_PER_SOCKET: u32 = 1 << 14;

/// The most memories that a side shares with its peer.
pub(crate) const SHARED_MAX: usize = 64;
/// The most that a side maps for its peer. The word that one is gone may be on its way still.
const MAPPED_MAX: usize = 2 * SHARED_MAX;

/// The most messages that are taken from the socket to find one. It holds fewer.
const MESSAGES_AT_ONCE: usize = 4096;

/// The offer of a client: the memory, and a secret in its own memory. A server that finds the
/// secret there reads the right process's memory.
#[derive(Debug)]
pub struct Offer {
    shared: Shared,
    secret: Box<[u8; 16]>,
}

/// The wakers of one end: its own, and the peer's.
#[derive(Debug)]
pub struct Wakers {
    /// Wakes this end.
    pub own: Waker,
    /// Wakes the peer.
    pub peer: Waker,
}

impl Offer {
    /// Creates the memory.
    pub fn new() -> Result<Self, ShmError> {
        Ok(Self { shared: Shared::create()?, secret: secret()? })
    }

    /// The descriptor of the memory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.fd()
    }

    /// Takes what a client sent.
    ///
    /// # Errors
    /// [`ShmError`] if the memory is not what it should be.
    pub fn accept(memory: OwnedFd) -> Result<Self, ShmError> {
        Ok(Self { shared: Shared::map(memory)?, secret: secret()? })
    }

    /// Where this process's secret is, and what it is.
    pub fn secret(&self) -> Secret {
        Secret { address: self.secret.as_ptr().expose_provenance() as u64, bytes: *self.secret }
    }
}

fn secret() -> Result<Box<[u8; 16]>, ShmError> {
    let failed = |cause| ShmError::System { call: "getrandom", bytes: 16, cause };
    Ok(Box::new(random_bytes().map_err(failed)?))
}

/// Random bytes in a process's memory, and their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Secret {
    address: u64,
    bytes: [u8; 16],
}

impl Secret {
    /// Returns whether this process may read the memory of `peer`, and `peer` is the process that
    /// has the secret. The system's word is not enough: the number may be that of a process which
    /// only listened or connected for the peer.
    fn is_found(self, peer: PeerIdentity) -> bool {
        let mut found = [0; 16];
        let read = peer
            .pid
            .filter(|_| peer.uid == user_id())
            .map(|pid| process_memory::read(pid, usize::try_from(self.address).unwrap_or_default(), &mut found));
        matches!(read, Some(Ok(16))) && found == self.bytes
    }
}

/// One end of the path.
#[derive(Debug)]
pub struct ShmPath {
    shared: Shared,
    socket: MessageSocket,
    own_waker: Waker,
    peer_waker: Waker,
    out: Mutex<Out>,
    /// The bytes in the backlog. Changed under the lock of `out`.
    backlog_bytes: AtomicUsize,
    ring: Mutex<RingReceiver>,
    sleep: Mutex<Sleep>,
    looks: AtomicU32,
    has_ended: AtomicBool,
    is_closed_here: AtomicBool,
    /// The peer's number, if this process may read its memory.
    peer_pid: Option<i32>,
    /// The memory that the peer has shared. Locked while a message is taken from the socket.
    shared_by_peer: Mutex<HashMap<u64, Arc<Allocated>>>,
    /// Read by the peer.
    _secret: Box<[u8; 16]>,
}

#[derive(Debug, Default)]
struct Sleep {
    /// The wait that was prepared.
    token: Option<SleepToken>,
    /// True if a wait has ended since the waker was reset.
    may_be_rung: bool,
}

#[derive(Debug)]
struct Out {
    ring: RingSender,
    backlog: VecDeque<(Head, Vec<u8>)>,
}

impl ShmPath {
    /// Begins the path after the greeting.
    pub fn new(
        Offer { mut shared, secret }: Offer,
        Wakers { own, peer: peer_waker }: Wakers,
        socket: MessageSocket,
        peer: PeerIdentity,
        peer_secret: Secret,
    ) -> Self {
        shared.close_fd();
        Self {
            out: Mutex::new(Out { ring: shared.sender(), backlog: VecDeque::new() }),
            backlog_bytes: AtomicUsize::new(0),
            ring: Mutex::new(shared.receiver()),
            sleep: Mutex::default(),
            looks: AtomicU32::new(0),
            has_ended: AtomicBool::new(false),
            is_closed_here: AtomicBool::new(false),
            peer_pid: peer.pid.filter(|_| peer_secret.is_found(peer)),
            shared_by_peer: Mutex::default(),
            _secret: secret,
            shared,
            socket,
            own_waker: own,
            peer_waker,
        }
    }

    fn end(&self) -> Option<LinkEnd> {
        match () {
            () if self.is_closed_here.load(Ordering::Relaxed) => Some(LinkEnd::Here),
            // SYNC: pairs with `note_end`: what the peer sent before its end is in the ring.
            () if self.has_ended.load(Ordering::Acquire) => Some(LinkEnd::ByPeer),
            () => None,
        }
    }

    /// Wakes the peer if it sleeps.
    #[inline]
    fn ring_peer(&self) {
        let bell = self.shared.doorbell(self.shared.end().other());
        // SYNC: pairs with the fence in `Doorbell::prepare`: either the load after this sees that
        // the peer is about to sleep, or the peer's look finds the record.
        fence(Ordering::SeqCst);
        bell.ring_with(|_| self.peer_waker.wake());
    }

    /// Takes a message from the socket, or finds its end.
    fn look_at_socket(&self) {
        self.take_from_socket(&mut lock(&self.shared_by_peer));
    }

    /// Returns whether there was a message.
    fn take_from_socket(&self, shared_by_peer: &mut HashMap<u64, Arc<Allocated>>) -> bool {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        match self.socket.receive(&mut buffer) {
            Ok(Some(message)) => {
                // Memory that cannot be mapped here is read by messages.
                if let Some(fd) = message.fd
                    && let Ok(number) = farside_wire::decode(Decoder::new(&buffer[..message.bytes]), 0)
                    && shared_by_peer.len() < MAPPED_MAX
                    && let Ok(mapping) = Mapping::of_stranger(fd)
                {
                    let (bytes, may_write) = (mapping.bytes(), mapping.may_write());
                    shared_by_peer.insert(number, Arc::new(Allocated::new(mapping, bytes, may_write)));
                    crate::kills::point();
                }
                return true;
            }
            Ok(None) => self.note_end(),
            Err(error) if farside_sys::net::is_end(&error) => self.note_end(),
            Err(_) => {}
        }
        false
    }
}

impl Out {
    /// Writes a frame to the ring. Returns false if it has no room.
    fn write(&mut self, head: Head, body: &[&[u8]]) -> bool {
        let body_bytes = body.iter().map(|part| part.len()).sum::<usize>();
        let bytes = record_bytes(HEAD_BYTES + body_bytes);
        let Ok(offset) = self.ring.reserve(bytes) else { return false };
        let chunk = self.ring.chunk();
        let mut at = offset + 8;
        for part in [&head.to_bytes()[..]].iter().chain(body) {
            chunk.put_bytes(at, part);
            at += part.len();
        }
        crate::kills::point();
        let body_bytes = u32::try_from(body_bytes).expect("a body is short");
        self.ring.publish(Header::new(0, body_bytes, bytes), bytes);
        true
    }

    /// Sends from the backlog as much as fits. Returns whether something was sent.
    fn flush(&mut self, backlog_bytes: &AtomicUsize) -> bool {
        let mut has_sent = false;
        while let Some((head, body)) = self.backlog.pop_front() {
            let mut is_written = self.write(head, &[&body]);
            if !is_written {
                self.ring.begin_waiting();
                // Room may have appeared before the announcement.
                is_written = self.write(head, &[&body]);
            }
            if !is_written {
                self.backlog.push_front((head, body));
                return has_sent;
            }
            backlog_bytes.fetch_sub(HEAD_BYTES + body.len(), Ordering::Relaxed);
            has_sent = true;
        }
        if has_sent {
            self.ring.end_waiting();
        }
        has_sent
    }
}

impl Path for ShmPath {
    fn name(&self) -> &'static str {
        "shm"
    }

    #[inline]
    fn send(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd> {
        if let Some(end) = self.end() {
            return Err(end);
        }
        let mut out = lock(&self.out);
        if !out.backlog.is_empty() || !out.write(head, body) {
            let body = body.concat();
            self.backlog_bytes.fetch_add(HEAD_BYTES + body.len(), Ordering::Relaxed);
            out.backlog.push_back((head, body));
            out.flush(&self.backlog_bytes);
        }
        drop(out);
        crate::kills::point();
        self.ring_peer();
        crate::kills::point();
        Ok(())
    }

    #[inline]
    fn receive(&self, scratch: &mut Vec<u8>, max: usize, take: &mut dyn FnMut(Head, &[u8])) -> Result<usize, LinkEnd> {
        // Another thread may note the end at any time. What arrived before it comes first.
        let end = self.end();
        let mut ring = lock(&self.ring);
        let mut count = 0;
        while count < max {
            let Next::Record { header, payload, end } = ring.peek().map_err(LinkEnd::protocol)? else { break };
            let body_bytes = header.operand() as usize;
            if body_bytes > BODY_BYTES_MAX || payload + HEAD_BYTES + body_bytes > end {
                return Err(LinkEnd::protocol(format_args!("a frame of {body_bytes} bytes in a shorter record")));
            }
            let mut head = [0; HEAD_BYTES];
            ring.chunk().take_bytes(payload, &mut head);
            if scratch.len() < body_bytes {
                scratch.resize(BODY_BYTES_MAX, 0);
            }
            let body = &mut scratch[..body_bytes];
            ring.chunk().take_bytes(payload + HEAD_BYTES, body);
            ring.consume(end);
            count += 1;
            crate::kills::point();
            let head = Head::from_bytes(&head).ok_or_else(|| LinkEnd::protocol("a frame of an unknown kind"))?;
            take(head, body);
        }
        let must_ring = ring.credited_sender_waits();
        drop(ring);
        if must_ring {
            self.ring_peer();
        }
        if self.backlog_bytes() > 0 && lock(&self.out).flush(&self.backlog_bytes) {
            self.ring_peer();
        }
        if count == 0 {
            if let Some(end) = end {
                return Err(end);
            }
            // One thread receives, so no look is lost.
            let looks = self.looks.load(Ordering::Relaxed).wrapping_add(1);
            self.looks.store(looks, Ordering::Relaxed);
            if looks.is_multiple_of(LOOKS_PER_SOCKET) {
                self.look_at_socket();
            }
        }
        Ok(count)
    }

    fn prepare_sleep(&self) -> bool {
        let mut sleep = lock(&self.sleep);
        // Here and not after the wait, when the peer waits for this side.
        if std::mem::take(&mut sleep.may_be_rung) {
            self.own_waker.reset();
        }
        let bell = self.shared.doorbell(self.shared.end());
        let token = bell.prepare(Fencing::Mutual, || {});
        let may_receive = !lock(&self.ring).is_empty() || self.end().is_some();
        let may_send = self.backlog_bytes() > 0 && {
            let out = lock(&self.out);
            out.backlog.front().is_some_and(|(_, body)| out.ring.has_room(record_bytes(HEAD_BYTES + body.len())))
        };
        if may_receive || may_send {
            bell.cancel(token);
            return false;
        }
        sleep.token = Some(token);
        true
    }

    fn end_sleep(&self) {
        let mut sleep = lock(&self.sleep);
        let Some(token) = sleep.token.take() else { return };
        sleep.may_be_rung = true;
        self.shared.doorbell(self.shared.end()).cancel(token);
    }

    fn look(&self) {
        self.look_at_socket();
    }

    fn descriptors(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.socket.as_fd(), Some(self.own_waker.as_fd()))
    }

    fn backlog_bytes(&self) -> usize {
        self.backlog_bytes.load(Ordering::Relaxed)
    }

    fn note_end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    fn close(&self) {
        self.is_closed_here.store(true, Ordering::Relaxed);
        self.socket.finish_sending();
    }

    fn direct(&self) -> Option<&dyn Direct> {
        Some(self)
    }
}

impl Direct for ShmPath {
    fn set_mark(&self, mark: usize, number: u64) -> bool {
        self.shared.mark(self.shared.end(), mark).is_some_and(|word| {
            mark::set(word, number);
            crate::kills::point();
            true
        })
    }

    fn clear_mark(&self, mark: usize) {
        if let Some(word) = self.shared.mark(self.shared.end(), mark) {
            mark::clear(word);
            crate::kills::point();
        }
    }

    fn is_marked(&self, mark: usize, number: u64) -> bool {
        self.shared.mark(self.shared.end().other(), mark).is_some_and(|word| mark::is_set(word, number))
    }

    fn share(&self, number: u64, memory: &Mapping) -> bool {
        let is_sent = self.socket.send(&farside_wire::encode(&number, Vec::new()), Some(memory.fd())).is_ok();
        crate::kills::point();
        is_sent
    }

    fn shared(&self, number: u64) -> Option<Arc<Allocated>> {
        let mut shared_by_peer = lock(&self.shared_by_peer);
        // A peer that sends without end holds up its own transfers alone.
        for _ in 0..MESSAGES_AT_ONCE {
            if let Some(mapping) = shared_by_peer.get(&number) {
                return Some(mapping.clone());
            }
            if !self.take_from_socket(&mut shared_by_peer) {
                break;
            }
        }
        None
    }

    fn forget(&self, number: u64) {
        // It may wait in the socket still.
        let mapping = self.shared(number);
        lock(&self.shared_by_peer).remove(&number);
        drop(mapping);
    }

    fn read(&self, mark: usize, number: u64, segments: &[Segment], into: &mut [IoSliceMut<'_>]) -> Result<(), Error> {
        let pid = self.peer_pid.ok_or(ErrorKind::PermissionDenied)?;
        process_memory::read_exact(pid, segments, into)?;
        crate::kills::point();
        let is_there = self.is_marked(mark, number);
        // The number of a process that has ended may be another's.
        self.look_at_socket();
        if is_there && self.end().is_none() { Ok(()) } else { Err(ErrorKind::NotConnected.into()) }
    }
}
