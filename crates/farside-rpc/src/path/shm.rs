//! The path between processes of one machine: two rings in memory that both map.
//!
//! The client creates the memory and two wakers, and sends them through the socket of the door.
//! The socket stays open: its end is the end of the connection. A sender publishes a record, and
//! wakes the receiver if its doorbell says that it sleeps ([`farside_fabric::bell`]).

mod memory;

use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use farside_fabric::bell::{Fencing, SleepToken};
use farside_fabric::ring::{Header, Next, record_bytes};
use farside_sys::net::{MESSAGE_BYTES_MAX, MessageSocket, PeerIdentity, Waker};
use farside_sys::process_memory;
use farside_sys::shm::ShmError;

pub(crate) use self::memory::End;
use self::memory::{RingReceiver, RingSender, Shared};
use super::{Direct, LinkEnd, Path};
use crate::frame::{BODY_BYTES_MAX, HEAD_BYTES, Head};

/// The number of looks at an empty ring between two looks at the socket.
const LOOKS_PER_SOCKET: u32 = 1 << 14;

/// What a client offers, and passes to the server.
#[derive(Debug)]
pub(crate) struct Offer {
    shared: Shared,
    wakers: [Waker; 2],
}

impl Offer {
    /// Creates the memory and the wakers.
    pub(crate) fn new() -> Result<Self, ShmError> {
        let waker = || Waker::new().map_err(|cause| ShmError::System { call: "eventfd", bytes: 8, cause });
        Ok(Self { shared: Shared::create()?, wakers: [waker()?, waker()?] })
    }

    /// The descriptors that the server needs, in the order of [`accept`](Self::accept).
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.shared.fd(), self.wakers[0].as_fd(), self.wakers[1].as_fd()]
    }

    /// Takes what a client sent.
    ///
    /// # Errors
    /// [`ShmError`] if the memory is not what it should be.
    pub(crate) fn accept([memory, client, server]: [OwnedFd; 3]) -> Result<Self, ShmError> {
        Ok(Self { shared: Shared::map(memory)?, wakers: [Waker::from_fd(client), Waker::from_fd(server)] })
    }
}

/// One end of the path.
#[derive(Debug)]
pub(crate) struct ShmPath {
    shared: Shared,
    socket: MessageSocket,
    own_waker: Waker,
    peer_waker: Waker,
    out: Mutex<Out>,
    ring: Mutex<RingReceiver>,
    /// The wait that was prepared.
    sleep: Mutex<Option<SleepToken>>,
    looks: AtomicU32,
    has_ended: AtomicBool,
    is_closed_here: AtomicBool,
    /// The peer's number, if this process sees it.
    peer_pid: Option<i32>,
}

