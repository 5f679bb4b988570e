//! One-sided operations for transports that have none: the target's progress carries them out when a message asks it to.
//!
//! An [`Engine`] is what one process needs for that: its regions, what it has asked of others, and the packets that are to
//! go out. It does no I/O, reads no clock and has no thread; a transport keeps it under a lock, and
//!
//! - hands the posted operations to [`post`](Engine::post) and the wish to reach a region to [`attach`](Engine::attach);
//! - sends each packet that [`flush`](Engine::flush) brings out as one message, in their order for each peer;
//! - hands each message that arrives to [`take`](Engine::take), and flushes, because most are answered;
//! - calls [`lose`](Engine::lose) when a peer is gone, or when it sent something [`Malformed`].
//!
//! A transport may use a part of it only. One that has puts and gets of its own registers each region with a
//! [`NativeAccess`], which the peers that attach the region are told, and leaves the atomics to the engine: they are then
//! CPU atomics of the owner, and atomic with those of peers that have the same memory mapped.
//!
//! # The end of a region
//!
//! An owner that [takes a key back](Engine::deregister) carries out nothing for it any more, and tells all who have attached it. Each lets go and
//! says so; when all have, or are lost, the completion ends and the slot may be used again. Of that a transport without native accesses
//! sees nothing. One with them has a part on both sides:
//!
//! - As a holder it asks for [`next_revoked`](Engine::next_revoked) after each packet and whenever an access of its own ends, begins no more
//!   accesses to that region, and says [`let_go`](Engine::let_go) when none is under way.
//! - As an owner it asks which regions are [`left`](Engine::left), gives up what peers reached the memory by, and calls
//!   [`finish`](Engine::finish).
//! - When a peer is lost, something of its may still be under way natively. [`lose`](Engine::lose) leaves it a holder of those regions, until
//!   [`bury`](Engine::bury) says that nothing is.
//!
//! # Bounds
//!
//! A process has at most [`operations_max`](Limits::operations_max) operations under way, each of at most
//! [`PIECES_UNDER_WAY_MAX`] requests at a time. An owner answers each at once, so that what waits to go out to one peer is
//! at most twice `operations_max * PIECES_UNDER_WAY_MAX` packets (the requests to it and the answers to it),
//! twice [`messages_max`](Limits::messages_max) messages of the layer above (one kind and the other), one that tells how many of its
//! messages were matched, and one of nine bytes for each region that it is to let go of or that this process has let go of. Room for an answer is so never lacking. All
//! processes of a fabric must have the same limits: who asks more than its limits allow is taken to be out of its mind.

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
use crate::region::{Lease, RegionMemory, UserMemory, UserRegion};
use crate::tagged::{self, Matcher, TAGGED_RECEIVES_MAX};
use crate::transport::{Completion, FabricError, Operation, Outcome, RegionName, RemoteKey, Tag, Unposted};

pub use self::packet::{Answer, Ask, NativeAccess, Packet, Refusal, RequestId, USER_HEADER_BYTES, fuzz_decode};

/// How many requests of one operation are under way at a time. One would leave the network idle for a round trip after
/// each piece; all at once would double a large put in memory.
pub const PIECES_UNDER_WAY_MAX: usize = 8;

/// The smallest value of [`Limits::message_bytes_max`]: room for every packet without data, and for a put or a get of
/// some words, as no access of up to eight bytes may be cut.
pub const MESSAGE_BYTES_MIN: usize = 64;

const _: () = assert!(packet::DATALESS_BYTES_MAX <= MESSAGE_BYTES_MIN);
const _: () = assert!(packet::PUT_HEADER_BYTES + 8 <= MESSAGE_BYTES_MIN);
const _: () = assert!(packet::GOT_HEADER_BYTES + 8 <= MESSAGE_BYTES_MIN);
const _: () = assert!(USER_HEADER_BYTES + tagged::CREDIT_BYTES <= MESSAGE_BYTES_MIN);

/// How many packets about regions that were let go of may wait to go out to one peer. A peer takes back more than it can have.
const RELEASES_MAX: usize = 1 << 16;

/// What bounds an engine. The same for all processes of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest packet, in bytes; at least [`MESSAGE_BYTES_MIN`].
    pub message_bytes_max: usize,
    /// How many operations and attachments may be under way.
    pub operations_max: usize,
    /// How many messages of the layer above may wait to go out to one peer; and how many that it does not
    /// expect yet may lie there.
    pub messages_max: usize,
}

impl Limits {
    /// The longest message of the layer above.
    pub fn user_bytes_max(&self) -> usize {
        self.message_bytes_max - USER_HEADER_BYTES
    }

