//! What can go wrong, with the facts.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// Why something could not be measured or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// There is no such bench.
    #[error("no bench is called {name:?}; there are {known}")]
    UnknownBench {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// There is such a bench, but not on this fabric.
    #[error("the bench {name:?} does not exist on {fabric}; there are {known}")]
    NotOnFabric {
        /// What was asked for.
        name: String,
        /// On what.
        fabric: String,
        /// The names of those that do exist on it.
        known: String,
    },
    /// No case of a bench begins so.
    #[error("no case of the bench {bench} begins with {begin:?}; there are {known}")]
    NoSuchCase {
        /// The bench.
        bench: String,
        /// What was asked for.
        begin: String,
        /// The cases there are.
        known: String,
    },
    /// A bench has no such case.
    #[error("the bench {bench} has no case {case:?}: build the program once and run that one file")]
    UnknownCase {
        /// The bench.
        bench: String,
        /// What was asked for.
        case: String,
    },
    /// A process was started with arguments that no launcher writes.
    #[error("the arguments of a measuring process make no sense ({what}): it is started by `bench`, not by hand")]
    ChildArguments {
        /// What is wrong with them.
        what: &'static str,
    },
    /// The job that measures failed.
    #[error(transparent)]
    Job(#[from] farside::Error),
    /// The search that is measured failed.
    #[error(transparent)]
    Search(#[from] farside_mcts::SearchError),
    /// The memory for results could not be had.
    #[error(transparent)]
    Memory(#[from] farside_sys::shm::ShmError),
    /// What was received is not what was sent.
    #[error("{what}: {found} instead of {expected}; that is a bug, and the measurement is void")]
    WrongSum {
        /// What was measured.
        what: &'static str,
        /// The sum of what was sent.
        expected: u64,
        /// The sum of what was received.
        found: u64,
    },
    /// The results of a measuring process are not to be read.
    #[error("the measuring process left no results, but {text:?}")]
    Results {
        /// The beginning of what it left.
        text: String,
    },
    /// A recorded trace is damaged.
    #[error("the recorded trace has a line {line:?}, which is neither `+BYTES` nor `-BACK`: record it again")]
    Trace {
        /// The line.
        line: String,
    },
    /// One of several groups of processes that were launched separately failed.
    #[error("{who} of those launched separately {how}{}", reason(why))]
    Launch {
        /// Which process.
        who: String,
        /// How it ended.
        how: String,
        /// What process 0 has said of it, if anything.
        why: String,
    },
    /// A program of others, to be set beside, did not work.
    #[error("the peer {program} failed: {why}; with --no-peers such programs are left out")]
    Peer {
        /// The program, by its source.
        program: &'static str,
        /// How it ended, and what it said.
        why: String,
    },
    /// A case measured nothing, or what is no number.
    #[error("{bench} {case} measured no {metric}: repeat it on a machine with less to do")]
    NothingMeasured {
        /// The bench.
        bench: String,
        /// The case.
        case: String,
        /// The metric.
        metric: String,
    },
    /// The system refused.
    #[error("{doing} {path} failed: {cause}", path = path.display())]
    System {
        /// What was done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// Something in shared memory was waited for too long.
    #[error(
        "the other process of a measurement did not answer within {seconds} s: it may be stopped, or the machine overloaded"
    )]
    NoAnswer {
        /// How long.
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
    /// A row could not be handed on.
    #[error("writing a row failed: {0}")]
    Row(#[source] io::Error),
    /// The standard output is gone.
    #[error("writing to the standard output failed: {0}")]
    Output(#[source] io::Error),
}

impl BenchError {
    /// Whether the command line asks for what does not exist.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Self::UnknownBench { .. } | Self::NoSuchCase { .. } | Self::NotOnFabric { .. })
    }
}

/// The error and what caused it, where it does not say so itself.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text = format!("{text}\n  because {next_text}");
        }
        cause = next.source();
    }
    text
}

fn reason(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
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

/// For the body of a job, which fails with errors of the library.
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

job_error!(farside::heap::HeapError, farside::pipe::PipeError, farside::sync::SyncError);
