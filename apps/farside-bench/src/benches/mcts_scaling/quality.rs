//! The quality of moves at equal rollouts. A rate of rollouts alone can hide a worse search.

use farside::{Worker, WorkerId};
use farside_mcts::{Budget, OnJob, Search};

use super::on_job::search_error;
use super::params;
use super::positions::{self, Known};
use crate::kit::*;

/// Half of the 95 % interval of a normal distribution, in standard deviations.
const TWO_SIDED_95: f64 = 1.96;

/// Rollouts for each position by default, when only quality is measured.
const ROLLOUTS_EACH: u64 = 40_000;
/// Processes and threads.
const SHAPE: (u32, u32) = (2, 2);

/// Cases of quality alone, on more workers than small machines have CPUs.
pub(super) fn cases() -> Vec<Case> {
    let (processes, threads) = SHAPE;
    let body = move |me: &Worker, options: Options| {
        let each = options.operations_or(ROLLOUTS_EACH);
        Ok(hit_rates(OnJob::new(me)?, me, 2 * options.runs() as u64, each)?.into())
    };
    vec![Case::job(format!("{processes}x{threads}/quality/owner"), processes, body).threads(threads)]
}

/// Measures the share of positions with known winning moves in which the job finds such a move,
/// against a search in one thread with as many rollouts, run by run. Also returns bounds of the
/// difference, by pairs of position and seed.
pub(super) fn hit_rates(job: OnJob<'_>, me: &Worker, seeds: u64, rollouts: u64) -> Result<[Metric; 3], BenchError> {
    let known = positions::known();
    let budget = Budget::Rollouts(rollouts);
    let rate = |hits: usize| hits as f64 / known.len() as f64;
    let mut rates = [Vec::new(), Vec::new()];
    let mut differences = Vec::new();
    for seed in 0..seeds {
        let (mut hits, mut local_hits) = (0, 0);
        for Known { game, position, winning } in &known {
            let mut search = Search::new(*game).params(params(seed));
            let local = match me.id() == WorkerId::new(0) {
                true => winning.contains(&search.run(position, budget)?.best.chosen),
                false => false,
            };
            let report = search.on(job).run(position, budget).map_err(search_error)?;
            let hit = winning.contains(&report.best.chosen);
            (hits, local_hits) = (hits + usize::from(hit), local_hits + usize::from(local));
            differences.push(f64::from(u8::from(hit)) - f64::from(u8::from(local)));
        }
        rates[0].push(rate(hits));
        rates[1].push(rate(local_hits));
    }
    let [hits, local_hits] = rates;
    let [low, high] = interval(&differences);
    Ok([
        Metric::new("hit_rate", "1", hits).against("search in one thread", local_hits),
        Metric::new("hit_rate_difference_low", "1", vec![low]),
        Metric::new("hit_rate_difference_high", "1", vec![high]),
    ])
}

/// Returns the bounds of the mean of these values with 95 % confidence.
fn interval(differences: &[f64]) -> [f64; 2] {
    let count = differences.len().max(2) as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let variance = differences.iter().map(|difference| (difference - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = TWO_SIDED_95 * (variance / count).sqrt();
    [mean - half, mean + half]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_match_the_normal_distribution() {
        assert_eq!(interval(&[0.0; 10]), [0.0, 0.0]);
        let [low, high] = interval(&[1.0, -1.0, 1.0, -1.0]);
        let half = 1.96 * (4.0_f64 / 3.0 / 4.0).sqrt();
        assert!((low + half).abs() < 1e-12 && (high - half).abs() < 1e-12);
    }
}
