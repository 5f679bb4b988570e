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
//! `docs/adding-a-transport.md` is the guide for who writes one; [`by_message`](crate::by_message) has the one-sided operations
//! for those that only carry messages.
//!
//! A transport has no thread of its own. Whoever needs something from it calls [`progress`](Transport::progress); in a
//! job that is the service thread, which sleeps in [`wait`](Transport::wait) between.

mod operation;

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farside_sys::shm::SharedMemory;
use farside_wire::Wire;

use crate::clock::Clock;
use crate::ids::ProcessId;
use crate::private::{PrivateMemory, PrivateRegion};
use crate::region::{LocalRegion, RemoteRegion};

pub use self::operation::{AtomicChange, Operation, Outcome, Unposted};

/// One process's end of a fabric.
///
/// It is [`Any`], so that a crate above can find out whether an end is of a type with abilities beyond the contract.
pub trait Transport: Any + Send + Sync + fmt::Debug {
    /// The process whose end this is.
    fn process(&self) -> ProcessId;

    /// How many processes the fabric joins.
    fn process_count(&self) -> u32;

    /// What this transport can do by itself.
    fn capabilities(&self) -> Capabilities;

    /// What time it is for this process, and how its threads wait. The system's clock, unless the transport simulates one.
    fn clock(&self) -> Clock {
        Clock::real()
    }

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

    /// Makes [private](crate::private) memory of this process reachable for peers: heap, stack, whatever it is. They attach its key as any
    /// other. How they reach it, [`Capabilities::private_memory`] says; atomics are always carried out by the owner. A put of any
    /// length may be seen in pieces.
    ///
    /// # Errors
    /// [`FabricError::Memory`] when it has no bytes; what the transport says when it registers no more.
    ///
    /// # Panics
    /// When the memory was taken back.
    fn register_private(&self, memory: Arc<PrivateMemory>) -> Result<PrivateRegion, FabricError>;

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

    /// Starts an operation on a region that is not mapped. (On a mapped one it works too, and has ended at return.)
    ///
    /// # Errors
    /// [`FabricError::QueueFull`] when too many are under way; other errors come here or with the completion. What comes here gives the
    /// operation back, with its buffer.
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted>;

    /// Sends a small message, copied before this returns.
    ///
    /// # Errors
    /// [`FabricError::MessageTooLong`], [`FabricError::QueueFull`], [`FabricError::NotListening`], [`FabricError::Disconnected`].
    fn send(&self, to: ProcessId, message: &[u8]) -> Result<(), FabricError>;

    /// Expects one message of up to `room` bytes that `from` is to [send](Self::send_expected) under this tag. The completion ends with
    /// [`Outcome::Got`], or with [`FabricError::RoomTooSmall`] when the message is longer: it is lost then, and the next goes to the next
    /// expectation. Once the expectation is [cancelled](Completion::cancel), no message goes to it any more.
    ///
    /// *Cost*: no memory is set apart for the message, which comes in memory of its own.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`] when this process expects too many, [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`]. The
    /// completion ends with the latter, too, when the peer is lost.
    fn expect(&self, from: ProcessId, tag: Tag, room: usize) -> Result<Completion, FabricError>;

    /// Sends a small message that its receiver [expects](Self::expect) under this tag, or will; it is copied before this returns.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`] also when too much was sent to this peer that nobody has expected yet. Otherwise as for
    /// [`send`](Self::send).
    fn send_expected(&self, to: ProcessId, tag: Tag, message: &[u8]) -> Result<(), FabricError>;

    /// The next thing that happened, if something did.
    fn receive(&self) -> Option<Event>;

    /// Moves everything on that can move without waiting.
    fn progress(&self);

