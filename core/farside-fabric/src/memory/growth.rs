//! The growth of an allocator that has no room left.

/// The growth of an allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// By the size of the first step, each time. Little memory is held beyond what is needed.
    Linear,
    /// By the size already held, so that it doubles each time. Growth is rare.
    #[default]
    Exponential,
}

impl Growth {
    /// Returns the size of the next step, of an allocator that began with `first` bytes and holds
    /// `held` bytes. A step is at most `max`.
    ///
    /// ```
    /// use farside_fabric::memory::Growth;
    ///
    /// assert_eq!(Growth::Linear.step(10, 70, 100), 10);
    /// assert_eq!(Growth::Exponential.step(10, 0, 100), 10);
    /// assert_eq!(Growth::Exponential.step(10, 40, 100), 40);
    /// assert_eq!(Growth::Exponential.step(10, 400, 100), 100);
    /// ```
    pub fn step(self, first: usize, held: usize, max: usize) -> usize {
        let step = match self {
            Self::Linear => first,
            Self::Exponential => held.max(first),
        };
        step.min(max.max(first))
    }
}
