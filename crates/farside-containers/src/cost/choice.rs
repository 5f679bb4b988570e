//! How a container chooses its implementation.

use farside::{Result, Worker, WorkerId};

use super::{CostModel, Load, Plan};
use crate::promise::{Choice, Implementation, Op, Promise};

/// What the predictions of a container follow from.
#[derive(Clone, Copy)]
pub(crate) struct Planner {
    model: CostModel,
    load: Load,
}

impl Planner {
    /// Chooses the implementation. All workers call this, with the same arguments but for the costs
    /// in the model, and get the choice of worker 0: the implementation whose two operations
    /// together cost least, while nothing is promised. Without a model, a choice measures one.
    pub(crate) fn decide(
        me: &Worker,
        Choice(asked): Choice,
        model: Option<CostModel>,
        load: Load,
        ops: [Op; 2],
    ) -> Result<(Implementation, Option<Self>)> {
        let model = match model {
            None if asked.is_none() => Some(CostModel::measure(me)?),
            model => model,
        };
        let planner = model.map(|model| Self { model, load });
        let implementation = match asked {
            Some(implementation) => implementation,
            None => {
                let chosen = planner.filter(|_| me.is_first()).map(|planner| planner.cheapest(ops));
                me.broadcast(WorkerId::FIRST, chosen)?
            }
        };
        Ok((implementation, planner))
    }

    fn cheapest(&self, ops: [Op; 2]) -> Implementation {
        use Implementation::{Call, Checksum, OneSided, OneSidedPublished};
        let cost = |by| -> f64 {
            let cost = |op| self.model.predict(by, op, Promise::ALL, self.load).map_or(f64::INFINITY, |all| all.ns);
            ops.into_iter().map(cost).sum()
        };
        let all = [OneSided, OneSidedPublished, Checksum, Call];
        all.into_iter().min_by(|one, other| cost(*one).total_cmp(&cost(*other))).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn plan(&self, op: Op, promise: Promise) -> Plan {
        self.model.plan(op, promise, self.load)
    }
}
