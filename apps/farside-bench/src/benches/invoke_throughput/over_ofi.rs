//! The same calls over libfabric, beside a stream of its messages: the limit is the number of calls
//! that the stream would carry.
//!
//! A call that is published at once is compared with messages of the size of its record, header and
//! arguments. Aggregated calls are compared with messages of the size of a batch.

use farside::{AGGREGATE_BYTES, Worker};
use farside_fabric::ring::record_bytes;

use super::{Calls, Load, Mode, measure, ovfl, send, trad, write};
use crate::Options;
use crate::benches::size_name;
use crate::case::Case;
use crate::fabric::OfiFabric;
use crate::limits::libfabric::{Libfabric, MessageStream};

/// Calls of one run by default: published at once, and aggregated.
const CALLS: u64 = 200_000;
const AGGREGATED_CALLS: u64 = 4_000_000;
/// The messages of a run of the limit, short and long ones.
const SHORT_MESSAGES: u64 = 200_000;
const LONG_MESSAGES: u64 = 50_000;

pub(super) fn cases(fabric: &OfiFabric) -> Vec<Case> {
    let modes: [(&str, u64, [Mode; 3]); 4] = [
        ("send", CALLS, [send::<1>, send::<8>, send::<32>]),
        ("write", CALLS, [write::<1>, write::<8>, write::<32>]),
        ("ovfl", CALLS, [ovfl::<1>, ovfl::<8>, ovfl::<32>]),
        ("trad", AGGREGATED_CALLS, [trad::<1>, trad::<8>, trad::<32>]),
    ];
    let mut cases = Vec::new();
    for (name, calls, by_size) in modes {
        for (words, mode) in [1, 8, 32].into_iter().zip(by_size) {
            let of = fabric.clone();
            let body = move |me: &Worker, options: Options| {
                let libfabric = Libfabric::new(me, &of, 0)?;
                let record = record_bytes(words * 8);
                let (message_bytes, messages) = match name {
                    "trad" | "ovfl" => (AGGREGATE_BYTES, LONG_MESSAGES),
                    _ => (record, SHORT_MESSAGES),
                };
                let mut limit = MessageStream {
                    libfabric,
                    message_bytes,
                    count: options.operations_or(messages),
                    things: message_bytes as f64 / record as f64,
                    name: format!("libfabric {message_bytes} B messages"),
                };
                let load = Load { words, calls: options.operations_or(calls) };
                measure(me, options, load, Calls { mode }, &mut [&mut limit])
            };
            cases.push(Case::job(format!("{name}/{}", size_name(words * 8)), 2, body));
        }
    }
    cases
}
