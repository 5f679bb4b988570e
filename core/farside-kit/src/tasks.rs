//! Tasks that make further tasks, shared by all workers: [`TaskPool`].
//!
//! Every worker has a deque. It runs its newest task first and gives its oldest ones away. A worker
//! without tasks asks its *neighbours*, which are 1, 2, 4 and so on places after it. A worker that
//! is asked remembers that, and gives half of its tasks as soon as it has two. So no request is
//! repeated, no worker polls, and a single task stays where it is. (Saraswat et al.,
//! "Lifeline-based global load balancing", PPoPP 2011, without its random attempts.)
//!
//! The end is found by a token that goes round (Dijkstra, EWD 998, Safra's version). A worker
//! passes it on when it has no tasks, and adds the number of gifts that it sent minus those it
//! received.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside::kit::{Process, Room, Seed, WorkerParts as _};
use farside::{Result, Wire, Worker};
use farside_fabric::WorkerId;

/// The time that a worker runs tasks between two looks at what other workers want, unless one task
/// takes longer.
const TURN: Duration = Duration::from_micros(20);
/// The largest number of tasks in a turn, and in a gift.
const TASKS_MAX: usize = 1024;
/// The size from which on a gift gets no more tasks.
const GIFT_BYTES: usize = 64 << 10;

/// The way by which a task makes further tasks.
///
/// ```no_run
/// # use farside::prelude::*;
/// use farside_kit::tasks::TaskPool;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// // Counts the leaves of a binary tree. A task is the height of a subtree.
/// let seeds = me.is_first().then_some(20_u32);
/// let mut leaves = 0_u64;
/// TaskPool::run(me, seeds, |_, height, pool| {
///     match height {
///         0 => leaves += 1,
///         height => (0..2).for_each(|_| pool.push(height - 1)),
///     }
///     Ok(())
/// })?;
/// assert_eq!(me.all_reduce(leaves, |a, b| a + b)?, 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TaskPool<T> {
    /// The number of this pool among those of the job.
    number: u64,
    tasks: RefCell<VecDeque<T>>,
    /// The neighbours, and whether each has a request of this worker that it has not granted.
    neighbors: Box<[(WorkerId, Cell<bool>)]>,
    /// The workers that have asked this one for tasks and got none yet.
    asked_by: RefCell<Vec<WorkerId>>,
    /// The number of gifts sent minus those received.
    balance: Cell<i64>,
    /// True if a gift has come since the token was last here.
    was_given: Cell<bool>,
    /// The token, while it is here.
    token: Cell<Option<Token>>,
    is_over: Cell<bool>,
}

/// Goes round to find the end.
#[derive(Clone, Copy, Debug, Wire)]
struct Token {
    /// The number of gifts that the workers on its way have sent, minus those they have received.
    balance: i64,
    /// True if one of them was given tasks since it last passed the token on.
    was_given: bool,
}

