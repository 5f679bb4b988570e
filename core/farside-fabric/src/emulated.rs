//! Emulated RMA: one-sided operations for transports that have none. The target executes them on
//! request by a message, while it makes progress.
//!
//! An [`Engine`] holds what one process needs for that: its regions, its requests to other
//! processes, and the packets to send. It does no I/O, reads no clock and has no thread. A
//! transport keeps it under a lock, and
//!
//! - passes posted operations to [`post`](Engine::post) and requests for a region to
//!   [`attach`](Engine::attach);
//! - sends each packet that [`flush`](Engine::flush) returns as one message, in order for each
//!   peer;
//! - passes each message that arrives to [`take`](Engine::take), and flushes, because most messages
//!   are answered;
//! - calls [`lose`](Engine::lose) when a peer is gone, or when it sent something [`Malformed`].
//!
//! A transport may use only a part of it. A transport with its own puts and gets registers each
//! region with a [`NativeAccess`], which the engine sends to the peers that attach the region. It
//! leaves the atomics to the engine. They are then CPU atomics of the owner, and atomic with those
//! of peers that map the same memory.
//!
//! # The withdrawal of a region
//!
//! An owner that [withdraws a key](Engine::deregister) executes nothing for it any more, and tells
//! all holders. Each holder releases the region and reports that. When all holders have done so, or
//! are lost, the completion ends and the slot may be reused. A transport without native accesses
//! sees nothing of this. A transport with them has a part on both sides:
//!
//! - As a holder it calls [`next_revoked`](Engine::next_revoked) after each packet and whenever an
//!   access of its own ends. It begins no more accesses to that region, and calls
//!   [`confirm_release`](Engine::confirm_release) when none is in flight.
//! - As an owner it asks which regions are [`left`](Engine::left), closes the native access to
//!   each, and calls [`finish`](Engine::finish).
//! - When a peer is lost, its native accesses may still be in flight. [`lose`](Engine::lose) keeps
//!   it as a holder of those regions, until [`confirm_loss`](Engine::confirm_loss) tells that none
//!   is.
//!
//! # Bounds
//!
//! A process has at most [`operations_max`](Limits::operations_max) operations in flight, each with
//! at most [`PIECES_UNDER_WAY_MAX`] requests at a time. An owner answers each request at once. The
//! packets that wait for one peer are therefore bounded by the sum of:
//!
//! - twice `operations_max * PIECES_UNDER_WAY_MAX` packets (the requests to it and the answers to
//!   it);
//! - [`messages_max`](Limits::messages_max) messages of the layer above;
//! - one packet of nine bytes for each region that it must release or that this process has
//!   released.
//!
//! So there is always room for an answer. All processes of a fabric must have the same limits: a
//! process that requests more than its limits allow counts as faulty.

mod asked;
mod outbox;
mod owner;
mod packet;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use self::asked::{Asked, Grant, Work};
use self::outbox::{Class, Outbox};
pub(crate) use self::owner::Owner;
use crate::ids::ProcessId;
use crate::region::LocalRegion;
use crate::region::{Lease, Naming, RegionMemory, UserMemory, UserRegion};
use crate::transport::{Completion, FabricError, Operation, Outcome, RegionKind, RegionName, RemoteKey, Unposted};

pub(crate) use self::packet::message_kinds;
pub use self::packet::{Answer, Ask, NativeAccess, Packet, Refusal, RequestId, USER_HEADER_BYTES};

/// Maximum number of requests of one operation in flight. One would leave the network idle for a
/// round trip after each piece; all at once would double a large put in memory.
pub const PIECES_UNDER_WAY_MAX: usize = 8;

/// The smallest value of [`Limits::message_bytes_max`]. It has room for every packet without data,
/// and for a put or a get of some words, because an access of up to eight bytes may not be split.
pub const MESSAGE_BYTES_MIN: usize = 64;

const _: () = assert!(packet::DATALESS_BYTES_MAX <= MESSAGE_BYTES_MIN);
const _: () = assert!(packet::PUT_HEADER_BYTES + 8 <= MESSAGE_BYTES_MIN);
const _: () = assert!(packet::GOT_HEADER_BYTES + 8 <= MESSAGE_BYTES_MIN);