    /// The longest of those that are expected.
    pub fn tagged_bytes_max(&self) -> usize {
        self.user_bytes_max() - tagged::HEADER_BYTES
    }

    /// How many of those a process may expect at a time.
    pub fn tagged_receives_max(&self) -> usize {
        TAGGED_RECEIVES_MAX
    }
}

/// Memory that is to be a region.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The memory.
    pub memory: Arc<SharedMemory>,
    /// How much of it peers can reach.
    pub bytes: usize,
    /// What peers are told when they attach it; `None` when they reach it by messages only.
    pub access: Option<NativeAccess>,
}

/// A peer sent what no peer sends: it is not to be believed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// An answer to a request that was not made, or not to this process, or that was answered before.
    #[error("an answer to nothing that was asked")]
    Unasked,
    /// An answer that does not fit its request.
    #[error("an answer of another kind or length than was asked for")]
    OtherAnswer,
    /// A request that cannot be answered by one message.
    #[error("a request for {bytes} bytes in one message; at most {max} fit")]
    TooMuch {
        /// How many were asked for.
        bytes: usize,
        /// How many a message holds.
        max: usize,
    },
    /// More requests than a process may have under way.
    #[error("more than {max} requests at a time")]
    TooMany {
        /// How many it may have.
        max: usize,
    },
    /// Bytes that are no packet.
    #[error("bytes that are no packet")]
    Undecodable,
    /// Something wrong with a message that is to be expected.
    #[error(transparent)]
    Expected(#[from] tagged::Malformed),
}

/// One process's one-sided operations, carried by messages.
#[derive(Debug)]
pub struct Engine {
    process: ProcessId,
    process_count: u32,
    limits: Limits,
    owner: Owner,
    attached: HashMap<RemoteKey, Attached>,
    /// Natively reached regions that were revoked, and of which the transport does not know yet.
    revoked: VecDeque<RemoteKey>,
    asked: Asked,
    matcher: Matcher,
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
    /// An engine whose process has nothing but its starter.
    ///
    /// # Panics
    /// When the limits allow no operation, no message, or shorter ones than [`MESSAGE_BYTES_MIN`].
    pub fn new(process: ProcessId, process_count: u32, starter: Registration, limits: Limits) -> Self {
        assert!(limits.message_bytes_max >= MESSAGE_BYTES_MIN, "{limits:?}: at least {MESSAGE_BYTES_MIN} bytes");
        assert!(limits.operations_max > 0 && limits.messages_max > 0, "{limits:?}: nothing would go");
        let expected =
            tagged::Limits { message_bytes_max: limits.tagged_bytes_max(), early_messages_max: limits.messages_max };
        Self {
            process,
            process_count,
            limits,
            owner: Owner::new(process, starter),
            attached: HashMap::new(),
            revoked: VecDeque::new(),
            asked: Asked::new(limits.message_bytes_max),
            matcher: Matcher::new(process, expected),
            outbox: Outbox::default(),
        }
    }

    /// The memory that this process's starter key names.
    pub fn starter(&self) -> LocalRegion {
        self.owner.starter()
    }

    /// Makes memory a region, under a key that was never used before.
    pub fn register(&mut self, registration: Registration) -> LocalRegion {
        self.owner.register(None, registration)
    }

    /// The same under a name that somebody else has chosen, and chooses for all regions of this engine.
    pub(crate) fn register_as(&mut self, name: Option<RegionName>, registration: Registration) -> LocalRegion {
        self.owner.register(name, registration)
    }

    /// Makes private memory a region. With a native access it is the transport that must know that peers do not write what they may
    /// only read.
    ///
    /// # Errors
    /// [`FabricError::Memory`] when it has no bytes.
    ///
    /// # Panics
    /// When it was taken back.
    pub fn register_user(
        &mut self,
        memory: Arc<UserMemory>,
        access: Option<NativeAccess>,
    ) -> Result<UserRegion, FabricError> {
        self.register_user_as(None, Lease::new(memory), access)
    }

    pub(crate) fn register_user_as(
        &mut self,
        name: Option<RegionName>,
        lease: Arc<Lease>,
        access: Option<NativeAccess>,
    ) -> Result<UserRegion, FabricError> {
        self.owner.register_user(name, lease, access)
    }

    /// Takes back a key, as [`Transport::deregister`](crate::Transport::deregister) has it.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`] when the key is not one of this process's, or the starter's.
    pub fn deregister(&mut self, key: RemoteKey) -> Result<Completion, FabricError> {
        let (completion, holders) = self.owner.deregister(key)?;
        self.attached.remove(&key);
        let packet = Packet::Revoke(key.into()).encode();
        holders.into_iter().for_each(|holder| self.outbox.push(holder, Class::Revoke, packet.clone()));
        Ok(completion)
    }

