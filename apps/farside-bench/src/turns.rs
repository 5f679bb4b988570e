//! Measuring in turns, because a host may move the virtual processors while a benchmark runs.
//!
//! The host of a virtual machine may move its processors to other cores. A word then takes up to
//! eight times as long from one processor to the other. Values that are compared must be measured
//! with the processors in the same places. One turn therefore measures everything once. Round trips
//! of a word before and after the turn show whether the host moved a processor meanwhile; the
//! comments below call that "the host moved".

use farside::{Worker, WorkerId};

use crate::limits::Yardstick;
use crate::limits::ping_pong::{PingPong, TwoLines};
use crate::metric::Metric;
use crate::shared::{Patience, Shared};
use crate::{BenchError, Options};

/// Round trips that show the state of the host. They take about a millisecond.
const TRIPS: u64 = 2_000;
/// The host has moved if a round trip takes longer or shorter by this factor than before.
const MOVED: f64 = 1.25;
/// The metric that says how many turns were taken again.
pub(crate) const TURNS_REPEATED: &str = "turns_repeated";

/// The samples of several things that were measured in turns.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// The samples of each thing.
    samples: Vec<Vec<f64>>,
    /// The number of turns that were taken again because the host had moved.
    repeated: usize,
}

impl Taken {
    /// Returns a metric of thing number `thing`.
    pub(crate) fn metric(&self, name: &str, unit: &str, thing: usize) -> Metric {
        Metric::new(name, unit, self.samples_of(thing))
    }

    /// Returns the samples of thing number `thing`; none on workers that measured nothing.
    pub(crate) fn samples_of(&self, thing: usize) -> Vec<f64> {
        self.samples.get(thing).cloned().unwrap_or_default()
    }

    /// Returns `metrics`, and the number of repeated turns if there are any.
    pub(crate) fn report(&self, mut metrics: Vec<Metric>) -> Vec<Metric> {
        if self.repeated > 0 {
            metrics.push(Metric::new(TURNS_REPEATED, "1", vec![self.repeated as f64]));
        }
        metrics
    }
}

/// Runs `turn` once to warm up, and then as often as the options say. `turn` gets the number of the
/// turn and returns, on worker 0, one value for each measured thing. A turn in which the host moved
/// is repeated. The number of repeated turns is at most the number of turns in the options.
/// Collective, for two workers or more. The host is looked at between the workers 0 and 1.
///
/// # Errors
/// What `turn` returns; the errors of [`Shared::new`] and of collectives; [`BenchError::NoAnswer`].
pub(crate) fn in_turns(
    me: &Worker,
    options: Options,
    mut turn: impl FnMut(u64) -> Result<Vec<f64>, BenchError>,
) -> Result<Taken, BenchError> {
    let memory = Shared::new(me, PingPong::BYTES)?;
    let mut host = TwoLines { ping_pong: PingPong::new(&memory, 0, Patience::new(2)), trips: TRIPS };
    let mut taken = Taken { samples: Vec::new(), repeated: 0 };
    let (mut number, mut counted) = (0, 0);
    let mut look = || if options.is_simulated { Ok(0.0) } else { once(me, &mut host) };
    while counted < options.runs() || number == 0 {
        let before = look()?;
        me.barrier()?;
        let found = turn(number)?;
        let after = look()?;
        number += 1;
        if number == 1 {
            continue;
        }
        let again = taken.repeated < options.runs() && has_moved(before, after);
        if me.broadcast(WorkerId::FIRST, Some(again).filter(|_| me.is_first()))? {
            taken.repeated += 1;
            continue;
        }
        counted += 1;
        taken.samples.resize(found.len(), Vec::new());
        taken.samples.iter_mut().zip(found).for_each(|(all, value)| all.push(value));
    }
    me.barrier()?;
    Ok(taken)
}

/// Measures a yardstick between the workers 0 and 1 once. Returns its value on worker 0, and 0 on
/// the others. Collective.
///
/// # Errors
/// The errors of the yardstick and of a barrier.
pub(crate) fn once(me: &Worker, yardstick: &mut (impl Yardstick + ?Sized)) -> Result<f64, BenchError> {
    me.barrier()?;
    match me.id().index() {
        0 => yardstick.lead(),
        1 => yardstick.follow().map(|()| 0.0),
        _ => Ok(0.0),
    }
}

fn has_moved(before: f64, after: f64) -> bool {
    before.max(after) > MOVED * before.min(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_by_more_than_a_quarter_is_a_move() {
        for (before, after, moved) in [
            (100.0, 124.0, false),
            (124.0, 100.0, false),
            (100.0, 126.0, true),
            (126.0, 100.0, true),
            (0.0, 0.0, false),
        ] {
            assert_eq!(has_moved(before, after), moved, "{before} {after}");
        }
    }

    #[test]
    fn repeated_turns_are_told() {
        let metrics = |repeated| {
            let taken = Taken { samples: vec![vec![1.0, 3.0]], repeated };
            taken.report(vec![taken.metric("ns", "ns", 0), taken.metric("none", "ns", 1)])
        };
        assert_eq!(metrics(0), [Metric::new("ns", "ns", vec![1.0, 3.0]), Metric::new("none", "ns", vec![])]);
        assert_eq!(metrics(2)[2], Metric::new(TURNS_REPEATED, "1", vec![2.0]));
    }
}
