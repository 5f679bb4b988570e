//! Puts between two processes: their rate, signalled by hand and by a transmitter (Seriema, Figure
//! 2), compared with the layer below: libfabric's own puts, or plain copies.
//!
//! Each put under way has memory of its own. The puts carry their numbers, and the number of the
//! last one is checked.

mod below;
mod ends;
mod seam;
mod signalled;
pub(super) mod simulated;

use farside::Worker;

use self::below::Copies;
use self::seam::Seam;
use self::signalled::{Auto, Manual};
use super::size_name;
use crate::kit::*;
use crate::limits::libfabric::{Libfabric, Puts, Traffic, TrafficKind};

pub(crate) const ABOUT: &str = "puts between two processes, signalled by hand and by a transmitter (Seriema, Figure 2)";

/// Sizes by powers of four, and those of every range.
const SIZES: [usize; 10] = [8, 32, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The least size of puts that are posted with a buffer each.
const POSTED_BYTES_MIN: usize = 4 << 10;
/// Small and large puts of libfabric under way at a time: as many as fill its queues, or the caches
/// with their buffers.
const SMALL_UNDER_WAY: usize = 64;
const LARGE_UNDER_WAY: usize = 8;
const LARGE_BYTES: usize = 256 << 10;
/// Bytes of a run by default, and the most puts.
const BYTES: u64 = 1 << 30;
const COUNT_MAX: u64 = 100_000;
/// The most puts where a put is a copy, which is faster.
const COPIES_MAX: u64 = 5_000_000;

const NAME: &str = "libfabric puts";
const COPIES: &str = "copies";
const MANUAL: &str = "manual signalling";
const METRIC: &str = "msgs_per_s";

/// The way of a stream of puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the layer below.
    Raw,
    Manual,
    Auto,
    /// Through the seam of all transports, with a buffer for each.
    Put,
}

const WAYS: [(Way, &str); 4] = [(Way::Raw, "raw"), (Way::Manual, "manual"), (Way::Auto, "auto"), (Way::Put, "put")];

pub(crate) fn cases() -> Vec<Case> {
    cases_of(None)
}

pub(crate) fn over_ofi(fabric: &OfiFabric) -> Vec<Case> {
    cases_of(Some(fabric))
}

/// The cases over libfabric, or on shared memory.
fn cases_of(fabric: Option<&OfiFabric>) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in SIZES {
        for (way, name) in WAYS {
            if way != Way::Put || (fabric.is_some() && bytes >= POSTED_BYTES_MIN) {
                let of = fabric.cloned();
                let body = move |me: &Worker, options: Options| measure(me, options, of.as_ref(), bytes, way);
                cases.push(Case::job(format!("{name}/{}", size_name(bytes)), 2, body));
            }
        }
    }
    cases
}

fn measure(me: &Worker, options: Options, fabric: Option<&OfiFabric>, bytes: usize, way: Way) -> Measured {
    let count_max = if fabric.is_some() { COUNT_MAX } else { COPIES_MAX };
    let count = options.operations_or((BYTES / bytes as u64).min(count_max));
    let puts = Puts { bytes, under_way: signalled::units(bytes), count };
    let under_way = if bytes < LARGE_BYTES { SMALL_UNDER_WAY } else { LARGE_UNDER_WAY };
    let of_libfabric = Puts { under_way, ..puts };
    let below = || -> Result<Box<dyn Yardstick>, BenchError> {
        Ok(match fabric {
            Some(fabric) => Box::new(libfabric(me, fabric, of_libfabric)?),
            None => Box::new(Copies::new(me, puts)?),
        })
    };
    match (way, fabric) {
        (Way::Manual, _) => compared(me, options, &mut Manual::new(me, fabric, puts)?, &mut *below()?),
        (Way::Auto, _) => compared(me, options, &mut Auto::new(me, fabric, puts)?, &mut Manual::new(me, fabric, puts)?),
        (Way::Put, Some(fabric)) => compared(me, options, &mut Seam::new(me, fabric, of_libfabric)?, &mut *below()?),
        (Way::Raw, Some(_)) => {
            let metrics = alone(me, options, &mut *below()?)?;
            Ok(metrics.into_iter().map(|metric| metric.of_peer("libfabric")).collect())
        }
        (Way::Raw | Way::Put, None) => alone(me, options, &mut *below()?),
    }
}

/// Returns a stream of libfabric's own puts.
fn libfabric(me: &Worker, fabric: &OfiFabric, puts: Puts) -> Result<Traffic, BenchError> {
    let libfabric = Libfabric::new(me, fabric, puts.area_bytes())?;
    Ok(Traffic { libfabric, kind: TrafficKind::Puts(puts), factor: 1.0, name: NAME.into() })
}

/// Measures a stream alone.
fn alone(me: &Worker, options: Options, stream: &mut dyn Yardstick) -> Measured {
    // The first run makes the connection and touches the memory.
    let taken = warmed(options, |_| Ok([once(me, stream)?]))?;
    me.barrier()?;
    Ok(taken.rows([column(METRIC, "1/s", 0)]))
}

/// Measures a stream and its limit in turns.
fn compared(me: &Worker, options: Options, stream: &mut dyn Yardstick, limit: &mut dyn Yardstick) -> Measured {
    let taken = in_turns(me, options, |_| Ok([once(me, limit)?, once(me, stream)?]))?;
    Ok(taken.rows([column(METRIC, "1/s", 1).against(limit.name(), 0)]))
}
