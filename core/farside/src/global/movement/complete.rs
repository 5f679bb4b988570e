//! Waiting for operations.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use farside_fabric::ProcessId;

use super::error::{Failure, MovementError};
use super::handle::Handle;
use super::orders::Orders;
use super::table::COMMANDS_MAX;
use super::work::Work;
use crate::error::{Error, Result};
use crate::global::{AddressFault, GlobalError};
use crate::runtime::worker::Worker;

/// What a worker that waits for operations is doing, for errors.
const COMPLETING: &str = "waiting for operations on memory to end";

impl Worker {
    /// Waits until an operation, and all that this worker started before it, have ended. Waits at
    /// most for the job's deadline.
    ///
    /// *Cost*: nothing if no operation is open.
    ///
    /// ACP's `acp_complete`.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Failed` or
    /// `NotStarted`, for the first of them that has failed and was not reported before; the next
    /// call reports the next one. [`GlobalError::Movement`](crate::global::GlobalError::Movement)
    /// with `Foreign` or `NeverStarted`. [`Error::Deadline`], after which the operations continue.
    /// [`Error::InHandler`].
    #[inline]
    #[track_caller]
    pub fn complete(&self, handle: Handle) -> Result<()> {
        self.complete_within(handle, self.default_deadline())
    }

    /// As [`complete`](Self::complete), for at most `time`.
    ///
    /// # Errors
    /// Those of [`complete`](Self::complete).
    #[inline]
    #[track_caller]
    pub fn complete_within(&self, handle: Handle, time: Duration) -> Result<()> {
        let number = self.check_handle(handle)?;
        if self.none_is_open() { Ok(()) } else { self.complete_slowly(number, time) }
    }

    #[cold]
    #[track_caller]
    fn complete_slowly(&self, number: u64, time: Duration) -> Result<()> {
        self.wait_until(COMPLETING, time, |worker| {
            worker.look_at(|orders| !orders.are_under_way(number)).then_some(Ok(()))
        })?;
        self.tell_failure(|entry| entry <= number, None)
    }

    /// Returns whether an operation, and all before it, have ended. If so,
    /// [`complete`](Self::complete) does not wait, and reports whether one has failed.
    ///
    /// It makes no [progress](Self::progress): a worker that only polls must make progress in
    /// between.
    ///
    /// ACP's `acp_inquire`, which has two meanings; `true` is what its manual says for 0.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Foreign` or
    /// `NeverStarted`.
    pub fn inquire(&self, handle: Handle) -> Result<bool> {
        let number = self.check_handle(handle)?;
        Ok(self.none_is_open() || self.look_at(|orders| !orders.are_under_way(number)))
    }

