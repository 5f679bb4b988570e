//! Queues of transfers between registered memories, most of which report no completion of their own.
//!
//! A transport that can let one completion speak for many operations implements [`TransferQueue`].
//! [`ofi`](crate::ofi) does. The crate `farside-transmit` builds queues and transmitters for
//! programs on it, and a queue for transports that have none.
//!
//! # Contract
//!
//! 1. Operations are numbered in the order in which they are posted. Once a *signalled* operation has
//!    completed, all operations before it on this queue have completed. Their local memory may be used
//!    again, the data of the gets is there, and the data of the puts is visible to every process that
//!    learns of the completion.
//! 2. An operation that no completed signalled operation follows may stay under way indefinitely.
//! 3. A put of any length may become visible in pieces. Post words that others use atomically instead.
//! 4. The queue takes [a known number](QueueLimits) of operations. A refused operation has no effect:
//!    [`FabricError::QueueFull`] when polling makes room, [`FabricError::QueueOverrun`] when only a
//!    signalled operation may follow. A queue may break when a program ignores its limits: hardware
//!    does, and so does [`sim`](crate::sim).
//! 5. The first operation that fails ends the queue. All later calls return its error, and it is
//!    unknown which of the operations under way took effect. Local memory is released as soon as the
//!    transport has let go of it, and counted as [quarantined](TransferQueue::quarantined) until then.

mod frontier;
mod ledger;

use std::fmt;
use std::sync::Arc;

use crate::ids::ProcessId;
use crate::region::LocalRegion;
use crate::transport::{FabricError, RemoteKey};

pub use self::frontier::Frontier;
pub use self::ledger::{Ledger, Refusal};

/// How large a queue is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// How many operations it takes at a time. At least 16 and at most 4096: what is less or more is taken for that.
    ///
    /// *Cost* over libfabric: 130 bytes for each.
    pub depth: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { depth: 512 }
    }
}

/// What a queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// So many operations, from when they are posted until a signalled one behind them is over.
    pub depth: usize,
    /// So many in a row without a signal. Less than the depth, so that in a full queue there is something to wait for.
    pub unsignalled_max: usize,
    /// So many signalled ones, until they are over and were polled for.
    pub completions_max: usize,
    /// So many bytes in one operation.
    pub bytes_max: usize,
}

impl QueueLimits {
    /// The smallest depth of a queue.
    pub const DEPTH_MIN: usize = 16;
    /// The deepest.
    pub const DEPTH_MAX: usize = 4096;

    /// The limits of a queue of about this depth.
    pub fn of_depth(depth: usize, bytes_max: usize) -> Self {
        let depth = depth.clamp(Self::DEPTH_MIN, Self::DEPTH_MAX);
        Self { depth, unsignalled_max: depth - depth / 8, completions_max: depth / 4 + 1, bytes_max }
    }

    /// Returns the error of an unsignalled operation where only a signalled one may follow.
    pub fn overrun(self, process: ProcessId) -> FabricError {
        let (what, max) = ("operations without a signal in a row", self.unsignalled_max);
        FabricError::QueueOverrun { process, what, max }
    }
}

/// A part of registered memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct Span<'m> {
    region: &'m LocalRegion,
    offset: u64,
    bytes: usize,
}

impl<'m> Span<'m> {
    /// So many bytes of a region, from an offset on.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] when the region has not so many.
    #[inline]
    pub fn new(region: &'m LocalRegion, offset: u64, bytes: usize) -> Result<Self, FabricError> {
        region.key().check(offset, bytes)?;
        Ok(Self { region, offset, bytes })
    }

    /// Names part of a region without a check of the range.
    ///
    /// # Safety
    /// The `bytes` bytes from `offset` on must lie inside the region.
    #[inline]
    pub unsafe fn new_unchecked(region: &'m LocalRegion, offset: u64, bytes: usize) -> Self {
        debug_assert!(region.key().check(offset, bytes).is_ok(), "a part of a region lies inside it");
        Self { region, offset, bytes }
    }

    /// The region.
    #[inline]
    pub fn region(&self) -> &'m LocalRegion {
        self.region
    }

    /// Where it begins.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its address.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.region.memory().base().as_ptr().wrapping_add(self.offset as usize)
    }

    /// A part of it.
    fn part(&self, at: usize, bytes: usize) -> Self {
        debug_assert!(at + bytes <= self.bytes);
        Self { offset: self.offset + at as u64, bytes, ..*self }
    }

    /// It in pieces of so many bytes, with where each begins. One piece at least.
    pub fn pieces(self, bytes_max: usize) -> impl Iterator<Item = (usize, Self)> {
        let count = self.bytes.div_ceil(bytes_max).max(1);
        (0..count).map(move |number| {
            let at = number * bytes_max;
            (at, self.part(at, bytes_max.min(self.bytes - at)))
        })
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// From here to the peer.
    Put,
    /// From the peer to here.
    Get,
}

/// A put or a get between registered memory here and a peer's, both within their regions.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'m> {
    /// Which way.
    pub kind: TransferKind,
    /// The memory here.
    pub local: Span<'m>,
    /// The region there.
    pub remote: RemoteKey,
    /// Where in that.
    pub remote_offset: u64,
}

/// A queue to a peer. The [module](self) states its contract.
pub trait TransferQueue: Send + Sync + fmt::Debug {
    /// What it takes.
    fn limits(&self) -> QueueLimits;

    /// How far it has come. Raised to the number of each signalled operation when that is over.
    fn frontier(&self) -> &Arc<Frontier>;

    /// Posts an operation, with a number if it is signalled. Numbers of two threads may come in another order than they were given.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`], [`FabricError::QueueOverrun`], [`FabricError::StaleKey`] when a region is not attached or not
    /// registered, or why the queue has failed.
    fn post(&self, transfer: &Transfer<'_>, signal: Option<u64>) -> Result<(), FabricError>;

    /// Posts a signalled operation that moves nothing.
    ///
    /// # Errors
    /// Those of [`post`](Self::post).
    fn signal(&self, number: u64) -> Result<(), FabricError>;

    /// Makes progress.
    ///
    /// # Errors
    /// Why the queue has failed.
    fn progress(&self) -> Result<(), FabricError>;

    /// How many operations of a queue that has failed the transport has not let go of.
    fn quarantined(&self) -> usize;
}
