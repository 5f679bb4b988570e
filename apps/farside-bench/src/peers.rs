//! Peers: programs for other libraries that do the same as a bench, where the libraries are
//! installed.
//!
//! The sources are part of this crate, in `peers/`. A program is compiled on demand, into a file
//! without a name. The launcher of its library runs it, on the CPUs that the jobs of the bench use.
//! It writes a line for each sample: the peer, the metric, its unit and the value. Without the
//! library there are no rows of the peer, and [`missing_peers`] names the packages to install.
//!
//! The peers of `rpc-latency` are Rust libraries. Their program has a manifest of its own in
//! `peers/rpc`, outside of the workspace, and is built by hand into the folder of this one.
//!
//! A program that takes too long is asked to end, and so is its launcher when this process ends for
//! any reason. Asked to end, it removes its files; killed, it could not.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use farside_sys::file::nameless;
use farside_sys::net::{Interest, wait_ready};
use farside_sys::process::{Spawned, spawn_asked};

use crate::case::RunOnce;
use crate::metric::{Metric, join};
use crate::name::Name;
use crate::results::path_of;
use crate::{BenchError, Options};

/// The benches that have peers.
const BENCHES: [&str; 4] = ["footprint", "irregular", "pipe-latency", "stencil"];

/// The longest time of a program. A program that takes longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// Number of turns of a job and a program. Each begins with the start of both, which takes longest.
const TURNS: usize = 5;
const TURNS_QUICK: usize = 2;
/// How long a program may take to remove its files when it is asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// A library, with the commands for its programs.
#[derive(Clone, Copy, Debug)]
struct Library {
    compiler: &'static str,
    launcher: &'static str,
    header: &'static str,
}

const MPI: Library = Library { compiler: "mpicc", launcher: "mpirun", header: "mpi.h" };
/// The OpenSHMEM of Open MPI, in the same packages.
const SHMEM: Library = Library { compiler: "oshcc", launcher: "oshrun", header: "shmem.h" };

/// The command that installs the compilers, the launchers and the headers.
const INSTALL: &str = "apt-get install --no-install-recommends openmpi-bin libopenmpi-dev";
/// The program with other libraries for calls. It is built by hand: they are large.
const RPC: &str = "farside-bench-rpc-peers";
const RPC_BENCH: &str = "rpc-latency";
const RPC_BUILD: &str =
    "cargo build --release --target-dir target --manifest-path apps/farside-bench/peers/rpc/Cargo.toml";
/// The server that the store is compared with.
pub(crate) const REDIS: &str = "redis-server";
const REDIS_BENCH: &str = "kv";
/// The smallest program that needs compiler, headers and library.
const PROBE: Source = Source::for_mpi("probe.c", "#include <mpi.h>\nint main(void) { return MPI_Finalize(); }\n");

/// The source of a program for Open MPI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    name: &'static str,
    text: &'static str,
    library: Library,
    /// Arguments of the launcher.
    settings: &'static [&'static str],
}

/// Measures the memory of processes.
pub(crate) const FOOTPRINT: Source = Source::for_mpi("footprint.c", include_str!("../peers/footprint.c"));

/// Programs on random words of a table, with what they need of a library.
macro_rules! irregular {
    ($library:literal) => {
        concat!(
            include_str!(concat!("../peers/", $library)),
            include_str!("../peers/irregular.c"),
            include_str!("../peers/irregular_graphs.c"),
            include_str!("../peers/irregular_searches.c"),
            include_str!("../peers/irregular_main.c")
        )
    };
}

/// Irregular programs with Open MPI.
pub(crate) const IRREGULAR: Source = Source {
    // The default of Open MPI 4.1.4 crashes in a compare-and-swap and adds at half the speed.
    settings: &["--mca", "osc", "sm"],
    ..Source::for_mpi("irregular_mpi.c", irregular!("irregular_mpi.c"))
};

/// The same programs with OpenSHMEM.
pub(crate) const IRREGULAR_SHMEM: Source =
    Source { library: SHMEM, ..Source::for_mpi("irregular_shmem.c", irregular!("irregular_shmem.c")) };

/// Jacobi's iteration.
pub(crate) const STENCIL: Source = Source::for_mpi("stencil.c", include_str!("../peers/stencil.c"));

/// Measures round trips of messages.
pub(crate) const PIPE: Source = Source::for_mpi("pipe.c", include_str!("../peers/pipe.c"));

