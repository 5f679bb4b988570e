//! Tree search: rollouts a second, compared with the same search written by hand for one thread.

mod on_job;
mod positions;
mod quality;
pub(super) mod simulated;

use std::hint::black_box;
use std::time::Instant;

use farside_mcts::games::hex::{Hex, Position};
use farside_mcts::{Budget, Game, Local, Params, Search};

use crate::kit::*;
use crate::sequential;

pub(crate) const ABOUT: &str = "tree search for Hex on 11 x 11 cells, 16 simulations a leaf (Seriema, Figure 3)";

/// The side of the board, and the simulations that evaluate a leaf (Seriema §5.3).
const SIZE: usize = 11;
const SIMULATIONS: u32 = 16;
/// Rollouts of each run by default.
const ROLLOUTS: u64 = 1_000_000;
/// The name of the hand-written search in rows.
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

/// Measures a search and the sequential program in turns, with the same seeds.
fn measure(options: Options, search: fn(&Position, u64, u64) -> Result<f64, BenchError>) -> Measured {
    let position = hex().initial();
    let rollouts = options.operations_or(ROLLOUTS);
    let taken = cold(options, |seed| {
        Ok([sequential_rollouts_per_s(&position, rollouts, seed)?, search(&position, rollouts, seed)?])
    })?;
    Ok(taken.rows([column("rollouts_per_s", "1/s", 1).against(SEQUENTIAL, 0)]))
}

fn hex() -> Hex {
    Hex::new(SIZE).expect("a size that boards may have")
}

fn params(seed: u64) -> Params {
    Params { seed, simulations: SIMULATIONS, exploration: sequential::EXPLORATION, ..Params::default() }
}

/// Times the search with the time to free the tree, as all searches here.
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
