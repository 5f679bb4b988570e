//! Seriema's search of Hex (§5.3.2), for its Figure 3.
//!
//! All workers of a process share its nodes, with virtual loss. A random worker owns each new node.
//! The workers of worker 0's process start rollouts, in phases of up to 4096 for each worker of the
//! job. A rollout moves to the owner of the next node by a call, unless that node is in the same
//! process.
//!
//! The library's search differs: each worker owns its nodes alone, and worker 0 starts all rollouts
//! without phases. It also proves outcomes, which this one does not.

mod tree;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farside::{Aggregation, Dist, PerWorker, WhenFull, Wire, Worker, WorkerId};
use farside_mcts::games::hex::{Cell, Position, black_wins};
use farside_mcts::{Costs, Params, Player, Rng};

use self::tree::{EdgeId, Link, Tree};

/// Rollouts of a phase for each worker of the job.
const PHASE_ROLLOUTS: u64 = 4096;
/// Rollouts in flight for each worker of the job, as in the library's search.
const IN_FLIGHT: u64 = 32;
/// Steps between two polls for messages.
const STEPS_PER_TURN: usize = 8;
/// Maximum wait for a message.
const WAIT_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// A search on all workers of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seriema<'w> {
    me: &'w Worker,
    shared: Dist<Shared>,
    own: PerWorker<RefCell<Own>>,
    aggregation: Aggregation,
    costs: Costs,
    force_remote: bool,
}

/// The result of a search, the same on all workers.
#[derive(Clone, Copy, Debug, Wire)]
pub(crate) struct Found {
    /// The move with the most visits.
    pub(crate) best: Option<Cell>,
    pub(crate) figures: Figures,
}

/// The work of the workers. Worker 0 has the sum.
#[derive(Clone, Copy, Debug, Default, Wire)]
pub(crate) struct Figures {
    pub(crate) rollouts: u64,
    /// Steps of selection, which Seriema calls visits.
    pub(crate) steps: u64,
    /// Random games, which Seriema calls completions.
    pub(crate) simulations: u64,
    /// Calls between workers.
    pub(crate) messages: u64,
    /// Moves from the root to the deepest leaf.
    pub(crate) max_depth: u32,
}

/// The tree of a process. The first worker of the process replaces it for each search.
#[derive(Debug, Default)]
struct Shared {
    tree: Mutex<Option<Arc<Tree>>>,
}

/// The state of a worker.
#[derive(Debug, Default)]
struct Own {
    /// Messages that wait for their turn.
    tasks: VecDeque<Message>,
    trails: Vec<Trail>,
    free: Vec<u32>,
    /// Steps of the current rollout.
    path: Vec<EdgeId>,
    /// Rollouts of this phase that this worker starts.
    quota: u64,
    started: u64,
    completed: u64,
    /// At worker 0: workers that have completed their quota.
    finished: u32,
    is_over: bool,
    received: u64,
    figures: Figures,
}

/// The steps that a rollout made at a worker before it moved on.
#[derive(Debug, Default)]
struct Trail {
    steps: Vec<EdgeId>,
    back: Option<Return>,
}

/// The next destination of a result on its way to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
struct Return {
    to: WorkerId,
    trail: u32,
}

/// The way of a rollout so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
struct Arrival {
    back: Return,
    /// Number of moves from the root.
    depth: u32,
}

#[derive(Clone, Copy, Debug, Wire)]
enum Message {
    /// Continue selection from a node.
    Descend { node: u32, from: Arrival },
    /// Make a node for an edge of the sender, and continue selection from there.
    Expand { position: Position, edge: EdgeId, from: Arrival },
    /// The node of an edge is made.
    Expanded { edge: EdgeId, owner: WorkerId, node: u32 },
    /// A rollout has ended with this number of black's wins.
    BackUp { trail: u32, black_wins: u32 },
    /// A worker has completed its quota.
    Finished,
    /// The phase is over.
    Over,
}

