//! Time of a message from one process to another, one way, through a pipe (rmalloc and rpipe,
//! slides 38 to 40).
//!
//! `write/8B`: the message and its flag share a cache line up to 56 bytes and follow each other
//! above. `write-2put/8B`: by hand, a put of the bytes and then a put of a flag, at any size, as a
//! pipe would do without its short form. `read/8B`: the writer offers the message, and the reader
//! fetches it from the buffer of the writer.
//!
//! Each value is half of a round trip. The limit is half of the round trip of a word on a single
//! line, plus a copy of the message. Peers are Open MPI's messages and its one-sided operations
//! with a fence, with post-start-complete-wait, and with polled flags. `faster_than_mpi_rma` is the
//! time of the best one-sided peer divided by the time of the pipe; the authors of rpipe report up
//! to 6.
//!
//! `stream/64B`: a stream of messages in one direction, as messages a second, and as bytes a second
//! against copies of a message in the cache.
//!
//! `switch-over`: the sizes at which another form becomes faster. `bytes` is the largest message up
//! to which a pipe is faster than two puts by hand. `beyond_line` is the time of 57 bytes, which
//! are put next to the line of the flag, divided by the time of 56 bytes, the most that fit in it.
//! Above 1 the short form is worth its limit. `offer_bytes` is the size from which an offered
//! message arrives sooner than a written one; without such a size there is no such row.

mod by_hand;
pub(super) mod over_ofi;
mod piped;
mod stream;

use std::hint::black_box;

use farside::{Worker, WorkerId};
use farside_kit::pipe::INLINE_BYTES_MAX;

use self::by_hand::TwoPuts;
pub(super) use self::over_ofi::against_messages;
use self::piped::{Offered, Piped};
pub(super) use self::piped::{check, stamp};
use super::size_name;
use crate::kit::*;
use crate::peers;

pub(crate) const ABOUT: &str =
    "a message through a pipe, one way, beside MPI's ways (rmalloc and rpipe, slides 38 to 40)";

const SIZES: [usize; 12] = [1, 4, 8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// The largest message in the line of a flag, and one byte more.
const AROUND_A_LINE: [usize; 2] = [INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1];
/// Sizes of streamed messages.
const STREAMED: [usize; 4] = [8, 64, 4 << 10, 64 << 10];
/// Round trips of short messages in one run by default.
const TRIPS: u64 = 100_000;
/// Messages of this size take twice as long.
const BYTES_PER_TRIP: usize = 4096;
const METRIC: &str = "ns";
const FASTER: &str = "faster_than_mpi_rma";
const LIMIT: &str = "one-line ping-pong / 2 + memcpy";

/// Messages to and fro between two workers.
pub(super) trait Exchange {
    /// Sends a message with this number.
    fn send(&mut self, number: u64) -> farside::Result<()>;
    /// Waits for a message, and checks the number in its first and last byte.
    fn receive(&mut self, number: u64) -> farside::Result<()>;
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Write,
    TwoPuts,
    Read,
}

impl Method {
    const ALL: [Self; 3] = [Self::Write, Self::TwoPuts, Self::Read];

    fn name(self) -> &'static str {
        match self {
            Method::Write => "write",
            Method::TwoPuts => "write-2put",
            Method::Read => "read",
        }
    }

    fn case(self, bytes: usize) -> String {
        format!("{}/{}", self.name(), size_name(bytes))
    }

    /// Opens both ends with the only other worker. Collective.
    fn open<'w>(self, me: &'w Worker, bytes: usize) -> Result<Box<dyn Exchange + 'w>, BenchError> {
        Ok(match self {
            Method::Write => Box::new(Piped::new(me, bytes)?),
            Method::TwoPuts => Box::new(TwoPuts::new(me, bytes)?),
            Method::Read => Box::new(Offered::new(me, bytes)?),
        })
    }
}

