//! The parameters of a search.

use farside::Wire;

use super::SearchError;
use crate::tree::Rules;

/// The parameters of a search.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub struct Params {
    /// Constant c of the UCB rule: the weight of rarely visited moves. Default 0.1, which suits 16
    /// simulations; fewer vary more, and need more exploration.
    pub exploration: f32,
    /// Number of random games that evaluate a leaf. Default 16, as in Seriema §5.3.
    pub simulations: u32,
    /// Number of visits of a move before the next visit makes a node for it. Default 8.
    pub expand_after: u32,
    /// Memory limit of the tree. Default 1 GiB.
    ///
    /// New nodes use three quarters of it. After that rollouts continue to sample existing leaves.
    /// The last quarter lets existing nodes try more of their moves. When it is used up too, nodes
    /// select among the moves they have tried.
    pub memory_bytes: usize,
    /// Seed of the random numbers. Default 0.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self { exploration: 0.1, simulations: 16, expand_after: 8, memory_bytes: 1 << 30, seed: 0 }
    }
}

impl Params {
    /// Maximum of [`simulations`](Self::simulations).
    pub const MAX_SIMULATIONS: u32 = 1 << 20;

    pub(crate) fn check(&self) -> Result<(), SearchError> {
        let Self { exploration, simulations, .. } = *self;
        if !(exploration.is_finite() && exploration >= 0.0) {
            return Err(SearchError::Exploration { exploration });
        }
        if !(1..=Self::MAX_SIMULATIONS).contains(&simulations) {
            return Err(SearchError::Simulations { simulations });
        }
        Ok(())
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules { exploration: self.exploration, simulations: self.simulations, memory_bytes: self.memory_bytes }
    }
}
