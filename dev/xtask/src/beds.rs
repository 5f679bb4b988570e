//! Test beds: surroundings that plain `cargo test` cannot have. Each bed is a command.
//!
//! `docs/testing.md` describes what each bed needs and proves. Every process that a bed starts ends
//! with the bed, even if the bed is killed, and every step has a deadline.

mod cell;
mod cpio;
mod fabric_test;
mod job_test;
pub(crate) mod launchers;
pub(crate) mod netns;
pub(crate) mod packages;
pub(crate) mod rdma_vm;
pub(crate) mod setup;
mod slurm;
mod vm_pieces;
pub(crate) mod wheel;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use farside_testbed::{Echo, Running};

use crate::programs::Programs;
use crate::steps::failures;

/// The variable that names the libfabric providers that the tests use.
const PROVIDERS: &str = "FARSIDE_TEST_PROVIDERS";

/// The time limit for all beds together. Each bed has a shorter one of its own.
const BEDS_LIMIT: Duration = Duration::from_secs(1500);

/// The number of lines that show why a bed failed if none of its tests did.
const LAST_LINES: usize = 30;

/// The time limit for listing the tests of a program.
const LISTING_LIMIT: Duration = Duration::from_secs(20);

/// The options of a bed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BedOptions {
    /// A bed to leave out
    #[arg(long, value_name = "BED")]
    pub(crate) without: Vec<Bed>,
    /// Time from the start of the ranks until the cable is cut (netns)
    #[arg(long = "cut", value_name = "MS")]
    pub(crate) cut_ms: Option<u64>,
    /// Delay of every packet (netns)
    #[arg(long = "delay", value_name = "MS", default_value_t = 0)]
    pub(crate) delay_ms: u32,
    /// Share of lost packets (netns)
    #[arg(long = "loss", value_name = "PERCENT", default_value_t = 0.0)]
    pub(crate) loss_percent: f32,
    /// Time limit of the whole run
    #[arg(long = "limit", value_name = "SECONDS")]
    limit_s: Option<u64>,
    /// The program to run and its arguments, instead of the checks of the bed
    #[arg(last = true)]
    pub(crate) program: Vec<String>,
}

impl BedOptions {
    /// Returns options that only leave out beds.
    pub(crate) fn without(without: &[Bed]) -> Self {
        Self { without: without.to_vec(), ..Self::default() }
    }

    /// The time limit of the whole run.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit_s.map(Duration::from_secs)
    }

    /// The time from the start of the ranks until the cable is cut.
    pub(crate) fn cut_after(&self) -> Option<Duration> {
        self.cut_ms.map(Duration::from_millis)
    }
}

/// Something that tests need beyond a Rust toolchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bed {
    /// libfabric and its headers.
    Fabric,
    /// Open MPI's launcher.
    Mpi,
    /// The compiler and headers of Open MPI, for the programs that benches compare with.
    Peers,
    /// Slurm with PMIx.
    Slurm,
    /// Network namespaces.
    Netns,
    /// An emulated machine with soft-RoCE.
    RdmaVm,
    /// Another version of libfabric, from a Python package.
    Wheel,
    /// Chromium and its driver.
    Browser,
    /// Python with numpy.
    Python,
}

impl Bed {
    /// All beds.
    pub(crate) const ALL: [Self; 9] = [
        Self::Fabric,
        Self::Mpi,
        Self::Peers,
        Self::Slurm,
        Self::Netns,
        Self::RdmaVm,
        Self::Wheel,
        Self::Browser,
        Self::Python,
    ];

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fabric => "fabric",
            Self::Mpi => "mpi",
            Self::Peers => "peers",
            Self::Slurm => "slurm",
            Self::Netns => "netns",
            Self::RdmaVm => "rdma-vm",
            Self::Wheel => "wheel",
            Self::Browser => "browser",
            Self::Python => "python",
        }
    }

    /// Returns all beds except these.
    pub(crate) fn all_but(without: &[Self]) -> Vec<Self> {
        Self::ALL.into_iter().filter(|bed| !without.contains(bed)).collect()
    }
}

