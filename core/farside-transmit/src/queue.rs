//! A raw endpoint to one peer, whose operations are signalled manually.
//!
//! Any number of threads may post. A post may take a lock, but does not wait for room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use farside_fabric::queue::{Frontier, QueueLimits, QueueOptions, Span, Transfer, TransferKind, TransferQueue};
use farside_fabric::{FabricError, ProcessId, RemoteRegion, Transport};
use farside_sys::racy;

use super::looks::Looks;
use super::open::open_queue;

/// A raw endpoint to one peer: the program decides which operations are signalled.
///
/// [The contract](farside_fabric::queue) states its guarantees. Any number of threads may use it.
/// The order of operations of different threads is up to those threads.
///
/// *Cost* of an operation: where the peer's memory is mapped, a copy. Over libfabric a lock and
/// libfabric's own call, no allocation or lookup, and an answer only if it is signalled. On a
/// transport without queues, one more copy of the bytes and the allocation of a
/// [completion](farside_fabric::Completion).
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use farside_fabric::sim::{SimFabric, SimOptions};
/// # use farside_fabric::{ProcessId, RemoteKey};
/// use farside_transmit::{Queue, QueueOptions, Span};
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
    /// True if something was posted. Written and read by the posting threads, which coordinate
    /// their order themselves.
    has_posted: AtomicBool,
}

impl Queue {
    /// Opens a queue to a peer: the transport's own, or one made of operations that are
    /// [posted](farside_fabric::Carrier::post) one by one.
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`], or the transport's own
    /// reason.
    pub fn open(transport: &Arc<dyn Transport>, peer: ProcessId, options: QueueOptions) -> Result<Self, FabricError> {
        let count = transport.process_count();
        if peer.number() >= count {
            return Err(FabricError::NoSuchProcess { process: peer, count });
        }
        Ok(Self::over(transport, peer, open_queue(transport, peer, options)?))
    }

    /// Makes a queue over an implementation of one's own, which must go to `peer` and keep
    /// [the contract](farside_fabric::queue).
    pub fn over(transport: &Arc<dyn Transport>, peer: ProcessId, own: Box<dyn TransferQueue>) -> Self {
        let (limits, frontier, has_posted) = (own.limits(), own.frontier().clone(), AtomicBool::new(false));
        Self { transport: transport.clone(), peer, limits, frontier, own, has_posted }
    }

    /// The peer of the queue.
    #[inline]
    pub fn peer(&self) -> ProcessId {
        self.peer
    }

    /// The limits of the queue.
    #[inline]
    pub fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// The progress of the queue.
    #[inline]
    pub fn frontier(&self) -> &Arc<Frontier> {
        &self.frontier
    }

    /// The transport of the queue.
    #[inline]
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// Writes a span to the peer's region, from `offset` on. With a number the operation is
    /// signalled: [`completed`](Self::completed) becomes that number when it is over. Numbers
    /// should increase.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`]; [`FabricError::MessageTooLong`] if it is longer than
    /// [`QueueLimits::bytes_max`]; [`FabricError::QueueFull`] and [`FabricError::QueueOverrun`];
    /// [`FabricError::StaleKey`]; the error of a failed queue.
    ///
    /// # Panics
    /// If the region is not the peer's.
    #[inline]
    #[track_caller]
    pub fn put(&self, from: Span<'_>, to: &RemoteRegion, offset: u64, signal: Option<u64>) -> Result<(), FabricError> {
        self.transfer(TransferKind::Put, from, to, offset, signal)
    }

    /// Reads the peer's region from `offset` on into a span. Otherwise like [`put`](Self::put).
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`]; [`FabricError::MessageTooLong`] if it is longer than
    /// [`QueueLimits::bytes_max`]; [`FabricError::QueueFull`] and [`FabricError::QueueOverrun`];
    /// [`FabricError::StaleKey`]; the error of a failed queue.
    ///
    /// # Panics
    /// If the region is not the peer's.
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
        key.check(remote_offset, local.bytes())?;
        if copy_mapped(kind, &local, remote, remote_offset) {
            match signal {
                // A process may access its own memory in either way. Then operations that were
                // posted come first.
                Some(number) if self.has_posted.load(Ordering::Relaxed) => return self.own.signal(number),
                Some(number) => self.frontier.raise(number),
                None => {}
            }
            return Ok(());
        }
        if local.bytes() > self.limits.bytes_max {
            return Err(FabricError::MessageTooLong { bytes: local.bytes(), max: self.limits.bytes_max });
        }
        if !self.has_posted.load(Ordering::Relaxed) {
            self.has_posted.store(true, Ordering::Relaxed);
        }
        self.own.post(&Transfer { kind, local, remote: key, remote_offset }, signal)
    }

    /// Posts a signalled operation that moves no data: when it is over, so are all operations
    /// before it.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`]; the error of a failed queue.
    pub fn signal(&self, number: u64) -> Result<(), FabricError> {
        self.own.signal(number)
    }

    /// Makes progress, and returns the largest number of a signalled operation that is over.
    ///
    /// # Errors
    /// The error of a failed queue.
    pub fn poll(&self) -> Result<u64, FabricError> {
        self.own.progress()?;
        Ok(self.frontier.completed())
    }

    /// The largest number of a signalled operation that is over, without making progress.
    /// [`u64::MAX`] if the queue has failed and all memory is released. One load.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.frontier.completed()
    }

    /// Waits until the signalled operation of this number is over.
    ///
    /// # Errors
    /// [`FabricError::Deadline`]; the error of a failed queue.
    pub fn wait(&self, number: u64, deadline: Instant) -> Result<(), FabricError> {
        let mut looks = Looks::new(&self.transport);
        loop {
            // The frontier of a failed queue passes every number once it is released.
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

    /// Number of operations of a failed queue that the transport has not released. Their local
    /// memory must not be reused.
    pub fn quarantined(&self) -> usize {
        self.own.quarantined()
    }
}

/// Copies between a span and a peer's region that is mapped here. Returns whether it is mapped.
#[inline]
pub(super) fn copy_mapped(kind: TransferKind, local: &Span<'_>, remote: &RemoteRegion, remote_offset: u64) -> bool {
    let Some(memory) = remote.mapped() else { return false };
    let there = memory.base().as_ptr().wrapping_add(remote_offset as usize);
    let (from, to) = match kind {
        TransferKind::Put => (local.start(), there),
        TransferKind::Get => (there, local.start()),
    };
    // SAFETY: the caller has checked that the remote range lies inside the region, and a span lies
    // inside its own; the borrowed arguments keep both mappings.
    unsafe { racy::copy_between(from, to, local.bytes()) };
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use farside_fabric::RemoteKey;

    use super::*;
    use farside_fabric::sim::{SimFabric, SimOptions};

    #[test]
    fn a_signal_on_a_copy_tells_of_what_was_posted_before() {
        let fabric = SimFabric::new(1, 4096, 3, SimOptions::default()).unwrap();
        let end = fabric.endpoint(ProcessId::new(0));
        let deadline = farside_testbed::deadline();
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
