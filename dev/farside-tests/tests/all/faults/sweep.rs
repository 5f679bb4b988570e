//! A process has an accident at each point of the protocols: it is killed, or stopped and
//! continued, or stopped and killed. The others go on.
//!
//! A table lists all points, with the program that passes them and the passes at which accidents
//! happen. Each group of the table is one test for each kind of accident, and one more that kills a
//! process once: the fast tier has a death in each protocol.

use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

use farside::prelude::*;
use farside_launch::kill_point;
use farside_testbed::{wait_for, wait_until};

use crate::support::{
    is_launched, is_over_missing_libfabric, only, socket_name_of_job, take_notes, within_time, write_note,
};

/// The number of the process that has the accident.
pub(crate) const VICTIM: u32 = 1;
/// The variable with the number of workers of each process.
pub(crate) const THREADS: &str = "FARSIDE_TEST_THREADS";
/// The variable that tells a program that process 1 is lost while the others are at work.
pub(crate) const VICTIM_IS_LOST: &str = "FARSIDE_TEST_VICTIM_IS_LOST";
/// Looks at the other processes while one is stopped. They should wait for it by then. The tests
/// hold if they do not.
const LOOKS_MAX: u32 = 50;
/// Jobs of one test with stops that run at the same time, because they wait.
const STOPS_AT_ONCE: usize = 3;

/// A test of this binary that is the program of a job. It prints the verdict of a failed job. Each
/// worker that comes to its end leaves a note.
#[derive(Debug)]
struct Program {
    test: &'static str,
    processes: u32,
    /// `None`: that of the environment.
    fabric: Option<&'static str>,
}

const CALLS: Program = Program { test: "faults::traffic::program", processes: 4, fabric: None };
const CLOSINGS: Program = Program { test: "ways::reclaim::program", processes: 3, fabric: None };
const PIPES: Program = Program { test: "faults::pipes::program", processes: 3, fabric: None };
const HEAPS: Program = Program { test: "faults::heaps::program", processes: 4, fabric: None };
/// Mapped memory is accessed directly, without its owner.
const MOVEMENTS: Program = Program { test: "faults::movement::program", processes: 4, fabric: Some("ofi:tcp") };

/// A point of a program.
#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    /// The passes with one worker in each process.
    passes: &'static [u32],
    /// The pass with two workers in each process, if any.
    pass_by_two: Option<u32>,
    /// True if the loss of the process may end the job.
    may_end_the_job: bool,
}

const fn at(name: &'static str, passes: &'static [u32]) -> Point {
    Point { name, passes, pass_by_two: None, may_end_the_job: false }
}

impl Point {
    const fn and_by_two(mut self, pass: u32) -> Self {
        self.pass_by_two = Some(pass);
        self
    }

    const fn may_end_the_job(mut self) -> Self {
        self.may_end_the_job = true;
        self
    }

    /// Returns the passes at which an accident happens, each with the number of workers of a
    /// process. Stops take longer than kills and are caused at one pass: processes that are
    /// continued have everything open by the last one, and those that are killed little at the
    /// first.
    fn passes(&self, accident: Accident) -> Vec<(u32, u32)> {
        let by_one = match accident {
            Accident::KilledOnce => return vec![(self.passes[0], 1)],
            Accident::Killed => self.passes,
            Accident::StoppedAndContinued => &self.passes[self.passes.len() - 1..],
            Accident::StoppedAndKilled => &self.passes[..1],
        };
        let by_two = self.pass_by_two.filter(|_| accident.is_kill());
        by_one.iter().map(|pass| (*pass, 1)).chain(by_two.map(|pass| (pass, 2))).collect()
    }
}

/// The accident of process 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accident {
    /// At one point of a group, the middle one.
    KilledOnce,
    Killed,
    StoppedAndContinued,
    StoppedAndKilled,
}

impl Accident {
    /// Returns whether the process kills itself, without a stop before.
    fn is_kill(self) -> bool {
        matches!(self, Self::KilledOnce | Self::Killed)
    }
}

