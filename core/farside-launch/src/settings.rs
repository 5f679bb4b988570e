//! The settings of a job: one table, which the launcher passes on to the processes.
//!
//! The program chooses with the methods of `farside::Job`. The options of the command `farside run`
//! win over the program. The launcher passes the choices to the processes in their environment.
//! Each process gives the rest the same defaults.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use farside_fabric::route::FabricChoice;
use farside_sys::limits;
use farside_sys::topology::Bind;

use crate::control::FABRIC_BYTES_MAX;
use crate::error::{LaunchError as Error, Result};
use crate::layout::{HomeLayout, Shape};
use crate::nic::Nics;
use crate::ring_options::RingOptions;

/// A global address has 18 bits for its process. The value 0 stands for null and the last value is
/// unused.
const PROCESSES_MAX: u32 = (1 << 18) - 2;
/// Least memory of a process: the touched parts of its text and stacks, and a first ring.
const PROCESS_BYTES_MIN: u64 = 4 << 20;
/// Open files of the launcher, besides those for its processes: three standard streams, and some
/// for libraries and for starting a process.
const OWN_FILES: u64 = 16;

/// The longest time that anything waits: 136 years, which can be added to any point in time.
/// `Duration::MAX` is clamped to it.
pub const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Default size of the memory of each process that has well-known addresses.
pub const STARTER_BYTES: u32 = 4096;

/// The default deadline in seconds, set by people.
const TIMEOUT_S: &str = "FARSIDE_TIMEOUT_S";

/// The address of this machine that libfabric listens at.
pub const ADDRESS: &str = "FARSIDE_ADDRESS";

/// Extra time that each process of a machine may need to open the fabric when the machine is busy.
/// One process takes 100 ms of processor time: libfabric lets each provider search for its devices,
/// and `verbs` reads the whole of `/proc/kallsyms` twice. With 21 processes at once on two busy
/// CPUs, each took 8 s (measured).
const OPENING_EACH: Duration = Duration::from_millis(500);

/// Extra time for opening the fabric when `processes` processes of a machine do so at once.
pub fn opening_time(processes: u32) -> Duration {
    OPENING_EACH.saturating_mul(processes)
}

/// Looks up a variable of an environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Looks up a variable of this process.
pub fn own_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// A check that runs with a job to find mistakes of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// Nothing.
    #[default]
    Nothing,
    /// Conflicting accesses to shared memory: `Job::check_accesses` describes it.
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

/// The name of a check is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `accesses` or `nothing`")]
pub struct UnknownCheck;

/// A value of a setting as text in the environment.
trait Setting: Sized {
    fn to_text(&self) -> String;

    /// # Errors
    /// What was expected instead.
    fn from_text(text: &str) -> Result<Self, String>;
}

/// Settings whose `Display` and `FromStr` agree.
macro_rules! as_displayed {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn to_text(&self) -> String {
                self.to_string()
            }

            fn from_text(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: <$type as FromStr>::Err| error.to_string())
            }
        }
    )*};
}

as_displayed!(u32, u64, usize, Bind, FabricChoice, Nics, RingOptions, Check);

/// Whole milliseconds.
impl Setting for Duration {
    fn to_text(&self) -> String {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX).to_string()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        u64::from_text(text).map(Self::from_millis)
    }
}

