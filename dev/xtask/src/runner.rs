//! Runs tests: each in a process of its own, several at the same time.
//!
//! So a test that hangs or crashes is one failed test, no test sees what another left behind in
//! memory, and the slow ones have names.

use std::collections::{BTreeMap, VecDeque};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Running, ended_with_us};

use crate::programs::Program;
use crate::steps::{JOB_LIMIT, cargo};

/// Time limit of one test. Waits in tests have shorter ones, so only a test that hangs meets it.
const TEST_LIMIT: Duration = Duration::from_secs(1200);

/// The number of tests that the list of slow ones has.
const SLOWEST: usize = 10;

/// The beginning of a line by which a test says that it did nothing.
const LEFT_OUT: &str = "left out: ";

/// A test to run.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    /// The program.
    pub(crate) program: Program,
    /// The path of the test in the program.
    pub(crate) name: String,
}

impl Test {
    /// Returns whether the test is part of the deep tier.
    pub(crate) fn is_deep(&self) -> bool {
        self.has_segment("deep") || self.is_timing()
    }

    /// Returns whether the verdict of the test needs a free processor.
    pub(crate) fn is_timing(&self) -> bool {
        self.has_segment("timing")
    }

    /// Returns whether a module of the test, or the test itself, has this name.
    pub(crate) fn has_segment(&self, name: &str) -> bool {
        self.name.split("::").any(|segment| segment == name)
    }
}

/// How to run tests.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The number of tests that run at the same time.
    pub(crate) jobs: usize,
    /// The number of busy processes during the run.
    pub(crate) load: usize,
    /// Variables for the tests.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Settings {
    /// Returns settings for tests that do not disturb each other.
    pub(crate) fn side_by_side() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self { jobs: 2 * processors, load: 0, variables: Vec::new() }
    }

    /// Returns settings for tests that run one after the other.
    pub(crate) fn alone() -> Self {
        Self { jobs: 1, ..Self::side_by_side() }
    }

    /// Sets a variable for the tests.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// The number of tests that passed.
    pub(crate) passed: usize,
    /// The failed tests, each with what it printed.
    pub(crate) failed: Vec<(String, String)>,
    /// The missing things, each with the number of tests that did nothing without it.
    pub(crate) left_out: BTreeMap<String, usize>,
    /// The time of each test.
    pub(crate) times: Vec<(Duration, String)>,
}

impl Summary {
    /// Adds another outcome.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        for (what, count) in other.left_out {
            *self.left_out.entry(what).or_default() += count;
        }
        self.times.extend(other.times);
    }

    /// Prints what is slow, what was left out, and what failed.
    pub(crate) fn print(&self) {
        let mut times = self.times.clone();
        times.sort_unstable_by(|a, b| b.cmp(a));
        println!("xtask: the slowest tests:");
        for (time, name) in times.iter().take(SLOWEST) {
            println!("  {:>6.1} s  {name}", time.as_secs_f64());
        }
        for (what, count) in &self.left_out {
            println!("xtask: left out: {count} tests: {what}");
        }
        for (name, printed) in &self.failed {
            println!("xtask: FAILED: {name}\n{printed}\n");
        }
        if !self.failed.is_empty() {
            println!("xtask: failed tests:");
        }
        for (name, _) in &self.failed {
            println!("  {name}");
        }
        let left_out: usize = self.left_out.values().sum();
        println!("{} passed, {} failed, {left_out} skipped", self.passed, self.failed.len());
    }

    /// Returns an error if a test failed.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        match self.failed.len() {
            0 => Ok(()),
            count => Err(format!("{count} tests failed, first {}", self.failed[0].0)),
        }
    }
}

/// Lists the tests of these programs.
pub(crate) fn list(programs: &[Program]) -> Result<Vec<Test>, String> {
    let mut tests = Vec::new();
    for program in programs {
        tests.extend(program.names()?.into_iter().map(|name| Test { program: program.clone(), name }));
    }
    Ok(tests)
}

/// Runs tests. A failed one does not keep the others from running.
pub(crate) fn run(tests: Vec<Test>, settings: &Settings) -> Result<Summary, String> {
    let me = std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let busy = (0..settings.load)
        .map(|_| Running::start("keeping a processor busy", ended_with_us(&me).arg("busy"), Echo::Quiet));
    let busy = busy.collect::<Result<Vec<_>, _>>()?;
    // Counted down, so that a line appears when the last test of a program has ended.
    let mut left = BTreeMap::<_, (usize, usize)>::new();
    for test in &tests {
        left.entry(title(&test.program)).or_default().0 += 1;
    }
    let (queue, summary) = (Mutex::new(VecDeque::from(tests)), Mutex::new((Summary::default(), left)));
    thread::scope(|scope| {
        for _ in 0..settings.jobs {
            scope.spawn(|| {
                while let Some(test) = lock(&queue).pop_front() {
                    let ended = run_one(&test, settings);
                    let (summary, left) = &mut *lock(&summary);
                    let has_failed = ended.why.is_some();
                    note(summary, &test, ended);
                    let Some((remaining, failed)) = left.get_mut(&title(&test.program)) else { continue };
                    *remaining -= 1;
                    *failed += usize::from(has_failed);
                    if *remaining == 0 {
                        let verdict = if *failed == 0 { "passed".to_owned() } else { format!("{failed} FAILED") };
                        println!("xtask: {}: {verdict}", title(&test.program));
                    }
                }
            });
        }
    });
    drop(busy);
    Ok(summary.into_inner().unwrap_or_else(PoisonError::into_inner).0)
}