    /// Sleeps until progress can be made, one of `also` is readable, somebody calls [`wake`](Self::wake), or the deadline.
    fn wait(&self, also: &[BorrowedFd<'_>], deadline: Option<Instant>);

    /// Ends a [`wait`](Self::wait) that is under way, or the next.
    fn wake(&self);

    /// A thread that has made [`progress`](Self::progress) again and again will do so no more, since it goes to sleep: whoever
    /// sleeps in [`wait`](Self::wait) is to watch in its place. A transport whose waiting thread never stands back ignores it.
    fn stop_polling(&self) {}

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
    /// [`private_memory`](Self::private_memory) says it.)
    pub needs_target_progress: NeedsTarget,
    /// Two puts to the same peer take effect in the order in which they were posted.
    pub puts_in_order: bool,
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// The largest expected message, in bytes.
    pub expected_bytes_max: usize,
    /// How many messages a process may expect at a time.
    pub expectations_max: usize,
    /// How many operations may be under way. (On private memory it may be fewer.)
    pub operations_max: usize,
    /// How peers reach private memory.
    pub private_memory: PrivateReach,
}

/// How memory is reached that its owner has registered as [private](crate::private). Atomics on it are always the owner's to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateReach {
    /// By a system call of who accesses it, with no help of the owner; where the system refuses that, by the owner's progress.
    SystemCall,
    /// As other memory, if the fabric [owns](PrivateMemory::is_owned) it; borrowed memory by the owner's progress.
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

/// Names a registered region to its peers. Plain data: 24 bytes that can be sent anywhere in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
#[wire(crate = "farside_wire")]
#[repr(C)]
pub struct RemoteKey {
    /// The process that owns the memory.
    pub process: ProcessId,
    /// Which of its regions.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
    /// Zero.
    pub reserved: u32,
    /// The size of the region.
    pub bytes: u64,
}

impl RemoteKey {
    /// The key of a process's starter memory.
    pub const fn starter(process: ProcessId, bytes: u64) -> Self {
        Self { process, slot: 0, generation: 0, reserved: 0, bytes }
    }

    /// Checks that an access lies inside the region.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`].
    #[inline]
    pub fn check(&self, offset: u64, bytes: usize) -> Result<(), FabricError> {
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(FabricError::OutOfRange { offset, bytes, region_bytes: self.bytes }),
        }
    }

    /// Checks that an atomic access lies inside the region, on a multiple of its size.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::Misaligned`].
    #[inline]
    pub fn check_word(&self, offset: u64, bytes: usize) -> Result<(), FabricError> {
        self.check(offset, bytes)?;
        if offset.is_multiple_of(bytes as u64) { Ok(()) } else { Err(FabricError::Misaligned { offset, bytes }) }
    }
}

/// Tells the expected messages of one sender apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

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

/// Why the fabric could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The operation was given up by the program.
    #[error("the operation was cancelled; it may have taken effect")]
    Cancelled,
    /// The deadline passed.
    #[error(
        "deadline passed while {doing} ({process}); it may be overloaded or stopped: raise the deadline or look at it"
    )]
    Deadline {
        /// What was waited for.
        doing: &'static str,
        /// The peer concerned.
        process: ProcessId,
    },
    /// The peer is gone.
    #[error("{process} is gone")]
    Disconnected {
        /// Which.
        process: ProcessId,
    },
    /// Memory could not be had or mapped.
    #[error(transparent)]
    Memory(#[from] farside_sys::shm::ShmError),
    /// An allocator is at its limit.
    #[error(
        "{bytes} more bytes of registered memory are beyond the limit: {held} of {limit} bytes are held already; give some back, or \
         raise the limit"
    )]
    MemoryLimit {
        /// What was asked for.
        bytes: usize,
        /// What the allocator holds.
        held: usize,
        /// What it may hold.
        limit: usize,
    },
    /// A message is longer than the transport takes.
    #[error("a message of {bytes} bytes; at most {max} bytes travel as one")]
    MessageTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// An atomic access must be on a multiple of its size.
    #[error("an atomic access of {bytes} bytes at offset {offset}, which is no multiple of {bytes}")]
    Misaligned {
        /// Where.
        offset: u64,
        /// Its size.
        bytes: usize,
    },
    /// No such process.
    #[error("{process} does not exist: the job has processes 0 to {}", count - 1)]
    NoSuchProcess {
        /// Which was named.
        process: ProcessId,
        /// How many there are.
        count: u32,
    },
    /// An access beyond the end of the region.
    #[error("an access of {bytes} bytes at offset {offset} of a region of {region_bytes} bytes")]
    OutOfRange {
        /// Where.
        offset: u64,
        /// How long.
        bytes: usize,
        /// The region's size.
        region_bytes: u64,
    },
    /// The memory may only be read.
    #[error("{} has registered its region {} to be read only: get from it, or have it registered for writing", key.process, key.slot)]
    ReadOnly {
        /// The key.
        key: RemoteKey,
    },
    /// The peer has not opened its end yet, or is gone and nobody has said so.
    #[error("{process} does not listen: it has not begun yet, or is gone; try again, until it is known to be gone")]
    NotListening {
        /// Which.
        process: ProcessId,
    },
    /// Something else answers where the peer should.
    #[error("the connection with {process} was refused: {why}")]
    Refused {
        /// The peer.
        process: ProcessId,
        /// The reason.
        why: &'static str,
    },
    /// A process answered with something else than it was asked for.
    #[error(
        "{process} was asked for {wanted} bytes and answered with {bytes}: it has a bug, or is of another version; see that all processes are of one"
    )]
    OddAnswer {
        /// Who answered.
        process: ProcessId,
        /// How many bytes it was asked for.
        wanted: usize,
        /// How many came.
        bytes: usize,
    },
    /// libfabric failed.
    #[error("{doing} failed: {why} (error {code} of libfabric's provider {provider})")]
    Provider {
        /// What was done.
        doing: &'static str,
        /// Which provider.
        provider: String,
        /// Its reason.
        why: String,
        /// Its error number.
        code: i32,
    },
    /// Too much is under way.
    #[error("the queue to {process} is full ({max} under way): make progress, then try again")]
    QueueFull {
        /// The peer.
        process: ProcessId,
        /// The queue's size.
        max: usize,
    },
    /// A queue was given what it cannot hold.
    #[error(
        "the queue to {process} was overrun: it holds {max} {what}; signal at least one in so many, and poll for its end"
    )]
    QueueOverrun {
        /// The peer.
        process: ProcessId,
        /// Operations without a signal in a row, or completions that nobody has polled for.
        what: &'static str,
        /// How many the queue takes.
        max: usize,
    },
    /// An expected message was longer than what it was expected with. It is lost.
    #[error("an expected message of {bytes} bytes came where room for {room} was made: expect it with more")]
    RoomTooSmall {
        /// The message's length.
        bytes: usize,
        /// The room.
        room: usize,
    },
    /// The key names no region, or one that is gone.
    #[error("{} has no region {} of generation {} (it was deregistered, or never was)", key.process, key.slot, key.generation)]
    StaleKey {
        /// The key.
        key: RemoteKey,
    },
    /// What the route needs is not on this machine.
    #[error("{what} cannot be used here: {why}; {remedy}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// In which way.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The system refused.
    #[error("{doing} failed: {cause}")]
    System {
        /// What was done.
        doing: &'static str,
        /// The system's reason.
        cause: std::io::Error,
    },
}

