//! One-way calls between two processes: their rate, compared with a plain stream of the same bytes
//! and a stream of records that each name a function.
//!
//! The function sums all words of its argument, so that every byte of it must reach the receiver.
//! The sums are checked at the end, which also proves that every call was executed.

pub(super) mod over_ofi;
mod raw;
pub(super) mod simulated;

use std::cell::Cell;
use std::time::Instant;

use farside::{AGGREGATE_BYTES, Error, Worker, WorkerId, remote};

use self::raw::Raw;
use super::size_name;
use crate::kit::*;
use crate::limits::indirect_calls::IndirectCalls;
use crate::limits::stream::{RawStream, Stream};

pub(crate) const ABOUT: &str =
    "one-way calls between two processes, whose every argument byte is read (Seriema, Table 2)";

const METRIC: &str = "calls_per_s";
/// Calls of one run by default.
const CALLS: u64 = 10_000_000;
/// Bytes of a batch that the program makes.
const BATCH_BYTES: usize = 4096;
/// The most that overflow aggregation keeps.
const OVERFLOW_BYTES: usize = 1 << 20;

/// The ways to call, each with 1, 8 and 32 words of arguments.
const MODES: [(&str, [(usize, Mode); 3]); 4] = [
    ("send", [(1, send::<1>), (8, send::<8>), (32, send::<32>)]),
    ("write", [(1, write::<1>), (8, write::<8>), (32, write::<32>)]),
    ("trad", [(1, trad::<1>), (8, trad::<8>), (32, trad::<32>)]),
    ("ovfl", [(1, ovfl::<1>), (8, ovfl::<8>), (32, ovfl::<32>)]),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, by_words) in MODES {
        for (words, mode) in by_words {
            let body = move |me: &Worker, options| match words {
                1 => calls::<1>(me, options, name, mode),
                8 => calls::<8>(me, options, name, mode),
                _ => calls::<32>(me, options, name, mode),
            };
            cases.push(Case::job(format!("{name}/{}", size_name(words * 8)), 2, body));
        }
    }
    cases.push(Case::job("raw/8B", 2, records::<1>));
    cases.push(Case::job("raw/64B", 2, records::<8>));
    cases.push(Case::job("raw/256B", 2, records::<32>));
    cases
}

/// Traffic between two workers. Each call carries its number in every word.
trait Traffic {
    /// Makes `calls` calls and returns the sum of all words that the other side read.
    fn produce(&mut self, me: &Worker, calls: u64) -> Result<u64, BenchError>;

    /// Takes the part of the other side, before it waits at a barrier where it can be called.
    fn consume(&mut self, _calls: u64) -> Result<(), BenchError> {
        Ok(())
    }
}

/// Measures bare records against a plain stream and a stream of indirect calls.
fn records<const WORDS: usize>(me: &Worker, options: Options) -> Measured {
    let load = Load { words: WORDS, calls: options.operations_or(CALLS) };
    let raw = Raw::<WORDS>::new(me)?;
    measure(me, options, load, raw, &mut [&mut raw_stream(me, load)?, &mut indirect_calls::<WORDS>(me, load)?])
}

/// Measures calls against a plain stream and a stream of indirect calls. Aggregated calls are also
/// measured in turns with the same work in batches that the program makes, and overflow aggregation
/// in turns with single calls. Further metrics report what did overflow.
fn calls<const WORDS: usize>(me: &Worker, options: Options, name: &str, mode: Mode) -> Measured {
    let load = Load { words: WORDS, calls: options.operations_or(CALLS) };
    let mut limits: Vec<Box<dyn Yardstick + '_>> =
        vec![Box::new(raw_stream(me, load)?), Box::new(indirect_calls::<WORDS>(me, load)?)];
    match name {
        "trad" => limits.push(Box::new(Other { name: "batches by hand", me, load, mode: by_hand::<WORDS> })),
        "ovfl" => limits.push(Box::new(Other { name: "write", me, load, mode: write::<WORDS> })),
        _ => {}
    }
    let before = me.counters().sent;
    let mut limits: Vec<&mut dyn Yardstick> = limits.iter_mut().map(|limit| &mut **limit as _).collect();
    let mut metrics = measure(me, options, load, Calls { mode }, &mut limits)?;
    if name == "ovfl" {
        let after = me.counters().sent;
        let overflowed = (after.staged - before.staged) as f64 / (after.calls - before.calls).max(1) as f64;
        metrics.push(Metric::new("overflowed_share", "1", vec![overflowed]));
        metrics.push(Metric::new("chunks_max", "1", vec![after.staged_chunks_max(AGGREGATE_BYTES) as f64]));
    }
    Ok(metrics)
}

fn raw_stream(me: &Worker, Load { words, calls }: Load) -> Result<RawStream, BenchError> {
    let bytes_of_each = words * 8;
    let blocks = Stream::blocks_for(calls.saturating_mul(bytes_of_each as u64));
    Ok(RawStream { stream: Stream::new(me)?, blocks, bytes_of_each })
}

fn indirect_calls<const WORDS: usize>(me: &Worker, load: Load) -> Result<IndirectCalls<WORDS>, BenchError> {
    Ok(IndirectCalls::new(Stream::new(me)?, load.calls))
}

/// Calls in another mode, as a limit.
struct Other<'w> {
    name: &'static str,
    me: &'w Worker,
    load: Load,
    mode: Mode,
}

impl Yardstick for Other<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        rate(self.me, &mut Calls { mode: self.mode }, self.load)
    }
}

/// The number of calls, and the words of each.
#[derive(Clone, Copy, Debug)]
struct Load {
    words: usize,
    calls: u64,
}

