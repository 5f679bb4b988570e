//! `farside bench`: starts the program `farside-bench`, which measures.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::error::CliError;

const PROGRAM: &str = "farside-bench";

/// Measure, beside the limits of this machine in the same run
///
/// Starts the program farside-bench from the folder of this command. `farside bench --help` prints
/// its options.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of farside-bench
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by `farside-bench`, which inherits its environment and receives its
/// signals.
///
/// Returns only if the program cannot be started, with [`CliError::NoBench`].
pub(crate) fn run(arguments: Arguments) -> CliError {
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name(PROGRAM),
        Err(cause) => return CliError::NoBench { program: PathBuf::from(PROGRAM), cause },
    };
    let cause = Command::new(&program).args(arguments.arguments).exec();
    CliError::NoBench { program, cause }
}
