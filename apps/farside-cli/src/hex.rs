//! `farside hex`: searches for a move in a position of Hex.

mod findings;
mod htp;
mod progress;

use std::io::{self, Write};
use std::net::SocketAddr;

use clap::{Args, Subcommand};
use farside::Worker;
use farside::job::FabricChoice;
use farside_command::{Seconds, at_least_one};
use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, JobError, JobReport, Local, OnJob, Params, Player, Report, Search};

use self::findings::{Cost, Findings};
use self::progress::Progress;
use crate::error::CliError;
use crate::inspection::{Inspection, ShownSearch};
use crate::plugin;

/// Default duration of a search.
const SECONDS: &str = "5";

/// Search for a move in a game of Hex
///
/// Black joins the top (row 1) with the bottom, white the left (column a) with the right.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    engine: Option<Engine>,
    /// The board's side, 2 to 16
    #[arg(long, default_value_t = 11)]
    size: usize,
    /// Number of processes that search; default 2
    #[arg(short = 'n', long, value_name = "PROCESSES", value_parser = at_least_one::<u32>)]
    processes: Option<u32>,
    /// Number of worker threads of each process; default 1
    #[arg(short = 't', long, value_name = "THREADS", value_parser = at_least_one::<u32>)]
    threads: Option<u32>,
    /// Number of rollouts
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    rollouts: Option<u64>,
    /// Duration of the search in seconds
    #[arg(long, value_name = "S", default_value = SECONDS)]
    seconds: Seconds,
    /// Seed; with --local and --rollouts it determines the answer
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
    /// The game so far, black first, such as "f6 e5 pass"
    #[arg(long, value_name = "MOVES", default_value = "")]
    moves: String,
    /// Search by the rules alone: more rollouts, worse moves
    #[arg(long)]
    plain: bool,
    /// Search in one thread of this process
    #[arg(long)]
    local: bool,
    /// Fabric of the job: auto, shm, ofi, auto:PROVIDER or ofi:PROVIDER
    #[arg(long, value_name = "FABRIC", env = "FARSIDE_FABRIC")]
    fabric: Option<FabricChoice>,
    /// Show the search in a browser while it runs; ADDRESS is where to listen
    #[arg(
        long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0",
        conflicts_with = "local"
    )]
    inspect: Option<SocketAddr>,
    /// Print one line with one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

/// Subcommands of `farside hex`.
#[derive(Clone, Debug, Subcommand)]
enum Engine {
    Htp(htp::Arguments),
}

/// A valid search.
#[derive(Clone, Debug)]
struct Task {
    game: Hex,
    position: Position,
    /// The moves of the game so far.
    moves: String,
    budget: Budget,
    params: Params,
    is_plain: bool,
}

impl Task {
    /// Checks the arguments.
    ///
    /// # Errors
    /// If the position or the budget is invalid, or the game is over.
    fn new(arguments: &Arguments) -> Result<Self, CliError> {
        let position = Position::from_moves(arguments.size, &arguments.moves)?;
        let moves: Vec<_> = arguments.moves.split_whitespace().map(str::to_ascii_lowercase).collect();
        if let Some(winner) = position.winner() {
            return Err(CliError::GameOver { winner: colour(winner), moves: moves.len() });
        }
        let budget = match arguments.rollouts {
            Some(rollouts) => Budget::Rollouts(rollouts),
            None => Budget::Time(arguments.seconds.0),
        };
        if budget == Budget::Rollouts(0) {
            return Err(farside_mcts::SearchError::ZeroBudget.into());
        }
        let workers = u64::from(arguments.processes.unwrap_or(1)) * u64::from(arguments.threads.unwrap_or(1));
        if arguments.local && workers > 1 {
            return Err(CliError::LocalWorkers { workers });
        }
        let hex = Hex::new(arguments.size)?;
        let (is_plain, moves) = (arguments.plain, moves.join(" "));
        let game = if is_plain { hex } else { hex.with_connections() };
        let params = Params { seed: arguments.seed, ..Params::default() };
        Ok(Self { game, position, moves, budget, params, is_plain })
    }
}