/// Maximum number of packets about released regions that wait for one peer. No peer can withdraw
/// more regions than it can have.
const RELEASES_MAX: usize = 1 << 16;

/// The limits of an engine. The same for all processes of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a packet, in bytes; at least [`MESSAGE_BYTES_MIN`].
    pub message_bytes_max: usize,
    /// Maximum number of operations and attachments in flight.
    pub operations_max: usize,
    /// Maximum number of messages of the layer above that wait for one peer.
    pub messages_max: usize,
}

impl Limits {
    /// Maximum length of a message of the layer above.
    pub fn user_bytes_max(&self) -> usize {
        self.message_bytes_max - USER_HEADER_BYTES
    }
}

/// Memory to register as a region.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The memory.
    pub memory: Arc<SharedMemory>,
    /// Number of bytes that peers can access.
    pub bytes: usize,
    /// The access that peers get when they attach it; `None` if they access it only by messages.
    pub access: Option<NativeAccess>,
}

/// A peer sent what no correct peer sends, so it cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// An answer to a request that was not made, or not by this process, or that was already
    /// answered.
    #[error("an answer without a request")]
    Unasked,
    /// An answer that does not fit its request.
    #[error("an answer of another kind or length than its request")]
    OtherAnswer,
    /// A request that cannot be answered by one message.
    #[error("a request for {bytes} bytes in one message, which has room for {max}")]
    TooMuch {
        /// Bytes requested.
        bytes: usize,
        /// Bytes that a message holds.
        max: usize,
    },
    /// More requests than a process may have in flight.
    #[error("more than {max} requests at a time")]
    TooMany {
        /// The maximum.
        max: usize,
    },
    /// Bytes that are not a packet.
    #[error("bytes that are not a packet")]
    Undecodable,
}

/// One process's one-sided operations, carried by messages.
#[derive(Debug)]
pub struct Engine {
    process: ProcessId,
    process_count: u32,
    limits: Limits,
    owner: Owner,
    attached: HashMap<RemoteKey, Attached>,
    /// Withdrawn regions with native access that the transport does not know yet.
    revoked: VecDeque<RemoteKey>,
    asked: Asked,
    outbox: Outbox,
}

/// A region that this process has attached.
#[derive(Debug)]
enum Attached {
    Own(RegionMemory),
    Peers(Grant),
}

/// Memory of this process.
impl Engine {
    /// Creates the engine of a process that has only its starter memory.
    ///
    /// # Panics
    /// If the limits allow no operation, no message, or messages shorter than
    /// [`MESSAGE_BYTES_MIN`].
    pub fn new(process: ProcessId, process_count: u32, starter: Registration, limits: Limits) -> Self {
        assert!(limits.message_bytes_max >= MESSAGE_BYTES_MIN, "{limits:?}: at least {MESSAGE_BYTES_MIN} bytes");
        assert!(
            limits.operations_max > 0 && limits.messages_max > 0,
            "{limits:?}: at least one operation and one message"
        );
        Self {
            process,
            process_count,
            limits,
            owner: Owner::new(process, starter),
            attached: HashMap::new(),
            revoked: VecDeque::new(),
            asked: Asked::new(limits.message_bytes_max),
            outbox: Outbox::default(),
        }
    }

    /// The memory of this process's starter key.
    pub fn starter(&self) -> LocalRegion {
        self.owner.starter()
    }

    /// Registers memory as a region, under a key that was never used before.
    pub fn register(&mut self, registration: Registration, kind: RegionKind) -> LocalRegion {
        self.owner.register(Naming::Here(kind), registration)
    }

    pub(crate) fn register_as(&mut self, naming: Naming, registration: Registration) -> LocalRegion {
        self.owner.register(naming, registration)
    }

    /// Registers user memory as a region. With a native access, the transport must ensure that
    /// peers do not write read-only memory.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if it has no bytes.
    ///
    /// # Panics
    /// If the memory was taken back.
    pub fn register_user(
        &mut self,
        memory: Arc<UserMemory>,
        access: Option<NativeAccess>,
    ) -> Result<UserRegion, FabricError> {
        self.register_user_as(Naming::Here(RegionKind::Shared), Lease::new(memory), access)
    }