/// The end of a posted operation, whenever it comes.
///
/// Dropping it does not recall the operation; its buffers stay with the transport until it has ended.
#[derive(Clone, Debug)]
pub struct Completion(Arc<CompletionState>);

#[derive(Debug)]
struct CompletionState {
    end: Mutex<End>,
    ended: Condvar,
    /// How many sleep until it has ended. Changed and read with `end` locked: to wake nobody is a system call, too.
    sleepers: AtomicU32,
}

#[derive(Debug)]
enum End {
    /// It has not come.
    Open,
    Come(Result<Outcome, FabricError>),
    /// It has come, and somebody has the result.
    Taken,
}

/// Looks of one who waits before it offers its processor to others between them: about a hundred microseconds, in which most operations on
/// a quick network end.
const LOOKS_BEFORE_YIELDS: u32 = 100;
/// How long one looks before it sleeps: about what a megabyte takes on a network in software, where to hand the transport over to another
/// thread and back costs more than the looks.
const LOOKING_MAX: Duration = Duration::from_millis(1);

/// The looks of one wait, of which none has found anything.
#[derive(Debug, Default)]
struct Looks {
    count: u32,
    since: Option<Instant>,
}

impl Looks {
    /// One more. Says whether to look again, after a [pause](Self::pause), and not to sleep now.
    fn one_more(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        self.count = self.count.saturating_add(1);
        self.count < LOOKS_BEFORE_YIELDS || now.saturating_duration_since(since) < LOOKING_MAX
    }

    fn pause(&self) {
        if self.count >= LOOKS_BEFORE_YIELDS {
            std::thread::yield_now();
        }
    }
}

impl Completion {
    /// An operation that has not ended. The transport keeps a clone and [ends](Self::end) it.
    pub fn pending() -> Self {
        Self(Arc::new(CompletionState {
            end: Mutex::new(End::Open),
            ended: Condvar::new(),
            sleepers: AtomicU32::new(0),
        }))
    }

    /// Ends the operation, if it has not ended before. For transports.
    pub fn end(&self, result: Result<Outcome, FabricError>) {
        self.end_with(|| result);
    }

    /// As [`end`](Self::end), with a result that is made only if the operation has not ended before. Says whether it was.
    pub fn end_with(&self, result: impl FnOnce() -> Result<Outcome, FabricError>) -> bool {
        let mut end = self.lock();
        let is_open = matches!(*end, End::Open);
        if is_open {
            *end = End::Come(result());
            if self.0.sleepers.load(Ordering::Relaxed) > 0 {
                self.0.ended.notify_all();
            }
        }
        is_open
    }

