//! How much more an allocator takes when it has no room left.

/// How an allocator grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// By as much as it began with, each time. What it holds beyond what is needed stays small.
    Linear,
    /// By as much as it holds already, so that it doubles each time. It seldom grows.
    #[default]
    Exponential,
}

impl Growth {
    /// By how many bytes one grows that began with `first` and holds `held`, `max` at a time at most.
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
