//! Who searches for the engine.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use farside::{PerWorker, WhenFull, Worker};
use farside_mcts::games::hex::htp::Order;
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, JobError, Local, OnJob, Params, Report, Search, SearchError};

use super::input::Interruption;
use super::write;

/// Rollouts between looks at the time, interrupts, and what is to be shown: some milliseconds, or a tenth of that without
/// connections.
const LOOK_ROLLOUTS: u64 = 64;
/// A worker waits for orders for as long as it takes a person to think. What ends that is an order, or a lost process.
const ORDERS_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// A place to search. (A job's failure is of another kind than a search that cannot be.)
pub(super) trait Searcher {
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
#[derive(Debug)]
pub(super) struct Alone;

impl Searcher for Alone {
    fn search(
        &mut self,
        order: &Order,
        begin: Instant,
        interruption: Interruption,
    ) -> farside::Result<Result<Report<Cell>, SearchError>> {
        let search = Search::new(order.game).params(order.params).on(Local);
        Ok(watched(search, order, begin, interruption).run(&order.position, order.budget))
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
    orders: PerWorker<RefCell<Option<Joint>>>,
}

/// What the other workers are to do: search this with worker 0, or, without anything, go home.
type Joint = Option<(Hex, Position, Params, Budget)>;

impl<'w> Together<'w> {
    /// All workers of the job call this.
    pub(super) fn new(me: &'w Worker) -> farside::Result<Self> {
        Ok(Self { me, place: OnJob::new(me)?, orders: PerWorker::new(me, RefCell::default())? })
    }

    /// Lets the other workers go home.
    pub(super) fn dismiss(&self) -> farside::Result<()> {
        self.tell_others(None)
    }

    fn tell_others(&self, joint: Joint) -> farside::Result<()> {
        for other in self.me.workers().skip(1) {
            let take = |there: &Worker, (orders, joint): (PerWorker<RefCell<Option<Joint>>>, Joint)| {
                *orders.here(there).borrow_mut() = Some(joint);
            };
            let told = self.me.to(other).when_full(WhenFull::Queue).call((self.orders, joint), take);
            told.map_err(farside::Error::from)?;
        }
        Ok(())
    }
}

impl Searcher for Together<'_> {
    fn search(
        &mut self,
        order: &Order,
        begin: Instant,
        interruption: Interruption,
    ) -> farside::Result<Result<Report<Cell>, SearchError>> {
        self.tell_others(Some((order.game, order.position, order.params, order.budget)))?;
        let search = Search::new(order.game).params(order.params).on(self.place);
        match watched(search, order, begin, interruption).run(&order.position, order.budget) {
            Ok(report) => Ok(Ok(report)),
            Err(JobError::Search(error)) => Ok(Err(error)),
            Err(error) => Err(error.into()),
        }
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

/// Searches with worker 0 whenever it does, until there is nothing more to do.
pub(super) fn follow(together: &Together<'_>) -> farside::Result<()> {
    let Together { me, place, orders } = together;
    let orders = orders.here(me);
    loop {
        me.wait_together(ORDERS_MAX, || orders.borrow().is_some())?;
        let Some((game, position, params, budget)) = orders.take().flatten() else { return Ok(()) };
        match Search::new(game).params(params).on(*place).run(&position, budget) {
            // That it cannot be is what worker 0 answers.
            Ok(_) | Err(JobError::Search(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The search, ended by the order's watch or an interrupt, with what the watch shows written as it comes.
fn watched<P>(search: Search<Hex, P>, order: &Order, begin: Instant, interruption: Interruption) -> Search<Hex, P> {
    let mut watch = order.watch.clone();
    search.params(order.params).observe(LOOK_ROLLOUTS, move |report| {
        let look = watch.look(report, begin.elapsed());
        // If nobody reads that, the answer will not be read either, and its failure is reported.
        let is_heard = look.text.is_none_or(|text| write(&text).is_ok());
        if look.stop || !is_heard || interruption.has_come() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
}
