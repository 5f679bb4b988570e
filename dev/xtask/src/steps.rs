//! Commands of other programs. Each is printed before it runs.

use std::ffi::OsStr;
use std::iter;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The least time limit of a job, as a variable in seconds: a job of a test may have to wait for a
/// processor.
pub(crate) const JOB_LIMIT: (&str, &str) = ("FARSIDE_TIMEOUT_S", "600");

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
