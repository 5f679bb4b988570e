//! The same round trips over libfabric, compared with a round trip of libfabric's own messages.

use farside::Worker;

use super::{RoundTrips, echo, measure, name, notify};
use crate::kit::*;
use crate::limits::libfabric::{Libfabric, Traffic};

/// Round trips of one run by default.
const TRIPS: u64 = 20_000;

pub(crate) fn cases(fabric: &OfiFabric) -> Vec<Case> {
    let kinds: [(String, RoundTrips); 4] = [
        (name("call-return", 8), echo::<1>),
        (name("call-return", 64), echo::<8>),
        (name("call-return", 1024), echo::<128>),
        ("notify-executed".into(), notify),
    ];
    let case = |(name, round_trips): (String, RoundTrips)| {
        let of = fabric.clone();
        let body = move |me: &Worker, options: Options| {
            let trips = options.operations_or(TRIPS);
            let mut limit = Traffic::round_trips(Libfabric::new(me, &of, 0)?, trips, 1.0, "libfabric ping-pong x2");
            measure(me, options, &mut limit, |peer| round_trips(me, peer, trips, 0))
        };
        Case::job(name, 2, body)
    };
    kinds.into_iter().map(case).collect()
}
