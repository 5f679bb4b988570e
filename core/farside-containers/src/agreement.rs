//! [`ContainerError`], how all workers learn that one of them failed, and what handles without a
//! value name.

use std::cell::RefCell;
use std::rc::Rc;

use farside::{Error, Losses, PerWorker, Result, Wire, Worker, WorkerId};

/// Why an operation of a container failed.
///
/// It arrives as [`Error::Room`]; [`Error::room_error`] returns it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// One worker could not do its share, so the operation failed on all of them.
    #[error("the operation failed on all workers because of {at}: {why}; mend that, and call it again")]
    Failed {
        /// The first worker that failed.
        at: WorkerId,
        /// Its reason.
        why: String,
    },
    /// The container was freed, or its handle is of another job or used on a thread of a pool.
    #[error(
        "this thread has no such container: it was freed, or the handle is of another job; use a handle on the workers of its job, until `free`"
    )]
    Gone,
    /// Old values did not arrive.
    #[error("{missing} of {count} old values did not arrive: their owners failed; look for the errors there")]
    Unanswered {
        /// The number of values that are missing.
        missing: usize,
        /// The number of values.
        count: usize,
    },
}

impl From<ContainerError> for Error {
    fn from(error: ContainerError) -> Self {
        Self::Room(Box::new(error))
    }
}

/// Returns the value of this worker, or `gone()` if it has none: after the values were freed, and
/// for a handle of another job.
#[inline]
pub(crate) fn held<T: 'static>(handle: PerWorker<T>, me: &Worker, gone: impl FnOnce() -> T) -> Rc<T> {
    handle.hold(me).unwrap_or_else(
        #[cold]
        || Rc::new(gone()),
    )
}

/// Runs `work` with the value of this worker, or with `gone()` if it has none, as [`held`] does.
#[track_caller]
#[inline]
pub(crate) fn with_held<T: 'static, R>(
    handle: PerWorker<RefCell<T>>,
    me: &Worker,
    gone: impl FnOnce() -> T,
    work: impl FnOnce(&mut T) -> R,
) -> R {
    if handle.is_here(me) { handle.with(me, work) } else { work(&mut gone()) }
}

/// Returns the first worker that takes part in collectives. It does what one of them does for all.
pub(crate) fn first(me: &Worker) -> WorkerId {
    me.remaining_workers()[0]
}

pub(crate) fn is_first(me: &Worker) -> bool {
    first(me) == me.id()
}

/// Returns this worker's place among those that take part in collectives, and their number.
pub(crate) fn place(me: &Worker) -> (usize, usize) {
    let workers = me.remaining_workers();
    let place = workers.iter().position(|worker| *worker == me.id());
    (place.unwrap_or_default(), workers.len())
}

/// Returns whether an error is the loss of a process that the workers go on without. Others may not
/// meet it, so a collective must not return it on this worker alone.
pub(crate) fn is_left_behind(me: &Worker, error: &Error) -> bool {
    let Error::PeerLost { process, .. } = error else { return false };
    me.remaining_workers().iter().all(|worker| me.process_of(*worker) != *process)
}

/// Returns the values of all workers, in the order of their numbers. A collective.
pub(crate) fn exchange<T: Wire + Clone>(me: &Worker, value: T) -> Result<Vec<T>> {
    let values = me.gather(first(me), value)?;
    me.broadcast(first(me), values)
}

/// Returns the first worker whose value differs from that of the first one, if there is one. A
/// collective.
pub(crate) fn find_unequal<T: Wire + Clone + PartialEq>(me: &Worker, value: T) -> Result<Option<WorkerId>> {
    let all = exchange(me, value)?;
    Ok(all.iter().position(|other| *other != all[0]).map(|place| me.remaining_workers()[place]))
}

/// Fails on all workers if one of them has an error. A collective.
pub(crate) fn agree(me: &Worker, own: Result<()>) -> Result<()> {
    let told = fail_together(me, own.as_ref().err().map(ToString::to_string));
    // A loss that only this worker met looks like a new one, of which all workers learn.
    if own.as_ref().is_err_and(|error| is_left_behind(me, error)) { told } else { own.and(told) }
}

/// Fails on all workers if one of them has a reason. A collective.
pub(crate) fn fail_together(me: &Worker, why: Option<String>) -> Result<()> {
    let failed = me.all_reduce(why.map(|why| (me.id(), why)), Option::or)?;
    failed.map_or(Ok(()), |(at, why)| Err(ContainerError::Failed { at, why }.into()))
}
