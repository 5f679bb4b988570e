//! Which test beds a test does without.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::is_privileged;

/// The variable that names the beds that tests use, separated by commas. The deep tier sets it, and
/// continuous integration does. Without it, tests use the beds that this machine has.
pub const BEDS: &str = "FARSIDE_TEST_BEDS";

/// Headers and programs of Open MPI and PMIx, where Debian and others put them.
const PMIX_HEADERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/pmix2/include/pmix.h", "/usr/include/pmix.h"];

/// Returns whether a test does without this bed. A test that needs a bed calls this first.
///
/// - If [`BEDS`] is set, only the beds that it names are used. A test fails if one of them is
///   missing, so that no test passes silently.
/// - Otherwise, the beds that this machine lacks are left out. Each one is named on standard error,
///   past the capture of the test harness.
pub fn is_left_out(bed: &str) -> bool {
    if let Ok(beds) = std::env::var(BEDS) {
        let is_used = beds.split(',').any(|name| name == bed);
        if !is_used {
            say(bed, &format!("is not named by {BEDS}"));
        }
        return !is_used;
    }
    static KNOWN: Mutex<BTreeMap<String, Option<&str>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let lacking = *known.entry(bed.to_owned()).or_insert_with(|| lacking(bed));
    if let Some(lacking) = lacking {
        say(bed, &format!("is missing ({lacking})"));
    }
    lacking.is_some()
}

/// Ends a test that [does without](is_left_out) this bed. It stands first in such tests.
#[macro_export]
macro_rules! needs {
    ($bed:literal) => {
        if $crate::is_left_out($bed) {
            return;
        }
    };
}

/// Says that a test leaves out what a bed would prove.
fn say(bed: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // `eprintln!` would be captured. If standard error is closed, there is no reader to tell.
    let _ = writeln!(std::io::stderr(), "left out: {test}: the bed {bed} {why}");
}

/// The program or right that a bed needs and this machine lacks.
fn lacking(bed: &str) -> Option<&'static str> {
    let program = |name: &'static str| (!has_program(name)).then_some(name);
    let any =
        |paths: &[&'static str]| if paths.iter().any(|path| Path::new(path).exists()) { None } else { Some(paths[0]) };
    match bed {
        "fabric" if !has_library("libfabric.so.1") => Some("libfabric.so.1"),
        "fabric" => any(&["/usr/include/rdma/fabric.h"]).or_else(|| program("cc")),
        "mpi" => program("mpirun"),
        "peers" => program("mpirun").or_else(|| program("mpicc")),
        "browser" => program("chromium").or_else(|| program("chromedriver")),
        "python" if python().is_none() => Some("python3 with numpy, pip, setuptools and wheel"),
        "slurm" => any(&PMIX_HEADERS).or_else(|| program("cc")),
        "netns" => ["ip", "unshare", "nsenter", "setpriv"].into_iter().find_map(program).or_else(no_namespaces),
        _ => None,
    }
}

/// Returns the Python that has what the tests of the Python package need: that of the search path,
/// or the system's.
pub fn python() -> Option<&'static str> {
    let has_all = |program: &&str| {
        let mut command = Command::new(program);
        command.args(["-c", "import numpy, setuptools, wheel; import pip"]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_all)
}

fn no_namespaces() -> Option<&'static str> {
    let mut command = Command::new("unshare");
    if !is_privileged() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_allowed = command.status().is_ok_and(|status| status.success());
    (!is_allowed).then_some("the system forbids network namespaces")
}

/// Returns whether a program is in the search path or in the folders of system programs.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|folder| folder.join(name).is_file())
}

/// Returns whether the loader knows a shared library of exactly this name.
pub fn has_library(name: &str) -> bool {
    let tried = ["/sbin/ldconfig", "ldconfig"].map(|program| Command::new(program).arg("-p").output());
    let listed = tried.into_iter().flatten().find(|output| output.status.success());
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    listed.lines().any(|line| line.split_whitespace().next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_libraries_are_found() {
        assert!(has_program("sh") && !has_program("no-such-program"));
        assert!(has_library("libc.so.6") && !has_library("libc.so.none"));
    }
}
