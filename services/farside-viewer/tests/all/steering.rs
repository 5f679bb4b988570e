//! A job is changed from outside, at one step of all workers.

use std::process::{Child, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_testbed::{ended_with_us, hold_still, scaled, wait_for, wait_until};
use farside_viewer::{Area, At, InspectError, Inspector, Late, Refused, Role, Selection};

use crate::targets::{BOARD, Gate, STUCK_AT, Target, connect};

/// The variables that make this test program look into a job.
const PART: &str = "FARSIDE_INSPECT_TEST_PART";
pub(crate) const JOB: &str = "FARSIDE_INSPECT_TEST_JOB";

/// Reads frames until `done`, and checks that all workers saw the same. The first frame is read
/// before anyone passes `begun`, and the last one after all changes.
fn watch(job: &Inspector, name: &str, begun: &Barrier, done: &AtomicBool) -> Vec<f64> {
    let area = job.open_any(name).unwrap();
    let look = || {
        let frame = area.get_raw(&Selection::all(), At::Next).unwrap();
        let numbers: Vec<f64> = frame.numbers().unwrap().into_iter().map(|number| number.as_f64()).collect();
        assert!(numbers.iter().all(|one| *one == numbers[0]), "{name} at step {:?}: {numbers:?}", frame.step);
        numbers[0]
    };
    let mut seen = vec![look()];
    begun.wait();
    loop {
        let is_last = done.load(Ordering::SeqCst);
        seen.push(look());
        if is_last {
            seen.dedup();
            return seen;
        }
    }
}

fn newest(area: &Area<f64>) -> u64 {
    area.get(&Selection::all(), At::Next).unwrap().step.unwrap()
}

/// Parameters, elements and actions change at the same step at all workers, while readers look.
#[test]
fn changes_come_at_one_step_of_all_workers() {
    let (mut target, job) = Target::inspected("steered", 2);
    let (begun, done) = (Barrier::new(4), AtomicBool::new(false));
    let rounds = scaled(6).min(1000) as u32;
    std::thread::scope(|scope| {
        let watchers = ["seen", "board", "acted"].map(|name| {
            let (job, begun, done) = (&job, &begun, &done);
            scope.spawn(move || watch(job, name, begun, done))
        });
        let board = job.open::<u32>("board").unwrap();
        begun.wait();
        let mut last = 0;
        for round in 1..=rounds {
            let step = job.set("dt", f64::from(round)).unwrap().unwrap();
            assert!(step >= last);
            last = step;
            board.put(&Selection::all(), &[round; 2 * BOARD]).unwrap().unwrap();
            job.act("count").unwrap().unwrap();
        }
        // The watchers see the last change.
        let seen = job.open::<f64>("seen").unwrap();
        assert_eq!(seen.get(&Selection::all(), At::Next).unwrap().values, [f64::from(rounds); 2]);
        assert_eq!(board.get(&Selection::all(), At::Next).unwrap().values, [rounds; 2 * BOARD]);
        done.store(true, Ordering::SeqCst);
        for watcher in watchers {
            let seen = watcher.join().unwrap();
            assert!(seen.len() > 1 && seen.is_sorted(), "{seen:?}");
        }
    });
    assert!(target.is_running());
}

#[test]
fn a_pause_is_one_step_of_all_workers() {
    let (_target, job) = Target::inspected("steered", 2);
    let seen = job.open::<f64>("seen").unwrap();
    let all = Selection::all();
    newest(&seen);
    let paused = job.pause_at(At::Next).unwrap();
    let step = paused.step().unwrap();
    for name in ["seen", "board", "acted"] {
        let frame = job.open_any(name).unwrap().get_raw(&all, At::Now).unwrap();
        assert_eq!(frame.step, Some(step), "{name}");
    }
    // Others hear of it.
    let other = connect(&job.job().to_string());
    let error = other.set("dt", 1.0).unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::Held { .. }, .. }), "{error}");
    // This reader changes the job while it is paused. What waits is bounded.
    assert_eq!(job.set("dt", 7.0).unwrap(), Some(step));
    (0..64).for_each(|_| assert_eq!(job.act("count").unwrap(), Some(step)));
    let error = job.act("count").unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::Busy, .. }), "{error}");
    // The workers serve meanwhile.
    assert_eq!(job.ask("echo", None, "hello").unwrap().len(), 2);
    assert_eq!(seen.get(&all, At::Now).unwrap().step, Some(step), "the pause is kept");
    for more in 1..=3 {
        assert_eq!(paused.go_to_next().unwrap(), Some(step + more));
        assert_eq!(job.open_any("board").unwrap().get_raw(&all, At::Now).unwrap().step, Some(step + more));
    }
    assert_eq!(seen.get(&all, At::Now).unwrap().values, [7.0; 2]);
    drop(paused);
    assert!(newest(&seen) > step + 3);
    // A step ahead can be named, and one that is over cannot. The program may pass a near one
    // before it is named.
    let mut ahead = 500;
    let now = wait_for("a pause at a step that was named", || {
        let now = newest(&seen);
        let paused = job.pause_at(At::Step(now + ahead)).unwrap();
        assert!(paused.step() >= Some(now + ahead));
        let is_named = paused.step() == Some(now + ahead);
        ahead *= 2;
        is_named.then_some(now)
    });
    let paused = job.pause_at(At::Step(3)).unwrap();
    assert!(paused.step().unwrap() > now, "the next one that can be had");
}

