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

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in SIZES {
        let puts = move |options: Options| Puts {
            bytes,
            under_way: signalled::units(bytes),
            count: options.operations_or((BYTES / bytes as u64).min(COPIES_MAX)),
        };
        cases.push(Case::job(format!("raw/{}", size_name(bytes)), 2, move |me, options| {
            alone(me, options, Copies::new(me, puts(options))?)
        }));
        cases.push(Case::job(format!("manual/{}", size_name(bytes)), 2, move |me, options| {
            let puts = puts(options);
            beside(me, options, Manual::new(me, None, puts)?, Copies::new(me, puts)?)
        }));
        cases.push(Case::job(format!("auto/{}", size_name(bytes)), 2, move |me, options| {
            let puts = puts(options);
            beside(me, options, Auto::new(me, None, puts)?, Manual::new(me, None, puts)?)
        }));
    }
    cases
}

pub(crate) fn over_ofi(fabric: &OfiFabric) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in SIZES {
        let count = move |options: Options| options.operations_or((BYTES / bytes as u64).min(COUNT_MAX));
        let below = move |options| {
            let under_way = if bytes < LARGE_BYTES { SMALL_UNDER_WAY } else { LARGE_UNDER_WAY };
            Puts { bytes, under_way, count: count(options) }
        };
        let signalled = move |options| Puts { bytes, under_way: signalled::units(bytes), count: count(options) };

        let of = fabric.clone();
        let raw = move |me: &Worker, options| {
            let metrics = alone(me, options, libfabric(me, &of, below(options))?)?;
            Ok(metrics.into_iter().map(|metric| metric.of_peer("libfabric")).collect())
        };
        cases.push(Case::job(format!("raw/{}", size_name(bytes)), 2, raw));
        let of = fabric.clone();
        let manual = move |me: &Worker, options| {
            let limit = libfabric(me, &of, below(options))?;
            beside(me, options, Manual::new(me, Some(&of), signalled(options))?, limit)
        };
        cases.push(Case::job(format!("manual/{}", size_name(bytes)), 2, manual));
        let of = fabric.clone();
        let auto = move |me: &Worker, options| {
            let puts = signalled(options);
            beside(me, options, Auto::new(me, Some(&of), puts)?, Manual::new(me, Some(&of), puts)?)
        };
        cases.push(Case::job(format!("auto/{}", size_name(bytes)), 2, auto));
        if bytes >= POSTED_BYTES_MIN {
            let of = fabric.clone();
            let put = move |me: &Worker, options| {
                let limit = libfabric(me, &of, below(options))?;
                beside(me, options, Seam::new(me, &of, below(options))?, limit)
            };
            cases.push(Case::job(format!("put/{}", size_name(bytes)), 2, put));
        }
    }
    cases
}

/// Returns a stream of libfabric's own puts.
fn libfabric(me: &Worker, fabric: &OfiFabric, puts: Puts) -> Result<Traffic, BenchError> {
    let libfabric = Libfabric::new(me, fabric, puts.area_bytes())?;
    Ok(Traffic { libfabric, kind: TrafficKind::Puts(puts), factor: 1.0, name: NAME.into() })
}

/// Measures a stream alone.
fn alone(me: &Worker, options: Options, mut stream: impl Yardstick) -> Measured {
    // The first run makes the connection and touches the memory.
    let taken = warmed(options, |_| Ok([once(me, &mut stream)?]))?;
    me.barrier()?;
    Ok(taken.rows([column(METRIC, "1/s", 0)]))
}

/// Measures a stream and its limit in turns.
fn beside(me: &Worker, options: Options, mut stream: impl Yardstick, mut limit: impl Yardstick) -> Measured {
    let taken = in_turns(me, options, |_| Ok([once(me, &mut limit)?, once(me, &mut stream)?]))?;
    Ok(taken.rows([column(METRIC, "1/s", 1).against(limit.name(), 0)]))
}
