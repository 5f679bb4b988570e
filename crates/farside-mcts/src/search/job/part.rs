//! One worker's part in a search: its nodes, the rollouts that are with it, and what it does with them.
//!
//! Nothing here sends, waits or looks at a clock: messages come in as method calls and go out through a
//! [`Post`]. So a whole search runs in one thread if need be, in whatever order a test likes.

mod advance;
mod births;
mod commons;
mod copies;
mod down;
mod entries;
mod neighbours;
mod source;
mod up;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::{Aggregation, WorkerId};

use self::advance::Keeping;
use self::births::Births;
use self::commons::lock;
use self::copies::Copies;
use self::entries::{Entries, Entry};
use self::neighbours::Neighbours;
use self::source::Source;
use super::message::{BirthId, Descend, EntryId, Evaluate, Post, Spare};
use super::trails::Trails;
use super::{Costs, Placement, Settings, Sharing};
use crate::game::Game;
use crate::rng::Rng;
use crate::search::report::Tally;
use crate::search::{Params, SearchError, root_moves};
use crate::tree::{Lead, Look, NodeId, Nodes, Rules, SharedTree, Step, Tree};

pub(super) use self::advance::Whereabouts;
pub(super) use self::commons::{Commons, Team};
pub(super) use self::source::Root;

/// Where an edge leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// To a node of the same worker.
    Here(NodeId),
    /// To a node of another.
    There(WorkerId, EntryId),
    /// To a node that another worker is making.
    Awaited(BirthId),
    /// Nowhere: a worker had no room for a node.
    Leaf,
}

impl Lead for Link {
    fn here(self) -> Option<NodeId> {
        match self {
            Self::Here(node) => Some(node),
            _ => None,
        }
    }

    fn renumbered(self, new: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self> {
        match self {
            Self::Here(node) => new(node).map(Self::Here),
            // There may be room now.
            Self::Leaf => None,
            other => Some(other),
        }
    }
}

/// One worker's part.
pub(super) struct Part<G: Game> {
    game: G,
    params: Params,
    settings: Settings,
    me: WorkerId,
    tree: Nodes<G::Move, Link>,
    /// The workers of this process.
    team: Team,
    /// Where these share their nodes.
    commons: Option<Arc<Commons<G>>>,
    entries: Entries<G::State>,
    births: Arc<Mutex<Births<G::State>>>,
    trails: Trails,
    tasks: VecDeque<Task<G::State>>,
    neighbours: Neighbours,
    /// This worker has said that it has nothing to do, and was not answered since.
    has_said_spare: bool,
    /// It had nothing to do when it looked last.
    was_idle: bool,
    /// Worker 0 has it.
    root: Option<Root<G::State>>,
    /// The name by which others know the root, once they have copies of it.
    root_entry: Option<EntryId>,
    /// Another worker that may start rollouts has this.
    source: Option<Source<G::State>>,
    copies: Copies,
    rng: Rng,
    /// The steps of the rollout that is being made or completed.
    path: Vec<Step>,
    /// Scratch space.
    moves: Vec<G::Move>,
    deeds: Deeds,
    /// What stays, while the tree gets a new root.
    keeping: Option<Keeping>,
    /// What a message named that does not exist.
    mismatch: Option<&'static str>,
}

/// Which worker a part is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) me: WorkerId,
    /// Of the job.
    pub(super) workers: u32,
    pub(super) team: Team,
}

/// What came and is not done yet.
#[derive(Debug)]
enum Task<S> {
    Descend(Descend),
    Evaluate(Evaluate<S>),
}

/// What a worker did, besides what its tree knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deeds {
    pub(super) tally: Tally,
    /// Steps of selection.
    pub(super) steps: u64,
    /// Leaves evaluated by random games.
    pub(super) evaluations: u64,
    pub(super) deferred: u64,
    pub(super) given_away: u64,
}

/// One part in so many of a worker's memory is for entries. They take a tenth of what Hex needs for nodes.
const ENTRY_SHARE: usize = 8;

