//! Jobs whose processes another launcher has started. They find each other by their environment.
//!
//! Each test starts this test program once for every rank, with arguments that select the program
//! below.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio, exit};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, Named, Result};
use farside_testbed::netns::{Pair, Rendezvous, Side};
use farside_testbed::{free_port, limit, wait_for};

use crate::support::{only, within_time};

/// Arguments of the program below.
const PROGRAM: [&str; 5] = only("rendezvous::program");
/// The variable with a rank's task.
const TASK: &str = "FARSIDE_TEST_TASK";

/// The variable with a rank's expected number in the job.
const EXPECTED: &str = "FARSIDE_TEST_PROCESS";

/// Functions of the example `histogram`.
const ADD: Named<(u64, u64)> = Named::new("histogram/add");
const COUNT: Named<u64, Option<u64>> = Named::new("histogram/count");

/// A job whose ranks are started one by one.
struct Ranks {
    port: u16,
    size: u32,
    timeout_s: u64,
}

/// The end of a rank.
#[derive(Debug)]
struct Report {
    status: Option<i32>,
    /// Its standard error.
    text: String,
}

impl Ranks {
    fn of(size: u32) -> Self {
        Self { port: free_port(), size, timeout_s: limit().as_secs() }
    }

    fn command(&self, rank: u32, task: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(PROGRAM).env(TASK, task);
        self.command_of(command, rank)
    }

    /// Turns a command into that of a rank.
    fn command_of(&self, mut command: Command, rank: u32) -> Command {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", self.size.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", self.port.to_string());
        command.env("FARSIDE_SECRET", "swordfish").env("FARSIDE_TIMEOUT_S", self.timeout_s.to_string());
        command
    }

    fn start(&self, rank: u32, task: &str) -> Rank {
        Rank(self.command(rank, task).spawn().unwrap())
    }

    /// Starts all ranks with the same task.
    fn start_all(&self, task: &str) -> Vec<Rank> {
        (0..self.size).map(|rank| self.start(rank, task)).collect()
    }

    /// Returns a connection with process 0 as soon as it listens.
    fn intrude(&self) -> TcpStream {
        wait_for("process 0 listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok())
    }
}

/// Listens at a port until a process tries to connect, which will have to try again.
fn await_attempt(listener: TcpListener) {
    listener.set_nonblocking(true).unwrap();
    wait_for("a process tries to connect", || listener.accept().ok());
}

/// A process of a job. Dropping it kills the process.
struct Rank(Child);