/// A step that takes longer than its reader waits: the pause goes on, and so does the step.
#[test]
fn a_slow_step_ends_no_pause() {
    let gate = Gate::new("slow-step");
    let mut target = Target::start("steered", &[gate.setting()]);
    let job = target.inspect(2);
    let quick = job.clone().deadline(Duration::from_secs(1));
    let paused = wait_for("the job is paused", || quick.pause_at(At::Next).ok());
    let step = paused.step().unwrap();
    job.act("nap").unwrap();
    // The step takes until the gate is opened. On a busy machine, a process may answer too late to
    // say who is late.
    wait_until("both workers are late", || {
        let error = paused.go_to_next().unwrap_err();
        matches!(error, InspectError::NotHeld { late, .. } if late.len() == 2)
    });
    assert!(job.is_paused().unwrap().is_some());
    gate.open();
    let next = wait_for("the step is over", || match paused.go_to_next() {
        Err(InspectError::NotHeld { .. } | InspectError::Silent { .. }) => None,
        ended => Some(ended.unwrap()),
    });
    assert_eq!((next, job.is_paused().unwrap()), (Some(step + 1), Some(Some(step + 1))));
    assert!(target.is_running());
}

/// A change has all workers stay for a moment. That is no pause, and no other reader ends it.
#[test]
fn a_change_is_no_pause() {
    let gate = Gate::new("slow-change");
    let mut target = Target::start("steered", &[gate.setting()]);
    let job = target.inspect(2);
    newest(&job.open::<f64>("seen").unwrap());
    // The next step takes until the gate is opened, and the change waits for its end.
    job.act("nap").unwrap();
    std::thread::scope(|scope| {
        let change = scope.spawn(|| job.set("dt", 3.0));
        let other = connect(&job.job().to_string());
        for _ in 0..scaled(30) {
            assert_eq!(other.is_paused().unwrap(), None);
            assert!(!other.resume().unwrap());
            assert_eq!(other.step_on().unwrap(), None);
        }
        gate.open();
        change.join().unwrap().unwrap();
    });
    assert!(target.is_running());
}

/// Another reader ends a pause. Its maker changes the job as before, and pauses it again.
#[test]
fn a_pause_that_another_reader_ends_is_forgotten() {
    let (mut target, job) = Target::inspected("steered", 2);
    let other = connect(&job.job().to_string());
    let end = || {
        assert!(other.resume().unwrap());
        wait_until("the pause ends", || job.is_paused().unwrap().is_none());
    };
    let paused = job.pause_at(At::Next).unwrap();
    end();
    let step = job.set("dt", 2.0).unwrap();
    let again = job.pause_at(At::Next).unwrap();
    assert!(again.step() > step);
    // The end of the earlier pause is not that of the later one.
    drop(paused);
    assert_eq!(job.set("dt", 3.0).unwrap(), again.step());
    end();
    let error = again.go_to_next().unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::Over, .. }), "{error}");
    assert!(job.act("count").unwrap() > again.step());
    assert!(target.is_running());
}

