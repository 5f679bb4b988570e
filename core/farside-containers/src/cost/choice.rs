//! How a container chooses its implementation.

use std::time::Duration;

use farside::{Losses, Result, Worker};

use super::{CostModel, Load, Plan};
use crate::agreement::{agree, first, is_first, place};
use crate::promise::{Choice, Implementation, Op, Promise};

/// A container changes its implementation if the other one costs less than this part of it.
const HYSTERESIS: f64 = 0.8;

/// The model and the circumstances from which the predictions of a container follow.
#[derive(Clone, Copy)]
pub(crate) struct Planner {
    model: CostModel,
    load: Load,
    /// True if the model is of another machine, for want of one.
    is_foreign: bool,
}

impl Planner {
    /// Predicts by this model.
    pub(crate) fn by(model: CostModel) -> Self {
        Self { model, load: Load::default(), is_foreign: false }
    }

    /// Chooses the implementation. All workers call this, with the same arguments but for the costs
    /// in the model, and get the choice of worker 0: the implementation whose two operations
    /// together cost least, while nothing is promised. Without a model, a choice measures one.
    pub(crate) fn decide(
        me: &Worker,
        Choice(asked): Choice,
        model: Option<CostModel>,
        load: Load,
        ops: [Op; 2],
    ) -> Result<(Implementation, Self)> {
        let by = |model: Option<CostModel>, interval| {
            let (model, is_foreign) = (model.unwrap_or(CostModel::CORI), model.is_none());
            Self { model, load: Load { interval, ..load }, is_foreign }
        };
        if let Some(implementation) = asked {
            return Ok((implementation, by(model, Duration::ZERO)));
        }
        // While the neighbour may still be on its way here. A worker that fails goes on to the
        // collectives, where the others wait.
        let (mut interval, mut own) = (Duration::ZERO, Ok(()));
        match interval_of_neighbor(me) {
            Ok(measured) => interval = measured,
            Err(error) => own = Err(error),
        }
        agree(me, own)?;
        let model = match model {
            Some(model) => model,
            None => CostModel::measure(me)?,
        };
        let planner = by(Some(model), interval);
        Ok((planner.choose(me, ops, None)?, planner))
    }

    /// The same predictions for owners that look at their calls at this interval.
    pub(crate) fn at_interval(self, interval: Duration) -> Self {
        Self { load: Load { interval, ..self.load }, ..self }
    }

    /// Returns the choice of the first worker: the implementation whose two operations together
    /// cost least, or that of `now` if it costs little more. Collective.
    pub(crate) fn choose(&self, me: &Worker, ops: [Op; 2], now: Option<Implementation>) -> Result<Implementation> {
        let chosen = is_first(me).then(|| {
            let best = self.cheapest(ops);
            now.filter(|now| self.cost(*now, ops) * HYSTERESIS <= self.cost(best, ops)).unwrap_or(best)
        });
        me.broadcast(first(me), chosen)
    }

    fn cheapest(&self, ops: [Op; 2]) -> Implementation {
        use Implementation::{Call, Checksum, OneSided};
        let all = [OneSided, Checksum, Call];
        all.into_iter().min_by(|one, other| self.cost(*one, ops).total_cmp(&self.cost(*other, ops))).unwrap_or_default()
    }

    fn cost(&self, by: Implementation, ops: [Op; 2]) -> f64 {
        let cost = |op| self.model.predict(by, op, Promise::ALL, self.load).map_or(f64::INFINITY, |all| all.ns);
        ops.into_iter().map(cost).sum()
    }

    #[track_caller]
    pub(crate) fn plan(&self, op: Op, promise: Promise) -> Plan {
        let mut plan = self.model.plan(op, promise, self.load);
        if self.is_foreign {
            plan.why.push_str(" on Cori, as the container has no cost model of its own");
        }
        plan
    }
}

/// Returns how often the next worker looks at its calls. Zero if there is no other.
pub(crate) fn interval_of_neighbor(me: &Worker) -> Result<Duration> {
    let (own, count) = place(me);
    let next = me.remaining_workers()[(own + 1) % count];
    if next == me.id() { Ok(Duration::ZERO) } else { me.progress_interval(next) }
}
