//! `cargo xtask launchers`: four ranks under mpirun, then under srun.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Running, ended_with_us};

use super::slurm::Slurm;
use super::{Bed, BedOptions, NamedTests, cell, fabric_test, is_one_search, job_test, setup, tests_of};
use crate::programs::Programs;

/// The default time limit of a run.
const LIMIT: Duration = Duration::from_secs(1200);

/// The number of ranks.
const RANKS: usize = 4;

/// Runs a program and, if it succeeds, creates a file named after its rank. Some launchers report
/// success although they started no program.
const WRAPPER: &str = r#""$@" && : > "$0/$PMIX_RANK""#;

/// Runs the share of a rank of the tests of a program. The file has one line of test names for each
/// rank.
const SHARE: &str = r#"exec "$1" --quiet --exact $(sed -n "$((PMIX_RANK + 1))p" "$0")"#;

/// The variable with the path of the tests of libfabric, for the first process of the cell.
const FABRIC_PROGRAM: &str = "FARSIDE_XTASK_FABRIC_TESTS";

/// The setting by which the ranks count as on two machines.
const TWO_MACHINES: &str = "FARSIDE_MACHINES=2";

/// A test in which ranks 2 and 3 kill themselves, and the others go on.
const SURVIVORS: &str = "survivors::program";

/// A program for all ranks.
#[derive(Clone, Debug)]
struct Plan {
    program: Vec<String>,
    proof: Proof,
}

/// The text that the output of the ranks has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Nothing.
    None,
    /// One JSON object of one search by all ranks.
    Search,
    /// One test by all ranks.
    Test,
    /// Two ranks that have gone on after the other two were killed.
    Survivors,
}

/// Returns the tests that this bed alone runs by their names.
pub(crate) fn named_tests() -> [NamedTests; 1] {
    [NamedTests::one(job_test::PACKAGE, "all", SURVIVORS)]
}

/// Runs the given program, or the checks of this bed, under each launcher that is not left out.
pub(crate) fn run(options: &BedOptions) -> Result<(), String> {
    let beds: Vec<_> =
        Bed::all_but(&options.without).into_iter().filter(|bed| matches!(bed, Bed::Mpi | Bed::Slurm)).collect();
    if beds.is_empty() {
        return Ok(());
    }
    let limit = options.limit().unwrap_or(LIMIT);
    let mut settings = vec![cell::leaving_out(&options.without)];
    if !cell::is_inside() {
        setup::install(&beds)?;
        if options.program.is_empty() {
            let programs = Programs::build()?;
            settings.push((FABRIC_PROGRAM, programs.test(fabric_test::PACKAGE, "all")?.executable.into()));
            settings.extend(job_test::for_cell(&programs)?);
        }
    }
    cell::inside(limit, &settings, || {
        let plans = plans(options)?;
        let deadline = Instant::now() + limit;
        if beds.contains(&Bed::Mpi) {
            check_all("mpirun", |plan| mpirun(plan.proof), &plans, deadline)?;
        }
        if beds.contains(&Bed::Slurm) {
            let begun = Instant::now();
            let slurm = Slurm::start()?;
            println!("xtask: Slurm is ready after {:.1} s", begun.elapsed().as_secs_f64());
            check_all("srun", |_| slurm.srun(RANKS), &plans, deadline)?;
        }
        Ok(())
    })
}

fn plans(options: &BedOptions) -> Result<Vec<Plan>, String> {
    if !options.program.is_empty() {
        return Ok(vec![Plan { program: options.program.clone(), proof: Proof::None }]);
    }
    let (farside, tests) = (job_test::farside()?, job_test::program()?);
    let hex = ["env", TWO_MACHINES, &farside, "hex", "--seconds", "1", "--json"].map(str::to_owned);
    // The first plan shows whether the launcher itself works.
    let mut plans = vec![
        Plan { program: vec!["true".to_owned()], proof: Proof::None },
        Plan { program: hex[2..].to_vec(), proof: Proof::Search },
        Plan { program: hex.to_vec(), proof: Proof::Search },
        Plan { program: shares()?, proof: Proof::None },
    ];
    // As two ranks on each of two machines.
    let suites = job_test::suites(TWO_MACHINES)?;
    plans.extend(suites.into_iter().map(|program| Plan { program, proof: Proof::Test }));
    let tokens = format!("{}/tokens", cell::STATE);
    let mut make = Command::new(&farside);
    farside_testbed::run("making tokens", make.args(["inspect", "token", &tokens]), LIMIT)?;
    plans.push(Plan { program: job_test::look(TWO_MACHINES, &tokens)?, proof: Proof::Test });
    let mut falls = job_test::rank(&tests, SURVIVORS, TWO_MACHINES);
    falls.insert(1, "FARSIDE_TEST_FALLS=1".to_owned());
    plans.push(Plan { program: falls, proof: Proof::Survivors });
    Ok(plans)
}

