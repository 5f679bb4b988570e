//! `cargo xtask launchers`: four ranks under mpirun, then under srun.

use std::process::Command;
use std::time::{Duration, Instant};

use farside_testbed::{Echo, Running, ended_with_us};

use super::slurm::Slurm;
use super::{Bed, FARSIDE_JOINS, build_farside, cell, setup, shown, target_dir};
use crate::arguments::Arguments;

/// How long a run may take if nothing else is said.
const LIMIT: Duration = Duration::from_secs(180);

/// How many ranks are started.
const RANKS: usize = 4;

/// What a run must have printed.
#[derive(Clone, Copy, Debug)]
enum Expect {
    /// Each rank's number once, as PMIx gave it.
    Ranks,
    /// One JSON object of a search by all ranks.
    Search,
    /// Anything.
    Success,
}

/// Runs the given program, or what there is to check, under each launcher that is not left out.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let beds: Vec<_> =
        Bed::all_but(&arguments.without).into_iter().filter(|bed| matches!(bed, Bed::Mpi | Bed::Slurm)).collect();
    if beds.is_empty() {
        return Ok(());
    }
    let plan = plan(arguments)?;
    let limit = arguments.limit.unwrap_or(LIMIT);
    if !cell::is_inside() {
        setup::install(&beds)?;
        if arguments.program.is_empty() && FARSIDE_JOINS {
            build_farside()?;
        }
    }
    cell::inside(limit, || {
        let deadline = Instant::now() + limit;
        if beds.contains(&Bed::Mpi) {
            for (program, expect) in &plan {
                check("mpirun", mpirun(), program, *expect, deadline)?;
            }
        }
        if beds.contains(&Bed::Slurm) {
            let begun = Instant::now();
            let slurm = Slurm::start()?;
            println!("xtask: Slurm is ready after {:.1} s", begun.elapsed().as_secs_f64());
            for (program, expect) in &plan {
                check("srun", slurm.srun(RANKS), program, *expect, deadline)?;
            }
        }
        Ok(())
    })
}

/// What is run, and what is to come of it.
fn plan(arguments: &Arguments) -> Result<Vec<(Vec<String>, Expect)>, String> {
    if !arguments.program.is_empty() {
        return Ok(vec![(arguments.program.clone(), Expect::Success)]);
    }
    let mut plan = vec![(["sh", "-c", "echo rank $PMIX_RANK"].map(str::to_owned).to_vec(), Expect::Ranks)];
    if FARSIDE_JOINS {
        let farside = target_dir()?.join("release/farside").display().to_string();
        let ranks = RANKS.to_string();
        let hex = [&farside, "hex", "-n", &ranks, "--seconds", "1", "--json"];
        plan.push((hex.map(str::to_owned).to_vec(), Expect::Search));
    }
    Ok(plan)
}

fn mpirun() -> Command {
    let mut command = ended_with_us("mpirun");
    // Inside the cell we are root, and there may be fewer processors than ranks.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "-n", &RANKS.to_string()]);
    command
}

/// Runs a program under a launcher and looks at what it printed.
fn check(
    launcher: &str,
    mut command: Command,
    program: &[String],
    expect: Expect,
    deadline: Instant,
) -> Result<(), String> {
    let begun = Instant::now();
    let line = shown(command.args(program).env("TMPDIR", cell::temporary_dir()));
    let echo = match expect {
        Expect::Ranks => Echo::Quiet,
        Expect::Search | Expect::Success => Echo::Prefixed(format!("{launcher}: ")),
    };
    let mut running = Running::start(&line, &mut command, echo)?;
    let status = running.wait(deadline)?;
    if !status.success() {
        return Err(running.failure(status).into());
    }
    is_as_expected(&running.printed(), expect).map_err(|why| running.failure(why))?;
    println!("xtask: {launcher}: {}: passed after {:.1} s", program.join(" "), begun.elapsed().as_secs_f64());
    Ok(())
}

fn is_as_expected(printed: &str, expect: Expect) -> Result<(), String> {
    match expect {
        Expect::Success => Ok(()),
        Expect::Ranks => {
            let mut ranks: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("rank ")).collect();
            ranks.sort_unstable();
            let wanted: Vec<_> = (0..RANKS).map(|rank| rank.to_string()).collect();
            if ranks == wanted { Ok(()) } else { Err(format!("ranks {ranks:?} instead of {wanted:?}")) }
        }
        Expect::Search => {
            let found: Vec<_> = printed.lines().filter(|line| line.starts_with('{')).collect();
            let wanted = format!("\"processes\":{RANKS}");
            match found.as_slice() {
                [one] if one.replace(' ', "").contains(&wanted) => Ok(()),
                [_] => Err(format!("the search did not have {RANKS} processes")),
                _ => Err(format!("{} searches instead of one: the ranks did not form one job", found.len())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_must_appear_once() {
        assert!(is_as_expected("noise\nrank 2\nrank 0\nrank 3\nrank 1", Expect::Ranks).is_ok());
        assert!(is_as_expected("rank 0\nrank 0\nrank 2\nrank 3", Expect::Ranks).is_err());
        assert!(is_as_expected("rank \nrank \nrank \nrank ", Expect::Ranks).is_err());
    }

    #[test]
    fn four_jobs_of_one_are_not_one_job_of_four() {
        let one = r#"{"size":11,"processes": 4}"#;
        assert!(is_as_expected(one, Expect::Search).is_ok());
        assert!(is_as_expected(&[one; 4].join("\n"), Expect::Search).unwrap_err().contains("4 searches"));
        assert!(is_as_expected(r#"{"processes":1}"#, Expect::Search).is_err());
    }
}
