//! Measures a [`CostModel`] on the routes of the job.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use farside::{Error, GlobalPtr, Result, Worker, WorkerId};

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
    /// Those of [`Worker::global_array`], of [`GlobalPtr`] and of collectives.
    /// [`ContainerError::Failed`](crate::ContainerError::Failed) if another worker could not
    /// measure.
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

        let sums = me.all_reduce(costs, |one, other| std::array::from_fn(|index| one[index] + other[index]))?;
        let workers = f64::from(me.worker_count());
        let means = sums.map(|sum| sum / workers);
        let [put, get, cas, cas_persistent, fetch_add, fetch_add_single, cas_single, call, handler, ..] = means;
        let [.., cold, own_get, own, _] = means;
        let remote_workers = remote_workers as f64;
        let hot = sums[sums.len() - 1] / remote_workers.max(1.0);
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