fn trips(bytes: usize, options: Options) -> u64 {
    options.operations_or((TRIPS / (1 + bytes / BYTES_PER_TRIP) as u64).max(100))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for way in Method::ALL {
        for bytes in SIZES {
            let body = move |me: &Worker, options| against_one_line(me, way, bytes, options);
            let around = move |options, run_once: RunOnce<'_>| against_mpi(way, bytes, options, run_once);
            cases.push(Case::around_job(way.case(bytes), 2, body, around));
        }
    }
    for way in [Method::Write, Method::TwoPuts] {
        for bytes in AROUND_A_LINE {
            let body = move |me: &Worker, options| against_one_line(me, way, bytes, options);
            cases.push(Case::job(way.case(bytes), 2, body));
        }
    }
    for bytes in STREAMED {
        let body = move |me: &Worker, options| stream::measure(me, bytes, options);
        cases.push(Case::job(format!("stream/{}", size_name(bytes)), 2, body));
    }
    cases.push(Case::from_rows("switch-over", switch_over));
    cases
}

/// Sends messages to and fro `trips` times, and returns the nanoseconds of one message.
pub(super) fn to_and_fro(me: &Worker, exchange: &mut dyn Exchange, trips: u64, first: u64) -> Result<f64, BenchError> {
    let mut at = first;
    let leads = me.id() == WorkerId::new(0);
    me.barrier()?;
    let times = time_batches(trips, TOGETHER, || {
        at += 2;
        if leads {
            exchange.send(at)?;
            exchange.receive(at + 1)
        } else {
            exchange.receive(at)?;
            exchange.send(at + 1)
        }
    })?;
    Ok(median(&times) / 2.0)
}

fn against_one_line(me: &Worker, way: Method, bytes: usize, options: Options) -> Measured {
    let ping_pong = PingPong::of_two(me)?;
    let mut exchange = way.open(me, bytes)?;
    let trips = trips(bytes, options);
    // The first turn makes the connection and touches the memory.
    let taken = in_turns(me, options, |turn| {
        let line_ns = once(me, &mut OneLine { ping_pong: &ping_pong, trips })?;
        let ns = to_and_fro(me, &mut *exchange, trips, 2 * turn * trips)?;
        Ok([line_ns / 2.0 + copy_ns(bytes), ns])
    })?;
    Ok(taken.rows([column(METRIC, "ns", 1).against(LIMIT, 0)]))
}

/// Returns the time of a copy of a message in warm caches.
fn copy_ns(bytes: usize) -> f64 {
    let (source, mut target) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    let copies = 1 + ((1 << 20) / bytes.max(64)) as u64;
    let copy = || {
        black_box(&mut target[..]).copy_from_slice(black_box(&source));
        Ok::<_, BenchError>(())
    };
    time_batches(copies, TOGETHER, copy).map_or(f64::NAN, |times| median(&times))
}

/// Measures jobs of Farside and Open MPI's ways in turns. The peers that write stand next to the
/// pipe, those that read and the messages next to the offers.
fn against_mpi(way: Method, bytes: usize, options: Options, run_once: RunOnce<'_>) -> Measured {
    let mode = match way {
        Method::Write => "write",
        Method::Read => "read",
        Method::TwoPuts => return run_once(options),
    };
    let (mut metrics, of_peers) = peers::in_turns(options, run_once, |options| {
        let numbers = [bytes as u64, trips(bytes, options), options.runs() as u64].map(|number| number.to_string());
        peers::measure(peers::PIPE, 2, &[&numbers[..], &[mode.to_owned()]].concat(), options)
    })?;
    let is_one_sided = |metric: &&Metric| metric.peer.as_deref() != Some("openmpi-send");
    let best = of_peers.iter().filter(is_one_sided).map(|metric| median(&metric.samples)).min_by(f64::total_cmp);
    if let (Some(best), Some(own)) = (best, metrics.first()) {
        let ratios = own.samples.iter().map(|own| best / own).collect();
        metrics.push(Metric::new(FASTER, "1", ratios));
    }
    metrics.extend(of_peers);
    Ok(metrics)
}

