//! Jobs of real processes: how they start, fail and end.
//!
//! The processes of most jobs here run this test program again, with arguments that select the same
//! test. They reach the same job and exit when it is over.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::time::Duration;

use farside::job::launch::{Launch, Program};
use farside::prelude::*;
use farside::{Error, LaunchError, ProcessEnd, Result};
use farside_testbed::wait_until;

use crate::support::{is_launched, only, take_notes, verdict, within_time, write_note};

fn failure(verdict: Result<()>) -> (u32, ProcessEnd) {
    match verdict {
        Err(Error::Launch(LaunchError::ProcessFailed { process, how })) => (process.number(), how),
        other => panic!("no process failed: {other:?}"),
    }
}

fn report(verdict: Result<()>) -> (u32, String) {
    match failure(verdict) {
        (process, ProcessEnd::Reported(why)) => (process, why),
        other => panic!("no process reported a failure: {other:?}"),
    }
}

fn program(command: impl Into<PathBuf>, arguments: &[&str], processes: u32) -> Program {
    let arguments = arguments.iter().map(Into::into).collect();
    Program { command: command.into(), arguments, processes }
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Returns what the system says about a process: its state, its parent, and more. Empty if there is
/// no such process.
fn stat(pid: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // These fields follow the name, which is in parentheses and may hold any character.
    stat.rsplit_once(") ").map_or(Vec::new(), |(_, fields)| fields.split(' ').map(str::to_owned).collect())
}

/// Returns whether a process runs. One that has ended and was not waited for does not.
fn runs(pid: u32) -> bool {
    stat(pid).first().is_some_and(|state| state != "Z" && state != "X")
}

/// Returns the children of this process that were started with these last arguments.
fn running_with(arguments: &[&str]) -> HashSet<u32> {
    let end = arguments.iter().map(|argument| format!("\0{argument}")).collect::<String>() + "\0";
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = std::process::id().to_string();
    let matches = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(end.as_bytes()) && stat(*pid).get(1) == Some(&parent)
    };
    pids.filter(matches).filter(|pid| runs(*pid)).collect()
}

#[test]
fn jobs_of_several_shapes_end_well() {
    for (processes, threads) in [(1, 1), (2, 1), (1, 3), (3, 2), (4, 1)] {
        let job = farside::job().processes(processes).threads_per_process(threads);
        verdict("launch::jobs_of_several_shapes_end_well", job, |me| me.barrier()).unwrap();
    }
}

#[test]
fn a_job_of_no_processes_is_refused() {
    let refused = [
        farside::job().processes(0).entry(["unused"]).run(|_| Ok(())),
        farside::job().threads_per_process(0).entry(["unused"]).run(|_| Ok(())),
        farside::job().processes(1 << 18).entry(["unused"]).run(|_| Ok(())),
        Launch::new(Vec::new()).run().map_err(Error::from),
        Launch::new(vec![program("unused", &[], 0)]).run().map_err(Error::from),
        Launch::new(vec![program("unused", &[], 1), program("unused", &[], 0)]).run().map_err(Error::from),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::Launch(LaunchError::JobShape { .. }))), "{refused:?}");
    }
}

#[test]
fn a_missing_program_is_named_and_nothing_stays() {
    let (sleeper, missing) = ("86421.35", "./there/is/no/such/program");
    let launch = Launch::new(vec![program("sleep", &[sleeper], 2), program(missing, &[], 1)]);
    let (process, how) = failure(within_time(|| launch.run().map_err(Error::from)));
    assert_eq!((process, how.exit_status()), (2, 127));
    assert!(matches!(&how, ProcessEnd::NotStarted(why) if why.contains(missing)), "{how}");
    assert_eq!(running_with(&[sleeper]), HashSet::new());
}

#[test]
fn a_program_that_reaches_no_job_is_named() {
    let launch = |command, arguments: &[&str]| Launch::new(vec![program(command, arguments, 2)]).quiet_stdout();
    let (_, why) = report(within_time(|| launch("true", &[]).run().map_err(Error::from)));
    assert_eq!(why, "it ended before it joined the job");
    let (_, how) = failure(within_time(|| launch("sh", &["-c", "exit 7"]).run().map_err(Error::from)));
    assert_eq!(how, ProcessEnd::Exited(7));
}

