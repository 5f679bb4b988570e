//! Measures a [`CostModel`] on the routes of the job.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::ops::Add;
use std::time::Duration;

use farside::{AccessBytes, Error, GlobalAddress, GlobalPtr, MakeArrays, ProcessId, Result, Wire, Worker, WorkerId};

use super::CostModel;
use crate::agreement::agree;

/// Words of each worker that stay in a cache of a core.
const WARM_WORDS: usize = 256;
/// Words of each worker that do not: 4 MiB.
const WORDS: usize = 1 << 19;
/// Words of a cache line.
const WORDS_OF_LINE: usize = 8;
/// Operations of the first batch, and the number and least time of those that count.
const FIRST: u32 = 32;
const BATCHES: usize = 5;
const BATCH_MIN: Duration = Duration::from_micros(50);
const BATCH_MAX: u32 = 4096;

impl CostModel {
    /// Measures the components between each worker and the next worker on another process, all at
    /// once. All workers call this, in the same order as other collectives, and get the same model.
    ///
    /// Where some processes share memory and others do not, both routes are measured. Each counts
    /// as often as it leads to one of the other processes.
    ///
    /// In a [simulation](farside::Simulation), the costs are those of the simulated network.
    ///
    /// ```
    /// use farside_containers::CostModel;
    ///
    /// farside::simulate(2, 1, 7, |me| {
    ///     let model = CostModel::measure(me)?;
    ///     // In virtual time, the memory of the own process costs nothing.
    ///     assert!(model.get > 0.0 && model.own == 0.0);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: some 5 ms where memory is shared, some 50 ms over a network; 4 MiB for each worker
    /// meanwhile.
    ///
    /// # Errors
    /// The errors of [`Worker::global_array`](farside::MakeArrays::global_array), of [`GlobalPtr`]
    /// and of collectives. [`ContainerError::Failed`](crate::ContainerError::Failed) if another
    /// worker could not measure.
    pub fn measure(me: &Worker) -> Result<Self> {
        let words = me.global_array::<u64>(WORDS * me.worker_count() as usize)?;
        let other = me.neighbor(me.threads_per_process());
        let [mine, theirs] = [me.id(), other].map(|of| words.at(of.index() * WORDS));
        let (mine, theirs) = (mine?, theirs?);
        let words_owner = WorkerId::FIRST;
        let warm = |base: GlobalPtr<u64>, random: usize| base.add(1 + random % WARM_WORDS);
        let mut table = HashMap::<usize, u64>::new();
        // The workers of the first process reach its words more quickly.
        let remote_workers = me.workers().filter(|worker| me.process_of(*worker) != me.process_of(words_owner)).count();
        let is_remote = f64::from(u8::from(me.process() != me.process_of(words_owner)));

        // The pages of a container that is used have been touched, too.
        let touched = (0..WORDS).step_by(WORDS_OF_LINE).try_for_each(|at| mine.add(at)?.store(me, 1));
        let failed = RefCell::new(touched.err());
        let time = |operation: &mut dyn FnMut(usize) -> Result<u64>| time(me, &failed, operation);
        let on_warm = |operation: &dyn Fn(GlobalPtr<u64>) -> Result<u64>| {
            time(&mut |random| warm(theirs, random).and_then(operation))
        };
        let mut counted = 0;
        let costs = [
            on_warm(&|word| word.put(me, 1).map(|()| 0))?,
            on_warm(&|word| word.get(me))?,
            on_warm(&|word| word.compare_swap(me, 0, 1))?,
            on_warm(&|word| persist(me, word))?,
            on_warm(&|word| word.fetch_add(me, 1))?,
            time(&mut |_| theirs.fetch_add(me, 1))?,
            time(&mut |_| count_by_cas(me, theirs, &mut counted))?,
            // With arguments like those of an insertion.
            time(&mut |random| me.call_return(other, [random as u64; 6], |_, [x, ..]| x)?.wait())?,
            time(&mut |random| Ok(table.insert(random % WARM_WORDS, 1).unwrap_or(0)))?,
            // Operations on different entries do not wait for each other's lines.
            time(&mut |random| {
                black_box(mine.add(random % WORDS)?.get(me)?);
                Ok(0)
            })?,
            time(&mut |random| warm(mine, random)?.get(me))?,
            time(&mut |random| warm(mine, random)?.fetch_add(me, 1))?,
            time(&mut |_| words.at(0)?.fetch_add(me, 1))? * is_remote,
        ];
        me.barrier()?;
        if let Err(error) = words.free(me) {
            failed.borrow_mut().get_or_insert(error);
        }
        agree(me, failed.take().map_or(Ok(()), Err))?;

        let is_mapped = |process| me.is_mapped(GlobalAddress::starter(process, 0));
        let others = (0..me.process_count()).map(ProcessId::new).filter(|process| *process != me.process());
        let mapped = others.map(is_mapped).collect::<Result<Vec<_>>>()?;
        let mut routes = [Route::default(); 2];
        let route = &mut routes[usize::from(is_mapped(me.process_of(other))?)];
        (route.measured, route.costs) = (1.0, costs);
        routes[0].pairs = mapped.iter().filter(|is_mapped| !**is_mapped).count() as f64;
        routes[1].pairs = mapped.iter().filter(|is_mapped| **is_mapped).count() as f64;
        let routes = me.all_reduce(routes, |one, other| [one[0] + other[0], one[1] + other[1]])?;
        let means = means(&routes);
        let [put, get, cas, cas_persistent, fetch_add, fetch_add_single, cas_single, call, handler, ..] = means;
        let [.., cold, own_get, own, _] = means;
        let remote_workers = remote_workers as f64;
        let hot = routes.iter().map(|route| route.costs[COSTS - 1]).sum::<f64>() / remote_workers.max(1.0);
        Ok(Self {
            put,
            get,
            cas,
            cas_single,
            cas_persistent,
            fetch_add,
            fetch_add_single,
            call,
            handler,
            line_cold: (cold - own_get).max(0.0),
            line_contended: (hot - fetch_add_single).max(0.0) / (remote_workers - 1.0).max(1.0),
            own,
        })
    }
}

