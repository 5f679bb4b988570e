//! Operations on a peer's region: keys, outcomes, completions and errors.

mod completion;
mod error;
mod key;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock::Clock;
use crate::ids::ProcessId;
use farside_wire::Wire;

pub use self::completion::Completion;
pub use self::error::FabricError;
pub(crate) use self::key::INTERNAL;
pub use self::key::{RegionKind, RegionName, RemoteKey, SLOT_BYTES, SLOT_COUNT};

/// Carries posted operations: the part of a [`Transport`](crate::Transport) that regions and
/// completions use.
pub trait Carrier: Send + Sync + fmt::Debug {
    /// The clock of this process, which also determines how its threads wait. The system's clock,
    /// unless the transport simulates one.
    fn clock(&self) -> Clock {
        Clock::real()
    }

    /// Starts an operation on a region that is not mapped. (On a mapped one it works too, and has
    /// ended when this returns.)
    ///
    /// # Errors
    /// [`FabricError::QueueFull`] if too many operations are in flight; other errors come here or
    /// with the completion. An error here returns the operation with its buffer.
    fn post(&self, key: RemoteKey, operation: Operation) -> Result<Completion, Unposted>;

    /// Advances everything that can advance without waiting.
    fn progress(&self);

    /// Ends a [`wait`](crate::Transport::wait) that is under way, or the next one.
    fn wake(&self);

    /// Tells that a thread which has called [`progress`](Self::progress) repeatedly goes to sleep.
    /// The thread that sleeps in [`wait`](crate::Transport::wait) must watch in its place. A
    /// transport whose waiting thread never stands back ignores this.
    fn stop_polling(&self) {}
}

/// An access to a peer's region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes these bytes.
    Put {
        /// Offset from the start of the region.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Reads into a buffer, as many bytes as it has.
    Get {
        /// Offset from the start of the region.
        offset: u64,
        /// The buffer.
        room: Vec<u8>,
    },
    /// Changes a 64-bit word and returns its previous value.
    Atomic64 {
        /// Offset; a multiple of 8.
        offset: u64,
        /// The change.
        change: AtomicChange<u64>,
    },
    /// Changes a 32-bit word and returns its previous value.
    Atomic32 {
        /// Offset; a multiple of 4.
        offset: u64,
        /// The change.
        change: AtomicChange<u32>,
    },
}

impl Operation {
    /// Creates a get of `bytes` bytes into a new buffer.
    pub fn get(offset: u64, bytes: usize) -> Self {
        Self::Get { offset, room: vec![0; bytes] }
    }

    /// The buffer of a put or get. An atomic has none.
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Put { data: buffer, .. } | Self::Get { room: buffer, .. } => buffer,
            Self::Atomic64 { .. } | Self::Atomic32 { .. } => Vec::new(),
        }
    }

    /// Wraps an operation that was not posted.
    pub fn refused(self, error: FabricError) -> Unposted {
        Unposted { error, operation: self }
    }
}

/// An operation that was not [posted](Carrier::post), and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unposted {
    /// The reason.
    #[source]
    pub error: FabricError,
    /// The operation, as it was.
    pub operation: Operation,
}

impl Unposted {
    /// Returns the operation for another attempt, if only room was lacking.
    ///
    /// # Errors
    /// The error, if it is another one.
    pub fn for_lack_of_room(self) -> Result<Operation, FabricError> {
        match self.error {
            FabricError::QueueFull { .. } => Ok(self.operation),
            error => Err(error),
        }
    }
}

impl From<Unposted> for FabricError {
    fn from(unposted: Unposted) -> Self {
        unposted.error
    }
}

/// A change of one word. The result is the word's previous value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub enum AtomicChange<T> {
    /// No change: an atomic load.
    Load,
    /// Replaces the value.
    Swap(T),
    /// Replaces the value by `new`, if the word holds `expected`.
    CompareSwap {
        /// The expected value.
        expected: T,
        /// The new value.
        new: T,
    },
    /// Adds, wrapping around.
    Add(T),
    /// The bitwise and.
    And(T),
    /// The bitwise or.
    Or(T),
    /// The bitwise exclusive or.
    Xor(T),
    /// The smaller of the two, unsigned.
    Min(T),
    /// The larger of the two, unsigned.
    Max(T),
}

macro_rules! apply {
    ($word:ty, $atomic:ty) => {
        impl AtomicChange<$word> {
            /// Changes a word, and returns its previous value. Sequentially consistent.
            #[inline(always)]
            pub fn apply(self, word: &$atomic) -> $word {
                match self {
                    Self::Load => word.load(Ordering::SeqCst),
                    Self::Swap(value) => word.swap(value, Ordering::SeqCst),
                    Self::CompareSwap { expected, new } => {
                        match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                            Ok(previous) | Err(previous) => previous,
                        }
                    }
                    Self::Add(value) => word.fetch_add(value, Ordering::SeqCst),
                    Self::And(value) => word.fetch_and(value, Ordering::SeqCst),
                    Self::Or(value) => word.fetch_or(value, Ordering::SeqCst),
                    Self::Xor(value) => word.fetch_xor(value, Ordering::SeqCst),
                    Self::Min(value) => word.fetch_min(value, Ordering::SeqCst),
                    Self::Max(value) => word.fetch_max(value, Ordering::SeqCst),
                }
            }
        }
    };
}

apply!(u64, AtomicU64);
apply!(u32, AtomicU32);

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The put is visible; its buffer comes back.
    Put(Vec<u8>),
    /// The buffer with the bytes that were read.
    Got(Vec<u8>),
    /// The word's previous value, widened.
    Previous(u64),
}

impl Outcome {
    /// Returns the bytes of a get of `wanted` bytes from a process.
    ///
    /// # Errors
    /// [`FabricError::OddAnswer`] if there are more or fewer bytes, or the operation was not a get.
    pub fn into_bytes(self, process: ProcessId, wanted: usize) -> Result<Vec<u8>, FabricError> {
        let bytes = match self {
            Self::Got(bytes) if bytes.len() == wanted => return Ok(bytes),
            Self::Got(bytes) => bytes.len(),
            Self::Put(_) | Self::Previous(_) => 0,
        };
        Err(FabricError::OddAnswer { process, wanted, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_size_is_refused() {
        let process = ProcessId::new(3);
        assert_eq!(Outcome::Got(vec![5; 8]).into_bytes(process, 8).unwrap(), [5; 8]);
        let others = [0, 7, 9].map(|bytes| (Outcome::Got(vec![5; bytes]), bytes));
        for (outcome, had) in others.into_iter().chain([(Outcome::Put(vec![5; 8]), 0), (Outcome::Previous(8), 0)]) {
            let refused = outcome.into_bytes(process, 8);
            let is_told = matches!(&refused, Err(FabricError::OddAnswer { process: by, wanted: 8, bytes })
                if *by == process && *bytes == had);
            assert!(is_told, "{refused:?}");
        }
    }
}
