//! Jobs that are expected to fail, and what their processes say for themselves.
//!
//! The verdict on a job is its first failure. How those fared that went on after it, they write down in a note each.

use std::path::PathBuf;
use std::process::exit;
use std::sync::mpsc;
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, Job, ProcessEnd, Result};

/// The longest that anything here takes on a machine that is very busy.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The error of type `E` that a result holds: that of one of the library's modules.
pub(crate) fn room<T, E: std::error::Error + 'static>(result: &Result<T>) -> Option<&E> {
    result.as_ref().err()?.room_error()
}

/// Arguments of this test binary that lead to one test.
pub(crate) const fn only(test: &str) -> [&str; 5] {
    [test, "--exact", "--nocapture", "--test-threads=1", "--include-ignored"]
}

pub(crate) fn is_launched() -> bool {
    std::env::var_os("FARSIDE_LAUNCHER").is_some()
}

/// Runs a job whose processes come to this place by this test.
pub(crate) fn verdict(test: &str, job: Job, body: impl Fn(&Worker) -> Result<()> + Send + Sync) -> Result<()> {
    let verdict = within_time(|| job.entry(only(test)).quiet_stdout().run(body));
    if is_launched() {
        exit(verdict.is_err().into());
    }
    verdict
}

/// Calls the function, and ends all if that takes too long.
pub(crate) fn within_time<T>(function: impl FnOnce() -> T) -> T {
    let (done, watch) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if watch.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a job hangs");
            exit(102);
        }
    });
    let value = function();
    drop(done);
    value
}

pub(crate) fn failure(verdict: Result<()>) -> (u32, ProcessEnd) {
    match verdict {
        Err(Error::ProcessFailed { process, how }) => (process.number(), how),
        other => panic!("no process failed: {other:?}"),
    }
}

fn note_path(launcher: u32, test: &str, author: u32) -> PathBuf {
    let test = test.replace("::", "-");
    std::env::temp_dir().join(format!("farside-note-{launcher}-{test}-{author}"))
}

fn launcher() -> u32 {
    std::env::var("FARSIDE_LAUNCHER").unwrap().parse().unwrap()
}

/// Leaves a note in a process of a job. Its authors are numbered as the test likes.
pub(crate) fn write_note(test: &str, author: u32, text: &str) {
    std::fs::write(note_path(launcher(), test, author), text).unwrap();
}

/// Whether somebody in the same job has left a note.
pub(crate) fn has_note(test: &str, author: u32) -> bool {
    note_path(launcher(), test, author).exists()
}

/// What so many authors wrote, taken away.
pub(crate) fn take_notes(launcher: u32, test: &str, authors: u32) -> Vec<Option<String>> {
    let take = |author| {
        let path = note_path(launcher, test, author);
        let text = std::fs::read_to_string(&path).ok()?;
        std::fs::remove_file(path).unwrap();
        Some(text)
    };
    (0..authors).map(take).collect()
}
