//! Groups of processes that are launched separately and join into one job.
//!
//! Each group is started as a script would start it. Each process receives its rank, the size of
//! its group, the address where all groups meet, and a secret. Nothing else connects the groups.
//! The processes run this program with the arguments of a measuring process.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use farside_sys::net::{Interest, wait_ready};
use farside_sys::process::{Spawned, random_bytes, spawn};

use crate::results::Results;
use crate::{BenchError, fabric};

/// How long the other processes may run after one has failed. Process 0 tells them, and they end on
/// their own.
const GRACE: Duration = Duration::from_secs(5);

/// Starts groups of these sizes, and returns after all processes have ended.
///
/// # Errors
/// [`BenchError::Launch`] with the process that failed first and the report that process 0 left in
/// `results`; [`BenchError::System`]. No process is left running.
pub(crate) fn run(
    sizes: &[u32],
    arguments: &[String],
    results: &Results,
    time_limit: Duration,
) -> Result<(), BenchError> {
    let mut members = start(sizes, arguments, results)?;
    let mut deadline = Instant::now() + time_limit;
    let mut failed = None;
    while !members.is_empty() {
        if Instant::now() >= deadline {
            // Dropping the other members kills them.
            failed = failed.or_else(|| Some((members[0].name.clone(), "did not end in time".to_owned())));
            break;
        }
        let interests: Vec<_> = members.iter().map(Member::end).collect();
        let ready = wait_ready(&interests, Some(deadline)).map_err(system("waiting for processes of"))?;
        let mut ready = ready.into_iter();
        let (ended, running): (Vec<_>, Vec<_>) = members.into_iter().partition(|_| ready.next() == Some(true));
        members = running;
        for mut member in ended {
            let status = member.process.child.wait().map_err(system("waiting for a process of"))?;
            if !status.success() && failed.is_none() {
                failed = Some((member.name, how(status)));
                deadline = deadline.min(Instant::now() + GRACE);
            }
        }
    }
    match failed {
        Some((who, how)) => Err(BenchError::Launch { who, how, why: results.text()? }),
        None => Ok(()),
    }
}

/// A process of a group.
#[derive(Debug)]
struct Member {
    name: String,
    process: Spawned,
}

impl Member {
    /// Becomes ready when the process has ended.
    fn end(&self) -> Interest<'_> {
        Interest { fd: self.process.as_fd(), writable: false }
    }
}

fn start(sizes: &[u32], arguments: &[String], results: &Results) -> Result<Vec<Member>, BenchError> {
    let program = std::env::current_exe().map_err(system("finding the program of"))?;
    let secret = u128::from_le_bytes(random_bytes().map_err(system("getting a secret for"))?);
    let place = format!("127.0.0.1:{}", free_port().map_err(system("finding a port for"))?);
    let mut members = Vec::new();
    for (group, size) in sizes.iter().enumerate() {
        for rank in 0..*size {
            let mut command = Command::new(&program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
            // These variables hide the launcher of this process, which did not start the members.
            command.env("FARSIDE_START", "variables").env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command.env("FARSIDE_GROUP", format!("{group}/{}", sizes.len())).env("FARSIDE_JOIN", &place);
            command.env("FARSIDE_SECRET", format!("{secret:032x}"));
            if fabric::address().is_none() {
                // All processes are on this machine, so their traffic need not leave it.
                command.env(fabric::ADDRESS, "127.0.0.1");
            }
            let process = spawn(&mut command, results.fd()).map_err(system("starting a process of"))?;
            members.push(Member { name: format!("process {rank} of group {group}"), process });
        }
    }
    Ok(members)
}

/// Returns a port that is free now. If another program takes it before process 0 does, process 0
/// reports that.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn how(status: ExitStatus) -> String {
    format!("ended with {status}")
}

fn system(doing: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |cause| BenchError::System { doing, path: "a separate launch".into(), cause }
}

#[cfg(test)]
mod tests {
    use farside_testbed::{hold_still, limit};

    use super::*;

    // These tests start their own program with the name of a test.

    #[test]
    fn the_process_that_failed_is_named() {
        let results = Results::new().unwrap();
        let arguments = ["--no-such-option".to_owned()];
        let error = run(&[1, 2], &arguments, &results, limit()).unwrap_err();
        assert!(matches!(&error, BenchError::Launch { who, .. } if who.contains("of group")), "{error}");
        assert!(error.to_string().contains("exit status"), "{error}");
    }

    #[test]
    fn processes_that_succeed_are_no_error() {
        let results = Results::new().unwrap();
        let arguments = ["--exact", "no::such::test"].map(str::to_owned);
        run(&[1, 2], &arguments, &results, limit()).unwrap();
    }

    #[test]
    fn a_process_that_stays_too_long_is_killed() {
        let results = Results::new().unwrap();
        let arguments = ["--exact", "launches::tests::stays", "--ignored"].map(str::to_owned);
        let error = run(&[2], &arguments, &results, Duration::from_millis(300)).unwrap_err();
        assert!(error.to_string().contains("did not end in time"), "{error}");
    }

    #[test]
    #[ignore = "it is started by another test, which kills it"]
    fn stays() {
        hold_still();
    }
}