/// Returns what to install for the rows of peers in these benches, or in all benches without names.
/// `None` means that nothing is missing or that the benches have no such rows.
#[must_use]
pub(crate) fn missing_peers(names: &[String]) -> Option<String> {
    let is_chosen = |bench: &&str| names.is_empty() || names.iter().any(|name| Name::of(name).bench == *bench);
    let mut missing = Vec::new();
    let benches: Vec<_> = BENCHES.into_iter().filter(is_chosen).collect();
    if !benches.is_empty() && !is_there() {
        let benches = benches.join(", ");
        missing.push(format!(
            "{benches} without rows of Open MPI: it or its headers are not installed; on Debian, as root: {INSTALL}"
        ));
    }
    if is_chosen(&RPC_BENCH) && built().is_none() {
        missing.push(format!("{RPC_BENCH} without rows of iceoryx2 and tarpc: build them: {RPC_BUILD}"));
    }
    if is_chosen(&REDIS_BENCH) && !starts(REDIS) {
        missing.push(format!(
            "{REDIS_BENCH} without rows of Redis: it is not installed; on Debian, as root: apt-get install {REDIS}"
        ));
    }
    (!missing.is_empty()).then(|| missing.join("\n"))
}

/// The program with other libraries for calls, if it was built: it is next to this one.
fn built() -> Option<PathBuf> {
    std::env::current_exe().ok().map(|own| own.with_file_name(RPC)).filter(|program| program.is_file())
}

/// Runs null calls of a library for calls in turns with jobs of Farside, if it was built and is
/// wanted. Returns the metrics of both.
///
/// # Errors
/// The error of the job; [`BenchError::Peer`].
pub(crate) fn against_calls(
    peer: &str,
    trips: u64,
    options: Options,
    run_once: RunOnce<'_>,
) -> Result<Vec<Metric>, BenchError> {
    let Some(program) = built().filter(|_| options.peers) else { return run_once(options) };
    let (mut own, of_peer) = in_turns(options, run_once, |options| {
        let numbers = [options.runs() as u64, options.operations_or(trips)].map(|number| number.to_string());
        let mut command = Command::new(&program);
        let Some(ended) = run(RPC, command.arg(peer).args(numbers).stdin(Stdio::null()), TIME_LIMIT)? else {
            return Ok(Vec::new());
        };
        ended.check(RPC)?;
        parse(&ended.printed).ok_or_else(|| failed(RPC, format!("it printed {:?}", start_of(&ended.printed))))
    })?;
    own.extend(of_peer);
    Ok(own)
}

fn is_there() -> bool {
    starts(MPI.launcher) && matches!(compile(PROBE), Ok(Some(_)))
}

/// Returns whether a program is installed.
fn starts(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Runs jobs of Farside and programs of peers in turns, a short run of each. Returns the metrics of
/// both.
///
/// # Errors
/// The error of the job or of `measure`.
pub(crate) fn in_turns(
    options: Options,
    run_once: RunOnce<'_>,
    mut measure: impl FnMut(Options) -> Result<Vec<Metric>, BenchError>,
) -> Result<(Vec<Metric>, Vec<Metric>), BenchError> {
    let turns = if options.quick { TURNS_QUICK } else { TURNS };
    let short = options.with_runs(options.runs().div_ceil(turns));
    let (mut own, mut of_peers) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        join(&mut own, run_once(short)?);
        join(&mut of_peers, measure(short)?);
    }
    Ok((own, of_peers))
}

/// Runs the program with this number of processes and returns its metrics: none if Open MPI is not
/// installed or not wanted.
///
/// # Errors
/// [`BenchError::Peer`].
pub(crate) fn measure(
    source: Source,
    processes: u32,
    arguments: &[String],
    options: Options,
) -> Result<Vec<Metric>, BenchError> {
    if !options.peers {
        return Ok(Vec::new());
    }
    let Some(program) = compile(source)? else { return Ok(Vec::new()) };
    let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (bind, yields) = if processes as usize <= cpus { ("hwthread", "0") } else { ("none", "1") };
    let mut command = Command::new(source.library.launcher);
    command.args(["-n", &processes.to_string(), "--oversubscribe", "--use-hwthread-cpus", "--bind-to", bind]);
    // Open MPI shall use shared memory, and no network of this machine.
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", yields]);
    command.args(source.settings);
    // Open MPI refuses to run as root without these variables.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.arg(path_of(std::process::id(), program.as_raw_fd())).args(arguments).stdin(Stdio::null());
    let Some(ended) = run(source.name, &mut command, TIME_LIMIT)? else { return Ok(Vec::new()) };
    ended.check(source.name)?;
    parse(&ended.printed).ok_or_else(|| source.failed(format!("it printed {:?}", start_of(&ended.printed))))
}

