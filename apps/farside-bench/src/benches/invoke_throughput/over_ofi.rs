//! The same calls over libfabric, compared with a stream of its messages: the limit is the number
//! of calls that the stream would carry.
//!
//! A call that is published at once is compared with messages of the size of its record, header and
//! arguments. Aggregated calls are compared with messages of the size of a batch.

use farside::{AGGREGATE_BYTES, Worker};
use farside_fabric::ring::record_bytes;

use super::{Calls, Load, MODES, measure};
use crate::benches::size_name;
use crate::kit::*;
use crate::limits::libfabric::{Libfabric, Traffic, TrafficKind};

/// Calls of one run by default: published at once, and aggregated.
const CALLS: u64 = 200_000;
const AGGREGATED_CALLS: u64 = 4_000_000;
/// The messages of a run of the limit, short and long ones.
const SHORT_MESSAGES: u64 = 200_000;
const LONG_MESSAGES: u64 = 50_000;

pub(crate) fn cases(fabric: &OfiFabric) -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["send", "write", "ovfl", "trad"] {
        let by_words = MODES.into_iter().find(|(known, _)| *known == name).map(|(_, by_words)| by_words);
        for (words, mode) in by_words.into_iter().flatten() {
            let of = fabric.clone();
            let body = move |me: &Worker, options: Options| {
                let record = record_bytes(words * 8);
                let (bytes, messages) = match name {
                    "trad" | "ovfl" => (AGGREGATE_BYTES, LONG_MESSAGES),
                    _ => (record, SHORT_MESSAGES),
                };
                let mut limit = Traffic {
                    libfabric: Libfabric::new(me, &of, 0)?,
                    kind: TrafficKind::Messages { bytes, count: options.operations_or(messages) },
                    factor: bytes as f64 / record as f64,
                    name: format!("libfabric {bytes} B messages"),
                };
                let calls = if name == "trad" { AGGREGATED_CALLS } else { CALLS };
                let load = Load { words, calls: options.operations_or(calls) };
                measure(me, options, load, Calls { mode }, &mut [&mut limit])
            };
            cases.push(Case::job(format!("{name}/{}", size_name(words * 8)), 2, body));
        }
    }
    cases
}
