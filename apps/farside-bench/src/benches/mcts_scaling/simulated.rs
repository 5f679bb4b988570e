//! The searches on a simulated network, for the shapes of Seriema's Figure 3 that no small machine
//! has.
//!
//! **Simulated, not measured**: a model of the network determines the cost of a message.
//! Computations cost what they took once on one machine. Nothing else of a message costs time, nor
//! does memory that several CPUs write. All processes are a network apart, also those of one
//! machine. The same seed gives the same rows.

use std::time::Duration;

use farside::{SimOptions, Simulation};
use farside_mcts::{Budget, Costs, Game, OnJob, Search};

use super::on_job::{Mode, chunks_max, figures_of, metrics_of, search_error, values_of};
use super::{hex, params};
use crate::kit::*;
use crate::search_modes::seriema::Seriema;

/// Machines, processes of each, and their threads (Seriema §5.3.3).
const SHAPES: [(u32, u32, u32); 6] = [(1, 1, 1), (1, 1, 8), (1, 2, 4), (1, 2, 8), (2, 2, 8), (4, 2, 8)];
/// Rollouts of a run for each worker by default.
const ROLLOUTS_PER_WORKER: u64 = 1000;
/// The limit: as many workers that never wait.
const LIMIT: &str = "one worker's rate, times workers";
/// Bytes of a message, with room for a batch.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Time of computations: of the search in one thread on a Sapphire Rapids CPU, 11 × 11 cells, 16
/// simulations a leaf.
const COSTS: Costs = Costs { step: Duration::from_nanos(110), evaluation: Duration::from_nanos(1150) };

/// The searches that are measured: Seriema's, and the search of farside-mcts.
const VARIANTS: [&str; 2] = ["seed", "owner"];

pub(crate) fn cases(network: SimNetwork) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in VARIANTS {
        for mode in Mode::ALL {
            for shape in SHAPES {
                let measure = move |options, before: &[Row]| measure(network, shape, mode, way, options, before);
                cases.push(Case::after(name(shape, mode, way), measure));
            }
        }
    }
    cases
}

fn name((machines, processes, threads): (u32, u32, u32), mode: Mode, way: &str) -> String {
    format!("{machines}x{processes}x{threads}/{}/{way}", mode.name())
}

fn measure(
    network: SimNetwork,
    shape: (u32, u32, u32),
    mode: Mode,
    way: &str,
    options: Options,
    before: &[Row],
) -> Measured {
    let per_worker = options.operations_or(ROLLOUTS_PER_WORKER);
    let search = |shape| simulate(network, shape, per_worker, options.seed, mode, way == "seed");
    let mut metrics = search(shape)?;
    let rate = &mut metrics[0];
    let [one, ..] = SHAPES;
    let case_of_one = format!("{}/{network}", name(one, mode, way));
    let of_one = match before.iter().find(|row| row.case == case_of_one && row.metric == rate.name) {
        Some(row) => vec![row.value],
        None if shape == one => rate.samples.clone(),
        // The case of one worker was not selected. The same seed gives the same rate.
        None => search(one)?.swap_remove(0).samples,
    };
    let (machines, processes, threads) = shape;
    let workers = f64::from(machines * processes * threads);
    *rate = rate.clone().against(LIMIT, of_one.iter().map(|rate| rate * workers).collect());
    Ok(metrics)
}

fn simulate(
    network: SimNetwork,
    (machines, processes, threads): (u32, u32, u32),
    rollouts_per_worker: u64,
    seed: u64,
    mode: Mode,
    as_seed: bool,
) -> Measured {
    let options = SimOptions { message_bytes_max: MESSAGE_BYTES_MAX, ..network.settings() };
    let workers = u64::from(machines * processes * threads);
    on_simulation(Simulation::new(machines * processes, threads, seed).options(options), |me| {
        let job = mode.on(OnJob::new(me)?).costs(COSTS);
        let seriema = Seriema::new(me, mode.aggregation())?.costs(COSTS);
        let mut taken = Taken::default();
        // The first run sets up the rings.
        for rollouts in [4 * workers, rollouts_per_worker * workers] {
            let position = hex().initial();
            let (figures, elapsed) = if as_seed {
                let start = me.now();
                let found = seriema.run(&position, rollouts, &params(seed))?;
                (found.figures, me.now() - start)
            } else {
                let mut search = Search::new(hex()).params(params(seed)).on(job);
                let report = search.run(&position, Budget::Rollouts(rollouts)).map_err(search_error)?;
                (figures_of(&report), report.elapsed)
            };
            taken = Taken::of(values_of(figures, elapsed.as_secs_f64(), 0.0));
        }
        let mut metrics = metrics_of(&taken);
        metrics.push(chunks_max(me)?);
        Ok(metrics)
    })
}
