//! The metrics of a case, and their way from the measuring process to the reporting one.

use serde_json::{Value, json};

use crate::BenchError;

/// One quantity, measured several times, with the limit that was measured in between.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) samples: Vec<f64>,
    pub(crate) limit: Option<Limit>,
    /// The peer that the samples belong to; `None` for Farside.
    pub(crate) peer: Option<String>,
}

/// The best possible value of the quantity.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) samples: Vec<f64>,
}

impl Metric {
    pub(crate) fn new(name: &str, unit: &str, samples: Vec<f64>) -> Self {
        Self { name: name.into(), unit: unit.into(), samples, limit: None, peer: None }
    }

    /// Adds a limit in the same unit.
    pub(crate) fn against(mut self, name: &str, samples: Vec<f64>) -> Self {
        self.limit = Some(Limit { name: name.into(), samples });
        self
    }

    /// Adds the samples of another measurement of the same quantity.
    pub(crate) fn extend(&mut self, again: Self) {
        debug_assert_eq!((&self.name, &self.peer), (&again.name, &again.peer));
        self.samples.extend(again.samples);
        if let (Some(limit), Some(again)) = (&mut self.limit, again.limit) {
            limit.samples.extend(again.samples);
        }
    }

    /// Marks the metric as that of a peer.
    pub(crate) fn of_peer(mut self, peer: &str) -> Self {
        self.peer = Some(peer.into());
        self
    }

    /// The same quantity as a peer published it, from this number of runs, with the same limit.
    pub(crate) fn published(&self, peer: &str, value: f64, runs: usize) -> Self {
        Self { samples: vec![value; runs], ..self.clone() }.of_peer(peer)
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "unit": self.unit,
            "samples": self.samples,
            "limit_name": self.limit.as_ref().map(|limit| &limit.name),
            "limit_samples": self.limit.as_ref().map(|limit| &limit.samples),
            "peer": self.peer,
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let numbers = |key: &str| value[key].as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
        let limit = match text("limit_name") {
            Some(name) => Some(Limit { name, samples: numbers("limit_samples")? }),
            None => None,
        };
        Some(Self { name: text("name")?, unit: text("unit")?, samples: numbers("samples")?, limit, peer: text("peer") })
    }
}

/// Adds the samples of metrics that were measured once more. What is new among them is added whole.
pub(crate) fn join(metrics: &mut Vec<Metric>, again: Vec<Metric>) {
    for metric in again {
        match metrics.iter_mut().find(|known| (&known.name, &known.peer) == (&metric.name, &metric.peer)) {
            Some(known) => known.extend(metric),
            None => metrics.push(metric),
        }
    }
}

/// Writes metrics as one text.
pub(crate) fn to_text(metrics: &[Metric]) -> String {
    Value::Array(metrics.iter().map(Metric::to_json).collect()).to_string()
}

/// Reads the text that [`to_text`] wrote.
///
/// # Errors
/// [`BenchError::Results`].
pub(crate) fn from_text(text: &str) -> Result<Vec<Metric>, BenchError> {
    let parsed = serde_json::from_str::<Value>(text).ok();
    let metrics = parsed.as_ref().and_then(|value| value.as_array()?.iter().map(Metric::from_json).collect());
    metrics.ok_or_else(|| BenchError::Results { text: text.chars().take(80).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_measured_again_have_the_samples_of_both_times() {
        let metric = |name, samples: &[f64]| Metric::new(name, "ns", samples.to_vec());
        let mut metrics = vec![metric("a", &[1.0]).against("limit", vec![5.0]), metric("a", &[2.0]).of_peer("p")];
        join(&mut metrics, vec![metric("a", &[3.0]).against("limit", vec![6.0]), metric("b", &[4.0])]);
        let all = metric("a", &[1.0, 3.0]).against("limit", vec![5.0, 6.0]);
        assert_eq!(metrics, [all, metric("a", &[2.0]).of_peer("p"), metric("b", &[4.0])]);
    }

    #[test]
    fn measured_rows_arrive() {
        let metrics = [
            Metric::new("rtt_ns", "ns", vec![0.1, 2e9, 3.0]).against("ping-pong", vec![0.05]),
            Metric::new("start_ms", "ms", vec![]).of_peer("a peer"),
        ];
        assert_eq!(from_text(&to_text(&metrics)).unwrap(), metrics);
        assert_eq!(from_text("[]").unwrap(), []);
    }

    #[test]
    fn anything_else_is_refused() {
        let whole = to_text(&[Metric::new("rtt_ns", "ns", vec![1.0]).against("ping-pong", vec![0.5])]);
        for end in 0..whole.len() {
            assert!(from_text(&whole[..end]).is_err(), "{}", &whole[..end]);
        }
        for text in ["7", "{}", "[7]", r#"[{"name":"x","unit":"ns","samples":["1"]}]"#] {
            assert!(matches!(from_text(text), Err(BenchError::Results { .. })), "{text}");
        }
    }
}
