//! The processes that a launcher started, and its links with them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;
use farside_fabric::ofi;
use farside_fabric::route::FabricChoice;
use farside_sys::net::{Interest, MessageSocket, wait_ready};
use farside_sys::process::{Spawned, spawn};

use super::{Launch, Program};
use crate::child;
use crate::control::link::{Link, LinkState, News};
use crate::control::{ToCoordinator, ToProcess};
use crate::error::{LaunchError as Error, ProcessEnd, Result};
use crate::settings::ADDRESS;
use crate::settings::Choices;

/// The variable that names a job for its readers.
const JOB: &str = "FARSIDE_JOB";
/// The time to wait for the end of a process that closed its link.
const CLOSED_TO_END: Duration = Duration::from_millis(200);

/// All processes of a job. Dropping this kills those that still run, and leaves no zombie.
#[derive(Debug)]
pub(crate) struct Children(Vec<Child>);

#[derive(Debug)]
struct Child {
    spawned: Spawned,
    ended: bool,
    /// `None` once it is closed.
    link: Option<Link>,
}

impl Children {
    /// Starts all processes.
    ///
    /// # Errors
    /// [`Error::ProcessFailed`] with the first that cannot be started. Those before it are killed.
    pub(crate) fn start(launch: &Launch) -> Result<Self> {
        let choices = launch.choices.to_environment();
        let programs = launch.programs.iter().flat_map(|program| (0..program.processes).map(move |_| program));
        let mut children = Vec::new();
        for (process, program) in (0..).map(ProcessId::new).zip(programs) {
            let (near, far) = MessageSocket::pair().map_err(|cause| not_started(process, program, &cause))?;
            let mut command = Command::new(&program.command);
            command.args(&program.arguments).stdin(if process.number() == 0 {
                Stdio::inherit()
            } else {
                Stdio::null()
            });
            if launch.quiet_stdout {
                command.stdout(Stdio::null());
            }
            if let Some(output) = launch.outputs.get(process.index()) {
                let copy = || output.try_clone().map_err(|cause| not_started(process, program, &cause));
                command.stdout(copy()?).stderr(copy()?);
            }
            prepare_libfabric(&mut command, &launch.choices);
            if let Some(name) = &launch.name {
                command.env(JOB, name);
            }
            child::write_environment(&mut command, process, far.as_fd().as_raw_fd(), launch.site.as_deref(), &choices);
            let spawned = spawn(&mut command, far.as_fd()).map_err(|cause| not_started(process, program, &cause))?;
            let (pid, program) = (spawned.child.id(), program.command.display());
            tracing::debug!(process = process.number(), pid, %program, "process started");
            children.push(Child { spawned, ended: false, link: Some(Link::over_socket(near)) });
        }
        Ok(Self(children))
    }

    /// The numbers of the processes in the system.
    pub(crate) fn system_processes(&self) -> impl Iterator<Item = (ProcessId, u32)> {
        (0..).map(ProcessId::new).zip(self.0.iter().map(|child| child.spawned.child.id()))
    }

    /// Sends a message, now or when the process has room for it. Drops it if the process has closed
    /// its link.
    pub(crate) fn tell(&mut self, process: ProcessId, message: &ToProcess) {
        if let Some(link) = &mut self.0[process.index()].link {
            link.tell(message);
        }
    }

    /// Sleeps until there is something to [hear](Self::hear), until `other` is readable, or until
    /// the deadline. Returns the processes that have news.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn wait(&mut self, other: Option<BorrowedFd<'_>>, deadline: Option<Instant>) -> Result<Vec<ProcessId>> {
        let mut interests = Vec::with_capacity(2 * self.0.len());
        let mut owners = Vec::with_capacity(2 * self.0.len());
        for (process, child) in (0..).map(ProcessId::new).zip(&self.0) {
            if let Some(link) = &child.link {
                interests.push(Interest { fd: link.fd(), writable: link.has_unsent() });
                owners.push(process);
            }
            if !child.ended {
                interests.push(Interest { fd: child.spawned.as_fd(), writable: false });
                owners.push(process);
            }
        }
        interests.extend(other.map(|fd| Interest { fd, writable: false }));
        let doing = "waiting for the processes of the job";
        let ready = wait_ready(&interests, deadline).map_err(|cause| Error::System { doing, cause })?;
        let mut ready: Vec<_> =
            owners.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(owner, _)| owner).collect();
        ready.dedup();
        Ok(ready)
    }

    /// Takes the messages and ends of these processes. With `may_leave`, they may close their links
    /// and continue.
    pub(crate) fn hear(&mut self, ready: &[ProcessId], may_leave: bool) -> Vec<News> {
        ready.iter().map(|process| self.0[process.index()].news(*process, may_leave)).collect()
    }

    /// Kills these processes. Returns how each ended.
    pub(crate) fn stop(&mut self, processes: &[ProcessId]) -> Vec<(ProcessId, ProcessEnd)> {
        for process in processes {
            // It fails only if the process has just ended.
            let _ = self.0[process.index()].spawned.child.kill();
        }
        processes.iter().map(|process| (*process, self.0[process.index()].reap())).collect()
    }
}

impl Child {
    fn news(&mut self, process: ProcessId, may_leave: bool) -> News {
        // Look for the end first and then take the messages, so that none before the end is missed.
        let mut has_ended = !self.ended && self.ends_by(Instant::now());
        let mut messages = Vec::new();
        if let Some(link) = &mut self.link {
            link.flush();
            if link.receive(&mut messages) == LinkState::Closed {
                self.link = None;
                if !self.ended && !has_ended && !may_leave {
                    // Wait for the real end: a peer may report the loss before the system does.
                    has_ended = self.ends_by(Instant::now() + CLOSED_TO_END);
                    if !has_ended {
                        let message = "it closed its link with the launcher".into();
                        messages.push(ToCoordinator::Failed { message, because_of: None });
                    }
                }
            }
        }
        let end = has_ended.then(|| self.reap());
        News { process, messages, end }
    }

    fn ends_by(&self, deadline: Instant) -> bool {
        let end = Interest { fd: self.spawned.as_fd(), writable: false };
        wait_ready(&[end], Some(deadline)).is_ok_and(|ready| ready[0])
    }

    fn reap(&mut self) -> ProcessEnd {
        self.ended = true;
        match self.spawned.child.wait() {
            Ok(status) => {
                tracing::debug!(pid = self.spawned.child.id(), %status, "process ended");
                end_of(status)
            }
            Err(error) => ProcessEnd::Reported(format!("it ended, but its status cannot be read: {error}")),
        }
    }
}

/// Sets libfabric's variables in a process's environment, except those that the user set.
fn prepare_libfabric(command: &mut Command, choices: &Choices) {
    let mut default = |name: &str, value: &str| {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    };
    ofi::ENVIRONMENT.iter().for_each(|(name, value)| default(name, value));
    // All processes are on this machine. Only socket providers can use the loopback device.
    if choices.fabric.as_ref().and_then(FabricChoice::provider).is_some_and(|provider| provider.starts_with("tcp")) {
        default(ADDRESS, "127.0.0.1");
    }
}

fn end_of(status: ExitStatus) -> ProcessEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnd::Exited(code),
        (None, Some(signal)) => ProcessEnd::Killed(signal),
        (None, None) => ProcessEnd::Reported(format!("it ended with {status}")),
    }
}

fn not_started(process: ProcessId, program: &Program, cause: &std::io::Error) -> Error {
    let how = ProcessEnd::NotStarted(format!("{}: {cause}", program.command.display()));
    Error::ProcessFailed { process, how }
}
