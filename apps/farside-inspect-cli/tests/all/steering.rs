//! `farside inspect put`, `act`, `ask`, `pause`, `step`, `resume`, `lock` and `unlock`.

use farside_testbed::{Echo, Running, deadline, wait_until};
use serde_json::json;

use crate::inspect::{INSPECT, Job, STEERED, object};

fn steered() -> Job {
    let mut job = Job::start_as(STEERED);
    job.wait();
    job
}

impl Job {
    /// Checks that a question is refused with a status and with words.
    #[track_caller]
    fn refuses(&self, words: &[&str], status: i32, said: &[&str]) {
        INSPECT.assert_refused(&[&[words[0], "--job", &self.name], &words[1..]].concat(), status, said);
    }

    /// Starts a command that holds something, and waits for its first line.
    fn start_holding(&self, words: &[&str]) -> Running {
        let mut command = INSPECT.command(&[&[words[0], "--job", &self.name, "--timeout", "60"], &words[1..]].concat());
        let mut holder = Running::start(words[0], &mut command, Echo::Quiet).unwrap();
        wait_until("the holder says something", || {
            assert!(holder.status().is_none() || !holder.printed().is_empty(), "{}", holder.failure("it says nothing"));
            !holder.printed().is_empty()
        });
        holder
    }

    /// The rows of an area.
    fn rows(&self, area: &str) -> String {
        self.inspect("get", &[area]).split_once('\n').unwrap().1.trim_end().into()
    }
}

/// The step behind some words.
#[track_caller]
fn step(said: &str, before: &str) -> u64 {
    said.trim_end().strip_prefix(before).and_then(|step| step.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn elements_and_parameters_are_put() {
    let job = steered();
    let (before, after) = (job.inspect("put", &["dt", "2.5"]), job.inspect("put", &["board[1, 1:3]", "8", "9"]));
    assert!(step(&before, "done after step ") <= step(&after, "done after step "));
    assert_eq!((job.rows("dt"), job.rows("board")), ("2.5".into(), "0 0 0 0\n0 8 9 0".into()));
    // Memory of one worker is written at once, that of several workers while they stay.
    job.inspect("put", &["memory[1]", "1", "2", "3", "4"]);
    step(&job.inspect("put", &["memory[:, 3]", "7"]), "done after step ");
    assert_eq!(job.rows("memory"), "0 0 0 7\n1 2 3 7");
    let path = std::env::temp_dir().join(format!("farside-{}.raw", job.name));
    std::fs::write(&path, [5_u32.to_ne_bytes(), 6_u32.to_ne_bytes()].concat()).unwrap();
    job.inspect("put", &["memory[0, :2]", "--raw", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(job.rows("memory[0]"), "5 6 0 7");

    job.refuses(&["put", "board[0]", "1", "2"], 2, &["2 values", "4 elements"]);
    job.refuses(&["put", "board[0]", "-1"], 2, &["\"-1\"", "u32"]);
    job.refuses(&["put", "heat", "1"], 1, &["\"heat\" cannot be written"]);
    job.refuses(&["put", "dt", "11"], 1, &["outside the bounds", "0 to 10"]);
    job.refuses(&["put", "cold", "1"], 1, &["cold"]);
}

#[test]
fn actions_are_run_and_probes_are_asked() {
    let job = steered();
    step(&job.inspect("act", &["count"]), "done after step ");
    step(&job.inspect("act", &["count"]), "done after step ");
    // The second may still run.
    wait_until("both actions have run", || job.rows("acted") == "2 2");
    job.refuses(&["act", "cold"], 1, &["nothing was changed", "an action \"cold\""]);
    job.refuses(&["act", "dt"], 1, &["\"dt\" is not an action"]);

    let answers = job.inspect("ask", &["echo", "how?"]);
    let answers: Vec<_> = answers.lines().map(|line| line.split_once(' ').unwrap()).collect();
    for (worker, (number, answer)) in answers.iter().enumerate() {
        assert_eq!((*number, object(answer)), (&*worker.to_string(), json!({ "said": "how?", "by": worker })));
    }
    assert_eq!(answers.len(), 2);
    let answer = job.inspect("ask", &["echo", "--worker", "1"]);
    assert_eq!(object(answer.strip_prefix("1 ").unwrap()), json!({ "said": "", "by": 1 }));
    job.refuses(&["ask", "echo", "--worker", "9"], 1, &["a probe \"echo\" at the worker"]);
    job.refuses(&["ask", "dt"], 1, &["\"dt\" is not a probe"]);
}

#[test]
fn a_job_pauses_steps_and_goes_on() {
    let job = steered();
    job.refuses(&["step"], 1, &["the job is not paused"]);
    job.refuses(&["resume"], 1, &["the job is not paused"]);
    let pause = job.start_holding(&["pause"]);
    let first = step(&pause.printed(), "paused after step ");
    job.refuses(&["pause"], 1, &["another reader holds"]);
    for more in 1..=3 {
        assert_eq!(step(&job.inspect("step", &[]), "paused after step "), first + more);
    }
    assert_eq!(job.inspect("resume", &[]), "goes on\n");
    let said = pause.finish(deadline()).unwrap();
    assert_eq!(said, format!("paused after step {first}\ngoes on"));
    let pause = job.start_holding(&["pause", "--at", &(first + 1_000).to_string()]);
    assert!(step(&pause.printed(), "paused after step ") >= first + 1_000);
}

#[test]
fn memory_is_locked_and_unlocked() {
    let job = steered();
    job.refuses(&["unlock", "memory"], 1, &["no reader has locked \"memory\""]);
    job.refuses(&["lock", "board"], 1, &["\"board\" is not exposed memory"]);
    job.refuses(&["lock", "cold"], 1, &["cold"]);
    wait_until("a lock is ended before it ends by itself", || {
        let lock = job.start_holding(&["lock", "memory"]);
        assert!(lock.printed().starts_with("locked"), "{}", lock.printed());
        let unlocked = INSPECT.output(&["unlock", "memory", "--job", &job.name, "--timeout", "60"]);
        assert_eq!(lock.finish(deadline()).unwrap(), "locked\nunlocked");
        // On a busy machine the lock may have ended by itself.
        unlocked.status.success() && unlocked.stdout == b"unlocked\n"
    });
    job.inspect("put", &["memory[0]", "1"]);
    assert_eq!(job.rows("memory[0]"), "1 1 1 1");
}
