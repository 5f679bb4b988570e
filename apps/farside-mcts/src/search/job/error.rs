//! The errors of a search on a job.

use std::io;

use farside::WorkerId;

use crate::search::SearchError;

/// An error of a search on a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The search could not begin.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A call between workers failed, or a process is lost.
    #[error(transparent)]
    Job(#[from] farside::Error),
    /// Another search is in progress with the same [`OnJob`](crate::OnJob).
    #[error(
        "cannot begin a search: another one uses the same `OnJob`; drop its session first, or make a second `OnJob`"
    )]
    InUse,
    /// A message named a thing that its receiver does not have.
    #[error(
        "the search failed: {worker} got a message about {what} that it does not have; call the search on all workers \
         with the same game, state and parameters"
    )]
    Mismatch {
        /// The receiver.
        worker: WorkerId,
        /// The thing that the message named.
        what: &'static str,
    },
}

/// For the body of a job, which returns [`farside::Error`].
impl From<JobError> for farside::Error {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Job(error) => error,
            other => farside::Error::System { doing: "a tree search", cause: io::Error::other(other) },
        }
    }
}