impl<'w> Seriema<'w> {
    /// Prepares the workers. All workers of the job call this.
    pub(crate) fn new(me: &'w Worker, aggregation: Aggregation) -> farside::Result<Self> {
        let (shared, own) = (Dist::new(me, Shared::default)?, PerWorker::new(me, RefCell::default())?);
        Ok(Self { me, shared, own, aggregation, costs: Costs::default(), force_remote: false })
    }

    /// Sends all expansions to the chosen owner by a call, also within a process.
    pub(crate) fn force_remote(self, force_remote: bool) -> Self {
        Self { force_remote, ..self }
    }

    /// Sets the simulated durations of computations.
    pub(crate) fn costs(self, costs: Costs) -> Self {
        Self { costs, ..self }
    }

    /// Searches a position by `rollouts`, together with all workers of the job.
    pub(crate) fn run(&self, position: &Position, rollouts: u64, params: &Params) -> farside::Result<Found> {
        let me = self.me;
        let threads = me.threads_per_process();
        let number = me.id().number();
        let mut rng = Rng::stream(params.seed, u64::from(number));
        if number.is_multiple_of(threads) {
            let tree = Tree::new(params.simulations, params.exploration);
            if number == 0 {
                tree.add(position, &mut rng);
            }
            *self.shared.here(me).tree.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tree));
        }
        *self.own.here(me).borrow_mut() = Own::default();
        // All workers have their state before any sends a message.
        me.barrier()?;
        let tree = self.shared.here(me).tree.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let tree = tree.expect("the first worker of the process has made it");
        let mut turn = Turn { search: *self, tree: &tree, position, params, rng, sent: Ok(()) };
        let mut left = rollouts;
        while left > 0 {
            let phase = left.min(PHASE_ROLLOUTS * u64::from(me.worker_count()));
            turn.serve(phase)?;
            left -= phase;
            me.barrier()?;
        }
        self.settle()?;
        let figures = self.own.here(me).borrow().figures;
        let figures = me.all_reduce(figures, |one, other| Figures {
            rollouts: one.rollouts + other.rollouts,
            steps: one.steps + other.steps,
            simulations: one.simulations + other.simulations,
            messages: one.messages + other.messages,
            max_depth: one.max_depth.max(other.max_depth),
        })?;
        let best = me.broadcast(WorkerId::new(0), (number == 0).then(|| tree.best(0)))?;
        Ok(Found { best, figures })
    }

    /// Waits until all messages have arrived: an [`Message::Expanded`] may arrive after its rollout
    /// is complete. No worker sends any more, so the sums are equal only then.
    fn settle(&self) -> farside::Result<()> {
        loop {
            self.me.flush();
            self.me.progress()?;
            let counts = {
                let own = self.own.here(self.me).borrow();
                (own.figures.messages, own.received)
            };
            let (sent, received) = self.me.all_reduce(counts, |one, other| (one.0 + other.0, one.1 + other.1))?;
            if sent == received {
                return Ok(());
            }
        }
    }
}

/// The state of a worker within a search.
struct Turn<'a, 'w> {
    search: Seriema<'w>,
    tree: &'a Tree,
    position: &'a Position,
    params: &'a Params,
    rng: Rng,
    /// The first failure of a call.
    sent: farside::Result<()>,
}

impl Turn<'_, '_> {
    /// Takes part in a phase until all its rollouts are complete.
    fn serve(&mut self, rollouts: u64) -> farside::Result<()> {
        let me = self.search.me;
        let own = self.search.own.here(me);
        let (number, threads) = (me.id().number(), me.threads_per_process());
        let quota = match number < threads {
            true => (rollouts + u64::from(threads - 1 - number)) / u64::from(threads),
            false => 0,
        };
        {
            let mut own = own.borrow_mut();
            (own.quota, own.started, own.completed, own.finished, own.is_over) = (quota, 0, 0, 0, false);
        }
        me.barrier()?;
        if number < threads && quota == 0 {
            self.send(&mut own.borrow_mut(), WorkerId::new(0), Message::Finished);
        }
        loop {
            let before = own.borrow().figures;
            let steps = {
                let mut own = own.borrow_mut();
                (0..STEPS_PER_TURN).take_while(|_| self.step(&mut own)).count()
            };
            std::mem::replace(&mut self.sent, Ok(()))?;
            if steps > 0 {
                let done = own.borrow().figures;
                let Costs { step, evaluation } = self.search.costs;
                let evaluations = (done.simulations - before.simulations) / u64::from(self.params.simulations);
                me.charge(step * (done.steps - before.steps) as u32 + evaluation * evaluations as u32);
                me.flush();
                me.progress()?;
            } else if own.borrow().is_over {
                return Ok(());
            } else {
                me.wait_together(WAIT_MAX, || own.borrow().is_over || !own.borrow().tasks.is_empty())?;
            }
        }
    }

