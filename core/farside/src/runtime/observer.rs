//! The seam between the rooms that access registered memory and an observer of their accesses.
//!
//! Rooms report each access, release and loss here, and never name an observer. A job that checks
//! its accesses installs one in each of its processes. Without an observer, a report costs one
//! branch that is never taken.
//!
//! An access belongs to an *epoch* of its thread. Before a thread tells another one anything, it
//! ends its epoch. A call carries what its sender knows ([`Known`]). All other ways of telling
//! carry nothing, so they end the accesses for every worker. An operation that runs concurrently
//! with its worker keeps its accesses open as an [`OpenOperation`].

use std::cell::RefCell;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farside_fabric::memory::Registered;
use farside_fabric::transport::AtomicChange;
use farside_fabric::{ProcessId, RemoteKey, WorkerId};

use super::extent::Extent;
use super::process::Process;
use super::worker::Worker;
use crate::Wire;
use crate::error::{Error, Result};

/// Observes the accesses to the registered memory of one process, and those that its workers make.
pub(crate) trait Observer: fmt::Debug + Send + Sync {
    /// Ends the accesses of one worker thread of the process, or of all its threads if `local` is
    /// `None`, because the thread is about to tell others in a way that carries nothing. If `to` is
    /// set, only that worker is notified.
    fn end_accesses(&self, local: Option<usize>, to: Option<WorkerId>);

    /// Ends the epoch of a thread, which is about to send a message to one worker. Returns what the
    /// message must carry.
    fn tell(&self, local: usize) -> Known;

    /// Takes in what a message to this thread has carried.
    fn hear(&self, local: usize, known: &Known);

    /// Returns the epoch of a thread.
    fn epoch(&self, local: usize) -> u64;

    /// Reports that all workers know of what this thread did in its past epochs up to this one.
    fn all_know(&self, local: usize, epoch: u64);

    /// Notes an access that `me` is about to make. The access stays open until `me` ends its
    /// accesses.
    ///
    /// # Errors
    /// A conflict with an open access; the access must not be made then.
    fn access(&self, me: Accessor<'_>, part: Part) -> Result<()>;

    /// Notes an operation that `me` is about to start. Its accesses stay open until it is reported
    /// to [`complete`](Self::complete) or [`end`](Self::end). It may access what the operations
    /// `after` of the same worker access.
    ///
    /// # Errors
    /// A conflict with an open access; the operation must not be started then.
    fn begin(&self, me: Accessor<'_>, parts: &[Part], after: &[u64]) -> Result<OpenOperation>;

    /// Reports that the operation has completed, and that only its own worker can know it.
    fn complete(&self, process: &Process, hold: OpenOperation);

    /// Reports that the operation was not made, or that others may know that it has completed.
    fn end(&self, process: &Process, hold: OpenOperation);

    /// Returns a note for [`released`](Self::released) at the owner: the worker that releases the
    /// memory, and its place in the program.
    fn release_note(&self, me: Accessor<'_>, memory: Extent, touch: Touch) -> Vec<u8>;

    /// Reports that memory of this process was released on behalf of a worker of `by`. The note is
    /// that of [`release_note`](Self::release_note); an empty one carries no information.
    fn released(&self, process: &Process, memory: Extent, by: ProcessId, note: &[u8]);

    /// Reports that memory of this process was allocated, so that earlier accesses to it no longer
    /// matter.
    fn renewed(&self, memory: Extent);
}

/// A worker's knowledge of others: for each worker, all accesses of the epochs below a number.
/// Sorted by worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
pub(crate) struct Known(pub(crate) Vec<(u32, u64)>);

impl Known {
    /// Returns whether this includes the accesses that a worker made in an epoch.
    pub(crate) fn has(&self, worker: u32, epoch: u64) -> bool {
        let found = self.0.binary_search_by_key(&worker, |(worker, _)| *worker);
        found.is_ok_and(|at| self.0[at].1 > epoch)
    }

    /// Adds the epochs of a worker below `end`.
    pub(crate) fn add(&mut self, worker: u32, end: u64) {
        match self.0.binary_search_by_key(&worker, |(worker, _)| *worker) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(end),
            Err(at) => self.0.insert(at, (worker, end)),
        }
    }
}

/// The worker thread that makes an access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor<'a> {
    process: &'a Process,
    local: usize,
}

impl<'a> Accessor<'a> {
    pub(crate) fn of(me: &'a Worker) -> Self {
        Self { process: me.process_handle(), local: me.thread_index() }
    }

