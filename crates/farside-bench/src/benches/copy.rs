//! Memory by its global address: how long puts, gets, copies, atomic changes and signals take, beside what is below them.
//!
//! `local-remote/8B` is a put, `remote-local/8B` a get, and `remote-remote/8B` a copy from a second process to a third. `ns` stands beside the same bytes
//! copied into a mapping, with no address to look up, and `bytes_per_s` beside `memcpy` between vectors. `start-put/8B` and
//! `start-get/8B` do not wait, and are completed then, beside those that wait. `fetch-add/8B` stands beside the instruction. `translate` has what an address costs: what a load by it takes more
//! than the load (`ns`), and the questions about addresses.
//!
//! `notified-put/8B` goes from one process to the other with its signal, in one line up to 56 bytes, beside half of a round trip of a word on a
//! single line. `private-get/8B` and `private-put/8B` reach a vector that its owner has registered, beside the bare system call.
//!
//! `checked` has what `Job::check_accesses` costs, each beside the same in a job that is not checked.
//!
//! Over libfabric puts and gets stand beside its own, one by one, with an attentive target, also those that are started; and signals beside its messages. `word_ns` is that of
//! 8 bytes beside messages, too: a word is never seen in pieces, and libfabric's own puts promise no such thing.

mod checked;
mod notified;
mod over_ofi;
mod private;
mod transfers;
mod words;

use farside::{Worker, WorkerId};

use self::transfers::Way;
use super::size_name;
use crate::case::Case;
use crate::fabric::Fabric;
use crate::stats::median;
use crate::timing::time_batches;
use crate::{BenchError, Options};

pub(crate) const ABOUT: &str = "puts, gets, copies, atomics and signals by global addresses (ACP)";

const SIZES: [usize; 12] =
    [8, 32, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// For what differs by kind of operation more than by size.
const FEW_SIZES: [usize; 5] = [8, 64, 4 << 10, 64 << 10, 1 << 20];
const SIGNAL_SIZES: [usize; 6] = [8, 32, 56, 64, 1 << 10, 4 << 10];
const METRIC: &str = "ns";

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    match on {
        Fabric::Shm => cases_on_shm(),
        Fabric::Ofi(fabric) => over_ofi::cases(fabric),
        Fabric::Simulated(_) => Vec::new(),
    }
}

fn cases_on_shm() -> Vec<Case> {
    let mut cases = Vec::new();
    for way in Way::WAITING {
        for bytes in SIZES {
            let name = format!("{}/{}", way.name(), size_name(bytes));
            cases.push(Case::job(name, way.processes(), move |me, options| way.measure(me, bytes, options)));
        }
    }
    for bytes in FEW_SIZES {
        for way in Way::STARTED {
            let body = move |me: &Worker, options| transfers::started(me, way, bytes, options);
            cases.push(Case::job(format!("{}/{}", way.name(), size_name(bytes)), 2, body));
        }
    }
    cases.push(Case::job("fetch-add/8B", 2, words::fetch_add::<u64>));
    cases.push(Case::job("fetch-add/4B", 2, words::fetch_add::<u32>));
    cases.push(Case::job("translate", 2, words::translate));
    for bytes in SIGNAL_SIZES {
        let body = move |me: &Worker, options| notified::beside_one_line(me, bytes, options);
        cases.push(Case::job(format!("notified-put/{}", size_name(bytes)), 2, body));
    }
    for bytes in FEW_SIZES {
        for (way, verb) in [(Way::Put, "put"), (Way::Get, "get")] {
            let name = format!("private-{verb}/{}", size_name(bytes));
            cases.push(Case::job(name, 2, move |me, options| private::measure(me, way, bytes, options)));
        }
    }
    cases.push(checked::case());
    cases
}

/// What a run moves, when nothing else is asked for, and in how many operations at most.
const BYTES: u64 = 1 << 30;
const COUNT_MAX: u64 = 2_000_000;

fn count(bytes: usize, options: Options) -> u64 {
    options.operations_or((BYTES / bytes as u64).min(COUNT_MAX))
}

/// Short operations that are timed together: so many that the clock is less than 0.1 ns of each.
const TOGETHER_MAX: usize = 512;
const TOGETHER_BYTES: usize = 32 << 10;

/// What one of `count` operations on so many bytes takes typically, in nanoseconds.
#[inline(always)]
fn time(count: u64, bytes: usize, operation: impl FnMut() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let together = (TOGETHER_BYTES / bytes).clamp(1, TOGETHER_MAX) as u64;
    Ok(median(&time_batches(count, together, operation)?))
}

/// Has worker 0 measure some things in turns, several times, while the others wait. Returns what each took every time.
fn in_turns<const THINGS: usize>(
    me: &Worker,
    options: Options,
    mut once: impl FnMut() -> Result<[f64; THINGS], BenchError>,
) -> Result<[Vec<f64>; THINGS], BenchError> {
    let mut found = [const { Vec::new() }; THINGS];
    for run in 0..=options.runs() {
        me.barrier()?;
        if me.id() == WorkerId::new(0) {
            let taken = once()?;
            // The first run is for memory to be found and touched.
            if run > 0 {
                found.iter_mut().zip(taken).for_each(|(all, ns)| all.push(ns));
            }
        }
        me.barrier()?;
    }
    Ok(found)
}

/// What so many nanoseconds for so many bytes come to.
fn bytes_per_s(bytes: usize, times: &[f64]) -> Vec<f64> {
    times.iter().map(|ns| bytes as f64 / ns * 1e9).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pipe_latency::to_and_fro;
    use super::*;

    #[test]
    fn everything_is_measured_in_simulated_jobs() {
        let options = Options::new().quick(true).operations(Some(20));
        let check = |processes: u32, what: &str, body: &(dyn Fn(&Worker) -> Result<(), BenchError> + Sync)| {
            let result = farside::simulate(processes, 1, 1, |me| Ok(body(me)?));
            result.unwrap_or_else(|error| panic!("{what}: {error}"));
        };
        for bytes in [8, 56, 64, 5000] {
            for way in Way::WAITING {
                check(way.processes(), way.name(), &|me| way.measure(me, bytes, options).map(drop));
            }
            for way in Way::STARTED {
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
        assert_eq!(bytes_per_s(1000, &[1000.0, 500.0]), [1e9, 2e9]);
    }
}
