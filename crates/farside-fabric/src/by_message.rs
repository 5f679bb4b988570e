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
//! # Bounds
//!
//! A process has at most [`operations_max`](Limits::operations_max) operations under way, each of at most
//! [`PIECES_UNDER_WAY_MAX`] requests at a time. An owner answers each at once, so that what waits to go out to one peer is
//! at most twice `operations_max * PIECES_UNDER_WAY_MAX` packets (the requests to it and the answers to it),
//! twice [`messages_max`](Limits::messages_max) messages of the layer above (one kind and the other), and one that tells how many of its
//! messages were matched. Room for an answer is so never lacking. All
//! processes of a fabric must have the same limits: who asks more than its limits allow is taken to be out of its mind.
//!
//! A region that was taken back stays for those who have attached it, until they are lost: nothing tells when the last user
//! at a peer lets go.

mod asked;
mod outbox;
mod owner;
mod packet;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use self::asked::{Asked, Work};
use self::outbox::{Class, Outbox};
use self::owner::Owner;
use crate::expected::{self, EXPECTATIONS_MAX, Matcher};
use crate::ids::ProcessId;
use crate::region::{self, LocalRegion};
use crate::transport::{Completion, FabricError, Operation, Outcome, RemoteKey, Tag};

pub use self::packet::{
    Answer, Ask, NativeAccess, Packet, Refusal, RegionName, RequestId, USER_HEADER_BYTES, fuzz_decode,
};

/// How many requests of one operation are under way at a time. One would leave the network idle for a round trip after
/// each piece; all at once would double a large put in memory.
pub const PIECES_UNDER_WAY_MAX: usize = 8;

/// The smallest value of [`Limits::message_bytes_max`]: room for every packet without data, and for a put or a get of
/// some words, as no access of up to eight bytes may be cut.
pub const MESSAGE_BYTES_MIN: usize = 64;

const _: () = assert!(packet::DATALESS_BYTES_MAX <= MESSAGE_BYTES_MIN);
const _: () = assert!(packet::PUT_HEADER_BYTES + 8 <= MESSAGE_BYTES_MIN);
const _: () = assert!(packet::GOT_HEADER_BYTES + 8 <= MESSAGE_BYTES_MIN);
const _: () = assert!(USER_HEADER_BYTES + expected::CREDIT_BYTES <= MESSAGE_BYTES_MIN);

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
    pub fn expected_bytes_max(&self) -> usize {
        self.user_bytes_max() - expected::HEADER_BYTES
    }

    /// How many of those a process may expect at a time.
    pub fn expectations_max(&self) -> usize {
        EXPECTATIONS_MAX
    }
}

/// Memory that is to be a region.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The memory.
    pub memory: Arc<SharedMemory>,
    /// How much of it peers can reach.
    pub bytes: usize,
    /// What peers are told when they attach it.
    pub access: NativeAccess,
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
    Expected(#[from] expected::Malformed),
}

/// One process's one-sided operations, carried by messages.
#[derive(Debug)]
pub struct Engine {
    process: ProcessId,
    process_count: u32,
    limits: Limits,
    owner: Owner,
    attached: HashMap<RemoteKey, Attached>,
    asked: Asked,
    matcher: Matcher,
    outbox: Outbox,
}

/// A region that this process has attached.
#[derive(Debug)]
enum Attached {
    Own(LocalRegion),
    Peers(NativeAccess),
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
        let expected = expected::Limits {
            message_bytes_max: limits.expected_bytes_max(),
            early_messages_max: limits.messages_max,
        };
        Self {
            process,
            process_count,
            limits,
            owner: Owner::new(process, starter),
            attached: HashMap::new(),
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
        self.owner.register(registration)
    }

    /// Takes back a key. Peers that have attached it keep what they have.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`] when the key is not one of this process's, or the starter's.
    pub fn deregister(&mut self, key: RemoteKey) -> Result<(), FabricError> {
        self.owner.deregister(key)
    }

