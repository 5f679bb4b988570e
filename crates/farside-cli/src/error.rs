//! What can go wrong, and the exit status for it.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// The exit status for a command line that makes no sense.
pub(crate) const USAGE: u8 = 2;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A part of `run`'s command line, between colons, makes no sense.
    #[error(
        "{what} in part {number} of the command line (parts are separated by `:`): write `-n PROCESSES PROGRAM [ARGUMENTS]`"
    )]
    RunPart {
        /// What is wrong.
        what: String,
        /// Which part, counted from 1.
        number: usize,
    },
    /// There is no position to search.
    #[error(transparent)]
    Hex(#[from] farside_mcts::games::hex::HexError),
    /// The game is over, so there is no move to look for.
    #[error("the game is over, {winner} has won: leave out the last of the {moves} moves")]
    GameOver {
        /// Who has won.
        winner: &'static str,
        /// How many moves were given.
        moves: usize,
    },
    /// A search that cannot be.
    #[error(transparent)]
    Search(#[from] farside_mcts::SearchError),
    /// Several workers were asked for, and one thread alone.
    #[error("--local searches in one thread, not in {workers}: leave out -n and -t, or --local")]
    LocalWorkers {
        /// How many were asked for.
        workers: u64,
    },
    /// The job failed.
    #[error(transparent)]
    Job(#[from] farside::Error),
    /// The engine lost its input or output.
    #[error(transparent)]
    Engine(farside::Error),
    /// The program that measures could not be started.
    #[error(
        "starting {program} failed: {cause}; build it with `cargo build --release -p farside-bench`, and keep it beside \
         this program",
        program = program.display()
    )]
    NoBench {
        /// Where it should be.
        program: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] farside_fabric::FabricError),
    /// The machine is not to be read.
    #[error(transparent)]
    Topology(#[from] farside_sys::topology::TopologyError),
    /// The standard output is gone.
    #[error("writing to the standard output failed: {0}")]
    Output(io::Error),
}

impl CliError {
    /// What the command exits with: the status of the process that failed first, if it is a job's.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::RunPart { .. }
            | Self::Hex(_)
            | Self::GameOver { .. }
            | Self::Search(_)
            | Self::LocalWorkers { .. } => USAGE,
            Self::Job(error) => status_of_job(error),
            _ => 1,
        }
    }
}

fn status_of_job(error: &farside::Error) -> u8 {
    match error {
        // Whatever the process said, a job that failed does not end with 0.
        farside::Error::ProcessFailed { how, .. } => u8::try_from(how.exit_status()).unwrap_or(1).max(1),
        farside::Error::JobShape { .. } => USAGE,
        _ => 1,
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
        let status =
            |how| CliError::from(farside::Error::ProcessFailed { process: ProcessId::new(1), how }).exit_status();
        assert_eq!(status(ProcessEnd::Exited(7)), 7);
        assert_eq!(status(ProcessEnd::Killed(9)), 137);
        assert_eq!(status(ProcessEnd::TimedOut), 124);
        assert_eq!(status(ProcessEnd::NotStarted(String::new())), 127);
        for strange in [0, -1, 256] {
            assert_eq!(status(ProcessEnd::Exited(strange)), 1, "{strange}");
        }
    }
}
