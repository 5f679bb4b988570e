//! A queue shared by many threads, which signals as often as necessary.

use std::sync::Arc;
use std::time::Instant;

use super::looks::Looks;
use super::queue::{Queue, copy_mapped};
use super::signals::{Signals, Step, Ticket};
use farside_fabric::ids::ProcessId;
use farside_fabric::queue::{QueueOptions, Span, TransferKind};
use farside_fabric::region::RemoteRegion;
use farside_fabric::transport::{FabricError, Transport};

/// A queue to one peer, for any number of threads. It decides itself which operations are
/// signalled. It tags memory with the point that it must pass before the memory is free (Seriema,
/// Section 4.1).
///
/// Clones are the same transmitter.
///
/// *Completion*: an operation is over when the transmitter [has passed](Self::has_passed) its tag.
/// Completions are reported in bulk, once per [window](Self::window), so the last operations are
/// reported only after a [`flush`](Self::flush).
///
/// *Cost*: that of the [`Queue`], and two atomic additions. Where the peer's memory is mapped, only
/// the copy.
///
/// # Deadlines
///
/// An operation waits in two cases. If two windows are in flight, it waits for a signal that is in
/// flight, not for another thread. It also waits if more threads post at a time than a sixteenth of
/// the queue's depth. An operation whose deadline passes was not posted. When the peer is lost,
/// every wait ends with [`FabricError::Disconnected`].
#[derive(Clone, Debug)]
pub struct Transmitter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    signals: Signals,
}

impl Transmitter {
    /// Opens a transmitter to a peer.
    ///
    /// # Errors
    /// [`FabricError::NoSuchProcess`], [`FabricError::Disconnected`], or the transport's own
    /// reason.
    pub fn open(transport: &Arc<dyn Transport>, peer: ProcessId, options: QueueOptions) -> Result<Self, FabricError> {
        Ok(Self::over(Queue::open(transport, peer, options)?))
    }

    /// Makes a transmitter of a queue to which nothing has been posted.
    pub fn over(queue: Queue) -> Self {
        let signals = Signals::new(queue.limits());
        Self { shared: Arc::new(Shared { queue, signals }) }
    }

    /// The peer of the transmitter.
    #[inline]
    pub fn peer(&self) -> ProcessId {
        self.shared.queue.peer()
    }

    /// Number of operations per signal. Memory for three windows keeps a single thread from
    /// waiting.
    pub fn window(&self) -> usize {
        self.shared.signals.window() as usize
    }