impl Rank {
    fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Waits for a line on its standard error.
    fn await_line(&mut self, line: &str) {
        let mut read = Vec::new();
        let stderr = self.0.stderr.as_mut().unwrap();
        let wanted = format!("{line}\n");
        while !read.ends_with(wanted.as_bytes()) {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "it ended: {}", String::from_utf8_lossy(&read));
            read.push(byte[0]);
        }
    }

    fn end(mut self) -> Report {
        let mut text = String::new();
        // Standard error ends when the process does.
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        Report { status: self.0.wait().unwrap().code(), text }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ends(ranks: Vec<Rank>) -> Vec<Report> {
    ranks.into_iter().map(Rank::end).collect()
}

#[track_caller]
fn assert_well(reports: &[Report]) {
    assert!(reports.iter().all(|report| report.status == Some(0)), "{reports:#?}");
}

#[track_caller]
fn assert_failed(report: &Report, words: &[&str]) {
    assert_eq!(report.status, Some(1), "{report:?}");
    for word in words {
        assert!(report.text.contains(word), "{word:?} is missing in {report:?}");
    }
}

/// The program of every rank. It reports a failed job and exits with 1.
#[test]
#[ignore = "a program for the other tests"]
fn program() {
    let Ok(task) = std::env::var(TASK) else { return };
    assert!(farside::job::is_member());
    let threads = if task == "many-threads" { 2 } else { 1 };
    let job = farside::job().processes(7).threads_per_process(threads).deadline(timeout());
    // No rank outlives its test for long.
    let verdict = within_time(|| job.run(|me| work(me, &task)));
    let reporter = if farside::job::is_reported() { "process 0" } else { "this process" };
    if let Err(error) = verdict {
        eprintln!("{} reports: {error:?}", reporter);
        exit(1);
    }
    exit(0);
}

fn timeout() -> Duration {
    Duration::from_secs(std::env::var("FARSIDE_TIMEOUT_S").unwrap().parse().unwrap())
}

fn work(me: &Worker, task: &str) -> Result<()> {
    match task {
        "work" | "many-threads" => {
            assert_eq!(me.process().number().to_string(), std::env::var("RANK").unwrap());
            assert_eq!(me.process_count().to_string(), std::env::var("WORLD_SIZE").unwrap());
            let sum = me.all_reduce(me.id().number(), |a, b| a + b)?;
            assert_eq!(sum, (0..me.worker_count()).sum::<u32>());
            me.barrier()
        }
        // The launcher has said which rank of which group this is. The job numbers all ranks of all
        // groups.
        "joined" => {
            assert_eq!(me.process().number().to_string(), std::env::var(EXPECTED).unwrap());
            assert_eq!(me.all_reduce(1, |a, b| a + b)?, me.process_count());
            assert_eq!(me.process_count(), 6);
            me.barrier()
        }
        // The other group runs another program.
        "with-histogram" => {
            for histogram in [2, 3].map(WorkerId::new) {
                me.call_named(histogram, ADD, (3, 7))?;
                assert!(me.call_named_return(histogram, COUNT, 3)?.wait()? >= Some(7));
                let refused = me.call_return(histogram, 1_u8, |_, x| x + 1).map_err(|refused| refused.error);
                assert!(matches!(refused, Err(Error::DifferentBinaries { .. })), "{:?}", refused.err());
            }
            me.barrier()?;
            assert_eq!(me.all_reduce(0_u64, |a, b| a + b)?, 2 * 2 * 7);
            me.barrier()
        }
        "fail" => Err(Error::JobEnded { why: "it has had enough".into() }),
        "stay" => {
            eprintln!("here");
            me.wait_together(limit(), || false)
        }
        // It goes on when another rank is lost.
        "survive" => {
            eprintln!("here");
            me.wait_while_serving(|| !me.lost_processes().is_empty())?;
            eprintln!("told of {:?}", me.lost_processes());
            Ok(())
        }
        other => panic!("there is no task {other}"),
    }
}

#[test]
fn ranks_find_each_other() {
    for size in [1, 2, 3, 5] {
        assert_well(&ends(Ranks::of(size).start_all("work")));
    }
    assert_well(&ends(Ranks::of(2).start_all("many-threads")));
}

#[test]
fn ranks_may_come_in_any_order_and_late() {
    let job = Ranks::of(3);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, job.port)).unwrap();
    let mut ranks = vec![job.start(2, "work")];
    await_attempt(listener);
    ranks.push(job.start(0, "work"));
    drop(job.intrude());
    ranks.push(job.start(1, "work"));
    assert_well(&ends(ranks));
    // The port can be used again at once.
    assert_well(&ends(job.start_all("work")));
}

#[test]
fn one_process_needs_no_secret_and_no_address() {
    let job = Ranks::of(1);
    let mut command = job.command(0, "work");
    command.env_remove("FARSIDE_SECRET").env_remove("MASTER_ADDR").env_remove("MASTER_PORT");
    assert_well(&[Rank(command.spawn().unwrap()).end()]);
}

#[test]
fn missing_ranks_are_named() {
    let job = Ranks { timeout_s: 1, ..Ranks::of(3) };
    let report = job.start(0, "work").end();
    assert_failed(&report, &["of 3 processes, process 1, process 2 did not join the job within 1s"]);
}

#[test]
fn without_process_0_its_address_is_named() {
    let job = Ranks { timeout_s: 1, ..Ranks::of(2) };
    let report = job.start(1, "work").end();
    let address = format!("did not reach process 0 at 127.0.0.1:{}", job.port);
    assert_failed(&report, &["this process reports", &address, "MASTER_ADDR"]);
}

/// Process 0 of an older job still has the port. The others wait for that of their own.
#[test]
fn a_stale_job_at_the_port_is_outlasted() {
    let job = Ranks::of(2);
    let mut stale = job.command(0, "work");
    let stale = Rank(stale.env("FARSIDE_SECRET", "old").env("FARSIDE_TIMEOUT_S", "1").spawn().unwrap());
    let second = job.start(1, "work");
    assert_failed(&stale.end(), &["process 1 did not join"]);
    assert_well(&ends(vec![job.start(0, "work"), second]));
}

