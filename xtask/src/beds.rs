//! Test beds: surroundings that a plain `cargo test` cannot have, each a command of its own.
//!
//! `docs/testing.md` says what each needs and proves. Whatever a bed starts ends with it, even if it is killed, and
//! every step has a deadline.

mod cell;
mod cpio;
mod fabric_test;
pub(crate) mod launchers;
pub(crate) mod netns;
pub(crate) mod packages;
pub(crate) mod rdma_vm;
pub(crate) mod setup;
mod slurm;
mod vm_pieces;
pub(crate) mod wheel;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::Instant;

use crate::arguments::Arguments;

/// The variable that names the providers of libfabric which tests are to use.
const PROVIDERS: &str = "FARSIDE_TEST_PROVIDERS";

/// What tests may need beyond a Rust toolchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bed {
    /// libfabric and its headers.
    Fabric,
    /// Open MPI.
    Mpi,
    /// Slurm with PMIx.
    Slurm,
    /// Network namespaces.
    Netns,
    /// An emulated machine with soft-RoCE.
    RdmaVm,
    /// Another libfabric, from a Python package.
    Wheel,
}

impl Bed {
    /// All beds.
    pub(crate) const ALL: [Self; 6] = [Self::Fabric, Self::Mpi, Self::Slurm, Self::Netns, Self::RdmaVm, Self::Wheel];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fabric => "fabric",
            Self::Mpi => "mpi",
            Self::Slurm => "slurm",
            Self::Netns => "netns",
            Self::RdmaVm => "rdma-vm",
            Self::Wheel => "wheel",
        }
    }

    /// All beds but these.
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
        found.ok_or_else(|| format!("no bed is called so: there are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Runs each bed that is a command, but those left out. (`fabric` is none: ordinary tests use it.)
pub(crate) fn run_all(arguments: &Arguments) -> Result<(), String> {
    let with = |bed| !arguments.without.contains(&bed);
    let begun = Instant::now();
    if with(Bed::Netns) {
        in_process_of_its_own(Bed::Netns.name(), &[])?;
    }
    if with(Bed::Mpi) || with(Bed::Slurm) {
        in_process_of_its_own("launchers", &arguments.without)?;
    }
    if with(Bed::Wheel) {
        wheel::run(&Arguments::default())?;
    }
    if with(Bed::RdmaVm) {
        in_process_of_its_own(Bed::RdmaVm.name(), &[])?;
    }
    println!("xtask: test beds: passed after {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Starts this program again with another command: a bed that moves into a cell repeats its own command line there.
fn in_process_of_its_own(command: &str, without: &[Bed]) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let options = without.iter().flat_map(|bed| ["--without", bed.name()]);
    let mut again = farside_testbed::ended_with_us(me);
    let status = again.arg(command).args(options).status().map_err(|error| format!("{command}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command}: {status}")) }
}

/// Tells a test program which beds are there, so that it fails if one does not work, and does without the others.
pub(crate) fn tell<'a>(command: &'a mut Command, without: &[Bed]) -> &'a mut Command {
    let names: Vec<_> = without.iter().map(|bed| bed.name()).collect();
    command.env(farside_testbed::WITHOUT, names.join(","));
    // Otherwise tests choose their providers themselves.
    if without.contains(&Bed::Fabric) { command.env(PROVIDERS, "") } else { command }
}

/// Where cargo puts what it builds, as a path from the root of the file system.
pub(crate) fn target_dir() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::path::absolute(&target).map_err(|error| format!("{}: {error}", target.display()))
}

/// Builds the command `farside`.
fn build_farside() -> Result<(), String> {
    crate::steps::run(crate::steps::cargo().args(["build", "--release", "--package", "farside-cli"]))
}

/// Where the command `farside` is when it has been built.
fn farside() -> Result<PathBuf, String> {
    Ok(target_dir()?.join("release/farside"))
}

/// Whether ranks printed one search (`farside hex --json`) by all of them, and not each its own.
fn is_one_search(printed: &str, ranks: usize) -> Result<(), String> {
    let found: Vec<_> = printed.lines().filter(|line| line.starts_with('{')).collect();
    let wanted = format!("\"processes\":{ranks},");
    match found.as_slice() {
        [one] if one.replace(' ', "").contains(&wanted) => Ok(()),
        [_] => Err(format!("the search did not have {ranks} processes")),
        _ => Err(format!("{} searches instead of one: the ranks did not form one job", found.len())),
    }
}

/// A command line for a shell that runs exactly these words.
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
    fn beds_are_read_as_they_are_written() {
        for bed in Bed::ALL {
            assert_eq!(bed.to_string().parse(), Ok(bed));
        }
        assert!("moon".parse::<Bed>().unwrap_err().contains("rdma-vm"));
    }
}
