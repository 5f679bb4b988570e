//! One worker's part in a search: its nodes, its rollouts, and what it does with them.
//!
//! Nothing here sends, blocks or reads a clock: messages arrive through
//! [`Message::receive`](super::message::Message::receive) and leave through a [`Post`]. So a test
//! can run a whole search in one thread, and deliver messages in any order.

mod advance;
mod balance;
mod births;
mod entries;
mod neighbours;
mod rollout;
mod root;

use std::collections::VecDeque;
use std::time::Duration;

use farside::{Aggregation, WorkerId};

use self::advance::Keeping;
use self::births::Births;
use self::entries::{Entries, Entry};
use self::neighbours::Neighbours;
use super::message::{BirthId, Descend, EntryId, Evaluate, Post};
use super::trails::Trails;
use super::{Costs, Settings};
use crate::game::Game;
use crate::rng::Rng;
use crate::search::report::Tally;
use crate::search::{Params, SearchError, root_moves};
use crate::tree::{EdgeTarget, NodeId, Rules, Step, Tree};

pub(super) use self::advance::{Uprooted, Whereabouts};
pub(super) use self::root::Root;

/// The target of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A node of the same worker.
    Here(NodeId),
    /// A node of another worker.
    There(WorkerId, EntryId),
    /// A node that another worker is making.
    Awaited(BirthId),
    /// No node: the outcome is proven, or a worker had no memory for a node.
    Leaf,
}

impl EdgeTarget for Link {
    fn here(self) -> Option<NodeId> {
        match self {
            Self::Here(node) => Some(node),
            _ => None,
        }
    }

    fn renumbered(self, new: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self> {
        match self {
            Self::Here(node) => new(node).map(Self::Here),
            // A new root frees memory, so a node may be possible now.
            Self::Leaf => None,
            other => Some(other),
        }
    }
}

/// One worker's part in a search.
pub(super) struct Part<G: Game> {
    game: G,
    params: Params,
    settings: Settings,
    me: WorkerId,
    tree: Tree<G::Move, Link>,
    entries: Entries<G::State>,
    births: Births<G::State>,
    trails: Trails,
    tasks: VecDeque<Task<G::State>>,
    neighbours: Neighbours,
    /// True if the last call of [`work`](Self::work) found nothing to do.
    was_idle: bool,
    /// The root, at worker 0.
    root: Option<Root<G::State>>,
    rng: Rng,
    /// The steps of the current rollout.
    path: Vec<Step>,
    /// Scratch space.
    moves: Vec<G::Move>,
    counters: Counters,
    /// The nodes to keep, while the root changes.
    keeping: Option<Keeping>,
    /// A thing that a message named and this part does not have.
    mismatch: Option<&'static str>,
}

/// A message that waits for its turn.
#[derive(Debug)]
enum Task<S> {
    Descend(Descend),
    Evaluate(Evaluate<S>),
}

/// Counters of one worker's work in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) tally: Tally,
    /// Steps of selection.
    pub(super) steps: u64,
    /// Leaves evaluated by random games.
    pub(super) evaluations: u64,
    /// Rollouts that waited for a node.
    pub(super) deferred: u64,
    /// Leaves that other workers evaluated.
    pub(super) given_away: u64,
}

/// Divisor of a worker's memory: the quotient is for entries. They take a tenth of what nodes of
/// Hex take.
const ENTRY_SHARE: usize = 8;

impl<G: Game> Part<G> {
    /// Returns the part of worker `me` of `workers`.
    ///
    /// # Errors
    /// As for [`Search::run`](crate::Search::run); the same on every worker.
    pub(super) fn new(
        game: G,
        params: &Params,
        settings: Settings,
        state: &G::State,
        me: WorkerId,
        workers: u32,
    ) -> Result<Self, SearchError> {
        params.check()?;
        let moves = root_moves(&game, state)?;
        let share_bytes = params.memory_bytes / workers as usize;
        let entry_bytes = if workers > 1 { share_bytes / ENTRY_SHARE } else { 0 };
        let mut tree = Tree::new(Rules { memory_bytes: share_bytes - entry_bytes, ..params.rules() });
        // Every worker checks whether there is memory for the root, so that all return the same
        // error.
        if !tree.could_begin(&moves) {
            return Err(SearchError::Memory { bytes: params.memory_bytes });
        }
        let mut root = None;
        if me.number() == 0 {
            root = tree.add(game.to_move(state), &moves).map(|node| Root::new(node, state.clone()));
        }
        Ok(Self {
            game,
            params: *params,
            settings,
            me,
            tree,
            entries: Entries::new(entry_bytes),
            births: Births::new(),
            trails: Trails::default(),
            tasks: VecDeque::new(),
            neighbours: Neighbours::new(me, workers),
            was_idle: false,
            root,
            rng: Rng::stream(params.seed, u64::from(me.number())),
            path: Vec::new(),
            moves,
            counters: Counters::default(),
            keeping: None,
            mismatch: None,
        })
    }

