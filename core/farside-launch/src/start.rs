//! Starting the processes of a job and supervising them to the end.
//!
//! The *launcher* starts all processes of a job as its children, and is not itself one of them. It
//! watches their ends and their control links, tells every process when another is lost, and
//! returns when all have ended.
//!
//! The system kills a child when the thread that started it ends, for whatever reason. So a
//! launcher that is interrupted (Ctrl-C), killed, or crashes leaves no process running, and needs
//! no signal handler for this.

mod children;
mod monitor;

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;
use farside_fabric::route::FabricChoice;
use farside_sys::process::random_bytes;
use farside_sys::topology::Bind;

use self::children::Children;
pub use self::monitor::{AskError, Monitor};
use crate::control::{ToCoordinator, ToProcess};
use crate::coordinator::{Coordinator, Plan};
use crate::error::{LaunchError as Error, ProcessEnd, Result};
use crate::nic::Nics;
use crate::ring_options::RingOptions;
use crate::settings::{Check, Choices, Limits, own_environment};

/// The time that processes have to leave once all that remain have failed or know that the job
/// ended.
const GRACE: Duration = Duration::from_secs(2);

/// A program that some of a job's processes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program: a path, or a name to look up in `PATH`.
    pub command: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The number of processes that run it.
    pub processes: u32,
}

/// A job to start from outside, as the command `farside run` does.
///
/// A setting here overrides the programs' own setting with `Job`. The processes are numbered in the
/// order of the programs. Process 0 inherits the standard input, and the others have none. All
/// inherit the standard output and error.
///
/// ```no_run
/// use farside_launch::start::{Launch, Program};
///
/// let arguments = vec!["--quick".into()];
/// let program = Program { command: "./histogram".into(), arguments, processes: 4 };
/// Launch::new(vec![program]).threads_per_process(2).run()?;
/// # Ok::<(), farside_launch::LaunchError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is started before `run`"]
pub struct Launch {
    /// The programs, in the order of their processes.
    pub programs: Vec<Program>,
    /// The settings that win over those of the programs.
    pub choices: Choices,
    /// The source position of the job that the processes must reach. `None` allows any.
    pub site: Option<String>,
    /// The longest time that the job may run.
    pub time_limit: Option<Duration>,
    /// True if the standard output of the processes is discarded.
    pub quiet_stdout: bool,
    /// The files that take what each process prints to standard output and error. A process without
    /// a file inherits both.
    pub outputs: Vec<Arc<File>>,
    /// The name by which readers find the job. `None` leaves it to the environment.
    pub name: Option<String>,
    /// Asks the processes while the job runs.
    pub monitor: Option<Monitor>,
}

impl Launch {
    /// Makes a job of these programs. Processes of different binaries share collectives and
    /// functions registered by name (`Job::register`). A closure can be called only in processes of
    /// its own binary.
    pub fn new(programs: Vec<Program>) -> Self {
        Self {
            programs,
            choices: Choices::default(),
            site: None,
            time_limit: None,
            quiet_stdout: false,
            outputs: Vec::new(),
            name: None,
            monitor: None,
        }
    }

    crate::setters! {
        /// Sets the worker threads of each process.
        threads_per_process: u32 => threads;

        /// Sets where the workers run.
        bind: Bind => bind;

        /// Sets the network devices of the processes.
        nics: Nics => nics;

        /// Sets the sizes of the rings.
        ring: RingOptions => ring;

        /// Sets the fabric, also over `FARSIDE_FABRIC`.
        fabric: FabricChoice => fabric;

        /// Sets the checks while the job runs.
        check: Check => check;
    }

    /// Sets the longest time that the job may run.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Discards the standard output of the processes.
    pub fn quiet_stdout(mut self) -> Self {
        self.quiet_stdout = true;
        self
    }