    /// Handles a message or starts a rollout. Returns `false` if there is nothing to do.
    fn step(&mut self, own: &mut Own) -> bool {
        if let Some(message) = own.tasks.pop_front() {
            self.handle(own, message);
            return true;
        }
        let starters = u64::from(self.search.me.threads_per_process());
        let in_flight_max = (IN_FLIGHT * u64::from(self.search.me.worker_count()) / starters).max(1);
        let may_start = own.started < own.quota && own.started - own.completed < in_flight_max;
        if may_start {
            own.started += 1;
            self.descend(own, 0, *self.position, None);
        }
        may_start
    }

    fn handle(&mut self, own: &mut Own, message: Message) {
        match message {
            Message::Descend { node, from } => self.descend(own, node, *self.tree.position(node), Some(from)),
            Message::Expand { position, edge, from } => {
                let node = self.tree.add(&position, &mut self.rng);
                let owner = self.search.me.id();
                self.send(own, from.back.to, Message::Expanded { edge, owner, node });
                self.descend(own, node, position, Some(from));
            }
            Message::Expanded { edge, owner, node } => {
                for from in self.tree.link(edge, Link::There(owner, node)) {
                    self.send(own, owner, Message::Descend { node, from });
                }
            }
            Message::BackUp { trail, black_wins } => {
                let Trail { steps, back } = std::mem::take(&mut own.trails[trail as usize]);
                own.free.push(trail);
                self.climb(own, &steps, back, black_wins);
            }
            Message::Finished => {
                own.finished += 1;
                if own.finished == self.search.me.threads_per_process() {
                    for worker in self.search.me.workers() {
                        self.send(own, worker, Message::Over);
                    }
                }
            }
            Message::Over => own.is_over = true,
        }
    }

    /// Selects down from a node, until the rollout moves to another worker or its result is on its
    /// way back.
    fn descend(&mut self, own: &mut Own, mut node: u32, mut position: Position, from: Option<Arrival>) {
        let me = self.search.me;
        let (back, mut depth) = from.map_or((None, 0), |Arrival { back, depth }| (Some(back), depth));
        own.path.clear();
        loop {
            let selected = self.tree.select(node);
            own.path.push(selected.id);
            own.figures.steps += 1;
            depth += 1;
            position.play(selected.cell);
            let mut link = selected.link;
            if link == Link::Awaited {
                let waiting = self.leave_trail(own, back);
                match self.tree.defer(selected.id, Arrival { back: waiting, depth }) {
                    Ok(()) => return,
                    Err(now) => {
                        link = now;
                        own.path = std::mem::take(&mut own.trails[waiting.trail as usize].steps);
                        own.free.push(waiting.trail);
                    }
                }
            }
            match link {
                Link::Here(child) => {
                    node = child;
                    continue;
                }
                Link::There(owner, child) => {
                    let from = Arrival { back: self.leave_trail(own, back), depth };
                    return self.send(own, owner, Message::Descend { node: child, from });
                }
                Link::Leaf | Link::Awaited => {}
            }
            let winner = position.winner();
            if winner.is_none() && selected.visit > self.params.expand_after && self.tree.claim(selected.id) {
                let owner = WorkerId::new(self.rng.below(me.worker_count()));
                let threads = me.threads_per_process();
                let is_near = owner.number() / threads == me.id().number() / threads;
                if owner != me.id() && (!is_near || self.search.force_remote) {
                    let from = Arrival { back: self.leave_trail(own, back), depth };
                    return self.send(own, owner, Message::Expand { position, edge: selected.id, from });
                }
                node = self.tree.add(&position, &mut self.rng);
                for from in self.tree.link(selected.id, Link::Here(node)) {
                    own.tasks.push_back(Message::Descend { node, from });
                }
                continue;
            }
            own.figures.max_depth = own.figures.max_depth.max(depth);
            let black_wins = match winner {
                Some(Player::First) => self.params.simulations,
                Some(Player::Second) => 0,
                None => {
                    own.figures.simulations += u64::from(self.params.simulations);
                    black_wins(&position, self.params.simulations, &mut self.rng)
                }
            };
            let steps = std::mem::take(&mut own.path);
            self.climb(own, &steps, back, black_wins);
            own.path = steps;
            return;
        }
    }

