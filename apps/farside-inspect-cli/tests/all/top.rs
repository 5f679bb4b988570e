//! `farside top` and `farside inspect trace`, with a job whose waits are known.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use farside::{Losses, Reply, Worker, WorkerId};
use farside_inspect::Expose;
use farside_testbed::{CommandLine, ended_with_us, hold_still, limit, wait_until};
use farside_viewer::{InspectError, Inspector, JobInfo, cycles};
use serde_json::{Value, json};

const INSPECT: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside-inspect"));

/// The variable that makes this test program play the job.
const PART: &str = "FARSIDE_CLI_TOP_TEST_JOB";
/// The variable with the file that lets the workers of a stuck job go on.
const GATE: &str = "FARSIDE_CLI_TOP_TEST_GATE";
const FILE: &str = "apps/farside-inspect-cli/tests/all/top.rs";

/// A job whose workers wait for ever.
const STUCK: &str = "stuck";
/// The same, without a door.
const SILENT: &str = "silent";
/// A job whose workers wait for each other again and again.
const BUSY: &str = "busy";
/// A job whose workers measure what they do, and show it.
const MEASURING: &str = "measuring";

/// Plays the job, if its environment says so.
#[test]
fn job() {
    let Ok(part) = std::env::var(PART) else { return };
    let body: fn(&Worker) -> farside::Result<()> = match &*part {
        MEASURING => timing::measure_itself,
        BUSY => timing::wait_again_and_again,
        SILENT => get_stuck,
        _ => get_stuck_and_show_it,
    };
    farside::job().deadline(2 * limit()).run(body).unwrap();
}

fn get_stuck_and_show_it(me: &Worker) -> farside::Result<()> {
    me.open_door()?;
    get_stuck(me)
}

/// Lines of waits and calls.
const BARRIER: u32 = line!() + 12;
const CALL: u32 = BARRIER + 3;
const RESULT: u32 = CALL + 1;
const CIRCLE: u32 = RESULT + 4;

/// Workers 3 and 4 stand still, and keep others from going on.
fn get_stuck(me: &Worker) -> farside::Result<()> {
    // A call is known only if a reader came before it began.
    let gate = PathBuf::from(std::env::var_os(GATE).expect("a gate"));
    me.wait_while_serving(|| gate.exists())?;
    let team = me.split(u64::from(me.id().number() % 3), 0)?;
    match me.id().number() {
        0 => team.barrier(me),
        3 => hold_still(),
        1 => {
            let pending = me.call_return(WorkerId::new(4), (), |_, ()| hold_still())?;
            pending.wait()
        }
        4 => me.wait_while_serving(|| false),
        // Each waits for an answer of the other, which never comes.
        of => me.call_with_reply(WorkerId::new(7 - of), (), keep)?.wait(),
    }
}

/// Keeps a reply until the job ends: a reply that is dropped would be an answer.
fn keep(there: &Worker, (): (), reply: Reply<()>) {
    there.when_lost(move |_, _| {
        let _kept = &reply;
    });
}

struct Job {
    launcher: Child,
    name: String,
    gate: PathBuf,
}

impl Job {
    fn start(test: &str, part: &str, shape: &[&str]) -> Self {
        let name = format!("cli-top-{test}-{}", std::process::id());
        let mut command = ended_with_us(INSPECT.0);
        command.arg("run").args(shape).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "top::job", "--nocapture", "--quiet"]);
        let gate = std::env::temp_dir().join(format!("{name}-gate"));
        command.env(PART, part).env(GATE, &gate).env("FARSIDE_JOB", &name).stdout(Stdio::null());
        command.env("FARSIDE_TIMEOUT_S", limit().as_secs().to_string());
        Self { launcher: command.spawn().unwrap(), name, gate }
    }

    /// Starts a job of six workers, and waits until each is where it is kept.
    fn start_stuck(test: &str, part: &str) -> Self {
        let mut job = Self::start(test, part, &["-n", "3", "-t", "2"]);
        wait_until("the workers wait for each other", || {
            assert!(job.launcher.try_wait().unwrap().is_none(), "the job has ended");
            let jobs = farside_viewer::jobs().unwrap();
            let is_whole = |job: &JobInfo| job.processes.len() + job.by_launcher.len() == 3;
            if !jobs.iter().any(|found| found.id.name == job.name && is_whole(found)) {
                return false;
            }
            // On a busy machine a process may not answer in time.
            let workers = Inspector::connect(&*job.name).and_then(|job| job.workers()).unwrap_or_default();
            // A worker that has published its counters knows that it is watched.
            if workers.len() == 6 && workers.iter().all(|worker| worker.counters.is_some()) {
                std::fs::write(&job.gate, "").unwrap();
            }
            let waits = |worker: usize, line| workers[worker].wait.as_ref().is_some_and(|wait| wait.site.line == line);
            let is_called = workers.len() == 6 && workers[4].call.is_some();
            // A cycle has to last before it is one.
            is_called && waits(0, BARRIER) && waits(1, RESULT) && cycles(&workers, &workers) == [[2, 5]]
        });
        job
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        let _ = std::fs::remove_file(&self.gate);
    }
}