    pub(crate) fn register_user_as(
        &mut self,
        naming: Naming,
        lease: Arc<Lease>,
        access: Option<NativeAccess>,
    ) -> Result<UserRegion, FabricError> {
        self.owner.register_user(naming, lease, access)
    }

    /// Withdraws a key, as described at [`Transport::deregister`](crate::Transport::deregister).
    ///
    /// # Errors
    /// [`FabricError::StaleKey`] if the key is not one of this process's, or is the starter's.
    pub fn deregister(&mut self, key: RemoteKey) -> Result<Completion, FabricError> {
        let (completion, holders) = self.owner.deregister(key)?;
        self.attached.remove(&key);
        let packet = Packet::Revoke(key.into()).encode(&[]);
        holders.into_iter().for_each(|holder| self.outbox.push(holder, Class::Revoke, packet.clone()));
        Ok(completion)
    }

    /// The withdrawn regions with a native access that have no holder any more: the transport
    /// closes the native access to each, and [finishes](Self::finish) it.
    pub fn left(&self) -> impl Iterator<Item = RegionName> {
        self.owner.left()
    }

    /// Ends the deregistration of a region that is [left](Self::left). `is_released`: no peer can
    /// access its memory any more. Otherwise a peer may access it for ever, and user memory is not
    /// given back.
    pub fn finish(&mut self, region: RegionName, is_released: bool) {
        self.owner.finish(region, is_released);
    }

    /// Returns whether a peer holds the region of this key, although the key was withdrawn.
    ///
    /// *Cost*: a look into a tree.
    pub fn is_held(&self, key: RemoteKey) -> bool {
        self.owner.is_held(key)
    }

    /// Returns whether a peer holds the region of this key.
    pub(crate) fn is_held_by(&self, peer: ProcessId, key: RemoteKey) -> bool {
        self.owner.is_held_by(peer, key)
    }

    pub(crate) fn find(&self, key: RemoteKey) -> Option<&RegionMemory> {
        self.owner.find(key)
    }

    /// The regions of this process that a peer holds with native access.
    pub fn natively_held_by(&self, peer: ProcessId) -> impl Iterator<Item = RegionName> {
        self.owner.natively_held_by(peer)
    }

    /// Leaks the user memory that peers may be accessing, because the endpoint is dropped.
    pub(crate) fn leave_what_is_held(&self) {
        self.owner.leave_what_is_held();
    }

    pub(crate) fn find_named(&self, name: RegionName) -> Option<(RemoteKey, &RegionMemory)> {
        self.owner.find_named(name)
    }

    /// Records that a peer holds a region, which the transport sent to it in its own way.
    pub(crate) fn grant(&mut self, to: ProcessId, name: RegionName) -> Option<(RemoteKey, RegionMemory)> {
        self.check_peer(to).ok()?;
        self.owner.grant(to, name)
    }

    /// Records that this process holds a peer's region, of which the transport has learned in its
    /// own way.
    pub(crate) fn note_attached(&mut self, key: RemoteKey, access: NativeAccess) {
        self.attached.insert(key, Attached::Peers(Grant { access: Some(access), is_writable: true }));
    }
}

