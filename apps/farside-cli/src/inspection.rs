//! How a job is shown while it runs. The command itself shows none: `farside-inspect` does.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;

use farside::Worker;
use farside::job::launch::Launch;
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{JobError, OnJob, Report, Search, Window};

/// Shows jobs while they run.
pub trait Inspection: Sync {
    /// Serves a page for browsers and says where, until the result is dropped.
    ///
    /// The page shows the job that this process starts next, or the job to which it belongs.
    ///
    /// # Errors
    /// The reason why the page cannot be served.
    fn serve(&self, address: SocketAddr) -> Result<Box<dyn Any>, NotShown>;

    /// Answers readers for the processes of a job that is about to start, until the second result
    /// is dropped.
    ///
    /// # Errors
    /// The reason why the job should not start.
    fn answer_for(&self, launch: Launch) -> Result<(Launch, Box<dyn Any>), NotShown>;

    /// Shows a search that is about to begin in a position.
    ///
    /// # Errors
    /// The reason why the search should not begin.
    fn show<'w>(
        &self,
        me: &'w Worker,
        position: &Position,
        exploration: f32,
        search: Search<Hex, OnJob<'w>>,
        window: Window,
    ) -> Result<ShownSearch<'w>, JobError>;
}

/// Shows a report of a search.
pub type ShowReport = Box<dyn Fn(&Report<Cell>) + Send>;

/// A search that readers see until this is dropped.
pub struct ShownSearch<'w> {
    /// The search, whose exploration readers may change.
    pub search: Search<Hex, OnJob<'w>>,
    /// Shows a report of the search. Worker 0 calls it.
    pub report: ShowReport,
    /// Ends the showing when it is dropped.
    pub guard: Box<dyn Any>,
}

impl fmt::Debug for ShownSearch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownSearch").finish_non_exhaustive()
    }
}

/// Why a job cannot be shown.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct NotShown {
    /// The reason.
    pub cause: Box<dyn Error + Send + Sync>,
    /// The exit status of the command.
    pub exit_status: u8,
}