/// The share of a worker's time that it waited at a line.
fn share(worker: &Value, line: u32) -> f64 {
    let waits = worker["waits"].as_array().unwrap().iter().filter(|wait| wait["line"] == json!(line));
    waits.map(|wait| wait["share"].as_f64().unwrap()).sum()
}

#[test]
fn top_names_cause_worker_and_line() {
    let job = Job::start_stuck("top", STUCK);
    let printed = INSPECT.printed(&["top", &job.name, "--once", "--json", "--rate", "20"]);
    let top: Value = serde_json::from_str(&printed).unwrap();
    assert!(top["workers"][4]["calls"].as_f64() > Some(0.99), "{printed}");
    let workers = top["workers"].as_array().unwrap();
    let numbers: Vec<_> = workers.iter().map(|worker| worker["worker"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5], "{printed}");
    let is_at = |worker: usize, doing: &str, line: u32, whom: &str| {
        let wait = &workers[worker]["wait"];
        assert_eq!((&wait["for"], &wait["line"]), (&json!(whom), &json!(line)), "{printed}");
        let waits = workers[worker]["waits"].as_array().unwrap();
        let found = waits
            .iter()
            .any(|wait| (&wait["doing"], &wait["file"], &wait["line"]) == (&json!(doing), &json!(FILE), &json!(line)));
        assert!(found && share(&workers[worker], line) > 0.99, "worker {worker}, line {line}: {printed}");
    };
    is_at(0, "waiting at a barrier", BARRIER, "worker 3");
    is_at(1, "waiting for the result of a call", RESULT, "worker 4");
    is_at(2, "waiting for the result of a call", CIRCLE, "worker 5");
    is_at(5, "waiting for the result of a call", CIRCLE, "worker 2");
    assert_eq!(top["cycles"], json!([[2, 5]]), "{printed}");
    for worker in workers {
        let part = |name: &str| worker[name].as_f64().unwrap();
        let waits: f64 = worker["waits"].as_array().unwrap().iter().map(|wait| wait["share"].as_f64().unwrap()).sum();
        assert!((part("program") + part("calls") + waits - 1.0).abs() < 1e-6, "{printed}");
    }
    assert!(workers[3]["program"].as_f64() > Some(0.99), "{printed}");
    assert!(workers[1]["ring_bytes"].as_u64() > Some(0) && workers[1]["queued"].is_u64(), "{printed}");

    let text = INSPECT.printed(&["top", &job.name, "--once", "--rate", "20"]);
    let row = |number: usize| text.lines().nth(number).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row(1)[7..], ["stalls", "queued", "pending", "rings", "now"], "{text}");
    let worker = row(3);
    assert!(worker[8].parse::<u64>().is_ok() && worker[10] != "0", "{text}");
    assert!(text.contains("workers wait for each other: 2 -> 5 -> 2"), "{text}");
    assert!(text.contains(&format!("{FILE}:{CIRCLE}, for worker 5")), "{text}");
    INSPECT.assert_refused(&["top", "no such job"], 1, &["no such job", &job.name]);
    INSPECT.assert_refused(&["top", "--rate", "100"], 2, &["0.25 to 20"]);
}

