//! The same messages over libfabric, compared with a message of libfabric's own.

use farside::Worker;

use super::{Exchange, METRIC, Method, SIZES, to_and_fro};
use crate::kit::*;
use crate::limits::libfabric::{Libfabric, Traffic};

/// Round trips of short messages in one run by default.
const TRIPS: u64 = 5_000;
const BYTES_PER_TRIP: usize = 16 << 10;
const LIMIT: &str = "libfabric ping-pong of 8 B / 2";

pub(crate) fn cases(fabric: &OfiFabric) -> Vec<Case> {
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

fn measure(me: &Worker, fabric: &OfiFabric, way: Method, bytes: usize, options: Options) -> Measured {
    let trips = options.operations_or((TRIPS / (1 + bytes / BYTES_PER_TRIP) as u64).max(50));
    let measured = against_messages(me, fabric, &mut *way.open(me, bytes)?, trips, options)?;
    me.barrier()?;
    Ok(measured)
}

/// Measures messages to and fro, compared with libfabric's. Collective.
pub(crate) fn against_messages(
    me: &Worker,
    fabric: &OfiFabric,
    exchange: &mut dyn Exchange,
    trips: u64,
    options: Options,
) -> Measured {
    let mut limit = Traffic::round_trips(Libfabric::new(me, fabric, 0)?, trips, 0.5, LIMIT);
    let taken = warmed(options, |run| Ok([once(me, &mut limit)?, to_and_fro(me, exchange, trips, 2 * run * trips)?]))?;
    Ok(taken.rows([column(METRIC, "ns", 1).against(LIMIT, 0)]))
}
