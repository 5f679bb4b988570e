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
use beds::Bed;
use steps::{cargo, run};

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let outcome = match Xtask::parse().command {
        Command::Test(options) => testing::test(&options),
        Command::Lint => lint(),
        Command::Tidy { lower } => tidy::check(if lower { tidy::Allowances::Lower } else { tidy::Allowances::Keep }),
        Command::Lines => lines::print(),
        Command::Pictures => pictures(),
        Command::Setup { beds, without } => setup(&beds, &without),
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

/// Checks everything that needs no running program.
fn lint() -> Result<(), String> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    tidy::check(tidy::Allowances::Keep)?;
    book::make()?;
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    run(cargo().env("RUSTDOCFLAGS", "--deny warnings").args(["doc", "--workspace", "--no-deps"]))
}

/// Installs what these beds need: all beds if none is named.
fn setup(beds: &[Bed], without: &[Bed]) -> Result<(), String> {
    let beds = if beds.is_empty() { &Bed::ALL } else { beds };
    let wanted: Vec<_> = beds.iter().copied().filter(|bed| !without.contains(bed)).collect();
    beds::setup::prepare(&wanted)
}

/// Runs both demonstrations in a browser and keeps pictures of them.
fn pictures() -> Result<(), String> {
    beds::setup::install(&[Bed::Browser])?;
    let folder = std::path::absolute("docs/pictures").map_err(|error| error.to_string())?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    run(cargo().args(["build", "--package", "farside-inspect", "--examples"]))?;
    let mut command = cargo();
    command.args(["test", "--package", "farside-inspect-cli", "--test", "all", "browser::"]);
    run(command.env("FARSIDE_PICTURES", folder))
}