#[test]
fn a_secret_is_asked_for() {
    let job = Ranks::of(2);
    for secret in [None, Some("")] {
        let mut command = job.command(0, "work");
        command.env_remove("FARSIDE_SECRET").envs(secret.map(|secret| ("FARSIDE_SECRET", secret)));
        assert_failed(&Rank(command.spawn().unwrap()).end(), &["FARSIDE_SECRET is not set", "openssl rand"]);
    }
}

#[test]
fn a_port_in_use_is_named_with_the_remedy() {
    let job = Ranks::of(2);
    let _other = TcpListener::bind((Ipv4Addr::LOCALHOST, job.port)).unwrap();
    let port = job.port.to_string();
    assert_failed(
        &job.start(0, "work").end(),
        &["this process reports", "cannot listen at port", &port, "FARSIDE_PORT"],
    );
}

#[test]
fn a_duplicate_rank_is_named() {
    let job = Ranks::of(3);
    let first = job.start(0, "work");
    let reports = ends(vec![job.start(1, "work"), job.start(1, "work")]);
    assert_failed(&first.end(), &["two processes joined as process 1"]);
    assert_eq!(
        reports.iter().filter(|report| report.text.contains("rank 1 has already joined")).count(),
        1,
        "{reports:?}"
    );
    assert_eq!(reports.iter().filter(|report| report.text.contains("two processes joined")).count(), 1, "{reports:?}");
    assert!(reports.iter().all(|report| report.status == Some(1)));
}

#[test]
fn ranks_with_different_sizes_are_refused() {
    let job = Ranks::of(3);
    let other = Ranks { size: 2, ..Ranks::of(1) };
    let other = Ranks { port: job.port, ..other };
    let (first, second) = (job.start(0, "work"), other.start(1, "work"));
    let words = ["this process reports", "rank 1 was started for a job of 2 processes", "for one of 3"];
    assert_failed(&second.end(), &words);
    assert_failed(&first.end(), &["process 1 was started for a job of 2 processes, and process 0 for one of 3"]);
}

#[test]
fn a_rank_out_of_range_is_refused_where_it_is() {
    assert_failed(&Ranks::of(2).start(2, "work").end(), &["rank 2 does not exist: the launcher started 2 processes"]);
}

#[test]
fn ranks_that_disagree_about_the_job_are_refused() {
    let job = Ranks::of(2);
    let reports = ends(vec![job.start(0, "work"), job.start(1, "many-threads")]);
    for report in reports {
        assert_failed(&report, &["with 1 threads", "with 2 threads"]);
    }
}

#[test]
fn a_rank_that_fails_fails_the_job() {
    for failing in 0..3 {
        let job = Ranks::of(3);
        let task = |rank| if rank == failing { "fail" } else { "survive" };
        let reports = ends((0..3).map(|rank| job.start(rank, task(rank))).collect());
        for (rank, report) in reports.iter().enumerate() {
            let expected = i32::from(rank == 0 || rank == failing as usize);
            assert_eq!(report.status, Some(expected), "rank {rank} of {reports:#?}");
        }
        assert_failed(&reports[0], &["this process reports", "it has had enough"]);
    }
}

#[test]
fn the_others_continue_after_the_loss_of_a_killed_rank() {
    let job = Ranks::of(3);
    let mut ranks = job.start_all("survive");
    ranks.iter_mut().for_each(|rank| rank.await_line("here"));
    let mut killed = ranks.remove(1);
    killed.kill();
    let reports = ends(ranks);
    assert!(reports.iter().all(|report| report.text.contains("told of [ProcessId(1)]")), "{reports:#?}");
    assert_failed(&reports[0], &["this process reports", "process 1 failed: its connection"]);
    assert_eq!(reports[1].status, Some(0), "{reports:#?}");
}

#[test]
fn without_process_0_the_job_ends() {
    let job = Ranks::of(3);
    let mut ranks = job.start_all("stay");
    ranks.iter_mut().for_each(|rank| rank.await_line("here"));
    let mut killed = ranks.remove(0);
    killed.kill();
    for report in ends(ranks) {
        assert_failed(&report, &["this process reports", "process 0"]);
    }
}

