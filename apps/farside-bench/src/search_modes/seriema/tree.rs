//! The nodes that all workers of a process share (Seriema §5.3.2).
//!
//! Counters are relaxed atomics: they order nothing, and each change is one atomic addition. Links
//! publish nodes and say so.
//!
//! **Virtual loss:** a visit counts from its selection on, its wins only once it is complete. So a
//! visit in flight looks like a lost one, and workers spread over the moves.

use std::array;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use farside::{Wire, WorkerId};
use farside_mcts::games::hex::{Cell, Position};
use farside_mcts::{Player, Rng};

use super::Arrival;

/// An edge of a process's tree: a node and the index of its move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(super) struct EdgeId {
    pub(super) node: u32,
    pub(super) edge: u32,
}

/// The target of an edge, packed into a word of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// No node yet.
    Leaf,
    /// A node that a worker is making.
    Awaited,
    /// A node of this process.
    Here(u32),
    /// A node of another owner.
    There(WorkerId, u32),
}

/// The result of a selection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected {
    pub(super) id: EdgeId,
    pub(super) cell: Cell,
    /// The number of this visit of the edge, from 1.
    pub(super) visit: u32,
    pub(super) link: Link,
}

/// Edges of one group, made together when a selection tries the first of them.
const LANES: usize = 16;
/// Nodes of the first chunk. Each chunk has twice as many as the one before.
const FIRST_CHUNK: usize = 1 << 10;
/// Number of chunks, enough for 2^31 nodes.
const CHUNK_COUNT: usize = 21;

type Slot = OnceLock<Node>;

/// The tree of a process.
#[derive(Debug)]
pub(super) struct Tree {
    simulations: u32,
    exploration: f32,
    chunks: [OnceLock<Box<[Slot]>>; CHUNK_COUNT],
    count: AtomicU32,
    /// Rollouts that wait for the node of an edge (Seriema's deferred selection).
    deferred: Mutex<HashMap<EdgeId, Vec<Arrival>>>,
}

#[derive(Debug)]
struct Node {
    position: Position,
    /// In the order in which selections try them.
    moves: Box<[Cell]>,
    groups: Box<[OnceLock<Box<Group>>]>,
    tried: AtomicU32,
    visits: AtomicU32,
}

#[derive(Debug)]
struct Group {
    visits: [AtomicU32; LANES],
    /// Wins of the player to move, over complete visits.
    wins: [AtomicU64; LANES],
    /// Bits of the win rate and of 1 / √visits, which selection reads for every edge. Minus
    /// infinity before the edge was tried.
    value: [AtomicU32; LANES],
    rarity: [AtomicU32; LANES],
    /// Packed links.
    ///
    /// SYNC: a release store or exchange by the worker that sets the target; acquire loads by
    /// selections.
    links: [AtomicU64; LANES],
}

impl Tree {
    pub(super) fn new(simulations: u32, exploration: f32) -> Self {
        let chunks = [const { OnceLock::new() }; CHUNK_COUNT];
        Self { simulations, exploration, chunks, count: AtomicU32::new(0), deferred: Mutex::default() }
    }

