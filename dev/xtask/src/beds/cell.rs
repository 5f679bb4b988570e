//! A cell: the process, file-system, network, host-name and IPC namespaces in which a bed runs.
//!
//! `cargo xtask BED` starts itself again as the first process of a cell. When that process ends,
//! the kernel kills all other processes of the cell, even those that became daemons, and drops the
//! network and the memory file systems of the cell. So a run leaves nothing behind, and several
//! runs at the same time do not meet.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_testbed::{Failure, ended_with_us, ending_with_us, is_privileged, run};

use super::Bed;
use crate::steps::JOB_LIMIT;

/// The variable that is set in the processes inside a cell.
const INSIDE: &str = "FARSIDE_XTASK_CELL";

/// The time that a bed may take beyond its own limit before it is killed from outside.
const GRACE: Duration = Duration::from_secs(20);

/// The time limit of one mount or one change of the network.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// The host name inside.
pub(crate) const HOST: &str = "cell";

/// The folder for sockets and state inside: in memory, with a short path, and gone with the cell.
pub(crate) const STATE: &str = "/run";

/// Returns whether this process runs in a cell.
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Returns the variable that tells the tests inside which beds they use.
pub(crate) fn leaving_out(without: &[Bed]) -> (&'static str, OsString) {
    let names: Vec<_> = Bed::all_but(without).iter().map(|bed| bed.name()).collect();
    (farside_testbed::BEDS, names.join(",").into())
}

/// Runs `bed` inside a cell, with these variables set there. Outside, returns the outcome of the
/// cell.
pub(crate) fn inside(
    limit: Duration,
    variables: &[(&str, OsString)],
    bed: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    if is_inside() {
        furnish()?;
        return bed();
    }
    let program = env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let mut command = namespaces();
    let mut child = command
        .arg(program)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .envs([JOB_LIMIT])
        .envs(variables.iter().cloned())
        .env("PATH", search_path())
        .spawn()
        .map_err(|error| format!("cannot start unshare (util-linux): {error}"))?;
    let deadline = Instant::now() + limit + GRACE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("failed: {status}")),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {} s: killed; --limit sets another time limit", limit.as_secs()));
            }
            Err(error) => return Err(format!("waiting for the cell: {error}")),
        }
    }
}

/// Returns the beginning of a command whose program runs in new namespaces.
fn namespaces() -> Command {
    let split = ["--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--uts", "--ipc", "--"];
    if is_privileged() {
        let mut command = ended_with_us("unshare");
        command.args(split);
        return command;
    }
    // Gaining privileges resets the signal at the death of the parent, so it is set again
    // afterwards.
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--"]).args(ending_with_us()).arg("unshare").args(split);
    command
}

/// Returns the search path with the folders of system programs, which the search paths of users
/// lack.
fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default())
}

/// Gives the cell a host name, a loopback device, and memory file systems in the places where
/// programs leave files.
fn furnish() -> Result<(), Failure> {
    let step = |program: &str, arguments: &[&str]| {
        let mut command = ended_with_us(program);
        run(&format!("{program} {}", arguments.join(" ")), command.args(arguments), STEP_LIMIT).map(|_| ())
    };
    step("hostname", &[HOST])?;
    step("ip", &["link", "set", "lo", "up"])?;
    // Slurm and Open MPI need a network besides the loopback device: a cable with no other side.
    step("ip", &["link", "add", "net0", "type", "veth", "peer", "name", "net1"])?;
    step("ip", &["address", "add", "10.78.0.1/24", "dev", "net0"])?;
    step("ip", &["link", "set", "net0", "up"])?;
    step("ip", &["link", "set", "net1", "up"])?;
    step("mount", &["-t", "tmpfs", "tmpfs", STATE])?;
    step("mount", &["-t", "tmpfs", "tmpfs", "/dev/shm"])?;
    let hosts = format!("{STATE}/hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost {HOST}\n")).map_err(|error| Failure::new(&hosts, error))?;
    step("mount", &["--bind", &hosts, "/etc/hosts"])?;
    let temporary = temporary_dir();
    fs::create_dir(&temporary).map_err(|error| Failure::new(&temporary, error))
}

/// Returns the folder for temporary files inside.
pub(crate) fn temporary_dir() -> String {
    format!("{STATE}/tmp")
}
