//! The integration tests of `farside` and of the search, which several beds run as ranks in their
//! own surroundings.

use std::ffi::OsString;
use std::path::Path;

use super::{NamedTests, tests_of};
use crate::programs::Programs;

/// The variable with the path of the command `farside`, for the first process of a cell.
const FARSIDE: &str = "FARSIDE_XTASK_FARSIDE";

/// The package of these tests.
pub(crate) const PACKAGE: &str = "farside-tests";

/// The variable with the path of the test program, for the first process of a cell.
const PROGRAM: &str = "FARSIDE_XTASK_JOB_TESTS";

/// The package of the tests of the search.
const SEARCH_PACKAGE: &str = "farside-mcts";

/// The variable with the path of the tests of the search, for the first process of a cell.
const SEARCH_PROGRAM: &str = "FARSIDE_XTASK_SEARCH_TESTS";

/// The package of the tests of looks into jobs.
const INSPECT_PACKAGE: &str = "farside-viewer";

/// The variable with the path of the tests of looks into jobs, for the first process of a cell.
const INSPECT_PROGRAM: &str = "FARSIDE_XTASK_INSPECT_TESTS";

/// A job whose process 0 looks at all of it over the network.
const LOOK: &str = "network::ranks_are_seen_over_the_network";

/// The beginnings of the names of tests that run as ranks, each with the variable of its program.
const SUITES: [(&str, &str); 10] = [
    (PROGRAM, "calls::"),
    (PROGRAM, "global::everything_by_processes"),
    (PROGRAM, "heap::as_processes::"),
    (PROGRAM, "memory::as_processes::"),
    (PROGRAM, "pipes::as_processes::"),
    (PROGRAM, "registration::as_processes::"),
    (PROGRAM, "sync::"),
    (PROGRAM, ON_TWO_MACHINES),
    (SEARCH_PROGRAM, "job::shapes::four_processes"),
    (SEARCH_PROGRAM, "job::shapes::two_processes_of_two_threads"),
];

/// A test that requires two machines with two processes each.
pub(crate) const ON_TWO_MACHINES: &str = "identity::on_two_machines";

/// Returns the tests that run as ranks.
pub(crate) fn named_tests() -> impl Iterator<Item = NamedTests> {
    let suites = SUITES.into_iter().map(|(variable, name)| {
        let package = if variable == SEARCH_PROGRAM { SEARCH_PACKAGE } else { PACKAGE };
        NamedTests::all(package, "all", name)
    });
    suites.chain([NamedTests::one(INSPECT_PACKAGE, "all", LOOK)])
}

/// Returns the variables that tell a cell the paths of the programs.
pub(crate) fn for_cell(programs: &Programs) -> Result<[(&'static str, OsString); 4], String> {
    let tests_of = |package| programs.test(package, "all").map(|program| OsString::from(program.executable));
    Ok([
        (FARSIDE, programs.farside()?.into()),
        (PROGRAM, tests_of(PACKAGE)?),
        (SEARCH_PROGRAM, tests_of(SEARCH_PACKAGE)?),
        (INSPECT_PROGRAM, tests_of(INSPECT_PACKAGE)?),
    ])
}

/// Returns the path of the command `farside`, inside a cell.
pub(crate) fn farside() -> Result<String, String> {
    program_of(FARSIDE)
}

/// Returns the path of the tests of `farside` inside a cell.
pub(crate) fn program() -> Result<String, String> {
    program_of(PROGRAM)
}

fn program_of(variable: &str) -> Result<String, String> {
    std::env::var(variable).map_err(|error| format!("{variable}: {error}"))
}

/// Returns the command of a rank for each test of the suites of calls, memory, heaps, pipes, locks
/// and the search, inside a cell.
pub(crate) fn suites(setting: &str) -> Result<Vec<Vec<String>>, String> {
    let mut ranks = Vec::new();
    for (variable, suite) in SUITES {
        let program = program_of(variable)?;
        let mut tests = tests_of(Path::new(&program), suite)?;
        tests.retain(|test| !test.contains("simulated"));
        if tests.is_empty() {
            return Err(format!("{program}: contains no tests {suite}"));
        }
        ranks.extend(tests.iter().map(|test| rank(&program, test, setting)));
    }
    Ok(ranks)
}

/// Returns the command of a rank of a job that shows itself on the network, inside a cell. The file
/// has the tokens.
pub(crate) fn look(setting: &str, tokens: &str) -> Result<Vec<String>, String> {
    let mut rank = rank(&program_of(INSPECT_PROGRAM)?, LOOK, setting);
    let more = ["FARSIDE_INSPECT=tcp".to_owned(), format!("FARSIDE_INSPECT_TOKEN_FILE={tokens}")];
    rank.splice(1..1, more);
    Ok(rank)
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
