//! `farside hex htp`: an engine for front ends such as HexGui, and for games against other engines.

mod input;
mod searcher;
mod tree;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::Args;
use farside::Worker;
use farside::job::FabricChoice;
use farside_command::at_least_one;
use farside_mcts::games::hex::htp::{Action, Engine};

use self::input::Input;
use self::searcher::{Alone, Searcher, Together};
use crate::error::CliError;

/// Play Hex as an engine, by the Hex Text Protocol on the standard input and output
///
/// HexGui and twogtp speak this protocol. You can type it too: `list_commands` lists the commands.
#[derive(Clone, Debug, Args)]
pub(crate) struct Arguments {
    /// Number of processes that search; default 2
    #[arg(short = 'n', long, value_name = "PROCESSES", value_parser = at_least_one::<u32>)]
    processes: Option<u32>,
    /// Number of worker threads of each process; default 1
    #[arg(short = 't', long, value_name = "THREADS", value_parser = at_least_one::<u32>)]
    threads: Option<u32>,
    /// Seed; with one worker and searches that max_games ends, it determines all answers
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
    /// Search in one thread of this process
    #[arg(long)]
    local: bool,
    /// Fabric of the job: auto, shm, ofi, auto:PROVIDER or ofi:PROVIDER
    #[arg(long, value_name = "FABRIC", env = "FARSIDE_FABRIC")]
    fabric: Option<FabricChoice>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let workers = u64::from(arguments.processes.unwrap_or(1)) * u64::from(arguments.threads.unwrap_or(1));
    if arguments.local {
        if workers > 1 {
            return Err(CliError::LocalWorkers { workers });
        }
        return drive(Engine::new(1, arguments.seed), &mut Alone::default()).map_err(CliError::Engine);
    }
    let mut job =
        farside::job().processes(arguments.processes.unwrap_or(2)).threads_per_process(arguments.threads.unwrap_or(1));
    if let Some(fabric) = &arguments.fabric {
        job = job.force_fabric(fabric.clone());
    }
    job.run(|me: &Worker| {
        let mut together = Together::new(me)?;
        if me.id().number() > 0 {
            return together.follow();
        }
        drive(Engine::new(me.worker_count(), arguments.seed), &mut together)?;
        together.dismiss()
    })?;
    Ok(())
}

/// Reads and answers commands until `quit` or the end of the input.
fn drive(mut engine: Engine, searcher: &mut impl Searcher) -> farside::Result<()> {
    let begin = Instant::now();
    let input = Input::open().map_err(|cause| system("starting to read commands", cause))?;
    while let Some(line) = input.next(|| searcher.idle())? {
        let mut action = engine.line(&line.line, begin.elapsed());
        if let Action::Search(order) = &action {
            action = match searcher.search(order, begin, input.interruption(&line))? {
                Ok(report) => engine.found(&report, begin.elapsed()),
                Err(why) => engine.failed(&why.to_string()),
            };
        }
        match action {
            Action::Write(text) => write(&text)?,
            Action::Quit(text) => return write(&text),
            _ => {}
        }
    }
    Ok(())
}

fn write(text: &str) -> farside::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|cause| system("writing to the standard output", cause))
}

fn system(doing: &'static str, cause: io::Error) -> farside::Error {
    farside::Error::System { doing, cause }
}

/// Interval between checks for lost processes while the engine waits for a command.
const IDLE: Duration = Duration::from_millis(100);