    /// Writes a span to the peer's region, from `offset` on, and returns the tag of the span. The
    /// span may be of any length. It must not be written before the tag is
    /// [passed](Self::has_passed).
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::StaleKey`]; [`FabricError::Deadline`], and then
    /// it was not posted, or not as a whole; the error of a failed queue.
    ///
    /// # Panics
    /// If the region is not the peer's.
    #[inline]
    #[track_caller]
    pub fn put(&self, from: Span<'_>, to: &RemoteRegion, offset: u64, deadline: Instant) -> Result<u64, FabricError> {
        self.transfer(TransferKind::Put, from, to, offset, deadline)
    }

    /// Reads the peer's region from `offset` on into a span, and returns the tag of the span.
    /// Otherwise like [`put`](Self::put).
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::StaleKey`]; [`FabricError::Deadline`], and then
    /// it was not posted, or not as a whole; the error of a failed queue.
    ///
    /// # Panics
    /// If the region is not the peer's.
    #[inline]
    #[track_caller]
    pub fn get(&self, into: Span<'_>, from: &RemoteRegion, offset: u64, deadline: Instant) -> Result<u64, FabricError> {
        self.transfer(TransferKind::Get, into, from, offset, deadline)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn transfer(
        &self,
        kind: TransferKind,
        local: Span<'_>,
        remote: &RemoteRegion,
        offset: u64,
        deadline: Instant,
    ) -> Result<u64, FabricError> {
        assert_eq!(remote.key().process, self.peer(), "a transmitter goes to one peer");
        remote.key().check(offset, local.bytes())?;
        if copy_mapped(kind, &local, remote, offset) {
            return Ok(0);
        }
        let queue = &self.shared.queue;
        let mut tag = 0;
        for (at, piece) in local.pieces(queue.limits().bytes_max) {
            tag = self.post(deadline, |signal| queue.transfer(kind, piece, remote, offset + at as u64, signal))?;
        }
        Ok(tag)
    }

    /// Posts one operation, with a signal if one is due, and returns its tag.
    #[inline]
    fn post(
        &self,
        deadline: Instant,
        post: impl Fn(Option<u64>) -> Result<(), FabricError>,
    ) -> Result<u64, FabricError> {
        let Shared { queue, signals } = &*self.shared;
        let ticket = match signals.enter() {
            Ok(ticket) => ticket,
            Err(_) => self.enter_late(deadline)?,
        };
        if let Step::Post { signalled } = signals.step(&ticket, queue.frontier())
            && post(signalled.then_some(ticket.number())).is_ok()
        {
            return Ok(signals.posted(ticket, signalled));
        }
        self.post_late(ticket, deadline, post)
    }

    /// Posts an operation that must wait, or was refused.
    #[cold]
    fn post_late(
        &self,
        ticket: Ticket,
        deadline: Instant,
        post: impl Fn(Option<u64>) -> Result<(), FabricError>,
    ) -> Result<u64, FabricError> {
        let Shared { queue, signals } = &*self.shared;
        let mut looks = Looks::new(queue.transport());
        loop {
            let refusal = match signals.step(&ticket, queue.frontier()) {
                Step::Post { signalled } => match post(signalled.then_some(ticket.number())) {
                    Ok(()) => return Ok(signals.posted(ticket, signalled)),
                    Err(FabricError::QueueFull { .. }) => Ok(()),
                    Err(error) => Err(error),
                },
                Step::Wait => Ok(()),
            };
            let before = queue.completed();
            let waited = refusal.and_then(|()| queue.poll()).and_then(|completed| {
                let doing = "waiting for room for an operation";
                if completed > before {
                    // Other threads may take the room each time.
                    return looks.go_on_until(deadline, doing, self.peer());
                }
                looks.pause_until(deadline, doing, self.peer())
            });
            if let Err(error) = waited {
                signals.given_up(ticket);
                return Err(error);
            }
        }
    }

    /// Enters when other threads have left.
    #[cold]
    fn enter_late(&self, deadline: Instant) -> Result<Ticket, FabricError> {
        let Shared { queue, signals } = &*self.shared;
        let mut looks = Looks::new(queue.transport());
        loop {
            if let Ok(ticket) = signals.enter() {
                return Ok(ticket);
            }
            queue.poll()?;
            looks.pause_until(deadline, "waiting for other threads to post", self.peer())?;
        }
    }

    /// Returns whether operations with this tag are over, or released if the transmitter [has
    /// failed](Self::has_failed). One load.
    #[inline]
    pub fn has_passed(&self, tag: u64) -> bool {
        self.shared.queue.frontier().has_passed(tag)
    }

    /// Returns whether the transmitter has failed, so that operations in flight will never be over
    /// in the ordinary way.
    pub fn has_failed(&self) -> bool {
        self.shared.queue.frontier().has_failed()
    }

    /// Number of bytes of one operation at most. A longer transfer takes several.
    #[inline]
    pub(crate) fn bytes_max(&self) -> usize {
        self.shared.queue.limits().bytes_max
    }

    /// Returns whether the two are the same transmitter.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Waits until operations with this tag are over. Posts a signal if no other one covers them.
    ///
    /// # Errors
    /// [`FabricError::Deadline`]; the error of a failed queue.
    pub fn wait(&self, tag: u64, deadline: Instant) -> Result<(), FabricError> {
        if self.has_passed(tag) && !self.has_failed() {
            return Ok(());
        }
        let Shared { queue, signals } = &*self.shared;
        if !signals.is_signalled(tag) {
            self.signal(tag, deadline)?;
        }
        queue.wait(tag, deadline)
    }

    /// Waits until all operations posted so far, by any thread, are over.
    ///
    /// # Errors
    /// [`FabricError::Deadline`]; the error of a failed queue.
    pub fn flush(&self, deadline: Instant) -> Result<(), FabricError> {
        self.wait(self.tag_now(), deadline)
    }

    /// Posts a signal that moves no data, unless another one will pass the tag. Only one is in
    /// flight at a time, so that a thread that flushes repeatedly, without time to wait, does not
    /// fill the queue.
    fn signal(&self, tag: u64, deadline: Instant) -> Result<(), FabricError> {
        let Shared { queue, signals } = &*self.shared;
        let ticket = match signals.enter() {
            Ok(ticket) => ticket,
            Err(_) => self.enter_late(deadline)?,
        };
        let mut looks = Looks::new(queue.transport());
        loop {
            if signals.is_signalled(tag) {
                signals.given_up(ticket);
                return Ok(());
            }
            let refusal = if signals.may_flush(queue.frontier()) {
                match queue.signal(ticket.number()) {
                    Ok(()) => {
                        signals.flushed(ticket);
                        return Ok(());
                    }
                    Err(FabricError::QueueFull { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            } else {
                Ok(())
            };
            let waited = refusal
                .and_then(|()| queue.poll())
                .and_then(|_| looks.pause_until(deadline, "waiting for room for a signal", self.peer()));
            if let Err(error) = waited {
                signals.given_up(ticket);
                return Err(error);
            }
        }
    }

    /// A tag that is passed when all operations posted so far, by any thread, are over.
    pub fn tag_now(&self) -> u64 {
        self.shared.signals.tag_now()
    }

    /// Makes progress.
    ///
    /// # Errors
    /// The error of a failed queue.
    pub fn progress(&self) -> Result<(), FabricError> {
        self.shared.queue.poll().map(drop)
    }

    /// Number of operations of a failed transmitter that the transport has not released.
    pub fn quarantined(&self) -> usize {
        self.shared.queue.quarantined()
    }
}