/// Returns a command that runs a quarter of the tests of libfabric on each rank.
fn shares() -> Result<Vec<String>, String> {
    let program = std::env::var(FABRIC_PROGRAM).map_err(|error| format!("{FABRIC_PROGRAM}: {error}"))?;
    let tests = tests_of(Path::new(&program), fabric_test::MODULE)?;
    let lines: Vec<_> =
        (0..RANKS).map(|rank| tests.iter().skip(rank).step_by(RANKS).cloned().collect::<Vec<_>>().join(" ")).collect();
    // A rank without names would run all tests.
    if lines.iter().any(String::is_empty) {
        return Err(format!("{program}: only {} tests for {RANKS} ranks", tests.len()));
    }
    let file = format!("{}/shares", cell::STATE);
    fs::write(&file, lines.join("\n")).map_err(|error| format!("{file}: {error}"))?;
    Ok(["sh", "-c", SHARE, &file, &program].map(str::to_owned).to_vec())
}

fn mpirun(proof: Proof) -> Command {
    let mut command = ended_with_us("mpirun");
    // Inside the cell this user is root, and the machine may have fewer processors than ranks.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "-n", &RANKS.to_string()]);
    if let Proof::Survivors = proof {
        // Otherwise the launcher ends all ranks after the first.
        command.arg("--enable-recovery");
    }
    command
}

/// Carries out all plans under a launcher.
fn check_all(
    launcher: &str,
    command: impl Fn(&Plan) -> Command,
    plans: &[Plan],
    deadline: Instant,
) -> Result<(), String> {
    let begun = Instant::now();
    plans.iter().try_for_each(|plan| check(launcher, command(plan), plan, deadline))?;
    let tests = plans.iter().filter(|plan| plan.proof == Proof::Test).count();
    let seconds = begun.elapsed().as_secs_f64();
    println!("xtask: {launcher}: {tests} tests, each by {RANKS} ranks on two machines: passed after {seconds:.1} s");
    Ok(())
}

/// Runs a program under a launcher and checks that each rank succeeded.
fn check(launcher: &str, mut command: Command, plan: &Plan, deadline: Instant) -> Result<(), String> {
    let begun = Instant::now();
    // A failed test is printed with its failure.
    let is_quiet = plan.proof == Proof::Test;
    let marks = Path::new(cell::STATE).join("ranks");
    let _ = fs::remove_dir_all(&marks);
    fs::create_dir(&marks).map_err(|error| format!("{}: {error}", marks.display()))?;
    command.args(["sh", "-c", WRAPPER]).arg(&marks).args(&plan.program).env("TMPDIR", cell::temporary_dir());
    let name = format!("{launcher}: {}", plan.program.join(" "));
    let echo = if is_quiet { Echo::Quiet } else { Echo::Prefixed(format!("{launcher}: ")) };
    let mut running = Running::start(&name, &mut command, echo)?;
    let status = running.wait(deadline)?;
    let printed = running.printed();
    let proven = match plan.proof {
        Proof::Survivors => have_survived(&printed),
        _ if !status.success() => return Err(running.failure(status).into()),
        _ => have_succeeded(&marks).and_then(|()| match plan.proof {
            Proof::Search => is_one_search(&printed, RANKS),
            Proof::Test => job_test::check(&printed, RANKS),
            Proof::None | Proof::Survivors => Ok(()),
        }),
    };
    proven.map_err(|why| running.failure(why))?;
    if !is_quiet {
        println!("xtask: {name}: {RANKS} ranks: passed after {:.1} s", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

fn have_succeeded(marks: &Path) -> Result<(), String> {
    let missing: Vec<_> = (0..RANKS).filter(|rank| !marks.join(rank.to_string()).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("ranks {missing:?} did not start, or PMIx gave them no number"))
}

/// Checks that both survivors have gone on, and that the verdict names a rank that was killed.
fn have_survived(printed: &str) -> Result<(), String> {
    let survivors = printed.lines().filter(|line| line.trim() == "well").count();
    let is_named = ["process 2 failed", "process 3 failed"].iter().any(|words| printed.contains(words));
    if survivors == 2 && is_named { Ok(()) } else { Err(format!("{survivors} survivors, loss named: {is_named}")) }
}
