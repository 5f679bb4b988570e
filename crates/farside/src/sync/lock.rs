//! Locks that all workers of a job can take, each by its name.
//!
//! Every lock has a home: a worker whose handlers keep its queue (`table`). Who wants it calls there with a reply, which the home keeps until
//! the lock is free; so nobody polls. When a process dies its calls run out first, and then the home forgets its holders and waiters
//! (`Worker::when_lost`). Calls from one worker to another run in order: so a wish is always over before its worker's next.

mod guard;
pub(crate) mod table;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use farside_fabric::{ProcessId, WorkerId};

pub use guard::{LockGuard, Token};

use self::table::{Asked, Grants, LOCKS_MAX, Mode, Table, WAITERS_MAX, Wish};
use super::error::{Result, SyncError};
use crate::Wire;
use crate::dist::PerWorker;
use crate::error::{Error, Refused};
use crate::invoke::call::WhenFull;
use crate::invoke::reply::Reply;
use crate::runtime::worker::PutOff;
use crate::runtime::worker::Worker;
use crate::wire::hash_name;
use farside_launch::settings::FOREVER;

/// How often, at most, one who waits asks whether the lease is over.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(1);

/// The number of a grant, or 0 when the table is full.
type Answer = Reply<u64>;

/// One worker's part of a lock manager.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The locks that have their home here.
    table: RefCell<Table<Answer>>,
    /// The wishes that this worker has made.
    wishes: Cell<u64>,
}

type Parts = PerWorker<Part>;

/// Locks for all workers of a job, by their names. A handle, which travels: copies are the same locks, wherever they are used.
///
/// A lock has its home at one process, which its name says by a hash, or which is [named](Lock::at). It is granted in the order in which it
/// was asked for, to one worker or to several that [share](Lock::shared) it, and is theirs until the [`LockGuard`] is dropped:
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::sync::LockManager;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let locks = LockManager::new(me)?;
/// let guard = locks.named(me, "accounts/7").lock()?;
/// // No other worker of the job is here.
/// drop(guard);
/// # Ok(())
/// # }
/// ```
///
/// It is *not* re-entrant: a worker that wants what it has waits for itself, until its deadline.
///
/// # Loss
///
/// - When the process of a **holder** dies, the lock goes to the next. What the dead one has left half done is there for that one to find.
/// - When the process of a **waiter** dies, or it gives up at its deadline, it leaves the queue.
/// - When the process of the **home** dies, waiters get [`Error::PeerLost`], and so does everybody who wants its locks from then on; nobody
///   else takes them over, since nobody knows who holds them. Who holds one finds out by [`LockGuard::release`] or [`renew`](LockGuard::renew).
/// - A holder that is **stopped** or cut off, and perhaps not dead, keeps the lock, unless the manager has a [lease](Self::with_lease). Then others
///   get it after that; and the one that goes on later believes that it still has it. It is kept out by its token: see [`Fenced`](super::Fenced).
///
/// *Cost*: a round trip to the home for a lock, and a one-way call for its release. Like any call, both need the home's worker to make progress.
#[derive(Clone, Copy, Debug, Wire)]
pub struct LockManager {
    parts: Parts,
    lease_ns: Option<u64>,
}

impl LockManager {
    /// Locks that are their holders' until these let go or die. All workers of the job call this, in the same order as other collectives.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`].
    pub fn new(me: &Worker) -> Result<Self> {
        let parts = PerWorker::new(me, Part::default())?;
        let lose = move |me: &Worker, process: ProcessId| {
            let is_lost = |worker: WorkerId| me.process_of(worker) == process;
            let grants = parts.here(me).table.borrow_mut().lose(is_lost, me.now());
            send(grants);
        };
        me.when_lost(lose);
        // One that was lost on the way here may have asked for a lock.
        me.outlived_processes().into_iter().for_each(|process| lose(me, process));
        Ok(Self { parts, lease_ns: None })
    }

    /// As [`new`](Self::new), but who has a lock for longer than `lease`, without having [renewed](LockGuard::renew) it, loses it to those who
    /// wait, if there are any. All workers say the same.
    ///
    /// # Errors
    /// As there.
    pub fn with_lease(me: &Worker, lease: Duration) -> Result<Self> {
        let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { lease_ns: Some(lease_ns), ..Self::new(me)? })
    }

    /// The lock of this name, as this worker sees it. Costs nothing, and takes nothing yet.
    pub fn named<'w>(self, me: &'w Worker, name: &str) -> Lock<'w> {
        let hash = hash_name(name);
        let home = ProcessId::new((hash % u64::from(me.process_count())) as u32);
        Lock { worker: me, manager: self, name: name.to_owned(), home, mode: Mode::Alone }
    }
}

