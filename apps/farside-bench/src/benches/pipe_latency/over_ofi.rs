//! The same messages over libfabric, beside a message of libfabric's own.

use farside::{Worker, WorkerId};

use super::{Exchange, METRIC, Method, SIZES, to_and_fro};
use crate::case::Case;
use crate::fabric::OfiFabric;
use crate::limits::Yardstick;
use crate::limits::libfabric::{Libfabric, RoundTrip};
use crate::metric::Metric;
use crate::{BenchError, Options};

/// Round trips of short messages in one run by default.
const TRIPS: u64 = 5_000;
const BYTES_PER_TRIP: usize = 16 << 10;
const LIMIT: &str = "libfabric ping-pong of 8 B / 2";

pub(super) fn cases(fabric: &OfiFabric) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in Method::ALL {
        for bytes in SIZES {
            let of = fabric.clone();
            let body = move |me: &Worker, options| measure(me, &of, way, bytes, options);
            cases.push(Case::job(way.case(bytes), 2, body));
        }
    }
    cases
}

fn measure(
    me: &Worker,
    fabric: &OfiFabric,
    way: Method,
    bytes: usize,
    options: Options,
) -> Result<Vec<Metric>, BenchError> {
    let trips = options.operations_or((TRIPS / (1 + bytes / BYTES_PER_TRIP) as u64).max(50));
    let measured = beside_messages(me, fabric, &mut *way.open(me, bytes)?, trips, options)?;
    me.barrier()?;
    Ok(measured)
}

/// Measures messages to and fro, beside libfabric's. Collective.
pub(crate) fn beside_messages(
    me: &Worker,
    fabric: &OfiFabric,
    exchange: &mut dyn Exchange,
    trips: u64,
    options: Options,
) -> Result<Vec<Metric>, BenchError> {
    let mut limit = RoundTrip { libfabric: Libfabric::new(me, fabric, 0)?, trips };
    let (mut times, mut limits) = (Vec::new(), Vec::new());
    for run in 0..=options.runs() as u64 {
        me.barrier()?;
        let limit_ns = if me.id() == WorkerId::new(0) { limit.lead()? } else { limit.follow().map(|()| 0.0)? };
        let ns = to_and_fro(me, exchange, trips, 2 * run * trips)?;
        if run > 0 {
            times.push(ns);
            limits.push(limit_ns / 2.0);
        }
    }
    Ok(vec![Metric::new(METRIC, "ns", times).against(LIMIT, limits)])
}
