//! The programs in the folder of this one, which the command starts in its place.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::error::CliError;

/// The arguments of another program, which parses them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of the program
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// A program in the folder of this one.
#[derive(Debug)]
pub(crate) struct Plugin {
    program: &'static str,
    /// The package that builds it.
    package: &'static str,
    /// The arguments before those of the user.
    first: &'static [&'static str],
}

pub(crate) const BENCH: Plugin = Plugin { program: "farside-bench", package: "farside-bench", first: &[] };
pub(crate) const RPC: Plugin = Plugin { program: "farside-rpc", package: "farside-rpc-cli", first: &[] };
pub(crate) const KV: Plugin = Plugin { program: "farside-kv", package: "farside-kv-cli", first: &[] };
pub(crate) const INSPECT: Plugin = Plugin { program: "farside-inspect", package: "farside-inspect-cli", first: &[] };
pub(crate) const TOP: Plugin = Plugin { first: &["top"], ..INSPECT };

impl Plugin {
    /// Returns the file of the program: it is in the folder of this one.
    fn path(&self) -> io::Result<PathBuf> {
        Ok(std::env::current_exe()?.with_file_name(self.program))
    }

    /// Returns whether the program was built.
    pub(crate) fn is_there(&self) -> bool {
        self.path().is_ok_and(|program| program.is_file())
    }

    /// Replaces this process by the program, which inherits its environment and receives its
    /// signals.
    ///
    /// Returns only if the program cannot be started, with [`CliError::NoPlugin`].
    pub(crate) fn start(&self, arguments: impl IntoIterator<Item = OsString>) -> CliError {
        let missing = |program, cause| {
            let build = if cfg!(debug_assertions) { "cargo build" } else { "cargo build --release" };
            CliError::NoPlugin { program, build, package: self.package, cause }
        };
        match self.path() {
            Ok(program) => {
                let cause = Command::new(&program).args(self.first).args(arguments).exec();
                missing(program, cause)
            }
            Err(cause) => missing(self.program.into(), cause),
        }
    }
}

/// Has `farside-inspect` carry out this command instead, with the same arguments.
///
/// Returns only if the program cannot be started, with [`CliError::NoPlugin`].
pub(crate) fn inspected() -> CliError {
    INSPECT.start(std::env::args_os().skip(1))
}

/// Returns whether the user has turned off that jobs are seen from outside.
pub(crate) fn is_inspection_off() -> bool {
    std::env::var_os(INSPECTION).is_some_and(|value| value == "off")
}

/// Returns whether the user has asked that jobs are seen from outside.
pub(crate) fn is_inspection_on() -> bool {
    std::env::var_os(INSPECTION).is_some_and(|value| !value.is_empty() && value != "off")
}

/// The variable by which users decide.
const INSPECTION: &str = "FARSIDE_INSPECT";
