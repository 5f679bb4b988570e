//! Which implementation a map gets, and what it predicts.

use farside::{Result, Worker, WorkerId};

use super::operations::Map;
use super::slot::Slot;
use super::{MapError, Settings};
use crate::cost::{CostModel, Load, Plan, Probing};
use crate::promise::{Choice, Implementation, Op, Promise};

/// What the predictions of a map follow from.
#[derive(Clone, Copy)]
pub(super) struct Planner {
    model: CostModel,
    load: Load,
}

impl Planner {
    /// Returns the implementation whose insertion and find together cost least, while nothing is
    /// promised.
    fn cheapest(&self) -> Implementation {
        let cost = |by| -> f64 {
            let cost = |op| self.model.predict(by, op, Promise::ALL, self.load).map_or(f64::INFINITY, |all| all.ns);
            cost(Op::Insert) + cost(Op::Find)
        };
        use Implementation::{Call, OneSided, OneSidedPublished};
        let all = [OneSided, OneSidedPublished, Call];
        all.into_iter().min_by(|one, other| cost(*one).total_cmp(&cost(*other))).unwrap_or_default()
    }
}

impl Settings {
    /// Chooses the implementation. All workers call this, with the same settings but for the costs
    /// in the model, and get that of worker 0.
    pub(super) fn decide(&self, me: &Worker) -> Result<(Implementation, Option<Planner>)> {
        let Choice(asked) = self.choice;
        let model = match self.model {
            None if asked.is_none() => Some(CostModel::measure(me)?),
            model => model,
        };
        let workers = me.worker_count() as usize;
        let fill = self.capacity.div_ceil(workers) as f64 / self.slots(workers)? as f64;
        let own_share = 1.0 / f64::from(me.process_count());
        let load = Load { fill, probing: Probing::Quadratic, own_share, ..Load::default() };
        let planner = model.map(|model| Planner { model, load });
        let implementation = match asked {
            Some(implementation) => implementation,
            None => {
                let chosen = planner.filter(|_| me.is_first()).map(|planner| planner.cheapest());
                me.broadcast(WorkerId::FIRST, chosen)?
            }
        };
        match implementation {
            Implementation::Checksum => Err(MapError::Implementation { implementation }.into()),
            implementation => Ok((implementation, planner)),
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
    /// and owners that wait for calls. [`CostModel::plan`] predicts other circumstances.
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
        let Some(Planner { model, load }) = self.core.state.planner else {
            panic!("the map has no cost model: build it with `Implementation::Auto`, or with `cost_model`");
        };
        model.plan(op, promise, load)
    }
}
