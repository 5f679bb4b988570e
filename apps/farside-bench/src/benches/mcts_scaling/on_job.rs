//! The search of all workers of a job together.
//!
//! Seriema's Figure 3 shows *visits* and *completions* a second. Here a visit is a step of
//! selection, and a completion is a random game played to its end.

use std::time::Instant;

use farside::{AGGREGATE_BYTES, Aggregation, Worker};
use farside_mcts::{Budget, Game, JobError, OnJob, Placement, Report, Search};

use super::{ROLLOUTS, SEQUENTIAL, hex, params, quality, sequential_rollouts_per_s};
use crate::kit::*;
use crate::search_modes::seriema::{Figures, Seriema};

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

pub(super) fn cases() -> Vec<Case> {
    let usual = SHAPES.into_iter().flat_map(|shape| Mode::ALL.map(|mode| case(shape, mode, None)));
    let random = case((2, 1), Mode::Ovfl, Some(Placement::Random));
    usual.chain([random]).chain(SERIEMA_SHAPES.map(seriema_case)).collect()
}

/// Processes, threads and whether expansions inside a process are sent by calls too. 8 threads
/// and 2 processes of 4 are the comparison of Seriema §5.3.3.
const SERIEMA_SHAPES: [(u32, u32, bool); 6] =
    [(1, 2, false), (2, 1, false), (1, 8, false), (2, 4, false), (1, 2, true), (2, 4, true)];

fn seriema_case((processes, threads, force_remote): (u32, u32, bool)) -> Case {
    let forced = if force_remote { "-forced" } else { "" };
    let name = format!("{processes}x{threads}/{}/seed{forced}", Mode::Ovfl.name());
    Case::job(name, processes, move |me, options| {
        let search = Seriema::new(me, Mode::Ovfl.aggregation())?.force_remote(force_remote);
        let position = hex().initial();
        let mut metrics = against_sequential(me, options, |seed, rollouts| {
            let start = Instant::now();
            let found = search.run(&position, rollouts, &params(seed))?;
            Ok((found.figures, start.elapsed().as_secs_f64()))
        })?;
        metrics.push(chunks_max(me)?);
        Ok(metrics)
    })
    .threads(threads)
}

/// The search of the library, with its usual placement of nodes or at random.
fn case((processes, threads): (u32, u32), mode: Mode, placement: Option<Placement>) -> Case {
    let suffix = if placement.is_some() { "/random" } else { "" };
    Case::job(format!("{processes}x{threads}/{}{suffix}", mode.name()), processes, move |me, options| {
        let job = mode.on(OnJob::new(me)?);
        measure(me, options, placement.map_or(job, |placement| job.placement(placement)))
    })
    .threads(threads)
}

/// Measures the search and, on worker 0, the sequential program in turns, with the same seeds.
fn measure(me: &Worker, options: Options, job: OnJob<'_>) -> Measured {
    let position = hex().initial();
    let mut metrics = against_sequential(me, options, |seed, rollouts| {
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
fn against_sequential(
    me: &Worker,
    options: Options,
    mut search: impl FnMut(u64, u64) -> Result<(Figures, f64), BenchError>,
) -> Measured {
    let rollouts = options.operations_or(ROLLOUTS);
    let taken = warmed(options, |run| {
        me.barrier()?;
        let limit = if me.is_first() { sequential_rollouts_per_s(&hex().initial(), rollouts, run)? } else { 0.0 };
        me.barrier()?;
        let (figures, seconds) = search(run, rollouts)?;
        Ok(values_of(figures, seconds, limit))
    })?;
    Ok(metrics_of(&taken))
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

/// Returns the metrics of searches. The last of their values is the limit of the first.
pub(super) fn metrics_of(taken: &Taken) -> Vec<Metric> {
    taken.rows([
        column("rollouts_per_s", "1/s", 0).against(SEQUENTIAL, 6),
        column("visits", "1/s", 1),
        column("completions", "1/s", 2),
        column("messages_per_rollout", "1", 3),
        column("depth", "1", 4),
        column("depth_max", "1", 5),
    ])
}

/// Returns the values of a search that took some seconds, with its limit.
pub(super) fn values_of(figures: Figures, seconds: f64, limit: f64) -> [f64; 7] {
    let Figures { rollouts, steps, simulations, messages, max_depth } = figures;
    let [rollouts, steps, completions, messages] = [rollouts, steps, simulations, messages].map(|count| count as f64);
    let per_s = [rollouts, steps, completions].map(|count| count / seconds);
    [per_s[0], per_s[1], per_s[2], messages / rollouts, steps / rollouts, max_depth.into(), limit]
}

pub(super) fn search_error(error: JobError) -> BenchError {
    farside::Error::from(error).into()
}
