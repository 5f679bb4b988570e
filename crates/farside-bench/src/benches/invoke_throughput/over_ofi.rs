//! The same calls over libfabric, beside a stream of its puts: the limit is the number of calls
//! whose bytes the stream would carry.
//!
//! The bytes of a call are those of its whole record, header and arguments, because all of it
//! travels.

use farside::Worker;
use farside_fabric::ring::record_bytes;

use super::{Calls, Load, Mode, measure, ovfl, send, trad, write};
use crate::Options;
use crate::benches::size_name;
use crate::case::Case;
use crate::fabric::OfiFabric;
use crate::limits::libfabric::{Libfabric, PutStream, Puts};

/// Calls of one run by default: published at once, and aggregated.
const CALLS: u64 = 200_000;
const AGGREGATED_CALLS: u64 = 4_000_000;
/// The stream of puts, with blocks of the size of aggregated calls.
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
