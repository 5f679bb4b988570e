//! The errors of the command, and the exit status of each.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use farside::LaunchError;

/// The exit status for an invalid command line.
pub(crate) const USAGE: u8 = 2;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A part of the command line of `run`, between colons, is invalid.
    #[error(
        "{what} in part {number} of the command line: write each part, between colons, as `-n PROCESSES PROGRAM [ARGUMENTS]`"
    )]
    RunPart {
        /// The fault.
        what: String,
        /// The number of the part, counted from 1.
        number: usize,
    },
    /// The value to store would be typed by hand.
    #[error("the standard input is a terminal: name the file to store, or send the value by a pipe or `<`")]
    NoInput,
    /// A server of remote procedures could not be asked.
    #[error("{0}")]
    Rpc(String),
    /// The arguments for a remote procedure are invalid.
    #[error("{0}")]
    Arguments(String),
    /// A remote procedure returned its own error: one line of JSON.
    #[error("{0}")]
    Service(String),
    /// What was read could not be kept in a file.
    #[error("cannot write {}", path.display())]
    MemoryFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The job has nothing that the command could end or go on with.
    #[error("{0}")]
    NotHeld(String),
    /// What was to be written could not be read.
    #[error("cannot read {}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The secret of a token could not be read.
    #[error("cannot read the secret in {}", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// A store could not be used.
    #[error(transparent)]
    Kv(#[from] farside_kv::ClientError),
    /// A store could not be opened.
    #[error(transparent)]
    OpenStore(#[from] farside_kv::OpenError),
    /// The streams of a session failed.
    #[error("the session ended: {0}")]
    Session(io::Error),
    /// The command has no page.
    #[cfg(not(feature = "page"))]
    #[error("this command was built without the page: build it with `cargo build --release --features page`")]
    NoPage,
    /// The page's server could not be started.
    #[cfg(feature = "page")]
    #[error("the page cannot be served at {address}: {cause}; choose another address, such as 127.0.0.1:0")]
    Page {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// An area cannot be drawn.
    #[error(
        "{name:?} is selected with {dimensions} dimensions, and a picture has one or two: select fewer, such as [0, :, :]"
    )]
    Dimensions {
        /// The name of the area.
        name: String,
        /// The number of dimensions selected.
        dimensions: usize,
    },
    /// A job could not be looked into.
    #[error(transparent)]
    Inspect(#[from] farside_viewer::InspectError),
    #[error(transparent)]
    Expose(#[from] farside_inspect::ExposeError),
    /// Elements are missing. The others were printed.
    #[error("{name:?} is not whole, because processes are gone: there is nothing of {missing}")]
    Missing {
        /// The name of the area.
        name: String,
        /// The parts.
        missing: String,
    },
    /// A server could not be started.
    #[error(transparent)]
    StartServer(#[from] farside_rpc::server::StartError),
    /// Calls were still running when the server had to end.
    #[error(transparent)]
    CallsLeft(#[from] farside_rpc::server::Unfinished),
    /// The signals that end a server could not be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// The standard input failed.
    #[error("reading the standard input failed: {0}")]
    Input(io::Error),
    /// The position to search is invalid.
    #[error(transparent)]
    Hex(#[from] farside_mcts::games::hex::HexError),
    /// The game is over, so no move can be searched for.
    #[error("the game is over: {winner} has won after {moves} moves; leave out the last")]
    GameOver {
        /// The winner.
        winner: &'static str,
        /// Number of moves given.
        moves: usize,
    },
    /// The search is impossible.
    #[error(transparent)]
    Search(#[from] farside_mcts::SearchError),
    /// The options ask for several workers and for a search in one thread.
    #[error("--local searches in one thread, not in {workers}: leave out -n and -t, or --local")]
    LocalWorkers {
        /// Number of workers asked for.
        workers: u64,
    },
    /// The job failed.
    #[error(transparent)]
    Job(#[from] farside::Error),
    /// The engine lost its input or output.
    #[error(transparent)]
    Engine(farside::Error),
    /// The program `farside-bench` could not be started.
    #[error(
        "starting {program} failed: {cause}; build it with `cargo build --release -p farside-bench`, and keep it beside \
         this program",
        program = program.display()
    )]
    NoBench {
        /// The path where it is expected.
        program: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] farside_fabric::FabricError),
    /// The description of the machine could not be read.
    #[error(transparent)]
    Topology(#[from] farside_sys::topology::TopologyError),
    /// The standard output is closed.
    #[error("writing to the standard output failed: {0}")]
    Output(io::Error),
}

impl CliError {
    /// The exit status of the command: that of the process that failed first, if a job failed.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::RunPart { .. }
            | Self::Arguments(_)
            | Self::Hex(_)
            | Self::GameOver { .. }
            | Self::Search(_)
            | Self::LocalWorkers { .. }
            | Self::Expose(_)
            | Self::Inspect(farside_viewer::InspectError::Selection(_)) => USAGE,
            Self::Job(error) => status_of_job(error),
            _ => 1,
        }
    }
}

fn status_of_job(error: &farside::Error) -> u8 {
    match error {
        // A job that failed never ends with 0, whatever the status of its process.
        farside::Error::Launch(LaunchError::ProcessFailed { how, .. }) => {
            u8::try_from(how.exit_status()).unwrap_or(1).max(1)
        }
        farside::Error::Launch(LaunchError::JobShape { .. }) => USAGE,
        _ => 1,
    }
}

/// The error with its causes, as far as its own text does not name them.
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

#[cfg(test)]
mod tests {
    use farside::{ProcessEnd, ProcessId};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn causes_are_named_once() {
        let layer = |text, source| Layer { text, source };
        let inner = layer("no room", None);
        let told = layer("writing failed: no room", Some(Box::new(inner)));
        let untold = layer("the job ended", Some(Box::new(told)));
        assert_eq!(with_causes(&untold), "the job ended\n  because writing failed: no room");
    }

    #[test]
    fn a_job_ends_with_the_status_of_the_process_that_failed() {
        let status = |how| {
            CliError::from(farside::Error::from(LaunchError::ProcessFailed { process: ProcessId::new(1), how }))
                .exit_status()
        };
        assert_eq!(status(ProcessEnd::Exited(7)), 7);
        assert_eq!(status(ProcessEnd::Killed(9)), 137);
        assert_eq!(status(ProcessEnd::TimedOut), 124);
        assert_eq!(status(ProcessEnd::NotStarted(String::new())), 127);
        for strange in [0, -1, 256] {
            assert_eq!(status(ProcessEnd::Exited(strange)), 1, "{strange}");
        }
    }
}