/// Compiles a program into a file without a name; `None` if the compiler or the headers are
/// missing.
fn compile(source: Source) -> Result<Option<File>, BenchError> {
    let failed = |doing: &'static str| move |cause: std::io::Error| source.failed(format!("{doing}: {cause}"));
    let program = nameless("farside-bench-peer").map_err(failed("making a file"))?;
    let mut text = nameless("farside-bench-source").map_err(failed("making a file"))?;
    text.write_all(source.text.as_bytes()).and_then(|()| text.rewind()).map_err(failed("writing a file"))?;
    let mut command = Command::new(source.library.compiler);
    command.args(["-std=c11", "-D_GNU_SOURCE", "-O3", "-ffp-contract=off", "-pipe", "-x", "c", "-", "-lm", "-o"]);
    command.arg(path_of(std::process::id(), program.as_raw_fd())).stdin(text);
    let Some(ended) = run(source.name, &mut command, TIME_LIMIT)? else { return Ok(None) };
    if !ended.status.success() && ended.complaints.contains(&format!("{}: No such file", source.library.header)) {
        return Ok(None);
    }
    ended.check(source.name).map(|()| Some(program))
}

/// The end of a program, and its output.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    printed: String,
    complaints: String,
}

impl Ended {
    fn check(&self, program: &'static str) -> Result<(), BenchError> {
        if self.status.success() {
            return Ok(());
        }
        Err(failed(program, format!("{}: {}", self.status, start_of(&self.complaints))))
    }
}

/// Runs a command to its end; `None` if the command does not exist.
fn run(program: &'static str, command: &mut Command, time_limit: Duration) -> Result<Option<Ended>, BenchError> {
    let failed = |cause: std::io::Error| failed(program, cause.to_string());
    let mut output = [nameless("printed").map_err(failed)?, nameless("complaints").map_err(failed)?];
    let [printed, complaints] = &output;
    command.stdout(printed.try_clone().map_err(failed)?).stderr(complaints.try_clone().map_err(failed)?);
    // The program gets a process group of its own. Signals from a terminal then reach this process
    // alone, and the program receives one signal when this process ends. A launcher that receives
    // two stops at once and leaves its files.
    command.process_group(0);
    let mut running = match start(command, &output[0]) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        running => running.map_err(failed)?,
    };
    let in_time = running.has_ended_by(Instant::now() + time_limit).map_err(failed)?;
    if !in_time {
        return Err(self::failed(program, format!("it did not end within {} s", time_limit.as_secs())));
    }
    let status = running.spawned.child.wait().map_err(failed)?;
    let mut texts = [const { Vec::new() }; 2];
    for (file, text) in output.iter_mut().zip(&mut texts) {
        file.rewind().and_then(|()| file.read_to_end(text)).map_err(failed)?;
    }
    let [printed, complaints] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(Some(Ended { status, printed, complaints }))
}

/// A program that is asked to end before it is killed.
#[derive(Debug)]
struct Running {
    spawned: Spawned,
    /// How long it may take to end when it is asked to.
    grace: Duration,
}

/// Starts a command, which keeps `file` open.
fn start(command: &mut Command, file: &File) -> std::io::Result<Running> {
    Ok(Running { spawned: spawn_asked(command, file.as_fd())?, grace: GRACE })
}

impl Running {
    fn has_ended_by(&self, deadline: Instant) -> std::io::Result<bool> {
        let end = Interest { fd: self.spawned.as_fd(), writable: false };
        Ok(wait_ready(&[end], Some(deadline))?[0])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.spawned.child.try_wait(), Ok(None)) && self.spawned.ask_to_end().is_ok() {
            // Dropping the process kills a program that has not ended.
            let _ = self.has_ended_by(Instant::now() + self.grace);
        }
    }
}

impl Source {
    const fn for_mpi(name: &'static str, text: &'static str) -> Self {
        Self { name, text, library: MPI, settings: &[] }
    }

    fn failed(self, why: String) -> BenchError {
        failed(self.name, why)
    }
}

fn failed(program: &'static str, why: String) -> BenchError {
    BenchError::Peer { program, why }
}

/// The beginning of a text, short enough for a message.
fn start_of(text: &str) -> String {
    text.trim().chars().take(400).collect()
}

/// Reads the output of a program. The samples of a metric may come in any order.
fn parse(text: &str) -> Option<Vec<Metric>> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        let [peer, name, unit, value] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let value = value.parse().ok().filter(|value: &f64| value.is_finite())?;
        if [peer, name, unit].contains(&"") {
            return None;
        }
        match metrics.iter_mut().find(|metric| metric.peer.as_deref() == Some(peer) && metric.name == name) {
            Some(metric) if metric.unit == unit => metric.samples.push(value),
            Some(_) => return None,
            None => metrics.push(Metric::new(name, unit, vec![value]).of_peer(peer)),
        }
    }
    (!metrics.is_empty()).then_some(metrics)
}

#[cfg(test)]
mod tests {
    use farside_testbed::{limit, wait_until};