#[test]
fn what_is_asked_of_a_job_has_an_answer() {
    let (mut target, job) = Target::inspected("steered", 2);
    let answers = job.ask("echo", None, "hello").unwrap();
    assert_eq!(answers, [(0, b"hello to 0".to_vec()), (1, b"hello to 1".to_vec())]);
    assert_eq!(job.ask("echo", Some(1), "").unwrap(), [(1, b" to 1".to_vec())]);
    let error = job.ask("echo", Some(0), "panic").unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    let error = job.ask("echo", Some(9), "hello").unwrap_err();
    assert!(matches!(error, InspectError::Nothing { .. }), "{error}");
    let error = job.ask("dt", None, "hello").unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::Role { .. }, .. }), "{error}");

    let list = job.list().unwrap();
    let role = |name: &str| list.iter().find(|area| area.name == name).unwrap().role;
    assert_eq!(role("dt"), Role::Parameter { least: 0.0, most: 1000.0 });
    assert_eq!((role("residual"), role("count"), role("echo")), (Role::Gauge, Role::Action, Role::Probe));
    let gauge = job.open::<f64>("residual").unwrap();
    let (one, two) = (gauge.get(&Selection::all(), At::Now).unwrap(), gauge.get(&Selection::all(), At::Now).unwrap());
    assert!(one.step.is_none() && one.values[0] >= two.values[0] && two.values[0] > 0.0);

    for value in [-0.1, 1000.1, f64::NAN, f64::INFINITY] {
        let error = job.set("dt", value).unwrap_err();
        assert!(matches!(error, InspectError::Refused { refused: Refused::Range { .. }, .. }), "{error}");
    }
    for name in ["none", "residual", "seen"] {
        assert!(job.set(name, 1.0).is_err() && job.act(name).is_err());
    }
    let error = job.open::<f64>("seen").unwrap().put(&Selection::all(), &[0.0; 2]).unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::ReadOnly { .. }, .. }), "{error}");
    let error = job.open::<u32>("board").unwrap().put(&Selection::all(), &[0; 3]).unwrap_err();
    assert!(matches!(error, InspectError::Length { given: 12, .. }), "{error}");
    let board = job.open::<u32>("board").unwrap();
    board.put(&"[1, 2:4]".parse().unwrap(), &[8, 9]).unwrap();
    let row = board.get(&"[:, 1:5]".parse().unwrap(), At::Next).unwrap().values;
    assert_eq!(row, [0, 0, 0, 0, 0, 8, 9, 0]);
    assert_eq!(job.open::<f64>("dt").unwrap().put(&Selection::all(), &[3.0]).unwrap().map(|_| ()), Some(()));
    assert_eq!(job.open::<f64>("dt").unwrap().get(&Selection::all(), At::Now).unwrap().values, [3.0]);
    assert!(target.is_running());

    // An action's error is the program's.
    job.act("fail").unwrap();
    assert!(!target.wait());
}

/// A program that looks into a job, and is killed while it does.
pub(crate) fn play_client(part: &str) -> farside::Result<()> {
    let job = connect(&std::env::var(JOB).unwrap());
    let _pause = (part == "client pauses").then(|| job.pause_at(At::Next).unwrap());
    let _lock = (part == "client locks").then(|| job.lock("pairs").unwrap());
    let pin = |_| job.open_any("pattern").unwrap().pin(&"[4]".parse().unwrap(), At::Next).unwrap();
    // A view has three copies.
    let _pins: Vec<_> = (0..if part == "client pins" { 3 } else { 0 }).map(pin).collect();
    println!("ready");
    hold_still();
}

/// Starts a program that looks into a job, and waits until it holds what it takes.
pub(crate) fn start_client(part: &str, job: &Inspector) -> Child {
    let mut command = ended_with_us(std::env::current_exe().unwrap());
    command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::piped());
    command.env(PART, part).env(JOB, job.job().to_string());
    let mut client = command.spawn().unwrap();
    let mut out = std::io::BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert!(read > 0, "the client has ended");
    }
    client
}

