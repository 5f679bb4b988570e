//! Round trips between two processes: the time from a call until its caller knows that it was
//! executed.

mod broadcast;
mod buffers;
pub(super) mod over_ofi;

use std::hint::black_box;

use farside::{On, Worker, WorkerId};

use super::size_name;
use crate::kit::*;

pub(crate) const ABOUT: &str = "round trips of calls between two processes";

/// Round trips of one run by default.
const TRIPS: u64 = 200_000;
/// Bytes of a buffer that take as long to write and read as a round trip.
const BYTES_PER_TRIP: usize = 4096;

pub(crate) fn cases() -> Vec<Case> {
    let echoes: [(usize, RoundTrips); 3] = [(8, echo::<1>), (64, echo::<8>), (1024, echo::<128>)];
    let mut cases = Vec::from(echoes.map(|(bytes, echo)| case(name("call-return", bytes), bytes, echo)));
    cases.push(case("notify-executed", 0, notify));
    let forms: [(&str, RoundTrips); 4] = [
        ("call-buffer", pass_buffer),
        ("call-buffer-put", buffers::put),
        ("call-buffer-get", buffers::get),
        ("call-buffer-unordered", buffers::get_unordered),
    ];
    for (form, round_trips) in forms {
        cases.extend([4 << 10, 64 << 10, 1 << 20].map(|bytes| case(name(form, bytes), bytes, round_trips)));
    }
    cases.push(case("notify-countdown", 0, buffers::countdown));
    cases.push(case(name("call-into", 8), 8, buffers::call_into));
    cases.push(Case::job("broadcast/8p", 8, broadcast::to_eight));
    cases.push(Case::job("one-line-ping-pong", 2, one_line));
    cases
}

/// The case of round trips with this number of bytes.
fn case(name: impl Into<String>, bytes: usize, round_trips: RoundTrips) -> Case {
    Case::job(name, 2, move |me, options| against_two_lines(me, options, bytes, round_trips))
}

fn name(kind: &str, bytes: usize) -> String {
    format!("{kind}/{}", size_name(bytes))
}

/// Makes `trips` round trips to a worker, with a buffer of `bytes` bytes if it takes one.
type RoundTrips = fn(&Worker, WorkerId, trips: u64, bytes: usize) -> farside::Result<Latency>;

fn against_two_lines(me: &Worker, options: Options, bytes: usize, round_trips: RoundTrips) -> Measured {
    let mut limit = TwoLines { ping_pong: PingPong::of_two(me)?, trips: options.operations_or(TRIPS) };
    let trips = options.operations_or(TRIPS / (1 + bytes / BYTES_PER_TRIP) as u64);
    measure(me, options, &mut limit, |peer| round_trips(me, peer, trips, bytes))
}

/// Measures round trips and limit in turns. Worker 1 answers while it waits at a barrier.
fn measure(
    me: &Worker,
    options: Options,
    limit: &mut impl Yardstick,
    round_trips: impl Fn(WorkerId) -> farside::Result<Latency>,
) -> Measured {
    // The first turn sets up the rings.
    let taken = in_turns(me, options, |_| {
        let limit_ns = once(me, limit)?;
        me.barrier()?;
        let latency = if me.is_first() { round_trips(me.neighbor(1))? } else { Latency::default() };
        Ok([limit_ns, latency.median_ns, latency.p99_ns])
    })?;
    Ok(taken.rows([("rtt_ns", 1), ("rtt_p99_ns", 2)].map(|(name, at)| column(name, "ns", at).against(limit.name(), 0))))
}

/// Calls a function that returns its arguments.
fn echo<const WORDS: usize>(me: &Worker, peer: WorkerId, trips: u64, _: usize) -> farside::Result<Latency> {
    let mut number = 0_u64;
    time_latency(trips, || {
        number += 1;
        black_box(me.call_return(peer, [number; WORDS], |_, words| words)?.wait()?);
        Ok(())
    })
}

/// Calls a function; a synchronizer tells the caller that it was executed.
fn notify(me: &Worker, peer: WorkerId, trips: u64, _: usize) -> farside::Result<Latency> {
    let executed = me.synchronizer(0)?;
    let to = me.to(peer).notify(&executed, On::Executed);
    time_latency(trips, || {
        executed.add(1);
        to.call((), |_, ()| ())?;
        executed.wait()
    })
}

/// Passes a buffer to a function, which reads it; a synchronizer tells the caller.
fn pass_buffer(me: &Worker, peer: WorkerId, trips: u64, bytes: usize) -> farside::Result<Latency> {
    let buffer = vec![1; bytes];
    let executed = me.synchronizer(0)?;
    let to = me.to(peer).notify(&executed, On::Executed);
    time_latency(trips, || {
        executed.add(1);
        to.call_buffer((), &buffer, |_, (), bytes| black_box(sum_of(bytes)))?;
        executed.wait()
    })
}

fn sum_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// Measures round trips of a word on a single line, for reference: fast replies do the same.
fn one_line(me: &Worker, options: Options) -> Measured {
    let ping_pong = PingPong::of_two(me)?;
    let trips = options.operations_or(TRIPS);
    let taken = in_turns(me, options, |_| {
        me.barrier()?;
        if me.is_first() {
            return Ok([median(&ping_pong.ask(trips, TOGETHER)?), median(&ping_pong.ask_on_one_line(trips)?)]);
        }
        ping_pong.answer(trips)?;
        ping_pong.answer_on_one_line(trips)?;
        Ok([0.0; 2])
    })?;
    Ok(taken.rows([column("rtt_ns", "ns", 1).against(TWO_LINES, 0)]))
}
