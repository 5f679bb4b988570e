//! Traces: allocations and frees of a program, in order.

use crate::kit::*;

/// The allocations of four workers that search for Hex.
/// `apps/farside-mcts/examples/record_allocations.rs` recorded them and says how.
const RECORDED: &str = include_str!("recorded.txt");

/// Bytes of the header of a block of a remote heap, and the unit of its size.
const UNIT_BYTES: u64 = 16;

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An allocation of this number of bytes.
    Allocate { bytes: u64 },
    /// A free of the allocation of this number, counted from 0.
    Free { number: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Trace {
    pub(super) events: Vec<Event>,
    pub(super) allocations: usize,
}

impl Trace {
    /// # Errors
    /// [`BenchError::Trace`] if the text is no trace.
    pub(super) fn recorded() -> Result<Self, BenchError> {
        Self::parse(RECORDED)
    }

    fn parse(text: &str) -> Result<Self, BenchError> {
        let mut trace = Self { events: Vec::new(), allocations: 0 };
        for line in text.lines() {
            let event = match line.split_at_checked(1) {
                Some(("+", bytes)) => bytes.parse().ok().map(|bytes| Event::Allocate { bytes }),
                Some(("-", back)) => {
                    let number = back.parse().ok().and_then(|back: usize| trace.allocations.checked_sub(back + 1));
                    number.map(|number| Event::Free { number })
                }
                _ => None,
            };
            let event = event.ok_or_else(|| BenchError::Trace { line: line.into() })?;
            trace.allocations += usize::from(matches!(event, Event::Allocate { .. }));
            trace.events.push(event);
        }
        Ok(trace)
    }

    /// Returns `count` allocations of 1 byte to 16 KiB, equally many of each power of two. 500 live
    /// at a time; each new one replaces a random one.
    pub(super) fn random(seed: u64, allocations: usize) -> Self {
        const LIVE: usize = 500;
        const BITS: u64 = 14;
        let mut random = Random(seed.wrapping_mul(2) | 1);
        let mut live: Vec<usize> = Vec::with_capacity(LIVE);
        let mut events = Vec::with_capacity(2 * allocations);
        for number in 0..allocations {
            if live.len() == LIVE {
                let freed = live.swap_remove(random.next() as usize % LIVE);
                events.push(Event::Free { number: freed });
            }
            let largest = 1 << (random.next() % (BITS + 1));
            events.push(Event::Allocate { bytes: 1 + random.next() % largest });
            live.push(number);
        }
        Self { events, allocations }
    }

    /// Returns the largest sum of the live blocks with their headers.
    pub(super) fn peak_bytes(&self) -> u64 {
        let mut sizes = Vec::with_capacity(self.allocations);
        let (mut live, mut peak) = (0, 0);
        for event in &self.events {
            match event {
                Event::Allocate { bytes } => {
                    sizes.push(block_bytes(*bytes));
                    live += block_bytes(*bytes);
                    peak = peak.max(live);
                }
                Event::Free { number } => live -= sizes[*number],
            }
        }
        peak
    }
}

/// Returns the bytes that a block takes of a heap.
pub(super) fn block_bytes(bytes: u64) -> u64 {
    UNIT_BYTES + bytes.next_multiple_of(UNIT_BYTES)
}

/// Random numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that every allocation is freed at most once, and after it was made.
    fn check(trace: &Trace) {
        let mut is_live = Vec::new();
        for event in &trace.events {
            match event {
                Event::Allocate { .. } => is_live.push(true),
                Event::Free { number } => assert!(std::mem::replace(&mut is_live[*number], false)),
            }
        }
        assert_eq!(is_live.len(), trace.allocations);
    }

    #[test]
    fn recorded_schedules_are_traces() {
        let trace = Trace::recorded().unwrap();
        check(&trace);
        assert!(trace.allocations > 1000 && trace.peak_bytes() > 10_000);
    }

    #[test]
    fn random_traces_are_valid_and_repeat_by_seed() {
        let trace = Trace::random(7, 3000);
        check(&trace);
        assert_eq!(trace.events, Trace::random(7, 3000).events);
        assert_ne!(trace.events, Trace::random(8, 3000).events);
    }

    #[test]
    fn lines_are_read() {
        let trace = Trace::parse("+10\n+20\n-1\n-0\n").unwrap();
        let [ten, twenty] = [10, 20].map(|bytes| Event::Allocate { bytes });
        assert_eq!(trace.events, [ten, twenty, Event::Free { number: 0 }, Event::Free { number: 1 }]);
        assert_eq!(trace.peak_bytes(), 32 + 48);
        for wrong in ["", "x", "+", "-1", "+1\n-1", "+1\n-", "*1"].map(|text| format!("{text}\n")) {
            Trace::parse(&wrong).unwrap_err();
        }
    }
}
