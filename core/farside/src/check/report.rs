//! The reports of the checker.

use std::fmt;
use std::panic::Location;

use farside_fabric::WorkerId;

use crate::Wire;
use crate::error::Error;
use crate::memory::GlobalAddress;
use crate::runtime::observer::AccessKind;

/// The longest file name that is sent. Of a longer one, only the end is sent.
pub(super) const FILE_BYTES_MAX: usize = 200;

/// A place in the source of a program.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Site {
    file: String,
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

    /// The path of the source file, as the compiler was given it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line; the first is 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The column; the first is 1.
    pub fn column(&self) -> u32 {
        self.column
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

fn is_atomic(kind: AccessKind) -> bool {
    matches!(kind, AccessKind::AtomicLoad | AccessKind::AtomicChange)
}

fn changes(kind: AccessKind) -> bool {
    matches!(kind, AccessKind::Write | AccessKind::AtomicChange | AccessKind::Release)
}

/// Returns whether the outcome of two accesses depends on their order, beyond what atomics promise.
pub(super) fn conflict(one: AccessKind, other: AccessKind) -> bool {
    (changes(one) || changes(other)) && !(is_atomic(one) && is_atomic(other))
}

/// One of two accesses that conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The worker that made the access, or started the operation that makes it.
    pub worker: WorkerId,
    /// The kind of the access.
    pub kind: AccessKind,
    /// Its place in the program.
    pub site: Site,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} by {} at {}", self.kind, self.worker, self.site)
    }
}

/// Two accesses to the same bytes that nothing orders, or an access to released memory. The second
/// access was not made.
///
/// It arrives as an [`Error`]; [`Error::room_error`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessConflict {
    /// The first of the bytes; null where they have no global address.
    pub address: GlobalAddress,
    /// The number of bytes that both access.
    pub bytes: u64,
    /// The access that was refused.
    pub here: Access,
    /// The earlier access.
    pub there: Access,
    /// True if the earlier access belongs to an operation that has not completed.
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
            return f.write_str("after which no worker may access the memory: release it when all are done with it");
        }
        let (first, second) = (there.worker, here.worker);
        write!(
            f,
            "and nothing orders the two, because no message leads from {first} to {second} in between: let {first} call or \
             signal {second}, or both enter a barrier, or change the word atomically on both sides (see \
             docs/checking-accesses.md)"
        )
    }
}

impl std::error::Error for AccessConflict {}

impl From<AccessConflict> for Error {
    fn from(conflict: AccessConflict) -> Self {
        Self::Room(Box::new(conflict))
    }
}