    /// The regions with a native access that were taken back, and that nobody holds any more: the transport closes what each was reached
    /// by, and [finishes](Self::finish) it.
    pub fn left(&self) -> impl Iterator<Item = RegionName> {
        self.owner.left()
    }

    /// Ends the deregistration of a region that is [left](Self::left). `is_released`: nobody reaches its memory any more. Otherwise
    /// somebody may, for ever, and private memory is not given back.
    pub fn finish(&mut self, region: RegionName, is_released: bool) {
        self.owner.finish(region, is_released);
    }

    /// Does a peer hold the region of this key, though the key was taken back?
    ///
    /// *Cost*: a look into a tree.
    pub fn is_held(&self, key: RemoteKey) -> bool {
        self.owner.is_held(key)
    }

    /// The regions of this process that a peer holds and reaches natively.
    pub fn natively_held_by(&self, peer: ProcessId) -> impl Iterator<Item = RegionName> {
        self.owner.natively_held_by(peer)
    }

    /// The end is dropped, and peers may be at private memory: it stays, for ever.
    pub(crate) fn leave_what_is_held(&self) {
        self.owner.leave_what_is_held();
    }

    pub(crate) fn find_named(&self, name: RegionName) -> Option<(RemoteKey, &RegionMemory)> {
        self.owner.find_named(name)
    }

    /// Notes that a peer holds a region, which it was told in the transport's own way.
    pub(crate) fn grant(&mut self, to: ProcessId, name: RegionName) -> Option<(RemoteKey, RegionMemory)> {
        self.check_peer(to).ok()?;
        self.owner.grant(to, name)
    }

    /// Notes that this process holds a peer's region, of which it has learned in the transport's own way.
    pub(crate) fn note_attached(&mut self, key: RemoteKey, access: NativeAccess) {
        self.attached.insert(key, Attached::Peers(Grant { access: Some(access), is_writable: true }));
    }
}

