//! [`Simulation`]: a whole job inside this program, over a simulated network or shared memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use farside_fabric::clock::{Clock, lock};
use farside_fabric::sim::{SimFabric, SimOptions, SimScript, Trace};
use farside_fabric::{FabricError, ProcessId, Transport};
use farside_sys::topology::{CpuId, CpuSet, bind_current_thread, current_affinity};

use crate::Worker;
use crate::error::{ProcessEnd, Result};
use crate::invoke::named::{Named, Names};
use crate::rooms::ROOMS;
use crate::runtime::run::{Body, run_process};
use crate::wire::Wire;
use farside_launch::control::{LocalControl, ToCoordinator};
use farside_launch::coordinator::{Coordinator, Plan};
use farside_launch::member::{Member, TransportChoice};
use farside_launch::settings::{Check, Choices, Settings, own_environment};

/// The signal that kills a simulated process.
const KILLED: i32 = 9;
/// The longest sleep of the coordinator when nothing is due.
const NAP_MAX: Duration = Duration::from_secs(3600);

/// Runs a job whose processes are groups of threads of this program. The seed determines how the
/// network delays and reorders messages. This is [`Simulation::run`] without options.
///
/// # Errors
/// The verdict: the errors of [`Job::run`](crate::Job::run) in the process that starts the job. A
/// worker that panics is an error here, not a panic.
pub fn simulate<F>(processes: u32, threads: u32, seed: u64, body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    Simulation::new(processes, threads, seed).run(body)?.verdict
}

/// A job inside this program, on a simulated network in virtual time.
///
/// It is the same job that [`Job::run`](crate::Job::run) would start. Nothing is mapped from one
/// process into another, so every access takes the path that it would take between machines. All
/// processes share what `body` borrows, which processes of a real job cannot do.
///
/// Exactly one simulated thread runs at a time. The seed chooses which, and what the network does.
/// So the same seed repeats everything, to the last delivery. For that, the body must follow these
/// rules:
/// - It waits only through Farside. A thread that blocks on another in the system, or spins without
///   [`Worker::progress`], keeps its turn forever.
/// - It holds a lock during a call or a wait only if no other worker wants that lock meanwhile.
/// - No decision depends on real time or on an address.
///
/// The threads share one CPU, as do those that the body starts: to pass a turn to another CPU takes
/// longer.
///
/// Time is virtual. [`Worker::now`] returns it, and deadlines use it. A computation takes no
/// virtual time unless the worker [charges](Worker::charge) it.
///
/// ```
/// use std::time::Duration;
///
/// use farside::{LogGp, SimOptions, Simulation};
///
/// let options = SimOptions { network: LogGp::FDR, delay_max_ns: 0, ..SimOptions::default() };
/// let simulated = Simulation::new(2, 1, 7).options(options).run(|me| {
///     let before = me.now();
///     let work = me.call_return(me.neighbor(1), (), |there, ()| {
///         there.charge(Duration::from_micros(5));
///     })?;
///     work.wait()?;
///     // A microsecond each way, and five for the work.
///     assert!(me.now() - before > Duration::from_micros(7));
///     me.barrier()
/// })?;
/// simulated.verdict?;
/// assert!(simulated.time > Duration::from_micros(7));
/// # Ok::<(), farside::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is simulated before `run`"]
pub struct Simulation {
    choices: Choices,
    seed: u64,
    options: SimOptions,
    deaths: Vec<(Duration, ProcessId)>,
    slow: Vec<(ProcessId, u32)>,
    script: Option<Arc<SimScript>>,
    programs: Programs,
}

/// The programs that the simulated processes claim to run.
#[derive(Clone, Debug)]
struct Programs {
    names: Names,
    /// The processes of other binaries, with the numbers of those.
    others: HashMap<ProcessId, u64>,
}

impl Default for Programs {
    fn default() -> Self {
        Self { names: Names::of_the_library(), others: HashMap::new() }
    }
}

