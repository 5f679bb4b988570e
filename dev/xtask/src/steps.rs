//! The steps of testing and linting. Each step is a command that is printed before it runs.

use std::ffi::OsStr;
use std::iter;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Running};

use crate::arguments::Arguments;
use crate::beds::{self, Bed};
use crate::programs::{Programs, folder_of};
use crate::tidy;

/// The time limit for one command of tests, with its build.
const TESTS_LIMIT: Duration = Duration::from_secs(3600);

/// The features of the workspace that are no defaults: the page for browsers.
pub(crate) const FEATURES: [&str; 2] = ["--features", "farside-cli/page,farside-inspect/page"];

/// Runs everything that continuous integration runs. Sets up first, so that a missing package is
/// reported at once.
pub(crate) fn ci(without: &[Bed]) -> Result<(), String> {
    beds::setup::setup(without)?;
    lint()?;
    test(without)
}

/// Runs every test. The tests need the Rust toolchain, a C linker, and the packages of the beds
/// that are not left out.
pub(crate) fn test(without: &[Bed]) -> Result<(), String> {
    beds::setup::setup(without)?;
    needs_linker()?;
    run_tests(beds::tell(cargo().args(["test", "--workspace", "--no-fail-fast"]).args(FEATURES), without))?;
    if !without.contains(&Bed::Fabric) {
        let programs = Programs::build()?;
        calls_over_libfabric(&programs, without)?;
        jobs_on_two_machines(&programs, without)?;
    }
    large(without)?;
    loom()?;
    release()?;
    beds::run_all(&Arguments { without: without.to_vec(), ..Arguments::default() })?;
    println!("xtask: all tests passed");
    Ok(())
}

/// Modules of the integration tests of `farside` whose processes use the transport that
/// `FARSIDE_FABRIC` names.
const OVER_LIBFABRIC: [&str; 16] = [
    "accesses::",
    "atomics::",
    "bad_input::",
    "calls::",
    "global::",
    "heap::",
    "memory::",
    "movement::",
    "movement_history::",
    "notifications::",
    "objects::",
    "pipes::",
    "registration::",
    "sections::",
    "signals::",
    "sync::",
];

/// Repeats the tests of calls, of memory and of their users between processes that share no memory.
fn calls_over_libfabric(programs: &Programs, without: &[Bed]) -> Result<(), String> {
    println!("xtask: FARSIDE_FABRIC=ofi:tcp for the next command");
    let mut command = integration_tests(programs, "farside-tests")?;
    command.env("FARSIDE_FABRIC", "ofi:tcp").args(OVER_LIBFABRIC);
    // A filter matches anywhere in the path of a test. These modules choose their transports.
    command.args(["--skip", "faults::", "--skip", "ways::", "--skip", "simulated"]);
    run_tests(beds::tell(&mut command, without))
}

/// Tests whose jobs have at least two processes on each of two machines, or lose one of three or
/// four processes. Those of the search are in `farside-mcts`, and those of exchanges, queries, maps
/// and queues in `farside-containers-tests`.
const ON_TWO_MACHINES: [&str; 23] = [
    "atomics::everything_by_processes",
    "exchange::trees::by_processes",
    "faults::locks::",
    "faults::memory::memory_",
    "faults::sweep::killed::meetings_of_pipes",
    "faults::sweep::killed::messages_of_pipes",
    "faults::sweep::killed::peers_of_heaps",
    "faults::sweep::stopped_and_continued::messages_of_pipes",
    "faults::sweep::stopped_and_continued::peers_of_heaps",
    "global::everything_by_processes",
    "heap::as_processes::",
    "job::shapes::four_processes",
    "job::shapes::two_processes_of_two_threads",
    "map::concurrent::counters::by_eight_processes",
    "map::whole::growth::by_eight_processes",
    "memory::as_processes::",
    "movement::everything_by_processes",
    "notifications::everything_by_processes",
    "pipes::as_processes::",
    "query::reads::by_processes",
    "queue::each_once::by_eight_processes",
    "registration::as_processes::",
    "sync::",
];

