//! The search on a job: one tree, whose nodes belong to all workers (Seriema §5.3).
//!
//! Every node is owned by one worker, and touched by nobody else, so it lies in plain memory. ([`Sharing::Process`] is the seed's
//! way: touched by all workers of the owner's process.) A rollout goes from owner
//! to owner:
//!
//! | message | what the receiver does |
//! |---|---|
//! | [`Descend`](message::Descend) | goes on selecting from a node of its own |
//! | [`Expand`](message::Expand) | makes a node, and goes on from there |
//! | [`Expanded`](message::Expanded) | lets an edge lead to the new node, and sends on the rollouts that waited for it |
//! | [`Evaluate`](message::Evaluate) | plays the games of a leaf, for a worker that has more to do than this one |
//! | [`BackUp`](message::BackUp) | completes the visits that it has put in flight, and passes the sample on |
//! | [`Spare`](message::Spare) | gives some leaf to the worker that has nothing to do |
//! | [`Replicate`](message::Replicate) | has a copy of a node that is visited very often |
//! | [`Flush`](message::Flush) | adds what came to a copy to its own node |
//! | [`Refresh`](message::Refresh) | learns how the original of its copy stands |
//! | [`Grant`](message::Grant) | starts rollouts at its copy of the root |
//! | [`Done`](message::Done) | counts rollouts that others have started and completed, and grants more |
//! | [`Keep`](message::Keep) | between two runs of a session: keeps what is below a node |
//!
//! **A rollout leaves a trail.** Where it goes on to another worker, the steps that it made since it came stay behind
//! under a number, together with the number of the trail before. The sample comes back along these numbers, all steps of
//! a trail at once. So a message is some ten words short, however deep the tree; only an expansion or an evaluation
//! carries a state. (The seed sends that with `call_buffer`; here it is an argument of a plain call, which travels in the
//! call's own record just the same, and keeps its type.)
//!
//! **Who owns what.** A child belongs to the owner of its parent until that has many visits, and then to a worker chosen
//! at random ([`Placement`]): spread where rollouts are many, together where messages would be.
//!
//! **Who does what.** Worker 0 owns the root and the budget. It starts all rollouts, unless others have copies of the root
//! ([`Replicas`]): those it grants shares of the budget. It sees to it that no other worker runs dry, by
//! giving leaves away. A worker that has nothing to do all the same says so to worker 0, which tells the one that has most.
//!
//! **Invariants:** a rollout is in one place: in a task, in a message, or waiting at an edge; and all the way back to the
//! root there is a live trail for each worker that it came through. When as many rollouts are complete as were started,
//! nothing is left anywhere but tree.

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

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use farside::{Aggregation, Dist, PerWorker, Worker, WorkerId};

use self::desk::{Address, Desk, Seat, Shelf};
use self::part::{Commons, Part, Place, Team};
use self::serve::at;
use super::{Budget, Report, Search};
use crate::game::Game;

pub use error::JobError;
pub use session::JobSession;
pub use statistics::{JobReport, WorkerReport};

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
/// One `OnJob` serves any number of searches, one after another, of any games: it is `Copy`.
#[derive(Clone, Copy, Debug)]
pub struct OnJob<'w> {
    me: &'w Worker,
    desk: PerWorker<RefCell<Desk>>,
    commons: Dist<Shelf>,
    settings: Settings,
}

/// Who owns a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The owner of its parent until that has had more visits than this, then any worker, at random.
    Inherit {
        /// Visits of the parent.
        visits: u32,
    },
    /// Any worker, at random, as in Seriema §5.3.2.
    Random,
}

/// When nodes are copied to all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// A node with more visits than this is.
    pub visits: u32,
    /// A copy tells the owner what came to it after so many visits, and is told in turn how the node stands.
    pub flush_every: u32,
}

impl Default for Replicas {
    /// More than 1000 visits, told every 32.
    fn default() -> Self {
        Self { visits: 1000, flush_every: 32 }
    }
}