#[test]
fn the_exit_status_of_the_first_failing_process_is_the_verdict() {
    let job = farside::job().processes(3);
    let verdict = verdict("launch::the_exit_status_of_the_first_failing_process_is_the_verdict", job, |me| {
        if me.id().number() == 1 {
            exit(3);
        }
        Ok(())
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Exited(3)));
}

#[test]
fn a_killed_process_is_the_verdict_though_the_others_fail_of_it() {
    let job = farside::job().processes(3);
    let verdict = verdict("launch::a_killed_process_is_the_verdict_though_the_others_fail_of_it", job, |me| {
        me.barrier()?;
        if me.id().number() == 2 {
            farside_sys::process::kill_self();
        }
        me.barrier()
    });
    assert_eq!(failure(verdict), (2, ProcessEnd::Killed(9)));
}

#[test]
#[ignore = "a program for `a_chain_of_failures_is_one_message`"]
fn program_whose_last_process_is_killed() -> Result<()> {
    farside::job().processes(4).run(|me| {
        let work = || -> Result<()> {
            me.barrier()?;
            if me.id().number() == 3 {
                farside_sys::process::kill_self();
            }
            // Each process loses the next one.
            loop {
                me.call_return(me.neighbor(1), (), |_, ()| ())?.wait()?;
            }
        };
        let Err(error) = work() else { unreachable!("it works until it fails") };
        write_note("launch::program_whose_last_process_is_killed", me.id().number(), &error.to_string());
        Err(error)
    })
}

