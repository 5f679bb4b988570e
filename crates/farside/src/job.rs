//! Jobs: one program, run by several processes that reach each other.
//!
//! # How a job lives
//!
//! A program says what it wants with [`job()`] and hands the work of each worker to [`Job::run`]. The process that comes
//! there first is the *launcher*. It starts the job's processes, which run the same program with the same arguments, come to
//! the same call of `run`, and find in their environment what they are. So there are one process more than the job has: the
//! launcher has no workers, waits for the others, and returns the verdict.
//!
//! **What stands before and after `run` is executed by the launcher and by every process.** It is the place to read
//! arguments, but not to print a result; that belongs into the body, on worker 0. A process may take its time after `run`:
//! the launcher waits for it.
//!
//! The command `farside run -n 4 PROGRAM` is a launcher, too; then none of the program's processes is one, and the options
//! of the command win over what the program says.
//!
//! Processes that another launcher started, such as `mpirun` or `srun`, see that from their environment and are a job together,
//! again with none that is the launcher: process 0 runs the job for the others. `docs/running-on-a-cluster.md` says what there is to
//! set. Then too it counts how many processes were started, whatever the program says.
//!
//! # How it ends
//!
//! When the bodies of all workers have returned, every call that was sent is executed, and those that these send; then `run`
//! returns everywhere. When a process fails (a worker returns an error or panics, the process exits or is killed), the
//! others are told: whatever waits for it returns [`Error::PeerLost`](crate::Error::PeerLost), and they go on if they can.
//! The launcher's verdict is the *first* failure, whatever followed from it.
//!
//! The processes are children of the launcher and do not outlive it. Interrupting it (Ctrl-C) or killing it ends all.

pub(crate) mod simulate;
pub(crate) mod testing;

use std::ffi::OsString;
use std::panic::Location;
use std::time::Duration;

pub use farside_fabric::route::FabricChoice;
pub use farside_sys::topology::Bind;
pub use simulate::{Simulated, Simulation, simulate};

use crate::Worker;
pub use crate::runtime::footprint::{Footprint, footprint};
pub use farside_launch::child::{is_member, is_reported};
#[doc(hidden)]
pub use farside_launch::fuzz_decode as fuzz_control_decode;
pub use farside_launch::log::log_to_stderr;
pub use farside_launch::nic::{Nics, NoNics};
pub use farside_launch::settings::{Check, UnknownCheck};
pub use farside_launch::start as launch;

use crate::error::Result;
use crate::invoke::named::{Named, Names};
use crate::rooms::ROOMS;
use crate::runtime::run;
use crate::wire::Wire;
use farside_launch::child::{self, Manner, Role};
use farside_launch::ring_options::RingOptions;
use farside_launch::settings::{Choices, own_environment};
use farside_launch::start::{Launch, Program};

/// A job of one process with one worker, until more is asked for.
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

/// What a job is to be like. Made by [`job()`], started by [`run`](Job::run).
#[derive(Clone, Debug)]
#[must_use = "nothing is started before `run`"]
pub struct Job {
    choices: Choices,
    entry: Option<Vec<OsString>>,
    time_limit: Option<Duration>,
    quiet_stdout: bool,
    /// Whether the environment cannot change the fabric.
    fabric_is_forced: bool,
    /// The functions that can be called by name in the processes of this program.
    names: Names,
}

impl Default for Job {
    fn default() -> Self {
        job()
    }
}

impl Job {
    /// How many processes; 1 if not said.
    pub fn processes(mut self, processes: u32) -> Self {
        self.choices.processes = Some(processes);
        self
    }

    /// How many workers each process has; 1 if not said.
    pub fn threads_per_process(mut self, threads: u32) -> Self {
        self.choices.threads = Some(threads);
        self
    }

    /// How many threads each process has besides, which only run the calls that are sent to them; none if not said. These calls may
    /// block, on a lock or a file: that keeps no worker from its work.
    pub fn service_threads(mut self, threads: u32) -> Self {
        self.choices.service_threads = Some(threads);
        self
    }