/// Runs `farside hex`. Without an inspection, `farside-inspect` runs it instead, if it is wanted.
///
/// # Errors
/// The error of the search, of its job, or of the page.
pub fn run(arguments: &Arguments, inspection: Option<&dyn Inspection>) -> Result<(), CliError> {
    if let Some(Engine::Htp(arguments)) = &arguments.engine {
        return htp::run(arguments);
    }
    let task = Task::new(arguments)?;
    if !arguments.local {
        if inspection.is_none() && (arguments.inspect.is_some() || plugin::is_inspection_on()) {
            return Err(plugin::inspected());
        }
        return search_together(arguments, &task, inspection);
    }
    let progress = Progress::new(task.budget);
    let report = search_locally(&task, &progress)?;
    progress.finish();
    print(&Findings { task: &task, report: &report, cost: Cost::LOCAL }, arguments.json)
}

fn search_locally(task: &Task, progress: &Progress) -> Result<Report<Cell>, CliError> {
    let search = Search::new(task.game).params(task.params).on(Local);
    let shown = progress.clone();
    let mut search = search.observe(progress::INTERVAL_ROLLOUTS, move |report| shown.show(report));
    Ok(search.run(&task.position, task.budget)?)
}

/// Starts a job and searches on it. Worker 0 shows the progress bar and prints the result.
fn search_together(arguments: &Arguments, task: &Task, inspection: Option<&dyn Inspection>) -> Result<(), CliError> {
    let mut job =
        farside::job().processes(arguments.processes.unwrap_or(2)).threads_per_process(arguments.threads.unwrap_or(1));
    if let Some(fabric) = &arguments.fabric {
        job = job.force_fabric(fabric.clone());
    }
    let serve = || inspection.zip(arguments.inspect).map(|(inspection, address)| inspection.serve(address)).transpose();
    // The process that starts the others serves the page. They have the same arguments.
    let _page = if farside::job::is_member() { None } else { serve()? };
    job.run(|me: &Worker| {
        let is_first = me.is_first();
        // Where another launcher started all of them, process 0 serves it.
        let is_server = is_first && !farside::job::is_reported();
        let _page = if is_server { serve().map_err(other_error)? } else { None };
        let progress = is_first.then(|| Progress::new(task.budget));
        let report = search_on(me, task, progress.clone(), inspection).map_err(job_error)?;
        let Some(progress) = progress else { return Ok(()) };
        progress.finish();
        let told = report.job.as_ref();
        let cost = Cost {
            processes: me.process_count(),
            threads: me.threads_per_process(),
            messages: told.map_or(0, JobReport::messages),
            bytes: told.map_or(0, JobReport::bytes),
        };
        print(&Findings { task, report: &report, cost }, arguments.json).map_err(other_error)
    })?;
    Ok(())
}

fn search_on(
    me: &Worker,
    task: &Task,
    progress: Option<Progress>,
    inspection: Option<&dyn Inspection>,
) -> Result<Report<Cell>, JobError> {
    let place = OnJob::new(me)?;
    let mut search = Search::new(task.game).params(task.params).on(place);
    let (mut _guard, mut show) = (None, None);
    if let Some(inspection) = inspection {
        let shown = inspection.show(me, &task.position, task.params.exploration, search, place.window())?;
        let ShownSearch { search: tuned, report, guard } = shown;
        (_guard, show, search) = (Some(guard), Some(report), tuned);
    }
    if let Some(progress) = progress {
        search = search.observe(progress::INTERVAL_ROLLOUTS, move |report| {
            show.iter().for_each(|show| show(report));
            progress.show(report)
        });
    }
    search.run(&task.position, task.budget)
}

/// Converts the error of a search into one of the job.
fn job_error(error: JobError) -> farside::Error {
    match error {
        JobError::Job(error) => error,
        other => other_error(other),
    }
}

fn other_error(error: impl std::error::Error + Send + Sync + 'static) -> farside::Error {
    farside::Error::System { doing: "searching for a move", cause: io::Error::other(error) }
}

fn print(findings: &Findings<'_>, as_json: bool) -> Result<(), CliError> {
    let text = if as_json { format!("{}\n", findings.to_json()) } else { findings.to_string() };
    io::stdout().write_all(text.as_bytes()).map_err(CliError::Output)
}

/// Returns the name of a player.
fn colour(player: Player) -> &'static str {
    match player {
        Player::First => "black",
        Player::Second => "white",
    }
}