/// The outcome of a simulation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Simulated {
    /// The job's verdict: the result of [`Job::run`](crate::Job::run) in the process that starts
    /// the job.
    pub verdict: Result<()>,
    /// The virtual time that passed.
    pub time: Duration,
    /// A summary of what happened. The same for the same seed.
    pub trace: Trace,
}

impl Simulation {
    /// Returns a job of `processes` processes with `threads` workers each.
    pub fn new(processes: u32, threads: u32, seed: u64) -> Self {
        let choices = Choices { processes: Some(processes), threads: Some(threads), ..Choices::default() };
        Self {
            choices,
            seed,
            options: SimOptions::default(),
            deaths: Vec::new(),
            slow: Vec::new(),
            script: None,
            programs: Programs::default(),
        }
    }

    /// Sets the properties of the network.
    pub fn options(mut self, options: SimOptions) -> Self {
        self.options = options;
        self
    }

    /// Kills a process after this much virtual time. Its threads stop wherever they are, and its
    /// peers see the loss.
    ///
    /// Nothing that those threads own is dropped while the simulation runs, as if the process were
    /// killed. They unwind only after the simulation.
    pub fn kill(mut self, process: ProcessId, after: Duration) -> Self {
        self.deaths.push((after, process));
        self
    }

    /// Lets a script decide when a process dies, or in which order operations take effect. The
    /// body [begins](SimScript::begin) and [ends](SimScript::end) it.
    pub fn script(mut self, script: Arc<SimScript>) -> Self {
        self.script = Some(script);
        self
    }

    /// Makes a process slow: multiplies what its workers [charge](Worker::charge) by `times`.
    pub fn slow_down(mut self, process: ProcessId, times: u32) -> Self {
        self.slow.push((process, times));
        self
    }

    /// Registers a function under a name in all processes, as
    /// [`Job::register`](crate::Job::register) does.
    ///
    /// # Panics
    /// Those of [`Job::register`](crate::Job::register).
    #[track_caller]
    pub fn register<A: Wire, R: Wire>(mut self, name: Named<A, R>, function: fn(&Worker, A) -> R) -> Self {
        self.programs.names.add(name, function);
        self
    }

    /// Makes a process count as one of another binary. Only processes with the same `number` run
    /// the same binary; the default number is 0.
    pub fn binary(mut self, process: ProcessId, number: u64) -> Self {
        self.programs.others.insert(process, number);
        self
    }

    farside_launch::setters! {
        /// Sets the number of threads of each process that share the calls on the process, as
        /// [`Job::pool_threads`](crate::Job::pool_threads) does.
        pool_threads: u32 => pool_threads;

        /// Sets how much memory of each process other processes may allocate. The default is 256
        /// MiB.
        remote_memory_limit: u64 => remote_memory_limit;

        /// Sets the size of the memory that every process has from the start, with
        /// [addresses](crate::GlobalAddress::starter) that all processes know. The default is 4
        /// KiB.
        starter_bytes: u32 => starter_bytes;

        /// Sets how long anything waits for another process, in virtual time. The default is
        /// `FARSIDE_TIMEOUT_S` from the environment, or 30 s.
        deadline: Duration => deadline;
    }

    /// Sets whether accesses are checked, as [`Job::check_accesses`](crate::Job::check_accesses)
    /// does.
    pub fn check_accesses(mut self, check: bool) -> Self {
        self.choices.check = Some(if check { Check::Accesses } else { Check::Nothing });
        self
    }

