//! Locks of a job, found by name.
//!
//! Every lock has a home: a worker whose handlers keep its queue (`table`). A worker that wants the
//! lock calls the home with a reply, which the home keeps until the lock is free; so nothing polls.
//! When a process dies, its calls run out first, and then the home forgets its holders and waiters
//! (`Worker::when_lost`). Calls from one worker to another run in order, so a request always ends
//! before the same worker's next one begins.

mod guard;
pub(crate) mod table;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use farside::kit::{Wait, WorkerParts as _, number_of, wait_for_result};
use farside::wire::hash_name;
use farside::{Error, PerWorker, Reply, WhenFull, Wire, Worker};
use farside_fabric::{ProcessId, WorkerId};

use self::table::{Asked, Grants, LOCKS_MAX, LockRequest, Mode, Table, WAITERS_MAX};
use super::error::{Result, SyncError};

pub use guard::{LockGuard, Token};

/// The shortest pause between two questions of a waiter whether the lease is over.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(1);

/// The reply to a request: the number of the grant, or 0 if the table is full.
type GrantReply = Reply<u64>;

/// A worker's state of a lock manager.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The locks whose home is this worker.
    table: RefCell<Table<GrantReply>>,
    /// The number of requests that this worker has made.
    requests: Cell<u64>,
}

type Parts = PerWorker<Part>;

/// The locks of a job, by name. A handle that may travel: copies stand for the same locks
/// everywhere.
///
/// A lock has its home at one process, chosen by the hash of its name, or [given](Lock::at). Locks
/// are granted in the order of the requests, to one worker or to several that [share](Lock::shared)
/// the lock. A grant lasts until its [`LockGuard`] is dropped:
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside_kit::sync::LockManager;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let locks = LockManager::new(me)?;
/// let guard = locks.named(me, "accounts/7").lock()?;
/// // No other worker of the job is here.
/// drop(guard);
/// # Ok(())
/// # }
/// ```
///
/// Locks are *not* re-entrant: a worker that asks for a lock that it holds waits for itself, until
/// its deadline.
///
/// # Loss
///
/// - If the process of a **holder** dies, the lock goes to the next waiter, which finds whatever
///   the dead process left half done.
/// - If the process of a **waiter** dies, or the waiter meets its deadline, it leaves the queue.
/// - If the process of the **home** dies, waiters and all later requests get [`Error::PeerLost`].
///   No other process takes its locks over, since none knows their holders. A holder learns of it
///   from [`LockGuard::release`] or [`renew`](LockGuard::renew).
/// - If a **holder** is stopped or cut off, but perhaps not dead, it keeps the lock, unless the
///   manager has a [lease](Self::with_lease). After the lease others get the lock, while the old
///   holder still believes that it has it. Its token keeps it out: see [`Fenced`](super::Fenced).
///
/// *Cost*: a round trip to the home for a lock, and a one-way call for its release. Like any call,
/// both need progress of the home's worker.
#[derive(Clone, Copy, Debug, Wire)]
#[wire(word = "farside::LockManager")]
pub struct LockManager {
    parts: Parts,
    lease_ns: Option<u64>,
}

impl LockManager {
    /// Makes locks that last until their holders release them or die. All workers of the job call
    /// this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. [`Error::TooLarge`] if there are 4,194,304 already.
    pub fn new(me: &Worker) -> Result<Self> {
        let parts = PerWorker::new(me, Part::default())?;
        let lose = move |me: &Worker, process: ProcessId| {
            let is_lost = |worker: WorkerId| me.process_of(worker) == process;
            let grants = parts.here(me).table.borrow_mut().lose(is_lost, me.now());
            send(grants);
        };
        me.when_lost(lose);
        // A process lost during this call may already have asked for a lock.
        me.outlived_processes().into_iter().for_each(|process| lose(me, process));
        Ok(Self { parts, lease_ns: None })
    }

    /// Like [`new`](Self::new), but a holder loses its lock to waiters after `lease` without a
    /// [renewal](LockGuard::renew). All workers pass the same lease.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. [`Error::TooLarge`] if there are 4,194,304 already.
    pub fn with_lease(me: &Worker, lease: Duration) -> Result<Self> {
        let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { lease_ns: Some(lease_ns), ..Self::new(me)? })
    }

    /// Returns the lock of this name for this worker. Takes nothing yet, and costs nothing.
    pub fn named<'w>(self, me: &'w Worker, name: &str) -> Lock<'w> {
        let hash = hash_name(name);
        let home = ProcessId::new((hash % u64::from(me.process_count())) as u32);
        Lock { worker: me, manager: self, name: name.to_owned(), home, mode: Mode::Alone }
    }
}

/// A lock of the job, for one worker. Made by [`LockManager::named`].
#[derive(Clone, Debug)]
#[must_use = "it is taken by `lock` or `try_lock`"]
pub struct Lock<'w> {
    worker: &'w Worker,
    manager: LockManager,
    name: String,
    home: ProcessId,
    mode: Mode,
}