#[test]
fn a_chain_of_failures_is_one_message() {
    let program = "launch::program_whose_last_process_is_killed";
    let mut command = Command::new(this_program());
    command.args(only(program)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let launcher = command.spawn().unwrap();
    let pid = launcher.id();
    let output = within_time(|| launcher.wait_with_output().unwrap());
    let printed = String::from_utf8_lossy(&output.stderr);
    let root = "process 3 was killed by signal 9";
    let named = || Some(root.to_owned());
    assert_eq!(take_notes(pid, program, 4), [named(), named(), named(), None], "{printed}");
    let errors: Vec<_> = printed.lines().filter(|line| line.contains("rror")).collect();
    assert_eq!(errors, [format!("Error: {root}")], "no process prints an error of its own: {printed}");
}

#[test]
fn the_others_go_on_if_they_want_to() {
    let survived = std::env::temp_dir().join(format!("farside-launch-test-{}", std::process::id()));
    let job = farside::job().processes(2);
    let verdict = verdict("launch::the_others_go_on_if_they_want_to", job, |me| {
        if me.id().number() == 1 {
            farside_sys::process::kill_self();
        }
        match me.barrier() {
            Err(Error::PeerLost { process, .. }) if process.number() == 1 => {
                let launcher = std::env::var("FARSIDE_LAUNCHER").unwrap();
                std::fs::write(std::env::temp_dir().join(format!("farside-launch-test-{launcher}")), "").unwrap();
                Ok(())
            }
            other => panic!("the loss of process 1 was not noticed: {other:?}"),
        }
    });
    assert_eq!(failure(verdict), (1, ProcessEnd::Killed(9)));
    std::fs::remove_file(survived).expect("process 0 noticed the loss and went on");
}

#[test]
fn errors_and_panics_of_a_worker_are_reported() {
    let job = farside::job().processes(2);
    let verdict = verdict("launch::errors_and_panics_of_a_worker_are_reported", job, |me| match me.id().number() {
        1 => Err(Error::JobEnded { why: "worker one has had enough".into() }),
        _ => Ok(()),
    });
    let (process, why) = report(verdict);
    assert!(process == 1 && why.contains("worker one has had enough"), "{why}");
}

#[test]
fn a_panic_is_reported() {
    let job = farside::job().processes(2).threads_per_process(2);
    let verdict = verdict("launch::a_panic_is_reported", job, |me| {
        assert_ne!(me.id().number(), 3, "worker three cannot be");
        Ok(())
    });
    let (process, why) = report(verdict);
    assert!(process == 1 && why.contains("worker three cannot be"), "{why}");
}

#[test]
fn a_failure_behind_the_job_counts() {
    let job = farside::job().processes(2).entry(only("launch::a_failure_behind_the_job_counts")).quiet_stdout();
    let verdict = within_time(|| job.run(|_| Ok(())));
    if is_launched() {
        verdict.unwrap();
        exit(if std::env::var("FARSIDE_PROCESS").unwrap() == "1" { 5 } else { 0 });
    }
    assert_eq!(failure(verdict), (1, ProcessEnd::Exited(5)));
}

#[test]
fn the_time_limit_ends_everything() {
    let job = farside::job().processes(2).time_limit(Duration::from_millis(300));
    let verdict = verdict("launch::the_time_limit_ends_everything", job, |_| {
        farside_testbed::hold_still();
    });
    let (_, how) = failure(verdict);
    assert_eq!((how.exit_status(), how), (124, ProcessEnd::TimedOut));
    assert_eq!(running_with(&only("launch::the_time_limit_ends_everything")), HashSet::new());
}

#[test]
fn a_process_that_reaches_another_job_reports_it() {
    let name = "launch::a_process_that_reaches_another_job_reports_it";
    if is_launched() {
        exit(farside::job().run(|_| Ok(())).is_err().into());
    }
    let (_, why) = report(verdict(name, farside::job().processes(2), |_| Ok(())));
    assert!(why.contains("launch.rs") && why.contains("`Job::entry`"), "{why}");
}

/// Runs one of the programs below. Returns whether it succeeded, and its output.
fn run_program(name: &str) -> (bool, String) {
    let output = within_time(|| Command::new(this_program()).args(only(name)).output().unwrap());
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
}

#[test]
#[ignore = "a program for `only_process_0_has_the_standard_input`"]
fn program_that_reads() {
    let verdict = farside::job().processes(3).run(|me| {
        if me.process() == ProcessId::new(0) {
            assert_eq!(std::io::read_to_string(std::io::stdin()).unwrap(), "input");
        } else {
            assert_eq!(std::fs::read_link("/proc/self/fd/0").unwrap(), Path::new("/dev/null"));
        }
        Ok(())
    });
    verdict.unwrap();
}

#[test]
fn only_process_0_has_the_standard_input() {
    let mut command = Command::new(this_program());
    command.args(only("launch::program_that_reads")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut launcher = command.spawn().unwrap();
    launcher.stdin.take().unwrap().write_all(b"input").unwrap();
    assert!(within_time(|| launcher.wait().unwrap()).success());
}

#[test]
#[ignore = "a program for `a_second_job_is_refused`"]
fn program_with_two_jobs() {
    farside::job().processes(2).run(|_| Ok(())).unwrap();
    farside::job().processes(2).run(|_| Ok(())).unwrap();
}

#[test]
fn a_second_job_is_refused() {
    let (success, printed) = run_program("launch::program_with_two_jobs");
    assert!(!success);
    assert!(printed.contains("cannot start a second job") && printed.contains("launch.rs"), "{printed}");
}

#[test]
#[ignore = "a program for `jobs_with_entries_of_their_own_can_follow_each_other`"]
fn program_with_two_entries() {
    let name = "launch::program_with_two_entries";
    for round in ["first", "second"] {
        // The test harness accepts a `--skip` that matches no test.
        let arguments = [&only(name)[..], &["--skip", round]].concat();
        if is_launched() && !std::env::args().any(|argument| argument == round) {
            continue;
        }
        farside::job().processes(2).entry(arguments).run(|me| me.barrier()).unwrap();
    }
}

#[test]
fn jobs_with_entries_of_their_own_can_follow_each_other() {
    let (success, printed) = run_program("launch::program_with_two_entries");
    assert!(success, "{printed}");
}

#[test]
#[ignore = "a program for `no_process_outlives_a_killed_launcher`"]
fn program_that_stays() {
    let _ = farside::job().processes(3).run(|_| {
        // One write, so that the lines of several processes do not mix.
        std::io::stderr().write_all(format!("here is {}\n", std::process::id()).as_bytes()).unwrap();
        farside_testbed::hold_still();
    });
}

#[test]
fn no_process_outlives_a_killed_launcher() {
    let mut command = Command::new(this_program());
    command.args(only("launch::program_that_stays")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let lines = BufReader::new(launcher.stderr.take().unwrap()).lines().map_while(|line| line.ok());
    let pids = lines.filter_map(|line| line.strip_prefix("here is ")?.parse().ok());
    let pids: Vec<u32> = within_time(|| pids.take(3).collect());
    assert_eq!(pids.iter().filter(|pid| runs(**pid)).count(), 3, "all processes of the job are there");

    launcher.kill().unwrap();
    launcher.wait().unwrap();
    wait_until("no process outlives its launcher", || !pids.iter().any(|pid| runs(*pid)));
}

#[farside::test(processes = 3, threads = 2)]
fn a_test_is_a_job(me: &Worker) {
    assert!(is_launched());
    assert_eq!(me.process().number(), me.id().number() / 2);
    assert!(me.id().number() < 6);
}

#[farside::test]
#[should_panic(expected = "process 1 failed: worker 1 panicked: worker one cannot be")]
fn a_test_fails_when_a_worker_does(me: &Worker) {
    assert!(me.id().number() != 1, "worker one cannot be");
}

#[farside::test]
#[ignore = "a program for `a_failed_test_shows_the_output_of_its_processes`"]
fn program_that_prints(me: &Worker) {
    println!("{} has printed this", me.id());
    eprintln!("{} has complained", me.id());
    assert!(me.id().number() != 1 || std::env::var_os("FARSIDE_TEST_PASSES").is_some(), "worker one cannot be");
}

#[test]
fn a_failed_test_shows_the_output_of_its_processes() {
    let run = |passes: bool| {
        let mut command = Command::new(this_program());
        command.args(["launch::program_that_prints", "--exact", "--include-ignored", "--test-threads=1"]);
        let output = within_time(|| command.envs(passes.then_some(("FARSIDE_TEST_PASSES", "1"))).output().unwrap());
        assert_eq!(output.status.success(), passes);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let failed = run(false);
    for worker in ["worker 0", "worker 1"] {
        let lines = format!("\n{worker} has printed this\n{worker} has complained\n");
        assert_eq!(failed.matches(&lines).count(), 1, "{failed}");
    }
    // The attribute is two lines above the function.
    let function = include_str!("launch.rs").lines().position(|line| line.starts_with("fn program_that_prints"));
    assert!(failed.contains(&format!("launch.rs:{}:", function.unwrap() - 1)), "{failed}");
    assert_eq!(failed.matches("running 1 test").count(), 1, "only this harness reports: {failed}");
    let passed = run(true);
    assert!(!passed.contains("has printed") && !passed.contains("has complained"), "{passed}");
}

#[farside::test(timeout_s = 1)]
#[ignore = "a program for `a_test_that_hangs_is_ended`"]
fn program_that_hangs(_: &Worker) {
    farside_testbed::hold_still();
}

/// The limit of the test is 1 s, unless people set a longer one for all waits.
#[test]
fn a_test_that_hangs_is_ended() {
    let mut command = Command::new(this_program());
    command.args(only("launch::program_that_hangs")).env_remove("FARSIDE_TIMEOUT_S");
    let output = within_time(|| command.output().unwrap());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains("longer than its time limit"), "{printed}");
}

mod timing {
    use super::*;

    #[test]
    fn a_late_process_is_named_and_stopped() {
        let name = "launch::timing::a_late_process_is_named_and_stopped";
        if is_launched() && std::env::var("FARSIDE_PROCESS").unwrap() == "1" {
            farside_testbed::hold_still();
        }
        // The time must suffice for processes 0 and 2 to start on a busy machine.
        let job = farside::job().processes(3).deadline(Duration::from_secs(5));
        match verdict(name, job, |_| Ok(())) {
            Err(Error::JobEnded { why }) => assert!(why.starts_with("of 3 processes, process 1 did not join"), "{why}"),
            other => panic!("the job began without process 1: {other:?}"),
        }
        assert_eq!(running_with(&only(name)), HashSet::new());
    }
}
