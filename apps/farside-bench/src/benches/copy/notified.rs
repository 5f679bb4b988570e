//! Puts with a signal: data goes to and fro, and the signal announces it.
//!
//! The metric `ns_each_way_a_line` has a round trip with one line for each direction as its limit.

use farside::global::Symmetric;
use farside::{AwaitSignals, Comparison, GlobalAddress, GlobalPtr, MakeArrays, Signal, Worker, WorkerId};

use super::super::pipe_latency::{Exchange, check, stamp, to_and_fro};
use super::METRIC;
use crate::kit::*;

/// Round trips of one run by default.
const TRIPS: u64 = 100_000;
const LINE_BYTES: usize = 64;
const LIMIT: &str = "one-line ping-pong / 2";
const LIMIT_TWO_LINES: &str = "two-line ping-pong / 2";

/// The data and its signal, at the other process and here.
pub(super) struct Notified<'w> {
    me: &'w Worker,
    here: Symmetric<u8>,
    /// The offset of the data.
    begin: usize,
    heard: GlobalPtr<u64>,
    to: GlobalAddress,
    signal: GlobalPtr<u64>,
    data: Vec<u8>,
}

impl<'w> Notified<'w> {
    /// Connects with the only other worker. Collective.
    pub(super) fn new(me: &'w Worker, bytes: usize) -> Result<Self, BenchError> {
        // Data that fits precedes the signal in its line; more data follows it.
        let begin = if bytes + size_of::<u64>() <= LINE_BYTES { 0 } else { LINE_BYTES };
        let here = me.symmetric::<u8>(LINE_BYTES + bytes.next_multiple_of(LINE_BYTES))?;
        let place = |worker: WorkerId| here.at(me.process_of(worker)).map(|values| values.start());
        let (own, other) = (place(me.id())?, place(me.neighbor(1))?);
        let (heard, signal) = (own.add(LINE_BYTES - 8)?.cast(), other.add(LINE_BYTES - 8)?.cast());
        Ok(Self { me, begin, heard, to: other.add(begin)?.address(), signal, here, data: vec![0; bytes] })
    }

    pub(super) fn free(self) -> Result<(), BenchError> {
        Ok(self.here.free(self.me)?)
    }
}

impl Exchange for Notified<'_> {
    #[inline]
    fn send(&mut self, number: u64) -> farside::Result<()> {
        stamp(&mut self.data, number);
        self.me.put_signal(self.to, &self.data, self.signal, Signal::Set(number))
    }

    #[inline]
    fn receive(&mut self, number: u64) -> farside::Result<()> {
        self.heard.wait_until(self.me, Comparison::Ge, number)?;
        let values = self.here.here();
        check([values.get(self.begin), values.get(self.begin + self.data.len() - 1)], number)
    }
}

/// Measures it against round trips of a word, on one line for both directions and on one line each.
/// Collective.
pub(super) fn against_one_line(me: &Worker, bytes: usize, options: Options) -> Measured {
    let ping_pong = PingPong::of_two(me)?;
    let mut exchange = Notified::new(me, bytes)?;
    let trips = options.operations_or(TRIPS);
    // The first turn finds the memory.
    let taken = in_turns(me, options, |turn| {
        me.barrier()?;
        let [one, two] = if me.is_first() {
            [median(&ping_pong.ask_on_one_line(trips)?), median(&ping_pong.ask(trips, TOGETHER)?)]
        } else {
            ping_pong.answer_on_one_line(trips)?;
            ping_pong.answer(trips)?;
            [0.0; 2]
        };
        let ns = to_and_fro(me, &mut exchange, trips, 2 * turn * trips)?;
        Ok([one / 2.0, two / 2.0, ns])
    })?;
    exchange.free()?;
    // In the second, each direction has a line, which lies at the waiting side.
    Ok(taken.rows([
        column(METRIC, "ns", 2).against(LIMIT, 0),
        column("ns_each_way_a_line", "ns", 2).against(LIMIT_TWO_LINES, 1),
    ]))
}