    /// Can a peer still reach the region of this key, though the key was taken back? A transport with a native access
    /// keeps that up for so long.
    ///
    /// *Cost*: a look at every attachment by every peer.
    pub fn is_held(&self, key: RemoteKey) -> bool {
        self.owner.is_held(key)
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
            let region = self.owner.find(key).ok_or(FabricError::StaleKey { key })?.clone();
            self.attached.insert(key, Attached::Own(region));
        }
        let completion = Completion::pending();
        if self.attached.contains_key(&key) {
            completion.end(Ok(Outcome::Got(Vec::new())));
        } else {
            self.ask(key, Work::Attach, &completion)?;
        }
        Ok(completion)
    }

    /// How a region that is attached can be reached natively; `None` when it is not attached. Own regions are reached by
    /// what they were registered with.
    pub fn attached(&self, key: RemoteKey) -> Option<NativeAccess> {
        match self.attached.get(&key)? {
            Attached::Own(_) => Some(self.owner.access(key)),
            Attached::Peers(access) => Some(*access),
        }
    }

    /// Starts an operation on a region that is attached. On one of this process it has ended at return.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`]. All others come with the completion.
    pub fn post(&mut self, key: RemoteKey, operation: Operation) -> Result<Completion, FabricError> {
        let completion = Completion::pending();
        match self.admit(key, &operation) {
            Err(error) => completion.end(Err(error)),
            Ok(Some(own)) => completion.end(region::execute(key, own.memory(), operation)),
            Ok(None) => self.ask(key, Work::new(operation), &completion)?,
        }
        Ok(completion)
    }

    /// Finds out what is wrong with an operation, or the region if it is one of this process.
    fn admit(&self, key: RemoteKey, operation: &Operation) -> Result<Option<LocalRegion>, FabricError> {
        self.check_peer(key.process)?;
        match operation {
            Operation::Put { offset, data } => key.check(*offset, data.len())?,
            Operation::Get { offset, bytes } => key.check(*offset, *bytes)?,
            Operation::Atomic64 { offset, .. } => key.check_word(*offset, 8)?,
            Operation::Atomic32 { offset, .. } => key.check_word(*offset, 4)?,
        }
        match self.attached.get(&key) {
            Some(Attached::Own(region)) => Ok(Some(region.clone())),
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
    pub fn expect(&mut self, from: ProcessId, tag: Tag, room: usize) -> Result<Completion, FabricError> {
        self.check_peer(from)?;
        self.matcher.expect(from, tag, room)
    }

    /// Lets a message go out that its receiver expects, or will. One to this process has arrived at return.
    ///
    /// # Errors
    /// As for [`send`](Self::send); and [`FabricError::QueueFull`] also when too many were sent that nobody has expected yet.
    pub fn send_expected(&mut self, to: ProcessId, tag: Tag, message: &[u8]) -> Result<(), FabricError> {
        self.check_peer(to)?;
        let Self { matcher, outbox, .. } = self;
        // The matcher bounds how many wait there.
        matcher.send(to, tag, message, |frame| {
            outbox.push(to, Class::Expected, Packet::Expected(&frame).encode());
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
            Packet::Expected(frame) => self.matcher.take(from, frame)?,
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
                if let Some((key, access)) = self.asked.take(from, id, &answer, &mut self.outbox)? {
                    self.attached.insert(key, Attached::Peers(access));
                }
            }
        }
        Ok(None)
    }

    /// Hands over what is to go out, in its order for each peer. `send` gives a packet back when the peer has no room for
    /// it; the packet and all after it stay for the next time.
    pub fn flush(&mut self, send: impl FnMut(ProcessId, Vec<u8>) -> Result<(), Vec<u8>>) {
        let Self { matcher, outbox, .. } = self;
        matcher.credits(|to, frame| {
            // What waits is out of date by then, and comes again.
            let has_room = outbox.count(to, Class::Credit) == 0;
            if has_room {
                outbox.push(to, Class::Credit, Packet::Expected(&frame).encode());
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
        }
        is_news
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
