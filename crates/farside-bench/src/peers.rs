//! Programs of others that do the same, where they are installed: peers, to be set beside.
//!
//! The sources are ours and lie in `peers/`. A program is compiled when it is needed, into a file without a name, and run by the launcher of
//! its library, on the CPUs that ours have. It writes a line for each sample: whose it is, the metric, its unit, the value.
//! Where the library is not installed there are no rows of it, and [`missing_peers`] says what to install.
//!
//! A program that takes too long is asked to end, and so is its launcher when this process ends, however that happens: it
//! clears its files away, which nobody does who is killed.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use farside_sys::file::nameless;
use farside_sys::net::{Interest, wait_ready};
use farside_sys::process::{Spawned, spawn_asked};

use crate::metric::Metric;
use crate::name::Name;
use crate::results::path_of;
use crate::{BenchError, Options};

/// The benches that have peers.
const BENCHES: [&str; 3] = ["footprint", "pipe-latency", "stencil"];

/// A program that takes longer than this hangs.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// How long it has to clear up when it is asked to end.
const GRACE: Duration = Duration::from_secs(5);

const COMPILER: &str = "mpicc";
const LAUNCHER: &str = "mpirun";
/// What brings both, and the headers.
const INSTALL: &str = "apt-get install --no-install-recommends openmpi-bin libopenmpi-dev";
/// As little as needs everything.
const PROBE: Source = Source { name: "probe.c", text: "#include <mpi.h>\nint main(void) { return MPI_Finalize(); }\n" };

/// A program for Open MPI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    name: &'static str,
    text: &'static str,
}

/// Memory of its processes.
pub(crate) const FOOTPRINT: Source = Source { name: "footprint.c", text: include_str!("../peers/footprint.c") };

/// Jacobi's iteration.
pub(crate) const STENCIL: Source = Source { name: "stencil.c", text: include_str!("../peers/stencil.c") };

/// A message to and fro.
pub(crate) const PIPE: Source = Source { name: "pipe.c", text: include_str!("../peers/pipe.c") };

/// What to install for the peers' rows of these benches (or of all, when there are no names) to be there; `None` when nothing is
/// missing, or there are no such rows.
#[must_use]
pub(crate) fn missing_peers(names: &[String]) -> Option<String> {
    let is_chosen = |bench: &&str| names.is_empty() || names.iter().any(|name| Name::of(name).bench == *bench);
    let benches: Vec<_> = BENCHES.into_iter().filter(is_chosen).collect();
    if benches.is_empty() || is_there() {
        return None;
    }
    let benches = benches.join(", ");
    Some(format!(
        "without rows of Open MPI in {benches}: it or its headers are not installed (on Debian, as root: {INSTALL})"
    ))
}

fn is_there() -> bool {
    let has_launcher = Command::new(LAUNCHER).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    has_launcher.is_ok_and(|status| status.success()) && matches!(compile(PROBE), Ok(Some(_)))
}

/// What the program finds with so many processes. Nothing where Open MPI is not installed or not wanted.
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
    let mut command = Command::new(LAUNCHER);
    command.args(["-n", &processes.to_string(), "--oversubscribe", "--use-hwthread-cpus", "--bind-to", bind]);
    // Shared memory, and nothing of what this machine's network may have.
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", yields]);
    // It asks root whether that is meant; we are whoever called.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.arg(path_of(std::process::id(), program.as_raw_fd())).args(arguments).stdin(Stdio::null());
    let Some(ended) = run(source, &mut command, TIME_LIMIT)? else { return Ok(Vec::new()) };
    ended.check(source)?;
    parse(&ended.printed).ok_or_else(|| source.failed(format!("it printed {:?}", start_of(&ended.printed))))
}

/// The program, in a file without a name; `None` where there is no compiler for it, or no headers.
fn compile(source: Source) -> Result<Option<File>, BenchError> {
    let failed = |doing: &'static str| move |cause: std::io::Error| source.failed(format!("{doing}: {cause}"));
    let program = nameless("farside-bench-peer").map_err(failed("making a file"))?;
    let mut text = nameless("farside-bench-source").map_err(failed("making a file"))?;
    text.write_all(source.text.as_bytes()).and_then(|()| text.rewind()).map_err(failed("writing a file"))?;
    let mut command = Command::new(COMPILER);
    command.args(["-std=c11", "-D_GNU_SOURCE", "-O3", "-ffp-contract=off", "-pipe", "-x", "c", "-", "-lm", "-o"]);
    command.arg(path_of(std::process::id(), program.as_raw_fd())).stdin(text);
    let Some(ended) = run(source, &mut command, TIME_LIMIT)? else { return Ok(None) };
    if !ended.status.success() && ended.complaints.contains("mpi.h: No such file") {
        return Ok(None);
    }
    ended.check(source).map(|()| Some(program))
}

/// How a program ended.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    printed: String,
    complaints: String,
}

impl Ended {
    fn check(&self, source: Source) -> Result<(), BenchError> {
        if self.status.success() {
            return Ok(());
        }
        Err(source.failed(format!("{}: {}", self.status, start_of(&self.complaints))))
    }
}

