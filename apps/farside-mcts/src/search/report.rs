//! The result of a search.

use std::time::Duration;

use farside::Wire;

use super::JobReport;
use crate::game::Outcome;
use crate::tree::{EdgeTarget, EdgeView, NodeId, Tree};

/// The result of a search, and its statistics.
#[derive(Clone, Debug, PartialEq, Wire)]
#[non_exhaustive]
pub struct Report<M> {
    /// The move to play: a proven best one, else the one with the most visits.
    pub best: MoveReport<M>,
    /// The moves that were tried, in descending order of visits.
    pub moves: Vec<MoveReport<M>>,
    /// The expected line of play: the best move, the best answer, and so on.
    pub line: Vec<M>,
    /// The outcome with best play by both sides, if it was proven.
    pub solved: Option<Outcome>,
    /// Number of rollouts of this run.
    pub rollouts: u64,
    /// Number of visits of the root that earlier runs made and the tree kept. The visits of all
    /// moves add up to this number plus `rollouts`.
    pub kept: u64,
    /// Number of random games. A rollout with a certain outcome plays none.
    pub simulations: u64,
    /// Number of moves from the root to the deepest leaf.
    pub max_depth: u32,
    /// Mean number of moves from the root to a leaf, over all rollouts of this run; 0 without
    /// rollouts.
    pub mean_depth: f64,
    /// Number of nodes of the tree.
    pub nodes: usize,
    /// Memory of the tree.
    pub tree_bytes: usize,
    /// Duration of this run.
    pub elapsed: Duration,
    /// Statistics of a search on a job; `None` for a search in one thread.
    pub job: Option<JobReport>,
}

/// The statistics of one move.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
#[non_exhaustive]
pub struct MoveReport<M> {
    /// The move.
    pub chosen: M,
    /// Number of rollouts through this move.
    pub visits: u32,
    /// Share of games that the side to move won, from 0 to 1. A draw counts half. Exact once the
    /// outcome is proven.
    pub win_rate: f64,
    /// The outcome after this move with best play, if it was proven.
    pub outcome: Option<Outcome>,
}

/// Statistics that the tree does not hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rollouts: u64,
    /// Visits of the root before this run.
    pub(crate) kept: u64,
    pub(crate) simulations: u64,
    pub(crate) max_depth: u32,
    /// Sum over all rollouts.
    pub(crate) depth: u64,
}

impl<M: Copy> Report<M> {
    /// Reads the tree below `root`, as far as this tree goes. Returns `None` before the first
    /// rollout.
    pub(crate) fn of<L: EdgeTarget>(tree: &Tree<M, L>, root: NodeId, tally: Tally, elapsed: Duration) -> Option<Self> {
        let best = tree.best(root)?.into();
        let mut moves: Vec<_> = tree.edges(root).map(MoveReport::from).collect();
        moves.sort_by_key(|known| std::cmp::Reverse(known.visits));
        let mut line = Vec::new();
        let mut node = Some(root);
        while let Some(edge) = node.and_then(|id| tree.best(id)) {
            line.push(edge.chosen);
            node = edge.child.and_then(EdgeTarget::here);
        }
        Some(Self {
            best,
            moves,
            line,
            solved: tree.proof(root),
            rollouts: tally.rollouts,
            kept: tally.kept,
            simulations: tally.simulations,
            max_depth: tally.max_depth,
            mean_depth: tally.depth as f64 / tally.rollouts.max(1) as f64,
            nodes: tree.node_count(),
            tree_bytes: tree.bytes(),
            elapsed,
            job: None,
        })
    }

    /// Returns the number of rollouts per second.
    #[must_use]
    pub fn rollouts_per_s(&self) -> f64 {
        self.rollouts as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl<M, L> From<EdgeView<M, L>> for MoveReport<M> {
    fn from(edge: EdgeView<M, L>) -> Self {
        Self { chosen: edge.chosen, visits: edge.visits, win_rate: edge.win_rate, outcome: edge.proof }
    }
}
