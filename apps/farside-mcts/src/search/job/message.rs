//! The messages between workers.
//!
//! A message is a struct with an implementation of [`Message`], which says what its receiver does.

use farside::{Wire, WorkerId};

use super::part::Part;
use crate::game::{Game, Outcome};
use crate::tree::Sample;

/// A message to the part of another worker.
pub(super) trait Message<G: Game>: Wire {
    /// Handles the message at the receiver.
    fn receive(self, part: &mut Part<G>, post: &mut impl Post<G>);
}

/// Sends messages to other workers. Never blocks, and keeps the order of messages between two
/// workers.
pub(super) trait Post<G: Game> {
    fn send<T: Message<G>>(&mut self, to: WorkerId, message: T);
}

/// The number of a node that other workers know, at its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(super) struct EntryId(pub(super) u32);

/// The number of steps that wait for a sample, at the worker that made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct TrailId(pub(super) u32);

/// The number of an edge whose node another worker is making, at the edge's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct BirthId(pub(super) u32);

/// The next destination of a sample on its way to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Return {
    pub(super) to: WorkerId,
    pub(super) trail: TrailId,
}

/// Asks the receiver to continue selection from one of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Descend {
    pub(super) entry: EntryId,
    pub(super) back: Return,
    /// Number of moves from the root to this node.
    pub(super) depth: u32,
}

/// Asks the receiver to own a new node and to continue selection from there.
#[derive(Clone, Debug, Wire)]
pub(super) struct Expand<S> {
    pub(super) state: S,
    /// The sender's edge that will lead to the node.
    pub(super) birth: BirthId,
    pub(super) back: Return,
    pub(super) depth: u32,
}

/// The answer to [`Expand`], for the edge.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Expanded {
    pub(super) birth: BirthId,
    pub(super) child: Child,
}

/// The result of [`Expand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) enum Child {
    /// The new node.
    Node(EntryId),
    /// The outcome, which makes a node unnecessary.
    Proven(Outcome),
    /// No node, because the receiver has no memory for it.
    Refused,
}

/// Asks the receiver to evaluate a leaf. It owns no node on the path to this leaf.
#[derive(Clone, Debug, Wire)]
pub(super) struct Evaluate<S> {
    pub(super) state: S,
    pub(super) back: Return,
    /// True if this answers a [`Idle`] of the receiver.
    pub(super) is_answer: bool,
}

/// Brings a sample back to the steps of a trail.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct BackUp {
    pub(super) trail: TrailId,
    pub(super) sample: Sample,
}

/// Tells the receiver that `worker` is idle and would evaluate a leaf for it.
///
/// Each worker has at most one such message under way, until an [`Evaluate`] answers it. Otherwise
/// a receiver that is behind would accumulate them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Idle {
    pub(super) worker: WorkerId,
}

/// Asks the receiver to keep one of its nodes, and all nodes below it, when the root changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct Keep {
    pub(super) entry: EntryId,
}