/// The table of settings. A line has the documentation, the name, the type, the environment
/// variable and the default. A setting without a default stays open.
macro_rules! settings {
    (
        with default { $($(#[$doc:meta])* $name:ident: $type:ty, $variable:literal, $default:expr;)* }
        without default { $($(#[$open_doc:meta])* $open:ident: $open_type:ty, $open_variable:literal;)* }
    ) => {
        /// The settings of a job. They are the same in each of its processes.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[$doc])* pub $name: $type,)*
            $($(#[$open_doc])* pub $open: Option<$open_type>,)*
        }

        /// Chosen settings. `None` leaves a setting open.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Choices {
            $($(#[$doc])* pub $name: Option<$type>,)*
            $($(#[$open_doc])* pub $open: Option<$open_type>,)*
        }

        /// The variables by which a launcher passes on the choices.
        pub const VARIABLES: &[&str] = &[$($variable,)* $($open_variable,)*];

        impl Choices {
            /// Returns these choices, and those of `others` where these are open.
            #[must_use]
            pub fn or(self, others: Self) -> Self {
                Self { $($name: self.$name.or(others.$name),)* $($open: self.$open.or(others.$open),)* }
            }

            /// Returns these choices, with the default for each setting that is open and has one.
            fn or_default(self) -> Settings {
                Settings { $($name: self.$name.unwrap_or_else(|| $default),)* $($open: self.$open,)* }
            }

            /// Returns the variables that tell a process the choices. Variables of open settings
            /// must be unset.
            pub fn to_environment(&self) -> Vec<(&'static str, String)> {
                let mut variables = Vec::new();
                $(variables.extend(self.$name.as_ref().map(|value| ($variable, value.to_text())));)*
                $(variables.extend(self.$open.as_ref().map(|value| ($open_variable, value.to_text())));)*
                variables
            }

            /// Reads the choices of the launcher of this process.
            ///
            /// # Errors
            /// [`LaunchError::JobEnded`](Error::JobEnded) when a variable holds a value that no
            /// launcher writes.
            pub fn from_environment(lookup: Lookup<'_>) -> Result<Self> {
                Ok(Self { $($name: setting(lookup, $variable)?,)* $($open: setting(lookup, $open_variable)?,)* })
            }
        }

        impl From<Settings> for Choices {
            fn from(settings: Settings) -> Self {
                Self { $($name: Some(settings.$name),)* $($open: settings.$open,)* }
            }
        }
    };
}

settings! {
    with default {
    /// Number of processes of the job, at least one.
    processes: u32, "FARSIDE_PROCESSES", 1;
    /// Number of workers of each process, at least one.
    threads: u32, "FARSIDE_THREADS", 1;
    /// Number of threads of each process that share the calls on the process.
    pool_threads: u32, "FARSIDE_POOL_THREADS", 0;
    /// The CPUs that the workers are bound to.
    bind: Bind, "FARSIDE_BIND", Bind::default();
    /// The transport.
    fabric: FabricChoice, "FARSIDE_FABRIC", FabricChoice::default();
    /// Shape of the ring from one worker to another, unless these two choose another.
    ring: RingOptions, "FARSIDE_RING", RingOptions::default();
    /// Limit of the memory of all rings that lead to one worker.
    ring_cap_bytes: usize, "FARSIDE_RING_CAP_BYTES", 8 << 20;
    /// Limit of the memory of queued calls from one worker to another.
    queue_cap_bytes: usize, "FARSIDE_QUEUE_CAP_BYTES", 1 << 20;
    /// Limit of the memory of each process that other processes allocate there.
    remote_memory_limit: u64, "FARSIDE_REMOTE_MEMORY_LIMIT", 256 << 20;
    /// Size of the memory of each process that has well-known addresses.
    starter_bytes: u32, "FARSIDE_STARTER_BYTES", STARTER_BYTES;
    /// The longest wait for another process.
    deadline: Duration, "FARSIDE_DEADLINE_MS", Duration::from_secs(30);
    /// The longest time from the return of the last worker to quiescence.
    finalize_deadline: Duration, "FARSIDE_FINALIZE_MS", Duration::from_secs(30);
    /// The check that runs with the job.
    check: Check, "FARSIDE_CHECK", Check::default();
    }
    without default {
    /// The network devices that the processes use. `None` leaves the choice to libfabric.
    nics: Nics, "FARSIDE_NIC";
    }
}

/// Writes methods of a builder that has the field `choices`. Each method chooses one setting.
#[macro_export]
macro_rules! setters {
    ($($(#[$doc:meta])* $method:ident: $type:ty => $setting:ident;)*) => {$(
        $(#[$doc])*
        pub fn $method(mut self, $setting: $type) -> Self {
            self.choices.$setting = Some($setting);
            self
        }
    )*};
}

/// The variables of the two settings that people set, too.
const FABRIC: &str = "FARSIDE_FABRIC";
const NIC: &str = "FARSIDE_NIC";
const CHECK: &str = "FARSIDE_CHECK";

impl Choices {
    /// Returns these choices with the fabric of `FARSIDE_FABRIC`, which wins if it is set.
    ///
    /// # Errors
    /// [`LaunchError::JobEnded`](Error::JobEnded) when it names no fabric.
    pub fn with_forced_fabric(mut self, lookup: Lookup<'_>) -> Result<Self> {
        self.fabric = setting(lookup, FABRIC)?.or(self.fabric);
        Ok(self)
    }

    /// Chooses what is open: first from the variables that people set (`FARSIDE_TIMEOUT_S`,
    /// `FARSIDE_NIC`, `FARSIDE_CHECK`), then by the defaults.
    ///
    /// # Errors
    /// [`LaunchError`](Error): `JobShape`, `RingOptions`, and `JobEnded` when a variable has an
    /// invalid value.
    pub fn resolve(mut self, lookup: Lookup<'_>) -> Result<Settings> {
        if self.deadline.is_none() {
            self.deadline = default_deadline(lookup)?;
        }
        if self.nics.is_none() {
            self.nics = setting(lookup, NIC)?;
        }
        if self.check.is_none() {
            self.check = setting(lookup, CHECK)?;
        }
        let mut settings = self.or_default();
        settings.deadline = settings.deadline.min(FOREVER);
        settings.finalize_deadline = settings.finalize_deadline.min(FOREVER);
        settings.check_shape()?;
        settings.ring.check(settings.ring_cap_bytes)?;
        Ok(settings)
    }
}

/// Reads the variable of a setting. `None` if it is unset.
fn setting<T: Setting>(lookup: Lookup<'_>, name: &str) -> Result<Option<T>> {
    let Some(text) = lookup(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    T::from_text(&text).map(Some).map_err(|expected| invalid(name, &text, &expected))
}

/// Reads a variable that holds a `T` or is unset.
///
/// # Errors
/// [`LaunchError::JobEnded`](Error::JobEnded) with the name and the text.
pub(crate) fn variable<T>(lookup: Lookup<'_>, name: &str) -> Result<Option<T>>
where
    T: FromStr,
    T::Err: Display,
{
    let Some(text) = lookup(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    text.parse().map(Some).map_err(|error: T::Err| invalid(name, &text, &error))
}

fn invalid(name: &str, text: &str, expected: &dyn Display) -> Error {
    Error::JobEnded {
        why: format!("invalid value {text:?} for {name} in the environment: {expected}; correct or unset it"),
    }
}

/// Reads the default deadline that people set.
///
/// # Errors
/// [`LaunchError::JobEnded`](Error::JobEnded) if it is not a time.
pub fn default_deadline(lookup: Lookup<'_>) -> Result<Option<Duration>> {
    let Some(seconds) = variable::<f64>(lookup, TIMEOUT_S)? else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(deadline) if deadline > Duration::ZERO => Ok(Some(deadline)),
        _ => Err(invalid(TIMEOUT_S, &seconds.to_string(), &"expected seconds above 0")),
    }
}

impl Settings {
    /// Number of threads of each process that only run calls: those of its pool, and the one that
    /// receives the calls for them.
    pub fn threads_without_body(&self) -> u64 {
        if self.pool_threads == 0 { 0 } else { u64::from(self.pool_threads) + 1 }
    }

    /// The shape of a job with these settings.
    #[inline]
    pub fn shape(&self) -> Shape {
        // The settings were refused if the number did not fit into 32 bits.
        let without_body = self.threads_without_body() as u32;
        Shape { processes: self.processes, threads: self.threads, without_body }
    }

    /// The layout of the starter memories of a job with these settings.
    #[inline]
    pub fn layout(&self) -> HomeLayout {
        HomeLayout::new(self.shape(), self.starter_bytes as usize)
    }

    /// Refuses shapes that no job can have.
    fn check_shape(&self) -> Result<()> {
        if self.processes == 0 {
            return Err(self.refused("at least one process is needed".into()));
        }
        if self.threads == 0 {
            return Err(self.refused("each process needs at least one worker thread".into()));
        }
        if self.processes > PROCESSES_MAX {
            return Err(self.refused(format!("at most {PROCESSES_MAX} processes are supported")));
        }
        // Every callable thread and every process is a source of rings. Sources are numbered with
        // 32 bits.
        let sources = u64::from(self.processes) * (u64::from(self.threads) + self.threads_without_body() + 1);
        if sources > u64::from(u32::MAX) {
            return Err(self.refused(format!(
                "with {} more threads each that run calls, they have {sources} senders, and at most {} are supported",
                self.threads_without_body(),
                u32::MAX
            )));
        }
        if self.fabric.to_string().len() > FABRIC_BYTES_MAX {
            return Err(self.refused(format!(
                "the fabric's name is longer than {FABRIC_BYTES_MAX} bytes: give the name of a fabric"
            )));
        }
        Ok(())
    }

    /// Refuses a job that does not fit on this machine, as far as that is known before it
    /// starts.
    ///
    /// # Errors
    /// [`Error::JobShape`] with the numbers.
    pub fn check_limits(&self, limits: &Limits) -> Result<()> {
        let processes = u64::from(self.processes);
        // The main thread, the workers, the threads that only run calls, and the library's service
        // thread.
        let tasks = processes * (u64::from(self.threads) + self.threads_without_body() + 2);
        if let Some(max) = limits.tasks.filter(|max| tasks > *max) {
            return Err(self.refused(format!(
                "they have {tasks} threads, and this user may have {max}: start fewer, or raise `ulimit -u`"
            )));
        }
        // For each process a control socket and a handle for its end.
        self.check_open_files("the launcher", processes * 2, limits)?;
        let process_bytes = PROCESS_BYTES_MIN + self.layout().bytes() as u64;
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

    /// Refuses if `who` may not hold this many files open.
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

/// The limits of a machine for its user.
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
    /// The current limits of this process.
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
    fn unset_options_have_defaults() {
        let settings = resolve(Choices::default()).unwrap();
        assert_eq!((settings.processes, settings.threads, settings.pool_threads), (1, 1, 0));
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
        assert!(why(resolve(shape(PROCESSES_MAX, u32::MAX))).contains("are supported"));
        assert!(why(resolve(shape(1, u32::MAX))).contains("are supported"));
        resolve(shape(PROCESSES_MAX, 1)).unwrap();
        resolve(shape(1, u32::MAX - 1)).unwrap();
    }

    #[test]
    fn a_job_too_large_for_the_machine_is_refused_with_numbers() {
        let plenty = Limits { tasks: None, open_files: None, memory_bytes: u64::MAX };
        let settings = resolve(shape(100, 3)).unwrap();
        settings.check_limits(&plenty).unwrap();

        let tasks = |tasks| settings.check_limits(&Limits { tasks: Some(tasks), ..plenty });
        tasks(500).unwrap();
        assert!(why(tasks(499)).contains("500 threads, and this user may have 499"));

        let files = |files| settings.check_limits(&Limits { open_files: Some(files), ..plenty });
        files(216).unwrap();
        assert!(why(files(215)).contains("`ulimit -n`"));

        let needed = 100 * (PROCESS_BYTES_MIN + settings.layout().bytes() as u64);
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
        for name in VARIABLES.iter().copied().filter(|name| *name != NIC) {
            let parsed = Choices::from_environment(&|asked| (asked == name).then(|| "x1".into()));
            let why = why(parsed);
            assert!(why.contains("\"x1\"") && why.contains(name), "{why}");
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
            pool_threads: numbers.2,
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
