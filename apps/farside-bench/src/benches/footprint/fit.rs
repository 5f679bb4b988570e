//! Extrapolates from the sizes measured to larger jobs.

use std::ops::RangeInclusive;

use super::uses::Use;
use super::{METRICS, PEERS_MAX};
use crate::benches::multi_job::PUBLISHED;
use crate::kit::*;

/// Number of processes of the estimate.
const MILLION: f64 = 1e6;
/// "May require 10GB for message passing with 10KB buffer / proc."
const MESSAGES_PUBLISHED: (&str, f64) = ("message-passing-published", 10e9);
/// Range of sizes that are fitted. Below it every process has a CPU, and libraries behave
/// differently. Above it a process does not reach every other. Both would bend the line.
const FITTED: RangeInclusive<f64> = 4.0..=(PEERS_MAX + 1) as f64;
/// The stage that corresponds to ACP's figures, which contain no calls.
const ONE_SIDED: &str = METRICS[1];
/// The stage that corresponds to message passing.
const TWO_SIDED: &str = METRICS[3];

/// Returns the memory that each further process adds.
pub(super) fn per_peer(rows: &[Row]) -> Vec<Metric> {
    let names = METRICS.into_iter().chain(Use::ALL.map(|what| what.metric)).collect::<Vec<_>>();
    lines(rows, &names).into_iter().map(|(metric, line)| Metric { samples: vec![line.slope], ..metric }).collect()
}

/// Returns the memory of a process among a million, if the line continues.
pub(super) fn estimate(rows: &[Row]) -> Vec<Metric> {
    let at_million = |(metric, line): (Metric, Line)| Metric { samples: vec![line.at(MILLION)], ..metric };
    let computed = lines(rows, &METRICS).into_iter().map(at_million);
    let published = |metric: &'static str| move |(peer, bytes)| Metric::new(metric, "B", vec![bytes]).of_peer(peer);
    let one_sided = PUBLISHED.into_iter().map(published(ONE_SIDED));
    computed.chain(one_sided).chain([MESSAGES_PUBLISHED].map(published(TWO_SIDED))).collect()
}

/// Returns a line for each of these metrics of each peer, as a metric without samples. A metric
/// needs two fitted sizes.
fn lines(rows: &[Row], names: &[&'static str]) -> Vec<(Metric, Line)> {
    let mut peers: Vec<_> = rows.iter().map(|row| row.peer.as_deref()).collect();
    peers.sort_unstable();
    peers.dedup();
    let mut lines = Vec::new();
    for peer in peers {
        for &name in names {
            let of_metric = rows.iter().filter(|row| row.metric == name && row.peer.as_deref() == peer);
            let points = of_metric.filter_map(|row| Some((processes(&row.case)?, row.value)));
            let points: Vec<_> = points.filter(|(count, _)| FITTED.contains(count)).collect();
            let metric = Metric { peer: peer.map(str::to_owned), ..Metric::new(name, "B", Vec::new()) };
            lines.extend(Line::through(&points).map(|line| (metric, line)));
        }
    }
    lines
}

/// Returns the number that the name of a case begins with, if any.
fn processes(case: &str) -> Option<f64> {
    case.split('/').next()?.parse().ok()
}

/// A straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    start: f64,
    slope: f64,
}

impl Line {
    /// Fits a line by least squares; `None` if the points determine no line.
    fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
        let (middle_x, middle_y) = (mean(|point| point.0), mean(|point| point.1));
        let [mut covariance, mut variance] = [0.0; 2];
        for (x, y) in points {
            covariance += (x - middle_x) * (y - middle_y);
            variance += (x - middle_x).powi(2);
        }
        let slope = covariance / variance;
        slope.is_finite().then_some(Self { start: middle_y - slope * middle_x, slope })
    }

    fn at(self, x: f64) -> f64 {
        self.start + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_what_lies_on_it() {
        let line = Line::through(&[(2.0, 7.0), (4.0, 11.0), (8.0, 19.0)]).unwrap();
        assert!((line.start - 3.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9, "{line:?}");
        assert!((line.at(1e6) - 2_000_003.0).abs() < 1e-3, "{line:?}");
        // Half of the points lie above the line and half below.
        let line = Line::through(&[(0.0, 1.0), (0.0, 3.0), (1.0, 2.0), (1.0, 4.0)]).unwrap();
        assert!((line.start - 2.0).abs() < 1e-9 && (line.slope - 1.0).abs() < 1e-9, "{line:?}");
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(2.0, 1.0)]), None);
        assert_eq!(Line::through(&[(2.0, 1.0), (2.0, 3.0)]), None);
    }

    fn row(case: &str, metric: &str, value: f64, peer: Option<&str>) -> Row {
        let metric = Metric::new(metric, "B", vec![value]);
        Row { peer: peer.map(str::to_owned), ..Row::new("footprint", case, &metric).unwrap() }
    }

    #[test]
    fn peers_have_lines_of_their_own() {
        let mut rows = Vec::new();
        for count in [2, 4, 8, 32, 64] {
            let (case, bend) = (format!("{count}/shm"), if [2, 64].contains(&count) { 1e9 } else { 0.0 });
            rows.push(row(&case, "put_bytes", 1000.0 + 10.0 * f64::from(count) + bend, None));
            rows.push(row(&case, "called_bytes", 500.0 + 20.0 * f64::from(count), Some("openmpi")));
        }
        rows.extend([4, 32].map(|count| row(&format!("{count}/pipe/shm"), "pipe_bytes", f64::from(count), None)));
        rows.push(row("per-peer/shm", "put_bytes", 1e9, None));
        let found = |metrics: Vec<Metric>| {
            let one = |metric: Metric| (metric.name, metric.peer, metric.samples[0].round());
            metrics.into_iter().map(one).collect::<Vec<_>>()
        };
        let named = |name: &str, peer: Option<&str>, value| (name.to_owned(), peer.map(str::to_owned), value);
        assert_eq!(
            found(per_peer(&rows)),
            [
                named("put_bytes", None, 10.0),
                named("pipe_bytes", None, 1.0),
                named("called_bytes", Some("openmpi"), 20.0)
            ]
        );
        let estimates = found(estimate(&rows));
        assert_eq!(
            estimates[..2],
            [named("put_bytes", None, 1e7 + 1e3), named("called_bytes", Some("openmpi"), 2e7 + 5e2)]
        );
        assert_eq!(estimates.len(), 2 + PUBLISHED.len() + 1);
    }
}