/// Measures traffic and its limits in turns. The metric of the first limit has the plain name.
fn measure(
    me: &Worker,
    options: Options,
    load: Load,
    mut traffic: impl Traffic,
    limits: &mut [&mut dyn Yardstick],
) -> Measured {
    // The first turn grows the rings and touches the memory.
    let taken = in_turns(me, options, |_| {
        let mut found = limits.iter_mut().map(|limit| once(me, &mut **limit)).collect::<Result<Vec<_>, _>>()?;
        me.barrier()?;
        found.push(if me.is_first() { rate(me, &mut traffic, load)? } else { 0.0 });
        if !me.is_first() {
            traffic.consume(load.calls)?;
        }
        Ok(found)
    })?;
    let name = |(thing, limit): (usize, &&mut dyn Yardstick)| match thing {
        0 => METRIC.into(),
        _ => format!("{METRIC}_against_{}", limit.name().replace(' ', "_")),
    };
    let names: Vec<String> = limits.iter().enumerate().map(name).collect();
    let rates = |thing: usize| column(&names[thing], "1/s", limits.len()).against(limits[thing].name(), thing);
    Ok(taken.rows((0..limits.len()).map(rates)))
}

/// Returns the rate of `calls` calls, of which all were executed.
fn rate(me: &Worker, traffic: &mut impl Traffic, Load { words, calls }: Load) -> Result<f64, BenchError> {
    let start = Instant::now();
    let found = traffic.produce(me, calls)?;
    let elapsed = start.elapsed();
    let expected = sum_below(calls).wrapping_mul(words as u64);
    if found != expected {
        return Err(BenchError::WrongSum { what: "the arguments of all calls", expected, found });
    }
    Ok(calls as f64 / elapsed.as_secs_f64())
}

/// Returns 0 + 1 + ... + (count - 1), modulo 2^64.
fn sum_below(count: u64) -> u64 {
    let count = u128::from(count);
    (count * count.saturating_sub(1) / 2) as u64
}

/// Makes calls to the other worker, and returns the sum that it computed.
type Mode = fn(&Worker, WorkerId, u64) -> Result<u64, farside::Error>;

/// Traffic of calls.
struct Calls {
    mode: Mode,
}

impl Traffic for Calls {
    fn produce(&mut self, me: &Worker, calls: u64) -> Result<u64, BenchError> {
        Ok((self.mode)(me, me.neighbor(1), calls)?)
    }
}

thread_local! {
    /// Sum of the words that functions called on this worker have read. No argument names the place
    /// of the sum, because the arguments are what is measured; a handle would add as many bytes.
    static SUM: Cell<u64> = const { Cell::new(0) };
}

#[inline]
fn add_up<const WORDS: usize>(_: &Worker, words: [u64; WORDS]) {
    SUM.set(SUM.get().wrapping_add(words.iter().fold(0, |sum, word| sum.wrapping_add(*word))));
}

fn take_sum(_: &Worker, (): ()) -> u64 {
    SUM.take()
}

/// Sends through the shared ring of the process (Seriema: send).
fn send<const WORDS: usize>(me: &Worker, peer: WorkerId, calls: u64) -> farside::Result<u64> {
    let to = me.to(peer).send_based();
    for number in 0..calls {
        to.call([number; WORDS], add_up::<WORDS>)?;
    }
    to.call_return((), take_sum)?.wait()
}

/// Writes into the ring of the worker and publishes each call at once (Seriema: write).
fn write<const WORDS: usize>(me: &Worker, peer: WorkerId, calls: u64) -> farside::Result<u64> {
    let to = me.to(peer);
    for number in 0..calls {
        to.call([number; WORDS], add_up::<WORDS>)?;
    }
    to.call_return((), take_sum)?.wait()
}

/// Writes into the ring and publishes 4 KiB at a time (Seriema: trad).
fn trad<const WORDS: usize>(me: &Worker, peer: WorkerId, calls: u64) -> farside::Result<u64> {
    let aggregator = me.aggregate(peer);
    for number in 0..calls {
        aggregator.call_remote([number; WORDS], remote!(|there, words: [u64; WORDS]| add_up(there, words)))?;
    }
    drop(aggregator);
    me.call_return(peer, (), take_sum)?.wait()
}

/// Writes each call into the ring while the ring takes it, and keeps it until then (Seriema: ovfl).
fn ovfl<const WORDS: usize>(me: &Worker, peer: WorkerId, calls: u64) -> farside::Result<u64> {
    let aggregator = me.aggregate(peer).overflow(OVERFLOW_BYTES);
    for number in 0..calls {
        let mut words = [number; WORDS];
        while let Err(refused) = aggregator.call(words, add_up::<WORDS>) {
            let Error::Full { .. } = refused.error else { return Err(refused.error) };
            words = refused.arguments;
            me.progress()?;
        }
    }
    drop(aggregator);
    me.call_return(peer, (), take_sum)?.wait()
}

/// Collects the arguments in batches of 4 KiB, and passes each batch to a function as a buffer.
fn by_hand<const WORDS: usize>(me: &Worker, peer: WorkerId, calls: u64) -> farside::Result<u64> {
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    let pass_on = |batch: &mut Vec<u8>| {
        let passed = me.call_buffer(peer, (), batch, |there, (), bytes| {
            for words in bytes.chunks_exact(8 * WORDS) {
                let word = |at: usize| u64::from_ne_bytes(*words[8 * at..].first_chunk().expect("it is whole"));
                add_up::<WORDS>(there, std::array::from_fn(word));
            }
        });
        batch.clear();
        passed
    };
    for number in 0..calls {
        (0..WORDS).for_each(|_| batch.extend_from_slice(&number.to_ne_bytes()));
        if batch.len() == BATCH_BYTES {
            pass_on(&mut batch)?;
        }
    }
    pass_on(&mut batch)?;
    me.call_return(peer, (), take_sum)?.wait()
}