    /// How many threads of each process share the calls on the process itself ([`Worker::consumers_of`](crate::Worker::consumers_of));
    /// none if not said. One thread more hands the calls over to them.
    pub fn consumer_threads(mut self, threads: u32) -> Self {
        self.choices.consumer_threads = Some(threads);
        self
    }

    /// How many threads of each process share those calls on the process which may wait
    /// ([`Worker::waiters_of`](crate::Worker::waiters_of)); none if not said. As many may wait at once, and the others come after
    /// them. One thread more hands the calls over.
    pub fn waiting_threads(mut self, threads: u32) -> Self {
        self.choices.waiting_threads = Some(threads);
        self
    }

    /// Where the workers run; wherever the system puts them if not said.
    pub fn bind(mut self, bind: Bind) -> Self {
        self.choices.bind = Some(bind);
        self
    }

    /// Which network devices the processes use between machines, dealt out in turns; the best that libfabric knows if not said. The
    /// variable `FARSIDE_NIC` says it where the program does not.
    pub fn nics(mut self, nics: Nics) -> Self {
        self.choices.nics = Some(nics);
        self
    }

    /// What carries the bytes; shared memory inside a machine and libfabric between machines if not said. The variable
    /// `FARSIDE_FABRIC` wins over it.
    pub fn fabric(mut self, fabric: FabricChoice) -> Self {
        self.choices.fabric = Some(fabric);
        self
    }

    /// As [`fabric`](Self::fabric), whatever `FARSIDE_FABRIC` says: for a program that has an option for it. Only a launcher's
    /// own option wins over it.
    pub fn force_fabric(mut self, fabric: FabricChoice) -> Self {
        self.fabric_is_forced = true;
        self.fabric(fabric)
    }

    /// How large the ring from one worker to another is and how it grows, where [`setup_with`](Worker::setup_with) does not say otherwise.
    ///
    /// What there cannot be is refused by [`run`](Self::run), with [`Error::RingOptions`](crate::Error::RingOptions).
    pub fn ring(mut self, options: RingOptions) -> Self {
        self.choices.ring = Some(options);
        self
    }

    /// How much memory the calls on their way to one worker may take, over all senders; 8 MiB if not said. A sender's first ring
    /// of 8 KiB is granted in any case.
    pub fn ring_cap_bytes(mut self, bytes: usize) -> Self {
        self.choices.ring_cap_bytes = Some(bytes);
        self
    }

    /// How much a worker may queue for one destination that has no room; 1 MiB if not said.
    pub fn queue_cap_bytes(mut self, bytes: usize) -> Self {
        self.choices.queue_cap_bytes = Some(bytes);
        self
    }

    /// How much memory of each process others may have, that they asked for with
    /// [`allocate_at`](Worker::allocate_at); 256 MiB if not said, in no more pieces than one for
    /// each 64 bytes of that. None of it is taken before it is asked for.
    pub fn remote_memory_limit(mut self, bytes: u64) -> Self {
        self.choices.remote_memory_limit = Some(bytes);
        self
    }

    /// Memory that every process has from the start and whose [addresses](crate::GlobalAddress::starter) everybody knows. 4 KiB unless chosen.
    pub fn starter_bytes(mut self, bytes: u32) -> Self {
        self.choices.starter_bytes = Some(bytes);
        self
    }

    /// Whether to look for accesses to the same bytes that nothing orders, and for buffers that are used while an operation has them. The
    /// later of the two returns [`AccessConflict`](crate::AccessConflict) then, which names both places in the program. Not, if not said here, by the
    /// variable `FARSIDE_CHECK=accesses` or by `farside run --check accesses`.
    ///
    /// It is for finding mistakes: each access asks the owner of the memory first. `docs/checking-accesses.md` says what it finds and what
    /// it costs.
    pub fn check_accesses(mut self, check: bool) -> Self {
        self.choices.check = Some(if check { Check::Accesses } else { Check::Nothing });
        self
    }