#[derive(Debug)]
struct Out {
    ring: RingSender,
    backlog: VecDeque<(Head, Vec<u8>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShmPath {
    /// Begins the path after the greeting.
    pub(crate) fn new(offer: Offer, socket: MessageSocket, peer: PeerIdentity) -> Self {
        let Offer { shared, wakers: [client, server] } = offer;
        let (own_waker, peer_waker) = match shared.end() {
            End::Client => (client, server),
            End::Server => (server, client),
        };
        Self {
            out: Mutex::new(Out { ring: shared.sender(), backlog: VecDeque::new() }),
            ring: Mutex::new(shared.receiver()),
            sleep: Mutex::new(None),
            looks: AtomicU32::new(0),
            has_ended: AtomicBool::new(false),
            is_closed_here: AtomicBool::new(false),
            peer_pid: peer.pid,
            shared,
            socket,
            own_waker,
            peer_waker,
        }
    }

    fn end(&self) -> Option<LinkEnd> {
        match () {
            () if self.is_closed_here.load(Ordering::Relaxed) => Some(LinkEnd::Here),
            () if self.has_ended.load(Ordering::Relaxed) => Some(LinkEnd::ByPeer),
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

    /// Looks at the socket, which brings nothing but its end.
    fn look_at_socket(&self) {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        match self.socket.receive(&mut buffer) {
            Ok(Some(_)) => {}
            Ok(None) => self.note_end(),
            Err(error) if farside_sys::net::is_end(&error) => self.note_end(),
            Err(_) => {}
        }
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
        let body_bytes = u32::try_from(body_bytes).expect("a body is short");
        self.ring.publish(Header::new(0, body_bytes, bytes), bytes);
        true
    }

    /// Sends from the backlog as much as fits. Returns whether something was sent.
    fn flush(&mut self) -> bool {
        let mut has_sent = false;
        while let Some((head, body)) = self.backlog.pop_front() {
            if self.write(head, &[&body]) {
                has_sent = true;
                continue;
            }
            self.ring.begin_waiting();
            // Room may have appeared before the announcement.
            if !self.write(head, &[&body]) {
                self.backlog.push_front((head, body));
                return has_sent;
            }
            has_sent = true;
        }
        if has_sent {
            self.ring.end_waiting();
        }
        has_sent
    }
}

impl Path for ShmPath {
    #[inline]
    fn send(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd> {
        if let Some(end) = self.end() {
            return Err(end);
        }
        let mut out = lock(&self.out);
        if !out.backlog.is_empty() || !out.write(head, body) {
            out.backlog.push_back((head, body.concat()));
            out.flush();
        }
        drop(out);
        self.ring_peer();
        Ok(())
    }

    #[inline]
    fn receive(&self, scratch: &mut Vec<u8>, max: usize, take: &mut dyn FnMut(Head, &[u8])) -> Result<usize, LinkEnd> {
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
            let head = Head::from_bytes(&head).ok_or_else(|| LinkEnd::protocol("a frame of an unknown kind"))?;
            take(head, body);
        }
        let must_ring = ring.credited_sender_waits();
        drop(ring);
        if must_ring {
            self.ring_peer();
        }
        let mut out = lock(&self.out);
        if !out.backlog.is_empty() && out.flush() {
            drop(out);
            self.ring_peer();
        }
        if count == 0 {
            if let Some(end) = self.end() {
                return Err(end);
            }
            if self.looks.fetch_add(1, Ordering::Relaxed) % LOOKS_PER_SOCKET == LOOKS_PER_SOCKET - 1 {
                self.look_at_socket();
            }
        }
        Ok(count)
    }

    fn prepare_sleep(&self) -> bool {
        let bell = self.shared.doorbell(self.shared.end());
        let token = bell.prepare(Fencing::Mutual, || {});
        let may_receive = !lock(&self.ring).is_empty() || self.end().is_some();
        let may_send = {
            let out = lock(&self.out);
            out.backlog.front().is_some_and(|(_, body)| out.ring.has_room(record_bytes(HEAD_BYTES + body.len())))
        };
        if may_receive || may_send {
            bell.cancel(token);
            return false;
        }
        *lock(&self.sleep) = Some(token);
        true
    }

    fn end_sleep(&self) {
        let Some(token) = lock(&self.sleep).take() else { return };
        self.shared.doorbell(self.shared.end()).cancel(token);
        self.own_waker.reset();
        self.look_at_socket();
    }

    fn descriptors(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.socket.as_fd(), Some(self.own_waker.as_fd()))
    }

    fn backlog_bytes(&self) -> usize {
        lock(&self.out).backlog.iter().map(|(_, body)| HEAD_BYTES + body.len()).sum()
    }

    fn note_end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn close(&self) {
        self.is_closed_here.store(true, Ordering::Relaxed);
        self.socket.finish_sending();
        self.own_waker.wake();
    }

    fn direct(&self) -> Option<&dyn Direct> {
        Some(self)
    }
}

impl Direct for ShmPath {
    fn set_mark(&self, mark: usize, number: u64) -> bool {
        // SYNC: pairs with the acquire fence in `read`: a reader that finds the number has read
        // the bytes that this thread wrote before.
        self.shared.mark(self.shared.end(), mark).is_some_and(|mark| {
            mark.store(number, Ordering::Release);
            true
        })
    }

    fn clear_mark(&self, mark: usize) {
        if let Some(mark) = self.shared.mark(self.shared.end(), mark) {
            mark.store(0, Ordering::Relaxed);
            // SYNC: pairs with the fence in `read`: a reader that still finds the number has read
            // before the memory changes.
            fence(Ordering::SeqCst);
        }
    }

    fn read(&self, mark: usize, number: u64, segments: &[(usize, usize)], into: &mut [u8]) -> Result<(), Error> {
        let pid = self.peer_pid.ok_or(ErrorKind::PermissionDenied)?;
        let word = self.shared.mark(self.shared.end().other(), mark).ok_or(ErrorKind::InvalidInput)?;
        let mut done = 0;
        for segments in segments.chunks(process_memory::SEGMENTS_MAX) {
            let bytes = segments.iter().map(|(_, bytes)| bytes).sum::<usize>();
            let part = into.get_mut(done..done + bytes).ok_or(ErrorKind::InvalidInput)?;
            let read = process_memory::read_segments(pid, segments, part)?;
            if read != bytes {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            done += bytes;
        }
        // SYNC: pairs with the release store in `set_mark` and the fence in `clear_mark`.
        fence(Ordering::SeqCst);
        if word.load(Ordering::Acquire) == number { Ok(()) } else { Err(ErrorKind::NotConnected.into()) }
    }
}

impl Drop for ShmPath {
    fn drop(&mut self) {
        self.close();
    }
}