    /// Takes a result up the steps of a trail, and back to the sender of the rollout.
    fn climb(&mut self, own: &mut Own, steps: &[EdgeId], back: Option<Return>, black_wins: u32) {
        for &step in steps.iter().rev() {
            self.tree.back_up(step, black_wins);
        }
        if let Some(Return { to, trail }) = back {
            return self.send(own, to, Message::BackUp { trail, black_wins });
        }
        own.completed += 1;
        own.figures.rollouts += 1;
        if own.completed == own.quota {
            self.send(own, WorkerId::new(0), Message::Finished);
        }
    }

    /// Stores the steps of a rollout that moves on or waits.
    fn leave_trail(&mut self, own: &mut Own, back: Option<Return>) -> Return {
        let steps = std::mem::take(&mut own.path);
        let trail = own.free.pop().unwrap_or_else(|| {
            own.trails.push(Trail::default());
            own.trails.len() as u32 - 1
        });
        own.trails[trail as usize] = Trail { steps, back };
        Return { to: self.search.me.id(), trail }
    }

    fn send(&mut self, own: &mut Own, to: WorkerId, message: Message) {
        let Seriema { me, own: all, aggregation, .. } = self.search;
        if to == me.id() {
            own.tasks.push_back(message);
            return;
        }
        let receive = farside::remote!(|there, (all, message): (PerWorker<RefCell<Own>>, Message)| {
            let mut own = all.here(there).borrow_mut();
            own.received += 1;
            own.tasks.push_back(message);
        });
        // Dropping the batch would publish it, but more messages will follow.
        let batch = ManuallyDrop::new(me.aggregate(to).mode(aggregation).when_full(WhenFull::Queue));
        own.figures.messages += 1;
        if let Err(refused) = batch.call_remote((all, message), receive) {
            self.sent = Err(refused.error);
        }
    }
}

#[cfg(test)]
mod tests {
    use farside::simulate;
    use farside_mcts::Game;
    use farside_mcts::games::hex::Hex;

    use super::*;

    #[test]
    fn all_rollouts_come_back() {
        let shapes = [(3, 2, false), (1, 3, true), (1, 1, false)].into_iter();
        for (processes, threads, force_remote) in shapes.take(farside_testbed::scaled(1) as usize) {
            let search = |me: &Worker| {
                let mode = Aggregation::Overflow { limit_bytes: 1 << 20 };
                let search = Seriema::new(me, mode)?.force_remote(force_remote);
                let params = Params { simulations: 4, expand_after: 2, seed: 7, ..Params::default() };
                let hex = Hex::new(3).expect("a size that boards may have");
                // More than one phase, and a last one that is not full.
                let rollouts = PHASE_ROLLOUTS * u64::from(me.worker_count()) + 5;
                let Found { best, figures } = search.run(&hex.initial(), rollouts, &params)?;
                assert_eq!(figures.rollouts, rollouts);
                assert!(figures.steps > rollouts && figures.simulations > 0);
                assert_eq!(figures.messages > 0, me.worker_count() > 1);
                assert!(best.is_some());
                Ok(())
            };
            simulate(processes, threads, 5, search).unwrap();
        }
    }
}