/// Memory of other processes.
impl Engine {
    /// Requests a region. It can be used when the completion has succeeded; the completion carries
    /// no data.
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`], [`FabricError::QueueFull`];
    /// and [`FabricError::StaleKey`] at once or with the completion.
    pub fn attach(&mut self, key: RemoteKey) -> Result<Completion, FabricError> {
        self.check_peer(key.process)?;
        if key.process == self.process {
            let memory = self.owner.find(key).ok_or(FabricError::StaleKey { key })?.clone();
            self.attached.insert(key, Attached::Own(memory));
        }
        let completion = Completion::pending();
        if self.attached.contains_key(&key) {
            completion.end(Ok(Outcome::Got(Vec::new())));
        } else {
            self.ask(key, Work::Attach, &completion)?;
        }
        Ok(completion)
    }

    /// Returns whether a region is attached.
    pub fn is_attached(&self, key: RemoteKey) -> bool {
        self.attached.contains_key(&key)
    }

    /// The native access to an attached region; `None` if it has none, or is not attached. For
    /// regions of this process it is the one that they were registered with.
    pub fn native(&self, key: RemoteKey) -> Option<NativeAccess> {
        match self.attached.get(&key)? {
            Attached::Own(_) => self.owner.access(key),
            Attached::Peers(grant) => grant.access,
        }
    }

    /// Returns whether an attached region may be written.
    pub fn is_writable(&self, key: RemoteKey) -> bool {
        match self.attached.get(&key) {
            Some(Attached::Own(memory)) => memory.is_writable(),
            Some(Attached::Peers(grant)) => grant.is_writable,
            None => false,
        }
    }

    /// Returns a region that this process accesses natively and whose owner has withdrawn it. It is
    /// no longer attached. The transport [releases](Self::confirm_release) it when none of its
    /// accesses is in flight.
    pub fn next_revoked(&mut self) -> Option<RemoteKey> {
        self.revoked.pop_front()
    }

    /// Reports that this process has released a [withdrawn](Self::next_revoked) region.
    pub fn confirm_release(&mut self, key: RemoteKey) {
        if self.check_peer(key.process).is_ok() {
            self.outbox.push(key.process, Class::Release, Packet::Released(key.into()).encode(&[]));
        }
    }

    /// Detaches a region that a peer has withdrawn.
    fn revoke(&mut self, owner: ProcessId, name: RegionName) -> Result<(), Malformed> {
        if self.outbox.count(owner, Class::Release) + self.revoked.len() >= RELEASES_MAX {
            return Err(Malformed::TooMany { max: RELEASES_MAX });
        }
        let is_meant = |key: &RemoteKey| key.process == owner && RegionName::from(*key) == name;
        let meant = self.attached.extract_if(|key, _| is_meant(key)).next();
        match meant {
            Some((key, Attached::Peers(Grant { access: Some(_), .. }))) => self.revoked.push_back(key),
            // The owner executes all other accesses, and does not do so any more.
            _ => self.outbox.push(owner, Class::Release, Packet::Released(name).encode(&[])),
        }
        Ok(())
    }

    /// Starts an operation on an attached region. On a region of this process it has ended when
    /// this returns.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`]. All other errors come with the completion.
    pub fn post(&mut self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted> {
        let completion = Completion::pending();
        let max = self.limits.operations_max;
        match self.admit(key, &operation) {
            Err(error) => completion.end(Err(error)),
            Ok(Some(own)) => completion.end(own.execute(key, operation)),
            Ok(None) if self.asked.operation_count() >= max => {
                return Err(operation.refused(FabricError::QueueFull { process: key.process, max }));
            }
            Ok(None) => self.asked.start(key, Work::new(operation), completion.clone(), &mut self.outbox),
        }
        Ok(completion)
    }

    /// Checks an operation. Returns the region if it belongs to this process.
    fn admit(&self, key: RemoteKey, operation: &Operation) -> Result<Option<RegionMemory>, FabricError> {
        self.check_peer(key.process)?;
        match operation {
            Operation::Put { offset, data } => key.check(*offset, data.len())?,
            Operation::Get { offset, room } => key.check(*offset, room.len())?,
            Operation::Atomic64 { offset, .. } => key.check_word(*offset, 8)?,
            Operation::Atomic32 { offset, .. } => key.check_word(*offset, 4)?,
        }
        match self.attached.get(&key) {
            Some(Attached::Own(memory)) => Ok(Some(memory.clone())),
            Some(Attached::Peers(grant)) if !grant.is_writable && !matches!(operation, Operation::Get { .. }) => {
                Err(FabricError::ReadOnly { key })
            }
            Some(Attached::Peers(_)) => Ok(None),
            None => Err(FabricError::StaleKey { key }),
        }
    }

    fn ask(&mut self, key: RemoteKey, work: Work, completion: &Completion) -> Result<(), FabricError> {
        let max = self.limits.operations_max;
        if self.asked.operation_count() >= max {
            return Err(FabricError::QueueFull { process: key.process, max });
        }
        self.asked.start(key, work, completion.clone(), &mut self.outbox);
        Ok(())
    }
}