impl<T: Wire + 'static> TaskPool<T> {
    /// Runs `work` for the first tasks, `seeds`, of all workers and for all tasks that these make,
    /// each once and on any worker. Returns the number of tasks that ran here. All workers call
    /// this, in the same order as other collectives, with tasks of the same type.
    ///
    /// Tasks run in no defined order. Calls of other workers run between them. When this returns,
    /// all tasks have run everywhere. Calls that they made need not have:
    /// [`quiesce`](Worker::quiesce) waits for these.
    ///
    /// *Cost*: some nanoseconds for a task that runs where it was made. A worker without tasks
    /// sends a small message to log₂(workers) others, and gets tasks in messages of about 64 KiB at
    /// most.
    ///
    /// # Errors
    /// The first error of `work` on this worker. [`Error::PeerLost`](farside::Error::PeerLost) if
    /// any process of the job is lost: its tasks are lost with it.
    /// [`Error::Deadline`](farside::Error::Deadline) if this worker waits for a task, or for the
    /// end, for longer than the job's [deadline](farside::Job::deadline): raise it if one task
    /// takes that long. [`Error::CollectiveMismatch`](farside::Error::CollectiveMismatch) if
    /// another worker calls another collective; [`Error::TooLarge`](farside::Error::TooLarge) for
    /// too large a task; [`Error::InHandler`](farside::Error::InHandler) in a handler.
    ///
    /// # Panics
    /// If a task runs another pool.
    pub fn run(
        me: &Worker,
        seeds: impl IntoIterator<Item = T>,
        mut work: impl FnMut(&Worker, T, &Self) -> Result<()>,
    ) -> Result<u64> {
        let local = me.room::<Tasks>();
        assert!(local.pool.borrow().is_none(), "a task must not run another pool: push its tasks to this one");
        local.begun.set(local.begun.get() + 1);
        let distances = (0..u32::BITS).map(|bit| 1_u64 << bit).take_while(|it| *it < me.worker_count().into());
        let pool = Rc::new(Self {
            number: local.begun.get(),
            tasks: RefCell::new(seeds.into_iter().collect()),
            neighbors: distances.map(|distance| (me.neighbor(distance as u32), Cell::new(false))).collect(),
            asked_by: RefCell::default(),
            balance: Cell::new(0),
            was_given: Cell::new(false),
            // The first round shows nothing yet.
            token: Cell::new(me.is_first().then_some(Token { balance: 0, was_given: true })),
            is_over: Cell::new(false),
        });
        local.pool.replace(Some(pool.clone()));
        // Afterwards a request or a gift finds its pool.
        let ran = me.meet_for_tasks::<T>().and_then(|()| pool.run_until_over(me, &mut work));
        local.pool.replace(None);
        ran
    }

    /// Adds a task.
    pub fn push(&self, task: T) {
        self.tasks.borrow_mut().push_back(task);
    }

    fn run_until_over(&self, me: &Worker, work: &mut impl FnMut(&Worker, T, &Self) -> Result<()>) -> Result<u64> {
        let (mut ran, mut per_turn) = (0, 1);
        while !self.is_over.get() {
            let begin = me.now();
            for _ in 0..per_turn {
                // Not in the condition, which would keep the borrow.
                let newest = self.tasks.borrow_mut().pop_back();
                let Some(task) = newest else { break };
                work(me, task, self)?;
                ran += 1;
            }
            per_turn = if me.now() - begin < TURN { TASKS_MAX.min(2 * per_turn) } else { 1 };
            me.progress()?;
            if let Some(lost) = me.any_lost() {
                return Err(lost);
            }
            self.give(me)?;
            if self.is_idle() {
                self.pass_token(me)?;
                self.ask(me)?;
                me.wait_together(me.default_deadline(), || {
                    !self.is_idle() || self.is_over.get() || self.token.get().is_some()
                })?;
            }
        }
        Ok(ran)
    }

    fn is_idle(&self) -> bool {
        self.tasks.borrow().is_empty()
    }

    /// Asks for tasks: sends a request to each neighbour that has no open request of this worker.
    fn ask(&self, me: &Worker) -> Result<()> {
        for (neighbor, is_asked) in &self.neighbors {
            if !is_asked.replace(true) {
                me.call(*neighbor, (self.number, me.id()), |there, (number, from)| {
                    if let Some(pool) = Self::of(there, number) {
                        pool.asked_by.borrow_mut().push(from);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Gives half of the tasks to each worker that has asked. Stops when one task is left.
    fn give(&self, me: &Worker) -> Result<()> {
        while self.tasks.borrow().len() >= 2 {
            let asker = self.asked_by.borrow_mut().pop();
            let Some(to) = asker else { break };
            let gift = self.take_gift();
            self.balance.set(self.balance.get() + 1);
            me.call(to, (self.number, me.id(), gift), |there, (number, from, gift)| {
                let Some(pool) = Self::of(there, number) else { return };
                pool.balance.set(pool.balance.get() - 1);
                pool.was_given.set(true);
                pool.neighbors.iter().filter(|(neighbor, _)| *neighbor == from).for_each(|(_, asked)| asked.set(false));
                pool.tasks.borrow_mut().extend(gift);
            })?;
        }
        Ok(())
    }

    /// Takes the older half of the tasks, or as many as make up a message.
    fn take_gift(&self) -> Vec<T> {
        let mut tasks = self.tasks.borrow_mut();
        let mut bytes = 0;
        let half = tasks.iter().take((tasks.len() / 2).min(TASKS_MAX));
        let fitting = half.take_while(|task| {
            let fits = bytes < GIFT_BYTES;
            bytes += task.wire_bytes();
            fits
        });
        let count = fitting.count();
        tasks.drain(..count).collect()
    }

    /// Passes the token on, or ends the pool on all workers. Must be called without tasks.
    fn pass_token(&self, me: &Worker) -> Result<()> {
        let Some(before) = self.token.take() else { return Ok(()) };
        let balance = before.balance + self.balance.get();
        let was_given = before.was_given | self.was_given.replace(false);
        if me.is_first() && !was_given && balance == 0 {
            for worker in me.workers() {
                me.call(worker, self.number, |there, number| {
                    if let Some(pool) = Self::of(there, number) {
                        pool.is_over.set(true);
                    }
                })?;
            }
            return Ok(());
        }
        let token = match me.is_first() {
            true => Token { balance: 0, was_given: false },
            false => Token { balance, was_given },
        };
        me.call(me.neighbor(1), (self.number, token), |there, (number, token)| {
            if let Some(pool) = Self::of(there, number) {
                pool.token.set(Some(token));
            }
        })?;
        Ok(())
    }

    /// Returns this worker's pool with this number. A request may come after the end.
    fn of(there: &Worker, number: u64) -> Option<Rc<Self>> {
        let pool = there.room::<Tasks>().pool.borrow().clone()?;
        pool.downcast::<Self>().ok().filter(|pool| pool.number == number)
    }
}

/// The room of task pools.
#[derive(Debug)]
pub(crate) struct Tasks;

/// The task pools of one worker.
#[derive(Debug, Default)]
pub(crate) struct LocalTasks {
    /// The number of pools that this worker has taken part in.
    begun: Cell<u64>,
    /// The pool that it takes part in now.
    pool: RefCell<Option<Rc<dyn Any>>>,
}

impl Room for Tasks {
    const TAG: u8 = 9;
    type Message = ();
    type Local = LocalTasks;

    fn new(_: &Seed<'_>) -> Self {
        Self
    }

    fn local(&self, _: &Arc<Process>, _: usize) -> LocalTasks {
        LocalTasks::default()
    }
}
