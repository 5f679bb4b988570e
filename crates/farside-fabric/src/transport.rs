//! The seam: what Farside asks of whatever carries its bytes.
//!
//! # The contract
//!
//! 1. A process registers memory and gets a [`RemoteKey`], plain data that can be sent to any peer. The first region of a
//!    process, its *starter*, has a key that anybody can compute ([`RemoteKey::starter`]).
//! 2. A peer [attaches](Transport::attach) a key once and then works on a [`RemoteRegion`]. Connections
//!    are made on first use. Attaching never needs the attention of the target's workers, only of its service thread.
//! 3. If the region is *mapped*, accesses are the caller's own loads and stores. Otherwise they are
//!    [posted](Transport::post) as an [`Operation`] and end as a [`Completion`].
//!    A key that is [taken back](Transport::deregister) is so at once, and everybody who holds it learns of it. When the owner is told that
//!    it is over, no access of anybody reaches the memory any more (pages that are mapped are the peer's to keep).
//! 4. A completed put is visible to every later get, atomic or load anywhere. Two operations that are both not completed
//!    may take effect in either order, and a put of more than eight bytes may become visible in pieces.
//! 5. Atomics on one word are atomic with each other and with the owner's own CPU atomics on it.
//! 6. Messages from one process to another arrive whole, once, and in the order in which they were sent, or the peer is
//!    reported [`Event::Disconnected`].
//! 7. Nothing blocks without a deadline, and a peer that died is an error and not a silence.
//! 8. A message may be *expected*: its receiver has said from whom it comes, under which tag, and how long it is at most. It goes to
//!    the first expectation of just this sender and tag, and of messages that could go to one expectation the one that was sent first
//!    does. One that comes before it is expected is kept; who sends too many of those is refused, and nothing is lost. Messages of
//!    the two kinds may overtake each other.
//!
//! `docs/adding-a-transport.md` is the guide for who writes one; [`emulated`](crate::emulated) has the one-sided operations
//! for those that only carry messages.
//!
//! A transport has no thread of its own. Whoever needs something from it calls [`progress`](Transport::progress); in a
//! job that is the service thread, which sleeps in [`wait`](Transport::wait) between.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use farside_sys::shm::SharedMemory;

use crate::ids::ProcessId;
use crate::region::{LocalRegion, RemoteRegion, UserMemory, UserRegion};

pub use crate::operation::{
    AtomicChange, Carrier, Completion, FabricError, Operation, Outcome, RegionName, RemoteKey, Tag, Unposted,
};

/// One process's end of a fabric.
///
/// It is [`Any`], so that a crate above can find out whether an end is of a type with abilities beyond the contract.
pub trait Transport: Carrier + Any {
    /// The process whose end this is.
    fn process(&self) -> ProcessId;

    /// How many processes the fabric joins.
    fn process_count(&self) -> u32;

    /// What this transport can do by itself.
    fn capabilities(&self) -> Capabilities;

    /// Makes memory that peers can reach, all zero: of ordinary pages, where the system puts it.
    ///
    /// # Errors
    /// [`FabricError::Memory`] when there is none left.
    fn register(&self, bytes: usize) -> Result<LocalRegion, FabricError> {
        let memory = Arc::new(SharedMemory::create("farside-region", bytes)?);
        self.register_memory(memory, bytes)
    }

    /// Makes the first `bytes` bytes of memory that is there already reachable for peers, with what they hold. Whoever makes the
    /// memory chooses its pages and its NUMA node ([`SharedMemory::create_as`]).
    ///
    /// # Errors
    /// What the transport says when it registers no more.
    ///
    /// # Panics
    /// When the memory has not so many bytes.
    fn register_memory(&self, memory: Arc<SharedMemory>, bytes: usize) -> Result<LocalRegion, FabricError>;

    /// Makes [private](crate::region::UserMemory) memory of this process reachable for peers: heap, stack, whatever it is. They attach its key as any
    /// other. How they reach it, [`Capabilities::user_memory`] says; atomics are always carried out by the owner. A put of any
    /// length may be seen in pieces.
    ///
    /// # Errors
    /// [`FabricError::Memory`] when it has no bytes; what the transport says when it registers no more.
    ///
    /// # Panics
    /// When the memory was taken back.
    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError>;

    /// Takes back a key. Who attaches it from now on gets [`FabricError::StaleKey`]; those who hold it are told, and get it, too, from
    /// whatever they begin then. The completion has ended when each of them has said that nothing of its is under way, or
    /// is lost: then nobody reaches the memory any more, its slot may be used again, and private memory is its owner's alone. What it brings is
    /// empty. Who does not want to know may drop it.
    ///
    /// Where the memory is *mapped*, peers that have kept a [`RemoteRegion`] keep the pages with it. They harm nobody as long as the owner
    /// does not use the same memory for something else.
    ///
    /// *Cost*: a message to each holder and one back. It needs the progress of both sides, and no attention.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`] when the key is not one of this process's.
    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError>;

