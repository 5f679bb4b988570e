//! What workers tell each other about rollouts, and the way it goes out.

use farside::{Wire, WorkerId};

use crate::game::Outcome;
use crate::tree::Sample;

/// A node that is known to other workers: a number at its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct EntryId(pub(super) u32);

/// Steps that wait for a sample: a number at the worker that made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct TrailId(pub(super) u32);

/// An edge whose node is being made elsewhere: a number at the edge's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct BirthId(pub(super) u32);

/// Where a sample goes next on its way to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Return {
    pub(super) to: WorkerId,
    pub(super) trail: TrailId,
}

/// Selection goes on from a node of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Descend {
    pub(super) entry: EntryId,
    pub(super) back: Return,
    /// Moves from the root to this node.
    pub(super) depth: u32,
}

/// The receiver is to own a new node, and selection goes on from there.
#[derive(Clone, Debug, Wire)]
pub(super) struct Expand<S> {
    pub(super) state: S,
    /// The edge that will lead to the node, at the sender.
    pub(super) birth: BirthId,
    pub(super) back: Return,
    pub(super) depth: u32,
}

/// What became of [`Expand`], for the edge.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Expanded {
    pub(super) birth: BirthId,
    pub(super) child: Child,
}

/// What became of a leaf that was due to get a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) enum Child {
    Node(EntryId),
    /// It needs none.
    Proven(Outcome),
    /// Its owner has no room for it.
    Refused,
}

/// The receiver is to evaluate a leaf, although it has no part in the way there.
#[derive(Clone, Debug, Wire)]
pub(super) struct Evaluate<S> {
    pub(super) state: S,
    pub(super) back: Return,
}

/// A sample comes back to the steps of a trail.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct BackUp {
    pub(super) trail: TrailId,
    pub(super) sample: Sample,
}

/// A worker has nothing to do, and would evaluate a leaf for the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Spare {
    pub(super) worker: WorkerId,
}

/// The receiver keeps a node of its own, and all below it, when the tree gets a new root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Keep {
    pub(super) entry: EntryId,
}

/// The way to other workers, for a game with states `S`. Never waits. What one worker sends another arrives in order.
pub(super) trait Post<S> {
    fn descend(&mut self, to: WorkerId, message: Descend);
    fn expand(&mut self, to: WorkerId, message: Expand<S>);
    fn expanded(&mut self, to: WorkerId, message: Expanded);
    fn evaluate(&mut self, to: WorkerId, message: Evaluate<S>);
    fn back_up(&mut self, to: WorkerId, message: BackUp);
    fn spare(&mut self, to: WorkerId, message: Spare);
    fn keep(&mut self, to: WorkerId, message: Keep);
}
