//! A raw endpoint to one peer, whose operations are signalled by hand.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use farside_sys::racy;

use super::Frontier;
use super::looks::Looks;
use super::posted::PostedQueue;
use crate::ids::ProcessId;
use crate::memory::Chunk;
use crate::region::{LocalRegion, RemoteRegion};
use crate::transport::{FabricError, RemoteKey, Transport};

/// How large a queue is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// How many operations it takes at a time. At least 16 and at most 4096: what is less or more is taken for that.
    ///
    /// *Cost* over libfabric: 130 bytes for each.
    pub depth: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { depth: 512 }
    }
}

/// What a queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// So many operations, from when they are posted until a signalled one behind them is over.
    pub depth: usize,
    /// So many in a row without a signal. Less than the depth, so that in a full queue there is something to wait for.
    pub unsignalled_max: usize,
    /// So many signalled ones, until they are over and were polled for.
    pub completions_max: usize,
    /// So many bytes in one operation.
    pub bytes_max: usize,
}

impl QueueLimits {
    /// The narrowest queue that a [`Transmitter`](super::Transmitter) can work with.
    pub const DEPTH_MIN: usize = 16;
    /// The deepest.
    pub const DEPTH_MAX: usize = 4096;

    /// The limits of a queue of about this depth.
    pub fn of_depth(depth: usize, bytes_max: usize) -> Self {
        let depth = depth.clamp(Self::DEPTH_MIN, Self::DEPTH_MAX);
        Self { depth, unsignalled_max: depth - depth / 8, completions_max: depth / 4 + 1, bytes_max }
    }
}

/// Refuses an operation without a signal where none may follow.
pub(crate) fn overrun(process: ProcessId, limits: QueueLimits) -> FabricError {
    FabricError::QueueOverrun { process, what: "operations without a signal in a row", max: limits.unsignalled_max }
}

/// A part of registered memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct Span<'m> {
    region: &'m LocalRegion,
    offset: u64,
    bytes: usize,
}

impl<'m> Span<'m> {
    /// So many bytes of a region, from an offset on.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] when the region has not so many.
    #[inline]
    pub fn new(region: &'m LocalRegion, offset: u64, bytes: usize) -> Result<Self, FabricError> {
        region.key().check(offset, bytes)?;
        Ok(Self { region, offset, bytes })
    }

    /// The same where it is known that the region has so many.
    #[inline]
    pub(crate) fn inside(region: &'m LocalRegion, offset: u64, bytes: usize) -> Self {
        debug_assert!(region.key().check(offset, bytes).is_ok(), "a part of a region lies inside it");
        Self { region, offset, bytes }
    }

    /// The region.
    #[inline]
    pub fn region(&self) -> &'m LocalRegion {
        self.region
    }

    /// Where it begins.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its address.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.region.memory().base().as_ptr().wrapping_add(self.offset as usize)
    }

    /// A part of it.
    fn part(&self, at: usize, bytes: usize) -> Self {
        debug_assert!(at + bytes <= self.bytes);
        Self { offset: self.offset + at as u64, bytes, ..*self }
    }

    /// It in pieces of so many bytes, with where each begins. One piece at least.
    pub(crate) fn pieces(self, bytes_max: usize) -> impl Iterator<Item = (usize, Self)> {
        let count = self.bytes.div_ceil(bytes_max).max(1);
        (0..count).map(move |number| {
            let at = number * bytes_max;
            (at, self.part(at, bytes_max.min(self.bytes - at)))
        })
    }
}

impl Chunk {
    /// The whole chunk.
    pub fn span(&self) -> Span<'_> {
        Span { region: self.region(), offset: self.offset(), bytes: self.bytes() }
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// From here to the peer.
    Put,
    /// From the peer to here.
    Get,
}

/// A put or a get between registered memory here and a peer's, both within their regions.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'m> {
    /// Which way.
    pub kind: TransferKind,
    /// The memory here.
    pub local: Span<'m>,
    /// The region there.
    pub remote: RemoteKey,
    /// Where in that.
    pub remote_offset: u64,
}

/// A transport's own queue to a peer, in terms of [the contract](super).
pub trait TransferQueue: Send + Sync + fmt::Debug {
    /// What it takes.
    fn limits(&self) -> QueueLimits;

    /// How far it has come. Raised to the number of each signalled operation when that is over.
    fn frontier(&self) -> &Arc<Frontier>;

