//! `farside hex htp`: an engine that programs with boards, and other engines, talk to.

mod input;
mod searcher;
mod tree;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use farside::Worker;
use farside::job::FabricChoice;
use farside_mcts::games::hex::htp::{Action, Engine};

use self::input::Input;
use self::searcher::{Alone, Searcher, Together};
use crate::error::CliError;
use crate::values::at_least_one;

/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Play Hex as an engine, by the Hex Text Protocol on the standard input and output
///
/// HexGui and twogtp speak this protocol, and so can you: `list_commands` says what there is.
#[derive(Clone, Debug, Args)]
pub(crate) struct Arguments {
    /// How many processes search; 2 if not said
    #[arg(short = 'n', long, value_name = "PROCESSES", value_parser = at_least_one::<u32>)]
    processes: Option<u32>,
    /// Worker threads of each process; 1 if not said
    #[arg(short = 't', long, value_name = "THREADS", value_parser = at_least_one::<u32>)]
    threads: Option<u32>,
    /// With one worker, the same seed and commands give the same answers, if max_games ends the searches
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
    /// Search in this process and one thread alone
    #[arg(long)]
    local: bool,
    /// What carries the bytes: auto, shm, ofi or ofi:PROVIDER
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

/// Takes commands and answers them until there are no more.
fn drive(mut engine: Engine, searcher: &mut impl Searcher) -> farside::Result<()> {
    let begin = Instant::now();
    let input = Input::open().map_err(|cause| system("starting to read commands", cause))?;
    while let Some(line) = input.next(|| searcher.idle())? {
        let mut action = engine.line(&line.line, begin.elapsed());
        loop {
            action = match action {
                Action::Search(order) => match searcher.search(&order, begin, input.interruption(&line))? {
                    Ok(report) => engine.found(&report, begin.elapsed()),
                    Err(why) => engine.failed(&why.to_string(), begin.elapsed()),
                },
                Action::Read(path) => match read(&path) {
                    Ok(text) => engine.read(&text, begin.elapsed()),
                    Err(why) => engine.failed(&format!("cannot read {}: {why}", path.display()), begin.elapsed()),
                },
                Action::Write(text) => break write(&text)?,
                Action::Quit(text) => return write(&text),
                _ => break,
            }
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

fn read(path: &Path) -> io::Result<String> {
    // A pipe might never end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn system(doing: &'static str, cause: io::Error) -> farside::Error {
    farside::Error::System { doing, cause }
}

/// How long it takes at most, between commands, until a lost process is noticed.
const IDLE: Duration = Duration::from_millis(100);