    /// Runs `body` on every worker of the job, and returns when all of them have ended.
    ///
    /// Any number of simulations can run, one after the other or concurrently.
    ///
    /// *Cost*: three threads and about half a MiB of memory for each process of one worker, besides
    /// what a job of that size takes anyway; about 10 µs of real time for every
    /// [switch](Trace::switches).
    ///
    /// # Errors
    /// [`LaunchError::JobShape`](crate::LaunchError::JobShape) if the job's shape is impossible.
    /// [`Error::Fabric`](crate::Error::Fabric) if a process to be killed or slowed down does not
    /// exist, or memory is short. The outcome of the job itself is in [`Simulated::verdict`].
    pub fn run<F>(self, body: F) -> Result<Simulated>
    where
        F: Fn(&Worker) -> Result<()> + Send + Sync,
    {
        let settings = self.choices.resolve(&own_environment)?;
        let named = self.deaths.iter().map(|(_, process)| process).chain(self.slow.iter().map(|(process, _)| process));
        if let Some(unknown) =
            named.chain(self.programs.others.keys()).find(|process| process.number() >= settings.processes)
        {
            let count = settings.processes;
            return Err(FabricError::NoSuchProcess { process: *unknown, count }.into());
        }
        let starter_bytes = settings.layout().bytes();
        let fabric = SimFabric::in_turns(settings.processes, starter_bytes, self.seed, self.options)?;
        self.slow.iter().for_each(|(process, times)| fabric.slow_down(*process, *times));
        if let Some(script) = self.script {
            fabric.follow(script);
        }
        let ends = (0..settings.processes).map(|process| fabric.endpoint(ProcessId::new(process))).collect();
        let world = World { clock: fabric.clock(), deaths: self.deaths, fabric: Some(&fabric) };
        let _cpu = OneCpu::take();
        let verdict = run_in_this_program(&settings, self.seed, ends, world, &self.programs, &body);
        let time = Duration::from_nanos(fabric.now_ns());
        Ok(Simulated { verdict, time, trace: fabric.trace() })
    }
}

/// The CPU of a simulation. This thread and those that it starts stay on it. They take turns, and a
/// turn that goes to another CPU takes at least twice as long.
struct OneCpu {
    cpu: CpuId,
    before: CpuSet,
}

impl OneCpu {
    /// The number of simulations on each CPU.
    fn taken() -> MutexGuard<'static, BTreeMap<CpuId, u32>> {
        static TAKEN: Mutex<BTreeMap<CpuId, u32>> = Mutex::new(BTreeMap::new());
        lock(&TAKEN)
    }

    /// Takes the CPU with the fewest simulations. None if the system does not let it, which is no
    /// reason to fail.
    fn take() -> Option<Self> {
        let before = current_affinity().ok().filter(|before| before.len() > 1)?;
        let mut taken = Self::taken();
        let cpu = before.iter().min_by_key(|cpu| taken.get(cpu).copied().unwrap_or(0))?;
        bind_current_thread(&CpuSet::from_iter([cpu])).ok()?;
        *taken.entry(cpu).or_default() += 1;
        Some(Self { cpu, before })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        if let Some(count) = Self::taken().get_mut(&self.cpu) {
            *count -= 1;
        }
        // The CPUs were allowed before, so at most one that was taken offline is missing.
        let _ = bind_current_thread(&self.before);
    }
}

/// The surroundings of the processes of a job in this program.
#[derive(Debug)]
struct World<'f> {
    clock: Clock,
    /// The processes to kill, with the times.
    deaths: Vec<(Duration, ProcessId)>,
    /// The simulated network, if the job runs on one.
    fabric: Option<&'f SimFabric>,
}

/// Runs a job whose processes are threads of this program, each with its endpoint of a fabric.
fn run_in_this_program(
    settings: &Settings,
    job_id: u64,
    endpoints: Vec<Arc<dyn Transport>>,
    world: World<'_>,
    programs: &Programs,
    body: &Body<'_>,
) -> Result<()> {
    let coordinator = Coordinator::new(Plan {
        processes: settings.processes,
        job_id,
        secret: [0; 16],
        start_deadline: settings.deadline,
        finalize_deadline: settings.finalize_deadline,
    });
    let news = Arc::new(News { clock: world.clock.clone(), queue: Mutex::default(), count: AtomicU32::new(0) });
    let mut links = Vec::new();
    let mut members = Vec::new();
    for (process, endpoint) in (0..).map(ProcessId::new).zip(endpoints) {
        let control = Arc::new(link(process, Arc::downgrade(&endpoint), news.clone()));
        links.push(control.clone());
        let transport = TransportChoice::Ready(endpoint);
        let build = programs.others.get(&process).copied().unwrap_or(0);
        members.push(Member { process, settings: settings.clone(), control, transport, kill_plan: None, build });
    }
    let seat = world.clock.seat();
    std::thread::scope(|scope| {
        seat.take(|| {
            let mut threads = Vec::new();
            for member in members {
                let TransportChoice::Ready(end) = &member.transport else { unreachable!("it was made ready") };
                let seat = end.clock().seat();
                let news = &news;
                threads.push(scope.spawn(move || {
                    seat.take(|| {
                        let process = member.process;
                        let end = run_member(member, programs.names.clone(), body);
                        news.tell(process, Said::Ended(end));
                    });
                }));
            }
            let verdict = coordinate(coordinator, &links, &news, &world);
            if let Some(fabric) = world.fabric {
                fabric.end();
            }
            for thread in threads {
                // Joining fails only if the process was killed before the thread began.
                let _ = thread.join();
            }
            verdict
        })
    })
}