    /// The memory that this process's starter key names.
    fn starter(&self) -> LocalRegion;

    /// Makes a peer's region reachable, connecting first if need be.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`], [`FabricError::Disconnected`], [`FabricError::Deadline`].
    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError>;

    /// A region that is attached already, without any waiting.
    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion>;

    /// Sends a small message, copied before this returns.
    ///
    /// # Errors
    /// [`FabricError::MessageTooLong`], [`FabricError::QueueFull`], [`FabricError::NotListening`], [`FabricError::Disconnected`].
    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError>;

    /// Starts to receive one message of up to `room` bytes that `from` [sends](Self::send_tagged) under this tag. The completion
    /// ends with [`Outcome::Got`], or with [`FabricError::RoomTooSmall`] when the message is longer: then the message is lost, and
    /// the next one goes to the next receive. A [cancelled](Completion::cancel) receive takes no message.
    ///
    /// *Cost*: no memory is reserved for the message, which arrives in memory of its own.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`] when the transport has no tagged messages, as by default; [`FabricError::QueueFull`] when this
    /// process has too many such receives under way; [`FabricError::NoSuchProcess`]; [`FabricError::Disconnected`], with which the
    /// completion also ends when the peer is lost.
    fn receive_tagged(&self, from: ProcessId, tag: Tag, room: usize) -> Result<Completion, FabricError> {
        let _ = (from, tag, room);
        Err(FabricError::Unsupported { what: "receiving a tagged message", transport: self.capabilities().name })
    }

    /// Sends a small message that completes a [receive](Self::receive_tagged) of the same tag, now or later. The message is
    /// copied before this returns.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`] when the transport has no tagged messages, as by default; [`FabricError::QueueFull`] also when
    /// the peer keeps too many messages that it has not started to receive. Otherwise as for [`send`](Self::send).
    fn send_tagged(&self, to: ProcessId, tag: Tag, message: &[u8]) -> Result<(), FabricError> {
        let _ = (to, tag, message);
        Err(FabricError::Unsupported { what: "sending a tagged message", transport: self.capabilities().name })
    }

    /// The next thing that happened, if something did.
    fn receive(&self) -> Option<Event>;

    /// Sleeps until progress can be made, one of `also` is readable, somebody calls [`wake`](Self::wake), or the deadline.
    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>);

    /// Declares a peer dead, as somebody else found out: what waits for it ends with [`FabricError::Disconnected`].
    fn forget(&self, process: ProcessId);
}

/// What a transport can do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The transport's name, as `--fabric` and `farside info` spell it.
    pub name: &'static str,
    /// Attached regions are mapped: accesses are loads and stores.
    pub mapped: bool,
    /// Which one-sided operations complete only while the target makes progress. (For private memory,
    /// [`user_memory`](Self::user_memory) says it.)
    pub needs_target_progress: NeedsTarget,
    /// Two puts to the same peer take effect in the order in which they were posted.
    pub puts_in_order: bool,
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// The largest tagged message, in bytes; 0 if the transport has none.
    pub tagged_bytes_max: usize,
    /// The maximum number of tagged receives that a process may have under way; 0 if the transport has no tagged messages.
    pub tagged_receives_max: usize,
    /// How many operations may be under way. (On private memory it may be fewer.)
    pub operations_max: usize,
    /// How peers reach private memory.
    pub user_memory: UserReach,
}

/// How memory is reached that its owner has registered as [private](crate::region::UserMemory). Atomics on it are always the owner's to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserReach {
    /// By a system call of who accesses it, with no help of the owner; where the system refuses that, by the owner's progress.
    SystemCall,
    /// As other memory, if the fabric [owns](UserMemory::is_owned) it; borrowed memory by the owner's progress.
    Native,
    /// By the owner's progress.
    Owner,
}

/// Which one-sided operations on attached memory stand still while nobody at the target makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsTarget {
    /// None.
    Nothing,
    /// Atomics: the target's processor carries them out. Puts and gets go on.
    Atomics,
    /// All.
    Everything,
}

/// Something that happened to a process's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer sent a message.
    Message {
        /// Who.
        from: ProcessId,
        /// What.
        message: Vec<u8>,
    },
    /// A peer that was connected is so no more.
    Disconnected {
        /// Who.
        process: ProcessId,
    },
}