/// The launcher answers for processes that show nothing and open no door.
#[test]
fn a_job_that_shows_nothing_is_seen_through_its_launcher() {
    let mut job = Job::start_stuck("silent", SILENT);
    let found = farside_viewer::jobs().unwrap().into_iter().find(|found| found.id.name == job.name).unwrap();
    assert_eq!((found.id.id, found.process_count, found.processes.len()), (job.launcher.id(), 3, 0));
    let one = found.by_launcher[1].clone();
    assert_eq!(one.process, 1);
    let program = std::fs::read_link(format!("/proc/{}/exe", one.system_process)).unwrap();
    assert_eq!(program, std::env::current_exe().unwrap());
    let printed = INSPECT.printed(&["jobs"]);
    assert!(printed.contains(&format!("{}  0 of 3 processes, 3 seen through their launcher", found.id)), "{printed}");
    assert_eq!(INSPECT.printed(&["list", "--job", &job.name]), "");

    let printed = INSPECT.printed(&["top", &job.name, "--once", "--json", "--rate", "20"]);
    let top: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(top["cycles"], json!([[2, 5]]), "{top}");
    assert!(share(&top["workers"][2], CIRCLE) > 0.99 && share(&top["workers"][0], BARRIER) > 0.99, "{top}");

    let inspector = Inspector::connect(&*job.name).unwrap();
    let signal = |name: &str| {
        let pid = one.system_process.to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    // On a busy machine another process may not answer in time, either.
    wait_until("the stopped process is named", || {
        let asked = inspector.deadline(std::time::Duration::from_millis(200)).workers();
        // Its threads may run for a moment more.
        matches!(asked, Err(InspectError::Refused { process: 1, .. } | InspectError::Silent { process: 1, .. }))
    });
    signal("-CONT");
    wait_until("all answer again", || inspector.workers().is_ok_and(|workers| workers.len() == 6));
    // One that is gone has no workers, and the job ends.
    signal("-KILL");
    wait_until("the job ends", || job.launcher.try_wait().unwrap().is_some());
    assert!(matches!(inspector.workers(), Err(InspectError::NoJob { .. })));
}

/// Where the lines are that this test expects.
#[test]
fn lines_are_as_expected() {
    let lines: Vec<&str> = include_str!("top.rs").lines().collect();
    let line = |number: u32| lines[number as usize - 1];
    assert!(line(BARRIER).contains("0 => team.barrier"));
    assert!(line(CALL).contains("call_return") && line(RESULT).contains("pending.wait()"));
    assert!(line(CIRCLE).contains("keep)?.wait()"));
    assert!(line(timing::BARRIER).contains("0 => team.barrier"));
    assert!(line(timing::CALL).contains("call_return") && line(timing::RESULT).contains("?.wait()?"));
}

mod browser {
    mod deep {
        use super::super::*;

        #[test]
        fn the_page_shows_who_waits_for_whom() {
            use farside_testbed::browser::{BED, Browser};

            if farside_testbed::is_left_out(BED) {
                return;
            }
            let job = Job::start_stuck("page", STUCK);
            let page = farside_viewer::page::Page::start("127.0.0.1:0".parse().unwrap(), &job.name, &[]).unwrap();
            let browser = Browser::start(1100, 1000);
            browser.open(&page.url());
            browser.wait_for("document.querySelector('#job').value");
            browser.press(&["t"]);
            browser.wait_for("document.querySelectorAll('.workers .bar').length == 6");
            browser.wait_for(
                "document.querySelector('.legend').innerText.includes('workers wait for each other: 2 → 5 → 2')",
            );
            browser.wait_for(&format!(
                "document.querySelector('.legend').innerText.includes('waiting at a barrier at {FILE}:{BARRIER}')"
            ));
            // Worker 0 waits for most of the time.
            browser.wait_for(
                "[...document.querySelectorAll('.workers .bar')[0].children].some((part) =>
                   part.title.startsWith('waiting at a barrier') && parseFloat(part.style.width) > 50)",
            );
            // What workers have counted stands below what they do, unless they stand still.
            browser.wait_for(
                "[...document.querySelectorAll('.workers .counts')].filter((counts) =>
                   /^\\d+ calls\\/s · \\d+ \\S+\\/s · \\d+ run\\/s · \\d+ stalls · \\d+ queued · \\d+ pending · rings [1-9]\\d* \\S+$/
                     .test(counts.innerText)).length == 4",
            );
            browser.picture("time");
            browser.press(&["t"]);
            browser.wait_for("!document.querySelector('.workers')");
            assert_eq!(browser.complaints(), Vec::<String>::new());
        }
    }
}

mod timing {
    use std::cell::Cell;
    use std::thread;
    use std::time::{Duration, Instant};

    use farside_testbed::wait_for;
    use farside_viewer::Occurrence;

    use super::*;

    /// The time for which workers sleep for whom others wait.
    const NAP: Duration = Duration::from_millis(200);
    /// The times that a worker shows.
    const SPENT: [&str; 3] = ["program", "calls", "waits"];

