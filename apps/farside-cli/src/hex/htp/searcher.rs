//! Runs the engine's searches, in one thread or on a job.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside::{PerWorker, WhenFull, Worker};
use farside_mcts::games::hex::htp::{Order, Watch};
use farside_mcts::games::hex::{Cell, Hex};
use farside_mcts::{JobSession, Local, OnJob, Report, Search, SearchError, Session};

use super::input::Interruption;
use super::tree::{Kept, Task};
use super::write;

/// Number of rollouts between two calls of the watch: some milliseconds with connections, a tenth
/// of that without.
const LOOK_ROLLOUTS: u64 = 64;
/// Maximum wait for a task. A person may think for any time, so only a task or a lost process ends
/// it.
const ORDERS_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// A place to search.
pub(super) trait Searcher {
    /// Searches until the budget is spent, the watch ends the search, or an interrupt arrives.
    ///
    /// The outer result is that of the job, the inner one that of the search.
    fn search(
        &mut self,
        order: &Order,
        begin: Instant,
        interruption: Interruption,
    ) -> farside::Result<Result<Report<Cell>, SearchError>>;

    /// Called repeatedly between commands.
    fn idle(&mut self) -> farside::Result<()>;
}

/// Searches in this thread.
#[derive(Debug, Default)]
pub(super) struct Alone {
    kept: Kept<Session<Hex>>,
    lookout: Lookout,
}

impl Searcher for Alone {
    fn search(
        &mut self,
        order: &Order,
        begin: Instant,
        interruption: Interruption,
    ) -> farside::Result<Result<Report<Cell>, SearchError>> {
        let Self { kept, lookout } = self;
        lookout.set(order.watch.clone(), begin, interruption);
        let task = task(order);
        kept.search(&task, || {
            let search = Search::new(task.game).params(task.params).on(Local);
            Ok(lookout.watch(search).session(&task.position)?)
        })
    }

    fn idle(&mut self) -> farside::Result<()> {
        Ok(())
    }
}

/// Searches on all workers of a job. Worker 0 hands out the tasks.
#[derive(Debug)]
pub(super) struct Together<'w> {
    me: &'w Worker,
    place: OnJob<'w>,
    /// Tasks from worker 0, in order. Several can wait here: worker 0 may refuse one and send the
    /// next before this worker has taken the first.
    orders: PerWorker<RefCell<VecDeque<Joint>>>,
    kept: Kept<JobSession<'w, Hex>>,
    lookout: Lookout,
}

/// A task to search together with worker 0, or `None` to return.
type Joint = Option<Task>;

impl<'w> Together<'w> {
    /// Prepares the workers. All workers of the job call this.
    pub(super) fn new(me: &'w Worker) -> farside::Result<Self> {
        let (place, orders) = (OnJob::new(me)?, PerWorker::new(me, RefCell::default())?);
        Ok(Self { me, place, orders, kept: Kept::default(), lookout: Lookout::default() })
    }

    /// On the other workers: takes part in the searches of worker 0 until
    /// [`dismiss`](Self::dismiss).
    pub(super) fn follow(&mut self) -> farside::Result<()> {
        let orders = self.orders.here(self.me);
        loop {
            self.me.wait_together(ORDERS_MAX, || !orders.borrow().is_empty())?;
            let Some(task) = orders.borrow_mut().pop_front().flatten() else { return Ok(()) };
            // Worker 0 reports the result, and the refusal of a search.
            let _ = self.take_part(&task)?;
        }
    }

    /// Lets the other workers return from [`follow`](Self::follow).
    pub(super) fn dismiss(&self) -> farside::Result<()> {
        self.tell_others(None)
    }

    fn tell_others(&self, joint: Joint) -> farside::Result<()> {
        for other in self.me.workers().skip(1) {
            let take = |there: &Worker, (orders, joint): (PerWorker<RefCell<VecDeque<Joint>>>, Joint)| {
                orders.here(there).borrow_mut().push_back(joint);
            };
            let told = self.me.to(other).when_full(WhenFull::Queue).call((self.orders, joint), take);
            told.map_err(farside::Error::from)?;
        }
        Ok(())
    }

    fn take_part(&mut self, task: &Task) -> farside::Result<Result<Report<Cell>, SearchError>> {
        let Self { place, kept, lookout, .. } = self;
        kept.search(task, || {
            let search = Search::new(task.game).params(task.params).on(*place);
            lookout.watch(search).session(&task.position)
        })
    }
}

impl Searcher for Together<'_> {
    fn search(
        &mut self,
        order: &Order,
        begin: Instant,
        interruption: Interruption,
    ) -> farside::Result<Result<Report<Cell>, SearchError>> {
        self.lookout.set(order.watch.clone(), begin, interruption);
        let task = task(order);
        self.tell_others(Some(task))?;
        self.take_part(&task)
    }

    fn idle(&mut self) -> farside::Result<()> {
        self.me.progress()?;
        match self.me.lost_processes().is_empty() {
            true => Ok(()),
            // Returns the error that names the lost process.
            false => self.me.wait_together(Duration::ZERO, || false),
        }
    }
}

fn task(order: &Order) -> Task {
    let Order { game, position, params, budget, reuses, .. } = *order;
    Task { game, position, params, budget, reuses }
}

/// Observer of all searches. A kept search continues under the next order, which brings its own
/// watch.
#[derive(Clone, Default)]
struct Lookout(Arc<Mutex<Option<Present>>>);

/// Watch of the current order.
struct Present {
    watch: Watch,
    /// Start of the time that the watch counts.
    begin: Instant,
    interruption: Interruption,
}

impl Lookout {
    fn set(&self, watch: Watch, begin: Instant, interruption: Interruption) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Present { watch, begin, interruption });
    }

    fn watch<P>(&self, search: Search<Hex, P>) -> Search<Hex, P> {
        let lookout = self.clone();
        search.observe(LOOK_ROLLOUTS, move |report| lookout.look(report))
    }

    fn look(&self, report: &Report<Cell>) -> ControlFlow<()> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Present { watch, begin, interruption }) = &mut *present else { return ControlFlow::Continue(()) };
        let look = watch.look(report, begin.elapsed());
        // If this write fails, so will that of the answer, which reports the error.
        let is_heard = look.text.is_none_or(|text| write(&text).is_ok());
        if look.stop || !is_heard || interruption.has_come() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookout").finish_non_exhaustive()
    }
}
