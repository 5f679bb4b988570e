//! What workers tell each other about rollouts, and the way it goes out.

use farside::{Wire, WorkerId};

use crate::game::{Game, Outcome};
use crate::tree::{EdgeCopy, Sample};

/// A node that is known to other workers: a number at its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
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
    /// The receiver had asked for it.
    pub(super) is_answer: bool,
}

/// A sample comes back to the steps of a trail.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct BackUp {
    pub(super) trail: TrailId,
    pub(super) sample: Sample,
}

/// A worker has nothing to do, and would evaluate a leaf for the receiver. Of each worker there is one at most, until it is answered
/// by [`Evaluate`]: else a receiver that is behind would get ever more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Spare {
    pub(super) worker: WorkerId,
}

/// A node as it stands, for others than its owner: its moves, and what is known of each and where it leads.
#[derive(Clone, Debug, Wire)]
pub(super) struct NodeCopy<M> {
    pub(super) moves: Vec<M>,
    pub(super) edges: Vec<KnownEdge>,
}

pub(super) type KnownEdge = (EdgeCopy, Option<(WorkerId, EntryId)>);

/// The receiver is to have a copy of a node that is visited very often.
#[derive(Clone, Debug, Wire)]
pub(super) struct Replicate<S, M> {
    pub(super) owner: WorkerId,
    pub(super) entry: EntryId,
    pub(super) is_root: bool,
    pub(super) state: S,
    pub(super) copy: NodeCopy<M>,
}

/// What came to some edges of a copy since the owner was told last.
#[derive(Clone, Debug, Wire)]
pub(super) struct Flush {
    pub(super) from: WorkerId,
    pub(super) entry: EntryId,
    pub(super) more: Vec<(u32, EdgeCopy)>,
}

/// How a node stands by now: the answer to [`Flush`].
#[derive(Clone, Debug, Wire)]
pub(super) struct Refresh {
    pub(super) owner: WorkerId,
    pub(super) entry: EntryId,
    pub(super) edges: Vec<KnownEdge>,
}

/// The receiver may start so many rollouts at its copy of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Grant {
    pub(super) count: u32,
}

/// So many of the rollouts granted are complete, and the sender would start others. The first time that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Done {
    pub(super) from: WorkerId,
    pub(super) count: u32,
}

/// The receiver keeps a node of its own, and all below it, when the tree gets a new root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Keep {
    pub(super) entry: EntryId,
}

/// The way to other workers. Never waits. What one worker sends another arrives in order.
pub(super) trait Post<G: Game> {
    fn descend(&mut self, to: WorkerId, message: Descend);
    fn expand(&mut self, to: WorkerId, message: Expand<G::State>);
    fn expanded(&mut self, to: WorkerId, message: Expanded);
    fn evaluate(&mut self, to: WorkerId, message: Evaluate<G::State>);
    fn back_up(&mut self, to: WorkerId, message: BackUp);
    fn spare(&mut self, to: WorkerId, message: Spare);
    fn replicate(&mut self, to: WorkerId, message: Replicate<G::State, G::Move>);
    fn flush(&mut self, to: WorkerId, message: Flush);
    fn refresh(&mut self, to: WorkerId, message: Refresh);
    fn grant(&mut self, to: WorkerId, message: Grant);
    fn done(&mut self, to: WorkerId, message: Done);
    fn keep(&mut self, to: WorkerId, message: Keep);
}
