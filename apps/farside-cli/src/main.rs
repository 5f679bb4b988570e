//! The `farside` command: starts jobs, plays Hex, measures, describes the machine, looks at
//! servers and into jobs, and keeps values.
//!
//! The command line is a contract, because scripts call it. Results go to the standard output and
//! everything else to the standard error. The exit status is 0 only on success.

#![forbid(unsafe_code)]

mod bench;
mod error;
mod hex;
mod info;
mod inspect;
mod kv;
mod rpc;
mod run;
mod top;
mod values;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Use the memory and the functions of other processes as if they were your own.
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
    Rpc(rpc::Arguments),
    Kv(kv::Arguments),
    Inspect(inspect::Arguments),
    Top(top::Arguments),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = farside::job::log_to_stderr() {
        eprintln!("farside: error: {error}");
        return ExitCode::from(error::USAGE);
    }
    let result = match cli.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Hex(arguments) => hex::run(&arguments),
        Command::Bench(arguments) => Err(bench::run(arguments)),
        Command::Info(arguments) => info::run(&arguments),
        Command::Rpc(arguments) => rpc::run(&arguments),
        Command::Kv(arguments) => kv::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The launcher or process 0 received the error and prints it for all processes.
        Err(error) if farside::job::is_reported() => ExitCode::from(error.exit_status()),
        // For programs that read it.
        Err(error::CliError::Service(json)) => {
            eprintln!("{json}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("farside: error: {}", error::with_causes(&error));
            ExitCode::from(error.exit_status())
        }
    }
}

/// Prints the parser's message: an error in the command line, or the help or version requested.
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
