//! `farside run`: starts the processes of a job.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use farside::RingOptions;
use farside::job::launch::{Launch, Program};
use farside::job::{Bind, Check, FabricChoice, Nics};
use farside_command::Seconds;

use crate::error::CliError;
use crate::inspection::Inspection;
use crate::plugin;
use crate::shape::Shape;

/// Start a program, or several, as the processes of one job
///
/// The processes are numbered in the order of the command line. They end when this command ends,
/// however it ends. The exit status is that of the process that failed first. A lone `:` separates
/// programs and so cannot be an argument.
#[derive(Debug, Args)]
#[command(
    override_usage = "farside run {-n PROCESSES | --shape PxT} [OPTIONS] PROGRAM [ARGUMENTS]... [: -n PROCESSES PROGRAM [ARGUMENTS]...]..."
)]
pub struct Arguments {
    /// Number of processes that run the first program
    #[arg(short = 'n', long, value_name = "PROCESSES", required_unless_present = "shape")]
    processes: Option<u32>,
    /// Worker threads of each process; overrides the program
    #[arg(short = 't', long, value_name = "THREADS")]
    threads: Option<u32>,
    /// Processes and threads together: 2x4 is -n 2 -t 4
    #[arg(long, value_name = "PxT", conflicts_with_all = ["processes", "threads"])]
    shape: Option<Shape>,
    /// Binding of each worker: none, core or numa
    #[arg(long, value_name = "HOW")]
    bind: Option<Bind>,
    /// Network devices, assigned to the processes in turn: names from `farside info`, separated by
    /// commas
    #[arg(long, value_name = "DEVICES", env = "FARSIDE_NIC")]
    nic: Option<Nics>,
    /// Sizes of rings: first chunks, chunks per growth, most chunks, bytes of the first, most bytes
    /// [default: 2,1,4,4096,262144]
    #[arg(long, value_name = "FIRST,GROWTH,MAX,BYTES,BYTES_MAX")]
    ring: Option<RingOptions>,
    /// Fabric that carries the bytes: auto, shm, ofi, auto:PROVIDER or ofi:PROVIDER
    #[arg(long, value_name = "FABRIC", env = "FARSIDE_FABRIC")]
    fabric: Option<FabricChoice>,
    /// Look for mistakes while the job runs: `accesses` finds unordered accesses to the same
    /// memory. Slow
    #[arg(long, value_name = "WHAT", env = "FARSIDE_CHECK")]
    check: Option<Check>,
    /// Show the job in a browser while it runs; ADDRESS is where to listen
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    inspect: Option<SocketAddr>,
    /// Stop the job after this time
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<Seconds>,
    /// The program and its arguments, and further programs after `:`
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs `farside run`. Without an inspection, `farside-inspect` runs it instead, if it is wanted or
/// there: its launcher answers readers for the processes.
///
/// # Errors
/// The error of the job, of its command line, or of the page.
pub fn run(arguments: Arguments, inspection: Option<&dyn Inspection>) -> Result<(), CliError> {
    let Some(inspection) = inspection else {
        let is_wanted = arguments.inspect.is_some() || (plugin::INSPECT.is_there() && !plugin::is_inspection_off());
        return if is_wanted { Err(plugin::inspected()) } else { Ok(start(launch(&arguments)?)?) };
    };
    let launch = launch(&arguments)?;
    let _page = arguments.inspect.map(|address| inspection.serve(address)).transpose()?;
    let (launch, _answers) = inspection.answer_for(launch)?;
    Ok(start(launch)?)
}

fn start(launch: Launch) -> farside::Result<()> {
    Ok(launch.run()?)
}

fn launch(arguments: &Arguments) -> Result<Launch, CliError> {
    let shape = arguments.shape;
    // The parser requires one of the two.
    let processes = arguments.processes.or(shape.map(|shape| shape.processes)).unwrap_or_default();
    let mut launch = Launch::new(programs(processes, &arguments.command)?);
    if let Some(threads) = arguments.threads.or(shape.map(|shape| shape.threads)) {
        launch = launch.threads_per_process(threads);
    }
    if let Some(bind) = arguments.bind {
        launch = launch.bind(bind);
    }
    if let Some(nics) = &arguments.nic {
        launch = launch.nics(nics.clone());
    }
    if let Some(ring) = arguments.ring {
        launch = launch.ring(ring);
    }
    if let Some(fabric) = &arguments.fabric {
        launch = launch.fabric(fabric.clone());
    }
    if let Some(check) = arguments.check {
        launch = launch.check(check);
    }
    if let Some(Seconds(limit)) = arguments.timeout {
        launch = launch.time_limit(limit);
    }
    Ok(launch)
}

/// Reads the programs of a command line. The number of processes of the first is already read.
fn programs(first_processes: u32, command: &[OsString]) -> Result<Vec<Program>, CliError> {
    let mut programs = Vec::new();
    for (part, number) in command.split(|argument| argument == ":").zip(1..) {
        let (processes, part) = if number == 1 { (first_processes, part) } else { take_processes(part, number)? };
        let [program, arguments @ ..] = part else {
            return Err(CliError::RunPart { what: "there is no program".into(), number });
        };
        programs.push(Program { command: PathBuf::from(program), arguments: arguments.to_vec(), processes });
    }
    Ok(programs)
}

/// Splits `-n PROCESSES` or `-nPROCESSES` from the front of a part.
fn take_processes(part: &[OsString], number: usize) -> Result<(u32, &[OsString]), CliError> {
    let fault = |what: String| CliError::RunPart { what, number };
    let missing = || fault("-n PROCESSES is missing".into());
    let (option, rest) = part.split_first().ok_or_else(missing)?;
    let option = option.to_string_lossy();
    let attached = option.strip_prefix("-n").ok_or_else(missing)?;
    let (count, rest) = match rest {
        [count, rest @ ..] if attached.is_empty() => (count.to_string_lossy(), rest),
        _ => (attached.into(), rest),
    };
    let processes = count.parse().map_err(|_| fault(format!("{count:?} is not a number of processes")))?;
    Ok((processes, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(first_processes: u32, command: &str) -> Result<Vec<(u32, String, Vec<OsString>)>, String> {
        let command: Vec<OsString> = command.split_whitespace().map(OsString::from).collect();
        let programs = programs(first_processes, &command).map_err(|error| error.to_string())?;
        let parts = |program: Program| (program.processes, program.command.display().to_string(), program.arguments);
        Ok(programs.into_iter().map(parts).collect())
    }

    #[test]
    fn colons_separate_programs() {
        let none = Vec::new;
        assert_eq!(parsed(2, "./a").unwrap(), [(2, "./a".into(), none())]);
        let programs = parsed(2, "./a -n 7 :x : -n 3 ./b -x : -n1 c").unwrap();
        assert_eq!(
            programs,
            [
                (2, "./a".into(), vec!["-n".into(), "7".into(), ":x".into()]),
                (3, "./b".into(), vec!["-x".into()]),
                (1, "c".into(), none()),
            ]
        );
        // The library checks whether such a job is possible.
        assert_eq!(parsed(0, "a").unwrap(), [(0, "a".into(), none())]);
    }

    #[test]
    fn an_invalid_part_is_named() {
        for (command, part, what) in [
            (": -n 1 b", "part 1", "no program"),
            ("a :", "part 2", "-n PROCESSES is missing"),
            ("a : b", "part 2", "-n PROCESSES is missing"),
            ("a : -n", "part 2", "\"\" is not a number"),
            ("a : -n x b", "part 2", "\"x\" is not a number"),
            ("a : -n -1 b", "part 2", "\"-1\" is not a number"),
            ("a : -n 1", "part 2", "no program"),
            ("a : -n 1 b : -n 2 :", "part 3", "no program"),
        ] {
            let error = parsed(1, command).unwrap_err();
            assert!(error.contains(part) && error.contains(what), "{command}: {error}");
        }
    }
}
