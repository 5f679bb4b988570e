//! The developer's commands: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod arguments;
mod beds;
mod book;
mod groups;
mod lines;
mod programs;
mod runner;
mod steps;
mod testing;
mod tidy;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Command, Xtask};

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let outcome = match Xtask::parse().command {
        Command::Test(options) => testing::test(&options),
        Command::Lint => steps::lint(),
        Command::Tidy { lower } => tidy::check(if lower { tidy::Allowances::Lower } else { tidy::Allowances::Keep }),
        Command::Lines => lines::print(),
        Command::Pictures => steps::pictures(),
        Command::Setup { beds, without } => steps::setup(&beds, &without),
        Command::Netns(options) => beds::netns::run(&options),
        Command::Launchers(options) => beds::launchers::run(&options),
        Command::Wheel(options) => beds::wheel::run(&options),
        Command::RdmaVm(options) => beds::rdma_vm::run(&options).map(|status| code = status),
        Command::Busy => runner::busy(),
    };
    match outcome {
        Ok(()) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
