//! The integration tests of `farside`, which several beds run as ranks in their own surroundings.

use std::ffi::OsString;
use std::path::PathBuf;

use super::build_test;

/// The package of these tests.
const PACKAGE: &str = "farside-tests";

/// The variable with the path of the test program, for the first process of a cell.
const PROGRAM: &str = "FARSIDE_XTASK_JOB_TESTS";

/// A test that requires two machines with two processes each.
pub(crate) const ON_TWO_MACHINES: &str = "identity::on_two_machines";

/// Builds the test program and returns its path.
pub(crate) fn build() -> Result<PathBuf, String> {
    build_test(PACKAGE)
}

/// Builds the test program and returns the variable that tells a cell its path.
pub(crate) fn build_for_cell() -> Result<(&'static str, OsString), String> {
    Ok((PROGRAM, build()?.into()))
}

/// Returns the path of the test program inside a cell.
pub(crate) fn program() -> Result<String, String> {
    std::env::var(PROGRAM).map_err(|error| format!("{PROGRAM}: {error}"))
}

/// Returns the command of a rank that runs one test. Each test asks for some number of processes,
/// but accepts the number that the launcher started.
pub(crate) fn rank(program: &str, test: &str, setting: &str) -> Vec<String> {
    ["env", setting, program, "--exact", test, "--nocapture", "--include-ignored"].map(str::to_owned).into()
}

/// Checks that each rank has run the test. A run without any matching test is also a success.
pub(crate) fn check(printed: &str, ranks: usize) -> Result<(), String> {
    let passed = printed.matches("1 passed").count();
    if passed == ranks { Ok(()) } else { Err(format!("ran on {passed} of {ranks} ranks\n{printed}")) }
}
