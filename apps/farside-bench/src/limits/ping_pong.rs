//! Round trips of a word between two workers: the least time that a round trip can take.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use farside::Worker;

use super::Yardstick;
use crate::BenchError;
use crate::shared::{Patience, Shared, WORD_DISTANCE};
use crate::stats::median;
use crate::timing::{TOGETHER, time_batches};

/// The name of the limit in rows.
pub(crate) const TWO_LINES: &str = "two-line ping-pong";

/// A pair of workers and the lines between them. Both sides create one, on the same memory and at
/// the same place.
#[derive(Debug)]
pub(crate) struct PingPong {
    memory: Shared,
    pair: usize,
    patience: Patience,
    /// Number of round trips so far. Both sides count alike, so that no word is used twice.
    trips: Cell<u64>,
    single_trips: Cell<u64>,
}

impl PingPong {
    /// Bytes of memory for one pair.
    pub(crate) const BYTES: usize = 3 * WORD_DISTANCE;

    /// The lines of pair number `pair`, which this worker is one side of.
    pub(crate) fn new(memory: &Shared, pair: usize, patience: Patience) -> Self {
        Self { memory: memory.clone(), pair, patience, trips: Cell::new(0), single_trips: Cell::new(0) }
    }

    /// The lines between the workers 0 and 1. Collective.
    ///
    /// # Errors
    /// The errors of [`Shared::new`].
    pub(crate) fn of_two(me: &Worker) -> Result<Self, BenchError> {
        Ok(Self::new(&Shared::new(me, Self::BYTES)?, 0, Patience::new(2)))
    }

    /// The words of the request, the response, and both on one line.
    fn words(&self) -> [&AtomicU64; 3] {
        [0, 1, 2].map(|index| self.memory.word(self.pair * Self::BYTES + index * WORD_DISTANCE))
    }

    /// Sends a word on one line and waits for it on another, `trips` times. Returns the time of a
    /// trip for each `batch`.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    pub(crate) fn ask(&self, trips: u64, batch: u64) -> Result<Vec<f64>, BenchError> {
        let [request, response, _] = self.words();
        let mut at = self.trips.replace(self.trips.get() + trips);
        time_batches(trips, batch, || {
            at += 1;
            // SYNC: pairs with the acquire loads in `answer`.
            request.store(at, Ordering::Release);
            self.patience.wait_until(|| response.load(Ordering::Acquire) == at)
        })
    }

    /// The other side of [`ask`](Self::ask).
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    pub(crate) fn answer(&self, trips: u64) -> Result<(), BenchError> {
        let [request, response, _] = self.words();
        let first = self.trips.replace(self.trips.get() + trips) + 1;
        (first..first + trips).try_for_each(|at| {
            self.patience.wait_until(|| request.load(Ordering::Acquire) == at)?;
            // SYNC: pairs with the acquire loads in `ask`.
            response.store(at, Ordering::Release);
            Ok(())
        })
    }

    /// Sends a word and waits for it on the same line, `trips` times. Returns the time of a trip
    /// for each batch.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    pub(crate) fn ask_on_one_line(&self, trips: u64) -> Result<Vec<f64>, BenchError> {
        let [.., single] = self.words();
        let mut at = 2 * self.single_trips.replace(self.single_trips.get() + trips);
        time_batches(trips, TOGETHER, || {
            // The asking side writes odd values, the answering side even ones.
            single.store(at + 1, Ordering::Release);
            at += 2;
            self.patience.wait_until(|| single.load(Ordering::Acquire) == at)
        })
    }

    /// The other side of [`ask_on_one_line`](Self::ask_on_one_line).
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    pub(crate) fn answer_on_one_line(&self, trips: u64) -> Result<(), BenchError> {
        let [.., single] = self.words();
        let first = self.single_trips.replace(self.single_trips.get() + trips);
        (first..first + trips).try_for_each(|trip| {
            self.patience.wait_until(|| single.load(Ordering::Acquire) == 2 * trip + 1)?;
            single.store(2 * trip + 2, Ordering::Release);
            Ok(())
        })
    }
}

/// Round trips of a word on two lines, in nanoseconds.
#[derive(Debug)]
pub(crate) struct TwoLines {
    pub(crate) ping_pong: PingPong,
    pub(crate) trips: u64,
}

impl Yardstick for TwoLines {
    fn name(&self) -> &str {
        TWO_LINES
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        Ok(median(&self.ping_pong.ask(self.trips, TOGETHER)?))
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        self.ping_pong.answer(self.trips)
    }
}

/// Round trips of a word on one line, in nanoseconds.
#[derive(Debug)]
pub(crate) struct OneLine<'p> {
    pub(crate) ping_pong: &'p PingPong,
    pub(crate) trips: u64,
}

impl Yardstick for OneLine<'_> {
    fn name(&self) -> &str {
        "one-line ping-pong"
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        Ok(median(&self.ping_pong.ask_on_one_line(self.trips)?))
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        self.ping_pong.answer_on_one_line(self.trips)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn both_sides_come_to_the_end_again_and_again() {
        let memory = Shared::in_process(2 * PingPong::BYTES);
        for pair in 0..2 {
            let runs = [1, 7, 64, 65];
            thread::scope(|scope| {
                let far_memory = memory.clone();
                scope.spawn(move || {
                    let side = PingPong::new(&far_memory, pair, Patience::new(100));
                    for trips in runs {
                        side.answer(trips).unwrap();
                        side.answer_on_one_line(trips).unwrap();
                    }
                });
                let side = PingPong::new(&memory, pair, Patience::new(100));
                for trips in runs {
                    assert!(!side.ask(trips, TOGETHER).unwrap().is_empty());
                    assert!(!side.ask_on_one_line(trips).unwrap().is_empty());
                }
            });
            let last = runs.iter().sum::<u64>();
            let words = [0, 1, 2].map(|index| memory.word(pair * PingPong::BYTES + index * WORD_DISTANCE));
            assert_eq!(words.map(|word| word.load(Ordering::Relaxed)), [last, last, 2 * last]);
        }
    }
}
