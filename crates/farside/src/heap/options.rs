//! What a heap is to be like, and what is asked of it.

pub use farside_fabric::memory::Fit;

/// When the initiator hears of what the peer has freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronisation {
    /// The peer collects what it has freed, and tells of all of it at once: when it has freed so many blocks, or blocks of a quarter of the heap,
    /// or when it is asked, since the heap is exhausted. Costs little; what is free at the peer may count as in use for a while.
    Deferred {
        /// How many blocks, at least 1.
        batch: u32,
    },
    /// The peer tells of each block as it frees it, and every allocation first looks at what it has told. So the policy
    /// chooses among all that is free.
    Immediate,
}

/// So many blocks are collected if nothing else is said.
const BATCH: u32 = 64;

/// What a [`RemoteHeap`](super::RemoteHeap) is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct HeapOptions {
    pub(super) bytes: u64,
    pub(super) fit: Fit,
    pub(super) synchronisation: Option<Synchronisation>,
}

impl HeapOptions {
    /// A heap of so many bytes, the headers of its blocks (16 bytes each) included: next fit, synchronised when the peer frees.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, fit: Fit::Next, synchronisation: None }
    }

    /// As large as that.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Which of the free pieces that are large enough is taken. First and next fit go with deferred synchronisation unless another is
    /// [said](Self::synchronisation), best and worst fit with immediate synchronisation: what they choose is as good as what they know.
    pub fn fit(mut self, fit: Fit) -> Self {
        self.fit = fit;
        self
    }

    /// When the initiator hears of what the peer has freed.
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

/// What is asked of a heap: so many bytes, and where they may begin. Made of a number of bytes, or by [`Space::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Space {
    pub(super) bytes: u64,
    pub(super) align: u64,
}

impl Space {
    /// So many bytes, on a multiple of 16.
    pub fn of(bytes: u64) -> Self {
        Self { bytes, align: 16 }
    }

    /// On a multiple of `align`, a power of two of at most 4096, at the peer and in the local view.
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
