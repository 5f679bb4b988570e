//! The shape and the limits of a job, from whoever chose them to the processes that keep to them.
//!
//! The program chooses with the methods of [`Job`](crate::Job), and the command `farside run` with its options, which
//! win. A launcher hands what is chosen to the processes in their environment; what is left open they fill in alike.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use farside_fabric::route::FabricChoice;
use farside_sys::limits;
use farside_sys::topology::Bind;

use crate::control::FABRIC_BYTES_MAX;
use crate::error::{LaunchError as Error, Result};
use crate::layout::HomeLayout;
use crate::nic::Nics;
use crate::ring_options::RingOptions;

/// A global address names its process in 18 bits, of which 0 stands for null and the last is kept free.
const PROCESSES_MAX: u32 = (1 << 18) - 2;
/// What a process takes before it does anything: its text and stacks as far as they are touched, and a first ring.
const PROCESS_BYTES_MIN: u64 = 4 << 20;
/// Open files of whoever runs a job, besides those for its processes: three standard ones, and as many again for the libraries and for starting a process.
const OWN_FILES: u64 = 16;

/// As long as anything may wait: 136 years, which may be added to any point in time. Who says `Duration::MAX` means that.
pub const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Memory of each process whose addresses everybody knows, unless chosen.
pub const STARTER_BYTES: u32 = 4096;

/// The default deadline, set by people.
const TIMEOUT_S: &str = "FARSIDE_TIMEOUT_S";
/// What carries the bytes, set by people or by a launcher.
const FABRIC: &str = "FARSIDE_FABRIC";
const PROCESSES: &str = "FARSIDE_PROCESSES";
const THREADS: &str = "FARSIDE_THREADS";
const SERVICE_THREADS: &str = "FARSIDE_SERVICE_THREADS";
const CONSUMER_THREADS: &str = "FARSIDE_CONSUMER_THREADS";
const WAITING_THREADS: &str = "FARSIDE_WAITING_THREADS";
const BIND: &str = "FARSIDE_BIND";
const NIC: &str = "FARSIDE_NIC";
const RING: &str = "FARSIDE_RING";
const RING_CAP_BYTES: &str = "FARSIDE_RING_CAP_BYTES";
const QUEUE_CAP_BYTES: &str = "FARSIDE_QUEUE_CAP_BYTES";
const REMOTE_MEMORY_LIMIT: &str = "FARSIDE_REMOTE_MEMORY_LIMIT";
const STARTER: &str = "FARSIDE_STARTER_BYTES";
const DEADLINE_MS: &str = "FARSIDE_DEADLINE_MS";
const FINALIZE_MS: &str = "FARSIDE_FINALIZE_MS";
/// What is checked, set by people or by a launcher.
const CHECK: &str = "FARSIDE_CHECK";

/// The variables by which a launcher hands on what was chosen.
pub const VARIABLES: [&str; 16] = [
    PROCESSES,
    THREADS,
    SERVICE_THREADS,
    CONSUMER_THREADS,
    WAITING_THREADS,
    BIND,
    FABRIC,
    NIC,
    RING,
    RING_CAP_BYTES,
    QUEUE_CAP_BYTES,
    REMOTE_MEMORY_LIMIT,
    STARTER,
    DEADLINE_MS,
    FINALIZE_MS,
    CHECK,
];

/// The threads that it takes to have so many consumers.
pub fn threads_of_pool(consumers: u32) -> u64 {
    if consumers == 0 { 0 } else { u64::from(consumers) + 1 }
}

/// The address of this machine at which libfabric is to be reached.
pub const ADDRESS: &str = "FARSIDE_ADDRESS";

/// What each process of a machine adds to the time in which all of them open the fabric, when it is busy. One takes 100 ms of processor time:
/// libfabric has all its providers look for their devices, and that of `verbs` reads the whole of `/proc/kallsyms` for that, twice. With 21
/// processes at once on two CPUs that do something else, too, each took 8 s (measured).
const OPENING_EACH: Duration = Duration::from_millis(500);

/// How much longer than other things opening the fabric may take, where so many processes of a machine do so at once.
pub fn opening_time(processes: u32) -> Duration {
    OPENING_EACH.saturating_mul(processes)
}