/// Runs two ranks that take themselves for different machines.
fn apart(fabric: &str) -> Vec<Report> {
    let job = Ranks::of(2);
    let start = |rank: u32| {
        let mut command = job.command(rank, "work");
        command.env("FARSIDE_HOST_ID", rank.to_string()).env("FARSIDE_FABRIC", fabric);
        Rank(command.env("FARSIDE_ADDRESS", "127.0.0.1").spawn().unwrap())
    };
    ends(vec![start(0), start(1)])
}

#[test]
fn different_machines_share_no_memory() {
    for report in apart("shm") {
        assert_failed(&report, &["process 0 and process 1 are on different machines"]);
    }
}

#[test]
fn different_machines_exchange_cards() {
    if !farside_testbed::is_left_out("fabric") {
        assert_well(&apart("auto"));
    }
}

/// Returns two ranks at work on two hosts.
fn ranks_between_hosts(pair: &Pair) -> [Rank; 2] {
    let job = Ranks { timeout_s: 30, ..Ranks::of(2) };
    let start = |(side, rank): (Side, u32)| {
        let mut command = pair.command(side, std::env::current_exe().unwrap());
        command.args(PROGRAM).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Rendezvous { world_size: 2, master: Side::A, port: job.port, secret: "swordfish" }.tell(&mut command, rank);
        Rank(command.env("FARSIDE_TIMEOUT_S", job.timeout_s.to_string()).env(TASK, "stay").spawn().unwrap())
    };
    let mut ranks = [(Side::A, 0), (Side::B, 1)].map(start);
    ranks.iter_mut().for_each(|rank| rank.await_line("here"));
    ranks
}

/// Returns the command of a rank whose group meets others at a port.
fn grouped(group: &Ranks, rank: u32, port: u16, which: &str) -> Command {
    let mut command = group.command(rank, "joined");
    join(&mut command, port, which);
    command
}

fn join(command: &mut Command, port: u16, which: &str) {
    command.env("FARSIDE_JOIN", format!("127.0.0.1:{port}")).env("FARSIDE_GROUP", which);
}

#[test]
fn groups_launched_separately_are_one_job() {
    let port = free_port();
    let sizes = [2, 3, 1];
    let mut ranks = Vec::new();
    let mut before: u32 = sizes.iter().sum();
    // The first group comes last. The others try to reach it before.
    let mut listener = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
    for (index, size) in sizes.into_iter().enumerate().rev() {
        let group = Ranks::of(size);
        before -= size;
        if index == 0 {
            await_attempt(listener.take().unwrap());
        }
        for rank in 0..size {
            let mut command = grouped(&group, rank, port, &format!("{index}/3"));
            if size == 1 {
                // This rank has no launcher.
                command.env_remove("RANK").env_remove("WORLD_SIZE");
            }
            ranks.push(Rank(command.env(EXPECTED, (before + rank).to_string()).spawn().unwrap()));
        }
    }
    assert_well(&ends(ranks));
}

/// Two processes of this program and two of the example `histogram`, launched separately.
#[test]
fn groups_of_different_programs_are_one_job() {
    let this = std::env::current_exe().unwrap();
    let target = this.parent().and_then(Path::parent).expect("test binaries are in a folder of the target folder");
    let histogram = target.join("examples/histogram");
    assert!(histogram.exists(), "build it with `cargo build -p farside --examples`: {}", histogram.display());
    let port = free_port();
    let groups = [Ranks::of(2), Ranks::of(2)];
    let mut ranks = Vec::new();
    for rank in 0..2 {
        let mut command = groups[1].command_of(Command::new(&histogram), rank);
        join(&mut command, port, "1/2");
        ranks.push(Rank(command.spawn().unwrap()));
        let mut command = groups[0].command(rank, "with-histogram");
        join(&mut command, port, "0/2");
        ranks.push(Rank(command.spawn().unwrap()));
    }
    assert_well(&ends(ranks));
}

#[test]
fn missing_groups_are_named() {
    let group = Ranks { timeout_s: 1, ..Ranks::of(1) };
    let report = Rank(grouped(&group, 0, group.port, "0/3").spawn().unwrap()).end();
    assert_failed(
        &report,
        &["this process reports", "of 3 groups, no process of group 1, group 2 connected within 1s"],
    );
    let report = Rank(grouped(&group, 0, group.port, "1/3").spawn().unwrap()).end();
    assert_failed(&report, &["this process reports", "did not reach process 0"]);
    let report = Rank(grouped(&group, 0, group.port, "3/3").spawn().unwrap()).end();
    assert_failed(&report, &["FARSIDE_JOIN and FARSIDE_GROUP are incomplete", "FARSIDE_GROUP=INDEX/COUNT"]);
}

