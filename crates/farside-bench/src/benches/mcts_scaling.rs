//! Tree search: how many rollouts a second, beside the same search written by hand for one thread.

mod on_job;
mod positions;
mod quality;
mod simulated;

use std::hint::black_box;
use std::time::Instant;

use farside_mcts::games::hex::{Hex, Position};
use farside_mcts::{Budget, Game, Local, Params, Search};

use crate::case::Case;
use crate::metric::Metric;
use crate::{BenchError, Options, sequential};

/// The board's side, and the simulations that evaluate a leaf (Seriema §5.3).
const SIZE: usize = 11;
const SIMULATIONS: u32 = 16;
/// Rollouts of each run, when nothing else is asked for.
const ROLLOUTS: u64 = 1_000_000;
/// What the rows call the search that was written by hand.
const SEQUENTIAL: &str = "sequential program";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::here("sequential", |options| measure(options, sequential_rollouts_per_s)),
        Case::here("local", |options| measure(options, local_rollouts_per_s)),
    ];
    cases.extend(on_job::cases());
    cases.extend(quality::cases());
    cases
}

pub(crate) use simulated::run as run_simulated;

/// Measures a search and the sequential program in turns, with the same seeds.
fn measure(
    options: Options,
    search: fn(&Position, u64, u64) -> Result<f64, BenchError>,
) -> Result<Vec<Metric>, BenchError> {
    let position = hex().initial();
    let rollouts = options.operations_or(ROLLOUTS);
    let (mut rates, mut limits) = (Vec::new(), Vec::new());
    for seed in 0..options.runs() as u64 {
        limits.push(sequential_rollouts_per_s(&position, rollouts, seed)?);
        rates.push(search(&position, rollouts, seed)?);
    }
    Ok(vec![Metric::new("rollouts_per_s", "1/s", rates).against(SEQUENTIAL, limits)])
}

fn hex() -> Hex {
    Hex::new(SIZE).expect("a size that boards may have")
}

fn params(seed: u64) -> Params {
    Params { seed, simulations: SIMULATIONS, ..Params::default() }
}

/// As all searches here are timed: with what it takes to give the tree back.
fn sequential_rollouts_per_s(position: &Position, rollouts: u64, seed: u64) -> Result<f64, BenchError> {
    let start = Instant::now();
    black_box(sequential::run(position, rollouts, SIMULATIONS, seed));
    Ok(rollouts as f64 / start.elapsed().as_secs_f64())
}

fn local_rollouts_per_s(position: &Position, rollouts: u64, seed: u64) -> Result<f64, BenchError> {
    let start = Instant::now();
    let report = Search::new(hex()).params(params(seed)).on(Local).run(position, Budget::Rollouts(rollouts))?;
    Ok(report.rollouts as f64 / start.elapsed().as_secs_f64())
}