/// Packets and peers.
impl Engine {
    /// Queues a message of the layer above, after everything that waits for this peer. A message to
    /// this process is returned by [`flush`](Self::flush) like others; the transport passes it to
    /// [`take`](Self::take).
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::MessageTooLong`],
    /// [`FabricError::Disconnected`], [`FabricError::QueueFull`].
    pub fn send(&mut self, to: ProcessId, message: &[u8]) -> Result<(), FabricError> {
        self.check_peer(to)?;
        let max = self.limits.user_bytes_max();
        if message.len() > max {
            return Err(FabricError::MessageTooLong { bytes: message.len(), max });
        }
        let max = self.limits.messages_max;
        if self.outbox.count(to, Class::Message) >= max {
            return Err(FabricError::QueueFull { process: to, max });
        }
        self.outbox.push(to, Class::Message, Packet::User.encode(message));
        Ok(())
    }

    /// Processes a packet from a peer. Returns a message of the layer above; everything else is
    /// done here. Packets of a lost peer are ignored.
    ///
    /// # Errors
    /// [`Malformed`]: the transport should [lose](Self::lose) the peer.
    pub fn take<'a>(&mut self, from: ProcessId, packet: &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
        if self.check_peer(from).is_err() {
            return Ok(None);
        }
        let (packet, data) = Packet::decode(packet).ok_or(Malformed::Undecodable)?;
        match packet {
            Packet::User => return Ok(Some(data)),
            Packet::Revoke(name) => self.revoke(from, name)?,
            Packet::Released(name) => self.owner.released(from, name),
            Packet::Request { id, region, ask } => {
                let max = self.limits.operations_max.saturating_mul(PIECES_UNDER_WAY_MAX);
                if self.outbox.count(from, Class::Answer) >= max {
                    return Err(Malformed::TooMany { max });
                }
                let data_max = self.limits.message_bytes_max - packet::GOT_HEADER_BYTES;
                let answer = self.owner.answer(from, id, region, (ask, data), data_max)?;
                self.outbox.push(from, Class::Answer, answer);
            }
            Packet::Answer { id, answer } => {
                if let Some((key, grant)) = self.asked.take(from, id, (answer, data), &mut self.outbox)? {
                    self.attached.insert(key, Attached::Peers(grant));
                }
            }
        }
        Ok(None)
    }

    /// Passes the packets to send to `send`, in order for each peer. `send` returns a packet if the
    /// peer has no room for it; that packet and all after it stay for the next call.
    pub fn flush(&mut self, send: impl FnMut(ProcessId, Vec<u8>) -> Result<(), Vec<u8>>) {
        // A thread of this process may have been accessing a withdrawn region, and may have
        // finished since.
        self.owner.settle();
        self.outbox.flush(send);
    }

    /// The peers for which packets wait.
    pub fn waiting_for_room(&self) -> impl Iterator<Item = ProcessId> {
        self.outbox.peers()
    }

    /// Records that a peer is gone for ever: everything in flight with it ends with
    /// [`FabricError::Disconnected`], and the packets for it are dropped. Returns whether it was
    /// not known before. A process does not lose itself.
    pub fn lose(&mut self, peer: ProcessId) -> bool {
        let is_news = peer != self.process && self.check_peer(peer).is_ok();
        if is_news {
            self.outbox.lose(peer);
            self.asked.lose(peer);
            self.owner.lose(peer);
            self.attached.retain(|key, _| key.process != peer);
            self.revoked.retain(|key| key.process != peer);
        }
        is_news
    }

    /// Records that no native access of a lost peer is in flight any more.
    pub fn confirm_loss(&mut self, peer: ProcessId) {
        if self.outbox.is_lost(peer) {
            self.owner.confirm_loss(peer);
        }
    }

    /// Fails if there is no such process, or it is lost.
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`].
    pub fn check_peer(&self, process: ProcessId) -> Result<(), FabricError> {
        if process.number() >= self.process_count {
            return Err(FabricError::NoSuchProcess { process, count: self.process_count });
        }
        if self.outbox.is_lost(process) {
            return Err(FabricError::Disconnected { process });
        }
        Ok(())
    }
}
