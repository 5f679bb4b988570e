//! Which operations run at the same time, and the implementations to choose from.

use std::fmt;

use farside::Wire;

/// An operation of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// An insertion into a map.
    Insert,
    /// A search in a map for a key that is there.
    Find,
    /// A search in a map for a key that is not there.
    FindMiss,
    /// A push to a queue.
    Push,
    /// A pop from a queue.
    Pop,
}

/// A promise of the program: only these operations run on a container until the next barrier. The
/// fewer they are, the fewer messages each takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promise {
    name: &'static str,
    ops: &'static [Op],
    is_local: bool,
}

impl Promise {
    /// Nothing is promised.
    pub const ALL: Self = Self::of("all", &[Op::Insert, Op::Find, Op::FindMiss, Op::Push, Op::Pop]);
    /// Only insertions into a map.
    pub const INSERT_ONLY: Self = Self::of("insert-only", &[Op::Insert]);
    /// Only searches in a map.
    pub const FIND_ONLY: Self = Self::of("find-only", &[Op::Find, Op::FindMiss]);
    /// Only pushes to a queue.
    pub const PUSH_ONLY: Self = Self::of("push-only", &[Op::Push]);
    /// Only pops from a queue.
    pub const POP_ONLY: Self = Self::of("pop-only", &[Op::Pop]);
    /// Only operations of the process that holds the data.
    pub const LOCAL: Self = Self { name: "local", is_local: true, ..Self::ALL };

    const fn of(name: &'static str, ops: &'static [Op]) -> Self {
        Self { name, ops, is_local: false }
    }

    /// Returns whether the promise permits an operation.
    ///
    /// ```
    /// use farside_containers::{Op, Promise};
    ///
    /// assert!(Promise::FIND_ONLY.permits(Op::FindMiss));
    /// assert!(!Promise::FIND_ONLY.permits(Op::Insert));
    /// ```
    #[inline]
    pub fn permits(self, op: Op) -> bool {
        self.ops.contains(&op)
    }

    /// Returns whether only the process that holds the data uses it.
    #[inline]
    pub fn is_local(self) -> bool {
        self.is_local
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// How a container performs its operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Wire)]
#[non_exhaustive]
pub enum Implementation {
    /// By puts, gets and atomics; the data itself shows whether it is whole.
    #[default]
    OneSided,
    /// By calls of the owner.
    Call,
    /// By puts, gets and atomics; a checksum shows whether the data is whole. For queues.
    Checksum,
}

impl Implementation {
    /// The container chooses when it is built, by a [`CostModel`](crate::CostModel).
    #[expect(non_upper_case_globals, reason = "it reads like the variants")]
    pub const Auto: Choice = Choice(None);
}

/// An [`Implementation`], or [`Implementation::Auto`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct Choice(pub(crate) Option<Implementation>);

impl From<Implementation> for Choice {
    fn from(implementation: Implementation) -> Self {
        Self(Some(implementation))
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OneSided => "one-sided",
            Self::Call => "call",
            Self::Checksum => "checksum",
        })
    }
}
