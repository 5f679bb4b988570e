//! `cargo xtask test`: the fast tier, and with `--deep` the rest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use crate::beds::{self, Bed, target_dir};
use crate::groups::{self, GROUPS, Group};
use crate::programs::Programs;
use crate::runner::{self, Settings, Test};

/// The options of `test`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TestOptions {
    /// Run these groups of deep tests: all if none is named
    #[arg(long, value_name = "GROUP", num_args = 0..)]
    pub(crate) deep: Option<Vec<String>>,
    /// List the groups of deep tests and what each proves
    #[arg(long)]
    pub(crate) list: bool,
    /// Leave out the groups that have passed on this commit
    #[arg(long, requires = "deep")]
    pub(crate) resume: bool,
    /// Run only tests whose name contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "deep")]
    pub(crate) only: Option<String>,
    /// Keep this number of processes busy during the tests
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) under_load: usize,
    /// The number of tests that run at the same time [default: twice the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// A bed to leave out
    #[arg(long, value_name = "BED", requires = "deep")]
    pub(crate) without: Vec<Bed>,
}

/// Runs what the options ask for.
pub(crate) fn test(options: &TestOptions) -> Result<(), String> {
    if options.list {
        for group in GROUPS {
            let beds: Vec<_> = group.beds.iter().map(|bed| bed.name()).collect();
            let beds = if beds.is_empty() { String::new() } else { format!(" (needs {})", beds.join(", ")) };
            println!("{:<11} {}{beds}", group.name, group.proves);
        }
        return Ok(());
    }
    needs_linker()?;
    match &options.deep {
        None => fast(options),
        Some(names) => deep(names, options),
    }
}

/// Runs the tests whose verdict depends on nothing but the code. Installs nothing.
fn fast(options: &TestOptions) -> Result<(), String> {
    let begun = Instant::now();
    let programs = Programs::build()?;
    let built = begun.elapsed();
    let mut tests = runner::list(&programs.tests())?;
    check_names(&tests, &programs)?;
    tests.retain(|test| !test.is_deep() && options.only.as_ref().is_none_or(|part| test.name.contains(part)));
    if tests.is_empty() {
        return Err("no test of the fast tier has such a name; `--deep` runs the others".to_owned());
    }
    println!("xtask: {} tests of the fast tier; built after {:.0} s", tests.len(), built.as_secs_f64());
    let mut settings = Settings::side_by_side();
    settings.load = options.under_load;
    settings.jobs = options.jobs.map_or(settings.jobs, usize::from);
    let mut summary = runner::run(tests, &settings)?;
    if options.only.is_none() {
        summary.add(runner::documents()?);
    }
    println!("xtask: the fast tier ended after {:.0} s, builds included", begun.elapsed().as_secs_f64());
    summary.print();
    summary.verdict()
}

