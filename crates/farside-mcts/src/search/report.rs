//! What a search found.

use std::time::Duration;

use farside::Wire;

use super::JobReport;
use crate::game::Outcome;
use crate::tree::{EdgeView, Lead, Look, NodeId};

/// What a search found, and what it took.
#[derive(Clone, Debug, PartialEq, Wire)]
#[non_exhaustive]
pub struct Report<M> {
    /// The move to play: one that is proven to be as good as it gets, else the one visited most.
    pub best: MoveReport<M>,
    /// Every move that was tried, by falling number of visits.
    pub moves: Vec<MoveReport<M>>,
    /// How the game would go on: the best move, the best answer, and so on.
    pub line: Vec<M>,
    /// How the game ends if both sides play their best, if that was proven.
    pub solved: Option<Outcome>,
    /// Descents of the tree, by this run.
    pub rollouts: u64,
    /// Visits of the root by earlier runs that were kept: those of all moves are so many more than the rollouts.
    pub kept: u64,
    /// Random games. A rollout that ends in a certainty plays none.
    pub simulations: u64,
    /// Moves from the root to the deepest leaf.
    pub max_depth: u32,
    /// Moves from the root to a leaf, over all rollouts of this run; 0 if it made none.
    pub mean_depth: f64,
    /// Nodes of the tree.
    pub nodes: usize,
    /// What the tree takes.
    pub tree_bytes: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// How a search on a job went about it; `None` of one in one thread.
    pub job: Option<JobReport>,
}

/// What a search knows of one move.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
#[non_exhaustive]
pub struct MoveReport<M> {
    /// The move.
    pub chosen: M,
    /// How many rollouts went through it.
    pub visits: u32,
    /// Won games of the side to move (a drawn one counts half), from 0 to 1. Exact once the outcome is proven.
    pub win_rate: f64,
    /// How the game ends after this move, if that was proven.
    pub outcome: Option<Outcome>,
}

/// What a tree alone does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rollouts: u64,
    /// Visits of the root before that.
    pub(crate) kept: u64,
    pub(crate) simulations: u64,
    pub(crate) max_depth: u32,
    /// The sum over all rollouts.
    pub(crate) depth: u64,
}

impl<M: Copy> Report<M> {
    /// Reads the tree below `root`, as far as it goes; `None` before the first rollout.
    pub(crate) fn of<L: Lead>(tree: &impl Look<M, L>, root: NodeId, tally: Tally, elapsed: Duration) -> Option<Self> {
        let best = tree.best(root)?.into();
        let mut moves: Vec<_> = tree.edges(root).into_iter().map(MoveReport::from).collect();
        moves.sort_by_key(|known| std::cmp::Reverse(known.visits));
        let mut line = Vec::new();
        let mut node = Some(root);
        while let Some(edge) = node.and_then(|id| tree.best(id)) {
            line.push(edge.chosen);
            node = edge.child.and_then(Lead::here);
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

    /// Rollouts for each second.
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