    /// Begins a run with a budget of `rollouts`.
    pub(super) fn begin(&mut self, rollouts: u64) {
        self.counters = Counters::default();
        self.was_idle = false;
        self.neighbours.begin();
        if let Some(root) = &mut self.root {
            let is_proven = self.tree.proof(root.node).is_some();
            root.begin(u64::from(self.tree.visits(root.node)), if is_proven { 0 } else { rollouts });
        }
    }

    /// Returns whether [`work`](Self::work) has anything to do.
    pub(super) fn has_work(&self) -> bool {
        !self.tasks.is_empty() || self.may_start()
    }

    /// Does one task, or else starts a rollout. If neither is possible, asks another worker for
    /// work and returns `false`.
    pub(super) fn work(&mut self, post: &mut impl Post<G>) -> bool {
        let was_idle = std::mem::replace(&mut self.was_idle, false);
        if let Some(task) = self.tasks.pop_front() {
            self.resume(task, post);
        } else if self.may_start() {
            self.start(post);
        } else {
            self.was_idle = true;
            if !was_idle {
                self.ask_for_work(post);
            }
            return false;
        }
        true
    }

    fn resume(&mut self, task: Task<G::State>, post: &mut impl Post<G>) {
        match task {
            Task::Descend(Descend { entry, back, depth }) => match self.entries.get(entry) {
                Some(Entry { node, state }) => {
                    let (node, state) = (*node, state.clone());
                    self.descend(node, state, Some(back), depth, post);
                }
                None => self.mismatch = Some("a node"),
            },
            Task::Evaluate(Evaluate { state, back, is_answer }) => {
                self.neighbours.has_asked &= !is_answer;
                let sample = self.simulate(&state);
                self.send_back(back, sample, post);
            }
        }
    }

    /// Sets the exploration constant, if it is one.
    pub(super) fn set_exploration(&mut self, exploration: f32) {
        if exploration.is_finite() && exploration >= 0.0 {
            self.tree.set_exploration(exploration);
        }
    }

    pub(super) fn me(&self) -> WorkerId {
        self.me
    }

    /// The nodes that other workers know, and their numbers there.
    pub(super) fn known_nodes(&self) -> impl Iterator<Item = (EntryId, NodeId)> {
        self.entries.iter()
    }

    pub(super) fn tree(&self) -> &Tree<G::Move, Link> {
        &self.tree
    }

    pub(super) fn tree_bytes(&self) -> usize {
        self.tree.bytes() + self.entries.bytes()
    }

    pub(super) fn root(&self) -> Option<&Root<G::State>> {
        self.root.as_ref()
    }

    pub(super) fn root_mut(&mut self) -> Option<&mut Root<G::State>> {
        self.root.as_mut()
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the simulated duration of the work since `before`.
    pub(super) fn cost_since(&self, before: Counters) -> Duration {
        let Costs { step, evaluation } = self.settings.costs;
        step * (self.counters.steps - before.steps) as u32
            + evaluation * (self.counters.evaluations - before.evaluations) as u32
    }

    pub(super) fn mismatch(&self) -> Option<&'static str> {
        self.mismatch
    }

    pub(super) fn aggregation(&self) -> Aggregation {
        self.settings.aggregation
    }

    /// Appends the expected line of play from a node, or from the root, as far as this worker's
    /// nodes go. Returns the next node, if another worker owns it.
    pub(super) fn follow(&self, entry: Option<EntryId>, line: &mut Vec<G::Move>) -> Option<(WorkerId, EntryId)> {
        let mut node = match entry {
            Some(entry) => self.entries.get(entry)?.node,
            None => self.root.as_ref()?.node,
        };
        while let Some(edge) = self.tree.best(node) {
            line.push(edge.chosen);
            match edge.child {
                Some(Link::Here(child)) => node = child,
                Some(Link::There(owner, entry)) => return Some((owner, entry)),
                Some(Link::Awaited(_) | Link::Leaf) | None => return None,
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn node_of(&self, entry: EntryId) -> Option<NodeId> {
        self.entries.get(entry).map(|entry| entry.node)
    }

    /// Returns whether no trace of a rollout is left outside the tree.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.births.len() == 0 && self.trails.len() == 0
    }
}
