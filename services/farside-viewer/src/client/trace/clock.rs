//! [`Clock`]: the clock of a process on another machine, compared with that of this machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farside_inspect::__private::doors::Guest;
use farside_rpc::Pending;
use farside_sys::process::monotonic_time;

use crate::client::error::InspectError;
use crate::client::inspector::{Inspector, failure_of};

/// The number of questions to each process, of which the fastest is taken.
const QUESTIONS: usize = 8;

/// How far the monotonic clock of a process is behind that of this process, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    behind_ns: i64,
}

impl Clock {
    /// Compares the clocks by questions: the time here before each, the answer, and the time here
    /// after it. The answer belongs to the middle of the fastest.
    ///
    /// A clock that may be the same one, as its answer lies between the two times, is the same one.
    /// So processes on this machine are not shifted.
    pub(super) fn of(asked: impl IntoIterator<Item = (Duration, Duration, Duration)>) -> Self {
        let fastest = asked.into_iter().min_by_key(|(before, _, after)| after.saturating_sub(*before));
        let Some((before, there, after)) = fastest.filter(|(before, there, after)| !(before..=after).contains(&there))
        else {
            return Self::default();
        };
        let ns = |time: Duration| time.as_nanos() as i64;
        let middle = ns(before) + ns(after.saturating_sub(before)) / 2;
        Self { behind_ns: middle.saturating_sub(ns(there)) }
    }

    /// A time of the process's clock, by the clock here. One from before this machine started is 0.
    pub(super) fn here(self, there: Duration) -> Duration {
        let shift = Duration::from_nanos(self.behind_ns.unsigned_abs());
        if self.behind_ns < 0 { there.saturating_sub(shift) } else { there.saturating_add(shift) }
    }
}

impl Inspector {
    /// The clocks of processes. One that is gone has none.
    pub(super) fn clocks(&self, guests: &BTreeMap<u32, Guest>) -> Result<BTreeMap<u32, Clock>, InspectError> {
        let deadline = Instant::now() + self.time();
        let mut clocks = BTreeMap::new();
        for (process, guest) in guests {
            let ask = |_| {
                let before = monotonic_time();
                let there = guest.until(deadline).clock().and_then(Pending::wait)?;
                Ok((before, Duration::from_nanos(there), monotonic_time()))
            };
            match (0..QUESTIONS).map(ask).collect::<Result<Vec<_>, _>>() {
                Ok(asked) => drop(clocks.insert(*process, Clock::of(asked))),
                Err(error) => match failure_of::<farside_rpc::Never>(guest, *process, &error) {
                    InspectError::Lost { .. } => {}
                    failure => return Err(failure),
                },
            }
        }
        Ok(clocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_question_compares_the_clocks() {
        let us = Duration::from_micros;
        // The other clock is 1 s ahead, or behind. The slow question would say something else.
        for there in [us(2_000_010), us(10)] {
            let clock = Clock::of([(us(900_000), there, us(999_000)), (us(1_000_000), there, us(1_000_020))]);
            assert_eq!(clock.here(there), us(1_000_010));
            assert_eq!(clock.here(there + us(5)), us(1_000_015));
        }
        // The same clock, whatever the ways there and back took.
        for there in [us(1_000_000), us(1_000_019)] {
            assert_eq!(Clock::of([(us(1_000_000), there, us(1_000_020))]), Clock::default());
        }
        assert_eq!(Clock::default().here(us(7)), us(7));
        // An event from before this machine started.
        assert_eq!(Clock::of([(us(0), us(9), us(2))]).here(us(3)), Duration::ZERO);
    }
}
