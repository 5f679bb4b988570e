//! The `farside` command: starts jobs, plays Hex and describes the machine. For all else it starts
//! programs in its own folder: `farside kv` is `farside-kv`.
//!
//! The command line is a contract, because scripts call it. `farside-inspect` has [`run`] and
//! [`hex`] as well, and shows the jobs that it starts.

#![forbid(unsafe_code)]

mod error;
pub mod hex;
mod info;
mod inspection;
mod json;
mod plugin;
pub mod run;
mod shape;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use error::CliError;
pub use inspection::{Inspection, NotShown, ShowReport, ShownSearch};

/// Use the memory and the functions of other processes as if they were your own.
#[derive(Debug, Parser)]
#[command(name = "farside", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Hex(hex::Arguments),
    /// Measure, and compare with the limits of this machine in the same run
    Bench(plugin::Arguments),
    Info(info::Arguments),
    /// Look at a server of remote procedures, and call it
    Rpc(plugin::Arguments),
    /// Keep values of any size under keys, for programs of this machine and of others
    Kv(plugin::Arguments),
    /// Look into a running job of your own, on this machine or over the network, without stopping
    /// it
    Inspect(plugin::Arguments),
    /// Show where the time of a running job's workers goes: in the program, in calls and in waits
    Top(plugin::Arguments),
    /// Print this message or the help of the given subcommand(s)
    Help {
        /// Print help for the subcommand(s)
        #[arg(value_name = "COMMAND")]
        names: Vec<OsString>,
    },
}

/// Runs the command with the arguments of this program.
pub fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // `farside help kv put` is `farside kv put --help`, which the program of the command answers.
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    farside_command::run_with(words, |cli: Cli| match cli.command {
        Command::Run(arguments) => run::run(arguments, None),
        Command::Hex(arguments) => hex::run(&arguments, None),
        Command::Info(arguments) => info::run(&arguments),
        Command::Bench(arguments) => Err(plugin::BENCH.start(arguments.words)),
        Command::Rpc(arguments) => Err(plugin::RPC.start(arguments.words)),
        Command::Kv(arguments) => Err(plugin::KV.start(arguments.words)),
        Command::Inspect(arguments) => Err(plugin::INSPECT.start(arguments.words)),
        Command::Top(arguments) => Err(plugin::TOP.start(arguments.words)),
        // It is in the list of commands only.
        Command::Help { .. } => Ok(()),
    })
}
