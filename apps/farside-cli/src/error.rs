//! The errors of the command, and the exit status of each.

use std::io;
use std::path::PathBuf;

use farside::LaunchError;
use farside_command::{Failure, USAGE};

use crate::inspection::NotShown;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
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
    /// The job cannot be shown.
    #[error(transparent)]
    Shown(#[from] NotShown),
    /// A program in the folder of this one could not be started.
    #[error(
        "starting {program} failed: {cause}; build it with `{build} -p {package}`, and keep it beside this program",
        program = program.display()
    )]
    NoPlugin {
        /// The path where it is expected.
        program: PathBuf,
        /// The command that builds programs like this one.
        build: &'static str,
        /// The package of the program.
        package: &'static str,
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

impl Failure for CliError {
    /// Returns the exit status: that of the process that failed first, if a job failed.
    fn exit_status(&self) -> u8 {
        match self {
            Self::RunPart { .. }
            | Self::Hex(_)
            | Self::GameOver { .. }
            | Self::Search(_)
            | Self::LocalWorkers { .. } => USAGE,
            Self::Shown(error) => error.exit_status,
            Self::Job(error) => status_of_job(error),
            _ => 1,
        }
    }

    fn report(&self) -> Option<String> {
        // The launcher or process 0 received the error and prints it for all processes.
        (!farside::job::is_reported()).then(|| format!("farside: error: {}", farside_command::with_causes(self)))
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

#[cfg(test)]
mod tests {
    use farside::{ProcessEnd, ProcessId};

    use super::*;

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
