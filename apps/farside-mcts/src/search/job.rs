//! The search on a job: one tree, whose nodes belong to all workers (Seriema §5.3).
//!
//! One worker owns each node. Only the owner touches it, so it lies in plain memory. A rollout goes
//! from owner to owner:
//!
//! | message | what the receiver does |
//! |---|---|
//! | [`Descend`](message::Descend) | continues selection from one of its nodes |
//! | [`Expand`](message::Expand) | makes a node, and continues selection from there |
//! | [`Expanded`](message::Expanded) | lets an edge lead to the new node, and continues the rollouts that waited for it |
//! | [`Evaluate`](message::Evaluate) | plays the random games of a leaf for a busier worker |
//! | [`BackUp`](message::BackUp) | completes the visits of a trail, and passes the sample on |
//! | [`Idle`](message::Idle) | gives a leaf to an idle worker |
//! | [`Keep`](message::Keep) | between two runs of a session: keeps the nodes below one of its nodes |
//!
//! **A rollout leaves a trail.** When it moves on to another worker, the steps that it made here
//! stay here under a number, together with the number of the trail before. The sample returns along
//! these numbers, one message for all steps of a trail. So a message has some ten words, however
//! deep the tree. Only an expansion or an evaluation carries a state. (Seriema sends the state by
//! `call_buffer`. Here it is an argument of the call, which travels in the same record and keeps
//! its type.)
//!
//! **Ownership.** A child belongs to the owner of its parent until the parent has many visits, and
//! after that to a worker chosen at random ([`Placement`]). So nodes are spread where rollouts are
//! many, and stay together where spreading would cost more messages than it saves.
//!
//! **Distribution of work.** Worker 0 owns the root and the budget, and starts all rollouts. It
//! gives leaves to other workers so that none runs out of work. A worker that is idle nevertheless
//! tells worker 0, which tells the busiest worker.
//!
//! **Invariant:** a rollout is in exactly one place: in a task, in a message, or waiting at an
//! edge. Each worker on its way back to the root holds a live trail for it. Once as many rollouts
//! are complete as were started, only the tree is left.

mod desk;
mod error;
mod finish;
mod mail;
mod message;
mod part;
mod serve;
mod session;
mod settle;
mod statistics;
#[cfg(test)]
mod tests;
mod trails;
mod window;

use std::cell::RefCell;
use std::time::Duration;

use farside::{Aggregation, PerWorker, Worker};

use self::desk::{Address, Desk, Seat};
use self::part::Part;
use self::serve::at;
use super::{Budget, Report, Search};
use crate::game::Game;

pub use error::JobError;
pub use session::JobSession;
pub use statistics::{JobReport, WorkerReport};
pub use window::{Branch, Window};

/// Runs a search on all workers of a job together.
///
/// ```no_run
/// use farside::prelude::*;
/// use farside_mcts::games::hex::Hex;
/// use farside_mcts::{Budget, Game, OnJob, Search};
///
/// fn main() -> farside::Result<()> {
///     farside::job().processes(2).run(|me: &Worker| {
///         let hex = Hex::new(11).expect("boards have up to 16 cells a side");
///         let mut search = Search::new(hex).on(OnJob::new(me)?);
///         let report = search.run(&hex.initial(), Budget::Rollouts(100_000))?;
///         if me.id().number() == 0 {
///             println!("{}", report.best.chosen);
///         }
///         Ok(())
///     })
/// }
/// ```
///
/// An `OnJob` is `Copy`. It serves any number of searches of any games, one after another.
#[derive(Clone, Copy, Debug)]
pub struct OnJob<'w> {
    me: &'w Worker,
    desk: PerWorker<RefCell<Desk>>,
    settings: Settings,
}

/// The owner of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The owner of its parent while the parent has at most this many visits. After that any
    /// worker, at random.
    Inherit {
        /// Visits of the parent.
        visits: u32,
    },
    /// Any worker, at random, as in Seriema §5.3.2.
    Random,
}

/// The simulated durations of computations, for a [simulation](farside::Simulation), in which they
/// otherwise take no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Duration of a step of selection and its part in backpropagation.
    pub step: Duration,
    /// Duration of the evaluation of a leaf, with all its random games.
    pub evaluation: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    costs: Costs,
    placement: Placement,
    in_flight: u32,
    aggregation: Aggregation,
}

/// Number of visits after which the children of a node are spread, with few workers.
///
/// On 11 × 11 cells, children are made around the 1000th visit of a node. So with 4000 the children
/// of the root stay at worker 0, and the grandchildren are spread. With 1000 two workers are as
/// fast and send as many messages, but four workers on two CPUs are a seventh slower, as they wake
/// each other more often. With 300 two workers send a third more messages.
const INHERIT_VISITS_MAX: u32 = 4000;
/// Dividend of the number above with many workers; the divisor is the number of workers.
///
/// The more workers there are, the less work worker 0 has for each, and the sooner they need nodes
/// of their own.
const INHERIT_VISITS_SHARED: u32 = 16_000;
/// Number of rollouts in flight for each worker.
///
/// With 8 two workers wait for each other 3 to 5 % of the time, with 32 hardly ever. They find as
/// many winning moves as a search in one thread.
const IN_FLIGHT: u32 = 32;
/// Maximum backlog of one worker for another. The rollouts in flight bound it anyway: 64 workers
/// have 2048 of them, of about a hundred bytes each.
const OVERFLOW_BYTES: usize = 64 << 20;

