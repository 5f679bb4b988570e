//! The steps of testing and linting. Each step is a command that is printed before it runs.

use std::ffi::OsStr;
use std::iter;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Running};

use crate::beds::{self, Bed};
use crate::{book, tidy};

/// The time limit for one command of tests, with its build.
const TESTS_LIMIT: Duration = Duration::from_secs(3600);

/// Installs what these beds need: all beds if none is named.
pub(crate) fn setup(beds: &[Bed], without: &[Bed]) -> Result<(), String> {
    let beds = if beds.is_empty() { &Bed::ALL } else { beds };
    let wanted: Vec<_> = beds.iter().copied().filter(|bed| !without.contains(bed)).collect();
    beds::setup::prepare(&wanted)
}

/// Runs tests, and at the end prints again why some failed.
fn run_tests(command: &mut Command) -> Result<(), String> {
    // Many tests make a worker panic, and the backtraces would hide the reason of a failure.
    command.env("RUST_BACKTRACE", "0");
    let line = line(command);
    println!("xtask: {line}");
    let begun = Instant::now();
    let mut running = Running::start(&line, command, Echo::Prefixed(String::new()))?;
    let status = running.wait(begun + TESTS_LIMIT)?;
    println!("xtask: {line}: {status} after {:.0} s", begun.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}\n{}", failures(&running.printed()))) }
}

/// Returns what the test programs printed of their failed tests, and what cargo could not do. Beds
/// print a prefix before each line.
pub(crate) fn failures(printed: &str) -> String {
    let mut is_failure = false;
    let lines = printed.lines().filter(|line| {
        is_failure = (is_failure || line.ends_with("failures:")) && !line.contains("test result: ");
        is_failure || line.starts_with("error")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Checks everything that needs no running program.
pub(crate) fn lint() -> Result<(), String> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    tidy::check(tidy::Allowances::Keep)?;
    book::make()?;
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    run(cargo().env("RUSTDOCFLAGS", "--deny warnings").args(["doc", "--workspace", "--no-deps"]))
}

pub(crate) fn cargo() -> Command {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
}

/// Returns a command as a developer would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let line = line(command);
    println!("xtask: {line}");
    let begun = Instant::now();
    let status = command.status().map_err(|error| format!("{line}: {error}"))?;
    println!("xtask: {line}: {status} after {:.0} s", begun.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}")) }
}

/// Runs both demonstrations in a browser and keeps pictures of them.
pub(crate) fn pictures() -> Result<(), String> {
    beds::setup::install(&[Bed::Browser])?;
    let folder = std::path::absolute("docs/pictures").map_err(|error| error.to_string())?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    run(cargo().args(["build", "--package", "farside-inspect", "--examples"]))?;
    let mut command = cargo();
    command.args(["test", "--package", "farside-cli", "--test", "all", "demonstrations::"]);
    run_tests(command.env("FARSIDE_PICTURES", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_among_the_output() {
        let one = |reason: &str| {
            format!(
                "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n{reason}\n\ntest result: FAILED. 1"
            )
        };
        let printed = ["test result: ok.", &one("why"), "test c ... ok", &one("other")].join("\n");
        assert_eq!(failures(&printed), "failures:\n\nwhy\n\nfailures:\n\nother\n");
        let of_a_bed = "  | test b ... FAILED\n  | failures:\n  | why\n  | test result: FAILED. 1\nxtask: done";
        assert_eq!(failures(of_a_bed), "  | failures:\n  | why");
    }
}