    /// Posts an operation, with a number if it is signalled. Numbers of two threads may come in another order than they were given.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`], [`FabricError::QueueOverrun`], [`FabricError::StaleKey`] when a region is not attached or not
    /// registered, or why the queue has failed.
    fn post(&self, transfer: &Transfer<'_>, signal: Option<u64>) -> Result<(), FabricError>;

    /// Posts a signalled operation that moves nothing.
    ///
    /// # Errors
    /// Those of [`post`](Self::post).
    fn signal(&self, number: u64) -> Result<(), FabricError>;

    /// Makes progress.
    ///
    /// # Errors
    /// Why the queue has failed.
    fn progress(&self) -> Result<(), FabricError>;

    /// How many operations of a queue that has failed the transport has not let go of.
    fn quarantined(&self) -> usize;
}

/// A raw endpoint to one peer: the program says what is signalled.
///
/// What it promises is [the contract](super). Any number of threads may use it; what one posts is then ordered with what others post
/// by their own agreement only.
///
/// *Cost* of an operation: where the peer's memory is mapped, a copy. Over libfabric a lock and libfabric's own call, nothing that is
/// allocated or looked up, and an answer only if it is signalled. On a transport that has no queue of its own, the bytes are copied
/// once more and a [completion](crate::Completion) is allocated.
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use farside_fabric::sim::{SimFabric, SimOptions};
/// # use farside_fabric::{ProcessId, RemoteKey};
/// use farside_fabric::transmit::{Queue, QueueOptions, Span};
///
/// # let fabric = SimFabric::new(2, 4096, 7, SimOptions::default())?;
/// # let [here, there] = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
/// # let deadline = Instant::now() + Duration::from_secs(10);
/// let region = here.attach(RemoteKey::starter(there.process(), 4096), deadline)?;
/// let memory = here.register(4096)?;
/// let queue = Queue::open(&here, there.process(), QueueOptions::default())?;
/// for offset in [0, 8, 16] {
///     queue.put(Span::new(&memory, offset, 8)?, &region, offset, None)?;
/// }
/// queue.put(Span::new(&memory, 24, 8)?, &region, 24, Some(1))?;
/// queue.wait(1, deadline)?;
/// // All four are over.
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
#[derive(Debug)]
pub struct Queue {
    transport: Arc<dyn Transport>,
    peer: ProcessId,
    limits: QueueLimits,
    frontier: Arc<Frontier>,
    own: Box<dyn TransferQueue>,
    /// Something was posted. Written and read by those who post, who agree on their order by themselves.
    has_posted: AtomicBool,
}

impl Queue {
    /// Opens a queue to a peer: the transport's own, or one that is made of what it can [post](Transport::post).
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`], or what the transport has against it.
    pub fn open(transport: &Arc<dyn Transport>, peer: ProcessId, options: QueueOptions) -> Result<Self, FabricError> {
        let count = transport.process_count();
        if peer.number() >= count {
            return Err(FabricError::NoSuchProcess { process: peer, count });
        }
        let own = match transport.open_queue(peer, options)? {
            Some(own) => own,
            None => Box::new(PostedQueue::new(Box::new(transport.clone()), peer, options)),
        };
        let (limits, frontier, has_posted) = (own.limits(), own.frontier().clone(), AtomicBool::new(false));
        Ok(Self { transport: transport.clone(), peer, limits, frontier, own, has_posted })
    }

    /// To whom it goes.
    #[inline]
    pub fn peer(&self) -> ProcessId {
        self.peer
    }

    /// What it takes.
    #[inline]
    pub fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// How far it has come.
    #[inline]
    pub fn frontier(&self) -> &Arc<Frontier> {
        &self.frontier
    }

    /// The transport that it is a queue of.
    #[inline]
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// Writes a span to the peer's region, from `offset` on; signalled, if it has a number, which is what
    /// [`completed`](Self::completed) becomes when it is over. Numbers should grow.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`]; [`FabricError::MessageTooLong`] when it is longer than [`QueueLimits::bytes_max`];
    /// [`FabricError::QueueFull`] and [`FabricError::QueueOverrun`]; [`FabricError::StaleKey`]; why the queue has failed.
    ///
    /// # Panics
    /// When the region is not the peer's.
    #[inline]
    #[track_caller]
    pub fn put(&self, from: Span<'_>, to: &RemoteRegion, offset: u64, signal: Option<u64>) -> Result<(), FabricError> {
        self.transfer(TransferKind::Put, from, to, offset, signal)
    }

    /// Reads the peer's region from `offset` on into a span. Otherwise as [`put`](Self::put).
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    ///
    /// # Panics
    /// When the region is not the peer's.
    #[inline]
    #[track_caller]
    pub fn get(
        &self,
        into: Span<'_>,
        from: &RemoteRegion,
        offset: u64,
        signal: Option<u64>,
    ) -> Result<(), FabricError> {
        self.transfer(TransferKind::Get, into, from, offset, signal)
    }