/// Changes a job whose pause has ended with the client that has made it.
fn change_behind_a_killed_client() {
    let (mut target, job) = Target::inspected("steered", 2);
    let seen = job.open::<f64>("seen").unwrap();
    newest(&seen);
    let mut client = start_client("client pauses", &job);
    let error = job.set("dt", 1.0).unwrap_err();
    assert!(matches!(error, InspectError::Refused { refused: Refused::Held { .. }, .. }), "{error}");
    client.kill().unwrap();
    client.wait().unwrap();
    newest(&seen);
    job.set("dt", 1.0).unwrap();
    assert!(target.is_running());
}

#[test]
fn a_client_that_is_killed_pauses_no_longer() {
    change_behind_a_killed_client();
}

/// These need a machine that is not busy.
mod timing {
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// The end of its connection is noticed, not that of its calls after 40 s.
    #[test]
    fn the_pause_of_a_client_that_is_killed_ends_soon() {
        let begun = Instant::now();
        change_behind_a_killed_client();
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    /// The job's own deadline does not run while it is paused, also not in a process that shows
    /// nothing and waits for one that stays.
    #[test]
    fn a_pause_is_longer_than_the_deadline_of_the_job() {
        let brief = [("FARSIDE_TIMEOUT_S", "1")];
        let mut targets = [Target::start("steered", &brief), Target::start("shy", &brief)];
        let jobs = targets.each_mut().map(|target| target.inspect(2));
        let paused = jobs.each_ref().map(|job| job.pause_at(At::Next).unwrap());
        let seen = jobs[0].open::<f64>("seen").unwrap();
        thread::sleep(Duration::from_secs(3));
        assert_eq!(seen.get(&Selection::all(), At::Now).unwrap().step, paused[0].step(), "the pause is kept");
        for paused in &paused {
            let step = paused.step().unwrap();
            assert_eq!(paused.go_to_next().unwrap(), Some(step + 1));
        }
        drop(paused);
        newest(&seen);
        jobs[1].open::<u64>("steps").unwrap().get(&Selection::all(), At::Next).unwrap();
        assert!(targets.iter_mut().all(Target::is_running));
    }
}

/// Where no worker publishes steps, none would stay: the reader is refused.
#[test]
fn a_job_without_steps_is_not_paused() {
    let (mut target, job) = Target::inspected("probes", 2);
    for at in [At::Now, At::Next, At::Step(5)] {
        let error = job.pause_at(at).unwrap_err();
        assert!(matches!(error, InspectError::NoSteps { .. }), "{error}");
        assert!(error.to_string().contains("publish a view at each step"), "{error}");
    }
    // Nothing is left of the attempt.
    assert_eq!(job.is_paused().unwrap(), None);
    assert!(target.is_running());
}

/// A worker that does not come to the step of a pause is named, and the others go on.
#[test]
fn a_worker_that_does_not_come_to_a_pause_is_named() {
    let (mut target, job) = Target::inspected("stuck", 2);
    let step = |worker: usize| {
        let list = job.list().unwrap();
        list.iter().find(|area| area.name == "steps").and_then(|area| area.parts.get(worker)?.step)
    };
    wait_until("both publish", || step(1) == Some(STUCK_AT) && step(0) > Some(STUCK_AT));
    // On a busy machine, worker 0 may be late, too, or its process may answer too late.
    let (error, wanted) = wait_for("worker 1 is named", || {
        let error = job.deadline(Duration::from_secs(1)).pause_at(At::Next).unwrap_err();
        let InspectError::NotHeld { late, .. } = &error else { return None };
        let [Late { worker: 1, process: 1, at: Some(STUCK_AT), wanted }] = late[..] else { return None };
        Some((error, wanted))
    });
    assert!(wanted > STUCK_AT + 1, "{error}");
    assert!(error.to_string().contains("worker 1 of process 1 was at step 20 and did not come to "), "{error}");
    let now = step(0);
    wait_until("worker 0 goes on", || step(0) != now && job.is_paused().unwrap().is_none());
    assert!(target.is_running());
}