macro_rules! sweep {
    ($($(#[$attribute:meta])* $group:ident($program:ident): [$($point:expr,)*])*) => {
        sweep!(@ killed_once KilledOnce, $($(#[$attribute])* $group $program [$($point,)*])*);

        mod deep {
            use super::*;

            sweep!(@ killed Killed, $($(#[$attribute])* $group $program [$($point,)*])*);
            sweep!(@ stopped_and_continued StoppedAndContinued, $($(#[$attribute])* $group $program [$($point,)*])*);
            sweep!(@ stopped_and_killed StoppedAndKilled, $($(#[$attribute])* $group $program [$($point,)*])*);
        }

        const POINTS: &[&[Point]] = &[$(&[$($point,)*]),*];
    };
    (@ $tests:ident $accident:ident, $($(#[$attribute:meta])* $group:ident $program:ident $points:tt)*) => {
        mod $tests {
            use super::{Accident, CALLS, CLOSINGS, HEAPS, MOVEMENTS, PIPES, at, sweep};

            $($(#[$attribute])* #[test] fn $group() { sweep(&$program, Accident::$accident, &$points); })*
        }
    };
}

// Every point makes sense as a stop: a process can be stopped anywhere.
sweep! {
    beginnings(CALLS): [
        at("greeting-sent", &[1]).may_end_the_job(),
        at("endpoint-opened", &[1]),
    ]
    // Rings and shared rings to other workers.
    openings_of_rings(CALLS): [
        at("ring-asking", &[1, 2, 5]).and_by_two(4),
        at("ring-asked", &[1, 2, 5]).and_by_two(4),
        at("ring-made", &[1, 2, 5]).and_by_two(4),
        at("ring-answered", &[1, 2, 5]).and_by_two(4),
        at("sender-opened", &[1, 2, 5]).and_by_two(4),
    ]
    growths(CALLS): [
        at("growth-asked", &[1, 3]).and_by_two(2),
        at("growth-made", &[1, 3]).and_by_two(2),
        at("sender-grown", &[1, 3]).and_by_two(2),
    ]
    closings_of_rings(CLOSINGS): [
        at("ring-closing", &[2]),
        at("ring-closed", &[2]),
    ]
    requests_for_memory(CALLS): [
        at("memory-asked", &[1, 2, 9]).and_by_two(4),
        at("memory-granted", &[1, 2, 9]).and_by_two(4),
        at("memory-released", &[1, 2, 9]).and_by_two(4),
    ]
    staged_calls(CALLS): [
        at("record-reserved", &[1, 4]).and_by_two(10),
        at("staged-published", &[1, 4]).and_by_two(10),
    ]
    calls_with_memory(CALLS): [
        at("buffer-found", &[1, 10]).and_by_two(5),
        at("buffer-read", &[1, 10]).and_by_two(5),
        at("result-put", &[1, 10]).and_by_two(5),
        at("sent-on", &[1, 10]).and_by_two(5),
    ]
    #[cfg(debug_assertions)]
    every_call(CALLS): [
        at("batch-begun", &[1, 10]).and_by_two(20),
        at("reply-claimed", &[1, 10]).and_by_two(20),
    ]
    ends(CALLS): [
        at("round-reported", &[1]).and_by_two(1),
        at("finished", &[1]).and_by_two(1),
    ]
    meetings_of_pipes(PIPES): [
        at("pipe-asked", &[1, 2, 4]),
        at("pipe-made", &[1, 2, 4]),
        at("pipe-answered", &[1, 2]),
        at("pipe-left", &[1, 3, 6]),
    ]
    #[cfg(debug_assertions)]
    messages_of_pipes(PIPES): [
        at("pipe-filled", &[1, 5, 100]),
        at("pipe-read", &[1, 5, 100]),
    ]
    initiators_of_heaps(HEAPS): [
        at("heap-made", &[1, 2, 6]),
        at("heap-block-put", &[1, 2, 50]),
        at("heap-tags-taken", &[1, 2, 9]),
        at("heap-asked", &[1, 2, 7]),
        at("heap-closing", &[1, 2, 6]),
    ]
    peers_of_heaps(HEAPS): [
        at("heap-block-opened", &[1, 2, 60]),
        at("heap-block-freed", &[1, 2, 30]),
        at("heap-tags-made", &[1, 2, 9]),
        at("heap-tags-put", &[1, 2, 9]),
    ]
    movements(MOVEMENTS): [
        at("move-asked", &[1, 9]),
        at("move-taken", &[1, 9]),
        at("move-done", &[1, 9]),
    ]
}

#[test]
fn every_point_is_in_the_table() {
    let mut listed: Vec<&str> = POINTS.iter().copied().flatten().map(|point| point.name).collect();
    let mut all: Vec<&str> = kill_point::names().collect();
    listed.sort_unstable();
    all.sort_unstable();
    assert_eq!(listed, all);
}

/// Returns whether process 1 is lost while the others are at work.
pub(crate) fn is_victim_lost() -> bool {
    std::env::var_os(VICTIM_IS_LOST).is_some()
}

/// Tells the test that started the job that a process is at work.
pub(crate) fn report_work() {
    eprintln!("at work");
}

/// Tells the test that started the job that a worker has come to its end: by a note, or, as the
/// worker of a rank, by a line.
pub(crate) fn report_end(program: &str, me: &Worker) {
    if is_launched() {
        write_note(program, me.id().number(), &socket_name_of_job().unwrap_or_default());
    } else {
        eprintln!("well");
    }
}

/// Runs jobs that have an accident at each pass of some points.
fn sweep(program: &Program, accident: Accident, points: &[Point]) {
    if program.fabric.is_some_and(is_over_missing_libfabric) {
        return;
    }
    let middle = points.len() / 2;
    let points = if accident == Accident::KilledOnce { &points[middle..=middle] } else { points };
    let passes = points.iter().flat_map(|point| point.passes(accident).into_iter().map(move |pass| (point, pass)));
    let cases = Mutex::new(passes.collect::<Vec<_>>().into_iter());
    let next = || cases.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..if accident.is_kill() { 1 } else { STOPS_AT_ONCE } {
            scope.spawn(|| {
                while let Some((point, (pass, threads))) = next() {
                    run(program, accident, point, pass, threads);
                }
            });
        }
    });
}

/// Runs a job whose process 1 has an accident when it passes a point for the `pass`th time. The
/// others must succeed. If a loss may end the job, they may also end in an orderly way.
fn run(program: &Program, accident: Accident, point: &Point, pass: u32, threads: u32) {
    let at = format!("{VICTIM}:{}:{pass}", point.name);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only(program.test)).env(THREADS, threads.to_string());
    command.envs(program.fabric.map(|fabric| ("FARSIDE_FABRIC", fabric)));
    let act = if accident.is_kill() { "FARSIDE_KILL" } else { "FARSIDE_STOP" };
    command.env(act, &at);
    // At the very end, the others have come to their ends.
    if accident != Accident::StoppedAndContinued && point.name != "finished" {
        command.env(VICTIM_IS_LOST, "");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let launcher = command.spawn().unwrap();
    let pid = launcher.id();
    let (was_stopped, output) = within_time(|| match accident {
        Accident::KilledOnce | Accident::Killed => (true, launcher.wait_with_output().unwrap()),
        Accident::StoppedAndContinued => release_when_stopped(launcher, "CONT"),
        Accident::StoppedAndKilled => release_when_stopped(launcher, "KILL"),
    });
    let printed = String::from_utf8_lossy(&output.stderr);
    let what = format!("process {VICTIM} is {accident:?} at {at}, with {threads} workers");
    let workers = program.processes * threads;
    let notes = take_notes(pid, program.test, workers);
    let came_to_end = |worker: &u32| notes[*worker as usize].is_some();
    let others: Vec<u32> = (0..workers).filter(|worker| worker / threads != VICTIM).collect();
    // Only failed jobs print a verdict.
    let verdicts: Vec<&str> = printed.lines().filter(|line| line.starts_with("verdict")).collect();
    assert!(was_stopped, "{what}, but was not stopped; the job says:\n{printed}");
    let all_go_on = others.iter().all(came_to_end);
    if accident == Accident::StoppedAndContinued {
        assert!(all_go_on && output.status.success(), "{what}; {notes:?}; the job says:\n{printed}");
    } else {
        let verdict = format!("verdict: process {VICTIM} was killed by signal 9");
        assert!(verdicts.contains(&&*verdict), "{what}; the job says:\n{printed}");
        let is_lost = point.name == "finished" || (0..threads).all(|local| !came_to_end(&(VICTIM * threads + local)));
        let all_end = point.may_end_the_job && !others.iter().any(came_to_end);
        let is_well = all_go_on && is_lost && verdicts.len() == 1;
        assert!(is_well || all_end, "{what}; {notes:?}; the job says:\n{printed}");
    }
    nothing_is_left(pid, notes[0].as_deref().filter(|name| !name.is_empty()));
}

/// Waits until a process of the job is stopped, and sends it a signal when the others sleep, or
/// after a while. Returns whether one was stopped, and what the launcher has printed at its end.
fn release_when_stopped(mut launcher: Child, name: &str) -> (bool, Output) {
    let stopped = wait_for("a process is stopped, or the job ends", || {
        let stopped = processes_of(launcher.id()).into_iter().find(|process| is_stopped(*process));
        (stopped.is_some() || launcher.try_wait().unwrap().is_some()).then_some(stopped)
    });
    if let Some(process) = stopped {
        let mut looks = 0;
        wait_until("the others wait, or do not", || {
            looks += 1;
            let others = processes_of(launcher.id()).into_iter().filter(|other| *other != process);
            looks > LOOKS_MAX || others.into_iter().all(|other| is_in_state(other, 'S'))
        });
        signal(process, name);
    }
    (stopped.is_some(), launcher.wait_with_output().unwrap())
}

/// Sends a signal to a process.
pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status();
    assert!(status.is_ok_and(|status| status.success()), "there is a shell");
}

/// Returns whether a process is stopped.
pub(crate) fn is_stopped(process: u32) -> bool {
    is_in_state(process, 'T')
}

/// Returns whether the first thread of a process is in a state, which has a letter.
fn is_in_state(process: u32, state: char) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with(state))
}

/// Returns the processes of this launcher's jobs that still run.
pub(crate) fn processes_of(launcher: u32) -> Vec<u32> {
    let variable = format!("FARSIDE_LAUNCHER={launcher}").into_bytes();
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let launched = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable)
    };
    pids.filter(launched).collect()
}

/// Checks that nothing is left of a launcher's job.
pub(crate) fn nothing_is_left(launcher: u32, socket_name: Option<&str>) {
    assert_eq!(processes_of(launcher), [0; 0], "processes outlive their job");
    let files = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
    // Other jobs of this machine may have files of their own.
    let own = launcher.to_string();
    let is_own = |name: &str| name.contains("farside") && name.contains(&own);
    let files: Vec<_> = files.filter(|name| is_own(&name.to_string_lossy())).collect();
    assert!(files.is_empty(), "{files:?} are left");
    if let Some(name) = socket_name {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.contains(&format!("{name}/")), "sockets are left of {name}:\n{sockets}");
    }
}
