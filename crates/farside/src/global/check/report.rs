//! What the checker reports.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use farside_fabric::WorkerId;
use farside_fabric::transport::AtomicChange;

use crate::global::GlobalAddress;

/// The longest name of a file that travels; of a longer one the end does.
pub(super) const FILE_BYTES_MAX: usize = 200;

/// Where in a program's source something was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    file: Arc<str>,
    line: u32,
    column: u32,
}

impl Site {
    pub(super) fn of(location: &Location<'_>) -> Self {
        let name = location.file();
        let mut begin = name.len().saturating_sub(FILE_BYTES_MAX);
        while !name.is_char_boundary(begin) {
            begin += 1;
        }
        Self::new(&name[begin..], location.line(), location.column())
    }

    pub(super) fn new(file: &str, line: u32, column: u32) -> Self {
        Self { file: file.into(), line, column }
    }

    /// The source file, as the compiler knows it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from 1 on.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The column, from 1 on.
    pub fn column(&self) -> u32 {
        self.column
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What an access does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A get, or the source of a copy.
    Read,
    /// A put, or the target of a copy.
    Write,
    /// An atomic load.
    AtomicLoad,
    /// Any other atomic change of a word.
    AtomicChange,
    /// The memory is [released](crate::Worker::release).
    Release,
}

impl AccessKind {
    pub(super) const ALL: [Self; 5] = [Self::Read, Self::Write, Self::AtomicLoad, Self::AtomicChange, Self::Release];

    /// What an atomic change does with its word.
    pub(crate) fn of<W>(change: &AtomicChange<W>) -> Self {
        match change {
            AtomicChange::Load => Self::AtomicLoad,
            _ => Self::AtomicChange,
        }
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicLoad | Self::AtomicChange)
    }

    fn changes(self) -> bool {
        matches!(self, Self::Write | Self::AtomicChange | Self::Release)
    }

    /// Whether the outcome depends on which of the two comes first, beyond what atomics promise.
    pub(super) fn conflicts_with(self, other: Self) -> bool {
        (self.changes() || other.changes()) && !(self.is_atomic() && other.is_atomic())
    }
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::AtomicLoad => "atomic load",
            Self::AtomicChange => "atomic change",
            Self::Release => "release",
        })
    }
}

/// One of two accesses that conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who accessed, or started an operation that does.
    pub worker: WorkerId,
    /// What it does.
    pub kind: AccessKind,
    /// Where in the program.
    pub site: Site,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} by {} at {}", self.kind, self.worker, self.site)
    }
}

/// Two accesses to the same bytes that nothing orders, or one to memory that is released. The second was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessConflict {
    /// The first of the bytes. Null where they have no global address.
    pub address: GlobalAddress,
    /// How many bytes both access.
    pub bytes: u64,
    /// The access that was refused.
    pub here: Access,
    /// The earlier one.
    pub there: Access,
    /// The earlier one is an operation's that has not completed.
    pub in_use: bool,
}

impl fmt::Display for AccessConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bytes, here, there, in_use } = self;
        write!(f, "two accesses to the same {bytes} bytes at {address}: {here} conflicts with {there}, ")?;
        if *in_use {
            return f.write_str(
                "an operation that has not completed and still uses them: wait for it before, or use other memory",
            );
        }
        if there.kind == AccessKind::Release {
            return f.write_str("after which the memory is nobody's: release it when all are done with it");
        }
        let first = there.worker;
        write!(
            f,
            "after which {first} has told nobody anything, so that either may come first: have {first} call, signal, or enter a barrier in \
             between, or change the word atomically on both sides (see docs/checking-accesses.md)"
        )
    }
}