/// Repeats tests with processes that share memory with some peers, and reach the others over
/// libfabric.
fn jobs_on_two_machines(programs: &Programs, without: &[Bed]) -> Result<(), String> {
    for package in ["farside-tests", "farside-mcts", "farside-containers-tests"] {
        println!("xtask: FARSIDE_MACHINES=2 FARSIDE_FABRIC=auto:tcp for the next command");
        let mut command = integration_tests(programs, package)?;
        command.env("FARSIDE_MACHINES", "2").env("FARSIDE_FABRIC", "auto:tcp");
        command.args(ON_TWO_MACHINES).args(["--skip", "simulated"]);
        run_tests(beds::tell(&mut command, without))?;
    }
    Ok(())
}

/// Returns the command that runs the integration tests of a package as cargo does.
fn integration_tests(programs: &Programs, package: &str) -> Result<Command, String> {
    let mut command = Command::new(programs.tests_of(package)?);
    command.current_dir(folder_of(package)?);
    Ok(command)
}

/// The memory that the largest test takes, in KiB.
const LARGE_KIB: u64 = 6 << 20;

/// Runs the large tests that plain `cargo test` leaves out: 10,000 clients of a server that die in
/// the middle of transfers, 400 clients of a store and 1200 readers of a job that are killed,
/// 10,000 frames by each way, buffers of 1024 workers, and transfers of 2.5 GiB.
fn large(without: &[Bed]) -> Result<(), String> {
    let mut command = cargo();
    // With the features of the other tests, so that nothing is built again.
    command.args(["test", "--workspace", "--no-fail-fast", "--lib", "--test", "all"]).args(FEATURES);
    command.args(["--", "--ignored", "--test-threads", "1", "soak::", "thousand"]);
    if available_kib().is_none_or(|kib| kib >= LARGE_KIB) {
        command.arg("huge::");
    } else {
        println!("xtask: left out: transfers of 2.5 GiB, which take {} GiB of free memory", LARGE_KIB >> 20);
    }
    run_tests(beds::tell(&mut command, without))
}

/// The memory that programs can have, if the system tells it.
fn available_kib() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Searches with two processes of the command as users build it: optimised, without debug
/// assertions. A call names its function by its place in the program, which must hold there, too.
fn release() -> Result<(), String> {
    run(cargo().args(["run", "--release", "--", "hex", "-n", "2", "-t", "2", "--rollouts", "20000", "--json"]))
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

/// Checks the protocols on shared words in all their interleavings.
pub(crate) fn loom() -> Result<(), String> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    // A target folder of its own: with one folder, each change of the flags would rebuild
    // everything.
    let mut command = cargo();
    command.env("RUSTFLAGS", format!("{flags} --cfg loom")).env("CARGO_TARGET_DIR", "target/loom");
    run(command.args(["test", "--package", "farside-fabric", "--package", "farside-transmit", "--test", "loom"]))
}

/// Checks everything that needs no running program.
pub(crate) fn lint() -> Result<(), String> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args(["clippy", "--workspace", "--all-targets"]).args(FEATURES).args(["--", "--deny", "warnings"]))?;
    // Without the features, the command is another one.
    run(cargo().args(["clippy", "--package", "farside-cli", "--all-targets", "--", "--deny", "warnings"]))?;
    run(cargo().env("RUSTDOCFLAGS", "--deny warnings").args(["doc", "--workspace", "--no-deps"]).args(FEATURES))?;
    run(&mut tidy::packages::command())?;
    tidy::check(tidy::Allowances::Keep)
}

fn needs_linker() -> Result<(), String> {
    let found = Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success());
    if found {
        return Ok(());
    }
    Err("cannot link programs: no C linker (`cc`) is installed; on Debian and Ubuntu: apt-get install gcc libc6-dev"
        .to_owned())
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
    command.args(["test", "--package", "farside-cli"]).args(FEATURES).args(["--test", "all", "demonstrations::"]);
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
