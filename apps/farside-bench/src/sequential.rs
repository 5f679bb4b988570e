//! The limit of tree search: UCT for Hex, written by hand for this game and one thread.
//!
//! It uses nothing of the tree and search of farside-mcts. Playouts and random numbers are the
//! same, and so are the rules: the UCB constant, untried moves first and at random, simulations for
//! a leaf, visits before a leaf becomes a node. It has no visits in flight, proofs or memory limit,
//! which one process and one game do not need.

use farside_mcts::games::hex::{Cell, Position, black_wins};
use farside_mcts::{Params, Player, Rng};

/// The constant of the UCB rule in all searches of this bench.
///
/// It fixes the depth of the trees, and so the cost of a rollout. The searches know nothing besides
/// the rules of Hex. For good moves the library's default is smaller.
pub(crate) const EXPLORATION: f32 = 0.5;

/// Searches `position` by `rollouts` descents, and returns the move with the most visits.
///
/// # Panics
/// Panics if the game is over, if `rollouts` or `sims_per_leaf` is 0, or if the simulations
/// overflow 32 bits.
pub(crate) fn run(position: &Position, rollouts: u64, sims_per_leaf: u32, seed: u64) -> Cell {
    assert!(position.winner().is_none(), "the game is over");
    assert!(rollouts > 0 && sims_per_leaf > 0, "nothing to do");
    let simulations = rollouts.saturating_mul(sims_per_leaf.into());
    assert!(u32::try_from(simulations).is_ok(), "{simulations} simulations are more than 32 bits count");
    let params = Params::default();
    let mut uct = Uct {
        exploration: EXPLORATION,
        expand_after: params.expand_after,
        simulations: sims_per_leaf,
        rng: Rng::new(seed),
        nodes: Vec::new(),
        means: Vec::new(),
        rarities: Vec::new(),
        edges: Vec::new(),
        path: Vec::new(),
    };
    uct.add_node(position);
    for _ in 0..rollouts {
        uct.rollout(*position);
    }
    let edges = uct.nodes[0].edges();
    uct.edges[edges].iter().max_by_key(|edge| edge.visits).expect("a move was tried").cell
}

struct Uct {
    exploration: f32,
    expand_after: u32,
    simulations: u32,
    rng: Rng,
    nodes: Vec<Node>,
    /// The share of won playouts of each edge, and 1 / √visits. The scan of the UCB rule reads only
    /// these.
    means: Vec<f32>,
    rarities: Vec<f32>,
    edges: Vec<Edge>,
    path: Vec<(u32, Player)>,
}

struct Node {
    first: u32,
    count: u32,
    visits: u32,
    to_move: Player,
}

#[derive(Clone, Copy)]
struct Edge {
    wins: u32,
    visits: u32,
    /// The node, `LEAF`, or `OVER` if the game is over.
    child: u32,
    cell: Cell,
}

const LEAF: u32 = u32::MAX;
const OVER: u32 = u32::MAX - 1;

/// Size of a group of edges: the width of the scan. The edges of a node are padded to whole groups.
const GROUP: usize = 8;

impl Node {
    fn edges(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

impl Uct {
    /// Adds a node with all its edges, in random order.
    fn add_node(&mut self, position: &Position) -> u32 {
        let first = self.edges.len();
        self.edges.extend(position.empty_cells().map(|cell| Edge { wins: 0, visits: 0, child: LEAF, cell }));
        self.rng.shuffle(&mut self.edges[first..]);
        let count = self.edges.len() - first;
        let padded = first + count.next_multiple_of(GROUP);
        self.edges.resize(padded, self.edges[first]);
        self.means.resize(padded, f32::NEG_INFINITY);
        self.rarities.resize(padded, 0.0);
        self.nodes.push(Node { first: first as u32, count: count as u32, visits: 0, to_move: position.to_move() });
        self.nodes.len() as u32 - 1
    }

    fn rollout(&mut self, mut position: Position) {
        self.path.clear();
        let mut node = 0;
        while node < OVER {
            let edge = self.select(node);
            self.path.push((edge, self.nodes[node as usize].to_move));
            position.play(self.edges[edge as usize].cell);
            node = self.follow(edge, &position);
        }
        let black = black_wins(&position, self.simulations, &mut self.rng);
        for &(edge, mover) in &self.path {
            let wins = if mover == Player::First { black } else { self.simulations - black };
            let stats = &mut self.edges[edge as usize];
            stats.wins += wins;
            self.means[edge as usize] = stats.wins as f32 / (stats.visits as f32 * self.simulations as f32);
            self.rarities[edge as usize] = 1.0 / (stats.visits as f32).sqrt();
        }
    }

    /// Returns the next untried edge, or the edge that maximises mean + c √(ln visits of the node /
    /// visits of the edge).
    fn select(&mut self, node: u32) -> u32 {
        let node = &mut self.nodes[node as usize];
        let first = node.first as usize;
        let edge = if node.visits < node.count {
            first + node.visits as usize
        } else {
            let end = first + (node.count as usize).next_multiple_of(GROUP);
            let weight = self.exploration * (node.visits as f32).ln().sqrt();
            first + argmax(&self.means[first..end], &self.rarities[first..end], weight)
        };
        node.visits += 1;
        self.edges[edge].visits += 1;
        edge as u32
    }

    /// Returns the node that an edge leads to. A leaf becomes a node after enough visits.
    fn follow(&mut self, edge: u32, position: &Position) -> u32 {
        let Edge { child, visits, .. } = self.edges[edge as usize];
        if child != LEAF || visits <= self.expand_after {
            return child;
        }
        let child = if position.winner().is_some() { OVER } else { self.add_node(position) };
        self.edges[edge as usize].child = child;
        child
    }
}

/// Returns the first index of the largest `mean + weight * rarity`. Computes the maximum lane by
/// lane and then looks for its place.
fn argmax(means: &[f32], rarities: &[f32], weight: f32) -> usize {
    let groups = || means.as_chunks::<GROUP>().0.iter().zip(rarities.as_chunks::<GROUP>().0);
    let bounds = |means: &[f32; GROUP], rarities: &[f32; GROUP]| -> [f32; GROUP] {
        std::array::from_fn(|lane| means[lane] + weight * rarities[lane])
    };
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let maxima = groups().fold([f32::NEG_INFINITY; GROUP], |maxima, (means, rarities)| {
        let bounds = bounds(means, rarities);
        std::array::from_fn(|lane| larger(bounds[lane], maxima[lane]))
    });
    let maximum = maxima.into_iter().fold(f32::NEG_INFINITY, larger);
    for (group, (means, rarities)) in groups().enumerate() {
        let hits = bounds(means, rarities).map(|bound| bound == maximum);
        if hits.into_iter().fold(false, |any, hit| any | hit) {
            return group * GROUP + hits.into_iter().position(|hit| hit).unwrap_or(0);
        }
    }
    0
}