/// The number of costs that a worker measures.
const COSTS: usize = 13;

/// The measurements of all workers on a route: to processes whose memory is mapped, or to others.
#[derive(Clone, Copy, Debug, Default, Wire)]
struct Route {
    /// The number of workers that have measured, and the sums of their costs.
    measured: f64,
    costs: [f64; COSTS],
    /// The number of pairs of a worker and another process between which this is the route.
    pairs: f64,
}

impl Add for Route {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            measured: self.measured + other.measured,
            costs: std::array::from_fn(|index| self.costs[index] + other.costs[index]),
            pairs: self.pairs + other.pairs,
        }
    }
}

/// Returns the mean costs of all pairs. A route that was not measured counts as the other one.
fn means(routes: &[Route; 2]) -> [f64; COSTS] {
    let weight = |route: &Route| if route.measured > 0.0 { route.pairs.max(f64::MIN_POSITIVE) } else { 0.0 };
    let all: f64 = routes.iter().map(weight).sum();
    let mean = |index: usize| {
        let of_route = |route: &Route| weight(route) / all * route.costs[index] / route.measured.max(1.0);
        routes.iter().map(of_route).sum()
    };
    std::array::from_fn(mean)
}

/// Adds 1 by a compare-and-swap, which fails only if another worker has changed the word since
/// `counted`.
fn count_by_cas(me: &Worker, word: GlobalPtr<u64>, counted: &mut u64) -> Result<u64> {
    let found = word.compare_swap(me, *counted, counted.wrapping_add(1))?;
    *counted = if found == *counted { found.wrapping_add(1) } else { found };
    Ok(found)
}

/// Repeats a compare-and-swap until it succeeds, and at first expects what is not there.
fn persist(me: &Worker, word: GlobalPtr<u64>) -> Result<u64> {
    let mut expected = u64::MAX;
    loop {
        let found = word.compare_swap(me, expected, expected.wrapping_add(1))?;
        if found == expected {
            return Ok(found);
        }
        expected = found;
    }
}

/// Returns the nanoseconds of an operation: the median of some batches. It gets random numbers that
/// depend on its last result, so that no two overlap. All workers measure at once, and serve each
/// other until all are done.
///
/// A worker whose operation has failed measures no more. It goes on to the collectives, where the
/// others wait.
fn time(me: &Worker, failed: &RefCell<Option<Error>>, operation: &mut dyn FnMut(usize) -> Result<u64>) -> Result<f64> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(me.id().number());
    let mut last = 0;
    let mut measure = |count: u32| -> Result<Duration> {
        let start = me.now();
        for _ in 0..count {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            last = black_box(operation((random >> 32) as usize ^ last as usize)?);
        }
        Ok(me.now() - start)
    };
    let mut batch = |count: u32| {
        let is_over = failed.borrow().is_some();
        let measured = if is_over { Ok(Duration::ZERO) } else { measure(count) };
        measured.unwrap_or_else(|error| {
            failed.replace(Some(error));
            Duration::ZERO
        })
    };
    me.barrier()?;
    batch(FIRST);
    let first = me.all_reduce(batch(FIRST), Duration::max)?;
    let count = if first < BATCH_MIN { BATCH_MAX } else { FIRST };
    let mut times: Vec<_> = (0..BATCHES).map(|_| batch(count).as_nanos() as f64 / f64::from(count)).collect();
    times.sort_by(f64::total_cmp);
    me.barrier()?;
    Ok(times[BATCHES / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 4 processes on 2 machines, each has 1 neighbour of 3 on its own machine, and half of them
    /// measure with it.
    #[test]
    fn routes_count_by_their_pairs() {
        let far = Route { measured: 2.0, costs: [2.0 * 3000.0; COSTS], pairs: 8.0 };
        let near = Route { measured: 2.0, costs: [2.0 * 60.0; COSTS], pairs: 4.0 };
        let none = Route { pairs: 8.0, ..Route::default() };
        let single = Route { measured: 1.0, costs: [7.0; COSTS], pairs: 0.0 };
        for (routes, expected) in
            [([far, near], 2020.0), ([far, none], 3000.0), ([none, near], 60.0), ([Route::default(), single], 7.0)]
        {
            assert!(means(&routes).iter().all(|mean| (mean - expected).abs() < 1e-9), "{:?}", means(&routes));
        }
    }

    /// A worker whose operation fails goes through the same collectives as the others.
    #[test]
    fn a_failed_operation_leaves_nobody_waiting() {
        let simulated = farside::Simulation::new(3, 1, 1).run(|me| {
            let (begun, failed, fails) = (me.now(), RefCell::new(None), me.id() == WorkerId::new(1));
            for _ in 0..2 {
                time(me, &failed, &mut |_| if fails { Err(Error::program("as planned")) } else { Ok(0) })?;
            }
            assert_eq!(failed.take().is_some(), fails);
            assert!(me.now() - begun < Duration::from_secs(1));
            me.barrier()
        });
        simulated.unwrap().verdict.unwrap();
    }
}
