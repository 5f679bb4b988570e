//! The rows that benches produce, and their JSON.

use serde_json::json;

use crate::metric::Metric;
use crate::stats::{Summary, median};

/// One metric of one case: the median of several runs, with the limit that was measured in the
/// same run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The bench.
    pub(crate) bench: String,
    /// The case, such as `trad/8B`.
    pub(crate) case: String,
    /// The metric, such as `calls_per_s`.
    pub(crate) metric: String,
    /// The median of all runs.
    pub(crate) value: f64,
    /// Its unit: `1/s`, `ns`, `ms`, `B`, or `1` for a share or a count.
    pub(crate) unit: String,
    /// The median of the limit.
    pub(crate) limit: Option<f64>,
    /// The name of the limit, which says how it was measured.
    pub(crate) limit_name: Option<String>,
    /// `value` ÷ `limit`, also where a lower value is better.
    pub(crate) ratio: Option<f64>,
    /// Number of runs.
    pub(crate) runs: usize,
    /// The smallest value of all runs.
    pub(crate) min: f64,
    /// The largest value of all runs.
    pub(crate) max: f64,
    /// The peer that the row belongs to; `None` for Farside.
    pub(crate) peer: Option<String>,
}

impl Row {
    /// Summarises a metric; `None` if it has no samples.
    pub(crate) fn new(bench: &str, case: &str, metric: &Metric) -> Option<Self> {
        let Summary { median: value, min, max, runs } = Summary::of(&metric.samples)?;
        let limit = metric.limit.as_ref().map(|limit| median(&limit.samples)).filter(|limit| *limit > 0.0);
        Some(Self {
            bench: bench.into(),
            case: case.into(),
            metric: metric.name.clone(),
            value,
            unit: metric.unit.clone(),
            limit,
            limit_name: metric.limit.as_ref().map(|limit| limit.name.clone()),
            ratio: limit.map(|limit| value / limit),
            runs,
            min,
            max,
            peer: metric.peer.clone(),
        })
    }

    /// The name of the case for people, with that of the peer.
    pub(crate) fn name(&self) -> String {
        match &self.peer {
            Some(peer) => format!("{} ({peer})", self.case),
            None => self.case.clone(),
        }
    }

    /// Returns the row as one line of JSON, without a line feed. `limit`, `limit_name` and `ratio`
    /// are null if there is no limit. Only a peer's row has the key `peer`.
    #[must_use]
    pub(crate) fn to_json(&self) -> String {
        // An object of serde_json would forget the order of the keys.
        let mut fields = vec![
            ("bench", json!(self.bench)),
            ("case", json!(self.case)),
            ("metric", json!(self.metric)),
            ("value", json!(self.value)),
            ("unit", json!(self.unit)),
            ("limit", json!(self.limit)),
            ("limit_name", json!(self.limit_name)),
            ("ratio", json!(self.ratio)),
            ("runs", json!(self.runs)),
            ("min", json!(self.min)),
            ("max", json!(self.max)),
        ];
        fields.extend(self.peer.as_ref().map(|peer| ("peer", json!(peer))));
        let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_row_is_one_line_of_json() {
        let metric = Metric::new("calls_per_s", "1/s", vec![2e8, 3e8, 4e8]).against("raw stream", vec![6e8]);
        let row = Row::new("invoke-throughput", "trad/8B", &metric).unwrap();
        assert_eq!(
            row.to_json(),
            r#"{"bench":"invoke-throughput","case":"trad/8B","metric":"calls_per_s","value":300000000.0,"unit":"1/s","limit":600000000.0,"limit_name":"raw stream","ratio":0.5,"runs":3,"min":200000000.0,"max":400000000.0}"#
        );
        let peer = Row { peer: Some("a \"peer\"".into()), limit: None, limit_name: None, ratio: None, ..row };
        let parsed: Value = serde_json::from_str(&peer.to_json()).unwrap();
        assert_eq!(parsed["peer"], "a \"peer\"");
        assert!(parsed["limit"].is_null() && parsed["ratio"].is_null());
    }

    #[test]
    fn missing_measurements_make_no_row() {
        assert_eq!(Row::new("b", "c", &Metric::new("rtt_ns", "ns", vec![])), None);
        let row = Row::new("b", "c", &Metric::new("rtt_ns", "ns", vec![1.0]).against("nothing", vec![])).unwrap();
        assert_eq!((row.limit, row.ratio, row.peer), (None, None, None));
        let row = Row::new("b", "c", &Metric::new("rtt_ns", "ns", vec![1.0]).of_peer("a peer")).unwrap();
        assert_eq!(row.peer.as_deref(), Some("a peer"));
    }
}
