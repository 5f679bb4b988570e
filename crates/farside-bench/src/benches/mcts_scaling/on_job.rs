//! The search of all workers of a job together.
//!
//! Seriema's Figure 3 shows *visits* and *completions*. Here a visit is a step of selection, and a completion a random game
//! played to its end; both a second.

use std::time::Instant;

use farside::{AGGREGATE_BYTES, Worker, WorkerId};
use farside_mcts::{Budget, Game, JobError, OnJob, Report, Search};

use super::positions::{self, Known};
use super::{ROLLOUTS, SEQUENTIAL, hex, params, sequential_rollouts_per_s};
use crate::case::Case;
use crate::metric::Metric;
use crate::{BenchError, Options};

/// Processes and threads of each. The last ones are more than many machines have CPUs, and still ought to work.
const SHAPES: [(u32, u32); 5] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)];
/// How messages are published: in batches ("traditional"), or each at once, into rings that grow when they are full
/// ("overflow"); Seriema §4.4.2.
const MODES: [(&str, usize); 2] = [("trad", AGGREGATE_BYTES), ("ovfl", 0)];
/// The share of a run's rollouts that each position with known winning moves gets.
const HIT_SHARE: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    let modes = SHAPES.into_iter().flat_map(|shape| MODES.map(|mode| (shape, mode)));
    let case = |((processes, threads), (mode, batch_bytes)): ((u32, u32), (&str, usize))| {
        let name = format!("{processes}x{threads}/{mode}");
        Case::job(name, processes, move |me, options| measure(me, options, batch_bytes)).threads(threads)
    };
    modes.map(case).collect()
}

/// Measures the search and, on worker 0, the sequential program in turns, with the same seeds.
fn measure(me: &Worker, options: Options, batch_bytes: usize) -> Result<Vec<Metric>, BenchError> {
    let position = hex().initial();
    let rollouts = options.operations_or(ROLLOUTS);
    let job = OnJob::new(me)?.batch_bytes(batch_bytes);
    let mut samples = Samples::default();
    // The first run is for the rings to be set up.
    for run in 0..=options.runs() as u64 {
        me.barrier()?;
        let is_first = me.id().number() == 0;
        let limit = if is_first { sequential_rollouts_per_s(&position, rollouts, run)? } else { 0.0 };
        me.barrier()?;
        let start = Instant::now();
        let search = Search::new(hex()).params(params(run)).on(job).run(&position, Budget::Rollouts(rollouts));
        let report = search.map_err(search_error)?;
        if run > 0 {
            samples.add(&report, start.elapsed().as_secs_f64(), limit);
        }
    }
    let [hits, local_hits] = hit_rates(job, me, options)?;
    let chunks = me.all_reduce(me.counters().sent.chunks_grown, u64::max)?;
    Ok(vec![
        Metric::new("rollouts_per_s", "1/s", samples.rollouts_per_s).against(SEQUENTIAL, samples.limits),
        Metric::new("visits", "1/s", samples.visits_per_s),
        Metric::new("completions", "1/s", samples.completions_per_s),
        Metric::new("messages_per_rollout", "1", samples.messages_per_rollout),
        Metric::new("depth", "1", samples.depths),
        Metric::new("chunks_max", "1", vec![chunks as f64]),
        Metric::new("hit_rate", "1", hits).against("search in one thread", local_hits),
    ])
}

/// What was measured, run by run.
#[derive(Debug, Default)]
struct Samples {
    rollouts_per_s: Vec<f64>,
    limits: Vec<f64>,
    visits_per_s: Vec<f64>,
    completions_per_s: Vec<f64>,
    messages_per_rollout: Vec<f64>,
    depths: Vec<f64>,
}

impl Samples {
    fn add<M>(&mut self, report: &Report<M>, seconds: f64, limit: f64) {
        let rollouts = report.rollouts as f64;
        let messages = report.job.as_ref().map_or(0, |job| job.messages());
        self.rollouts_per_s.push(rollouts / seconds);
        self.limits.push(limit);
        self.visits_per_s.push(report.mean_depth * rollouts / seconds);
        self.completions_per_s.push(report.simulations as f64 / seconds);
        self.messages_per_rollout.push(messages as f64 / rollouts);
        self.depths.push(report.mean_depth);
    }
}

/// In how many of the positions with known winning moves such a move is found by the job, and by a search in one thread with
/// as many rollouts, run by run.
fn hit_rates(job: OnJob<'_>, me: &Worker, options: Options) -> Result<[Vec<f64>; 2], BenchError> {
    let known = positions::known();
    let budget = Budget::Rollouts(options.operations_or(ROLLOUTS).div_ceil(HIT_SHARE));
    let rate = |hits: usize| hits as f64 / known.len() as f64;
    let mut rates = [Vec::new(), Vec::new()];
    for seed in 0..options.runs() as u64 {
        let (mut hits, mut local_hits) = (0, 0);
        for Known { game, position, winning } in &known {
            let mut search = Search::new(*game).params(params(seed));
            if me.id() == WorkerId::new(0) {
                local_hits += usize::from(winning.contains(&search.run(position, budget)?.best.chosen));
            }
            let report = search.on(job).run(position, budget).map_err(search_error)?;
            hits += usize::from(winning.contains(&report.best.chosen));
        }
        rates[0].push(rate(hits));
        rates[1].push(rate(local_hits));
    }
    Ok(rates)
}

fn search_error(error: JobError) -> BenchError {
    farside::Error::from(error).into()
}