    pub(crate) fn process_handle(&self) -> &'a Process {
        self.process
    }

    pub(crate) fn process(&self) -> ProcessId {
        self.process.id()
    }

    pub(crate) fn thread_index(&self) -> usize {
        self.local
    }

    pub(crate) fn id(&self) -> WorkerId {
        self.process.shape().worker_at(self.process.id(), self.local)
    }

    pub(crate) fn now(&self) -> Instant {
        self.process.clock().now()
    }

    pub(crate) fn default_deadline(&self) -> Duration {
        self.process.settings().deadline
    }

    pub(crate) fn end_accesses(&self) {
        self.process.accesses.end();
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum AccessKind {
    /// A get, or the source of a copy.
    Read,
    /// A put, or the target of a copy.
    Write,
    /// An atomic load.
    AtomicLoad,
    /// Any other atomic change of a word.
    AtomicChange,
    /// The memory is [released](crate::Worker::release).
    Release,
}

impl AccessKind {
    /// Returns the kind of access that an atomic change makes to its word.
    pub(crate) fn of<W>(change: &AtomicChange<W>) -> Self {
        match change {
            AtomicChange::Load => Self::AtomicLoad,
            _ => Self::AtomicChange,
        }
    }
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::AtomicLoad => "atomic load",
            Self::AtomicChange => "atomic change",
            Self::Release => "release",
        })
    }
}

/// The kind of an access, and its place in the program.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The kind.
    pub kind: AccessKind,
    /// The place.
    pub site: &'static Location<'static>,
}

impl Touch {
    /// Returns an access at the caller's place in the program.
    #[track_caller]
    #[inline]
    pub fn here(kind: AccessKind) -> Self {
        Self { kind, site: Location::caller() }
    }
}

/// One access of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) memory: Extent,
    pub(crate) touch: Touch,
}

/// An operation whose accesses an observer keeps open. The holder reports the end of the operation,
/// by [`complete`](Self::complete) or [`end`](Self::end), before it tells another thread.
#[derive(Debug)]
pub(crate) struct OpenOperation {
    /// The worker that started the operation, and its thread in this process.
    pub(crate) worker: u32,
    pub(crate) local: usize,
    /// The number of the operation in its process.
    pub(crate) operation: u64,
    /// The owners of the memory that it accesses.
    pub(crate) owners: Vec<ProcessId>,
}

impl OpenOperation {
    /// Reports that the operation has completed, and that only its own worker can know that.
    pub(crate) fn complete(self, process: &Process) {
        if let Some(observer) = process.accesses.observer() {
            observer.complete(process, self);
        }
    }

    /// Reports that the operation was not made, or that others may know that it has completed.
    pub(crate) fn end(self, process: &Process) {
        if let Some(observer) = process.accesses.observer() {
            observer.end(process, self);
        }
    }
}

/// Keeps the accesses to a lent buffer open until it is dropped. The reader of the buffer knows
/// of the end before the lender does, so dropping it [ends](OpenOperation::end) the accesses.
#[derive(Debug)]
pub(crate) struct InUse {
    process: Arc<Process>,
    hold: Option<OpenOperation>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.end(&self.process);
        }
    }
}

thread_local! {
    /// The observer of this thread's process and the thread's index there, if it is a worker
    /// thread.
    static HERE: RefCell<Option<(Arc<dyn Observer>, usize)>> = const { RefCell::new(None) };
}

/// Registers the calling thread with an observer until it is dropped.
#[derive(Debug)]
pub(crate) struct Seated(());

impl Drop for Seated {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

/// Registers the calling thread as thread `local` of the observer's process.
fn seat(observer: &Arc<dyn Observer>, local: usize) -> Seated {
    HERE.set(Some((observer.clone(), local)));
    Seated(())
}

/// Ends the accesses of the calling thread if it is a worker thread of the observer's process. Any
/// other thread may act for each of the workers, so it ends the accesses of all.
#[cold]
fn end_accesses_of(observer: &Arc<dyn Observer>, to: Option<WorkerId>) {
    observer.end_accesses(local_of(observer), to);
}

/// Returns the index of the calling thread if it is a worker thread of the observer's process.
fn local_of(observer: &Arc<dyn Observer>) -> Option<usize> {
    HERE.with_borrow(|here| match here {
        Some((own, local)) if ptr::addr_eq(Arc::as_ptr(own), Arc::as_ptr(observer)) => Some(*local),
        _ => None,
    })
}

/// Memory of this process that its threads access without the address space, in a job whose
/// accesses are observed.
#[derive(Debug)]
pub(crate) struct Watched {
    process: Arc<Process>,
    key: RemoteKey,
    /// The address of the region's first byte.
    base: usize,
}

// A panic leaves nothing half done in it.
impl RefUnwindSafe for Watched {}
impl UnwindSafe for Watched {}

impl Watched {
    /// Returns `None` if accesses are not observed.
    pub(crate) fn new(process: &Arc<Process>, key: RemoteKey, base: *const u8) -> Option<Self> {
        process.accesses.is_observed().then(|| Self { process: process.clone(), key, base: base.addr() })
    }