/// Messages from processes to the coordinator.
#[derive(Debug)]
struct News {
    clock: Clock,
    queue: Mutex<VecDeque<(ProcessId, Said)>>,
    /// The number of messages so far. The coordinator sleeps on it.
    count: AtomicU32,
}

#[derive(Debug)]
enum Said {
    Message(ToCoordinator),
    Ended(ProcessEnd),
}

impl News {
    fn tell(&self, process: ProcessId, said: Said) {
        lock(&self.queue).push_back((process, said));
        // SYNC: release, for the acquire in `wait`.
        self.count.fetch_add(1, Ordering::Release);
        self.clock.wake(&self.count);
    }

    /// Returns the next message, or `None` if none arrives within `time`.
    fn wait(&self, time: Duration) -> Option<(ProcessId, Said)> {
        let seen = self.count.load(Ordering::Acquire);
        if let Some(told) = lock(&self.queue).pop_front() {
            return Some(told);
        }
        self.clock.sleep(&self.count, seen, time);
        lock(&self.queue).pop_front()
    }
}

/// Returns a process's link to the coordinator. It does not keep the process's endpoint open.
fn link(process: ProcessId, endpoint: Weak<dyn Transport>, news: Arc<News>) -> LocalControl {
    LocalControl::new(
        move |message| news.tell(process, Said::Message(message)),
        move || {
            if let Some(endpoint) = endpoint.upgrade() {
                endpoint.wake();
            }
        },
    )
}

/// Runs one process, and returns how it ended, as a real process would have.
fn run_member(member: Member, names: Names, body: &Body<'_>) -> ProcessEnd {
    // A panic ends the simulated process, so nothing uses the state that it left behind. The
    // processes share what `body` borrows; the owner of that learns of the panic from the verdict.
    match catch_unwind(AssertUnwindSafe(|| run_process(member, names, ROOMS, body))) {
        Ok(Ok(())) => ProcessEnd::Exited(0),
        Ok(Err(_)) => ProcessEnd::Exited(1),
        Err(_) => ProcessEnd::Exited(101),
    }
}

fn coordinate(mut coordinator: Coordinator, links: &[Arc<LocalControl>], news: &News, world: &World<'_>) -> Result<()> {
    let started = world.clock.now();
    let elapsed = || world.clock.now().saturating_duration_since(started);
    let mut deaths = world.deaths.clone();
    deaths.sort_by_key(|(after, _)| std::cmp::Reverse(*after));
    let mut is_told = false;
    loop {
        if let Some(process) = world.fabric.and_then(SimFabric::killed_by_script).filter(|_| !is_told) {
            is_told = true;
            coordinator.ended(process, ProcessEnd::Killed(KILLED), elapsed());
        }
        while let Some((after, process)) = deaths.pop_if(|(after, _)| *after <= elapsed()) {
            if let Some(fabric) = world.fabric {
                fabric.kill(process);
            }
            coordinator.ended(process, ProcessEnd::Killed(KILLED), after);
        }
        while let Some((process, message)) = coordinator.next_message() {
            links[process.index()].deliver(Arc::unwrap_or_clone(message));
        }
        if let Some(verdict) = coordinator.verdict() {
            return Ok(verdict?);
        }
        let next = coordinator.next_tick().into_iter().chain(deaths.last().map(|(after, _)| *after)).min();
        let patience = next.map_or(NAP_MAX, |at| at.saturating_sub(elapsed()));
        match news.wait(patience) {
            Some((process, Said::Message(message))) => coordinator.said(process, message, elapsed()),
            Some((process, Said::Ended(end))) => coordinator.ended(process, end, elapsed()),
            None => {}
        }
        coordinator.tick(elapsed());
    }
}

