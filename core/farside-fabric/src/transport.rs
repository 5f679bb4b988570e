//! The seam: the interface between Farside and a transport.
//!
//! # The contract
//!
//! 1. A process registers memory and gets a [`RemoteKey`], plain data that can be sent to any peer.
//!    The first region of a process, its *starter*, has a key that every process can compute
//!    ([`RemoteKey::starter`]).
//! 2. A peer [attaches](Transport::attach) a key once and then works on a [`RemoteRegion`].
//!    Connections are made on first use. Attaching never needs the attention of the target's
//!    workers, only of its service thread.
//! 3. If the region is *mapped*, accesses are the caller's own loads and stores. Otherwise they are
//!    [posted](Carrier::post) as an [`Operation`] and end as a [`Completion`].
//!    [Deregistration](Transport::deregister) withdraws a key at once, and every holder learns of
//!    it. When the owner learns that the deregistration is over, no access of any process reaches
//!    the memory any more (mapped pages stay with the peer).
//! 4. A completed put is visible to every later get, atomic or load anywhere. Two operations that
//!    are both not completed may take effect in either order, and a put of more than eight bytes
//!    may become visible in pieces.
//! 5. Atomics on one word are atomic with each other and with the owner's own CPU atomics on it.
//! 6. Messages from one process to another arrive whole, once, and in the order in which they were
//!    sent; otherwise the peer is reported as [`Event::Disconnected`].
//! 7. Nothing blocks without a deadline, and the death of a peer is an error, not a silence.
//!
//! `docs/adding-a-transport.md` is the guide for authors of transports.
//! [`emulated`](crate::emulated) provides the one-sided operations for transports that only carry
//! messages.
//!
//! A transport has no thread of its own. A thread that needs something from it calls
//! [`progress`](Carrier::progress). In a job that is the service thread, which sleeps in
//! [`wait`](Transport::wait) in between.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use farside_sys::shm::SharedMemory;

use crate::ids::ProcessId;
use crate::region::{LocalRegion, RemoteRegion, UserMemory, UserRegion};

pub use crate::operation::{
    AtomicChange, Carrier, Completion, FabricError, Operation, Outcome, RegionKind, RegionName, RemoteKey, SLOT_BYTES,
    SLOT_COUNT, Unposted,
};

/// One process's endpoint of a fabric.
///
/// It is [`Any`], so that a crate above can find out whether an endpoint has a type with abilities
/// beyond the contract.
pub trait Transport: Carrier + Any {
    /// The process of this endpoint.
    fn process(&self) -> ProcessId;

    /// Number of processes that the fabric connects.
    fn process_count(&self) -> u32;

    /// The capabilities of this transport.
    fn capabilities(&self) -> Capabilities;

    /// Creates memory that peers can access, all zero: of ordinary pages, on a node of the system's
    /// choice.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if there is no memory left.
    fn register(&self, bytes: usize) -> Result<LocalRegion, FabricError> {
        let memory = Arc::new(SharedMemory::create("farside-region", bytes)?);
        self.register_memory(memory, bytes, RegionKind::Shared)
    }

    /// Makes the first `bytes` bytes of existing memory accessible to peers, with their contents.
    /// The creator of the memory chooses its pages and its NUMA node ([`SharedMemory::create_as`]).
    /// The key says of which kind the region is, and a key of another kind names no region.
    ///
    /// # Errors
    /// The transport's error, if it cannot register more.
    ///
    /// # Panics
    /// If the memory has fewer bytes.
    fn register_memory(
        &self,
        memory: Arc<SharedMemory>,
        bytes: usize,
        kind: RegionKind,
    ) -> Result<LocalRegion, FabricError>;

    /// Makes [user memory](crate::region::UserMemory) of this process accessible to peers, for
    /// example of the heap or the stack. They attach its key like any other.
    /// [`Capabilities::user_memory`] tells how they access it; the owner always executes atomics. A
    /// put of any length may become visible in pieces.
    ///
    /// # Errors
    /// [`FabricError::Memory`] if it has no bytes; the transport's error, if it cannot register
    /// more.
    ///
    /// # Panics
    /// If the memory was taken back.
    fn register_user(&self, memory: Arc<UserMemory>) -> Result<UserRegion, FabricError>;

    /// Withdraws a key. From now on attaching it fails with [`FabricError::StaleKey`]. Its holders
    /// are notified, and their new operations fail in the same way. The completion ends when each
    /// holder has reported that it has nothing in flight, or is lost. Then no peer can access the
    /// memory any more, its slot may be reused, and user memory belongs to its owner alone. The
    /// completion carries no data; drop it if you need not know when the memory is free.
    ///
    /// Where the memory is *mapped*, peers that keep a [`RemoteRegion`] keep the pages with it.
    /// That does no harm as long as the owner does not reuse the same memory for something else.
    ///
    /// *Cost*: a message to each holder and one back. It needs the progress of both sides, but no
    /// attention of their workers.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`] if the key is not one of this process's.
    fn deregister(&self, key: RemoteKey) -> Result<Completion, FabricError>;

