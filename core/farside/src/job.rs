//! Jobs: one program, run by several processes that reach each other.
//!
//! # How a job lives
//!
//! A program describes its job with [`job()`] and passes the work of each worker to [`Job::run`].
//! The process that first reaches this call is the *launcher*. It starts the job's processes, which
//! run the same program with the same arguments. They reach the same call of `run` and find in
//! their environment that they belong to the job. So there is one process more than the job has:
//! the launcher has no workers, waits for the others, and returns the verdict.
//!
//! **The launcher and every process execute the code before and after `run`.** This is the place to
//! read arguments, but not to print a result; print it in the body, on worker 0. A process may take
//! its time after `run`: the launcher waits for it.
//!
//! The command `farside run -n 4 PROGRAM` is a launcher as well. Then no process of the program is
//! one, and the options of the command override those of the program.
//!
//! Processes that another launcher started, such as `mpirun` or `srun`, recognize this from their
//! environment. Together they are a job without a launcher of its own: process 0 runs the job for
//! the others. The job has as many processes as were started, whatever the program says.
//! `docs/running-on-a-cluster.md` lists the variables to set.
//!
//! # How it ends
//!
//! After the bodies of all workers have returned, every call that was sent still runs, and so do
//! the calls that these send. Then `run` returns everywhere. If a process fails (a worker returns
//! an error or panics, the process exits or is killed), the others are notified. Whatever waits for
//! that process returns [`Error::PeerLost`](crate::Error::PeerLost), and the other processes go on
//! if they can. The launcher's verdict is the *first* failure, whatever followed from it. Errors of
//! the others name that failure as well.
//!
//! The processes are children of the launcher and do not outlive it. Interrupting it (Ctrl-C) or
//! killing it ends all of them.

#[cfg(test)]
mod hostile;
pub(crate) mod simulate;
pub(crate) mod testing;

use std::ffi::OsString;
use std::panic::{Location, resume_unwind};
use std::time::Duration;

pub use farside_fabric::route::FabricChoice;
pub use farside_sys::topology::Bind;
pub use simulate::{Simulated, Simulation, simulate};

use crate::Worker;
pub use crate::runtime::footprint::{Footprint, footprint};
pub use farside_launch::child::{is_member, is_reported};
#[cfg(feature = "log")]
pub use farside_launch::log::log_to_stderr;
pub use farside_launch::nic::{Nics, NoNics};
pub use farside_launch::settings::{Check, UnknownCheck};
pub use farside_launch::start as launch;

use crate::error::Result;
use crate::invoke::named::{Named, Names};
use crate::rooms::ROOMS;
use crate::runtime::run::{Body, run_process};
use crate::wire::Wire;
use farside_launch::child::{self, Role, StartMethod};
use farside_launch::member::Member;
use farside_launch::ring_options::RingOptions;
use farside_launch::settings::{Choices, own_environment};
use farside_launch::start::{Launch, Program};

/// Returns a job of one process with one worker, to be configured.
pub fn job() -> Job {
    Job {
        choices: Choices::default(),
        entry: None,
        time_limit: None,
        quiet_stdout: false,
        fabric_is_forced: false,
        names: Names::of_the_library(),
    }
}

/// The configuration of a job. Made by [`job()`], started by [`run`](Job::run).
#[derive(Clone, Debug)]
#[must_use = "nothing is started before `run`"]
pub struct Job {
    choices: Choices,
    entry: Option<Vec<OsString>>,
    time_limit: Option<Duration>,
    quiet_stdout: bool,
    /// True if the fabric is chosen in spite of the environment.
    fabric_is_forced: bool,
    /// The functions that other processes can call by name in processes of this program.
    names: Names,
}

impl Default for Job {
    fn default() -> Self {
        job()
    }
}