/// Runs a job whose processes are threads of this program but use shared memory, as those of a real
/// job do. For tests that inspect internals.
#[cfg(test)]
pub(crate) fn share_memory<F>(processes: u32, body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    share_memory_among(processes, &[], body)
}

/// Runs a job as [`share_memory`] does, whose end waits only so long for the last calls.
#[cfg(test)]
pub(crate) fn share_memory_within<F>(processes: u32, finalize_deadline: Duration, body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    share_memory_as(Choices { finalize_deadline: Some(finalize_deadline), ..Choices::default() }, processes, &[], body)
}

/// Runs a job as [`share_memory`] does, with some processes of another binary.
#[cfg(test)]
pub(crate) fn share_memory_among<F>(processes: u32, others: &[u32], body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    share_memory_as(Choices::default(), processes, others, body)
}

#[cfg(test)]
fn share_memory_as<F>(choices: Choices, processes: u32, others: &[u32], body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    let others = others.iter().map(|other| (ProcessId::new(*other), 1)).collect();
    let programs = &Programs { others, ..Programs::default() };
    use farside_fabric::shm::{ShmConfig, ShmEndpoint};

    let settings = Choices { processes: Some(processes), ..choices }.resolve(&|_| None)?;
    let starter_bytes = settings.layout().bytes();
    let random = farside_sys::process::random_bytes().expect("the system has random bytes");
    let job_id = u64::from_le_bytes(random);
    let open = |process| -> Result<Arc<dyn Transport>> {
        let process = ProcessId::new(process);
        let secret = [0; 16];
        Ok(ShmEndpoint::open(ShmConfig {
            process,
            process_count: processes,
            job_id,
            secret,
            starter_bytes,
            user_by_system_call: true,
        })?)
    };
    let endpoints = (0..processes).map(open).collect::<Result<_>>()?;
    let world = World { clock: Clock::real(), deaths: Vec::new(), fabric: None };
    run_in_this_program(&settings, job_id, endpoints, world, programs, &body)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::{Error, LaunchError};

    #[test]
    fn every_worker_of_every_process_runs_once() {
        for (processes, threads) in [(1, 1), (2, 1), (3, 2), (4, 1), (5, 3)] {
            let runs: Vec<AtomicU32> = (0..processes * threads).map(|_| AtomicU32::new(0)).collect();
            simulate(processes, threads, 1, |me| {
                runs[me.id().index()].fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{runs:?}");
        }
    }

    #[test]
    fn the_first_failure_is_the_verdict() {
        let verdict = simulate(3, 1, 2, |me| match me.id().number() {
            1 => Err(Error::JobEnded { why: "I would rather not".into() }),
            _ => Ok(()),
        });
        let Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Reported(why) })) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(process, ProcessId::new(1));
        assert!(why.contains("rather not"), "{why}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let verdict = simulate(2, 2, 3, |me| {
            assert_ne!(me.id().number(), 3, "number three has to go");
            Ok(())
        });
        let Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Reported(why) })) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(process, ProcessId::new(1));
        assert!(why.contains("number three has to go"), "{why}");
    }

    #[test]
    fn an_impossible_shape_is_an_error() {
        assert!(matches!(simulate(0, 1, 0, |_| Ok(())), Err(Error::Launch(LaunchError::JobShape { .. }))));
        assert!(matches!(simulate(1, 0, 0, |_| Ok(())), Err(Error::Launch(LaunchError::JobShape { .. }))));
    }
}
