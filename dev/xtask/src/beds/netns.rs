//! `cargo xtask netns`: ranks in two network namespaces with a cable between them.

use std::thread;
use std::time::{Duration, Instant};

use farside_testbed::netns::{Pair, Rendezvous, Shaping, Side};
use farside_testbed::{Echo, Running, run as run_step};

use super::{Bed, BedOptions, cell, is_one_search, job_test, setup};
use crate::programs::Programs;

/// The default time limit of a run.
const LIMIT: Duration = Duration::from_secs(600);

/// Ranks on each side in the checks of this bed. They share memory.
const EACH: u32 = 2;

/// Ranks of the checks of this bed.
const RANKS: usize = 2 * EACH as usize;

/// The port of rank 0. The namespaces are new, so every port is free.
const PORT: u16 = 7077;

/// Runs the ranks, and cuts the cable if the options ask for it.
pub(crate) fn run(options: &BedOptions) -> Result<(), String> {
    let limit = options.limit().unwrap_or(LIMIT);
    let mut settings = vec![cell::leaving_out(&options.without)];
    if !cell::is_inside() {
        setup::install(&[Bed::Netns])?;
        if options.program.is_empty() {
            settings.extend(job_test::for_cell(&Programs::build()?)?);
        }
    }
    cell::inside(limit, &settings, || {
        let pair = Pair::new()?;
        if (options.delay_ms, options.loss_percent) != (0, 0.0)
            && let Shaping::Unavailable(why) = pair.shape(options.delay_ms, options.loss_percent)?
        {
            println!("xtask: netns: no delay and no loss: this kernel has no netem: {why}");
        }
        let deadline = Instant::now() + limit;
        if !options.program.is_empty() {
            let programs = split(&options.program)?;
            return ranks(&pair, &programs, 1, options.cut_after(), Show::Everything, deadline).map(drop);
        }
        ping_pong(&pair, deadline)?;
        let farside = job_test::farside()?;
        let hex = [&farside, "hex", "--seconds", "1", "--fabric", "auto", "--json"].map(str::to_owned).to_vec();
        let printed = ranks(&pair, &[hex.clone(), hex], EACH, options.cut_after(), Show::Everything, deadline)?;
        if options.cut_after().is_some() {
            return Ok(());
        }
        is_one_search(&printed, RANKS)?;
        suites(&pair, deadline)
    })
}

/// Returns the programs of both ranks: one for both, or two with a colon between them.
fn split(program: &[String]) -> Result<[Vec<String>; 2], String> {
    let parts: Vec<_> = program.split(|word| word == ":").map(<[String]>::to_vec).collect();
    if parts.iter().any(Vec::is_empty) {
        return Err("cannot read the commands: a colon needs one on both sides".to_owned());
    }
    match parts.as_slice() {
        [both] => Ok([both.clone(), both.clone()]),
        [first, second] => Ok([first.clone(), second.clone()]),
        _ => Err(format!("cannot start {} commands: there are two ranks", parts.len())),
    }
}