/// Looks up a variable of an environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Looks up a variable of this process.
pub fn own_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// What is checked while a job runs, to find mistakes of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// Nothing.
    #[default]
    Nothing,
    /// Accesses to memory that others reach: see [`Job::check_accesses`](crate::Job::check_accesses).
    Accesses,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Accesses => "accesses",
        })
    }
}

impl FromStr for Check {
    type Err = UnknownCheck;

    fn from_str(text: &str) -> Result<Self, UnknownCheck> {
        match text {
            "nothing" => Ok(Self::Nothing),
            "accesses" => Ok(Self::Accesses),
            _ => Err(UnknownCheck),
        }
    }
}

/// What was to be checked has no such name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what can be checked is `accesses` or `nothing`")]
pub struct UnknownCheck;

/// What a job is like: every process of it has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Processes of the job, at least one.
    pub processes: u32,
    /// Workers of each process, at least one.
    pub threads: u32,
    /// Threads of each process that only run what others call on them.
    pub service_threads: u32,
    /// Threads of each process that share the calls on the process.
    pub consumer_threads: u32,
    /// Threads of each process that share those which may wait.
    pub waiting_threads: u32,
    /// Where the workers run.
    pub bind: Bind,
    /// What carries the bytes.
    pub fabric: FabricChoice,
    /// Which network devices the processes use; those that libfabric finds best if none.
    pub nics: Option<Nics>,
    /// How large the ring from one worker to another is, if these do not say otherwise.
    pub ring: RingOptions,
    /// Memory for all rings that lead to one worker.
    pub ring_cap_bytes: usize,
    /// Memory for the calls that wait at one worker to be sent to one destination.
    pub queue_cap_bytes: usize,
    /// Memory of each process that others may have in use.
    pub remote_memory_limit: u64,
    /// Memory of each process whose address everybody knows.
    pub starter_bytes: u32,
    /// How long anything waits for another process.
    pub deadline: Duration,
    /// How long the job takes at most to come to rest when its workers have returned.
    pub finalize_deadline: Duration,
    /// What is checked while it runs.
    pub check: Check,
}

/// What somebody chose of the settings, and what is left open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    pub processes: Option<u32>,
    pub threads: Option<u32>,
    pub service_threads: Option<u32>,
    pub consumer_threads: Option<u32>,
    pub waiting_threads: Option<u32>,
    pub bind: Option<Bind>,
    pub fabric: Option<FabricChoice>,
    pub nics: Option<Nics>,
    pub ring: Option<RingOptions>,
    pub ring_cap_bytes: Option<usize>,
    pub queue_cap_bytes: Option<usize>,
    pub remote_memory_limit: Option<u64>,
    pub starter_bytes: Option<u32>,
    pub deadline: Option<Duration>,
    pub finalize_deadline: Option<Duration>,
    pub check: Option<Check>,
}

impl Choices {
    /// These, and where they are open the others.
    pub fn or(self, others: Choices) -> Choices {
        Choices {
            processes: self.processes.or(others.processes),
            threads: self.threads.or(others.threads),
            service_threads: self.service_threads.or(others.service_threads),
            consumer_threads: self.consumer_threads.or(others.consumer_threads),
            waiting_threads: self.waiting_threads.or(others.waiting_threads),
            bind: self.bind.or(others.bind),
            fabric: self.fabric.or(others.fabric),
            nics: self.nics.or(others.nics),
            ring: self.ring.or(others.ring),
            ring_cap_bytes: self.ring_cap_bytes.or(others.ring_cap_bytes),
            queue_cap_bytes: self.queue_cap_bytes.or(others.queue_cap_bytes),
            remote_memory_limit: self.remote_memory_limit.or(others.remote_memory_limit),
            starter_bytes: self.starter_bytes.or(others.starter_bytes),
            deadline: self.deadline.or(others.deadline),
            finalize_deadline: self.finalize_deadline.or(others.finalize_deadline),
            check: self.check.or(others.check),
        }
    }

