//! Who searches for the engine.

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

/// Rollouts between looks at the time, interrupts, and what is to be shown: some milliseconds, or a tenth of that without
/// connections.
const LOOK_ROLLOUTS: u64 = 64;
/// A worker waits for orders for as long as it takes a person to think. What ends that is an order, or a lost process.
const ORDERS_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// A place to search. (A job's failure is of another kind than a search that cannot be.)
pub(super) trait Searcher {
    /// Searches until the order's budget is spent, its watch says so, or an interrupt comes.
    fn search(
        &mut self,
        order: &Order,
        begin: Instant,
        interruption: Interruption,
    ) -> farside::Result<Result<Report<Cell>, SearchError>>;

    /// Nothing is to be done at the moment.
    fn idle(&mut self) -> farside::Result<()>;
}

/// In this thread.
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

/// On all workers of a job, led by worker 0.
#[derive(Debug)]
pub(super) struct Together<'w> {
    me: &'w Worker,
    place: OnJob<'w>,
    /// Of worker 0, in their order: one that cannot be searched is over here before others have seen it.
    orders: PerWorker<RefCell<VecDeque<Joint>>>,
    kept: Kept<JobSession<'w, Hex>>,
    lookout: Lookout,
}

/// What the other workers are to do: this with worker 0, or, without anything, go home.
type Joint = Option<Task>;

impl<'w> Together<'w> {
    /// All workers of the job call this.
    pub(super) fn new(me: &'w Worker) -> farside::Result<Self> {
        let (place, orders) = (OnJob::new(me)?, PerWorker::new(me, RefCell::default())?);
        Ok(Self { me, place, orders, kept: Kept::default(), lookout: Lookout::default() })
    }

    /// On the other workers: searches with worker 0 whenever it does, until it says that there is nothing more to do.
    pub(super) fn follow(&mut self) -> farside::Result<()> {
        let orders = self.orders.here(self.me);
        loop {
            self.me.wait_together(ORDERS_MAX, || !orders.borrow().is_empty())?;
            let Some(task) = orders.borrow_mut().pop_front().flatten() else { return Ok(()) };
            // Worker 0 answers what was found, or that nothing could be.
            let _ = self.take_part(&task)?;
        }
    }

    /// Lets the other workers go home.
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
            // Returns which.
            false => self.me.wait_together(Duration::ZERO, || false),
        }
    }
}

fn task(order: &Order) -> Task {
    let Order { game, position, params, budget, reuses, .. } = *order;
    Task { game, position, params, budget, reuses }
}

/// Looks at the search that is under way. A search that is kept goes on under the next order, whose watch is another.
#[derive(Clone, Default)]
struct Lookout(Arc<Mutex<Option<Present>>>);

/// What is watched for at present.
struct Present {
    watch: Watch,
    /// What the watch counts its time from.
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
        // If nobody reads that, the answer will not be read either, and its failure is reported.
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