/// How a run goes on from its first rollout to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Without a pause.
    #[default]
    Continuous,
    /// In phases of so many rollouts for each worker. All of them are complete, and all workers meet, before the next phase
    /// begins. The seed's have up to 4096 (Seriema §5.3.2).
    Phases {
        /// For each worker; 0 counts as 1.
        rollouts: u32,
    },
}

/// Who touches a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Its owner, in plain memory; others by message.
    #[default]
    Worker,
    /// All workers of the owner's process, in shared memory with relaxed virtual loss; those of other processes by message. All
    /// workers of the first process start rollouts. (Seriema §5.3.2.)
    Process,
}

/// What computing takes in a [simulation](farside::Simulation), where it takes no time by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// A step of selection, and its part in backing up.
    pub step: Duration,
    /// The evaluation of a leaf, with all of its random games.
    pub evaluation: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    costs: Costs,
    placement: Placement,
    sharing: Sharing,
    force_remote: bool,
    replicas: Option<Replicas>,
    pace: Pace,
    in_flight: u32,
    aggregation: Aggregation,
}

/// A node's children are spread once it has been visited more often than this, with few workers.
///
/// On 11 × 11 cells the children of a node are made around its 1000th visit. So with 4000 those of the root stay with it,
/// and the grandchildren are spread. With 1000 two workers are as quick and send as many messages, but four on two CPUs are
/// a seventh slower, since they wake each other more often. With 300 two workers send a third more messages.
const INHERIT_VISITS_MAX: u32 = 4000;
/// The more workers there are, the less the owner of the root can do for each, and the sooner they need nodes of their own:
/// the limit is this, divided by their number.
const INHERIT_VISITS_SHARED: u32 = 16_000;
/// Rollouts under way for each worker. With 8 two workers wait for each other 3 to 5 % of the time, with 32 hardly ever; and
/// they find as many winning moves as a search in one thread.
const IN_FLIGHT: u32 = 32;
/// What may be kept at one worker for another. Rollouts under way bound it anyway: 64 workers have 2048, of some hundred bytes each.
const OVERFLOW_BYTES: usize = 64 << 20;

impl<'w> OnJob<'w> {
    /// Prepares the workers for searches. All workers of the job call this, in the same order as other collectives.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`] and [`Dist::new`]; it takes one of the job's per-worker values.
    pub fn new(me: &'w Worker) -> farside::Result<Self> {
        let visits = (INHERIT_VISITS_SHARED / me.worker_count()).min(INHERIT_VISITS_MAX);
        let placement = Placement::Inherit { visits };
        let settings = Settings {
            costs: Costs::default(),
            placement,
            sharing: Sharing::Worker,
            force_remote: false,
            replicas: None,
            pace: Pace::Continuous,
            in_flight: IN_FLIGHT,
            aggregation: Aggregation::Overflow { limit_bytes: OVERFLOW_BYTES },
        };
        let desk = PerWorker::new(me, RefCell::default())?;
        Ok(Self { me, desk, commons: Dist::new(me, Shelf::default)?, settings })
    }