    /// Adds a node, which tries its moves in random order.
    pub(super) fn add(&self, position: &Position, rng: &mut Rng) -> u32 {
        let mut moves: Box<[Cell]> = position.empty_cells().collect();
        rng.shuffle(&mut moves);
        let groups = (0..moves.len().div_ceil(LANES)).map(|_| OnceLock::new()).collect();
        let (tried, visits) = (AtomicU32::new(0), AtomicU32::new(0));
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let (chunk, place) = place_of(number);
        let slots = self.chunks[chunk].get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| OnceLock::new()).collect());
        // SYNC: setting the slot publishes the node; `node` reads the slot.
        let is_new = slots[place].set(Node { position: *position, moves, groups, tried, visits }).is_ok();
        assert!(is_new, "each number is used once");
        number
    }

    fn node(&self, number: u32) -> &Node {
        let (chunk, place) = place_of(number);
        self.chunks[chunk].get().and_then(|slots| slots[place].get()).expect("numbers belong to nodes")
    }

    pub(super) fn position(&self, number: u32) -> &Position {
        &self.node(number).position
    }

    /// Chooses an edge of a node by the UCB rule, untried ones first, and counts a visit of it.
    pub(super) fn select(&self, number: u32) -> Selected {
        let node = self.node(number);
        let edge = node.try_next().unwrap_or_else(|| node.highest_bound(self.exploration));
        let (group, lane) = node.edge(edge);
        node.visits.fetch_add(1, Ordering::Relaxed);
        let visit = group.visits[lane].fetch_add(1, Ordering::Relaxed) + 1;
        group.rate(lane, self.simulations);
        let link = unpack(group.links[lane].load(Ordering::Acquire));
        Selected { id: EdgeId { node: number, edge }, cell: node.moves[edge as usize], visit, link }
    }

    /// Completes a visit with black's wins.
    pub(super) fn back_up(&self, id: EdgeId, black_wins: u32) {
        let node = self.node(id.node);
        let (group, lane) = node.edge(id.edge);
        let is_black = node.position.to_move() == Player::First;
        let wins = if is_black { black_wins } else { self.simulations - black_wins };
        group.wins[lane].fetch_add(wins.into(), Ordering::Relaxed);
        group.rate(lane, self.simulations);
    }

    /// Marks a leaf as awaited. Returns `false` if another worker was first.
    pub(super) fn claim(&self, id: EdgeId) -> bool {
        let (group, lane) = self.node(id.node).edge(id.edge);
        let (leaf, awaited) = (pack(Link::Leaf), pack(Link::Awaited));
        group.links[lane].compare_exchange(leaf, awaited, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Sets the target of an edge. Returns the rollouts that waited for it.
    pub(super) fn link(&self, id: EdgeId, link: Link) -> Vec<Arrival> {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let (group, lane) = self.node(id.node).edge(id.edge);
        group.links[lane].store(pack(link), Ordering::Release);
        deferred.remove(&id).unwrap_or_default()
    }

    /// Lets a rollout wait for the target of an edge. Returns the target instead if it is set.
    pub(super) fn defer(&self, id: EdgeId, rollout: Arrival) -> Result<(), Link> {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let (group, lane) = self.node(id.node).edge(id.edge);
        // `link` sets the target under the same lock, so no waiting rollout is missed.
        match unpack(group.links[lane].load(Ordering::Acquire)) {
            Link::Awaited => {
                deferred.entry(id).or_default().push(rollout);
                Ok(())
            }
            link => Err(link),
        }
    }

    /// Returns the move of a node with the most visits.
    pub(super) fn best(&self, number: u32) -> Option<Cell> {
        let node = self.node(number);
        let visits = |edge: &u32| {
            let (group, lane) = node.edge(*edge);
            group.visits[lane].load(Ordering::Relaxed)
        };
        let edge = (0..node.tried.load(Ordering::Acquire)).max_by_key(visits)?;
        Some(node.moves[edge as usize])
    }
}

/// Returns the chunk of a node, and its place there.
fn place_of(number: u32) -> (usize, usize) {
    let from_first = number as usize + FIRST_CHUNK;
    let chunk = (from_first / FIRST_CHUNK).ilog2() as usize;
    (chunk, from_first - (FIRST_CHUNK << chunk))
}

impl Node {
    fn edge(&self, edge: u32) -> (&Group, usize) {
        let group = self.groups[edge as usize / LANES].get();
        (group.expect("a tried edge has its group"), edge as usize % LANES)
    }

    fn try_next(&self) -> Option<u32> {
        let mut edge = self.tried.load(Ordering::Acquire);
        while (edge as usize) < self.moves.len() {
            self.groups[edge as usize / LANES].get_or_init(|| Box::new(Group::new()));
            match self.tried.compare_exchange_weak(edge, edge + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(edge),
                Err(now) => edge = now,
            }
        }
        None
    }

    fn highest_bound(&self, exploration: f32) -> u32 {
        let weight = exploration * (self.visits.load(Ordering::Relaxed).max(1) as f32).ln().sqrt();
        let (mut best, mut chosen) = (f32::NEG_INFINITY, 0);
        for (index, group) in self.groups.iter().enumerate() {
            let Some(group) = group.get() else { break };
            let bounds = group.bounds(weight);
            let maximum = bounds.into_iter().fold(f32::NEG_INFINITY, f32::max);
            if maximum > best {
                let lane = bounds.into_iter().position(|bound| bound == maximum).unwrap_or(0);
                (best, chosen) = (maximum, (index * LANES + lane) as u32);
            }
        }
        chosen
    }
}

impl Group {
    fn new() -> Self {
        Self {
            visits: [const { AtomicU32::new(0) }; LANES],
            wins: [const { AtomicU64::new(0) }; LANES],
            value: [const { AtomicU32::new(f32::NEG_INFINITY.to_bits()) }; LANES],
            rarity: [const { AtomicU32::new(0) }; LANES],
            links: [const { AtomicU64::new(0) }; LANES],
        }
    }

    /// Updates what selection reads. If two workers do so at once, the next visit corrects the
    /// result.
    fn rate(&self, lane: usize, simulations: u32) {
        let visits = self.visits[lane].load(Ordering::Relaxed).max(1) as f32;
        let value = self.wins[lane].load(Ordering::Relaxed) as f32 / (visits * simulations as f32);
        self.value[lane].store(value.to_bits(), Ordering::Relaxed);
        self.rarity[lane].store((1.0 / visits.sqrt()).to_bits(), Ordering::Relaxed);
    }

    /// Returns the bounds of all lanes. Copies the words first: the compiler computes several
    /// bounds at once only from plain memory.
    fn bounds(&self, weight: f32) -> [f32; LANES] {
        let load = |words: &[AtomicU32; LANES]| -> [f32; LANES] {
            array::from_fn(|lane| f32::from_bits(words[lane].load(Ordering::Relaxed)))
        };
        let (value, rarity) = (load(&self.value), load(&self.rarity));
        array::from_fn(|lane| value[lane] + weight * rarity[lane])
    }
}

/// The upper two bits of a word are the kind of the link, then 30 bits are a worker, then 32 a
/// node.
const KIND_SHIFT: u32 = 62;
const OWNER_SHIFT: u32 = 32;

fn pack(link: Link) -> u64 {
    match link {
        Link::Leaf => 0,
        Link::Awaited => 1 << KIND_SHIFT,
        Link::Here(node) => 2 << KIND_SHIFT | u64::from(node),
        Link::There(owner, node) => 3 << KIND_SHIFT | u64::from(owner.number()) << OWNER_SHIFT | u64::from(node),
    }
}

fn unpack(word: u64) -> Link {
    let node = word as u32;
    match word >> KIND_SHIFT {
        0 => Link::Leaf,
        1 => Link::Awaited,
        2 => Link::Here(node),
        _ => Link::There(WorkerId::new(((word << 2) >> (2 + OWNER_SHIFT)) as u32), node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_survive_packing() {
        for number in [0, 1, 77, u32::MAX] {
            let worker = WorkerId::new(number & ((1 << 30) - 1));
            for link in [Link::Leaf, Link::Awaited, Link::Here(number), Link::There(worker, number)] {
                assert_eq!(unpack(pack(link)), link);
            }
        }
    }

    #[test]
    fn numbers_have_places_of_their_own() {
        let mut last = (0, 0);
        for number in 1..10_000 {
            let (chunk, place) = place_of(number);
            assert!(place < FIRST_CHUNK << chunk);
            assert!((chunk, place) == (last.0, last.1 + 1) || (chunk, place) == (last.0 + 1, 0), "{number}");
            last = (chunk, place);
        }
    }

    #[test]
    fn visits_and_wins_of_several_threads_add_up() {
        let tree = Tree::new(16, 0.5);
        let root = tree.add(&Position::new(5).unwrap(), &mut Rng::new(1));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        tree.back_up(tree.select(root).id, 4);
                    }
                });
            }
        });
        let node = tree.node(root);
        let sum = |of: &dyn Fn(&Group, usize) -> u64| -> u64 {
            (0..25).map(|edge| node.edge(edge)).map(|(group, lane)| of(group, lane)).sum()
        };
        assert_eq!(node.visits.load(Ordering::Relaxed), 4000);
        assert_eq!(sum(&|group, lane| group.visits[lane].load(Ordering::Relaxed).into()), 4000);
        assert_eq!(sum(&|group, lane| group.wins[lane].load(Ordering::Relaxed)), 16_000);
    }
}
