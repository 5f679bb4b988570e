//! `farside inspect` and `farside top`: looks into running jobs.
//!
//! This program also has `run` and `hex` of the command, for jobs that are shown: the command
//! starts it for these.

#![forbid(unsafe_code)]

mod error;
mod inspect;
mod jobs;
mod search;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::jobs::Shown;

// These have the descriptions of their arguments.

#[derive(Debug, Parser)]
#[command(name = "farside", bin_name = "farside top")]
struct Top {
    #[command(flatten)]
    arguments: top::Arguments,
}

#[derive(Debug, Parser)]
#[command(name = "farside", bin_name = "farside run")]
struct Run {
    #[command(flatten)]
    arguments: farside_cli::run::Arguments,
}

#[derive(Debug, Parser)]
#[command(name = "farside", bin_name = "farside hex")]
struct Hex {
    #[command(flatten)]
    arguments: farside_cli::hex::Arguments,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let rest = words.iter().skip(1).cloned();
    match words.get(1).and_then(|word| word.to_str()) {
        Some("top") => farside_command::run_with(rest, |top: Top| top::run(&top.arguments)),
        Some("run") => farside_command::run_with(rest, |run: Run| farside_cli::run::run(run.arguments, Some(&Shown))),
        Some("hex") => farside_command::run_with(rest, |hex: Hex| farside_cli::hex::run(&hex.arguments, Some(&Shown))),
        _ => farside_command::run_with(words, |arguments| inspect::run(&arguments)),
    }
}