    /// Who owns new nodes. By default a child stays with its parent until that has 4000 visits; with more than four workers,
    /// 16,000 divided by their number.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.settings.placement = placement;
        self
    }

    /// Who touches nodes. By default their owners alone.
    ///
    /// Shared nodes spare messages inside a process, and cost what cache lines cost that several CPUs write. The same seed gives
    /// the same search only with one worker of a process, and another one than with nodes of its own.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.settings.sharing = sharing;
        self
    }

    /// Has workers that share their nodes go to those of another owner by message all the same, as if he were in another
    /// process; to compare.
    #[must_use]
    pub fn force_remote(mut self, force: bool) -> Self {
        self.settings.force_remote = force;
        self
    }

    /// Has nodes that are visited very often copied to all workers, or not, which is the default.
    ///
    /// With copies of the root every worker starts rollouts, and the owners of nodes that all rollouts go through are no
    /// bottleneck. In return what a copy knows is a few visits behind. Nodes that are [shared](Self::sharing) are not copied.
    #[must_use]
    pub fn replicas(mut self, replicas: impl Into<Option<Replicas>>) -> Self {
        self.settings.replicas = replicas.into();
        self
    }

    /// How a run goes on. By default without a pause.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.settings.pace = pace;
        self
    }

    /// How many rollouts may be under way at once, for each worker of the job (0 counts as 1). Default 32.
    ///
    /// Fewer make better use of what the rollouts before have found, more keep the workers busy.
    #[must_use]
    pub fn in_flight(mut self, rollouts: u32) -> Self {
        self.settings.in_flight = rollouts.max(1);
        self
    }

    /// In a simulation: charges workers for what they compute. Otherwise this does nothing.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> Self {
        self.settings.costs = costs;
        self
    }

    /// How messages are published: always in batches (which also go when a worker has done a few steps), or, which is the default, each at
    /// once as long as its way takes it.
    ///
    /// On shared memory that makes no difference that could be measured: what a message costs is that two CPUs touch the
    /// same line, and they do so once for several messages anyway.
    #[must_use]
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.settings.aggregation = aggregation;
        self
    }
}

impl<G: Game + Clone> Search<G, OnJob<'_>> {
    /// Searches the best move for the side to move in `state`, together with all workers of the job.
    ///
    /// All workers call this with the same game, state, parameters and budget, in the same order as other collectives,
    /// and all get the same report. The memory limit is divided among them. Worker 0 owns the root, keeps time, and is
    /// the one whose [observer](Self::observe) is shown interim reports; of nodes, memory, games and depth these count only
    /// its own share.
    ///
    /// With one worker the same seed and budget of rollouts give the same report, apart from the time it took. With
    /// several they do not, as it depends on who is quicker.
    ///
    /// *Cost*: besides the search two barriers' worth of messages. While a worker has nothing to do, it sleeps.
    ///
    /// # Errors
    /// [`JobError::Search`] if the game is over, or the budget or a parameter makes no sense; the same on all workers.
    /// [`JobError::Job`] with [`PeerLost`](farside::Error::PeerLost) as soon as any process of the job is gone, and with
    /// whatever else keeps workers from talking to each other. [`JobError::Mismatch`] if they did not agree on what to
    /// search.
    pub fn run(&mut self, state: &G::State, budget: Budget) -> Result<Report<G::Move>, JobError> {
        let address = self.open(state)?;
        let report = self.search(address, 0, budget);
        address.close(self.place.me, self.place.commons.here(self.place.me));
        report
    }

    /// Takes a seat for a search of this position.
    fn open(&self, state: &G::State) -> Result<Address, JobError> {
        let OnJob { me, desk, commons, settings } = self.place;
        let count = me.threads_per_process();
        let team = Team { first: WorkerId::new(me.id().number() / count * count), count };
        let place = Place { me: me.id(), workers: me.worker_count(), team };
        let search = desk.here(me).borrow().next_search()?;
        let share = |make: &dyn Fn() -> Commons<G>| commons.here(me).of_search(search, || Arc::new(make()));
        let part = Part::new(self.game.clone(), &self.params, settings, state, place, share)?;
        let address = Address::open(me, desk, part);
        if settings.sharing == Sharing::Process {
            // Everybody has found it before the next search can take its place.
            me.barrier()?;
        }
        Ok(address)
    }

    /// Searches on from a root that has been visited so often.
    fn search(&mut self, address: Address, kept: u64, budget: Budget) -> Result<Report<G::Move>, JobError> {
        let me = self.place.me;
        let rollouts_max = budget.rollouts_max(kept)?;
        at(me, address, |seat: &mut Seat<G>| seat.begin(rollouts_max));
        // Nobody sends before everybody has a part to receive it.
        me.barrier()?;
        let (start, sent_before) = (me.now(), me.counters().sent);
        self.serve_phases(address, budget, start)?;
        let elapsed = me.now() - start;
        let report = finish::report::<G>(me, address, &sent_before, elapsed)?;
        Ok(report.expect("a rollout was made, or the root proven by an earlier one"))
    }
}