impl<G: Game> Part<G> {
    /// The part of one worker.
    ///
    /// # Errors
    /// The same on every worker.
    pub(super) fn new(
        game: G,
        params: &Params,
        mut settings: Settings,
        state: &G::State,
        Place { me, workers, team }: Place,
        share: impl FnOnce(&dyn Fn() -> Commons<G>) -> Arc<Commons<G>>,
    ) -> Result<Self, SearchError> {
        params.check()?;
        let mut moves = root_moves(&game, state)?;
        let share_bytes = params.memory_bytes / workers as usize;
        let entry_bytes = if workers > 1 { share_bytes / ENTRY_SHARE } else { 0 };
        let rules = Rules { memory_bytes: share_bytes - entry_bytes, ..params.rules() };
        let team_rules = Rules { memory_bytes: rules.memory_bytes * team.count as usize, ..rules };
        let is_root = me.number() == 0;
        let mut rng = Rng::stream(params.seed, u64::from(me.number()));
        let is_shared = settings.sharing == Sharing::Process;
        // Whether there is room for the root is to be known everywhere.
        let fits = match is_shared {
            true => SharedTree::<_, Link>::new(team_rules).could_begin(&moves),
            false => Tree::<_, Link>::new(rules).could_begin(&moves),
        };
        if !fits {
            return Err(SearchError::Memory { bytes: params.memory_bytes });
        }
        let commons = is_shared.then(|| {
            settings.replicas = None;
            let root = team.is_first().then(|| (game.to_move(state), &moves[..]));
            share(&|| Commons::new(team_rules, root, Rng::new(params.seed)))
        });
        let mut tree = match &commons {
            Some(commons) => Nodes::Shared(Arc::clone(&commons.tree)),
            None => Nodes::Own(Tree::new(rules)),
        };
        let node = match &commons {
            Some(commons) => *lock(&commons.root),
            None if is_root => tree.add(game.to_move(state), &mut moves, &mut rng),
            None => None,
        };
        let births = match &commons {
            Some(commons) => Arc::clone(&commons.births),
            None => Arc::new(Mutex::new(Births::new())),
        };
        let mut part = Self {
            game,
            params: *params,
            settings,
            me,
            tree,
            team,
            commons,
            entries: Entries::new(entry_bytes),
            births,
            trails: Trails::default(),
            tasks: VecDeque::new(),
            neighbours: Neighbours::new(me, workers),
            has_said_spare: false,
            was_idle: false,
            root: None,
            root_entry: None,
            source: None,
            copies: Copies::default(),
            rng,
            path: Vec::new(),
            moves,
            deeds: Deeds::default(),
            keeping: None,
            mismatch: None,
        };
        if let Some(node) = node {
            part.take_root(node, state);
        }
        Ok(part)
    }

    /// Begins at this node from now on: worker 0 with the budget, others who share it with what they are granted.
    fn take_root(&mut self, node: NodeId, state: &G::State) {
        if self.me.number() == 0 {
            let root = Root::new(node, state.clone(), self.neighbours.count());
            self.root = Some(if self.is_shared() { root.started_by(self.team) } else { root });
        } else {
            self.source = Some(Source::new(node, state.clone()));
        }
    }

    /// Whether other workers of this process change the same nodes.
    pub(super) fn is_shared(&self) -> bool {
        self.commons.is_some()
    }

    /// Begins a run of so many rollouts.
    pub(super) fn begin(&mut self, rollouts: u64) {
        self.deeds = Deeds::default();
        (self.has_said_spare, self.was_idle) = (false, false);
        self.neighbours.forget_spare();
        if let Some(root) = &mut self.root {
            let is_proven = self.tree.proof(root.node).is_some();
            root.begin(u64::from(self.tree.visits(root.node)), if is_proven { 0 } else { rollouts });
        }
    }

    /// Whether [`work`](Self::work) has anything to do.
    pub(super) fn has_work(&self) -> bool {
        !self.tasks.is_empty() || self.may_start() || self.may_grant()
    }