impl Job {
    farside_launch::setters! {
        /// Sets the number of processes. The default is 1.
        processes: u32 => processes;

        /// Sets the number of workers of each process. The default is 1.
        threads_per_process: u32 => threads;

        /// Sets the number of threads of each process that share the calls on the process itself
        /// ([`Worker::pool_of`](crate::Worker::pool_of)). The default is 0. These calls may wait or
        /// block without keeping a worker from its work. Each call that waits occupies one thread,
        /// and further calls queue behind them. One more thread hands the calls over.
        pool_threads: u32 => pool_threads;

        /// Sets where the workers run. By default the system places them.
        bind: Bind => bind;

        /// Sets the network devices for traffic between machines, which the processes take in
        /// turns. By default libfabric chooses the best. The variable `FARSIDE_NIC` applies if the
        /// program sets none.
        nics: Nics => nics;

        /// Sets the fabric. By default shared memory inside a machine and libfabric between
        /// machines. The variable `FARSIDE_FABRIC` overrides it.
        fabric: FabricChoice => fabric;

        /// Sets the size and the growth of the ring from one worker to another, unless
        /// [`setup_with`](crate::Ways::setup_with) chooses others.
        ///
        /// [`run`](Self::run) refuses invalid options with
        /// [`LaunchError::RingOptions`](crate::LaunchError::RingOptions).
        ring: RingOptions => ring;

        /// Sets how much memory the calls on their way to one worker may take, over all senders.
        /// The default is 8 MiB. A sender's first ring of 8 KiB is always granted.
        ring_cap_bytes: usize => ring_cap_bytes;

        /// Sets how much a worker may queue for one destination that has no room. The default is 1
        /// MiB. Calls that called functions make are kept [without a
        /// limit](crate::WhenFull::Spill);
        /// [`SendCounters::staged_bytes_max`](crate::SendCounters::staged_bytes_max) counts them.
        queue_cap_bytes: usize => queue_cap_bytes;

        /// Sets how much memory of each process other processes may
        /// [allocate](Worker::allocate_at). The default is 256 MiB. The number of allocations is
        /// limited to one for each 64 bytes of that. No memory is taken before it is allocated.
        remote_memory_limit: u64 => remote_memory_limit;

        /// Sets the size of the memory that every process has from the start, with
        /// [addresses](crate::GlobalAddress::starter) that all processes know. The default is 4
        /// KiB.
        starter_bytes: u32 => starter_bytes;

        /// Sets how long anything waits for another process. The default is `FARSIDE_TIMEOUT_S`
        /// from the environment, or 30 s. A called function waits for a tenth of it, as for
        /// the memory of a stopped process.
        deadline: Duration => deadline;

        /// Sets how long the job may take from the return of its last worker until no call is under
        /// way. The default is 30 s. After a process has failed, the job also ends if no other
        /// process answers for this time and the [deadline](Self::deadline) together. A process
        /// that computes answers, and one that is stopped does not.
        finalize_deadline: Duration => finalize_deadline;
    }

    /// Sets the fabric as [`fabric`](Self::fabric) does, but overrides `FARSIDE_FABRIC`: for a
    /// program with its own option. Only a launcher's option overrides it.
    pub fn force_fabric(mut self, fabric: FabricChoice) -> Self {
        self.fabric_is_forced = true;
        self.fabric(fabric)
    }

    /// Sets whether to check for unordered accesses to the same bytes, and for uses of a buffer
    /// that an operation still has. The later of two such accesses returns
    /// [`AccessConflict`](crate::AccessConflict), which names both places in the program. Off by
    /// default. If the program does not set this, `FARSIDE_CHECK=accesses` or `farside run --check
    /// accesses` turns it on.
    ///
    /// This is a tool to find bugs: each access first asks the owner of the memory.
    /// `docs/checking-accesses.md` describes what it finds and what it costs.
    pub fn check_accesses(mut self, check: bool) -> Self {
        self.choices.check = Some(if check { Check::Accesses } else { Check::Nothing });
        self
    }

