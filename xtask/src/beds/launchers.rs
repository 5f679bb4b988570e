//! `cargo xtask launchers`: four ranks under mpirun, then under srun.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Running, ended_with_us};

use super::slurm::Slurm;
use super::{Bed, build_farside, cell, fabric_test, farside, is_one_search, setup, tests_of};
use crate::arguments::Arguments;

/// The default time limit of a run.
const LIMIT: Duration = Duration::from_secs(600);

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

/// A program for all ranks.
#[derive(Clone, Debug)]
struct Plan {
    program: Vec<String>,
    /// Whether the ranks together print one JSON object for one search.
    is_search: bool,
}

/// Runs the given program, or the checks of this bed, under each launcher that is not left out.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let beds: Vec<_> =
        Bed::all_but(&arguments.without).into_iter().filter(|bed| matches!(bed, Bed::Mpi | Bed::Slurm)).collect();
    if beds.is_empty() {
        return Ok(());
    }
    let limit = arguments.limit.unwrap_or(LIMIT);
    let mut settings = vec![cell::leaving_out(&arguments.without)];
    if !cell::is_inside() {
        setup::install(&beds)?;
        if arguments.program.is_empty() {
            build_farside()?;
            settings.push((FABRIC_PROGRAM, fabric_test::build()?.into()));
        }
    }
    cell::inside(limit, &settings, || {
        let plans = plans(arguments)?;
        let deadline = Instant::now() + limit;
        if beds.contains(&Bed::Mpi) {
            for plan in &plans {
                check("mpirun", mpirun(), plan, deadline)?;
            }
        }
        if beds.contains(&Bed::Slurm) {
            let begun = Instant::now();
            let slurm = Slurm::start()?;
            println!("xtask: Slurm is ready after {:.1} s", begun.elapsed().as_secs_f64());
            for plan in &plans {
                check("srun", slurm.srun(RANKS), plan, deadline)?;
            }
        }
        Ok(())
    })
}

fn plans(arguments: &Arguments) -> Result<Vec<Plan>, String> {
    if !arguments.program.is_empty() {
        return Ok(vec![Plan { program: arguments.program.clone(), is_search: false }]);
    }
    let (farside, ranks) = (farside()?.display().to_string(), RANKS.to_string());
    let hex = [&farside, "hex", "-n", &ranks, "--seconds", "1", "--json"];
    // The first plan shows whether the launcher itself works.
    Ok(vec![
        Plan { program: vec!["true".to_owned()], is_search: false },
        Plan { program: hex.map(str::to_owned).to_vec(), is_search: true },
        Plan { program: shares()?, is_search: false },
    ])
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

fn mpirun() -> Command {
    let mut command = ended_with_us("mpirun");
    // Inside the cell this user is root, and the machine may have fewer processors than ranks.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "-n", &RANKS.to_string()]);
    command
}

/// Runs a program under a launcher and checks that each rank succeeded.
fn check(launcher: &str, mut command: Command, plan: &Plan, deadline: Instant) -> Result<(), String> {
    let begun = Instant::now();
    let marks = Path::new(cell::STATE).join("ranks");
    let _ = fs::remove_dir_all(&marks);
    fs::create_dir(&marks).map_err(|error| format!("{}: {error}", marks.display()))?;
    command.args(["sh", "-c", WRAPPER]).arg(&marks).args(&plan.program).env("TMPDIR", cell::temporary_dir());
    let name = format!("{launcher}: {}", plan.program.join(" "));
    let mut running = Running::start(&name, &mut command, Echo::Prefixed(format!("{launcher}: ")))?;
    let status = running.wait(deadline)?;
    if !status.success() {
        return Err(running.failure(status).into());
    }
    let missing: Vec<_> = (0..RANKS).filter(|rank| !marks.join(rank.to_string()).exists()).collect();
    if !missing.is_empty() {
        return Err(running.failure(format!("ranks {missing:?} did not start, or PMIx gave them no number")).into());
    }
    if plan.is_search {
        is_one_search(&running.printed(), RANKS).map_err(|why| running.failure(why))?;
    }
    println!("xtask: {name}: {RANKS} ranks: passed after {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}