    /// Lines of waits and calls.
    pub(super) const BARRIER: u32 = line!() + 10;
    pub(super) const CALL: u32 = BARRIER + 5;
    pub(super) const RESULT: u32 = CALL;

    /// Worker 0 waits for worker 2 at a barrier, and worker 1 for worker 3 to run a call.
    pub(super) fn wait_again_and_again(me: &Worker) -> farside::Result<()> {
        me.open_door()?;
        let team = me.split(u64::from(me.id().number() % 2), 0)?;
        loop {
            match me.id().number() {
                0 => team.barrier(me)?,
                2 => {
                    thread::sleep(NAP);
                    team.barrier(me)?;
                }
                1 => me.call_return(WorkerId::new(3), (), |_, ()| thread::sleep(NAP))?.wait()?,
                _ => me.wait_while_serving(|| false)?,
            }
        }
    }

    /// Worker 0 sleeps, and runs a call of worker 1 while it waits for it. Each worker shows the
    /// sums of its own times in seconds.
    pub(super) fn measure_itself(me: &Worker) -> farside::Result<()> {
        let is_first = me.is_first();
        let nap = Duration::from_millis(15);
        let shown = SPENT.map(|what| me.gauge(&format!("{what} {}", me.id().number())));
        let [program, calls, waits] = shown;
        let (program, calls, waits) = (program?, calls?, waits?);
        let mut sums = [Duration::ZERO; 3];
        loop {
            let begun = Instant::now();
            thread::sleep(nap);
            let (slept, in_calls) = (Instant::now(), IN_CALLS.get());
            if !is_first {
                let run = |_: &Worker, nap_ms: u64| {
                    let begun = Instant::now();
                    thread::sleep(Duration::from_millis(nap_ms));
                    IN_CALLS.set(IN_CALLS.get() + begun.elapsed());
                };
                me.call_return(WorkerId::new(0), 2 * nap.as_millis() as u64, run)?.wait()?;
            }
            me.barrier()?;
            let ran = IN_CALLS.get() - in_calls;
            sums[0] += slept - begun;
            sums[1] += ran;
            sums[2] += slept.elapsed().saturating_sub(ran);
            [&program, &calls, &waits].iter().zip(sums).for_each(|(gauge, sum)| gauge.set(sum.as_secs_f64()));
        }
    }

