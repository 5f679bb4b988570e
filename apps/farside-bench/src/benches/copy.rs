//! Memory by its global address: the time of puts, gets, copies, atomic changes and signals,
//! against the layers below.
//!
//! `local-remote/8B` is a put, `remote-local/8B` a get, and `remote-remote/8B` a copy from a second
//! process to a third. The limit of `ns` is a copy of the same bytes into a mapping, without a
//! look-up of the address. The limit of `bytes_per_s` is `memcpy` between vectors. `start-put/8B`
//! and `start-get/8B` start an operation and complete it later; their limit is the operation that
//! waits. The limit of `fetch-add/8B` is the instruction. `translate` measures what an address
//! costs: `ns` is what a load by it takes beyond the load, and other metrics are queries about
//! addresses.
//!
//! `notified-put/8B` is a put with its signal, which share a line up to 56 bytes. Its limit is half
//! of a round trip of a word on a single line. `private-get/8B` and `private-put/8B` reach a vector
//! that its owner has registered. Their limit is the bare system call.
//!
//! `checked` measures what `Job::check_accesses` costs. Each limit is the same operation in a job
//! that is not checked.
//!
//! Over libfabric, the limits of puts and gets, also of started ones, are libfabric's own, one at a
//! time, with an attentive target. The limit of signals is libfabric's messages. `word_ns` compares
//! 8 bytes with messages, too: a word is never seen in pieces, which libfabric's own puts do not
//! promise.

mod checked;
mod notified;
pub(super) mod over_ofi;
mod private;
mod transfers;
mod words;

use farside::Worker;

use self::transfers::TransferKind;
use super::size_name;
use crate::kit::*;

pub(crate) const ABOUT: &str = "puts, gets, copies, atomics and signals by global addresses (ACP)";

const SIZES: [usize; 12] =
    [8, 32, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Sizes for operations that differ more by kind than by size.
const FEW_SIZES: [usize; 5] = [8, 64, 4 << 10, 64 << 10, 1 << 20];
const SIGNAL_SIZES: [usize; 6] = [8, 32, 56, 64, 1 << 10, 4 << 10];
const METRIC: &str = "ns";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for way in TransferKind::WAITING {
        for bytes in SIZES {
            let name = format!("{}/{}", way.name(), size_name(bytes));
            cases.push(Case::job(name, way.processes(), move |me, options| way.measure(me, bytes, options)));
        }
    }
    for bytes in FEW_SIZES {
        for way in TransferKind::STARTED {
            let body = move |me: &Worker, options| transfers::started(me, way, bytes, options);
            cases.push(Case::job(format!("{}/{}", way.name(), size_name(bytes)), 2, body));
        }
    }
    cases.push(Case::job("fetch-add/8B", 2, words::fetch_add::<u64>));
    cases.push(Case::job("fetch-add/4B", 2, words::fetch_add::<u32>));
    cases.push(Case::job("translate", 2, words::translate));
    for bytes in SIGNAL_SIZES {
        let body = move |me: &Worker, options| notified::against_one_line(me, bytes, options);
        cases.push(Case::job(format!("notified-put/{}", size_name(bytes)), 2, body));
    }
    for bytes in FEW_SIZES {
        for (way, verb) in [(TransferKind::Put, "put"), (TransferKind::Get, "get")] {
            let name = format!("private-{verb}/{}", size_name(bytes));
            cases.push(Case::job(name, 2, move |me, options| private::measure(me, way, bytes, options)));
        }
    }
    cases.push(checked::case());
    cases
}

/// Bytes of one run by default, and the most operations for them.
const BYTES: u64 = 1 << 30;
const COUNT_MAX: u64 = 2_000_000;

fn count(bytes: usize, options: Options) -> u64 {
    options.operations_or((BYTES / bytes as u64).min(COUNT_MAX))
}

/// Number and bytes of short operations that are timed together. The clock then takes less than 0.1
/// ns of each.
const TOGETHER_MAX: usize = 512;
const TOGETHER_BYTES: usize = 32 << 10;

/// Returns the typical time of one of `count` operations on `bytes` bytes, in nanoseconds.
#[inline(always)]
fn time(count: u64, bytes: usize, operation: impl FnMut() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let together = (TOGETHER_BYTES / bytes).clamp(1, TOGETHER_MAX) as u64;
    Ok(median(&time_batches(count, together, operation)?))
}

/// Measures several things on worker 0 in turns, while the others wait.
fn in_turns(
    me: &Worker,
    options: Options,
    mut once: impl FnMut() -> Result<Vec<f64>, BenchError>,
) -> Result<Taken, BenchError> {
    // The first turn finds and touches the memory.
    crate::kit::in_turns(me, options, |_| on_first(me, &mut once))
}

/// Converts nanoseconds for `bytes` bytes into a rate.
fn bytes_per_s(bytes: usize, ns: f64) -> f64 {
    bytes as f64 / ns * 1e9
}

#[cfg(test)]
mod tests {
    use super::super::pipe_latency::to_and_fro;
    use super::*;

    #[test]
    fn everything_is_measured_in_simulated_jobs() {
        let options = Options::new().quick(true).operations(Some(20)).simulated();
        let check = |processes: u32, what: &str, body: &(dyn Fn(&Worker) -> Result<(), BenchError> + Sync)| {
            let result = farside::simulate(processes, 1, 1, |me| Ok(body(me)?));
            result.unwrap_or_else(|error| panic!("{what}: {error}"));
        };
        for bytes in [8, 56, 64, 5000] {
            for way in TransferKind::WAITING {
                check(way.processes(), way.name(), &|me| way.measure(me, bytes, options).map(drop));
            }
            for way in TransferKind::STARTED {
                check(2, way.name(), &|me| transfers::started(me, way, bytes, options).map(drop));
            }
            check(2, "notified", &|me| {
                let mut exchange = notified::Notified::new(me, bytes)?;
                to_and_fro(me, &mut exchange, 20, 0)?;
                exchange.free()
            });
        }
        check(2, "fetch-add", &|me| words::fetch_add::<u32>(me, options).map(drop));
        check(2, "checked", &|me| checked::measure(me, options).map(drop));
        check(2, "translate", &|me| words::translate(me, options).map(drop));
    }

    #[test]
    fn rates_are_bytes_by_seconds() {
        assert_eq!([1000.0, 500.0].map(|ns| bytes_per_s(1000, ns)), [1e9, 2e9]);
    }
}
