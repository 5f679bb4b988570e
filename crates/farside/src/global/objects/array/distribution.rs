//! How an array is to be dealt out.

/// How the values of a [`GlobalArray`](super::GlobalArray) are dealt out, and to whom.
///
/// | distribution | of 10 values, 4 parts have | good for |
/// |---|---|---|
/// | [`BLOCK`](Self::BLOCK) | 3, 3, 3 and 1, each neighbours | sweeps over neighbours, long transfers |
/// | [`CYCLIC`](Self::CYCLIC) | 3, 3, 2 and 2, every fourth | work that is uneven over the indices |
/// | [`block_cyclic(2)`](Self::block_cyclic) | 4, 2, 2 and 2, pairs of neighbours | both at once |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// The length of a block; 0 for as few as possible to each part.
    pub(super) block: usize,
    pub(super) is_over_processes: bool,
}

impl Distribution {
    /// Each part is one block, all of the same length but for the last ones, which may be shorter or empty.
    pub const BLOCK: Self = Self { block: 0, is_over_processes: false };
    /// One value each in turn.
    pub const CYCLIC: Self = Self { block: 1, is_over_processes: false };

    /// So many values each in turn.
    ///
    /// # Panics
    /// When blocks are to have no values.
    #[track_caller]
    pub const fn block_cyclic(block: usize) -> Self {
        assert!(block > 0, "a block has at least one value");
        Self { block, is_over_processes: false }
    }

    /// To processes, whose workers share a part; without this each worker has a part of its own.
    pub const fn over_processes(mut self) -> Self {
        self.is_over_processes = true;
        self
    }
}
