//! The errors of a measurement.

use std::io;
use std::path::PathBuf;

use farside_command::{Failure, USAGE};

/// The reason that something could not be measured or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The bench does not exist on this fabric.
    #[error("unknown bench {name:?} on {fabric}: expected one of {known}")]
    UnknownBench {
        /// The name that was given.
        name: String,
        /// The fabric.
        fabric: String,
        /// The benches that exist on it.
        known: String,
    },
    /// A bench without containers was given their size.
    #[error("the bench {bench} measures no container: -s (--local-size) is for {containers}")]
    NoContainer {
        /// The bench.
        bench: &'static str,
        /// The benches that take a size.
        containers: String,
    },
    /// No case of the bench has a name that begins with this text.
    #[error("unknown case {begin:?} of the bench {bench}: expected the beginning of one of {known}")]
    NoSuchCase {
        /// The bench.
        bench: String,
        /// The text that was given.
        begin: String,
        /// The cases of the bench.
        known: String,
    },
    /// The bench has no such case.
    #[error("unknown case {case:?} of the bench {bench}: start all processes from the same file")]
    UnknownCase {
        /// The bench.
        bench: String,
        /// The text that was given.
        case: String,
    },
    /// A process was started with arguments that `farside-bench` never passes.
    #[error(
        "invalid arguments of a measuring process: {what}; such a process is started by `farside bench`, not by hand"
    )]
    ChildArguments {
        /// The fault of the arguments.
        what: &'static str,
    },
    /// The job that measures failed.
    #[error(transparent)]
    Job(#[from] farside::Error),
    /// A server did not start, or a call of it failed.
    #[error("a remote procedure call failed: {0}")]
    Rpc(String),
    /// The search that is measured failed.
    #[error(transparent)]
    Search(#[from] farside_mcts::SearchError),
    /// The memory for results could not be allocated.
    #[error(transparent)]
    Memory(#[from] farside_sys::shm::ShmError),
    /// The data received differs from the data sent.
    #[error("wrong sum of {what}: {found} instead of {expected}; this is a bug, and the measurement is void")]
    WrongSum {
        /// The data that was summed.
        what: &'static str,
        /// The sum of the data sent.
        expected: u64,
        /// The sum of the data received.
        found: u64,
    },
    /// The results of a measuring process cannot be read.
    #[error("reading the results of the measuring process failed: it left {text:?}")]
    Results {
        /// The beginning of the results.
        text: String,
    },
    /// A recorded trace is damaged.
    #[error(
        "reading the recorded trace failed: the line {line:?} is neither `+BYTES` nor `-BACK`; record the trace again"
    )]
    Trace {
        /// The line.
        line: String,
    },
    /// A process of a group that was launched separately failed.
    #[error("{who}, launched separately, {how}{}", reason(why))]
    Launch {
        /// The process.
        who: String,
        /// The way in which it ended.
        how: String,
        /// The report of process 0, or an empty text.
        why: String,
    },
    /// A program of a peer failed.
    #[error("the peer {program} failed: {why}; --no-peers leaves such programs out")]
    Peer {
        /// The name of its source file.
        program: &'static str,
        /// The way in which it ended, and its output.
        why: String,
    },
    /// A case measured nothing, or a value that is not a number.
    #[error("{bench} {case} measured no {metric}: repeat the measurement on a less busy machine")]
    NothingMeasured {
        /// The bench.
        bench: String,
        /// The case.
        case: String,
        /// The metric.
        metric: String,
    },
    /// A system call failed.
    #[error("{doing} {path} failed: {cause}", path = path.display())]
    System {
        /// The action.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The other process of a measurement did not change shared memory in time.
    #[error(
        "the other process of a measurement did not answer within {seconds} s: it may be stopped, or the machine overloaded"
    )]
    NoAnswer {
        /// The time waited.
        seconds: u64,
    },
    /// A plot could not be drawn.
    #[error("drawing {path} failed: {why}", path = path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A row could not be written.
    #[error("writing a row failed: {0}")]
    Row(#[source] io::Error),
    /// The standard output is closed.
    #[error("writing to the standard output failed: {0}")]
    Output(#[source] io::Error),
}

impl Failure for BenchError {
    fn exit_status(&self) -> u8 {
        // The command line asks for something that does not exist.
        let is_usage = matches!(self, Self::UnknownBench { .. } | Self::NoSuchCase { .. } | Self::NoContainer { .. });
        if is_usage { USAGE } else { 1 }
    }
}

fn reason(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// The error of a call of a server, or of reaching one.
pub(crate) fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Rpc(error.to_string())
}

impl From<farside_fabric::Unposted> for BenchError {
    fn from(unposted: farside_fabric::Unposted) -> Self {
        unposted.error.into()
    }
}

impl From<farside_fabric::FabricError> for BenchError {
    fn from(error: farside_fabric::FabricError) -> Self {
        Self::Job(error.into())
    }
}

/// Converts for the body of a job, which returns errors of the library.
impl From<BenchError> for farside::Error {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Job(error) => error,
            other => farside::Error::System { doing: "a measurement", cause: io::Error::other(other) },
        }
    }
}

macro_rules! job_error {
    ($($room:ty),*) => {
        $(impl From<$room> for BenchError {
            fn from(error: $room) -> Self {
                Self::Job(error.into())
            }
        })*
    };
}

job_error!(farside_kit::heap::HeapError, farside_kit::pipe::PipeError, farside_kit::sync::SyncError);