/// Runs the examples of all documents, which cargo builds and runs by itself.
pub(crate) fn documents() -> Result<Summary, String> {
    let name = "the examples of the documents";
    let mut command = cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]).env("RUST_BACKTRACE", "0");
    let begun = Instant::now();
    let mut running = Running::start(name, &mut command, Echo::Quiet)?;
    let status = running.wait(begun + TEST_LIMIT)?;
    let printed = running.printed();
    let mut summary = Summary { passed: passed(&printed), ..Summary::default() };
    summary.times.push((begun.elapsed(), name.to_owned()));
    if !status.success() {
        summary.failed.push((name.to_owned(), printed));
    }
    println!("xtask: {name}: {status}");
    Ok(summary)
}

/// Adds up the tests that passed: `test result: ok. 3 passed; 0 failed; …`.
fn passed(printed: &str) -> usize {
    let results = printed.lines().filter_map(|line| line.strip_prefix("test result: "));
    let count = |line: &str| line.split_once(". ")?.1.split_once(" passed")?.0.parse::<usize>().ok();
    results.filter_map(count).sum()
}

/// The end of a test.
struct Ended {
    took: Duration,
    printed: String,
    /// Why it failed, if it did.
    why: Option<String>,
}

/// Runs one test to its end.
fn run_one(test: &Test, settings: &Settings) -> Ended {
    let mut command = Command::new(&test.program.executable);
    command.args([test.name.as_str(), "--exact", "--nocapture"]);
    command.current_dir(&test.program.folder).env("CARGO_MANIFEST_DIR", &test.program.folder);
    command.env("CARGO_PKG_NAME", &test.program.package);
    // Many tests make a worker panic, and the backtraces would hide the reason of a failure.
    command.env("RUST_BACKTRACE", "0").envs([JOB_LIMIT]);
    command.envs(settings.variables.iter().map(|(name, value)| (name, value)));
    let begun = Instant::now();
    let (printed, why) = match Running::start(&test.name, &mut command, Echo::Quiet) {
        Ok(mut running) => {
            let why = match running.wait(begun + TEST_LIMIT) {
                Ok(status) if status.success() => None,
                Ok(status) => Some(status.to_string()),
                Err(failure) => Some(failure.to_string()),
            };
            (running.printed(), why)
        }
        Err(failure) => (String::new(), Some(failure.to_string())),
    };
    // A name that matches nothing is a success of the harness.
    let why = why.or_else(|| (!printed.contains("1 passed")).then(|| "the program ran no test".to_owned()));
    Ended { took: begun.elapsed(), printed, why }
}

/// Adds the end of a test to a summary.
fn note(summary: &mut Summary, test: &Test, ended: Ended) {
    let name = format!("{}: {}", title(&test.program), test.name);
    match ended.why {
        None => match ended.printed.lines().find_map(|line| line.split_once(LEFT_OUT)) {
            // `left out: NAME OF THE TEST: WHY`
            Some((_, line)) => {
                let why = line.split_once(": ").map_or(line, |(_, why)| why);
                *summary.left_out.entry(why.to_owned()).or_default() += 1;
            }
            None => summary.passed += 1,
        },
        Some(why) => {
            println!("xtask: FAILED: {name}: {why}");
            summary.failed.push((name.clone(), format!("{}\n{why}", ended.printed)));
        }
    }
    summary.times.push((ended.took, name));
}

/// Names a program.
fn title(program: &Program) -> String {
    format!("{} {}", program.package, program.target)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps one processor busy until the parent ends, which ends this process.
pub(crate) fn busy() -> Result<(), String> {
    let mut number = 0_u64;
    loop {
        number = std::hint::black_box(number.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str) -> Test {
        let program = Program {
            package: "p".into(),
            target: "all".into(),
            executable: std::env::current_exe().unwrap(),
            folder: std::env::current_dir().unwrap(),
        };
        Test { program, name: name.into() }
    }

    #[test]
    fn the_path_of_a_test_names_its_tier() {
        assert!(!test("calls::deeply::timings").is_deep());
        assert!(test("calls::deep::all").is_deep() && !test("calls::deep::all").is_timing());
        assert!(test("timing::soon").is_deep() && test("timing::soon").is_timing());
    }

    #[test]
    fn a_test_that_is_not_there_fails() {
        let summary = run(vec![test("no::such::test")], &Settings::alone()).unwrap();
        assert_eq!((summary.passed, summary.failed.len()), (0, 1));
        assert!(summary.failed[0].1.contains("ran no test"), "{:?}", summary.failed);
        assert!(summary.verdict().unwrap_err().contains("no::such::test"));
    }

    #[test]
    fn passed_examples_are_added_up() {
        let printed = "test result: ok. 3 passed; 0 failed; 0 ignored\nx\ntest result: FAILED. 2 passed; 1 failed;";
        assert_eq!(passed(printed), 5);
    }

    #[test]
    fn what_is_left_out_does_not_count_as_passed() {
        let mut summary = Summary::default();
        let printed = "left out: a::b: the bed moon is missing (a rocket)\ntest result: ok. 1 passed".to_owned();
        note(&mut summary, &test("a::b"), Ended { took: Duration::ZERO, printed, why: None });
        assert_eq!(summary.passed, 0);
        assert_eq!(summary.left_out, BTreeMap::from([("the bed moon is missing (a rocket)".to_owned(), 1)]));
    }
}
