//! Why a search on a job failed.

use std::io;

use farside::WorkerId;

use crate::search::SearchError;

/// Why a search on a job failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// It could not begin.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The workers could not talk to each other, or one of them is gone.
    #[error(transparent)]
    Job(#[from] farside::Error),
    /// Another search is under way with the same [`OnJob`](crate::OnJob).
    #[error("another search uses the same `OnJob`: end its session first, or make an `OnJob` for each")]
    InUse,
    /// A message named something that its receiver does not have.
    #[error(
        "{worker} was sent a message about {what} that it does not have: have all workers of the job search the same game \
         from the same state with the same parameters"
    )]
    Mismatch {
        /// The receiver.
        worker: WorkerId,
        /// What was named.
        what: &'static str,
    },
}

/// For the body of a job, which fails with errors of the library.
impl From<JobError> for farside::Error {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Job(error) => error,
            other => farside::Error::System { doing: "a tree search", cause: io::Error::other(other) },
        }
    }
}
