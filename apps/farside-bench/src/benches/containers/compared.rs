//! Cases that measure an operation of a container against another one, in the same turns.

use farside::Worker;

use super::{MACHINES, MAPPED, Operation, PROCESSES, REMOTE, simulate_one, time};
use crate::kit::*;

/// An operation, and the one that it is compared with.
#[derive(Clone, Copy)]
pub(in super::super) struct Compared<A, B> {
    pub(in super::super) operation: A,
    pub(in super::super) other: B,
    /// The name of the other one.
    pub(in super::super) other_name: &'static str,
}

/// Returns the cases of a pair of operations on a fabric: one on processes, or one for each number
/// of simulated machines.
pub(in super::super) fn compared<A: Operation, B: Operation>(
    on: &Fabric,
    name: impl Into<String>,
    pair: Compared<A, B>,
    size: usize,
) -> Vec<Case> {
    let name = name.into();
    match *on {
        Fabric::Shm | Fabric::Ofi(_) => {
            let is_mapped = *on == Fabric::Shm;
            vec![Case::job(name, PROCESSES, move |me, options| measure(me, options, pair, size, is_mapped))]
        }
        Fabric::Simulated(network) => {
            let on_machines = |machines| {
                Case::here(format!("{name}/{machines}x1x1"), move |options| {
                    let one = simulate_one(pair.operation, network, machines, size, options, |_| Ok(None))?.0;
                    let other = simulate_one(pair.other, network, machines, size, options, |_| Ok(None))?.0;
                    Ok(vec![Metric::new("ns", "ns", vec![one]).against(pair.other_name, vec![other])])
                })
            };
            MACHINES.map(on_machines).into()
        }
    }
}

fn measure<A: Operation, B: Operation>(
    me: &Worker,
    options: Options,
    pair: Compared<A, B>,
    size: usize,
    is_mapped: bool,
) -> Measured {
    let size = options.local_size_or(size);
    let one_by_one = if is_mapped { MAPPED } else { REMOTE };
    let count = |by_default| options.operations_or(by_default).min(size as u64 / 2);
    let mut one = Timed::new(me, pair.operation, size, count(pair.operation.count(one_by_one)))?;
    let mut other = Timed::new(me, pair.other, size, count(pair.other.count(one_by_one)))?;
    let taken = in_turns(me, options, |_| Ok([one.run(me)?, other.run(me)?]))?;
    one.end(me)?;
    other.end(me)?;
    Ok(taken.rows([column("ns", "ns", 0).against(pair.other_name, 1)]))
}

/// An operation with its container.
struct Timed<'w, O: Operation> {
    operation: O,
    state: O::State<'w>,
    count: u64,
}

impl<'w, O: Operation> Timed<'w, O> {
    fn new(me: &'w Worker, operation: O, size: usize, count: u64) -> farside::Result<Self> {
        Ok(Self { operation, state: operation.begin(me, size, count)?, count })
    }

    /// Returns the nanoseconds of an operation of one run.
    fn run(&mut self, me: &'w Worker) -> farside::Result<f64> {
        self.operation.prepare(me, &mut self.state)?;
        time(me, self.operation, self.count, |number| self.operation.perform(me, &mut self.state, number))
    }

    fn end(self, me: &Worker) -> farside::Result<()> {
        self.operation.end(me, self.state)
    }
}
