//! The exchange of rows between neighbors.

mod pipes;
mod signals;

use farside::{Worker, WorkerId};

use self::pipes::Pipes;
use self::signals::Signals;
use super::grid::Grid;
use crate::kit::*;

/// How rows travel to the neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeKind {
    /// Memory that the neighbors put into, with a ready flag for each.
    Signals,
    Pipes,
}

/// The exchange with the neighbors. A step waits for no other process.
pub(super) enum Halo<'w> {
    Signals(Box<Signals<'w>>),
    Pipes(Box<Pipes<'w>>),
}

impl<'w> Halo<'w> {
    /// Connects workers that have the rows in the order of their numbers. Collective.
    pub(super) fn new(me: &'w Worker, way: ExchangeKind, size: usize) -> Result<Self, BenchError> {
        Ok(match way {
            ExchangeKind::Signals => Self::Signals(Box::new(Signals::new(me, size)?)),
            ExchangeKind::Pipes => Self::Pipes(Box::new(Pipes::new(me, size)?)),
        })
    }

    /// Sends the rows at the edges.
    pub(super) fn begin(&mut self, grid: &Grid) -> farside::Result<()> {
        match self {
            Self::Signals(signals) => signals.begin(grid),
            Self::Pipes(pipes) => pipes.begin(grid),
        }
    }

    /// Waits for the rows of the neighbors.
    pub(super) fn end(&mut self, grid: &mut Grid) -> farside::Result<()> {
        match self {
            Self::Signals(signals) => signals.end(grid),
            Self::Pipes(pipes) => pipes.end(grid),
        }
    }

    /// Frees its memory. Collective.
    pub(super) fn free(self) -> farside::Result<()> {
        match self {
            Self::Signals(signals) => signals.free(),
            Self::Pipes(_) => Ok(()),
        }
    }
}

/// Returns the neighbors by side; `None` at the border.
pub(super) fn neighbors(me: &Worker) -> [Option<WorkerId>; 2] {
    let number = me.id().number();
    let below = Some(number + 1).filter(|below| *below < me.worker_count());
    [number.checked_sub(1), below].map(|number| number.map(WorkerId::new))
}