    /// How long anything waits for another process; what the environment says in `FARSIDE_TIMEOUT_S` if not said, else 30 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.choices.deadline = Some(deadline);
        self
    }

    /// How long the job may take from the return of its last worker until no call is under way; 30 s if not said.
    pub fn finalize_deadline(mut self, deadline: Duration) -> Self {
        self.choices.finalize_deadline = Some(deadline);
        self
    }

    /// Registers a function under a name, by which it can be called from any program of the job, also from one that was built apart
    /// ([`call_named`](crate::To::call_named)).
    ///
    /// Several programs make one job when a launcher starts them together: `farside run -n 2 ./one : -n 2 ./another`. Processes that run the
    /// same binary call closures on each other as ever; between others only named functions can be called. The functions are registered
    /// in the processes of the program that registers them; other programs of the job may register others under the same names.
    ///
    /// # Panics
    /// When this job has a function of that name, or the name begins with `farside/`, or a type travels only among processes of one
    /// binary.
    #[track_caller]
    pub fn register<A: Wire, R: Wire>(mut self, name: Named<A, R>, function: fn(&Worker, A) -> R) -> Self {
        self.names.register(name, function);
        self
    }

    /// Starts the processes with these arguments instead of the launcher's own.
    ///
    /// This is for programs with several jobs. A process runs the program from its beginning, so it would always come to the
    /// first of them; arguments of its own can lead it to another. Such a job can also be run repeatedly.
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

    /// Stops the job when it takes longer than this, with all that its processes do before and after `run`. Counts only when
    /// the program starts the job itself.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Throws away what the processes print to the standard output. Counts only when the program starts the job itself.
    pub fn quiet_stdout(mut self) -> Self {
        self.quiet_stdout = true;
        self
    }

    /// Runs `body` on every worker of the job.
    ///
    /// In the launcher this starts the processes and returns when all of them have ended. In each of these it runs the
    /// workers and returns when the whole job has come to rest, and the code behind it is executed there, too.
    ///
    /// *Cost*: about a millisecond for each process.
    ///
    /// # Errors
    /// In the launcher:
    /// - [`Error::JobShape`](crate::Error::JobShape) when there can be no such job, or it does not fit on this machine;
    /// - [`Error::ProcessFailed`](crate::Error::ProcessFailed) with the process that failed first;
    /// - [`Error::JobEnded`](crate::Error::JobEnded) when processes did not come to the job, or it did not come to rest in time;
    /// - [`Error::SecondJob`](crate::Error::SecondJob) when the program has started a job already, and neither has an [entry](Self::entry).
    ///
    /// - [`Error::Rendezvous`](crate::Error::Rendezvous) when processes that another launcher started do not find each other. Process 0 of such a job also
    ///   gets the launcher's errors.
    ///
    /// In a process of the job: the error of its worker, or [`Error::JobEnded`](crate::Error::JobEnded); [`Error::WrongJob`](crate::Error::WrongJob) or [`Error::SecondJob`](crate::Error::SecondJob)
    /// when this is not the job that the process was started for.
    ///
    /// # Panics
    /// In a process whose worker panicked, when the others have been told.
    #[track_caller]
    pub fn run<F>(mut self, body: F) -> Result<()>
    where
        F: Fn(&Worker) -> Result<()> + Send + Sync,
    {
        log_to_stderr()?;
        let site = Location::caller().to_string();
        let manner = if self.entry.is_some() { Manner::Entry } else { Manner::Again };
        if !self.fabric_is_forced {
            self.choices = self.choices.with_forced_fabric(&own_environment)?;
        }
        match child::role(&site, manner, self.choices.clone())? {
            Role::Member(member) => run::run_process(member, self.names, ROOMS, &body),
            Role::Host(member, hosting) => hosting.see_through(|| run::run_process(member, self.names, ROOMS, &body)),
            Role::Launcher => self.launch(site),
        }
    }

    fn launch(self, site: String) -> Result<()> {
        // Whoever is started gets all of it, so that nobody has to come to the same settings again.
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
