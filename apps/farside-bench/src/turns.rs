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
use crate::{BenchError, Options};

/// Round trips that show the state of the host. They take about a millisecond.
const TRIPS: u64 = 2_000;
/// The host has moved if a round trip takes longer or shorter by this factor than before.
const MOVED: f64 = 1.25;
/// The metric that says how many turns were taken again.
pub(crate) const TURNS_REPEATED: &str = "turns_repeated";

/// The samples of several things that were measured in turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// The samples of each thing.
    samples: Vec<Vec<f64>>,
    /// The number of turns that were taken again because the host had moved.
    repeated: usize,
}

/// A column of samples: a metric, its unit, and the things that were measured for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'n> {
    metric: &'n str,
    unit: &'n str,
    thing: usize,
    limit: Option<(&'n str, usize)>,
}

/// The column of the thing with this number in each turn.
pub(crate) fn column<'n>(metric: &'n str, unit: &'n str, thing: usize) -> Column<'n> {
    Column { metric, unit, thing, limit: None }
}

impl<'n> Column<'n> {
    /// Adds a limit: its name, and its number in each turn.
    pub(crate) fn against(self, limit: &'n str, thing: usize) -> Self {
        Self { limit: Some((limit, thing)), ..self }
    }

    /// Removes the limit unless it exists.
    pub(crate) fn if_measured(self, is_measured: bool) -> Self {
        Self { limit: self.limit.filter(|_| is_measured), ..self }
    }
}

impl Taken {
    /// The values of a single run.
    pub(crate) fn of(values: impl Into<Vec<f64>>) -> Self {
        let mut taken = Self::default();
        taken.add(values);
        taken
    }

    /// Returns the samples of thing number `thing`; none on workers that measured nothing.
    pub(crate) fn samples_of(&self, thing: usize) -> Vec<f64> {
        self.samples.get(thing).cloned().unwrap_or_default()
    }

    /// Returns a metric for each column, and the number of repeated turns if there are any.
    pub(crate) fn rows<'n>(&self, columns: impl IntoIterator<Item = Column<'n>>) -> Vec<Metric> {
        let metric = |column: Column<'_>| {
            let metric = Metric::new(column.metric, column.unit, self.samples_of(column.thing));
            match column.limit {
                Some((name, thing)) => metric.against(name, self.samples_of(thing)),
                None => metric,
            }
        };
        let repeated = Metric::new(TURNS_REPEATED, "1", vec![self.repeated as f64]);
        columns.into_iter().map(metric).chain((self.repeated > 0).then_some(repeated)).collect()
    }

    fn add(&mut self, found: impl Into<Vec<f64>>) {
        let found = found.into();
        self.samples.resize(found.len(), Vec::new());
        self.samples.iter_mut().zip(found).for_each(|(all, value)| all.push(value));
    }
}

/// Runs `run` once to warm up, and then as often as the options say. `run` gets the number of the
/// run and returns one value for each measured thing.
///
/// # Errors
/// The error of `run`.
pub(crate) fn warmed<V: Into<Vec<f64>>>(
    options: Options,
    mut run: impl FnMut(u64) -> Result<V, BenchError>,
) -> Result<Taken, BenchError> {
    run(0)?;
    cold(options, |number| run(number + 1))
}

/// Does the same without a run to warm up.
///
/// # Errors
/// The error of `run`.
pub(crate) fn cold<V: Into<Vec<f64>>>(
    options: Options,
    mut run: impl FnMut(u64) -> Result<V, BenchError>,
) -> Result<Taken, BenchError> {
    let mut taken = Taken::default();
    (0..options.runs() as u64).try_for_each(|number| run(number).map(|found| taken.add(found)))?;
    Ok(taken)
}

/// Runs `turn` once to warm up, and then as often as the options say. `turn` gets the number of the
/// turn and returns, on worker 0, one value for each measured thing. A turn in which the host moved
/// is repeated. The number of repeated turns is at most the number of turns in the options.
/// Collective, for two workers or more. The host is looked at between the workers 0 and 1.
///
/// # Errors
/// The error of `turn`; the errors of [`Shared::new`](crate::shared::Shared::new) and of
/// collectives; [`BenchError::NoAnswer`].
pub(crate) fn in_turns<V: Into<Vec<f64>>>(
    me: &Worker,
    options: Options,
    mut turn: impl FnMut(u64) -> Result<V, BenchError>,
) -> Result<Taken, BenchError> {
    let mut host = TwoLines { ping_pong: PingPong::of_two(me)?, trips: TRIPS };
    let mut taken = Taken::default();
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
        taken.add(found);
    }
    me.barrier()?;
    Ok(taken)
}

/// Measures on worker 0 while the others wait; they find zero or nothing. Collective.
///
/// # Errors
/// The error of `measure`, and those of barriers.
pub(crate) fn on_first<T: Default>(
    me: &Worker,
    measure: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    me.barrier()?;
    let found = if me.is_first() { measure()? } else { T::default() };
    me.barrier()?;
    Ok(found)
}

/// Measures a yardstick between the workers 0 and 1 once. Returns its value on worker 0, and 0 on
/// the others. Collective.
///
/// # Errors
/// The errors of the yardstick and of a barrier.
pub(crate) fn once(me: &Worker, yardstick: &mut (impl Yardstick + ?Sized)) -> Result<f64, BenchError> {
    me.barrier()?;
    match me.id().index() {
        0 => yardstick.measure(),
        1 => yardstick.answer().map(|()| 0.0),
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
    fn columns_are_metrics_and_repeated_turns_are_reported() {
        let metrics = |repeated| {
            let taken = Taken { samples: vec![vec![1.0, 3.0], vec![0.5, 0.6]], repeated };
            taken.rows([column("ns", "ns", 0).against("limit", 1), column("none", "ns", 2)])
        };
        let ns = Metric::new("ns", "ns", vec![1.0, 3.0]).against("limit", vec![0.5, 0.6]);
        assert_eq!(metrics(0), [ns, Metric::new("none", "ns", vec![])]);
        assert_eq!(metrics(2)[2], Metric::new(TURNS_REPEATED, "1", vec![2.0]));
    }
    #[test]
    fn the_first_run_only_warms_up() {
        let options = Options::new().with_runs(3);
        let squares = |run: u64| Ok([run as f64, (run * run) as f64]);
        assert_eq!(warmed(options, squares).unwrap().samples, [[1.0, 2.0, 3.0], [1.0, 4.0, 9.0]]);
        assert_eq!(cold(options, squares).unwrap().samples, [[0.0, 1.0, 2.0], [0.0, 1.0, 4.0]]);
        let failed = cold(options, |_| Err::<[f64; 1], _>(BenchError::NoAnswer { seconds: 1 }));
        assert!(matches!(failed, Err(BenchError::NoAnswer { seconds: 1 })));
    }
}
