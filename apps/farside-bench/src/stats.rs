//! Statistics of several measurements.

/// A summary of several measurements of one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: usize,
}

impl Summary {
    /// Summarises `samples`; `None` if there are none or one is not finite.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples)?;
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[upper] } else { sorted[upper - 1].midpoint(sorted[upper]) };
        Some(Self { median, min, max, runs: sorted.len() })
    }
}

/// Returns the median of `samples`; 0 if there are none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    Summary::of(samples).map_or(0.0, |summary| summary.median)
}

/// Returns the smallest of `samples` that a share of them, from 0 to 1, does not exceed; 0 if there
/// are none.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    let Some(sorted) = sorted(samples) else { return 0.0 };
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        for (samples, median) in
            [(&[7.0][..], 7.0), (&[9.0, 1.0], 5.0), (&[3.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 3.0, 2.0], 2.5)]
        {
            let summary = Summary::of(samples).unwrap();
            assert_eq!((summary.median, summary.runs), (median, samples.len()), "{samples:?}");
            assert!(samples.iter().all(|sample| (summary.min..=summary.max).contains(sample)));
        }
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[1.0, f64::INFINITY]), None);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn quantiles_are_by_rank() {
        for count in [1, 99, 100, 101, 127, 128, 129] {
            let samples: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            for share in [0.0, 0.5, 0.99, 1.0] {
                let value = quantile(&samples, share);
                let below = |limit: f64| samples.iter().filter(|sample| **sample <= limit).count() as f64;
                assert!(below(value) >= share * samples.len() as f64, "{count} {share}");
                assert!(below(value - 1.0) < share * samples.len() as f64 || value == 1.0, "{count} {share}");
            }
        }
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