    thread_local! {
        /// The time that this worker has run calls.
        static IN_CALLS: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// A program's own measurements agree with `top` and with a trace.
    #[test]
    fn shares_agree_with_the_times_of_the_program() {
        let mut job = Job::start("measuring", MEASURING, &["-n", "2"]);
        let inspector = wait_for("the job shows its times", || {
            assert!(job.launcher.try_wait().unwrap().is_none(), "the job has ended");
            Inspector::connect(&*job.name).ok().filter(|job| job.open_any("waits 1").is_ok())
        });
        let own = |worker: usize| {
            SPENT.map(|what| {
                let gauge = inspector.open::<f64>(&format!("{what} {worker}")).unwrap();
                gauge.get(&farside_viewer::Selection::all(), farside_viewer::At::Now).unwrap().values[0]
            })
        };
        // A gauge is NaN until it is set.
        wait_until("the workers measure", || [own(0), own(1)].iter().flatten().all(|sum| !sum.is_nan()));
        // What is seen of both workers, and which of their sums it must equal.
        let agree = |parts: &[(&str, [f64; 3])], look: &dyn Fn() -> [Vec<f64>; 2]| {
            let mut told = String::new();
            // A machine that is busy may stop a worker at one end of the interval for long.
            for _ in 0..5 {
                let before = [own(0), own(1)];
                let seen = look();
                let after = [own(0), own(1)];
                let mut do_agree = true;
                for (number, seen) in seen.into_iter().enumerate() {
                    let spent: Vec<f64> =
                        after[number].iter().zip(before[number]).map(|(now, then)| now - then).collect();
                    let all: f64 = spent.iter().sum();
                    for ((what, weights), seen) in parts.iter().zip(seen) {
                        let measured =
                            weights.iter().zip(&spent).map(|(weight, spent)| weight * spent / all).sum::<f64>();
                        // Also false for NaN.
                        do_agree &= (seen - measured).abs() <= 0.05;
                        told += &format!("worker {number} {what}: {seen:.4} seen, {measured:.4} measured\n");
                    }
                }
                if do_agree {
                    print!("{told}");
                    return;
                }
            }
            panic!("the shares differ by more than 5 %:\n{told}");
        };
        let [program, calls, waits] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        agree(&[("program", program), ("calls", calls), ("waits", waits)], &|| {
            let printed = INSPECT.printed(&["top", &job.name, "--once", "--json", "--rate", "0.25"]);
            let top: Value = serde_json::from_str(&printed).unwrap();
            [0, 1].map(|number| {
                let worker = &top["workers"][number];
                let waits =
                    worker["waits"].as_array().unwrap().iter().map(|wait| wait["share"].as_f64().unwrap()).sum();
                vec![worker["program"].as_f64().unwrap(), worker["calls"].as_f64().unwrap(), waits]
            })
        });
        // In a trace, a wait has the calls that ran in it.
        agree(&[("traced calls", calls), ("traced waits", [0.0, 1.0, 1.0])], &|| {
            let trace = inspector.trace(Duration::from_secs(4)).unwrap();
            let time = trace.end - trace.begin;
            [0, 1].map(|number| {
                let worker = trace.workers.iter().find(|of| of.worker == number).unwrap();
                let is_of: [fn(&Occurrence) -> bool; 2] =
                    [|what| matches!(what, Occurrence::Ran { .. }), |what| matches!(what, Occurrence::Waited { .. })];
                let share = |is_of: fn(&Occurrence) -> bool| {
                    let of_kind = worker.events.iter().filter(|event| is_of(&event.what));
                    of_kind.map(|event| event.time).sum::<Duration>().div_duration_f64(time)
                };
                is_of.map(share).to_vec()
            })
        });
    }

    #[test]
    fn a_trace_pairs_calls_and_names_lines() {
        let job = Job::start("trace", BUSY, &["-n", "2", "-t", "2"]);
        wait_until("the workers wait for each other", || {
            let workers = Inspector::connect(&*job.name).and_then(|job| job.workers()).unwrap_or_default();
            let waits = |worker: usize, line| workers[worker].wait.as_ref().is_some_and(|wait| wait.site.line == line);
            workers.len() == 4 && waits(0, BARRIER) && waits(1, RESULT)
        });
        let path = std::env::temp_dir().join(format!("farside-{}.json", job.name));
        let trace = ["trace", "1.5", "--job", &job.name, "--timeout", "60"];
        let printed = INSPECT.printed(&[&trace[..], &["--json", "--out", path.to_str().unwrap()]].concat());
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let summary: Value = serde_json::from_str(&printed).unwrap();
        let of_line = |kind: &str, line: u32| {
            let found = summary[kind].as_array().unwrap().iter().find(|at| at["site"]["line"] == json!(line));
            found.unwrap_or_else(|| panic!("nothing at line {line}: {printed}")).clone()
        };
        let call = of_line("calls", CALL);
        assert_eq!(call["site"]["file"], json!(FILE));
        let (ran, seconds) = (call["ran"].as_f64().unwrap(), call["seconds"].as_f64().unwrap());
        assert!(ran >= 1.0 && seconds >= ran * NAP.as_secs_f64() * 0.999, "{printed}");
        assert!(call["delay"].is_number(), "the calls are paired: {printed}");
        for (line, whom) in [(BARRIER, "worker 2"), (RESULT, "worker 3")] {
            let wait = of_line("waits", line);
            assert_eq!(wait["whom"][0]["for"], json!(whom), "{printed}");
            assert!(wait["longest"].as_f64().unwrap() > NAP.as_secs_f64() / 2.0, "{printed}");
        }

        let chrome: Value = serde_json::from_slice(&file).unwrap();
        let events = chrome["traceEvents"].as_array().unwrap();
        let flows = |phase: &str| events.iter().filter(|event| event["ph"] == json!(phase)).count();
        assert!(flows("s") >= 1 && flows("f") >= 1, "each call leads to its run");
        for run in events.iter().filter(|event| event["ph"] == json!("f")) {
            let is_its = |event: &&Value| event["ph"] == json!("s") && event["id"] == run["id"];
            let call = events.iter().find(is_its).expect("a flow begins at a call");
            // Clocks of processes agree within microseconds.
            assert!(run["ts"].as_f64().unwrap() + 100.0 > call["ts"].as_f64().unwrap());
        }
        let at = format!("{FILE}:{BARRIER}");
        assert!(events.iter().any(|event| event["cat"] == json!("collective") && event["args"]["at"] == json!(at)));
        INSPECT.assert_refused(&["trace", "0"], 2, &["0.001 to 3600"]);
    }
}