/// Memory of others.
impl Engine {
    /// Asks for a region. It can be worked on when the completion has ended well; what that brings is empty.
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`], [`FabricError::QueueFull`]; and
    /// [`FabricError::StaleKey`] at once or with the completion.
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

    /// Whether a region is attached.
    pub fn is_attached(&self, key: RemoteKey) -> bool {
        self.attached.contains_key(&key)
    }

    /// How a region that is attached can be reached natively; `None` when it cannot, or is not attached. Own regions are reached by
    /// what they were registered with.
    pub fn native(&self, key: RemoteKey) -> Option<NativeAccess> {
        match self.attached.get(&key)? {
            Attached::Own(_) => self.owner.access(key),
            Attached::Peers(grant) => grant.access,
        }
    }

    /// Whether a region that is attached may be written.
    pub fn is_writable(&self, key: RemoteKey) -> bool {
        match self.attached.get(&key) {
            Some(Attached::Own(memory)) => memory.is_writable(),
            Some(Attached::Peers(grant)) => grant.is_writable,
            None => false,
        }
    }

    /// A region that this process reaches natively and whose owner has taken it back. It is not attached any more; the transport
    /// [lets go](Self::let_go) of it when none of its accesses is under way.
    pub fn next_revoked(&mut self) -> Option<RemoteKey> {
        self.revoked.pop_front()
    }

    /// This process has let go of a region that was [revoked](Self::next_revoked).
    pub fn let_go(&mut self, key: RemoteKey) {
        if self.check_peer(key.process).is_ok() {
            self.outbox.push(key.process, Class::Release, Packet::Released(key.into()).encode());
        }
    }

    /// What a peer has taken back is attached no more.
    fn revoke(&mut self, owner: ProcessId, name: RegionName) -> Result<(), Malformed> {
        if self.outbox.count(owner, Class::Release) + self.revoked.len() >= RELEASES_MAX {
            return Err(Malformed::TooMany { max: RELEASES_MAX });
        }
        let is_meant = |key: &RemoteKey| key.process == owner && RegionName::from(*key) == name;
        let meant = self.attached.extract_if(|key, _| is_meant(key)).next();
        match meant {
            Some((key, Attached::Peers(Grant { access: Some(_), .. }))) => self.revoked.push_back(key),
            // All else is carried out by the owner, which does no more.
            _ => self.outbox.push(owner, Class::Release, Packet::Released(name).encode()),
        }
        Ok(())
    }

    /// Starts an operation on a region that is attached. On one of this process it has ended at return.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`]. All others come with the completion.
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

    /// Finds out what is wrong with an operation, or the region if it is one of this process.
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
    /// Lets a message of the layer above go out, after all that was to go to this peer before. One to this process comes
    /// out of [`flush`](Self::flush) like others; the transport hands it to [`take`](Self::take).
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::MessageTooLong`], [`FabricError::Disconnected`],
    /// [`FabricError::QueueFull`].
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
        self.outbox.push(to, Class::Message, Packet::User(message).encode());
        Ok(())
    }

    /// Expects a message. What comes early has ended the completion at return.
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`], [`FabricError::QueueFull`].
    pub fn receive_tagged(&mut self, from: ProcessId, tag: Tag, room: usize) -> Result<Completion, FabricError> {
        self.check_peer(from)?;
        self.matcher.receive_tagged(from, tag, room)
    }

    /// Lets a message go out that its receiver expects, or will. One to this process has arrived at return.
    ///
    /// # Errors
    /// As for [`send`](Self::send); and [`FabricError::QueueFull`] also when too many were sent that nobody has expected yet.
    pub fn send_tagged(&mut self, to: ProcessId, tag: Tag, message: &[u8]) -> Result<(), FabricError> {
        self.check_peer(to)?;
        let Self { matcher, outbox, .. } = self;
        // The matcher bounds how many wait there.
        matcher.send(to, tag, message, |frame| {
            outbox.push(to, Class::Tagged, Packet::Tagged(&frame).encode());
            Ok(())
        })
    }

    /// Takes in a packet from a peer. A message of the layer above is handed back; everything else is done here. What a
    /// lost peer sent is passed over.
    ///
    /// # Errors
    /// [`Malformed`]: the transport should [lose](Self::lose) the peer.
    pub fn take<'a>(&mut self, from: ProcessId, packet: &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
        if self.check_peer(from).is_err() {
            return Ok(None);
        }
        match Packet::decode(packet).ok_or(Malformed::Undecodable)? {
            Packet::User(message) => return Ok(Some(message)),
            Packet::Tagged(frame) => self.matcher.take(from, frame)?,
            Packet::Revoke(name) => self.revoke(from, name)?,
            Packet::Released(name) => self.owner.released(from, name),
            Packet::Request { id, region, ask } => {
                let max = self.limits.operations_max.saturating_mul(PIECES_UNDER_WAY_MAX);
                if self.outbox.count(from, Class::Answer) >= max {
                    return Err(Malformed::TooMany { max });
                }
                let data_max = self.limits.message_bytes_max - packet::GOT_HEADER_BYTES;
                let answer = self.owner.answer(from, id, region, &ask, data_max)?;
                self.outbox.push(from, Class::Answer, answer);
            }
            Packet::Answer { id, answer } => {
                if let Some((key, grant)) = self.asked.take(from, id, &answer, &mut self.outbox)? {
                    self.attached.insert(key, Attached::Peers(grant));
                }
            }
        }
        Ok(None)
    }

    /// Hands over what is to go out, in its order for each peer. `send` gives a packet back when the peer has no room for
    /// it; the packet and all after it stay for the next time.
    pub fn flush(&mut self, send: impl FnMut(ProcessId, Vec<u8>) -> Result<(), Vec<u8>>) {
        // A thread of this process may have been at what was taken back, and is no more.
        self.owner.settle();
        let Self { matcher, outbox, .. } = self;
        matcher.credits(|to, frame| {
            // What waits is out of date by then, and comes again.
            let has_room = outbox.count(to, Class::Credit) == 0;
            if has_room {
                outbox.push(to, Class::Credit, Packet::Tagged(&frame).encode());
            }
            has_room
        });
        outbox.flush(send);
    }

    /// The peers to which something is to go out.
    pub fn waiting_for_room(&self) -> impl Iterator<Item = ProcessId> {
        self.outbox.peers()
    }

    /// A peer is gone, and stays so: all that is under way with it ends with [`FabricError::Disconnected`], and what was
    /// to go out to it is dropped. Says whether that is news. A process does not lose itself.
    pub fn lose(&mut self, peer: ProcessId) -> bool {
        let is_news = peer != self.process && self.check_peer(peer).is_ok();
        if is_news {
            self.outbox.lose(peer);
            self.asked.lose(peer);
            self.matcher.lose(peer);
            self.owner.lose(peer);
            self.attached.retain(|key, _| key.process != peer);
            self.revoked.retain(|key| key.process != peer);
        }
        is_news
    }

    /// Nothing that a lost peer did natively is under way any more.
    pub fn bury(&mut self, peer: ProcessId) {
        if self.outbox.is_lost(peer) {
            self.owner.bury(peer);
        }
    }

    /// Fails when there is no such process, or it is lost.
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