/// Computes the sizes at which another form becomes faster.
fn switch_over(rows: &[Row]) -> Vec<Metric> {
    let ns = |way: Method, bytes: usize| {
        let case = way.case(bytes);
        rows.iter().find(|row| row.case == case && row.metric == METRIC && row.peer.is_none()).map(|row| row.value)
    };
    let is_quicker = |one: (Method, usize), other: (Method, usize)| {
        ns(one.0, one.1).zip(ns(other.0, other.1)).is_some_and(|(one, other)| one < other)
    };
    let is_written = |bytes: &usize| is_quicker((Method::Write, *bytes), (Method::TwoPuts, *bytes));
    let is_offered = |bytes: &usize| is_quicker((Method::Read, *bytes), (Method::Write, *bytes));
    let last = SIZES.into_iter().take_while(is_written).last();
    let mut metrics = vec![Metric::new("bytes", "B", vec![last.unwrap_or(0) as f64])];
    if let [Some(inside), Some(beyond)] = AROUND_A_LINE.map(|bytes| ns(Method::Write, bytes)) {
        metrics.push(Metric::new("beyond_line", "1", vec![beyond / inside]));
    }
    let first = SIZES.into_iter().rev().take_while(is_offered).last();
    metrics.extend(first.map(|bytes| Metric::new("offer_bytes", "B", vec![bytes as f64])));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_before_the_first_that_is_slower() {
        let row = |way: Method, bytes: usize, ns: f64| {
            Row::new("pipe-latency", &way.case(bytes), &Metric::new(METRIC, "ns", vec![ns])).unwrap()
        };
        let rows = |quick: &[usize]| {
            let of_size = |bytes: usize| {
                let ns = if quick.contains(&bytes) { 1.0 } else { 3.0 };
                [row(Method::Write, bytes, ns), row(Method::TwoPuts, bytes, 2.0)]
            };
            SIZES.into_iter().flat_map(of_size).collect::<Vec<_>>()
        };
        let found = |quick: &[usize]| switch_over(&rows(quick))[0].samples.clone();
        assert_eq!(found(&[1, 4, 8, 64, 1024]), [64.0]);
        assert_eq!(found(&[4]), [0.0]);
        assert_eq!(found(&SIZES), [(4 << 20) as f64]);
    }

    #[test]
    fn offers_are_worth_it_from_the_size_on_after_which_all_are_quicker() {
        let row = |way: Method, bytes: usize, ns: f64| {
            Row::new("pipe-latency", &way.case(bytes), &Metric::new(METRIC, "ns", vec![ns])).unwrap()
        };
        let found = |quick: &[usize]| {
            let of_size = |bytes: usize| {
                let ns = if quick.contains(&bytes) { 1.0 } else { 3.0 };
                [row(Method::Read, bytes, ns), row(Method::Write, bytes, 2.0)]
            };
            let edges = [row(Method::Write, 56, 2.0), row(Method::Write, 57, 5.0)];
            let rows: Vec<_> = SIZES.into_iter().flat_map(of_size).chain(edges).collect();
            let metrics = switch_over(&rows);
            let of = |name: &str| metrics.iter().find(|metric| metric.name == name).map(|metric| metric.samples[0]);
            assert_eq!(of("beyond_line"), Some(2.5));
            of("offer_bytes")
        };
        assert_eq!(found(&[8, 1 << 20, 4 << 20]), Some((1 << 20) as f64));
        assert_eq!(found(&[8, 1 << 20]), None);
        assert_eq!(found(&SIZES), Some(1.0));
    }

    #[test]
    fn every_way_brings_messages_over() {
        for way in Method::ALL {
            for bytes in [1, 8, 56, 57, 5000] {
                let result = farside::simulate(2, 1, 1, |me| {
                    let mut exchange = way.open(me, bytes)?;
                    to_and_fro(me, &mut *exchange, 20, 0)?;
                    me.barrier()
                });
                result.unwrap_or_else(|error| panic!("{way:?} {bytes}: {error}"));
            }
        }
    }
}
