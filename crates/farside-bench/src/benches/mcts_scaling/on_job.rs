//! The search of all workers of a job together.
//!
//! Seriema's Figure 3 shows *visits* and *completions*. Here a visit is a step of selection, and a completion a random game
//! played to its end; both a second.

use std::time::Instant;

use farside::{AGGREGATE_BYTES, Aggregation, Worker};
use farside_mcts::{Budget, Game, JobError, OnJob, Placement, Report, Search};

use super::{ROLLOUTS, SEQUENTIAL, hex, params, quality, sequential_rollouts_per_s};
use crate::case::Case;
use crate::metric::Metric;
use crate::{BenchError, Options};

/// Processes and threads of each. The last ones are more than many machines have CPUs, and still ought to work.
const SHAPES: [(u32, u32); 5] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)];

/// The share of a run's rollouts that each position with known winning moves gets.
const HIT_SHARE: u64 = 100;

/// What overflow mode may keep at one worker for another.
const OVERFLOW_BYTES: usize = 64 << 20;

/// How messages are published.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// In batches ("traditional").
    Trad,
    /// Each at once, and in batches only what rings refuse ("overflow"); Seriema §4.4.2.
    Ovfl,
}

impl Mode {
    pub(super) const ALL: [Self; 2] = [Self::Trad, Self::Ovfl];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Trad => "trad",
            Self::Ovfl => "ovfl",
        }
    }

    pub(super) fn on(self, job: OnJob<'_>) -> OnJob<'_> {
        match self {
            Self::Trad => job.aggregation(Aggregation::Traditional { bytes: AGGREGATE_BYTES }),
            Self::Ovfl => job.aggregation(Aggregation::Overflow { limit_bytes: OVERFLOW_BYTES }),
        }
    }
}

/// A way to search, other than the usual one.
pub(super) type Way = (&'static str, for<'w> fn(OnJob<'w>) -> OnJob<'w>);

/// As it is when nothing else is said.
pub(super) fn usual(job: OnJob<'_>) -> OnJob<'_> {
    job
}

fn random(job: OnJob<'_>) -> OnJob<'_> {
    job.placement(Placement::Random)
}

/// Ways beside the usual one, and the shapes that they are measured in.
const WAYS: [(Way, &[(u32, u32)]); 1] = [(("random", random), &[(2, 1)])];

pub(super) fn cases() -> Vec<Case> {
    let plain = SHAPES
        .into_iter()
        .flat_map(|shape| Mode::ALL.map(|mode| (shape, mode, ("", usual as for<'w> fn(OnJob<'w>) -> OnJob<'w>))));
    let others = WAYS.into_iter().flat_map(|(way, shapes)| shapes.iter().map(move |shape| (*shape, Mode::Ovfl, way)));
    plain.chain(others).map(|(shape, mode, way)| case(shape, mode, way)).collect()
}

fn case((processes, threads): (u32, u32), mode: Mode, (way, with): Way) -> Case {
    let slash = if way.is_empty() { "" } else { "/" };
    let name = format!("{processes}x{threads}/{}{slash}{way}", mode.name());
    Case::job(name, processes, move |me, options| {
        let job = OnJob::new(me).map(|job| with(mode.on(job)))?;
        measure(me, options, job)
    })
    .threads(threads)
}

/// Measures the search and, on worker 0, the sequential program in turns, with the same seeds.
fn measure(me: &Worker, options: Options, job: OnJob<'_>) -> Result<Vec<Metric>, BenchError> {
    let position = hex().initial();
    let rollouts = options.operations_or(ROLLOUTS);
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
            samples.add(&report, start.elapsed().as_secs_f64());
            samples.limits.push(limit);
        }
    }
    let mut metrics = samples.into_metrics(SEQUENTIAL);
    metrics.push(chunks_max(me)?);
    metrics.extend(quality::hit_rates(job, me, options.runs() as u64, rollouts.div_ceil(HIT_SHARE))?);
    Ok(metrics)
}

/// The most chunks that were filled with messages for one worker, since it was behind (Seriema §5.3.3).
pub(super) fn chunks_max(me: &Worker) -> Result<Metric, BenchError> {
    let chunks = me.all_reduce(me.counters().sent.staged_chunks_max(AGGREGATE_BYTES), u64::max)?;
    Ok(Metric::new("chunks_max", "1", vec![chunks as f64]))
}

/// What was measured, run by run.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    rollouts_per_s: Vec<f64>,
    pub(super) limits: Vec<f64>,
    visits_per_s: Vec<f64>,
    completions_per_s: Vec<f64>,
    messages_per_rollout: Vec<f64>,
    depths: Vec<f64>,
    depths_max: Vec<f64>,
}

impl Samples {
    pub(super) fn add<M>(&mut self, report: &Report<M>, seconds: f64) {
        let rollouts = report.rollouts as f64;
        let (messages, steps) = report.job.as_ref().map_or((0, 0), |job| (job.messages(), job.steps()));
        self.rollouts_per_s.push(rollouts / seconds);
        self.visits_per_s.push(steps as f64 / seconds);
        self.completions_per_s.push(report.simulations as f64 / seconds);
        self.messages_per_rollout.push(messages as f64 / rollouts);
        self.depths.push(report.mean_depth);
        self.depths_max.push(report.max_depth.into());
    }

    pub(super) fn into_metrics(self, limit: &str) -> Vec<Metric> {
        vec![
            Metric::new("rollouts_per_s", "1/s", self.rollouts_per_s).against(limit, self.limits),
            Metric::new("visits", "1/s", self.visits_per_s),
            Metric::new("completions", "1/s", self.completions_per_s),
            Metric::new("messages_per_rollout", "1", self.messages_per_rollout),
            Metric::new("depth", "1", self.depths),
            Metric::new("depth_max", "1", self.depths_max),
        ]
    }
}

pub(super) fn search_error(error: JobError) -> BenchError {
    farside::Error::from(error).into()
}
