//! Jobs that are expected to fail, and the notes of their processes.
//!
//! The verdict on a job is its first failure. A process that goes on after it writes a note about
//! what it saw.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::exit;
use std::sync::mpsc;

use farside::prelude::*;
use farside::{Error, GlobalAddress, GlobalPtr, Job, LaunchError, ProcessEnd, Result};
use farside_testbed::{limit, scaled, wait_for, wait_until};

/// Returns some of the numbers below `count`, evenly spread: every tenth at depth 1, all at depth
/// 10. For the moments of an accident, or the cases of a table.
pub(crate) fn spread(count: u64) -> impl Iterator<Item = u64> + Clone {
    let some = scaled(count.div_ceil(10)).min(count);
    (0..some).map(move |index| index * count / some)
}

/// The error of type `E` that a result holds: that of one of the library's modules.
pub(crate) fn room<T, E: std::error::Error + 'static>(result: &Result<T>) -> Option<&E> {
    result.as_ref().err()?.room_error()
}

/// Returns the arguments of this test program that select one test.
pub(crate) const fn only(test: &str) -> [&str; 5] {
    [test, "--exact", "--nocapture", "--test-threads=1", "--include-ignored"]
}

/// Returns whether a job over this fabric must be left out because the machine has no libfabric.
pub(crate) fn is_over_missing_libfabric(fabric: &str) -> bool {
    fabric.starts_with("ofi") && farside_testbed::is_left_out("fabric")
}

pub(crate) fn is_launched() -> bool {
    std::env::var_os("FARSIDE_LAUNCHER").is_some()
}

/// Runs a job whose processes reach this call by running the test of this name.
pub(crate) fn verdict(test: &str, job: Job, body: impl Fn(&Worker) -> Result<()> + Send + Sync) -> Result<()> {
    let verdict = within_time(|| job.entry(only(test)).quiet_stdout().run(body));
    if is_launched() {
        exit(verdict.is_err().into());
    }
    verdict
}

/// Calls the function. Ends this process if that takes longer than [`limit`].
pub(crate) fn within_time<T>(function: impl FnOnce() -> T) -> T {
    let (done, watch) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if watch.recv_timeout(limit()) == Err(mpsc::RecvTimeoutError::Timeout) {
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
        Err(Error::Launch(LaunchError::ProcessFailed { process, how })) => (process.number(), how),
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

/// Leaves a note. A test numbers the authors of its notes as it likes.
pub(crate) fn write_note(test: &str, author: u32, text: &str) {
    write_note_of(launcher(), test, author, text);
}

/// Leaves a note for the processes of a launcher's job.
pub(crate) fn write_note_of(launcher: u32, test: &str, author: u32, text: &str) {
    // Written under another name, so that the note is whole once it is there.
    let (path, draft) = (note_path(launcher, test, author), note_path(launcher, &format!("draft-{test}"), author));
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, path).unwrap();
}

/// Returns whether a process of the same job has left a note.
pub(crate) fn has_note(test: &str, author: u32) -> bool {
    note_path(launcher(), test, author).exists()
}

/// Makes no progress until another worker calls for attention by a note, without the library.
pub(crate) fn pay_no_attention(test: &str) {
    wait_until("another worker calls for attention", || has_note(test, 0));
}

/// Ends [`pay_no_attention`] in the other processes of the same job.
pub(crate) fn call_for_attention(test: &str) {
    write_note(test, 0, "now");
}

/// Sets a way up. Tries again if the job's deadline is too short for it.
pub(crate) fn set_up(me: &Worker, to: WorkerId) -> Result<()> {
    let end = me.now() + limit();
    loop {
        match me.setup(to) {
            Err(Error::Deadline { .. }) => assert!(me.now() < end, "no way to {to} comes about"),
            other => return other,
        }
    }
}

/// Waits until `processes` processes have come here. Takes no call, so it opens no ring.
pub(crate) fn meet(me: &Worker, number: u32, processes: u64) -> Result<()> {
    let count: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(0), 8 * number).cast();
    count.fetch_add(me, 1)?;
    let end = me.now() + limit();
    while count.load(me)? < processes {
        assert!(me.now() < end, "not all come to meeting {number}");
        me.progress()?;
    }
    Ok(())
}

/// Says in a note that this worker begins to wait, and which thread it is.
pub(crate) fn announce_wait(test: &str, author: u32) {
    let thread = std::fs::read_link("/proc/thread-self").expect("the system names the thread");
    write_note(test, author, thread.to_str().expect("these are numbers"));
}

/// Waits until another worker of the same job, which has [announced](announce_wait) its wait, is
/// asleep in it.
pub(crate) fn see_it_wait(test: &str, author: u32) {
    let thread =
        wait_for("a worker begins to wait", || std::fs::read_to_string(note_path(launcher(), test, author)).ok());
    wait_until("the worker sleeps in its wait", || {
        let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
    });
}

/// Takes the notes of all authors away, and returns what they wrote.
pub(crate) fn take_notes(launcher: u32, test: &str, authors: u32) -> Vec<Option<String>> {
    let take = |author| {
        let path = note_path(launcher, test, author);
        let text = std::fs::read_to_string(&path).ok()?;
        std::fs::remove_file(path).unwrap();
        Some(text)
    };
    (0..authors).map(take).collect()
}

/// Returns the name of this process's socket without its last part, which begins with the process's
/// number.
pub(crate) fn socket_name_of_job() -> Option<String> {
    Some(socket_name()?.rsplit_once('/').expect("its last part is of the process").0.to_owned())
}

/// Returns the name of this process's socket, with the mark of a name that is no path. `None` if no
/// memory is shared.
pub(crate) fn socket_name() -> Option<String> {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let own: HashSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let mut named = sockets.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(6);
        let (inode, name) = (fields.next()?, fields.next()?);
        (own.contains(&format!("socket:[{inode}]")) && name.starts_with("@farside/")).then_some(name)
    });
    named.next().map(str::to_owned)
}
