//! The parts that the programs of the `farside` command share.
//!
//! The command is a shell: `farside kv` starts the program `farside-kv` in its folder. Each program
//! parses, refuses and reports in the same way, so that the command is one for its users. Results
//! go to the standard output and everything else to the standard error. The exit status is 0 only
//! on success.

#![forbid(unsafe_code)]

mod events;
mod values;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

pub use values::{InvalidCount, InvalidTime, Seconds, at_least_one};

/// The exit status for an invalid command line.
pub const USAGE: u8 = 2;

/// An error of a program of the command.
pub trait Failure: Error + Sized {
    /// Returns the exit status.
    fn exit_status(&self) -> u8 {
        1
    }

    /// Returns the text for the standard error, without the end of its last line. `None` if another
    /// process reports the error.
    fn report(&self) -> Option<String> {
        Some(format!("farside: error: {}", with_causes(self)))
    }
}

/// Parses the arguments of this program and runs it.
pub fn run<A: Parser, E: Failure>(body: impl FnOnce(A) -> Result<(), E>) -> ExitCode {
    run_with(std::env::args_os(), body)
}

/// Parses arguments, which begin with the name of the program, and runs the program.
///
/// Prints the help if the arguments ask for it, and the events that `FARSIDE_LOG` selects.
pub fn run_with<A: Parser, E: Failure>(
    arguments: impl IntoIterator<Item = OsString>,
    body: impl FnOnce(A) -> Result<(), E>,
) -> ExitCode {
    let arguments = match A::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = events::print() {
        eprintln!("farside: error: {error}");
        return ExitCode::from(USAGE);
    }
    let Err(error) = body(arguments) else { return ExitCode::SUCCESS };
    if let Some(report) = error.report() {
        eprintln!("{report}");
    }
    ExitCode::from(error.exit_status())
}

/// Prints the parser's message: an error in the command line, or the help or version requested.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let prefix = if text.starts_with("error:") { "farside: " } else { "" };
    eprint!("{prefix}{text}");
    ExitCode::from(USAGE)
}

/// Returns an error with its causes, as far as its own text does not name them.
pub fn with_causes(error: &dyn Error) -> String {
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
}
