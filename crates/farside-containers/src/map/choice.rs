//! Which implementation a map gets, and what it predicts.

use farside::{Result, Worker};

use super::operations::Map;
use super::slot::Slot;
use super::{MapError, Settings};
use crate::cost::{Load, Plan, Planner, Probing};
use crate::promise::{Implementation, Op, Promise};

impl Settings {
    /// Chooses the implementation. All workers call this, with the same settings but for the costs
    /// in the model, and get that of worker 0.
    pub(super) fn decide(&self, me: &Worker) -> Result<(Implementation, Option<Planner>)> {
        let workers = me.worker_count() as usize;
        let fill = self.capacity.div_ceil(workers) as f64 / self.slots(workers)? as f64;
        let own_share = 1.0 / f64::from(me.process_count());
        let load = Load { fill, probing: Probing::Quadratic, own_share, ..Load::default() };
        match Planner::decide(me, self.choice, self.model, load, [Op::Insert, Op::Find])? {
            (implementation @ Implementation::Checksum, _) => Err(MapError::Implementation { implementation }.into()),
            decided => Ok(decided),
        }
    }
}

impl<K: Slot, V: Slot> Map<'_, K, V> {
    /// Returns how the map carries out its operations.
    pub fn implementation(&self) -> Implementation {
        self.core.state.implementation
    }

    /// Predicts what an operation costs by each implementation, and says which is the cheapest and
    /// why. The prediction is for a map that is filled to its capacity, with keys of all processes,
    /// and owners that wait for calls. [`CostModel::plan`](crate::CostModel::plan) predicts other
    /// circumstances.
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
    /// assert_eq!(m.plan(Op::Find, Promise::ALL).choice, Implementation::OneSided);
    /// assert_eq!(m.implementation(), Implementation::OneSided);
    /// # me.barrier()
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// If the map was built with neither [`Implementation::Auto`] nor a [cost
    /// model](super::Builder::cost_model). If the operation is not one of maps, or the promise does
    /// not permit it.
    #[track_caller]
    pub fn plan(&self, op: Op, promise: Promise) -> Plan {
        assert!(!matches!(op, Op::Push | Op::Pop), "maps have no {op:?}: plan an insertion or a find");
        let Some(planner) = self.core.state.planner else {
            panic!("the map has no cost model: build it with `Implementation::Auto`, or with `cost_model`");
        };
        planner.plan(op, promise)
    }
}
