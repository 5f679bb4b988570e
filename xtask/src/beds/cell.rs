//! A cell: the process, file-system, network, host-name and IPC namespaces in which a bed runs.
//!
//! `cargo xtask BED` starts itself again as the first process of a cell. When that process ends, the kernel kills all
//! others of the cell, whatever they detached themselves from, and drops the cell's network and memory file systems:
//! nothing has to be cleaned up, and several runs do not meet.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use farside_testbed::{Failure, ended_with_us, ending_with_us, is_privileged, run};

use super::Bed;

/// Set in the process that runs inside.
const INSIDE: &str = "FARSIDE_XTASK_CELL";

/// How much longer than its own limit a bed may take before it is ended from outside.
const GRACE: Duration = Duration::from_secs(20);

/// How long one mount or change of the network may take.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// The host's name inside.
pub(crate) const HOST: &str = "cell";

/// A bed's own place for sockets and state: in memory, with a short path, and gone with the cell.
pub(crate) const STATE: &str = "/run";

/// Whether this process runs in a cell.
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// The variable that tells the tests inside which beds they do without.
pub(crate) fn leaving_out(without: &[Bed]) -> (&'static str, OsString) {
    let names: Vec<_> = without.iter().map(|bed| bed.name()).collect();
    (farside_testbed::WITHOUT, names.join(",").into())
}

/// Runs `bed` inside a cell, with these variables set there. What this returns outside is what became of it.
pub(crate) fn inside(
    limit: Duration,
    variables: &[(&str, OsString)],
    bed: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    if is_inside() {
        furnish()?;
        return bed();
    }
    let program = env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let mut command = namespaces();
    let mut child = command
        .arg(program)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .envs(variables.iter().cloned())
        .env("PATH", search_path())
        .spawn()
        .map_err(|error| format!("unshare (util-linux) cannot be started: {error}"))?;
    let deadline = Instant::now() + limit + GRACE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("failed: {status}")),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {} s: ended (--limit allows more)", limit.as_secs()));
            }
            Err(error) => return Err(format!("waiting for the cell: {error}")),
        }
    }
}

/// The beginning of a command that goes on in new namespaces.
fn namespaces() -> Command {
    let split = ["--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--uts", "--ipc", "--"];
    if is_privileged() {
        let mut command = ended_with_us("unshare");
        command.args(split);
        return command;
    }
    // Becoming privileged makes the kernel forget with whom a process is to end, so that is said afterwards.
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--"]).args(ending_with_us()).arg("unshare").args(split);
    command
}

/// Where programs are, also those of the system, which users' search paths leave out.
fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default())
}

/// Gives the cell a name, a loopback, and memory file systems where programs leave files behind.
fn furnish() -> Result<(), Failure> {
    let step = |program: &str, arguments: &[&str]| {
        let mut command = ended_with_us(program);
        run(&format!("{program} {}", arguments.join(" ")), command.args(arguments), STEP_LIMIT).map(|_| ())
    };
    step("hostname", &[HOST])?;
    step("ip", &["link", "set", "lo", "up"])?;
    // Slurm and Open MPI want a network that is more than the loopback: a cable that leads nowhere.
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

/// Where programs inside are to put temporary files.
pub(crate) fn temporary_dir() -> String {
    format!("{STATE}/tmp")
}