#[test]
fn groups_that_disagree_are_refused() {
    let group = Ranks::of(1);
    let ranks = ["0/2", "1/3"].map(|which| Rank(grouped(&group, 0, group.port, which).spawn().unwrap()));
    let [first, other] = ranks.map(Rank::end);
    assert_failed(&first, &["process 0 of group 1 was started as one of 3 groups, and process 0 as one of 2"]);
    assert_failed(&other, &["group 1 was started as one of 3 groups", "as one of 2: give all"]);
}

/// Many strangers connect to process 0. Some stay silent, some send nonsense, and one closes at
/// once.
#[test]
fn strangers_do_not_delay_the_start() {
    let job = Ranks::of(2);
    let first = job.start(0, "work");
    let silent: Vec<_> = (0..200).map(|_| job.intrude()).collect();
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 3000], &[255; 3000], b"\x08\x00farside\x01", b"\x10"] {
        let mut stream = job.intrude();
        // Process 0 may refuse the connection while it sends.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(Shutdown::Write);
    }
    drop(job.intrude());
    assert_well(&ends(vec![first, job.start(1, "work")]));
    drop(silent);
}

mod deep {
    use super::*;

    /// A cut connection ends the job, although no side closes it.
    #[test]
    fn a_cable_that_is_cut_ends_the_job_on_both_sides() {
        if farside_testbed::is_left_out("netns") || farside_testbed::is_left_out("fabric") {
            return;
        }
        let pair = Pair::new().unwrap();
        let ranks = ranks_between_hosts(&pair);
        pair.cut().unwrap();
        let reports = ends(ranks.into());
        assert!(reports.iter().all(|report| report.status == Some(1)), "{reports:#?}");
        assert_failed(&reports[0], &["this process reports", "process 1"]);
        assert_failed(&reports[1], &["this process reports", "process 0"]);
    }

    /// A killed rank behind a cut cable cannot close its connection. The other rank learns of its
    /// end anyway.
    #[test]
    fn a_connection_that_is_half_open_ends_the_job() {
        if farside_testbed::is_left_out("netns") || farside_testbed::is_left_out("fabric") {
            return;
        }
        for gone in [0, 1] {
            let pair = Pair::new().unwrap();
            let mut ranks = ranks_between_hosts(&pair);
            pair.cut().unwrap();
            ranks[gone].kill();
            let left = ends(ranks.into()).swap_remove(1 - gone);
            assert_failed(&left, &["this process reports", &format!("process {gone}")]);
        }
    }
}

/// Ranks that must start within a short deadline.
mod timing {
    use super::*;

    #[test]
    fn missing_ranks_are_named() {
        // The time must suffice for ranks 0 and 2 to start on a busy machine.
        let job = Ranks { timeout_s: 5, ..Ranks::of(4) };
        let reports = ends([0, 2].map(|rank| job.start(rank, "work")).into());
        for report in &reports {
            assert_failed(report, &["of 4 processes, process 1, process 3 did not join the job within 5s"]);
        }
        assert!(reports[0].text.contains("this process reports") && reports[1].text.contains("process 0 reports"));
    }

    #[test]
    fn a_process_with_another_secret_does_not_disturb_the_job() {
        let job = Ranks::of(2);
        let first = job.start(0, "work");
        let mut intruder = job.command(1, "work");
        let intruder =
            Rank(intruder.env("FARSIDE_SECRET", "guess").env("FARSIDE_TIMEOUT_S", "1").spawn().unwrap()).end();
        assert_failed(&intruder, &["this process reports", "have different secrets: set FARSIDE_SECRET"]);
        assert_well(&ends(vec![first, job.start(1, "work")]));

        let job = Ranks { timeout_s: 5, ..Ranks::of(2) };
        let first = job.start(0, "work");
        let mut intruder = job.command(1, "work");
        Rank(intruder.env("FARSIDE_SECRET", "guess").env("FARSIDE_TIMEOUT_S", "1").spawn().unwrap()).end();
        let turned_away = "turned away: a process at";
        assert_failed(&first.end(), &["process 1 did not join", turned_away, "has another FARSIDE_SECRET"]);
    }
}