    use super::*;

    const SHELL: Source = Source::for_mpi("a shell", "");

    #[test]
    fn samples_are_gathered() {
        let metrics = parse("openmpi-send ns ns 3\nopenmpi-fence ns ns 7.5\nopenmpi-send ns ns 4e0\n").unwrap();
        let expected = [
            Metric::new("ns", "ns", vec![3.0, 4.0]).of_peer("openmpi-send"),
            Metric::new("ns", "ns", vec![7.5]).of_peer("openmpi-fence"),
        ];
        assert_eq!(metrics, expected);
        for text in
            ["", "\n", "a b c", "a b c d", "a b c 1 2", "a b c nan", "a b c inf", "a  c 1", "a b ns 1\na b ms 1"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    fn shell(script: &str, time_limit: Duration) -> Result<Option<Ended>, BenchError> {
        run(SHELL.name, Command::new("sh").args(["-c", script]).stdin(Stdio::null()), time_limit)
    }

    #[test]
    fn outputs_of_programs_are_kept_apart() {
        let ended = shell("echo one; echo two >&2; exit 3", limit()).unwrap().unwrap();
        assert_eq!((&*ended.printed, &*ended.complaints), ("one\n", "two\n"));
        let error = ended.check(SHELL.name).unwrap_err().to_string();
        assert!(error.contains("a shell") && error.contains("exit status: 3: two"), "{error}");
    }

    #[test]
    fn a_process_past_its_time_limit_ends() {
        let error = shell("while :; do sleep 0.05; done", Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn a_process_that_is_asked_to_end_can_clean_up() {
        let mut note = nameless("note").unwrap();
        let path = path_of(std::process::id(), note.as_raw_fd());
        let written = |note: &mut File| {
            let mut text = String::new();
            note.rewind().and_then(|()| note.read_to_string(&mut text)).unwrap();
            text
        };
        let script = format!(
            "trap 'echo cleared >> {0}; exit' TERM; echo ready >> {0}; while :; do sleep 0.05; done",
            path.display()
        );
        let mut running = start(Command::new("sh").args(["-c", &script]).stdin(Stdio::null()), &note).unwrap();
        running.grace = limit();
        wait_until("the shell has set its trap", || written(&mut note) == "ready\n");
        drop(running);
        assert_eq!(written(&mut note), "ready\ncleared\n");
    }

    #[test]
    fn a_missing_program_is_not_an_error() {
        let command = &mut Command::new("no-such-program-anywhere");
        assert!(run(SHELL.name, command, limit()).unwrap().is_none());
    }

    #[test]
    fn benches_without_peers_miss_nothing() {
        assert_eq!(missing_peers(&["invoke-latency".to_owned()]), None);
        for name in BENCHES {
            assert!(
                crate::matrix::list(crate::benches::BENCHES, &crate::fabric::Fabric::Shm)
                    .iter()
                    .any(|listing| listing.name == name),
                "{name}"
            );
        }
    }

    mod deep {
        use super::*;

        #[test]
        fn every_program_says_what_its_bench_looks_for() {
            farside_testbed::needs!("peers");
            let says = |source, arguments: &[&str], expected: &[(&str, &str)]| {
                let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).collect();
                let metrics = measure(source, 2, &arguments, Options::new()).unwrap();
                assert!(!metrics.is_empty(), "Open MPI or its headers are missing (on Debian, as root: {INSTALL})");
                for (peer, name) in expected {
                    let found =
                        metrics.iter().find(|metric| metric.peer.as_deref() == Some(peer) && metric.name == *name);
                    assert!(found.is_some_and(|metric| !metric.samples.is_empty()), "{peer} {name}: {metrics:?}");
                }
            };
            says(FOOTPRINT, &[], &["start_bytes", "called_bytes", "talked_bytes"].map(|name| ("openmpi", name)));
            for workload in [
                ["histo", "3000", "100"],
                ["ig", "3000", "100"],
                ["gups", "1024", "4"],
                ["randperm", "3000", "2"],
                ["toposort", "3000", "5"],
                ["triangles", "1000", "10"],
            ] {
                for form in ["agp", "exchange"] {
                    let [name, first, second] = workload;
                    for (source, peer) in [(IRREGULAR, "openmpi"), (IRREGULAR_SHMEM, "openshmem")] {
                        says(source, &[name, form, first, second, "1"], &[(peer, "items_per_s")]);
                    }
                }
            }
            let one_sided = ["openmpi-fence", "openmpi-pscw", "openmpi-passive"].map(|peer| (peer, "ns"));
            for mode in ["read", "write"] {
                says(PIPE, &["64", "10", "1", mode], &[&one_sided[..], &[("openmpi-send", "ns")]].concat());
            }
        }
    }
}
