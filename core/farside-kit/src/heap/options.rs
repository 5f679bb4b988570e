//! The options of a heap and of an allocation.

pub use farside_fabric::memory::Fit;

/// The time at which the peer reports freed blocks to the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronisation {
    /// The peer collects freed blocks and reports them together: after `batch` blocks, after a
    /// quarter of the heap, or when the initiator of an exhausted heap asks. This costs little, but
    /// blocks that the peer has freed may count as in use for a while.
    Deferred {
        /// The number of blocks to collect, at least 1.
        batch: u32,
    },
    /// The peer reports each block as it frees it, and every allocation looks at these reports
    /// first. So the fit chooses among all free ranges.
    Immediate,
}

/// The default batch of deferred synchronisation.
const BATCH: u32 = 64;

/// The options of a [`RemoteHeap`](super::RemoteHeap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct HeapOptions {
    pub(super) bytes: u64,
    pub(super) fit: Fit,
    pub(super) synchronisation: Option<Synchronisation>,
}

impl HeapOptions {
    /// Returns options for a heap of `bytes`, which include the 16-byte headers of its blocks: next
    /// fit with deferred synchronisation.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, fit: Fit::Next, synchronisation: None }
    }

    /// Sets the size of the heap.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets which of the large enough free ranges an allocation takes. Unless
    /// [`synchronisation`](Self::synchronisation) is set, first and next fit use deferred
    /// synchronisation, best and worst fit immediate synchronisation: those need to know all free
    /// ranges to choose well.
    pub fn fit(mut self, fit: Fit) -> Self {
        self.fit = fit;
        self
    }

    /// Sets when the peer reports freed blocks to the initiator.
    pub fn synchronisation(mut self, synchronisation: Synchronisation) -> Self {
        self.synchronisation = Some(synchronisation);
        self
    }

    pub(super) fn synchronisation_or_default(&self) -> Synchronisation {
        let by_fit = match self.fit {
            Fit::First | Fit::Next => Synchronisation::Deferred { batch: BATCH },
            Fit::Best | Fit::Worst => Synchronisation::Immediate,
        };
        self.synchronisation.unwrap_or(by_fit)
    }
}

/// The size and alignment of an allocation. Converted from a number of bytes, or made by
/// [`Space::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Space {
    pub(super) bytes: u64,
    pub(super) align: u64,
}

impl Space {
    /// Returns a request for `bytes` on a multiple of 16.
    pub fn of(bytes: u64) -> Self {
        Self { bytes, align: 16 }
    }

    /// Sets the alignment at the peer and in the local view: a power of two of at most 4096.
    pub fn aligned(mut self, align: u64) -> Self {
        self.align = align;
        self
    }
}

impl From<u64> for Space {
    fn from(bytes: u64) -> Self {
        Self::of(bytes)
    }
}