    /// Registers a function under a name. Any program of the job can call it by that name
    /// ([`call_named`](crate::To::call_named)), including programs that were built separately.
    ///
    /// Several programs form one job if a launcher starts them together: `farside run -n 2 ./one :
    /// -n 2 ./another`. Processes that run the same binary can call closures on each other;
    /// processes of different binaries can only call named functions. A function is registered in
    /// the processes of this program only; other programs of the job may register others under the
    /// same name.
    ///
    /// # Panics
    /// If this job already has a function of that name, or the name begins with `farside/`. Also if
    /// a type of the function travels only among processes of one binary.
    #[track_caller]
    pub fn register<A: Wire, R: Wire>(mut self, name: Named<A, R>, function: fn(&Worker, A) -> R) -> Self {
        self.names.add(name, function);
        self
    }

    /// Starts the processes with these arguments instead of the launcher's own.
    ///
    /// This is for programs with several jobs. A process runs the program from its beginning, so it
    /// would always reach the first job; its own arguments can lead it to another. Such a job can
    /// also be run repeatedly.
    ///
    /// ```no_run
    /// # fn warm_up(_: &farside::Worker) -> farside::Result<()> { Ok(()) }
    /// # fn measure(_: &farside::Worker) -> farside::Result<()> { Ok(()) }
    /// fn main() -> farside::Result<()> {
    ///     let only = std::env::args().nth(1);
    ///     for (name, body) in [("warm-up", warm_up as fn(&_) -> _), ("measure", measure)] {
    ///         if only.is_none() || only.as_deref() == Some(name) {
    ///             farside::job().processes(2).entry([name]).run(body)?;
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn entry<A>(mut self, arguments: impl IntoIterator<Item = A>) -> Self
    where
        A: Into<OsString>,
    {
        self.entry = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// Stops the job if it takes longer than this, including what its processes do before and after
    /// `run`. Applies only if the program starts the job itself.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Discards what the processes print to standard output. Applies only if the program starts the
    /// job itself.
    pub fn quiet_stdout(mut self) -> Self {
        self.quiet_stdout = true;
        self
    }

    /// Runs `body` on every worker of the job.
    ///
    /// The body may use `?` on errors of this library, on the usual errors of the standard library
    /// and on a `Box<dyn Error + Send + Sync>`, which takes any error. Wrap others:
    /// `.map_err(farside::Error::program)?`. A body whose error were any type would have to name
    /// it: the compiler infers no type for `Ok(())` at the end of a closure.
    ///
    /// ```no_run
    /// use farside::prelude::*;
    /// use std::error::Error;
    ///
    /// fn body(me: &Worker) -> Result<(), Box<dyn Error + Send + Sync>> {
    ///     let greeting = String::from_utf8(std::fs::read("greeting.txt")?)?;
    ///     println!("{}: {greeting}", me.id());
    ///     Ok(me.barrier()?)
    /// }
    ///
    /// farside::job().processes(2).run(|me| Ok(body(me)?))?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// In the launcher, this starts the processes and returns when all of them have ended. In a
    /// process, it runs the workers and returns when the whole job has ended; the code after it
    /// runs there as well.
    ///
    /// Where `mpirun` or `srun` started the processes, each of them gets an error if the job fails.
    /// A program that prints it once asks whether process 0 prints it for this process:
    ///
    /// ```no_run
    /// use std::process::ExitCode;
    ///
    /// fn main() -> ExitCode {
    ///     match farside::job().processes(2).run(|me| me.barrier()) {
    ///         Ok(()) => ExitCode::SUCCESS,
    ///         Err(_) if farside::job::is_reported() => ExitCode::FAILURE,
    ///         Err(error) => {
    ///             eprintln!("{error}");
    ///             ExitCode::FAILURE
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// *Cost*: about a millisecond for each process.
    ///
    /// # Errors
    /// In the launcher, of which errors named `LaunchError` are in
    /// [`Error::Launch`](crate::Error::Launch):
    /// - [`LaunchError::JobShape`](crate::LaunchError::JobShape) if the job's shape is impossible
    ///   or does not fit on this machine;
    /// - [`LaunchError::ProcessFailed`](crate::LaunchError::ProcessFailed) with the process that
    ///   failed first;
    /// - [`Error::JobEnded`](crate::Error::JobEnded) if processes did not join the job, or it did
    ///   not end in time;
    /// - [`LaunchError::SecondJob`](crate::LaunchError::SecondJob) if the program has already
    ///   started a job, and neither has an [entry](Self::entry);
    /// - [`LaunchError::Rendezvous`](crate::LaunchError::Rendezvous) if processes that another
    ///   launcher started do not find each other.
    ///
    /// Process 0 of a job that another launcher started gets these errors as well.
    ///
    /// In a process of the job:
    /// - the error of its worker, or [`Error::JobEnded`](crate::Error::JobEnded), if another
    ///   launcher started it;
    /// - [`LaunchError::WrongJob`](crate::LaunchError::WrongJob) or
    ///   [`LaunchError::SecondJob`](crate::LaunchError::SecondJob) if the process was started for
    ///   another job than this one.
    ///
    /// # Panics
    /// In a process whose worker panicked, after the others were notified. In a process that failed
    /// otherwise and was started by Farside's launcher, this unwinds without a message, with the
    /// error as payload: the launcher returns the verdict, so one failure is reported once.
    #[track_caller]
    pub fn run<F>(self, body: F) -> Result<()>
    where
        F: Fn(&Worker) -> Result<()> + Send + Sync,
    {
        self.run_body(Location::caller(), &body)
    }

    fn run_body(mut self, site: &Location<'_>, body: &Body<'_>) -> Result<()> {
        #[cfg(feature = "log")]
        log_to_stderr()?;
        farside_sys::limits::raise_max_open_files();
        let site = site.to_string();
        let method = if self.entry.is_some() { StartMethod::Entry } else { StartMethod::Again };
        if !self.fabric_is_forced {
            self.choices = self.choices.with_forced_fabric(&own_environment)?;
        }
        match child::role(&site, method, self.choices.clone())? {
            Role::Member(member) => run_member(member, self.names, body),
            Role::Host(member, hosting) => hosting.see_through(|| run_process(member, self.names, ROOMS, body)),
            Role::Launcher => self.launch(site),
        }
    }

    fn launch(self, site: String) -> Result<()> {
        // The children get the complete settings, so they need not resolve them again.
        let settings = self.choices.resolve(&own_environment)?;
        let arguments = self.entry.unwrap_or_else(|| std::env::args_os().skip(1).collect());
        let program = Program { command: farside_launch::own_program()?, arguments, processes: settings.processes };
        let launch = Launch {
            choices: settings.into(),
            site: Some(site),
            time_limit: self.time_limit,
            quiet_stdout: self.quiet_stdout,
            ..Launch::new(vec![program])
        };
        Ok(launch.run()?)
    }
}

/// Runs a process of the job. If it fails and its parent is Farside's launcher, this unwinds with
/// the error, without a message: the launcher has the error and returns the verdict on the whole
/// job. So one failure is reported once.
///
/// # Errors
/// In a process that another launcher started: the first error of a worker, or the reason why the
/// job did not start or was ended.
fn run_member(member: Member, names: Names, body: &Body<'_>) -> Result<()> {
    let is_launched = !member.control.leads_to_a_process();
    match run_process(member, names, ROOMS, body) {
        // Where a panic aborts, its status would look like a crash.
        Err(error) if is_launched && cfg!(panic = "unwind") => {
            tracing::warn!(%error, "this process failed; its launcher reports that");
            resume_unwind(Box::new(error))
        }
        result => result,
    }
}
