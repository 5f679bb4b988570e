//! Keeping data in files: [`save`] and [`restore`] for the items of any container, [`npy`] for
//! arrays of numbers.
//!
//! All processes must see the same folder: on several machines, one of a shared file system.

pub mod npy;
mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use farside::{Error, ProcessId, Result, Wire, Worker, WorkerId, wire};
use xxhash_rust::xxh3::xxh3_64;

pub use self::snapshot::{restore, save};
use crate::agreement::{find_unequal, first, is_first};

/// A fault of a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The system refused an operation.
    #[error(
        "{doing} {} failed: {cause}; mend that, or use another path, and do it again", path.display()
    )]
    System {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: io::Error,
    },
    /// The file is not of this kind, or was altered or cut short.
    #[error(
        "{} is not usable: {why}; restore it from a copy, or write it again from its data", path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// The file holds values of another type.
    #[error("{} holds {there}, not {here}: read it with the type that it was written with", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The type that was asked for.
        here: String,
        /// The type in the file.
        there: String,
    },
    /// Values of the type mean something only in this job.
    #[error(
        "values of type {name} cannot be kept: {part} in them means nothing in another job; keep a type without it"
    )]
    Handle {
        /// The type.
        name: &'static str,
        /// The part.
        part: &'static str,
    },
    /// The workers gave different arguments.
    #[error(
        "{worker} gave another path or shape than {}: give the same on all workers, and do it again", path.display()
    )]
    Unequal {
        /// The path of this worker.
        path: PathBuf,
        /// The first worker whose arguments are not those of worker 0.
        worker: WorkerId,
    },
    /// A part of the array is lost.
    #[error(
        "{} was not written: {process} is lost, and so is its part of the array; go on from an earlier file", path.display()
    )]
    Lost {
        /// The path.
        path: PathBuf,
        /// The process.
        process: ProcessId,
    },
    /// Another worker has failed.
    #[error("{worker} failed: {why}; the other workers have stopped with it")]
    Elsewhere {
        /// The worker.
        worker: WorkerId,
        /// Its error.
        why: String,
    },
}

impl From<KeepError> for Error {
    fn from(error: KeepError) -> Self {
        Self::Room(Box::new(error))
    }
}

impl KeepError {
    fn malformed(path: &Path, why: impl fmt::Display) -> Self {
        Self::Malformed { path: path.to_owned(), why: why.to_string() }
    }
}

/// Adds the operation and the file to an error of the system. Follows each operation on a file, so
/// that tests can kill the process there.
trait During<T> {
    fn during(self, doing: &'static str, path: &Path) -> Result<T, KeepError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, doing: &'static str, path: &Path) -> Result<T, KeepError> {
        #[cfg(test)]
        tests::step();
        self.map_err(|cause| KeepError::System { doing, path: path.to_owned(), cause })
    }
}

/// The error of the first worker that has failed, with its text.
#[derive(Clone, Wire)]
struct Failure(u32, String);

/// Waits for all workers. If one has failed, all return an error. Collective.
fn agree<T>(me: &Worker, outcome: Result<T>) -> Result<T> {
    let own = outcome.as_ref().err().map(|error| Failure(me.id().number(), error.to_string()));
    let first = me.all_reduce(own, |one, other| match (one, other) {
        (Some(one), Some(other)) => Some(if one.0 <= other.0 { one } else { other }),
        (one, other) => one.or(other),
    });
    let value = outcome?;
    match first? {
        None => Ok(value),
        Some(Failure(worker, why)) => Err(KeepError::Elsewhere { worker: WorkerId::new(worker), why }.into()),
    }
}

/// Refuses different paths or shapes on every worker. Collective.
fn agree_on(me: &Worker, path: &Path, shape: &[usize]) -> Result<()> {
    let arguments = (path.as_os_str().as_encoded_bytes().to_vec(), shape.to_vec());
    let unequal = find_unequal(me, arguments)?;
    unequal.map_or(Ok(()), |worker| Err(KeepError::Unequal { path: path.to_owned(), worker }.into()))
}

/// Returns the path of a file in the folder of `path`, whose name begins with that of `path`.
fn sibling(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

/// Replaces `path` by a finished file, so that after a crash the old or the new file is there.
/// After an error nothing is replaced.
fn replace(finished: &Path, path: &Path) -> Result<(), KeepError> {
    let name = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let folder = File::open(name).during("opening the folder", name)?;
    // The names of all files that were written before.
    folder.sync_all().during("writing the folder", name)?;
    std::fs::rename(finished, path).during("renaming", finished)?;
    // The file is replaced already. If the system loses the new name, the earlier file is back.
    let _ = folder.sync_all().during("writing the folder", name);
    Ok(())
}

/// Returns a number that no other job uses. Collective.
fn session(me: &Worker) -> Result<u64> {
    let own = is_first(me).then(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        xxh3_64(&wire::encode(&(now, std::process::id(), me.process().number()), Vec::new()))
    });
    me.broadcast(first(me), own)
}

/// Returns whether an error of [`agree`] is one that all workers have agreed on. After a loss or a
/// deadline, others may have gone on.
fn is_agreed(error: &Error) -> bool {
    error.room_error::<KeepError>().is_some()
}