impl<'w> Lock<'w> {
    /// Sets the home. Locks of one name at different homes are different locks.
    pub fn at(mut self, home: ProcessId) -> Self {
        self.home = home;
        self
    }

    /// Asks to share the lock with others that do the same. A worker that wants it alone waits
    /// until all of them have released it, and later requests wait behind that worker.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Returns the lock's identity, by which its tokens and the values that it guards know it. All
    /// workers compute the same one. Locks of the same name at another manager or another home have
    /// another identity, since they count their grants separately.
    pub fn id(&self) -> u64 {
        let table = u64::from(number_of(self.manager.parts)) << 32 | u64::from(self.home.number());
        // A bijection, so two tables never have the same lock.
        hash_name(&self.name) ^ table.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the home.
    pub fn home(&self) -> ProcessId {
        self.home
    }

    /// Takes the lock. Waits for it if necessary, for at most the job's
    /// [deadline](farside::Job::deadline). Handlers must not call it.
    ///
    /// # Errors
    /// [`Error::Deadline`] if the lock does not become free in time; [`Error::PeerLost`] if the
    /// home is lost; [`SyncError::Full`] if too many locks are taken or waited for at this home (65
    /// 536 each); [`Error::Full`] if the home has no room for the call;
    /// [`Error::DifferentBinaries`] if it runs another binary; [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn lock(&self) -> Result<LockGuard<'w>> {
        self.lock_for(self.worker.default_deadline())
    }

    /// Like [`lock`](Self::lock), but waits for at most `time`.
    ///
    /// # Errors
    /// [`Error::Deadline`] if the lock does not become free in time; [`Error::PeerLost`] if the
    /// home is lost; [`SyncError::Full`] if too many locks are taken or waited for at this home (65
    /// 536 each); [`Error::Full`] if the home has no room for the call;
    /// [`Error::DifferentBinaries`] if it runs another binary; [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn lock_for(&self, time: Duration) -> Result<LockGuard<'w>> {
        let me = self.worker;
        me.not_in_handler("waiting for a lock")?;
        let mut deadline = me.deadline_after(time);
        // Its home does not know who holds it, if others wait in between.
        let wait = Wait::here("waiting for a lock");
        let (home, request) = (self.home_worker()?, self.request());
        let mut pending = me.call_with_reply(home, self.arguments(request), ask)?;
        let error = loop {
            let left = deadline.left(me);
            let ask_again = self.manager.lease_ns.map(|lease_ns| Duration::from_nanos(lease_ns).max(ASK_AGAIN_MIN));
            match wait_for_result(&mut pending, wait, ask_again.map_or(left, |pause| left.min(pause))) {
                Ok(0) => return Err(full()),
                Ok(number) => return Ok(LockGuard::new(self.clone(), home, request, number)),
                Err(Error::Deadline { .. }) if !deadline.has_passed(me) => {
                    if let Err(refused) = self.ask_to_revoke(home) {
                        break refused;
                    }
                }
                Err(Error::Deadline { .. }) => {
                    break Error::Deadline { doing: "waiting for a lock", after: time, waiting_for: Vec::new() };
                }
                Err(error) => break error,
            }
        };
        drop(pending);
        // If the grant is in transit, this gives it back.
        self.give_up(home, request);
        Err(error.into())
    }

    /// Asks the home to revoke the lock if its lease is over. The home has no timer of its own.
    fn ask_to_revoke(&self, home: WorkerId) -> Result<(), Error> {
        let Some(lease_ns) = self.manager.lease_ns else { return Ok(()) };
        Ok(self.worker.call(home, (self.manager.parts, self.name.clone(), lease_ns), revoke)?)
    }

    /// Takes the lock if it is available at once. Waits for the home's answer, so handlers must not
    /// call it.
    ///
    /// # Errors
    /// [`SyncError::LockHeld`] if another worker has the lock; [`SyncError::Full`] if too many
    /// locks are taken or waited for at this home (65 536 each); [`Error::PeerLost`] if the home is
    /// lost; [`Error::Deadline`] if it does not answer in time; [`Error::DifferentBinaries`] if it
    /// runs another binary; [`Error::InHandler`] in a handler.
    pub fn try_lock(&self) -> Result<LockGuard<'w>> {
        let me = self.worker;
        me.not_in_handler("waiting for the answer of a lock's home")?;
        let (home, request) = (self.home_worker()?, self.request());
        let answer = me.call_return(home, self.arguments(request), try_ask)?.wait();
        match answer {
            Ok((0, None)) => Err(full()),
            Ok((_, Some(owner))) => Err(SyncError::LockHeld { name: self.name.clone(), owner }),
            Ok((number, None)) => Ok(LockGuard::new(self.clone(), home, request, number)),
            Err(error) => {
                self.give_up(home, request);
                Err(error.into())
            }
        }
    }

    /// Takes the lock when it is free, and then runs `next` on this worker, as a handler. So a
    /// handler can take a lock without waiting.
    ///
    /// There is no deadline; `next` gets an error if the home is lost or too many requests wait
    /// there. Unlike [`lock`](Self::lock), this does not ask the home whether a
    /// [lease](LockManager::with_lease) is over: another waiter must do that.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the home is lost; [`Error::Full`] or [`Error::Deadline`] if it has no
    /// room for the call; [`Error::TooLarge`]; [`Error::DifferentBinaries`] if it runs another
    /// binary. Then `next` does not run.
    pub fn lock_then(&self, next: impl FnOnce(&Worker, Result<LockGuard<'_>>) + 'static) -> Result<()> {
        let (home, request) = (self.home_worker()?, self.request());
        let Self { manager, home: process, mode, .. } = *self;
        let name = self.name.clone();
        self.worker.call_with_reply(home, self.arguments(request), ask)?.then(move |me, answer| {
            let granted = match answer {
                Ok(0) => Err(full()),
                Ok(number) => {
                    let lock = Lock { worker: me, manager, name, home: process, mode };
                    Ok(LockGuard::new(lock, home, request, number))
                }
                Err(error) => Err(error.into()),
            };
            next(me, granted);
        });
        Ok(())
    }

    /// Returns the holder of the lock, or one of those that share it. It may have released the lock
    /// when this returns. Handlers must not call it.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the home is lost; [`Error::Deadline`] if it does not answer in time;
    /// [`Error::DifferentBinaries`] if it runs another binary; [`Error::InHandler`] in a handler.
    pub fn owner(&self) -> Result<Option<WorkerId>> {
        self.worker.not_in_handler("waiting for the answer of a lock's home")?;
        let asked = (self.manager.parts, self.name.clone());
        let owner = self.worker.call_return(self.home_worker()?, asked, |there, (parts, name): (Parts, String)| {
            parts.here(there).table.borrow().owner(&name)
        })?;
        Ok(owner.wait()?)
    }

    fn arguments(&self, request: LockRequest) -> Arguments {
        (self.manager.parts, self.name.clone(), self.mode == Mode::Shared, request.worker, request.number)
    }

    fn request(&self) -> LockRequest {
        let requests = &self.manager.parts.here(self.worker).requests;
        requests.set(requests.get() + 1);
        LockRequest { worker: self.worker.id(), number: requests.get() }
    }

    fn home_worker(&self) -> Result<WorkerId> {
        let (me, process) = (self.worker, self.home);
        if process.number() >= me.process_count() {
            return Err(Error::UnknownProcess { process, count: me.process_count() }.into());
        }
        let threads = u64::from(me.threads_per_process());
        let local = (hash_name(&self.name) / u64::from(me.process_count())) % threads;
        Ok(WorkerId::new(process.number() * me.threads_per_process() + local as u32))
    }

    /// Tells the home that the lock, or the request for it, is given up. Handlers may call it. If
    /// the home is gone, so is the lock.
    fn give_up(&self, home: WorkerId, request: LockRequest) {
        let me = self.worker;
        // Kept without a limit, or the lock might stay locked. Each such call follows a request.
        let _ = me.to(home).when_full(WhenFull::Spill).call(self.arguments(request), leave);
    }
}

