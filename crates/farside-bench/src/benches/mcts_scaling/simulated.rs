//! The searches on a simulated network, for the shapes of Seriema's Figure 3 that no small machine
//! has.
//!
//! **Simulated, not measured**: a model of the network determines the cost of a message. Computations
//! cost what they took once on one machine. Nothing else of a message costs time, nor does memory that
//! several CPUs write. All processes are a network apart, also those of one machine. The same seed
//! gives the same rows.

use std::sync::Mutex;
use std::time::Duration;

use farside::{SimOptions, Simulation, Worker};
use farside_mcts::{Budget, Costs, Game, OnJob, Search};

use super::on_job::{Mode, Samples, chunks_max, figures_of};
use super::{hex, params};
use crate::metric::Metric;
use crate::row::Row;
use crate::search_modes::seriema::Seriema;
use crate::simulated::SimNetwork;
use crate::{BenchError, Options};

/// Machines, processes of each, and their threads (Seriema §5.3.3).
const SHAPES: [(u32, u32, u32); 6] = [(1, 1, 1), (1, 1, 8), (1, 2, 4), (1, 2, 8), (2, 2, 8), (4, 2, 8)];
/// Rollouts of a run for each worker, when nothing else is asked for.
const ROLLOUTS_PER_WORKER: u64 = 1000;
/// What the rows are set against: as many workers that never wait.
const LIMIT: &str = "one worker's rate, times workers";
/// Room for a batch in one message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// What computing takes: the search in one thread on a Sapphire Rapids CPU, 11 × 11 cells, 16 simulations a leaf.
const COSTS: Costs = Costs { step: Duration::from_nanos(110), evaluation: Duration::from_nanos(1150) };

pub(crate) fn run(
    network: SimNetwork,
    options: Options,
    on_row: &mut dyn FnMut(Row) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    for way in ["seed", "owner"] {
        for mode in Mode::ALL {
            let mut of_one = None;
            for shape @ (machines, processes, threads) in SHAPES {
                let per_worker = options.operations_or(ROLLOUTS_PER_WORKER);
                let mut metrics = simulate(network, shape, per_worker, options.seed, mode, way == "seed")?;
                let workers = f64::from(machines * processes * threads);
                let rate = &mut metrics[0];
                let of_one = of_one.get_or_insert_with(|| rate.samples.clone());
                *rate = rate.clone().against(LIMIT, of_one.iter().map(|rate| rate * workers).collect());
                let case = format!("{machines}x{processes}x{threads}/{}/{way}/{network}", mode.name());
                for metric in &metrics {
                    crate::simulated::report("mcts-scaling", &case, metric, None, on_row)?;
                }
            }
        }
    }
    Ok(())
}

fn simulate(
    network: SimNetwork,
    (machines, processes, threads): (u32, u32, u32),
    rollouts_per_worker: u64,
    seed: u64,
    mode: Mode,
    as_seed: bool,
) -> Result<Vec<Metric>, BenchError> {
    let found = Mutex::new(None);
    let network = network.model();
    let options =
        SimOptions { network, delay_max_ns: 0, message_bytes_max: MESSAGE_BYTES_MAX, ..SimOptions::default() };
    let workers = u64::from(machines * processes * threads);
    let search = |me: &Worker| -> farside::Result<()> {
        let job = mode.on(OnJob::new(me)?).costs(COSTS);
        let seriema = Seriema::new(me, mode.aggregation())?.costs(COSTS);
        let mut samples = Samples::default();
        // The first run is for the rings to be set up.
        for rollouts in [4 * workers, rollouts_per_worker * workers] {
            let position = hex().initial();
            let (figures, elapsed) = if as_seed {
                let start = me.now();
                let found = seriema.run(&position, rollouts, &params(seed))?;
                (found.figures, me.now() - start)
            } else {
                let mut search = Search::new(hex()).params(params(seed)).on(job);
                let report = search.run(&position, Budget::Rollouts(rollouts))?;
                (figures_of(&report), report.elapsed)
            };
            samples = Samples::default();
            samples.add(figures, elapsed.as_secs_f64());
        }
        let chunks = chunks_max(me)?;
        if me.id().number() == 0 {
            let mut metrics = samples.into_metrics(LIMIT);
            metrics.push(chunks);
            *found.lock().expect("nobody has panicked") = Some(metrics);
        }
        Ok(())
    };
    let simulated = Simulation::new(machines * processes, threads, seed).options(options).run(search)?;
    simulated.verdict?;
    Ok(found.into_inner().expect("nobody has panicked").expect("worker 0 has measured"))
}