    /// Gives the operation up: unless it has ended, it ends now, with [`FabricError::Cancelled`].
    ///
    /// What is under way already cannot be recalled, and may take effect all the same. Its buffer stays with the transport
    /// until then. What the transport has not begun, it does not begin any more, where it can tell.
    pub fn cancel(&self) {
        self.end(Err(FabricError::Cancelled));
    }

    /// Has it ended?
    pub fn has_ended(&self) -> bool {
        !matches!(*self.lock(), End::Open)
    }

    /// Takes the result, if the operation has ended and nobody has taken it before.
    ///
    /// # Errors
    /// That of the operation.
    pub fn try_take(&self) -> Option<Result<Outcome, FabricError>> {
        self.lock().take()
    }

    /// Waits for the end, making progress on `transport`, and takes the result.
    ///
    /// # Errors
    /// That of the operation, or [`FabricError::Deadline`].
    pub fn wait(self, transport: &dyn Transport, peer: ProcessId, deadline: Instant) -> Result<Outcome, FabricError> {
        let clock = transport.clock();
        let mut looks = Looks::default();
        loop {
            transport.progress();
            let mut end = self.lock();
            if let Some(result) = end.take() {
                return result;
            }
            let now = clock.now();
            if now >= deadline {
                return Err(FabricError::Deadline { doing: "waiting for an operation", process: peer });
            }
            if clock.is_simulated() {
                drop(end);
                clock.nap_until_news(deadline - now);
                continue;
            }
            if looks.one_more(now) {
                drop(end);
                looks.pause();
                continue;
            }
            transport.stop_polling();
            // Somebody else may be the one who makes the progress, so look again soon.
            let nap = (deadline - now).min(Duration::from_millis(1));
            self.sleep(end, nap);
        }
    }

    /// Makes progress on `transport` until the operation has ended or it is `until`, and leaves the result where it is.
    pub fn watch(&self, transport: &dyn Transport, until: Instant) {
        let clock = transport.clock();
        let mut looks = Looks::default();
        loop {
            transport.progress();
            let end = self.lock();
            let now = clock.now();
            if !matches!(*end, End::Open) || now >= until {
                return;
            }
            if clock.is_simulated() {
                drop(end);
                clock.nap_until_news(until - now);
                continue;
            }
            if looks.one_more(now) {
                drop(end);
                looks.pause();
                continue;
            }
            transport.stop_polling();
            self.sleep(end, (until - now).min(Duration::from_millis(1)));
        }
    }

    /// Sleeps until it has ended, or for so long.
    fn sleep(&self, end: MutexGuard<'_, End>, time: Duration) {
        self.0.sleepers.fetch_add(1, Ordering::Relaxed);
        let woken = self.0.ended.wait_timeout(end, time);
        self.0.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(woken);
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        // The lock guards a plain value that no panic can leave half written.
        self.0.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    fn take(&mut self) -> Option<Result<Outcome, FabricError>> {
        match std::mem::replace(self, End::Taken) {
            End::Come(result) => Some(result),
            other => {
                *self = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_for_ever() {
        let (mut looks, start) = (Looks::default(), Instant::now());
        assert!((1..LOOKS_BEFORE_YIELDS).all(|_| looks.one_more(start + LOOKING_MAX)), "quick looks count by number");
        assert!(looks.one_more(start + LOOKING_MAX), "and for a while after that");
        assert!(!looks.one_more(start + 2 * LOOKING_MAX));
        assert!(!looks.one_more(start + 3 * LOOKING_MAX));
    }

    #[test]
    fn an_operation_ends_once() {
        let completion = Completion::pending();
        assert!(!completion.has_ended() && completion.try_take().is_none());
        completion.end(Ok(Outcome::Previous(1)));
        completion.end(Ok(Outcome::Previous(2)));
        completion.cancel();
        assert!(completion.has_ended());
        assert!(matches!(completion.try_take(), Some(Ok(Outcome::Previous(1)))));
        completion.end(Ok(Outcome::Previous(3)));
        assert!(completion.has_ended() && completion.try_take().is_none());
    }

    #[test]
    fn what_was_given_up_stays_so() {
        let completion = Completion::pending();
        completion.cancel();
        completion.end(Ok(Outcome::Previous(1)));
        assert!(matches!(completion.try_take(), Some(Err(FabricError::Cancelled))));
    }
}