    /// The memory of this process's starter key.
    fn starter(&self) -> LocalRegion;

    /// Makes a peer's region accessible, and connects first if necessary.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`], [`FabricError::Disconnected`], [`FabricError::Deadline`].
    fn attach(&self, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, FabricError>;

    /// Returns a region that is already attached, without waiting.
    fn attached(&self, key: RemoteKey) -> Option<RemoteRegion>;

    /// Sends a region of this process to a peer, ahead of the messages that name its key. When a
    /// later [message](Self::send) arrives, the region is [attached](Self::attached) there, so its
    /// receiver need not wait. Only a peer that lacks memory or descriptors is still without it.
    /// Does nothing if the peer has the region. By default does nothing: a transport that maps no
    /// memory has nothing to send.
    ///
    /// *Cost*: a message for each region and peer, once.
    ///
    /// # Errors
    /// [`FabricError::StaleKey`] if the key is not one of this process's;
    /// [`FabricError::MessageTooLong`], [`FabricError::QueueFull`], [`FabricError::NotListening`],
    /// [`FabricError::Disconnected`]. The peer may attach the region all the same.
    fn offer(&self, to: ProcessId, key: RemoteKey) -> Result<(), FabricError> {
        let _ = (to, key);
        Ok(())
    }

    /// Sends a small message, copied before this returns.
    ///
    /// # Errors
    /// [`FabricError::MessageTooLong`], [`FabricError::QueueFull`], [`FabricError::NotListening`],
    /// [`FabricError::Disconnected`].
    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError>;

    /// The most bytes of a [message](Self::send) to this peer: at least as many as to any peer,
    /// which is what [`capabilities`](Self::capabilities) tell.
    fn message_bytes_max(&self, to: ProcessId) -> usize {
        let _ = to;
        self.capabilities().message_bytes_max
    }

    /// Sends a small message of `bytes` bytes. `write` gets that many bytes and overwrites them
    /// all. A transport with send buffers of its own hands one of them out, which saves a copy. It
    /// may do so under a lock, so `write` calls no transport.
    ///
    /// # Errors
    /// [`FabricError::MessageTooLong`], [`FabricError::QueueFull`], [`FabricError::NotListening`],
    /// [`FabricError::Disconnected`].
    fn send_with(&self, to: ProcessId, bytes: usize, write: &mut dyn FnMut(&mut [u8])) -> Result<(), FabricError> {
        let mut message = vec![0; bytes];
        write(&mut message);
        self.send(to, &message)
    }

    /// Returns the next event, if there is one.
    fn receive(&self) -> Option<Event>;

    /// Sleeps until progress can be made, one of `also` is readable, another thread calls
    /// [`wake`](Carrier::wake), or the deadline has passed.
    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>);

    /// Declares a peer dead, because another component has found out. Operations that wait for it
    /// end with [`FabricError::Disconnected`].
    fn forget(&self, process: ProcessId);
}

/// The capabilities of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The transport's name, as `--fabric` and `farside info` spell it.
    pub name: &'static str,
    /// True if attached regions are mapped, so that accesses are loads and stores.
    pub mapped: bool,
    /// The one-sided operations that complete only while the target makes progress. (For user
    /// memory see [`user_memory`](Self::user_memory).)
    pub needs_target_progress: NeedsTarget,
    /// True if two puts to the same peer take effect in the order in which they were posted.
    pub puts_in_order: bool,
    /// Maximum length of a message, in bytes.
    pub message_bytes_max: usize,
    /// Maximum number of operations in flight. (On user memory it may be smaller.)
    pub operations_max: usize,
    /// The way in which peers access user memory.
    pub user_memory: UserReach,
}

/// The way in which peers access [user memory](crate::region::UserMemory). Its owner always
/// executes atomics on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserReach {
    /// By a system call of the accessing process, without help of the owner. If the system refuses
    /// the call, the owner executes the access while it makes progress.
    SystemCall,
    /// Directly, if the fabric [owns](UserMemory::is_owned) the memory; its owner accesses borrowed
    /// memory while it makes progress.
    Native,
    /// By the owner, while it makes progress.
    Owner,
}

/// The one-sided operations on attached memory that stall while no thread at the target makes
/// progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsTarget {
    /// None.
    Nothing,
    /// Atomics: the target's processor executes them. Puts and gets continue.
    Atomics,
    /// All.
    Everything,
}

/// An event at a process's endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer sent a message.
    Message {
        /// The sender.
        from: ProcessId,
        /// The message.
        message: Vec<u8>,
    },
    /// A connected peer is gone.
    Disconnected {
        /// The peer.
        process: ProcessId,
    },
}