    /// With the fabric that `FARSIDE_FABRIC` forces, if it is set, whatever was chosen before.
    ///
    /// # Errors
    /// [`Error::JobEnded`] when it holds no fabric's name.
    pub fn with_forced_fabric(mut self, lookup: Lookup<'_>) -> Result<Choices> {
        self.fabric = variable(lookup, FABRIC)?.or(self.fabric);
        Ok(self)
    }

    /// Fills in what is open, the deadline from `FARSIDE_TIMEOUT_S` if that is set.
    ///
    /// # Errors
    /// [`Error::JobShape`]; [`Error::RingOptions`]; [`Error::JobEnded`] when `FARSIDE_TIMEOUT_S` is no time.
    pub fn resolve(self, lookup: Lookup<'_>) -> Result<Settings> {
        let deadline = match self.deadline {
            Some(deadline) => deadline.min(FOREVER),
            None => default_deadline(lookup)?.min(FOREVER),
        };
        let settings = Settings {
            processes: self.processes.unwrap_or(1),
            threads: self.threads.unwrap_or(1),
            service_threads: self.service_threads.unwrap_or(0),
            consumer_threads: self.consumer_threads.unwrap_or(0),
            waiting_threads: self.waiting_threads.unwrap_or(0),
            bind: self.bind.unwrap_or_default(),
            fabric: self.fabric.unwrap_or_default(),
            nics: match self.nics {
                None => variable(lookup, NIC)?,
                nics => nics,
            },
            ring: self.ring.unwrap_or_default(),
            ring_cap_bytes: self.ring_cap_bytes.unwrap_or(8 << 20),
            queue_cap_bytes: self.queue_cap_bytes.unwrap_or(1 << 20),
            remote_memory_limit: self.remote_memory_limit.unwrap_or(256 << 20),
            starter_bytes: self.starter_bytes.unwrap_or(STARTER_BYTES),
            deadline,
            finalize_deadline: self.finalize_deadline.unwrap_or(Duration::from_secs(30)).min(FOREVER),
            check: match self.check {
                None => variable(lookup, CHECK)?.unwrap_or_default(),
                Some(check) => check,
            },
        };
        settings.check_shape()?;
        settings.ring.check(settings.ring_cap_bytes)?;
        Ok(settings)
    }