    /// Has the processes be asked by a monitor while the job runs.
    pub fn monitor(mut self, monitor: Monitor) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// Gives the job a name, by which readers find it.
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// Starts the processes. Returns when all of them have ended.
    ///
    /// *Cost*: about a millisecond for each process. Waiting takes no processor time.
    ///
    /// # Errors
    /// - [`Error::JobShape`] if the job is impossible or does not fit on this machine. Nothing was
    ///   started.
    /// - [`Error::ProcessFailed`] with the process that failed first: it could not be started,
    ///   ended with another status than 0, was killed, reported an error or a panic of a worker, or
    ///   ran into the time limit.
    /// - [`Error::JobEnded`] if processes did not join the job, or it did not become quiescent.
    pub fn run(mut self) -> Result<()> {
        #[cfg(feature = "log")]
        crate::log::log_to_stderr()?;
        farside_sys::limits::raise_max_open_files();
        let started = Instant::now();
        let count = self.programs.iter().map(|program| u64::from(program.processes)).sum::<u64>();
        self.choices.processes = Some(u32::try_from(count).unwrap_or(u32::MAX));
        if self.choices.fabric.is_none() {
            self.choices = self.choices.with_forced_fabric(&own_environment)?;
        }
        let settings = self.choices.clone().resolve(&own_environment)?;
        if let Some(idle) = self.programs.iter().find(|program| program.processes == 0) {
            let why = format!("at least one process of {} is needed", idle.command.display());
            return Err(Error::JobShape { processes: settings.processes, threads: settings.threads, why });
        }
        settings.check_limits(&Limits::here())?;

        let random = |cause| Error::System { doing: "getting random bytes", cause };
        let coordinator = Coordinator::new(Plan {
            processes: settings.processes,
            job_id: u64::from_le_bytes(random_bytes().map_err(random)?),
            secret: random_bytes().map_err(random)?,
            start_deadline: settings.deadline,
            finalize_deadline: settings.finalize_deadline,
        });
        let children = Children::start(&self)?;
        if let Some(monitor) = &self.monitor {
            monitor.started(children.system_processes());
        }
        let time_limit = self.time_limit.and_then(|limit| started.checked_add(limit));
        let monitor = self.monitor;
        Supervisor { coordinator, children, monitor, started, time_limit, grace_ends: None }.run()
    }
}

/// A running job.
#[derive(Debug)]
struct Supervisor {
    coordinator: Coordinator,
    children: Children,
    monitor: Option<Monitor>,
    started: Instant,
    time_limit: Option<Instant>,
    /// The time at which processes that should have left are killed.
    grace_ends: Option<Instant>,
}

impl Supervisor {
    fn run(mut self) -> Result<()> {
        loop {
            while let Some((process, message)) = self.coordinator.next_message() {
                self.children.tell(process, &message);
            }
            if let Some(verdict) = self.coordinator.verdict() {
                tracing::debug!(success = verdict.is_ok(), "all processes have ended");
                return verdict;
            }
            if self.grace_ends.is_none() && self.coordinator.only_stragglers_run() {
                self.grace_ends = Some(Instant::now() + GRACE);
            }
            self.ask();
            let questions = self.monitor.as_ref().map(Monitor::fd);
            let ready = self.children.wait(questions, self.next_deadline())?;
            self.listen(&ready);
            self.coordinator.tick(self.started.elapsed());
            self.stop_overdue(Instant::now());
        }
    }

    /// Passes questions on.
    fn ask(&mut self) {
        let Some(monitor) = self.monitor.as_ref().filter(|_| self.coordinator.has_begun()) else { return };
        monitor.begun();
        for (process, number, question) in monitor.questions() {
            self.children.tell(process, &ToProcess::Ask { number, question });
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let tick = self.coordinator.next_tick().and_then(|at| self.started.checked_add(at));
        [tick, self.time_limit, self.grace_ends].into_iter().flatten().min()
    }

    /// Passes the processes' messages and ends on to the coordinator.
    fn listen(&mut self, ready: &[ProcessId]) {
        let news = self.children.hear(ready, self.coordinator.is_finished());
        if let Some(monitor) = &self.monitor {
            for news in &news {
                for message in &news.messages {
                    if let ToCoordinator::Told { number, bytes, is_last } = message {
                        monitor.told(news.process, *number, bytes, *is_last);
                    }
                }
                if news.end.is_some() {
                    monitor.ended(news.process);
                }
            }
        }
        self.coordinator.heard(news, self.started.elapsed());
    }

    /// Kills the processes whose time is up.
    fn stop_overdue(&mut self, now: Instant) {
        let has_passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        let time_is_up = has_passed(self.time_limit);
        if !time_is_up && !has_passed(self.grace_ends) {
            return;
        }
        let running: Vec<_> = self.coordinator.running().collect();
        let reason = if time_is_up { "the time limit has passed" } else { "it did not exit after the job ended" };
        for (process, end) in self.children.stop(&running) {
            tracing::warn!(process = process.number(), reason, "process killed");
            let end = if time_is_up { ProcessEnd::TimedOut } else { end };
            self.coordinator.ended(process, end, self.started.elapsed());
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(monitor) = &self.monitor {
            monitor.over();
        }
    }
}
