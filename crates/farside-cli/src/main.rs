//! The `farside` command: starts jobs, plays Hex, measures, and says what there is.
//!
//! The command line is a contract, for scripts call it. Results go to the standard output and everything else to the
//! standard error; the exit status is 0 only if all went well.

#![forbid(unsafe_code)]

mod bench;
mod error;
mod hex;
mod info;
mod run;
mod values;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// The memory and the functions of other processes, as if they were on your own side.
#[derive(Debug, Parser)]
#[command(name = "farside", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Hex(hex::Arguments),
    Bench(bench::Arguments),
    Info(info::Arguments),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Hex(arguments) => hex::run(&arguments),
        Command::Bench(arguments) => Err(bench::run(arguments)),
        Command::Info(arguments) => info::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The launcher, or process 0, was told what went wrong, and says so for all.
        Err(error) if farside::job::is_reported() => ExitCode::from(error.exit_status()),
        Err(error) => {
            eprintln!("farside: error: {}", error::with_causes(&error));
            ExitCode::from(error.exit_status())
        }
    }
}

/// Prints what the parser of the command line has to say: what is wrong with it, or the help that was asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let prefix = if text.starts_with("error:") { "farside: " } else { "" };
    eprint!("{prefix}{text}");
    ExitCode::from(error::USAGE)
}