    /// The variables that tell a process what was chosen. Those that are missing must not be set.
    pub fn to_environment(&self) -> Vec<(&'static str, String)> {
        fn text<T: Display>(value: Option<T>) -> Option<String> {
            value.map(|value| value.to_string())
        }
        let all = [
            (PROCESSES, text(self.processes)),
            (THREADS, text(self.threads)),
            (SERVICE_THREADS, text(self.service_threads)),
            (CONSUMER_THREADS, text(self.consumer_threads)),
            (WAITING_THREADS, text(self.waiting_threads)),
            (BIND, text(self.bind)),
            (FABRIC, text(self.fabric.as_ref())),
            (NIC, text(self.nics.as_ref())),
            (RING, text(self.ring)),
            (RING_CAP_BYTES, text(self.ring_cap_bytes)),
            (QUEUE_CAP_BYTES, text(self.queue_cap_bytes)),
            (REMOTE_MEMORY_LIMIT, text(self.remote_memory_limit)),
            (STARTER, text(self.starter_bytes)),
            (DEADLINE_MS, text(self.deadline.map(whole_ms))),
            (FINALIZE_MS, text(self.finalize_deadline.map(whole_ms))),
            (CHECK, text(self.check)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// What the launcher of this process chose.
    ///
    /// # Errors
    /// [`Error::JobEnded`] when a variable holds what no launcher writes.
    pub fn from_environment(lookup: Lookup<'_>) -> Result<Choices> {
        Ok(Choices {
            processes: variable(lookup, PROCESSES)?,
            threads: variable(lookup, THREADS)?,
            service_threads: variable(lookup, SERVICE_THREADS)?,
            consumer_threads: variable(lookup, CONSUMER_THREADS)?,
            waiting_threads: variable(lookup, WAITING_THREADS)?,
            bind: variable(lookup, BIND)?,
            fabric: variable(lookup, FABRIC)?,
            nics: variable(lookup, NIC)?,
            ring: variable(lookup, RING)?,
            ring_cap_bytes: variable(lookup, RING_CAP_BYTES)?,
            queue_cap_bytes: variable(lookup, QUEUE_CAP_BYTES)?,
            remote_memory_limit: variable(lookup, REMOTE_MEMORY_LIMIT)?,
            starter_bytes: variable(lookup, STARTER)?,
            deadline: variable(lookup, DEADLINE_MS)?.map(Duration::from_millis),
            finalize_deadline: variable(lookup, FINALIZE_MS)?.map(Duration::from_millis),
            check: variable(lookup, CHECK)?,
        })
    }
}

impl From<Settings> for Choices {
    fn from(settings: Settings) -> Self {
        Self {
            processes: Some(settings.processes),
            threads: Some(settings.threads),
            service_threads: Some(settings.service_threads),
            consumer_threads: Some(settings.consumer_threads),
            waiting_threads: Some(settings.waiting_threads),
            bind: Some(settings.bind),
            fabric: Some(settings.fabric),
            nics: settings.nics,
            ring: Some(settings.ring),
            ring_cap_bytes: Some(settings.ring_cap_bytes),
            queue_cap_bytes: Some(settings.queue_cap_bytes),
            remote_memory_limit: Some(settings.remote_memory_limit),
            starter_bytes: Some(settings.starter_bytes),
            deadline: Some(settings.deadline),
            finalize_deadline: Some(settings.finalize_deadline),
            check: Some(settings.check),
        }
    }
}

/// Reads a variable that must hold a `T`, or be unset.
///
/// # Errors
/// [`Error::JobEnded`] with the name and the text.
pub fn variable<T>(lookup: Lookup<'_>, name: &str) -> Result<Option<T>>
where
    T: FromStr,
    T::Err: Display,
{
    let Some(text) = lookup(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    match text.parse() {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(unusable(name, &text, &error)),
    }
}

fn unusable(name: &str, text: &str, error: &dyn Display) -> Error {
    Error::JobEnded { why: format!("{name}={text:?} in the environment is of no use ({error}): correct or unset it") }
}

fn default_deadline(lookup: Lookup<'_>) -> Result<Duration> {
    let Some(seconds) = variable::<f64>(lookup, TIMEOUT_S)? else { return Ok(Duration::from_secs(30)) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(deadline) if deadline > Duration::ZERO => Ok(deadline),
        _ => Err(unusable(TIMEOUT_S, &seconds.to_string(), &"seconds above 0 are expected")),
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Settings {
    /// Threads of each process that only run what others call on them, of all kinds.
    pub fn threads_without_body(&self) -> u64 {
        u64::from(self.service_threads) + threads_of_pool(self.consumer_threads) + threads_of_pool(self.waiting_threads)
    }

    /// Can there be such a job at all?
    fn check_shape(&self) -> Result<()> {
        if self.processes == 0 {
            return Err(self.refused("at least one process is needed".into()));
        }
        if self.threads == 0 {
            return Err(self.refused("each process needs at least one worker thread".into()));
        }
        if self.processes > PROCESSES_MAX {
            return Err(self.refused(format!("at most {PROCESSES_MAX} processes can be told apart")));
        }
        // Every callable thread and every process is a source of rings, and all of them are counted in 32 bits.
        let sources = u64::from(self.processes) * (u64::from(self.threads) + self.threads_without_body() + 1);
        if sources > u64::from(u32::MAX) {
            return Err(self.refused(format!(
                "with {} service threads each they have {sources} names, and only {} can be told apart",
                self.threads_without_body(),
                u32::MAX
            )));
        }
        if self.fabric.to_string().len() > FABRIC_BYTES_MAX {
            return Err(self.refused(format!("no fabric has a name of more than {FABRIC_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// Does the job fit on this machine, as far as that is known before it is tried?
    ///
    /// # Errors
    /// [`Error::JobShape`] with the numbers.
    pub fn check_limits(&self, limits: &Limits) -> Result<()> {
        let processes = u64::from(self.processes);
        // The main thread, the workers, the user's service threads and the library's own.
        let tasks = processes * (u64::from(self.threads) + self.threads_without_body() + 2);
        if let Some(max) = limits.tasks.filter(|max| tasks > *max) {
            return Err(self.refused(format!(
                "they make {tasks} threads, and this user may have {max}: start fewer, or raise `ulimit -u`"
            )));
        }
        // For each process a control socket and a handle on its end.
        self.check_open_files("the launcher", processes * 2, limits)?;
        let process_bytes = PROCESS_BYTES_MIN + HomeLayout::of(self).bytes() as u64;
        let bytes = processes.saturating_mul(process_bytes);
        if bytes > limits.memory_bytes {
            return Err(self.refused(format!(
                "they need at least {} MiB of memory ({} MiB each), and {} MiB are available: start fewer",
                bytes >> 20,
                process_bytes >> 20,
                limits.memory_bytes >> 20
            )));
        }
        Ok(())
    }

    /// Whether `who` may hold so many files open for the processes.
    ///
    /// # Errors
    /// [`Error::JobShape`] with the numbers.
    pub fn check_open_files(&self, who: &str, for_processes: u64, limits: &Limits) -> Result<()> {
        let files = for_processes + OWN_FILES;
        match limits.open_files.filter(|max| files > *max) {
            Some(max) => Err(self.refused(format!(
                "{who} would hold {files} files open, and may {max}: start fewer, or raise `ulimit -n`"
            ))),
            None => Ok(()),
        }
    }

    fn refused(&self, why: String) -> Error {
        Error::JobShape { processes: self.processes, threads: self.threads, why }
    }
}

/// What a machine lets its user have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processes and threads.
    tasks: Option<u64>,
    /// Open files of one process.
    open_files: Option<u64>,
    /// Memory.
    memory_bytes: u64,
}

impl Limits {
    /// Those of this process, now.
    pub fn here() -> Self {
        // The kernel does not count the superuser's processes.
        let counted = farside_sys::process::user_id() != 0;
        Self {
            tasks: limits::max_user_processes().filter(|_| counted),
            open_files: limits::max_open_files(),
            memory_bytes: limits::available_memory_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn resolve(choices: Choices) -> Result<Settings> {
        choices.resolve(&|_| None)
    }

    fn shape(processes: u32, threads: u32) -> Choices {
        Choices { processes: Some(processes), threads: Some(threads), ..Choices::default() }
    }

    fn why(result: Result<impl std::fmt::Debug>) -> String {
        match result.unwrap_err() {
            Error::JobShape { why, .. } | Error::JobEnded { why } | Error::RingOptions { why } => why,
            other => panic!("another error: {other}"),
        }
    }

    #[test]
    fn what_is_left_open_has_a_default() {
        let settings = resolve(Choices::default()).unwrap();
        assert_eq!((settings.processes, settings.threads, settings.service_threads), (1, 1, 0));
        assert_eq!((settings.ring_cap_bytes, settings.queue_cap_bytes), (8 << 20, 1 << 20));
        assert_eq!(settings.deadline, Duration::from_secs(30));
    }

    #[test]
    fn the_first_choice_wins() {
        let chosen = shape(4, 2).or(Choices { processes: Some(9), bind: Some(Bind::Core), ..Choices::default() });
        let settings = resolve(chosen).unwrap();
        assert_eq!((settings.processes, settings.threads, settings.bind), (4, 2, Bind::Core));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert!(why(resolve(shape(0, 1))).contains("at least one process"));
        assert!(why(resolve(shape(1, 0))).contains("at least one worker"));
        assert!(why(resolve(shape(PROCESSES_MAX + 1, 1))).contains("262142"));
        assert!(why(resolve(shape(PROCESSES_MAX, u32::MAX))).contains("told apart"));
        assert!(why(resolve(shape(1, u32::MAX))).contains("told apart"));
        resolve(shape(PROCESSES_MAX, 1)).unwrap();
        resolve(shape(1, u32::MAX - 1)).unwrap();
    }

    #[test]
    fn what_does_not_fit_on_the_machine_is_refused_with_numbers() {
        let plenty = Limits { tasks: None, open_files: None, memory_bytes: u64::MAX };
        let settings = resolve(shape(100, 3)).unwrap();
        settings.check_limits(&plenty).unwrap();

        let tasks = |tasks| settings.check_limits(&Limits { tasks: Some(tasks), ..plenty });
        tasks(500).unwrap();
        assert!(why(tasks(499)).contains("500 threads, and this user may have 499"));

        let files = |files| settings.check_limits(&Limits { open_files: Some(files), ..plenty });
        files(216).unwrap();
        assert!(why(files(215)).contains("`ulimit -n`"));

        let needed = 100 * (PROCESS_BYTES_MIN + HomeLayout::of(&settings).bytes() as u64);
        let memory = |memory_bytes| settings.check_limits(&Limits { memory_bytes, ..plenty });
        memory(needed).unwrap();
        assert!(why(memory(needed - 1)).contains("start fewer"));
    }

    #[test]
    fn a_small_job_fits_here() {
        resolve(shape(2, 1)).unwrap().check_limits(&Limits::here()).unwrap();
    }

    #[test]
    fn the_environment_sets_the_default_deadline() {
        let with = |text: &'static str, choices: Choices| {
            choices.resolve(&|name| (name == TIMEOUT_S).then(|| text.into())).map(|settings| settings.deadline)
        };
        assert_eq!(with("2.5", Choices::default()).unwrap(), Duration::from_millis(2500));
        let chosen = Choices { deadline: Some(Duration::from_secs(7)), ..Choices::default() };
        assert_eq!(with("2.5", chosen).unwrap(), Duration::from_secs(7));
        for text in ["", "soon", "0", "-1", "NaN", "inf", "1e300"] {
            assert!(why(with(text, Choices::default())).contains(TIMEOUT_S), "{text}");
        }
    }

    #[test]
    fn garbage_in_the_environment_is_an_error_that_names_it() {
        // (Any text without a comma is a device's name.)
        for name in VARIABLES.into_iter().filter(|name| *name != NIC) {
            let parsed = Choices::from_environment(&|asked| (asked == name).then(|| "x1".into()));
            assert!(why(parsed).contains(&format!("{name}=\"x1\"")));
        }
    }

    fn any_choices() -> impl Strategy<Value = Choices> {
        let bind = prop_oneof![Just(Bind::None), Just(Bind::Core), Just(Bind::Numa)];
        let numbers = any::<(Option<u32>, Option<u32>, Option<u32>, Option<usize>, Option<usize>)>();
        let times = any::<(Option<u64>, Option<u64>, Option<u64>)>();
        let fabric =
            prop_oneof![Just("auto"), Just("shm"), Just("ofi"), Just("ofi:tcp")].prop_map(|name| name.parse().unwrap());
        let ring = any::<usize>().prop_map(|chunk_bytes| RingOptions { chunk_bytes, ..RingOptions::default() });
        let nics = prop::option::of(Just("eth0,mlx5_0".parse::<Nics>().unwrap()));
        let options = (nics, prop::option::of(bind), prop::option::of(fabric), prop::option::of(ring));
        (numbers, options, times).prop_map(|(numbers, (nics, bind, fabric, ring), times)| Choices {
            processes: numbers.0,
            threads: numbers.1,
            service_threads: numbers.2,
            consumer_threads: numbers.3.map(|bytes| bytes as u32),
            waiting_threads: numbers.4.map(|bytes| bytes as u32),
            bind,
            fabric,
            nics,
            ring,
            ring_cap_bytes: numbers.3,
            queue_cap_bytes: numbers.4,
            remote_memory_limit: times.2,
            starter_bytes: numbers.2,
            deadline: times.0.map(Duration::from_millis),
            finalize_deadline: times.1.map(Duration::from_millis),
            check: [None, Some(Check::Nothing), Some(Check::Accesses)][numbers.3.unwrap_or_default() % 3],
        })
    }

    proptest! {
        #[test]
        fn choices_survive_the_environment(choices in any_choices()) {
            let environment: HashMap<_, _> = choices.to_environment().into_iter().collect();
            prop_assert!(environment.keys().all(|name| VARIABLES.contains(name)));
            let read = Choices::from_environment(&|name| environment.get(name).map(OsString::from)).unwrap();
            prop_assert_eq!(read, choices);
        }

        #[test]
        fn resolving_never_panics(choices in any_choices()) {
            let _ = resolve(choices);
        }
    }
}