fn full() -> SyncError {
    SyncError::Full { max: LOCKS_MAX.max(WAITERS_MAX) }
}

/// The manager, the name, whether to share, and the request's worker and number.
type Arguments = (Parts, String, bool, WorkerId, u64);

// The functions below run at the home.

fn ask(there: &Worker, (parts, name, is_shared, worker, number): Arguments, reply: GrantReply) {
    let mode = if is_shared { Mode::Shared } else { Mode::Alone };
    let asked =
        parts.here(there).table.borrow_mut().ask(name, LockRequest { worker, number }, mode, reply, there.now());
    match asked {
        Asked::Granted(reply, number) => reply.send(number),
        Asked::Full(reply) => reply.send(0),
        Asked::Queued => {}
    }
}

fn try_ask(there: &Worker, (parts, name, is_shared, worker, number): Arguments) -> (u64, Option<WorkerId>) {
    let mode = if is_shared { Mode::Shared } else { Mode::Alone };
    let mut table = parts.here(there).table.borrow_mut();
    match table.try_grant(&name, LockRequest { worker, number }, mode, there.now()) {
        Some(number) => (number, None),
        None => (0, table.owner(&name)),
    }
}

/// Ends a request. Returns whether it held the lock.
fn leave(there: &Worker, (parts, name, _, worker, number): Arguments) -> bool {
    let left = parts.here(there).table.borrow_mut().leave(&name, LockRequest { worker, number }, there.now());
    let (was_held, grants) = left;
    send(grants);
    was_held
}

fn revoke(there: &Worker, (parts, name, lease_ns): (Parts, String, u64)) {
    let lease = Duration::from_nanos(lease_ns);
    let grants = parts.here(there).table.borrow_mut().revoke(&name, lease, there.now());
    send(grants);
}

/// Renews a lease. Returns whether the lock is still held.
fn renew(there: &Worker, (parts, name, _, worker, number): Arguments) -> bool {
    parts.here(there).table.borrow_mut().renew(&name, LockRequest { worker, number }, there.now())
}

fn send(grants: Grants<GrantReply>) {
    for (reply, number) in grants {
        reply.send(number);
    }
}