    /// Reports an access of the calling thread, if that is a worker thread of the process.
    ///
    /// # Panics
    /// If the access conflicts with another one.
    #[cold]
    #[inline(never)]
    pub(crate) fn report(&self, start: *const u8, bytes: usize, touch: Touch) {
        let Some(observer) = self.process.accesses.observer() else { return };
        let Some(local) = local_of(observer) else { return };
        let offset = start.addr().wrapping_sub(self.base) as u64;
        let memory = Extent { key: self.key, offset, bytes: bytes as u64 };
        let me = Accessor { process: &self.process, local };
        // With any other error, the access could not be checked.
        if let Err(conflict @ Error::Room(_)) = observer.access(me, Part { memory, touch }) {
            panic!("{conflict}");
        }
    }
}

/// Ends the accesses of the calling thread if it is a worker thread. Used between threads of one
/// process in code that does not know the process; other code uses `Accesses::end`.
#[inline]
pub fn end_accesses_here() {
    HERE.with_borrow(|here| {
        if let Some((observer, local)) = here {
            observer.end_accesses(Some(*local), None);
        }
    });
}

/// The observer of a process's accesses, if there is one.
#[derive(Debug, Default)]
pub struct Accesses {
    /// Set, if at all, before the process has workers.
    observer: OnceLock<Arc<dyn Observer>>,
}

impl Accesses {
    /// Returns the observer, if there is one.
    #[inline]
    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.get()
    }

    /// Installs an observer. Must be called before the process has workers; a second call has no
    /// effect.
    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Returns whether accesses are observed.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.observer().is_some()
    }

    /// Registers the calling thread as worker thread `local` with the observer, if there is one.
    pub(crate) fn seat(&self, local: usize) -> Option<Seated> {
        self.observer().map(|observer| seat(observer, local))
    }

    /// Orders the accesses of the calling thread before whatever it is about to publish. Called
    /// before anything that shows another thread how far this one is. A thread that is not a worker
    /// may know of the accesses of any worker of its process.
    #[inline]
    pub fn end(&self) {
        if let Some(observer) = self.observer() {
            end_accesses_of(observer, None);
        }
    }

    /// Like [`end`](Self::end), if only worker `to` can see what is about to be published.
    #[inline]
    pub(crate) fn end_for(&self, to: u32) {
        if let Some(observer) = self.observer() {
            end_accesses_of(observer, Some(WorkerId::new(to)));
        }
    }
}

impl Worker {
    /// Tells the [checker](crate::Job::check_accesses) that this worker's accesses so far come
    /// before what others do from now on.
    ///
    /// Calls, answers, atomic changes and collectives do that by themselves. This method is for
    /// what Farside does not see: a mutex, a channel or an atomic variable between threads of a
    /// process, a file or a socket. Call it before you unlock the mutex or send the message.
    ///
    /// *Cost*: none, unless accesses are checked.
    #[inline]
    pub fn end_accesses(&self) {
        self.process_handle().accesses.end();
    }

    /// Returns the epoch of this worker's accesses; 0 if accesses are not observed.
    pub(crate) fn access_epoch(&self) -> u64 {
        self.process_handle().accesses.observer().map_or(0, |observer| observer.epoch(self.thread_index()))
    }

    /// Reports that all workers know of what this worker did in its past epochs up to this one.
    pub(crate) fn all_know_accesses(&self, epoch: u64) {
        if let Some(observer) = self.process_handle().accesses.observer() {
            observer.all_know(self.thread_index(), epoch);
        }
    }