    /// Does one thing: goes on with what came, or else starts a rollout. If there is nothing, says so to a worker that may
    /// have too much, and returns `false`.
    pub(super) fn work(&mut self, post: &mut impl Post<G>) -> bool {
        let was_idle = std::mem::replace(&mut self.was_idle, false);
        if let Some(task) = self.tasks.pop_front() {
            self.resume(task, post);
        } else if self.may_grant() {
            self.grant(post);
        } else if self.may_start() {
            self.start(post);
        } else {
            self.was_idle = true;
            if !was_idle {
                self.say_spare(post);
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
                    if self.is_hot(node) && !self.copies.is_given(entry) {
                        self.replicate(entry, false, post);
                    }
                    self.descend(node, state, Some(back), depth, post);
                }
                None => self.mismatch = Some("a node"),
            },
            Task::Evaluate(Evaluate { state, back, is_answer }) => {
                self.has_said_spare &= !is_answer;
                let sample = self.simulate(&state);
                self.send_back(back, sample, post);
            }
        }
    }

    // Sharing the work.

    /// Who is to own a new child of this node.
    fn choose_owner(&mut self, parent: NodeId) -> WorkerId {
        let inherits = match self.settings.placement {
            Placement::Random => false,
            Placement::Inherit { visits } => self.tree.visits(parent) <= visits,
        };
        if inherits || self.neighbours.count() == 1 {
            return self.me;
        }
        let owner = WorkerId::new(self.rng.below(self.neighbours.count()));
        // Where nodes are shared, a worker makes them for the others of its process.
        let is_here = self.is_shared() && self.team.has(owner) && !self.settings.force_remote;
        if !is_here && self.neighbours.takes_nodes(owner) { owner } else { self.me }
    }

    /// Who is to evaluate a leaf instead of this worker, if somebody has nothing better to do; and whether he has said so.
    fn choose_helper(&mut self) -> Option<(WorkerId, bool)> {
        let enough = self.enough();
        if self.neighbours.count() == 1 || self.root.is_none() && self.tasks.is_empty() {
            return None;
        }
        if let Some(spare) = self.neighbours.take_spare() {
            return Some((spare, true));
        }
        // There is always more where the root is.
        let root = self.root.as_ref()?;
        let idle = self.neighbours.find_idle(enough).filter(|worker| !root.has_granted(*worker))?;
        Some((idle, false))
    }

    /// With so many rollouts a worker does not run dry before new ones come.
    fn enough(&self) -> u32 {
        (self.settings.in_flight / 4 * 3).max(1)
    }

    /// There is nothing to do here: asks for something, and no longer keeps to itself who else did.
    fn say_spare(&mut self, post: &mut impl Post<G>) {
        if self.root.is_none() {
            while let Some(worker) = self.neighbours.take_spare() {
                post.spare(WorkerId::new(0), Spare { worker });
            }
        }
        if self.neighbours.count() == 1 || self.has_said_spare {
            return;
        }
        let told = match self.root {
            Some(_) => self.neighbours.find_busiest_but(self.me, self.enough()),
            // Who starts rollouts sees for himself where they pile up.
            None => self.neighbours.find_busiest_but(self.me, self.enough() / 4).or(Some(WorkerId::new(0))),
        };
        if let Some(told) = told {
            self.has_said_spare = true;
            post.spare(told, Spare { worker: self.me });
        }
    }

    /// A worker has nothing to do. Worker 0 sends that on to whoever has the most.
    pub(super) fn receive_spare(&mut self, message: Spare, post: &mut impl Post<G>) {
        if message.worker.number() >= self.neighbours.count() {
            self.mismatch = Some("a worker");
            return;
        }
        if message.worker == self.me {
            // Nobody had anything to give away.
            self.has_said_spare = false;
            return;
        }
        let busiest = self.neighbours.find_busiest_but(message.worker, self.enough());
        match busiest.filter(|_| self.root.is_some()) {
            Some(busiest) => post.spare(busiest, message),
            None => self.neighbours.add_spare(message.worker),
        }
    }

    // What came of it.

    pub(super) fn tree(&self) -> &Nodes<G::Move, Link> {
        &self.tree
    }

    /// Nodes that this worker owns; the first of those who share them counts them for all.
    pub(super) fn node_count(&self) -> usize {
        if self.counts_nodes() { self.tree.node_count() - self.copies.len() } else { 0 }
    }

    pub(super) fn tree_bytes(&self) -> usize {
        if self.counts_nodes() { self.tree.bytes() + self.entries.bytes() } else { self.entries.bytes() }
    }

    fn counts_nodes(&self) -> bool {
        !self.is_shared() || self.me == self.team.first
    }

    pub(super) fn root(&self) -> Option<&Root<G::State>> {
        self.root.as_ref()
    }

    pub(super) fn root_mut(&mut self) -> Option<&mut Root<G::State>> {
        self.root.as_mut()
    }

    pub(super) fn deeds(&self) -> Deeds {
        self.deeds
    }

    /// What is charged for what was done since, in a simulation.
    pub(super) fn cost_since(&self, before: Deeds) -> Duration {
        let Costs { step, evaluation } = self.settings.costs;
        step * (self.deeds.steps - before.steps) as u32
            + evaluation * (self.deeds.evaluations - before.evaluations) as u32
    }

    pub(super) fn mismatch(&self) -> Option<&'static str> {
        self.mismatch
    }

    pub(super) fn aggregation(&self) -> Aggregation {
        self.settings.aggregation
    }

    /// Appends the best move, the best answer, and so on, as far as this worker's nodes go. Says where it goes on.
    pub(super) fn follow(&self, entry: Option<EntryId>, line: &mut Vec<G::Move>) -> Option<(WorkerId, EntryId)> {
        let mut node = match entry {
            Some(entry) => self.entries.get(entry)?.node,
            None => self.root.as_ref()?.node,
        };
        while let Some(edge) = self.tree.best(node) {
            line.push(edge.chosen);
            match edge.child {
                // A copy may be behind.
                Some(Link::Here(child)) => match self.copies.original(child) {
                    Some(original) => return Some(original),
                    None => node = child,
                },
                Some(Link::There(owner, entry)) => return Some((owner, entry)),
                Some(Link::Awaited(_) | Link::Leaf) | None => return None,
            }
        }
        None
    }

    /// The node of an entry.
    #[cfg(test)]
    pub(super) fn node_of(&self, entry: EntryId) -> Option<NodeId> {
        self.entries.get(entry).map(|entry| entry.node)
    }

    /// Whether nothing is left of any rollout.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && lock(&self.births).len() == 0 && self.trails.len() == 0
    }
}
