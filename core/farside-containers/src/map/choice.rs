//! Which implementation a map gets, and what it predicts.

use std::time::Duration;

use farside::{Result, Worker};

use super::core::Kind;
use super::operations::Map;
use super::slot::Slot;
use super::{MapError, Settings};
use crate::agreement::place;
use crate::cost::{Load, Plan, Planner, Probing, interval_of_neighbor};
use crate::promise::{Implementation, Op, Promise};

/// The operations whose costs decide.
const OPS: [Op; 2] = [Op::Insert, Op::Find];

impl Settings {
    /// Chooses the implementation. All workers call this, with the same settings but for the costs
    /// in the model, and get that of worker 0.
    pub(super) fn decide(&self, me: &Worker) -> Result<(Implementation, Planner)> {
        let (_, workers) = place(me);
        let fill = self.capacity.div_ceil(workers) as f64 / self.slots(workers)? as f64;
        let own_share = 1.0 / f64::from(me.process_count());
        let load = Load { fill, probing: Probing::Quadratic, own_share, ..Load::default() };
        match Planner::decide(me, self.choice, self.model, load, OPS)? {
            (implementation @ Implementation::Checksum, _) => Err(MapError::Implementation { implementation }.into()),
            decided => Ok(decided),
        }
    }
}

impl<K: Slot, V: Slot> Map<'_, K, V> {
    /// Returns how the map carries out its operations.
    pub fn implementation(&self) -> Implementation {
        self.core.state.implementation.get()
    }

    /// Chooses the implementation again if the map was built with [`Implementation::Auto`], and
    /// returns it. All workers call this, in the same order as other collectives. No operation on
    /// the map may run meanwhile, also none in called functions.
    ///
    /// Each worker first measures how often the next one looks at its calls, by
    /// [`Worker::progress_interval`]. With the mean of that, worker 0 predicts the costs. The map
    /// changes its implementation if another one costs less than four fifths. It does not change
    /// while a one-sided request may still take effect that an operation gave up with
    /// [`Error::Deadline`](farside::Error::Deadline), unless the map was [cleared](Self::clear)
    /// since.
    ///
    /// *Cost*: that of [`Worker::progress_interval`], and of a few collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; a process is lost, or the job's deadline has passed
    /// ([`Worker::progress_interval`], [`Worker::gather`](farside::Worker::gather)).
    pub fn choose_again(&self) -> Result<Implementation> {
        let (core, state) = (&self.core, &self.core.state);
        core.check("choose_again", Kind::Change)?;
        core.own_part()?;
        let interval = interval_of_neighbor(core.me);
        core.settle();
        let own = (interval.as_ref().copied().unwrap_or_default(), state.is_settled());
        let all = core.meet(own);
        // A worker that fails goes on to the collectives, where the others wait.
        let (interval, all) = (interval.and(Ok(())), all?);
        let mean = all.iter().map(|(interval, _)| *interval).sum::<Duration>() / all.len() as u32;
        let planner = state.planner.get().at_interval(mean);
        state.planner.set(planner);
        let now = state.implementation.get();
        if state.settings.choice == Implementation::Auto && all.iter().all(|(_, is_settled)| *is_settled) {
            state.implementation.set(planner.choose(core.me, OPS, Some(now))?);
            // No worker goes on before all have changed.
            core.me.barrier()?;
        }
        interval.map(|()| state.implementation.get())
    }

    /// Predicts what an operation costs by each implementation, and says which is the cheapest and
    /// why. The prediction is for a map that is filled to its capacity, with keys of all processes.
    /// With [`Implementation::Auto`], owners look at their calls as often as the next worker did
    /// when the map was built or [chose again](Self::choose_again); otherwise they wait for them.
    /// [`CostModel::plan`](crate::CostModel::plan) predicts other circumstances.
    ///
    /// A map that was built with neither [`Implementation::Auto`] nor a [cost
    /// model](super::Builder::cost_model) follows [`CostModel::CORI`](crate::CostModel::CORI), and
    /// the reason says so.
    ///
    /// ```
    /// use farside_containers::map::HashMap;
    /// use farside_containers::{CostModel, Implementation, Op, Promise};
    ///
    /// # farside::simulate(2, 1, 1, |me| {
    /// let builder = HashMap::<u64, u64>::builder().implementation(Implementation::Auto);
    /// let map = builder.cost_model(CostModel::CORI).build(me)?;
    /// let m = map.on(me);
    /// println!("{}", m.plan(Op::Insert, Promise::INSERT_ONLY));
    /// // An insertion into a map that fills up meets other entries.
    /// assert_eq!(m.plan(Op::Insert, Promise::INSERT_ONLY).choice, Implementation::Call);
    /// assert_eq!(m.plan(Op::Find, Promise::ALL).choice, Implementation::OneSided);
    /// assert_eq!(m.implementation(), Implementation::Call);
    /// # me.barrier()
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// If the operation is not one of maps, or the promise does not permit it.
    #[track_caller]
    pub fn plan(&self, op: Op, promise: Promise) -> Plan {
        assert!(!matches!(op, Op::Push | Op::Pop), "maps have no {op:?}: plan an insertion or a find");
        self.core.state.planner.get().plan(op, promise)
    }
}
