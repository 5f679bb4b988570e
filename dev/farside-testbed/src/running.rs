//! A running command, with a name, a deadline and its output.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Failure;

/// Interval at which a waiting thread checks whether a process has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Time limit for the output after the end of a process: a process that it left running may hold
/// the pipe open.
const DRAIN: Duration = Duration::from_secs(5);

/// The use of the lines that a process prints, apart from being recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Echo {
    /// Nothing more; a failure shows the last ones.
    Quiet,
    /// Each line is printed, after this prefix.
    Prefixed(String),
}

/// A started command. Dropping it kills the process.
#[derive(Debug)]
pub struct Running {
    step: String,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

/// Starts the program `"$@"` unless the parent, whose number is the first word, has ended. The
/// kernel has already been asked to kill this process with its parent; the check covers a parent
/// that ended before that.
const UNLESS_LATE: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// Builds a command for `program` that the kernel kills when the thread that starts it ends, even
/// if that thread is killed. (If the thread ends before the program begins, the program may run
/// until the whole process ends.)
pub fn ended_with_us(program: impl AsRef<OsStr>) -> Command {
    let [first, others @ ..] = ending_with_us();
    let mut command = Command::new(first);
    command.args(others).arg(program);
    command
}

/// The words before a program that make it end with the thread that starts it (see
/// [`ended_with_us`]).
pub fn ending_with_us() -> [String; 8] {
    let id = std::process::id().to_string();
    ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", UNLESS_LATE, &id].map(str::to_owned)
}

/// Runs a command to its end and returns its output.
///
/// # Errors
/// The command cannot be started, ends with a status other than 0, or does not end within `limit`.
/// The failure shows the end of its output.
pub fn run(step: &str, command: &mut Command, limit: Duration) -> Result<String, Failure> {
    Running::start(step, command, Echo::Quiet)?.finish(Instant::now() + limit)
}

impl Running {
    /// Starts a command without standard input. Its standard output and standard error are recorded
    /// together.
    ///
    /// # Errors
    /// The program is missing, or the system lacks resources for it.
    pub fn start(step: &str, command: &mut Command, echo: Echo) -> Result<Self, Failure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| Failure::new(step, format!("{program} cannot be started: {error}"));
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let child = command.spawn();
        // The command holds our ends of the pipe; without this the reader would never see
        // end-of-file.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.map_err(failed)?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reader = thread::spawn(move || read_lines(reader, &echo, &kept));
        Ok(Self { step: step.to_owned(), child, lines, reader: Some(reader) })
    }

    /// The exit status of the process; `None` while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The output so far.
    pub fn printed(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Creates a failure of this step that shows the end of its output.
    pub fn failure(&self, cause: impl std::fmt::Display) -> Failure {
        Failure::new(&self.step, cause).with_log(&self.printed())
    }

    /// Waits for the process to end, with any status.
    ///
    /// # Errors
    /// The process still runs at the deadline; it is then killed.
    pub fn wait(&mut self, deadline: Instant) -> Result<ExitStatus, Failure> {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.status() {
                break status;
            }
            if Instant::now() >= deadline {
                self.kill();
                return Err(self.failure(format!("not done after {:.1} s: killed", begun.elapsed().as_secs_f64())));
            }
            thread::sleep(LOOK_AGAIN);
        };
        self.drain();
        Ok(status)
    }

    /// Waits for the process to succeed and returns its output.
    ///
    /// # Errors
    /// The process still runs at the deadline and is killed, or ends with a status other than 0.
    pub fn finish(mut self, deadline: Instant) -> Result<String, Failure> {
        let status = self.wait(deadline)?;
        if status.success() { Ok(self.printed()) } else { Err(self.failure(status)) }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        // The calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.drain();
    }

    fn drain(&mut self) {
        let until = Instant::now() + DRAIN;
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        self.reader = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status().is_none() {
            self.kill();
        }
    }
}

/// Records the lines of a pipe until its end.
fn read_lines(pipe: PipeReader, echo: &Echo, kept: &Mutex<Vec<String>>) {
    let mut pipe = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while pipe.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        if let Echo::Prefixed(prefix) = echo {
            println!("{prefix}{line}");
        }
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{deadline, limit, soon, wait_until};

    fn shell(script: &str) -> Command {
        let mut command = ended_with_us("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn both_outputs_are_returned() {
        assert_eq!(run("talk", &mut shell("echo out; echo err >&2"), limit()).unwrap(), "out\nerr");
    }

    #[test]
    fn failures_name_the_step_and_show_its_output() {
        let text = run("break", &mut shell("echo the reason; exit 3"), limit()).unwrap_err().to_string();
        assert!(text.starts_with("break: exit status: 3") && text.contains("| the reason"), "{text}");
        let text = run("absent", &mut Command::new("no-such-program"), limit()).unwrap_err().to_string();
        assert!(text.contains("no-such-program cannot be started"), "{text}");
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed() {
        let running = Running::start("sleep", &mut shell("echo begun; exec sleep 600"), Echo::Quiet).unwrap();
        wait_until("the command prints", || running.printed() == "begun");
        let text = running.finish(soon()).unwrap_err().to_string();
        assert!(text.contains("not done after ") && text.contains("| begun"), "{text}");
    }

    #[test]
    fn a_pipe_that_is_held_open_does_not_hold_up() {
        assert_eq!(run("leave", &mut shell("sleep 3 & echo left"), limit()).unwrap(), "left");
    }

    #[test]
    fn processes_end_with_the_thread_that_started_them() {
        let start = move || {
            let running = Running::start("orphan", &mut shell("echo begun; exec sleep 600"), Echo::Quiet).unwrap();
            wait_until("the command prints", || running.printed() == "begun");
            running
        };
        let mut running = thread::spawn(start).join().unwrap();
        assert!(!running.wait(deadline()).unwrap().success());
    }

    #[test]
    fn a_program_does_not_begin_when_its_parent_has_ended() {
        let mut words = ending_with_us();
        words[7] = "0".to_owned();
        let mut command = Command::new(&words[0]);
        let failure = run("late", command.args(&words[1..]).args(["echo", "begun"]), limit()).unwrap_err();
        assert!(!failure.to_string().contains("begun"), "{failure}");
    }
}
