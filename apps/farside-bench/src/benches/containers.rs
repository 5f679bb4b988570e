//! The driver of the benches of containers: a case performs one operation many times on all
//! workers, on processes or in the simulator, with its prediction.

mod compared;
mod published;

use farside::{Simulation, Worker, WorkerId};
use farside_containers::{CostModel, Load};

pub(super) use self::compared::{Compared, compared};
pub(super) use self::published::{By, Ring, Table};
use crate::kit::*;
use crate::turns::TURNS_REPEATED;

/// Operations of each worker in a run by default: on mapped memory, over a network, and simulated.
const MAPPED: u64 = 50_000;
const REMOTE: u64 = 2000;
const SIMULATED: u64 = 50;

/// Processes of a job, and machines of a simulated one.
const PROCESSES: u32 = 2;
const MACHINES: [u32; 4] = [2, 4, 8, 16];
/// The machines of a simulated job for which the choices of a model are measured.
const MACHINES_OF_CHOICES: [u32; 2] = [2, 16];

/// An operation of a container, by one implementation under one promise.
pub(super) trait Operation: Copy + Send + Sync + 'static {
    /// The container, and what the operations of a worker are about.
    type State<'w>;

    /// Returns whether this worker performs operations. All prepare them.
    fn takes_part(self, _me: &Worker) -> bool {
        true
    }

    /// Returns the operations of a run by default, where those that wait for each other have this
    /// number.
    fn count(self, one_by_one: u64) -> u64 {
        one_by_one
    }

    /// Makes the container for runs of `count` operations. `size` is its size in each process.
    /// Collective.
    fn begin(self, me: &Worker, size: usize, count: u64) -> farside::Result<Self::State<'_>>;

    /// Prepares a run. Collective.
    fn prepare<'w>(self, me: &'w Worker, state: &mut Self::State<'w>) -> farside::Result<()>;

    /// Performs operation `number` of a run.
    fn perform(self, me: &Worker, state: &mut Self::State<'_>, number: u64) -> farside::Result<()>;

    /// Frees the container. Collective.
    fn end(self, me: &Worker, state: Self::State<'_>) -> farside::Result<()>;
}

/// An operation that has a name, a prediction and a limit.
pub(super) trait Predicted: Operation {
    fn name(self) -> String;

    /// Returns the predicted nanoseconds of an operation.
    fn predict(self, model: &CostModel, load: Load) -> Option<f64>;

    /// Returns the bytes of memory in each process that the limit uses.
    fn limit_bytes(self, size: usize) -> usize;

    /// Prepares the memory of the limit for a run, as `prepare` does with the container.
    fn prepare_limit(self, _me: &Worker, _memory: &Shared, _size: usize) {}

    /// Performs the instructions that no implementation can do without, as operation `number` of
    /// those of all workers in a run. `size` is that of the container in all processes. Returns a
    /// number on which the instructions of the next operation depend.
    fn instruct(self, me: &Worker, memory: &Shared, size: usize, number: u64, last: u64) -> u64;
}

/// The name of what [`Predicted::instruct`] performs.
const LIMIT: &str = "bare instructions";

pub(super) fn cases<O: Predicted>(on: &Fabric, operations: impl Iterator<Item = O>, size: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in operations {
        match *on {
            Fabric::Shm | Fabric::Ofi(_) => {
                let is_mapped = *on == Fabric::Shm;
                cases.push(Case::job(operation.name(), PROCESSES, move |me, options| {
                    measure(me, options, operation, size, is_mapped, &CostModel::measure(me)?)
                }));
            }
            Fabric::Simulated(network) => {
                for machines in MACHINES {
                    let name = format!("{}/{machines}x1x1", operation.name());
                    cases.push(Case::here(name, move |options| simulate(operation, network, machines, size, options)));
                }
            }
        }
    }
    cases
}

/// Cases that measure what a cost model chooses among implementations of one operation. All
/// predictions of a case follow one model. In virtual time each measurement finds the same model.
pub(super) fn choices<O: Predicted>(on: &Fabric, groups: Vec<(String, Vec<O>)>, size: usize) -> Vec<Case> {
    let is_mapped = *on == Fabric::Shm;
    let choice = |(name, group): (String, Vec<O>)| match *on {
        Fabric::Shm | Fabric::Ofi(_) => vec![Case::job(format!("choice/{name}"), PROCESSES, move |me, options| {
            let model = CostModel::measure(me)?;
            chosen(group.iter().map(|operation| measure(me, options, *operation, size, is_mapped, &model)))
        })],
        Fabric::Simulated(network) => {
            let on_machines = |machines| {
                let group = group.clone();
                Case::here(format!("choice/{name}/{machines}x1x1"), move |options| {
                    chosen(group.iter().map(|operation| simulate(*operation, network, machines, size, options)))
                })
            };
            MACHINES_OF_CHOICES.map(on_machines).into()
        }
    };
    groups.into_iter().flat_map(choice).collect()
}

/// Returns the time of the implementation with the least predicted time, compared with that of the
/// fastest.
fn chosen(measured: impl Iterator<Item = Measured>) -> Measured {
    let (mut all, mut repeated) = (Vec::new(), 0.0);
    for metrics in measured {
        let metrics = metrics?;
        let samples = |name| metrics.iter().find(|metric| metric.name == name).map(|metric| metric.samples.clone());
        repeated += samples(TURNS_REPEATED).into_iter().flatten().sum::<f64>();
        if let (Some(ns), Some(predicted)) = (samples("ns"), samples("predicted_ns"))
            && !ns.is_empty()
        {
            all.push((median(&predicted), ns));
        }
    }
    let chosen = all.iter().min_by(|one, other| one.0.total_cmp(&other.0));
    let best = all.iter().min_by(|one, other| median(&one.1).total_cmp(&median(&other.1)));
    let (Some((_, chosen)), Some((_, best))) = (chosen, best) else { return Ok(Vec::new()) };
    let mut metrics = vec![Metric::new("ns", "ns", chosen.clone()).against("the fastest implementation", best.clone())];
    if repeated > 0.0 {
        metrics.push(Metric::new(TURNS_REPEATED, "1", vec![repeated]));
    }
    Ok(metrics)
}

/// Measures on real processes, compared with the bare instructions where memory is mapped.
fn measure<O: Predicted>(
    me: &Worker,
    options: Options,
    operation: O,
    size: usize,
    is_mapped: bool,
    model: &CostModel,
) -> Measured {
    let size = options.local_size_or(size);
    let by_default = operation.count(if is_mapped { MAPPED } else { REMOTE });
    let count = options.operations_or(by_default).min(size as u64 / 2);
    let predicted = operation.predict(model, load(me));
    let memory = Shared::table(me, operation.limit_bytes(size) * me.process_count() as usize)?;
    let mut state = operation.begin(me, size, count)?;
    // The first turn touches the memory and makes the connections.
    let taken = in_turns(me, options, |_| {
        let (all_sizes, mut last) = (size * me.process_count() as usize, 0);
        let before = u64::from(me.id().number()) * count;
        operation.prepare_limit(me, &memory, size);
        let limit = time(me, operation, count, |number| {
            last = operation.instruct(me, &memory, all_sizes, before + number, last);
            Ok(())
        })?;
        operation.prepare(me, &mut state)?;
        let one = time(me, operation, count, |number| operation.perform(me, &mut state, number))?;
        Ok([one, limit])
    })?;
    operation.end(me, state)?;
    let mut metrics = taken.rows([column("ns", "ns", 0).against(LIMIT, 1).if_measured(is_mapped)]);
    // The prediction follows the time.
    let predicted = predicted.map(|ns| Metric::new("predicted_ns", "ns", vec![ns]));
    metrics.splice(1..1, predicted);
    Ok(metrics)
}

/// Measures in virtual time.
fn simulate<O: Predicted>(operation: O, network: SimNetwork, machines: u32, size: usize, options: Options) -> Measured {
    let (one, predicted) = simulate_one(operation, network, machines, size, options, |me| {
        Ok(operation.predict(&CostModel::measure(me)?, load(me)))
    })?;
    let metrics = [("ns", Some(one)), ("predicted_ns", predicted)];
    Ok(metrics.into_iter().filter_map(|(name, ns)| Some(Metric::new(name, "ns", vec![ns?]))).collect())
}

/// Returns the time of an operation in virtual time, and what `predict` returned before.
fn simulate_one<O: Operation>(
    operation: O,
    network: SimNetwork,
    machines: u32,
    size: usize,
    options: Options,
    predict: impl Fn(&Worker) -> farside::Result<Option<f64>> + Send + Sync,
) -> Result<(f64, Option<f64>), BenchError> {
    // The tables of all simulated processes are in this one.
    let size = options.local_size_or(size.min(4096));
    let count = options.operations_or(operation.count(SIMULATED)).min(size as u64 / 2);
    on_simulation(Simulation::new(machines, 1, options.seed).options(network.settings()), |me| {
        let predicted = predict(me)?;
        let mut state = operation.begin(me, size, count)?;
        operation.prepare(me, &mut state)?;
        let one = time(me, operation, count, |number| operation.perform(me, &mut state, number))?;
        operation.end(me, state)?;
        Ok((one, predicted))
    })
}

/// The circumstances: each key is as likely here as at any other process, and the owners wait.
fn load(me: &Worker) -> Load {
    Load { own_share: 1.0 / f64::from(me.process_count()), ..Load::default() }
}

/// Performs a run on all workers at once, and returns on worker 0 the median of the nanoseconds of
/// one operation on each.
fn time(
    me: &Worker,
    operation: impl Operation,
    count: u64,
    mut perform: impl FnMut(u64) -> farside::Result<()>,
) -> farside::Result<f64> {
    me.barrier()?;
    let start = me.now();
    let takes_part = operation.takes_part(me);
    if takes_part {
        (0..count).try_for_each(&mut perform)?;
    }
    let own = takes_part.then(|| (me.now() - start).as_nanos() as f64 / count as f64);
    me.barrier()?;
    let all = me.gather(WorkerId::FIRST, own)?;
    Ok(all.map_or(0.0, |all| median(&all.into_iter().flatten().collect::<Vec<_>>())))
}

/// Mixes the bits of a number (splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    Splitmix::new(number.wrapping_add(1)).mixed()
}
