//! The same calls over libfabric, beside a stream of its puts: as many calls as the bytes of the stream would hold.
//!
//! What counts is a call's whole record, its header with its arguments, since that is what has to travel.

use farside::Worker;
use farside_fabric::ring::record_bytes;

use super::{Calls, Load, Mode, measure, ovfl, send, trad, write};
use crate::Options;
use crate::benches::size_name;
use crate::case::Case;
use crate::fabric::OfiFabric;
use crate::limits::libfabric::{Libfabric, PutStream, Puts};

/// Calls of one run that are published at once, when nothing else is asked for, and of one that are aggregated.
const CALLS: u64 = 200_000;
const AGGREGATED_CALLS: u64 = 4_000_000;
/// The stream: blocks like those that aggregated calls make.
const PUT_BYTES: usize = 4096;
const UNDER_WAY: usize = 64;
const PUTS: u64 = 100_000;

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
                let puts = Puts { bytes: PUT_BYTES, under_way: UNDER_WAY, count: options.operations_or(PUTS) };
                let libfabric = Libfabric::new(me, &of, puts.area_bytes())?;
                let bytes_of_each = record_bytes(words * 8);
                let name = format!("libfabric 4KiB puts / {bytes_of_each} B a record");
                let limit = PutStream { libfabric, puts, bytes_of_each, name };
                measure(me, options, Load { words, calls: options.operations_or(calls) }, Calls { mode }, limit)
            };
            cases.push(Case::job(format!("{name}/{}", size_name(words * 8)), 2, body));
        }
    }
    cases
}