    #[inline]
    #[track_caller]
    pub(super) fn transfer(
        &self,
        kind: TransferKind,
        local: Span<'_>,
        remote: &RemoteRegion,
        remote_offset: u64,
        signal: Option<u64>,
    ) -> Result<(), FabricError> {
        let key = remote.key();
        assert_eq!(key.process, self.peer, "a queue goes to one peer");
        key.check(remote_offset, local.bytes)?;
        if copy_mapped(kind, &local, remote, remote_offset) {
            match signal {
                // A process may reach its own memory either way. Then what was posted comes first.
                Some(number) if self.has_posted.load(Ordering::Relaxed) => return self.own.signal(number),
                Some(number) => self.frontier.raise(number),
                None => {}
            }
            return Ok(());
        }
        if local.bytes > self.limits.bytes_max {
            return Err(FabricError::MessageTooLong { bytes: local.bytes, max: self.limits.bytes_max });
        }
        if !self.has_posted.load(Ordering::Relaxed) {
            self.has_posted.store(true, Ordering::Relaxed);
        }
        self.own.post(&Transfer { kind, local, remote: key, remote_offset }, signal)
    }

    /// Posts a signalled operation that moves nothing: when it is over, so is all before.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`]; why the queue has failed.
    pub fn signal(&self, number: u64) -> Result<(), FabricError> {
        self.own.signal(number)
    }

    /// Makes progress, and returns the largest number of a signalled operation that is over.
    ///
    /// # Errors
    /// Why the queue has failed.
    pub fn poll(&self) -> Result<u64, FabricError> {
        self.own.progress()?;
        Ok(self.frontier.completed())
    }

    /// The largest number of a signalled operation that is over, without looking for more; [`u64::MAX`] when the queue has failed and
    /// all memory is released. One load.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.frontier.completed()
    }

    /// Waits until the signalled operation of this number is over.
    ///
    /// # Errors
    /// [`FabricError::Deadline`]; why the queue has failed.
    pub fn wait(&self, number: u64, deadline: Instant) -> Result<(), FabricError> {
        let mut looks = Looks::new(&self.transport);
        loop {
            // The frontier of a queue that has failed passes everything when it is released.
            if self.frontier.has_passed(number) && !self.frontier.has_failed() {
                return Ok(());
            }
            let before = self.frontier.completed();
            self.own.progress()?;
            if self.frontier.completed() == before {
                looks.pause_until(deadline, "waiting for a signalled operation", self.peer)?;
            }
        }
    }

    /// How many operations of a queue that has failed the transport has not let go of. Their local memory is not to be used again.
    pub fn quarantined(&self) -> usize {
        self.own.quarantined()
    }
}

/// Copies between a span and a peer's region that is mapped here. Says whether it is.
#[inline]
pub(super) fn copy_mapped(kind: TransferKind, local: &Span<'_>, remote: &RemoteRegion, remote_offset: u64) -> bool {
    let Some(memory) = remote.mapped() else { return false };
    let there = memory.base().as_ptr().wrapping_add(remote_offset as usize);
    let (from, to) = match kind {
        TransferKind::Put => (local.start(), there),
        TransferKind::Get => (there, local.start()),
    };
    // SAFETY: the caller has checked that the range there lies inside the region, and a span lies inside its own; both mappings are
    // kept by what was borrowed.
    unsafe { racy::copy_between(from, to, local.bytes) };
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sim::{SimFabric, SimOptions};

    #[test]
    fn a_signal_on_a_copy_tells_of_what_was_posted_before() {
        let fabric = SimFabric::new(1, 4096, 3, SimOptions::default()).unwrap();
        let end = fabric.endpoint(ProcessId::new(0));
        let deadline = Instant::now() + Duration::from_secs(30);
        let memory = end.register(64).unwrap();
        let posted = end.attach(RemoteKey::starter(end.process(), 4096), deadline).unwrap();
        let copied = end.starter().as_remote();
        assert!(posted.mapped().is_none() && copied.mapped().is_some());
        let queue = Queue::open(&end, end.process(), QueueOptions::default()).unwrap();
        let span = || Span::new(&memory, 0, 8).unwrap();
        queue.put(span(), &copied, 0, Some(1)).unwrap();
        assert_eq!(queue.completed(), 1, "a copy is over when it returns");
        queue.get(span(), &posted, 0, None).unwrap();
        queue.put(span(), &copied, 0, Some(2)).unwrap();
        assert_eq!(queue.completed(), 1, "the get is under way");
        queue.wait(2, deadline).unwrap();
    }
}