/// Runs groups of the deep tier.
fn deep(names: &[String], options: &TestOptions) -> Result<(), String> {
    let named = names.iter().map(|name| groups::find(name)).collect::<Result<Vec<_>, _>>()?;
    let groups: Vec<&Group> = if named.is_empty() { GROUPS.iter().collect() } else { named };
    let results = Results::of_this_commit()?;
    let mut rows = BTreeMap::new();
    let needed: Vec<_> = Bed::all_but(&options.without)
        .into_iter()
        .filter(|bed| groups.iter().any(|group| group.beds.contains(bed)))
        .collect();
    beds::setup::prepare(&needed)?;
    let programs = Programs::build()?;
    let tests = runner::list(&programs.tests())?;
    check_names(&tests, &programs)?;
    let mut failed = Vec::new();
    for group in groups {
        if options.resume && results.has_passed(group.name) {
            rows.insert(group.name, "passed before".to_owned());
            continue;
        }
        println!("xtask: group {}: {}", group.name, group.proves);
        let begun = Instant::now();
        let outcome = group.run(&programs, &tests, &options.without);
        let row = match outcome {
            Ok(summary) => {
                summary.print();
                failed.extend(summary.failed.iter().map(|(name, _)| format!("{}: {name}", group.name)));
                let left_out: usize = summary.left_out.values().sum();
                let verdict = if summary.failed.is_empty() { "passed" } else { "FAILED" };
                let (passed, count) = (summary.passed, summary.failed.len());
                format!("{verdict}: {passed} passed, {count} failed, {left_out} left out")
            }
            Err(why) => {
                failed.push(format!("{}: {why}", group.name));
                format!("FAILED: {}", why.lines().next().unwrap_or_default())
            }
        };
        let row = format!("{row}, {}", minutes(begun.elapsed()));
        println!("xtask: group {}: {row}", group.name);
        results.keep(group.name, &row)?;
        rows.insert(group.name, row);
    }
    println!("xtask: the deep tier, by group:");
    for (name, row) in &rows {
        println!("  {name:<11} {row}");
    }
    for bed in &options.without {
        println!("xtask: left out, as asked: {bed}");
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed:\n  {}", failed.join("\n  "))) }
}

/// Checks that each deep test belongs to a group, and that each name in the lists of groups and beds
/// selects a test: a test that moves to another module must not vanish from them.
fn check_names(tests: &[Test], programs: &Programs) -> Result<(), String> {
    let mut stale = groups::stale_names(tests);
    for named in beds::named_tests() {
        if !named.select_any(programs)? {
            stale.push(format!("{} {} {}", named.package, named.target, named.name));
        }
    }
    if !stale.is_empty() {
        let names = stale.join(", ");
        return Err(format!("names of no test (see dev/xtask/src/groups.rs and beds): {names}"));
    }
    let has_none = |test: &&Test| test.is_deep() && !GROUPS.iter().any(|group| group.has(test));
    let homeless: Vec<_> = tests.iter().filter(has_none).map(|test| test.name.as_str()).collect();
    if homeless.is_empty() {
        return Ok(());
    }
    Err(format!("deep tests without a group (see dev/xtask/src/groups.rs): {}", homeless.join(", ")))
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
}

/// The results of groups on one commit, in a folder of the target folder.
struct Results {
    folder: PathBuf,
}

impl Results {
    /// Opens the results of the tree as it is now. A tree with changes has none to resume from.
    fn of_this_commit() -> Result<Self, String> {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").args(arguments).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
        };
        let commit = git(&["rev-parse", "--short=12", "HEAD"]);
        let is_clean = !commit.is_empty() && git(&["status", "--porcelain"]).is_empty();
        let name = if is_clean { commit } else { format!("changed-{}", std::process::id()) };
        Ok(Self { folder: target_dir()?.join("deep").join(name) })
    }

    fn has_passed(&self, group: &str) -> bool {
        fs::read_to_string(self.file(group)).is_ok_and(|row| row.starts_with("passed"))
    }

    fn keep(&self, group: &str, row: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        fs::create_dir_all(&self.folder).map_err(failed)?;
        fs::write(self.file(group), row).map_err(failed)
    }

    fn file(&self, group: &str) -> PathBuf {
        self.folder.join(Path::new(group).with_extension("txt"))
    }
}

fn needs_linker() -> Result<(), String> {
    let found = Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success());
    if found {
        return Ok(());
    }
    Err("cannot link programs: no C linker (`cc`) is installed; on Debian and Ubuntu: apt-get install gcc libc6-dev"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_passed_is_known_again() {
        let folder = std::env::temp_dir().join(format!("farside-xtask-results-{}", std::process::id()));
        let results = Results { folder: folder.clone() };
        assert!(!results.has_passed("core"));
        results.keep("core", "passed: 3 passed").unwrap();
        results.keep("models", "FAILED: 1 failed").unwrap();
        assert!(results.has_passed("core") && !results.has_passed("models"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn times_are_written_in_minutes() {
        assert_eq!(minutes(Duration::from_secs(125)), "2:05 min");
    }
}