/// Runs a command to its end; `None` when there is no such command.
fn run(source: Source, command: &mut Command, time_limit: Duration) -> Result<Option<Ended>, BenchError> {
    let failed = |cause: std::io::Error| source.failed(cause.to_string());
    let mut output = [nameless("printed").map_err(failed)?, nameless("complaints").map_err(failed)?];
    let [printed, complaints] = &output;
    command.stdout(printed.try_clone().map_err(failed)?).stderr(complaints.try_clone().map_err(failed)?);
    // A group of its own: signals from a terminal reach this process alone, and the program then hears of its end, once. Launchers that
    // are told twice stop at once and leave their files.
    command.process_group(0);
    let spawned = match spawn_asked(command, output[0].as_fd()) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        spawned => spawned.map_err(failed)?,
    };
    let mut running = Running(spawned);
    let in_time = running.has_ended_by(Instant::now() + time_limit).map_err(failed)?;
    if !in_time {
        return Err(source.failed(format!("it did not end within {} s", time_limit.as_secs())));
    }
    let status = running.0.child.wait().map_err(failed)?;
    let mut texts = [const { Vec::new() }; 2];
    for (file, text) in output.iter_mut().zip(&mut texts) {
        file.rewind().and_then(|()| file.read_to_end(text)).map_err(failed)?;
    }
    let [printed, complaints] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(Some(Ended { status, printed, complaints }))
}

/// A program that is asked to end before it is killed.
#[derive(Debug)]
struct Running(Spawned);

impl Running {
    fn has_ended_by(&self, deadline: Instant) -> std::io::Result<bool> {
        let end = Interest { fd: self.0.as_fd(), writable: false };
        Ok(wait_ready(&[end], Some(deadline))?[0])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.child.try_wait(), Ok(None)) && self.0.ask_to_end().is_ok() {
            // What does not end is killed next.
            let _ = self.has_ended_by(Instant::now() + GRACE);
        }
    }
}

impl Source {
    fn failed(self, why: String) -> BenchError {
        BenchError::Peer { program: self.name, why }
    }
}

/// As much of a text as fits into a message.
fn start_of(text: &str) -> String {
    text.trim().chars().take(400).collect()
}

/// What a program printed. Samples of one metric come in any order.
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
    use super::*;

    const SHELL: Source = Source { name: "a shell", text: "" };

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
        run(SHELL, Command::new("sh").args(["-c", script]).stdin(Stdio::null()), time_limit)
    }

    #[test]
    fn what_a_program_says_is_kept_apart() {
        let ended = shell("echo one; echo two >&2; exit 3", Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((&*ended.printed, &*ended.complaints), ("one\n", "two\n"));
        let error = ended.check(SHELL).unwrap_err().to_string();
        assert!(error.contains("a shell") && error.contains("exit status: 3: two"), "{error}");
    }

    #[test]
    fn who_stays_too_long_can_clear_up() {
        let mut note = nameless("note").unwrap();
        let script = format!(
            "trap 'echo cleared > {}; exit' TERM; while :; do sleep 0.05; done",
            path_of(std::process::id(), note.as_raw_fd()).display()
        );
        let error = shell(&script, Duration::from_secs(3)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
        let mut text = String::new();
        note.read_to_string(&mut text).unwrap();
        assert_eq!(text, "cleared\n");
    }

    #[test]
    fn who_is_not_there_is_no_error() {
        let command = &mut Command::new("no-such-program-anywhere");
        assert!(run(SHELL, command, Duration::from_secs(60)).unwrap().is_none());
    }

    #[test]
    fn every_program_says_what_its_bench_looks_for() {
        if farside_testbed::is_left_out("peers") {
            return;
        }
        let says = |source, arguments: &[&str], expected: &[(&str, &str)]| {
            let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).collect();
            let metrics = measure(source, 2, &arguments, Options::new()).unwrap();
            assert!(!metrics.is_empty(), "Open MPI or its headers are missing (on Debian, as root: {INSTALL})");
            for (peer, name) in expected {
                let found = metrics.iter().find(|metric| metric.peer.as_deref() == Some(peer) && metric.name == *name);
                assert!(found.is_some_and(|metric| !metric.samples.is_empty()), "{peer} {name}: {metrics:?}");
            }
        };
        says(FOOTPRINT, &[], &["start_bytes", "called_bytes", "talked_bytes"].map(|name| ("openmpi", name)));
        let one_sided = ["openmpi-fence", "openmpi-pscw", "openmpi-passive"].map(|peer| (peer, "ns"));
        says(PIPE, &["64", "10", "1", "read"], &one_sided);
        says(PIPE, &["64", "10", "1", "write"], &[&one_sided[..], &[("openmpi-send", "ns")]].concat());
    }

    #[test]
    fn benches_without_peers_miss_nothing() {
        assert_eq!(missing_peers(&["invoke-latency".to_owned()]), None);
        for name in BENCHES {
            assert!(crate::matrix::list().iter().any(|listing| listing.name == name), "{name}");
        }
    }
}