    /// Reports an access to `bytes` bytes of a region, from `offset` on. Does nothing if accesses
    /// are not observed.
    ///
    /// # Errors
    /// A conflict with an open access; the access must not be made then.
    pub(crate) fn check_access(&self, key: RemoteKey, offset: u64, bytes: usize, touch: Touch) -> Result<()> {
        if self.recorder().is_noticing() { self.notice_access(key, offset, bytes, touch) } else { Ok(()) }
    }

    #[cold]
    fn notice_access(&self, key: RemoteKey, offset: u64, bytes: usize, touch: Touch) -> Result<()> {
        if let Some(observer) = self.process_handle().accesses.observer() {
            let memory = Extent { key, offset, bytes: bytes as u64 };
            observer.access(Accessor::of(self), Part { memory, touch })?;
        }
        if touch.kind == AccessKind::Write {
            self.note_put(key.process, bytes, touch.site);
        }
        Ok(())
    }

    /// Reports an operation that is about to start, ordered `after` some operations of this
    /// worker. Returns `None` if accesses are not observed.
    ///
    /// # Errors
    /// A conflict with an open access; the operation must not be started then.
    pub(crate) fn open_until_over(&self, parts: &[Part], after: &[u64]) -> Result<Option<OpenOperation>> {
        if !self.recorder().is_noticing() {
            return Ok(None);
        }
        for Part { memory, touch } in parts.iter().filter(|part| part.touch.kind == AccessKind::Write) {
            self.note_put(memory.key.process, memory.bytes as usize, touch.site);
        }
        let observer = self.process_handle().accesses.observer();
        observer.map(|observer| observer.begin(Accessor::of(self), parts, after)).transpose()
    }

    /// Reports that a buffer is lent, until the returned value is dropped. Returns `None` if
    /// accesses are not observed.
    ///
    /// # Errors
    /// A conflict with an open access; the buffer must not be lent then.
    pub(crate) fn open_buffer(&self, buffer: &Registered, touch: Touch) -> Result<Option<Box<InUse>>> {
        let hold = self.open_until_over(&[Part { memory: Extent::of(buffer), touch }], &[])?;
        let process = self.process_handle();
        Ok(hold.map(|hold| Box::new(InUse { process: process.clone(), hold: Some(hold) })))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Records whose accesses were ended, and does nothing else.
    #[derive(Debug, Default)]
    struct Ended(Mutex<Vec<Option<usize>>>);

    impl Observer for Ended {
        fn end_accesses(&self, local: Option<usize>, _: Option<WorkerId>) {
            self.0.lock().unwrap().push(local);
        }

        fn tell(&self, _: usize) -> Known {
            Known::default()
        }

        fn hear(&self, _: usize, _: &Known) {}

        fn epoch(&self, _: usize) -> u64 {
            0
        }

        fn all_know(&self, _: usize, _: u64) {}

        fn access(&self, _: Accessor<'_>, _: Part) -> Result<()> {
            Ok(())
        }

        fn begin(&self, me: Accessor<'_>, _: &[Part], _: &[u64]) -> Result<OpenOperation> {
            let (worker, local) = (me.id().number(), me.thread_index());
            Ok(OpenOperation { worker, local, operation: 0, owners: Vec::new() })
        }

        fn complete(&self, _: &Process, _: OpenOperation) {}

        fn end(&self, _: &Process, _: OpenOperation) {}

        fn release_note(&self, _: Accessor<'_>, _: Extent, _: Touch) -> Vec<u8> {
            Vec::new()
        }

        fn released(&self, _: &Process, _: Extent, _: ProcessId, _: &[u8]) {}

        fn renewed(&self, _: Extent) {}
    }

    #[test]
    fn a_worker_ends_its_own_accesses_and_other_threads_end_all() {
        let (here, there) = (Arc::new(Ended::default()), Arc::new(Ended::default()));
        let (own, other): (Arc<dyn Observer>, Arc<dyn Observer>) = (here.clone(), there.clone());
        let ended = |observer: &Ended| std::mem::take(&mut *observer.0.lock().unwrap());
        let seated = seat(&own, 1);
        end_accesses_of(&own, None);
        end_accesses_here();
        assert_eq!(ended(&here), [Some(1), Some(1)]);
        end_accesses_of(&other, None);
        assert_eq!(ended(&there), [None], "the thread is no worker of that process");
        drop(seated);
        end_accesses_of(&own, None);
        end_accesses_here();
        assert_eq!(ended(&here), [None]);
    }
}