/// A lock of the job, as one worker sees it. Made by [`LockManager::named`].
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
    /// The lock of this name at this home. Locks of one name at different homes are different.
    pub fn at(mut self, home: ProcessId) -> Self {
        self.home = home;
        self
    }

    /// To be shared with others who do the same. Those who want it alone wait until all of them have let go, and those who come later wait
    /// behind these.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// What its tokens, and the values that it guards, know it by. The same for all workers, and another for locks of the same name that are of
    /// another manager, or at another home, since these count their grants by themselves.
    pub fn id(&self) -> u64 {
        let table = u64::from(self.manager.parts.index()) << 32 | u64::from(self.home.number());
        // One to one: no two tables have the same lock.
        hash_name(&self.name) ^ table.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Its home.
    pub fn home(&self) -> ProcessId {
        self.home
    }

    /// Takes the lock, and waits for it if need be: at most for the job's [deadline](crate::Job::deadline). Not in handlers.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`Error::PeerLost`] when the home is gone; [`SyncError::Full`] when too many locks are held or waited for at this
    /// home (65 536 each); [`Error::InHandler`]; those of [`Worker::call_with_reply`].
    pub fn lock(&self) -> Result<LockGuard<'w>> {
        self.lock_for(self.worker.default_deadline())
    }

    /// As [`lock`](Self::lock), waiting for at most so long.
    ///
    /// # Errors
    /// As there.
    pub fn lock_for(&self, time: Duration) -> Result<LockGuard<'w>> {
        let me = self.worker;
        me.not_in_handler("waiting for a lock")?;
        let deadline = me.now() + time.min(FOREVER);
        let (home, wish) = (self.home_worker()?, self.wish());
        let mut pending = me.call_with_reply(home, self.arguments(wish), ask)?;
        let error = loop {
            let left = deadline.saturating_duration_since(me.now());
            let ask_again = self.manager.lease_ns.map(|lease_ns| Duration::from_nanos(lease_ns).max(ASK_AGAIN_MIN));
            match pending.wait_for(ask_again.map_or(left, |pause| left.min(pause))) {
                Ok(0) => return Err(full()),
                Ok(number) => return Ok(LockGuard::new(self.clone(), home, wish, number)),
                Err(Error::Deadline { .. }) if me.now() < deadline => {
                    if let Err(refused) = self.ask_to_revoke(home) {
                        break refused;
                    }
                }
                Err(Error::Deadline { .. }) => break Error::Deadline { doing: "waiting for a lock", after: time },
                Err(error) => break error,
            }
        };
        drop(pending);
        // The grant may be on its way: then it is given back by this.
        self.give_up(home, wish);
        Err(error.into())
    }

    /// Whoever has the lock may have had it for too long. The home has no clock of its own that would strike.
    fn ask_to_revoke(&self, home: WorkerId) -> Result<(), Error> {
        let Some(lease_ns) = self.manager.lease_ns else { return Ok(()) };
        Ok(self.worker.call(home, (self.manager.parts, self.name.clone(), lease_ns), revoke)?)
    }

    /// Takes the lock if it can be had at once. Waits for the home's answer, and so is not for handlers either.
    ///
    /// # Errors
    /// [`SyncError::LockHeld`]; otherwise as for [`lock`](Self::lock).
    pub fn try_lock(&self) -> Result<LockGuard<'w>> {
        let me = self.worker;
        me.not_in_handler("waiting for the answer of a lock's home")?;
        let (home, wish) = (self.home_worker()?, self.wish());
        let answer = me.call_return(home, self.arguments(wish), try_ask)?.wait();
        match answer {
            Ok((0, None)) => Err(full()),
            Ok((_, Some(owner))) => Err(SyncError::LockHeld { name: self.name.clone(), owner }),
            Ok((number, None)) => Ok(LockGuard::new(self.clone(), home, wish, number)),
            Err(error) => {
                self.give_up(home, wish);
                Err(error.into())
            }
        }
    }

    /// Takes the lock when it is free, and has `next` run on this worker then, as a handler. So a handler can take a lock without waiting.
    ///
    /// There is no deadline. An error is the home's loss, or that too many wait there. Nor does it ask the home whether a
    /// [lease](LockManager::with_lease) is over, as [`lock`](Self::lock) does: somebody who waits there must.
    ///
    /// # Errors
    /// Those of [`Worker::call_with_reply`].
    pub fn lock_then(&self, next: impl FnOnce(&Worker, Result<LockGuard<'_>>) + 'static) -> Result<()> {
        let (home, wish) = (self.home_worker()?, self.wish());
        let Self { manager, home: process, mode, .. } = *self;
        let name = self.name.clone();
        self.worker.call_with_reply(home, self.arguments(wish), ask)?.then(move |me, answer| {
            let granted = match answer {
                Ok(0) => Err(full()),
                Ok(number) => {
                    let lock = Lock { worker: me, manager, name, home: process, mode };
                    Ok(LockGuard::new(lock, home, wish, number))
                }
                Err(error) => Err(error.into()),
            };
            next(me, granted);
        });
        Ok(())
    }

    /// Who has the lock, or one of those who share it. It may have let go when this returns. Not in handlers.
    ///
    /// # Errors
    /// Those of a call and of waiting for its result.
    pub fn owner(&self) -> Result<Option<WorkerId>> {
        self.worker.not_in_handler("waiting for the answer of a lock's home")?;
        let asked = (self.manager.parts, self.name.clone());
        let owner = self.worker.call_return(self.home_worker()?, asked, |there, (parts, name): (Parts, String)| {
            parts.here(there).table.borrow().owner(&name)
        })?;
        Ok(owner.wait()?)
    }

    fn arguments(&self, wish: Wish) -> Arguments {
        (self.manager.parts, self.name.clone(), self.mode == Mode::Shared, wish.worker, wish.number)
    }

    fn wish(&self) -> Wish {
        let wishes = &self.manager.parts.here(self.worker).wishes;
        wishes.set(wishes.get() + 1);
        Wish { worker: self.worker.id(), number: wishes.get() }
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

    /// Tells the home that the lock, or the wish for it, is given up. In handlers, too. When the home is gone, so is the lock.
    fn give_up(&self, home: WorkerId, wish: Wish) {
        let me = self.worker;
        let is_full = |error: &Error| matches!(error, Error::Full { .. } | Error::Deadline { .. });
        let mut told = me.to(home).when_full(WhenFull::Queue).call(self.arguments(wish), leave);
        if told.as_ref().is_err_and(|refused| is_full(&refused.error)) && !me.is_in_handler() {
            // So much is queued for the home that it does not attend to: wait.
            told = me.to(home).when_full(WhenFull::Retry).call(self.arguments(wish), leave);
        }
        if let Err(Refused { error, arguments }) = told
            && is_full(&error)
        {
            me.put_off(PutOff::new(move |me| {
                let told = me.to(home).when_full(WhenFull::Queue).call(arguments.clone(), leave);
                told.err().is_none_or(|refused| !is_full(&refused.error))
            }));
        }
    }
}

fn full() -> SyncError {
    SyncError::Full { max: LOCKS_MAX.max(WAITERS_MAX) }
}

/// Where, which, whether to be shared, and the wish.
type Arguments = (Parts, String, bool, WorkerId, u64);

// What runs at the home.

fn ask(there: &Worker, (parts, name, is_shared, worker, number): Arguments, reply: Answer) {
    let mode = if is_shared { Mode::Shared } else { Mode::Alone };
    let asked = parts.here(there).table.borrow_mut().ask(name, Wish { worker, number }, mode, reply, there.now());
    match asked {
        Asked::Granted(reply, number) => reply.send(number),
        Asked::Full(reply) => reply.send(0),
        Asked::Queued => {}
    }
}

fn try_ask(there: &Worker, (parts, name, is_shared, worker, number): Arguments) -> (u64, Option<WorkerId>) {
    let mode = if is_shared { Mode::Shared } else { Mode::Alone };
    let mut table = parts.here(there).table.borrow_mut();
    match table.try_grant(&name, Wish { worker, number }, mode, there.now()) {
        Some(number) => (number, None),
        None => (0, table.owner(&name)),
    }
}

/// Says whether it was held.
fn leave(there: &Worker, (parts, name, _, worker, number): Arguments) -> bool {
    let left = parts.here(there).table.borrow_mut().leave(&name, Wish { worker, number }, there.now());
    let (was_held, grants) = left;
    send(grants);
    was_held
}

fn revoke(there: &Worker, (parts, name, lease_ns): (Parts, String, u64)) {
    let lease = Duration::from_nanos(lease_ns);
    let grants = parts.here(there).table.borrow_mut().revoke(&name, lease, there.now());
    send(grants);
}

/// Says whether it is still held.
fn renew(there: &Worker, (parts, name, _, worker, number): Arguments) -> bool {
    parts.here(there).table.borrow_mut().renew(&name, Wish { worker, number }, there.now())
}

fn send(grants: Grants<Answer>) {
    for (reply, number) in grants {
        reply.send(number);
    }
}
