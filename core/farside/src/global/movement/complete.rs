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
use crate::global::room::GlobalRoom;
use crate::global::{AddressFault, GlobalError};
use crate::runtime::worker::Worker;

/// The activity that errors name while a worker waits for operations.
const COMPLETING: &str = "waiting for operations on memory to end";

impl Worker {
    #[inline]
    #[track_caller]
    pub(crate) fn complete(&self, handle: Handle) -> Result<()> {
        self.complete_within(handle, self.default_deadline())
    }

    #[inline]
    #[track_caller]
    pub(crate) fn complete_within(&self, handle: Handle, time: Duration) -> Result<()> {
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

    pub(crate) fn inquire(&self, handle: Handle) -> Result<bool> {
        let number = self.check_handle(handle)?;
        Ok(self.none_is_open() || self.look_at(|orders| !orders.are_under_way(number)))
    }

    #[track_caller]
    pub(crate) fn complete_any(&self, handles: &[Handle], time: Duration) -> Result<usize> {
        let some = self.complete_some(handles, time)?;
        some.first().copied().ok_or(Error::deadline(COMPLETING, time))
    }

    #[track_caller]
    pub(crate) fn complete_some(&self, handles: &[Handle], time: Duration) -> Result<Vec<usize>> {
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

    #[track_caller]
    pub(crate) fn complete_all(&self, handles: &[Handle], time: Duration) -> Result<()> {
        let numbers = handles.iter().map(|handle| self.check_handle(*handle)).collect::<Result<Vec<_>>>()?;
        self.wait_until(COMPLETING, time, |worker| {
            let ended = worker.look_at(|orders| numbers.iter().all(|number| !orders.is_under_way(*number)));
            ended.then_some(Ok(()))
        })?;
        self.tell_failure(|entry| numbers.contains(&entry), None)
    }

    #[track_caller]
    pub(crate) fn flush_peer(&self, peer: ProcessId) -> Result<()> {
        if self.none_is_open() {
            return Ok(());
        }
        let look = |worker: &Self| worker.look_at(|orders| !orders.are_under_way_to(peer)).then_some(Ok(()));
        self.wait_until(COMPLETING, self.default_deadline(), look)?;
        self.tell_failure(|_| true, Some(peer))
    }

    #[track_caller]
    pub(crate) fn flush_all(&self) -> Result<()> {
        if self.none_is_open() { Ok(()) } else { self.complete_slowly(u64::MAX, self.default_deadline()) }
    }

    pub(crate) fn fence_peer(&self, peer: ProcessId) {
        self.fence(Some(peer));
    }

    pub(crate) fn fence_all(&self) {
        self.fence(None);
    }

    fn fence(&self, peer: Option<ProcessId>) {
        if self.none_is_open() {
            return;
        }
        let mut inner = GlobalRoom::of(self.process_handle()).movement.lock();
        inner.threads[self.thread_index()].orders.fence(peer, self.started_operations().last());
        self.started_operations().set_fenced(true);
    }

    pub(crate) fn completion(&self, handle: Handle) -> Completing<'_> {
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
        GlobalRoom::of(self.process_handle()).movement.open(self.thread_index()) == 0
    }

    fn look_at<T>(&self, look: impl FnOnce(&Orders<Work>) -> T) -> T {
        look(&GlobalRoom::of(self.process_handle()).movement.lock().threads[self.thread_index()].orders)
    }

    /// Reports the first failure among those that are wanted, once.
    fn tell_failure(&self, wanted: impl Fn(u64) -> bool, peer: Option<ProcessId>) -> Result<()> {
        let process = self.process_handle();
        let mut inner = GlobalRoom::of(process).movement.lock();
        let thread = &mut inner.threads[self.thread_index()];
        let is_wanted =
            |number, touched: super::orders::Touched| wanted(number) && (peer.is_none() || touched.contains(&peer));
        let Some((number, failure)) = thread.orders.take_failure(|entry| is_wanted(entry.number, entry.touched)) else {
            return Ok(());
        };
        let note = thread.notes.remove(&number);
        GlobalRoom::of(process).movement.note_counts(&inner);
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
            Failure::Lost { process: lost } => process.losses.gone(lost),
            Failure::Deadline => Error::deadline("moving bytes of memory that is not mapped", self.default_deadline()),
            Failure::Full { process } => MovementError::Full { process, max: COMMANDS_MAX }.into(),
            Failure::Other { what } => MovementError::Fabric { what }.into(),
        };
        Err(MovementError::Failed { handle, cause: Box::new(cause) }.into())
    }
}

/// The end of an operation: [`Worker::completion`](crate::MoveMemory::completion).
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
        let mut inner = GlobalRoom::of(worker.process_handle()).movement.lock();
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