impl<'w> OnJob<'w> {
    /// Prepares the workers for searches. All workers of the job call this, in the same order as
    /// other collectives.
    ///
    /// # Errors
    /// The errors of a barrier; [`farside::Error::TooLarge`] if the worker has 4,194,304 values of
    /// its own already.
    pub fn new(me: &'w Worker) -> farside::Result<Self> {
        let visits = (INHERIT_VISITS_SHARED / me.worker_count()).min(INHERIT_VISITS_MAX);
        let settings = Settings {
            costs: Costs::default(),
            placement: Placement::Inherit { visits },
            in_flight: IN_FLIGHT,
            aggregation: Aggregation::Overflow { limit_bytes: OVERFLOW_BYTES },
        };
        Ok(Self { me, desk: PerWorker::new(me, RefCell::default())?, settings })
    }

    /// Sets the owners of new nodes. By default a child inherits its owner until its parent has
    /// 4000 visits or, with more than four workers, 16,000 divided by their number.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.settings.placement = placement;
        self
    }

    /// Sets the maximum number of rollouts in flight, for each worker of the job (0 counts as 1).
    /// Default 32.
    ///
    /// With fewer, each rollout benefits more from the ones before. With more, workers are idle
    /// less.
    #[must_use]
    pub fn in_flight(mut self, rollouts: u32) -> Self {
        self.settings.in_flight = rollouts.max(1);
        self
    }

    /// Sets the simulated durations of computations. Has no effect outside a simulation.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> Self {
        self.settings.costs = costs;
        self
    }

    /// Sets how messages are published. By default each is published at once, while the receiver's
    /// ring accepts it. The alternative is batches, which are also published every few steps.
    ///
    /// In shared memory the difference is too small to measure. The cost of a message is the
    /// transfer of a cache line between two CPUs, and one transfer serves several messages in
    /// either mode.
    #[must_use]
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.settings.aggregation = aggregation;
        self
    }
}

impl<G: Game + Clone> Search<G, OnJob<'_>> {
    /// Searches for the best move for the side to move in `state`, together with all workers of the
    /// job.
    ///
    /// All workers call this with the same game, state, parameters and budget, in the same order as
    /// other collectives. All get the same report. The memory limit is divided among them. Worker 0
    /// owns the root and keeps the time. Its [observer](Self::observe) gets the interim reports,
    /// which count only worker 0's own nodes, memory, games and depth.
    ///
    /// With one worker, the same seed and budget of rollouts give the same report, except for the
    /// elapsed time. With several workers the report depends on their timing.
    ///
    /// *Cost*: besides the search, the messages of two barriers. An idle worker sleeps.
    ///
    /// # Errors
    /// [`JobError::Search`] if the game is over, or the budget or a parameter is invalid; the same
    /// on all workers. [`JobError::Job`] with [`PeerLost`](farside::Error::PeerLost) once a process
    /// of the job is lost, and with other errors of calls. [`JobError::Mismatch`] if the workers'
    /// arguments differed.
    pub fn run(&mut self, state: &G::State, budget: Budget) -> Result<Report<G::Move>, JobError> {
        let address = self.open(state)?;
        let report = self.search(address, 0, budget);
        address.close(self.place.me);
        report
    }

    /// Takes a seat for a search of this position.
    fn open(&self, state: &G::State) -> Result<Address, JobError> {
        let OnJob { me, desk, settings } = self.place;
        desk.here(me).borrow().check_free()?;
        let part = Part::new(self.game.clone(), &self.params, settings, state, me.id(), me.worker_count())?;
        Ok(Address::open(me, desk, part))
    }

    /// Continues the search from a root with `kept` visits.
    fn search(&mut self, address: Address, kept: u64, budget: Budget) -> Result<Report<G::Move>, JobError> {
        let me = self.place.me;
        let rollouts_max = budget.rollouts_max(kept)?;
        at(me, address, |seat: &mut Seat<G>| seat.begin(rollouts_max));
        // No worker sends a message before all workers have a part that can receive it.
        me.barrier()?;
        let (start, sent_before) = (me.now(), me.counters().sent);
        self.serve(address, budget, start)?;
        let elapsed = me.now() - start;
        let report = finish::report::<G>(me, address, &sent_before, elapsed)?;
        Ok(report.expect("a rollout was made, or the root proven by an earlier one"))
    }
}