/// Runs the ping-pong program of libfabric over the provider that Farside uses.
fn ping_pong(pair: &Pair, deadline: Instant) -> Result<(), String> {
    let begun = Instant::now();
    let ping_pong = |side| {
        let mut command = pair.command(side, "fi_pingpong");
        command.args(["-p", "tcp;ofi_rxm", "-e", "rdm", "-I", "100", "-S", "64", "-c"]);
        command
    };
    let mut server = Running::start("fi_pingpong server", &mut ping_pong(Side::A), Echo::Quiet)?;
    await_listener(pair, &mut server, deadline)?;
    let mut client = ping_pong(Side::B);
    client.arg(Side::A.address().to_string());
    run_step("fi_pingpong client", &mut client, deadline.saturating_duration_since(Instant::now()))?;
    server.finish(deadline)?;
    println!("xtask: netns: fi_pingpong over tcp;ofi_rxm: passed after {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Waits until a process listens on side A.
fn await_listener(pair: &Pair, server: &mut Running, deadline: Instant) -> Result<(), String> {
    while Instant::now() < deadline {
        if let Some(status) = server.status() {
            return Err(server.failure(status).into());
        }
        // State 0A is LISTEN.
        let table = run_step("cat /proc/net/tcp", pair.command(Side::A, "cat").args(["/proc/net/tcp"]), LIMIT)?;
        if table.lines().any(|line| line.split_whitespace().nth(3) == Some("0A")) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(server.failure("does not listen").into())
}

/// Runs each test of the suites as a job with two ranks on each side.
fn suites(pair: &Pair, deadline: Instant) -> Result<(), String> {
    let begun = Instant::now();
    let tests = job_test::suites("FARSIDE_FABRIC=auto")?;
    let count = tests.len();
    for rank in tests {
        let line = rank.join(" ");
        let printed = ranks(pair, &[rank.clone(), rank], EACH, None, Show::Nothing, deadline);
        printed.and_then(|printed| job_test::check(&printed, RANKS)).map_err(|why| format!("{line}: {why}"))?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "xtask: netns: {count} tests over shm and ofi:tcp, with {EACH} processes on each side: passed after {seconds:.1} s"
    );
    Ok(())
}

/// The output of two ranks that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    /// Their output and their exit statuses.
    Everything,
    /// Only a failure.
    Nothing,
}

/// Runs `each` ranks of one command in each namespace, waits for all, and returns their output.
fn ranks(
    pair: &Pair,
    programs: &[Vec<String>; 2],
    each: u32,
    cut_after: Option<Duration>,
    show: Show,
    deadline: Instant,
) -> Result<String, String> {
    let secret = format!("{:x}-{:?}", std::process::id(), std::time::SystemTime::now());
    let rendezvous = Rendezvous { world_size: 2 * each, master: Side::A, port: PORT, secret: &secret };
    let begun = Instant::now();
    let mut ranks = Vec::new();
    for rank in 0..2 * each {
        let (side, program) = (Side::BOTH[(rank / each) as usize], &programs[(rank / each) as usize]);
        let mut command = pair.command(side, &program[0]);
        rendezvous.tell(command.args(&program[1..]).env("TMPDIR", cell::temporary_dir()), rank);
        let name = format!("rank {rank}");
        let echo = if show == Show::Everything { Echo::Prefixed(format!("{name}: ")) } else { Echo::Quiet };
        ranks.push(Running::start(&name, &mut command, echo)?);
    }
    if let Some(after) = cut_after {
        thread::sleep(after.saturating_sub(begun.elapsed()).min(deadline.saturating_duration_since(Instant::now())));
        let running = ranks.iter_mut().filter_map(|rank| rank.status().is_none().then_some(())).count();
        pair.cut()?;
        println!("xtask: netns: cable cut after {} ms, with {running} ranks running", after.as_millis());
    }
    let mut failed = Vec::new();
    for (rank, running) in ranks.iter_mut().enumerate() {
        let status = running.wait(deadline)?;
        if show == Show::Everything {
            println!("xtask: netns: rank {rank}: {status} after {:.1} s", begun.elapsed().as_secs_f64());
        }
        // With the cable cut, a rank may fail, but it must end by itself.
        if status.code().is_none() || (cut_after.is_none() && !status.success()) {
            let failure = running.failure(status);
            failed.push(if show == Show::Everything { format!("rank {rank}: {status}") } else { failure.to_string() });
        }
    }
    let printed: Vec<_> = ranks.iter().map(Running::printed).collect();
    if failed.is_empty() { Ok(printed.join("\n")) } else { Err(failed.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn one_program_is_for_both_ranks() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(split(&words("a b")).unwrap(), [words("a b"), words("a b")]);
        assert_eq!(split(&words("a b : c")).unwrap(), [words("a b"), words("c")]);
        assert!(split(&words("a :")).is_err() && split(&words("a : b : c")).is_err());
    }
}