    /// Waits until one of some operations has ended, whether or not those before it have, and
    /// returns the index of its handle. Waits for at most `time`.
    ///
    /// A failed operation has ended. Its failure is reported when it is
    /// [completed](Self::complete).
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Foreign` or
    /// `NeverStarted`; [`Error::Deadline`], at once if there are no handles; [`Error::InHandler`].
    #[track_caller]
    pub fn complete_any(&self, handles: &[Handle], time: Duration) -> Result<usize> {
        let some = self.complete_some(handles, time)?;
        some.first().copied().ok_or(Error::deadline(COMPLETING, time))
    }

    /// Waits until at least one of some operations has ended, and returns the indices of the
    /// handles of all that have. Waits for at most `time`.
    ///
    /// # Errors
    /// Those of [`complete_any`](Self::complete_any). Without handles, it returns an empty list at
    /// once.
    #[track_caller]
    pub fn complete_some(&self, handles: &[Handle], time: Duration) -> Result<Vec<usize>> {
        let numbers = handles.iter().map(|handle| self.check_handle(*handle)).collect::<Result<Vec<_>>>()?;
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        self.wait_until(COMPLETING, time, |worker| {
            let ended = worker.look_at(|orders| {
                let ended = |(_, number): &(usize, &u64)| !orders.is_under_way(**number);
                numbers.iter().enumerate().filter(ended).map(|(at, _)| at).collect::<Vec<_>>()
            });
            (!ended.is_empty()).then_some(Ok(ended))
        })
    }

    /// Waits until all of some operations have ended, whether or not those between them have. Waits
    /// for at most `time`.
    ///
    /// # Errors
    /// As [`complete`](Self::complete), for these operations alone.
    #[track_caller]
    pub fn complete_all(&self, handles: &[Handle], time: Duration) -> Result<()> {
        let numbers = handles.iter().map(|handle| self.check_handle(*handle)).collect::<Result<Vec<_>>>()?;
        self.wait_until(COMPLETING, time, |worker| {
            let ended = worker.look_at(|orders| numbers.iter().all(|number| !orders.is_under_way(*number)));
            ended.then_some(Ok(()))
        })?;
        self.tell_failure(|entry| numbers.contains(&entry), None)
    }

    /// Waits until all operations of this worker that access memory of a process have ended. Waits
    /// at most for the job's deadline.
    ///
    /// OpenSHMEM's `quiet`, for one process.
    ///
    /// # Errors
    /// As [`complete`](Self::complete), for these operations alone.
    #[track_caller]
    pub fn flush_peer(&self, peer: ProcessId) -> Result<()> {
        if self.none_is_open() {
            return Ok(());
        }
        let look = |worker: &Self| worker.look_at(|orders| !orders.are_under_way_to(peer)).then_some(Ok(()));
        self.wait_until(COMPLETING, self.default_deadline(), look)?;
        self.tell_failure(|_| true, Some(peer))
    }

    /// Waits until all operations of this worker have ended. Waits at most for the job's deadline.
    ///
    /// OpenSHMEM's `quiet`, UPC's `upc_fence`.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    #[track_caller]
    pub fn flush_all(&self) -> Result<()> {
        if self.none_is_open() { Ok(()) } else { self.complete_slowly(u64::MAX, self.default_deadline()) }
    }

    /// Orders operations on the memory of a process: those that this worker starts from now on
    /// start after those that it has started before. Does not wait.
    ///
    /// It applies to operations that are *started*, of any order. An access that returns its result
    /// ([`GlobalPtr::put`](crate::GlobalPtr::put) and the like) is made at once: call
    /// [`flush_peer`](Self::flush_peer) before it.
    ///
    /// OpenSHMEM's `fence`.
    pub fn fence_peer(&self, peer: ProcessId) {
        self.fence(Some(peer));
    }

    /// As [`fence_peer`](Self::fence_peer), for every process by itself.
    pub fn fence_all(&self) {
        self.fence(None);
    }

    fn fence(&self, peer: Option<ProcessId>) {
        if self.none_is_open() {
            return;
        }
        let mut inner = self.process_handle().movement().lock();
        inner.threads[self.thread_index()].orders.fence(peer, self.started_operations().last());
        self.started_operations().set_fenced(true);
    }

    /// Returns a future of the end of an operation and of all before it.
    ///
    /// The future completes when threads of this process make progress, as
    /// [`block_on`](Self::block_on) does.
    pub fn completion(&self, handle: Handle) -> Completing<'_> {
        Completing { worker: self, handle }
    }

    /// Waits until this operation itself has ended.
    #[track_caller]
    pub(super) fn wait_for_end(&self, handle: Handle) -> Result<()> {
        let number = self.check_handle(handle)?;
        if self.none_is_open() {
            return Ok(());
        }
        let look = |worker: &Self| worker.look_at(|orders| !orders.is_under_way(number)).then_some(Ok(()));
        self.wait_until(COMPLETING, self.default_deadline(), look)?;
        self.tell_failure(|entry| entry == number, None)
    }

    /// Returns whether all operations of this worker are over, after its body. Returns an error for
    /// one that has failed and was not reported.
    pub(crate) fn movement_is_over(&self) -> Result<bool> {
        if self.none_is_open() {
            return Ok(true);
        }
        if self.look_at(|orders| orders.are_under_way(u64::MAX)) {
            return Ok(false);
        }
        self.tell_failure(|_| true, None).map(|()| true)
    }

    #[inline]
    fn none_is_open(&self) -> bool {
        self.process_handle().movement().open(self.thread_index()) == 0
    }

    fn look_at<T>(&self, look: impl FnOnce(&Orders<Work>) -> T) -> T {
        look(&self.process_handle().movement().lock().threads[self.thread_index()].orders)
    }

    /// Reports the first failure among those that are wanted, once.
    fn tell_failure(&self, wanted: impl Fn(u64) -> bool, peer: Option<ProcessId>) -> Result<()> {
        let process = self.process_handle();
        let mut inner = process.movement().lock();
        let thread = &mut inner.threads[self.thread_index()];
        let is_wanted =
            |number, touched: super::orders::Touched| wanted(number) && (peer.is_none() || touched.contains(&peer));
        let Some((number, failure)) = thread.orders.take_failure(|entry| is_wanted(entry.number, entry.touched)) else {
            return Ok(());
        };
        let note = thread.notes.remove(&number);
        process.movement().note_counts(&inner);
        drop(inner);
        let handle = self.handle(number);
        let address_of = |is_target: bool| {
            note.as_ref().map(|note| if is_target { note.target } else { note.source }).unwrap_or_default()
        };
        let fault_at = |address, why| Error::from(GlobalError::Address { address, why });
        let cause = match failure {
            Failure::Earlier { number } => {
                return Err(MovementError::NotStarted { handle, earlier: self.handle(number) }.into());
            }
            Failure::Stale { is_target } => {
                self.forget_segment(address_of(is_target).segment());
                fault_at(address_of(is_target), AddressFault::Stale)
            }
            Failure::ReadOnly { is_target } => fault_at(address_of(is_target), AddressFault::ReadOnly),
            Failure::Misaligned { is_target, align } => {
                fault_at(address_of(is_target), AddressFault::Misaligned { align: align as usize })
            }
            Failure::Lost { process: lost } => process.gone(lost),
            Failure::Deadline => Error::deadline("moving bytes of memory that is not mapped", self.default_deadline()),
            Failure::Full { process } => MovementError::Full { process, max: COMMANDS_MAX }.into(),
            Failure::Other { what } => MovementError::Fabric { what }.into(),
        };
        Err(MovementError::Failed { handle, cause: Box::new(cause) }.into())
    }
}

/// The end of an operation: [`Worker::completion`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Completing<'w> {
    worker: &'w Worker,
    handle: Handle,
}

impl Future for Completing<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let worker = self.worker;
        let number = match worker.check_handle(self.handle) {
            Ok(number) => number,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let mut inner = worker.process_handle().movement().lock();
        let thread = &mut inner.threads[worker.thread_index()];
        if thread.orders.are_under_way(number) {
            if !thread.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                thread.wakers.push(context.waker().clone());
            }
            return Poll::Pending;
        }
        drop(inner);
        Poll::Ready(worker.tell_failure(|entry| entry <= number, None))
    }
}
