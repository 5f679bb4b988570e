//! The parameters of a search.

use farside::Wire;

use super::SearchError;
use crate::tree::Rules;

/// The parameters of a search. All have sensible defaults.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
pub struct Params {
    /// The constant c of the UCB rule: what a seldom visited move is worth. Default 0.5.
    pub exploration: f32,
    /// How many random games evaluate a leaf. Default 16, as in Seriema §5.3.
    pub simulations: u32,
    /// A move gets a node of its own on its first visit after so many. Default 8.
    pub expand_after: u32,
    /// What the tree may take. Default 1 GiB.
    ///
    /// When three quarters are used, no nodes are added: rollouts end at the leaves there are, and go on sampling them.
    /// The last quarter lets existing nodes try more of their moves; when that is used up too, they keep to those tried.
    pub memory_bytes: usize,
    /// The same seed gives the same search. Default 0.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self { exploration: 0.5, simulations: 16, expand_after: 8, memory_bytes: 1 << 30, seed: 0 }
    }
}

impl Params {
    /// The most simulations for a leaf.
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
