//! The search of all workers of a job together.
//!
//! Seriema's Figure 3 shows *visits* and *completions* a second. Here a visit is a step of
//! selection, and a completion is a random game played to its end.

use std::time::Instant;

use farside::{AGGREGATE_BYTES, Aggregation, Worker};
use farside_mcts::{Budget, Game, JobError, OnJob, Placement, Report, Search};

use super::{ROLLOUTS, SEQUENTIAL, hex, params, quality, sequential_rollouts_per_s};
use crate::case::Case;
use crate::metric::Metric;
use crate::search_modes::seriema::{Figures, Seriema};
use crate::{BenchError, Options};

/// Processes and threads of each. The last shapes exceed the CPUs of many machines and should still
/// work.
const SHAPES: [(u32, u32); 5] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)];

/// The divisor of a run's rollouts for each position with known winning moves.
const HIT_SHARE: u64 = 100;

/// Bytes that overflow mode may keep at one worker for another.
const OVERFLOW_BYTES: usize = 64 << 20;

/// The way in which messages are published.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// In batches ("traditional").
    Trad,
    /// Each at once; those that a ring refuses in batches ("overflow"); Seriema §4.4.2.
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

    pub(super) fn aggregation(self) -> Aggregation {
        match self {
            Self::Trad => Aggregation::Traditional { bytes: AGGREGATE_BYTES },
            Self::Ovfl => Aggregation::Overflow { limit_bytes: OVERFLOW_BYTES },
        }
    }

    pub(super) fn on(self, job: OnJob<'_>) -> OnJob<'_> {
        job.aggregation(self.aggregation())
    }
}

/// A variant of the search: its name and its settings.
pub(super) type Variant = (&'static str, for<'w> fn(OnJob<'w>) -> OnJob<'w>);

/// The default.
pub(super) fn usual(job: OnJob<'_>) -> OnJob<'_> {
    job
}

fn random(job: OnJob<'_>) -> OnJob<'_> {
    job.placement(Placement::Random)
}

/// The ways beside the usual one, and the shapes that they are measured in.
const VARIANTS: [(Variant, &[(u32, u32)]); 1] = [(("random", random), &[(2, 1)])];

pub(super) fn cases() -> Vec<Case> {
    let plain = SHAPES
        .into_iter()
        .flat_map(|shape| Mode::ALL.map(|mode| (shape, mode, ("", usual as for<'w> fn(OnJob<'w>) -> OnJob<'w>))));
    let others =
        VARIANTS.into_iter().flat_map(|(way, shapes)| shapes.iter().map(move |shape| (*shape, Mode::Ovfl, way)));
    let jobs = plain.chain(others).map(|(shape, mode, way)| case(shape, mode, way));
    jobs.chain(SERIEMA_SHAPES.map(seriema_case)).collect()
}

/// Processes, threads and whether expansions inside a process are sent by calls too. 8 threads
/// beside 2 processes of 4 is the comparison of Seriema §5.3.3.
const SERIEMA_SHAPES: [(u32, u32, bool); 6] =
    [(1, 2, false), (2, 1, false), (1, 8, false), (2, 4, false), (1, 2, true), (2, 4, true)];

fn seriema_case((processes, threads, force_remote): (u32, u32, bool)) -> Case {
    let forced = if force_remote { "-forced" } else { "" };
    let name = format!("{processes}x{threads}/{}/seed{forced}", Mode::Ovfl.name());
    Case::job(name, processes, move |me, options| {
        let search = Seriema::new(me, Mode::Ovfl.aggregation())?.force_remote(force_remote);
        let position = hex().initial();
        let mut metrics = in_turns(me, options, |seed, rollouts| {
            let start = Instant::now();
            let found = search.run(&position, rollouts, &params(seed))?;
            Ok((found.figures, start.elapsed().as_secs_f64()))
        })?;
        metrics.push(chunks_max(me)?);
        Ok(metrics)
    })
    .threads(threads)
}

fn case((processes, threads): (u32, u32), mode: Mode, (way, with): Variant) -> Case {
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
    let mut metrics = in_turns(me, options, |seed, rollouts| {
        let start = Instant::now();
        let search = Search::new(hex()).params(params(seed)).on(job).run(&position, Budget::Rollouts(rollouts));
        let report = search.map_err(search_error)?;
        Ok((figures_of(&report), start.elapsed().as_secs_f64()))
    })?;
    metrics.push(chunks_max(me)?);
    let rollouts = options.operations_or(ROLLOUTS);
    metrics.extend(quality::hit_rates(job, me, options.runs() as u64, rollouts.div_ceil(HIT_SHARE))?);
    Ok(metrics)
}

/// Measures a search, which returns its figures and seconds, and on worker 0 the sequential
/// program. Run 0 is not counted: it sets up the rings.
fn in_turns(
    me: &Worker,
    options: Options,
    mut search: impl FnMut(u64, u64) -> Result<(Figures, f64), BenchError>,
) -> Result<Vec<Metric>, BenchError> {
    let rollouts = options.operations_or(ROLLOUTS);
    let mut samples = Samples::default();
    for run in 0..=options.runs() as u64 {
        me.barrier()?;
        let is_first = me.id().number() == 0;
        let limit = if is_first { sequential_rollouts_per_s(&hex().initial(), rollouts, run)? } else { 0.0 };
        me.barrier()?;
        let (figures, seconds) = search(run, rollouts)?;
        if run > 0 {
            samples.add(figures, seconds);
            samples.limits.push(limit);
        }
    }
    Ok(samples.into_metrics(SEQUENTIAL))
}

/// Returns what a search on a job did.
pub(super) fn figures_of<M>(report: &Report<M>) -> Figures {
    let (messages, steps) = report.job.as_ref().map_or((0, 0), |job| (job.messages(), job.steps()));
    let Report { rollouts, simulations, max_depth, .. } = *report;
    Figures { rollouts, steps, simulations, messages, max_depth }
}

/// Returns the largest number of chunks filled with messages for one worker that was behind
/// (Seriema §5.3.3).
pub(super) fn chunks_max(me: &Worker) -> Result<Metric, BenchError> {
    let chunks = me.all_reduce(me.counters().sent.staged_chunks_max(AGGREGATE_BYTES), u64::max)?;
    Ok(Metric::new("chunks_max", "1", vec![chunks as f64]))
}

/// The measurements of several runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    rollouts_per_s: Vec<f64>,
    limits: Vec<f64>,
    visits_per_s: Vec<f64>,
    completions_per_s: Vec<f64>,
    messages_per_rollout: Vec<f64>,
    depths: Vec<f64>,
    depths_max: Vec<f64>,
}

impl Samples {
    pub(super) fn add(&mut self, figures: Figures, seconds: f64) {
        let rollouts = figures.rollouts as f64;
        self.rollouts_per_s.push(rollouts / seconds);
        self.visits_per_s.push(figures.steps as f64 / seconds);
        self.completions_per_s.push(figures.simulations as f64 / seconds);
        self.messages_per_rollout.push(figures.messages as f64 / rollouts);
        self.depths.push(figures.steps as f64 / rollouts);
        self.depths_max.push(figures.max_depth.into());
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
