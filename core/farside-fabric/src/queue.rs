//! Queues of transfers between registered memories, most of which report no completion of their
//! own.
//!
//! A transport that can let one completion speak for many operations implements [`TransferQueue`].
//! [`ofi`](crate::ofi) does. The crate `farside-transmit` builds queues and transmitters for
//! programs on it, and a queue for transports that have none.
//!
//! # Contract
//!
//! 1. Operations are numbered in the order in which they are posted. Once a *signalled* operation
//!    has completed, all operations before it on this queue have completed. Their local memory may
//!    be used again, the data of the gets is there, and the data of the puts is visible to every
//!    process that learns of the completion.
//! 2. An operation that no completed signalled operation follows may stay under way indefinitely.
//! 3. A put of any length may become visible in pieces. Post words that others use atomically
//!    instead.
//! 4. The queue takes [a known number](QueueLimits) of operations. A refused operation has no
//!    effect: [`FabricError::QueueFull`] when polling makes room, [`FabricError::QueueOverrun`]
//!    when only a signalled operation may follow. A queue may break when a program ignores its
//!    limits: hardware does, and so does [`sim`](crate::sim).
//! 5. The first operation that fails ends the queue. All later calls return its error, and it is
//!    unknown which of the operations under way took effect. Local memory is released as soon as
//!    the transport has let go of it, and counted as [quarantined](TransferQueue::quarantined)
//!    until then.

mod frontier;
mod ledger;

use std::fmt;
use std::sync::Arc;

use crate::ids::ProcessId;
use crate::region::LocalRegion;
use crate::transport::{FabricError, RemoteKey};

pub use self::frontier::Frontier;
pub use self::ledger::{Ledger, Refusal};

/// Options of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Maximum number of operations at a time, from 16 to 4096; other values are clamped to this
    /// range.
    ///
    /// *Cost* over libfabric: 130 bytes for each.
    pub depth: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { depth: 512 }
    }
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Number of operations, from their posting until a later signalled one is over.
    pub depth: usize,
    /// Number of consecutive operations without a signal. It is less than the depth, so that a full
    /// queue holds a signalled operation to wait for.
    pub unsignalled_max: usize,
    /// Number of signalled operations, until they are over and have been polled for.
    pub completions_max: usize,
    /// Number of bytes of one operation.
    pub bytes_max: usize,
}

impl QueueLimits {
    /// The smallest depth.
    pub const DEPTH_MIN: usize = 16;
    /// The largest depth.
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
    /// The `bytes` bytes of a region from `offset` on.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] if the region is too small.
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

    /// The offset of the part in the region.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the first byte.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.region.memory().base().as_ptr().wrapping_add(self.offset as usize)
    }

    /// Returns a part of this span.
    fn part(&self, at: usize, bytes: usize) -> Self {
        debug_assert!(at + bytes <= self.bytes);
        Self { offset: self.offset + at as u64, bytes, ..*self }
    }

    /// Splits the span into pieces of at most `bytes_max` bytes, each with its offset. There is at
    /// least one piece.
    pub fn pieces(self, bytes_max: usize) -> impl Iterator<Item = (usize, Self)> {
        let count = self.bytes.div_ceil(bytes_max).max(1);
        (0..count).map(move |number| {
            let at = number * bytes_max;
            (at, self.part(at, bytes_max.min(self.bytes - at)))
        })
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// From this process to the peer.
    Put,
    /// From the peer to this process.
    Get,
}

/// A put or a get between registered memory of this process and a peer's region.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'m> {
    /// The direction.
    pub kind: TransferKind,
    /// The memory of this process.
    pub local: Span<'m>,
    /// The peer's region.
    pub remote: RemoteKey,
    /// The offset in the peer's region.
    pub remote_offset: u64,
}

/// A queue to a peer. The [module](self) states its contract.
pub trait TransferQueue: Send + Sync + fmt::Debug {
    /// The limits of the queue.
    fn limits(&self) -> QueueLimits;

    /// The progress of the queue. Raised to the number of each signalled operation when that
    /// operation is over.
    fn frontier(&self) -> &Arc<Frontier>;

    /// Posts an operation, with a number if it is signalled. Numbers of two threads may arrive out
    /// of order.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`]; [`FabricError::QueueOverrun`]; [`FabricError::StaleKey`] if a
    /// region is not attached or not registered; the error of a failed queue.
    fn post(&self, transfer: &Transfer<'_>, signal: Option<u64>) -> Result<(), FabricError>;

    /// Posts a signalled operation that moves no data.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`]; [`FabricError::QueueOverrun`]; the error of a failed queue.
    fn signal(&self, number: u64) -> Result<(), FabricError>;

    /// Makes progress.
    ///
    /// # Errors
    /// The error of a failed queue.
    fn progress(&self) -> Result<(), FabricError>;

    /// Number of operations of a failed queue that the transport has not released.
    fn quarantined(&self) -> usize;
}