impl fmt::Display for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Bed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|bed| bed.name() == text);
        found.ok_or_else(|| format!("unknown bed: use one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Runs each bed that is a command, except those left out, all at the same time. The beds `fabric`,
/// `peers`, `browser` and `python` are not commands: ordinary tests use them.
///
/// Each bed has its own namespaces or its own emulated machine, so the beds do not disturb each
/// other. The output of a bed is printed as a whole when it and the beds before it have ended.
pub(crate) fn run_all(options: &BedOptions) -> Result<(), String> {
    let with = |bed| !options.without.contains(&bed);
    let begun = Instant::now();
    // Built first, so that no bed waits for the build of another.
    Programs::build()?;
    let without: Vec<_> = options.without.iter().flat_map(|bed| ["--without", bed.name()]).collect();
    let beds = [
        // The emulated machine takes the longest.
        (Bed::RdmaVm.name(), with(Bed::RdmaVm), [].as_slice()),
        (Bed::Netns.name(), with(Bed::Netns), &[]),
        ("launchers", with(Bed::Mpi) || with(Bed::Slurm), &without),
        (Bed::Wheel.name(), with(Bed::Wheel), &[]),
    ];
    let mut running = Vec::new();
    for (command, _, options) in beds.into_iter().filter(|(_, is_wanted, _)| *is_wanted) {
        running.push((command, start_bed(command, options)?));
        println!("xtask: bed {command}: started");
    }
    let mut failed = Vec::new();
    for (command, bed) in &mut running {
        let ended = bed.wait(begun + BEDS_LIMIT);
        println!("xtask: bed {command}: output:\n{}", bed.printed());
        match ended {
            Ok(status) if status.success() => println!("xtask: bed {command}: passed"),
            Ok(status) => failed.push(format!("{command}: {status}\n{}", why(&bed.printed()))),
            Err(failure) => failed.push(format!("{command}: {failure}")),
        }
    }
    if !failed.is_empty() {
        return Err(format!("test beds failed: {}", failed.join("\n")));
    }
    println!("xtask: test beds: passed after {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// A test, or a module of tests, that a bed runs by its name.
pub(crate) struct NamedTests {
    pub(crate) package: &'static str,
    pub(crate) target: &'static str,
    /// The name of a test, or the beginning of the names of several.
    pub(crate) name: &'static str,
    /// True if the name is that of one test.
    is_whole: bool,
}

impl NamedTests {
    /// One test.
    const fn one(package: &'static str, target: &'static str, name: &'static str) -> Self {
        Self { package, target, name, is_whole: true }
    }

    /// All tests whose names begin so.
    const fn all(package: &'static str, target: &'static str, name: &'static str) -> Self {
        Self { package, target, name, is_whole: false }
    }

    /// Returns whether the name selects a test, also one that other tests start.
    pub(crate) fn select_any(&self, programs: &Programs) -> Result<bool, String> {
        let names = tests_of(&programs.test(self.package, self.target)?.executable, self.name)?;
        Ok(names.iter().any(|name| !self.is_whole || name == self.name))
    }
}

/// Returns all tests that beds run by their names.
pub(crate) fn named_tests() -> Vec<NamedTests> {
    let fabric = NamedTests::all(fabric_test::PACKAGE, "all", fabric_test::MODULE);
    let mut named = vec![fabric];
    named.extend(job_test::named_tests());
    named.extend(launchers::named_tests());
    named.extend(rdma_vm::named_tests());
    named
}

/// Returns what a failed bed printed of its failed tests, or else the end of its output. The output
/// of the beds after it may be long.
fn why(printed: &str) -> String {
    let failures = failures(printed);
    if !failures.is_empty() {
        return failures;
    }
    let lines: Vec<_> = printed.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Starts this program again with the command of a bed. A bed that moves into a cell repeats its
/// own command line there.
fn start_bed(command: &str, options: &[&str]) -> Result<Running, String> {
    let me = std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    Ok(Running::start(command, farside_testbed::ended_with_us(me).arg(command).args(options), Echo::Quiet)?)
}

/// Returns the absolute path of the target folder of cargo.
pub(crate) fn target_dir() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::path::absolute(&target).map_err(|error| format!("{}: {error}", target.display()))
}

/// Returns the tests of one module of a test program.
fn tests_of(program: &Path, module: &str) -> Result<Vec<String>, String> {
    let mut command = Command::new(program);
    let printed =
        farside_testbed::run("listing the tests", command.args(["--list", "--format", "terse"]), LISTING_LIMIT)?;
    let names = printed.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| name.starts_with(module)).map(str::to_owned).collect())
}

/// Checks that the ranks printed one search (`farside hex --json`) by all of them, and not one
/// search each.
fn is_one_search(printed: &str, ranks: usize) -> Result<(), String> {
    let found: Vec<_> = printed.lines().filter(|line| line.starts_with('{')).collect();
    let wanted = format!("\"processes\":{ranks},");
    match found.as_slice() {
        [one] if one.replace(' ', "").contains(&wanted) => Ok(()),
        [_] => Err(format!("the search did not have {ranks} processes")),
        _ => Err(format!("{} searches instead of one: the ranks did not form one job", found.len())),
    }
}

/// Returns a command line for a shell that runs exactly these words.
fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words = ["printf", "%s|", "a b", "it's", "$HOME", ""].map(str::to_owned);
        let output = Command::new("sh").arg("-c").arg(quoted(&words)).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a b|it's|$HOME||");
    }

    #[test]
    fn four_jobs_of_one_are_not_one_job_of_four() {
        let one = r#"{"size":11,"processes": 4,"threads":1}"#;
        assert!(is_one_search(one, 4).is_ok());
        assert!(is_one_search(&[one; 4].join("\n"), 4).unwrap_err().contains("4 searches"));
        assert!(is_one_search(r#"{"processes":40,"threads":1}"#, 4).is_err());
    }

    #[test]
    fn a_failed_bed_says_why() {
        let of_tests = why("  | failures:\n  | why\n  | test result: FAILED. 1\nxtask: done");
        assert_eq!(of_tests, "  | failures:\n  | why");
        let long: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let end = why(&long);
        assert!(end.starts_with("line 70\n") && end.ends_with("\nline 99"), "{end}");
    }

    #[test]
    fn beds_are_read_as_they_are_written() {
        for bed in Bed::ALL {
            assert_eq!(bed.to_string().parse(), Ok(bed));
        }
        assert!("moon".parse::<Bed>().unwrap_err().contains("rdma-vm"));
    }
}
