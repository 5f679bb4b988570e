//! The distribution of an array.

/// The distribution of the values of a [`GlobalArray`](super::GlobalArray) over its parts, and
/// whether workers or processes have the parts.
///
/// | distribution | of 10 values, 4 parts have | good for |
/// |---|---|---|
/// | [`BLOCK`](Self::BLOCK) | 3, 3, 3 and 1, each neighbours | sweeps over neighbours, long transfers |
/// | [`CYCLIC`](Self::CYCLIC) | 3, 3, 2 and 2, every fourth | work that is uneven over the indices |
/// | [`block_cyclic(2)`](Self::block_cyclic) | 4, 2, 2 and 2, pairs of neighbours | both at once |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// The length of a block; 0 for one block per part, as short as possible.
    pub(super) block: usize,
    pub(super) is_over_processes: bool,
}

impl Distribution {
    /// Each part is one block. All blocks have the same length, except the last ones, which may be
    /// shorter or empty.
    pub const BLOCK: Self = Self { block: 0, is_over_processes: false };
    /// Deals one value to each part in turn.
    pub const CYCLIC: Self = Self { block: 1, is_over_processes: false };

    /// Deals `block` values to each part in turn.
    ///
    /// # Panics
    /// If `block` is 0.
    #[track_caller]
    pub const fn block_cyclic(block: usize) -> Self {
        assert!(block > 0, "invalid block length 0: a block has at least one value");
        Self { block, is_over_processes: false }
    }

    /// Returns the number of values that are dealt to a part in turn; `None` for
    /// [`BLOCK`](Self::BLOCK), by which each part has one block.
    pub const fn dealt(self) -> Option<usize> {
        if self.block == 0 { None } else { Some(self.block) }
    }

    /// Gives each process one part, which its workers share. Otherwise each worker has a part of
    /// its own.
    pub const fn over_processes(mut self) -> Self {
        self.is_over_processes = true;
        self
    }
}
