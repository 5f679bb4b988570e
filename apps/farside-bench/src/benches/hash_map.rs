//! Operations of hash maps (Brock et al., Figure 5).
//!
//! All workers work at once, on random keys of all processes. Keys and values have 8 bytes. At the
//! end of a run of insertions, and in all runs of finds, half of the slots are used: nine of ten in
//! the cases `full`. Values have 16 bytes in the cases `16B`. The limit of an insertion is a
//! compare-and-swap, and that of a find a load on which the next one depends, each of a random slot
//! of a table like that of the map.
//!
//! The cases `choice` show what the cost model chooses. Others compare two operations:
//!
//! - `load`: a map that is nine tenths full, and one that is half full;
//! - `batches`: batches, and the same operations one by one;
//! - `promise`: insertions, and those under the promise to do nothing else;
//! - `miss`: finds of absent keys, and of keys that are there;
//! - `published`: finds, and those of the published algorithm;
//! - `call`: finds by calls, and calls that return their argument;
//! - `from-nothing`: ten million insertions into a map that grows, and into one with room for them.

mod growth;

use std::hint::black_box;
use std::sync::atomic::Ordering;

use farside::Worker;
use farside_containers::map::{HashMap, Map, Slot};
use farside_containers::{CostModel, Implementation, Load, Op, Probing, Promise};

use self::growth::Growth;
use super::containers::{By, Compared, Operation, Predicted, Table, cases as cases_of, choices, compared, mix};
use super::size_name;
use crate::case::Case;
use crate::fabric::Fabric;
use crate::shared::Shared;

pub(crate) const ABOUT: &str =
    "insertions and finds of a hash map by each implementation and promise (Brock et al., Figure 5)";

/// Slots of each process.
const SLOTS: usize = 1 << 17;
/// The fewest slots of a process. The map does not grow, and its keys are placed by a hash. Among
/// fewer slots, one process may have no room for all its keys.
const SLOTS_MIN: usize = 1 << 10;
/// Percentages of used slots.
const HALF: usize = 50;
const FULL: usize = 90;
/// Bytes of a slot with a stamp, a key and a value, as the limit spaces them.
const SLOT_BYTES: usize = 32;

/// The operations of a batch for each one that waits, over a network.
const BATCHED: u64 = 25;

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    let one_sided = By::Farside(Implementation::OneSided);
    let implementations = [By::Farside(Implementation::Call), one_sided, By::Published];
    let all = [
        (Op::Insert, [Promise::INSERT_ONLY, Promise::ALL, Promise::LOCAL]),
        (Op::Find, [Promise::FIND_ONLY, Promise::ALL, Promise::LOCAL]),
        (Op::FindMiss, [Promise::FIND_ONLY, Promise::ALL, Promise::LOCAL]),
    ];
    let one_by_one = all.into_iter().flat_map(|(op, promises)| {
        let of_promise = move |promise| implementations.map(|by| MapOperation::new(op, by, promise));
        promises.into_iter().flat_map(of_promise)
    });
    let batched = [(Op::Insert, Promise::INSERT_ONLY), (Op::Find, Promise::FIND_ONLY)];
    let in_batches = batched.map(|(op, promise)| MapOperation::new(op, By::Batches, promise));
    let by_default = |op| MapOperation::new(op, one_sided, Promise::ALL);
    let full = all.map(|(op, _)| by_default(op).full());
    let mut cases = cases_of(on, one_by_one.chain(in_batches).chain(full), SLOTS);
    let wide = |operation: MapOperation<u64>| operation.with_values(|key| [key, !key]);
    let wide = [Op::Insert, Op::Find].map(by_default).into_iter().chain(in_batches).map(wide);
    cases.extend(cases_of(on, wide, SLOTS));

    for (op, _) in all {
        let pair = Compared { operation: by_default(op).full(), other: by_default(op), other_name: "half full" };
        cases.extend(compared(on, format!("load/{}", op_name(op)), pair, SLOTS));
    }
    for (op, promise) in batched {
        let operation = MapOperation::new(op, By::Batches, promise);
        let other = MapOperation { by: one_sided, ..operation };
        let pair = Compared { operation, other, other_name: "one by one" };
        cases.extend(compared(on, format!("batches/{}", op_name(op)), pair, SLOTS));
    }
    let insert_only = MapOperation { promise: Promise::INSERT_ONLY, ..by_default(Op::Insert) };
    let published = MapOperation { by: By::Published, ..by_default(Op::Find) };
    for (name, op, other, other_name) in [
        ("promise/insert", Op::Insert, insert_only, "insert-only"),
        ("miss", Op::FindMiss, by_default(Op::Find), "hits"),
        ("published/find", Op::Find, published, "published"),
    ] {
        cases.extend(compared(on, name, Compared { operation: by_default(op), other, other_name }, SLOTS));
    }
    let by_call = MapOperation { by: By::Farside(Implementation::Call), ..by_default(Op::Find) };
    let pair = Compared { operation: by_call, other: Calls, other_name: "calls" };
    cases.extend(compared(on, "call/find", pair, SLOTS));
    if *on == Fabric::Shm {
        for in_batches in [false, true] {
            let growth = |is_reserved| Growth { is_reserved, in_batches };
            let pair = Compared { operation: growth(false), other: growth(true), other_name: "reserved" };
            let form = if in_batches { "batched" } else { "one-sided" };
            cases.extend(compared(on, format!("from-nothing/insert/{form}"), pair, usize::MAX));
        }
    }

    let groups = all.into_iter().flat_map(|(op, promises)| {
        promises.into_iter().flat_map(move |promise| {
            let half = implementations.map(|by| MapOperation::new(op, by, promise)).to_vec();
            let full: Vec<_> = half.iter().map(|operation| operation.full()).collect();
            let name = format!("{}/{promise}", op_name(op));
            [(format!("{name}/full"), full), (name, half)]
        })
    });
    cases.extend(choices(on, groups.collect(), SLOTS));
    cases
}

/// Returns the slots of each process for a size that was asked for.
fn slots_of(size: usize) -> usize {
    size.next_power_of_two().max(SLOTS_MIN)
}

/// Returns the entries of each process by which its slots are full to `fill` percent.
fn entries_of(slots: usize, fill: usize) -> usize {
    slots * fill / 100
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Insert => "insert",
        Op::Find => "find",
        _ => "find-miss",
    }
}

#[derive(Clone, Copy)]
struct MapOperation<V> {
    op: Op,
    by: By,
    promise: Promise,
    /// The percentage of the slots that are used at the end of a run.
    fill: usize,
    /// The value of a key.
    value: fn(u64) -> V,
}

struct State<'w, V: 'static> {
    map: AnyMap<'w, V>,
    /// The keys that this worker has in the map before each run.
    there: Vec<u64>,
    /// The keys of the measured operations.
    keys: Vec<u64>,
}

/// The map of Farside, or the published one.
enum AnyMap<'w, V: 'static> {
    Farside(HashMap<u64, V>, Map<'w, u64, V>),
    Published(Table<'w, V>),
}

impl<V: Slot> AnyMap<'_, V> {
    /// Returns whether a worker owns a key.
    fn is_of(&self, me: &Worker, key: u64) -> bool {
        match self {
            Self::Farside(_, map) => map.owner_of(&key) == me.id(),
            Self::Published(table) => table.owner_of(key) == me.id().index(),
        }
    }

    /// Inserts the entries of all workers. Collective.
    fn fill(&self, me: &Worker, entries: impl Iterator<Item = (u64, V)>) -> farside::Result<()> {
        match self {
            Self::Farside(map, _) => {
                let map = map.on(me);
                let batch = map.batch()?;
                batch.extend(entries)?;
                batch.finish()
            }
            Self::Published(table) => table.fill(entries),
        }
    }
}

impl MapOperation<u64> {
    fn new(op: Op, by: By, promise: Promise) -> Self {
        Self { op, by, promise, fill: HALF, value: |key| key }
    }

    fn full(self) -> Self {
        Self { fill: FULL, ..self }
    }

    /// The same operation with these values.
    fn with_values<V>(self, value: fn(u64) -> V) -> MapOperation<V> {
        MapOperation { op: self.op, by: self.by, promise: self.promise, fill: self.fill, value }
    }
}

impl<V: Slot> MapOperation<V> {
    /// Returns keys by which the workers fill the map: this worker's, or those that it owns.
    fn keys<'a>(self, me: &'a Worker, map: &'a AnyMap<'_, V>, from: u64) -> impl Iterator<Item = u64> + use<'a, V> {
        let (own, workers) = (u64::from(me.id().number()), u64::from(me.worker_count()));
        let is_local = self.promise.is_local();
        let numbers = (from..).map(move |number| if is_local { number } else { number * workers + own });
        numbers.map(mix).filter(move |key| !is_local || map.is_of(me, *key))
    }

    /// Fills the map up to where the runs begin. Collective.
    fn fill(self, me: &Worker, state: &State<'_, V>) -> farside::Result<()> {
        state.map.fill(me, state.there.iter().map(|key| (*key, (self.value)(*key))))
    }
}

impl<V: Slot + Copy + PartialEq> Operation for MapOperation<V> {
    type State<'w> = State<'w, V>;

    fn count(self, one_by_one: u64) -> u64 {
        if self.by == By::Batches { BATCHED * one_by_one } else { one_by_one }
    }

    fn begin(self, me: &Worker, size: usize, count: u64) -> farside::Result<State<'_, V>> {
        let slots = slots_of(size);
        let entries = entries_of(slots, self.fill);
        // A map has as many slots as it needs to be three quarters full at most.
        let capacity = slots / 4 * 3 * me.worker_count() as usize;
        let build = |by| HashMap::builder().capacity(capacity).implementation(by).fixed().build(me);
        let farside = |map: HashMap<u64, V>| AnyMap::Farside(map, map.on(me).promising(self.promise));
        let map = match self.by {
            By::Farside(by) => farside(build(by)?),
            By::Batches => farside(build(Implementation::OneSided)?),
            By::Published => AnyMap::Published(Table::new(me, slots as u64)?),
        };
        let mut there: Vec<u64> = self.keys(me, &map, 0).take(entries).collect();
        let keys = match self.op {
            Op::Insert => there.split_off(entries - count as usize),
            Op::FindMiss => self.keys(me, &map, 1 << 40).take(count as usize).collect(),
            _ if self.promise.is_local() => (0..count).map(|at| there[(mix(at) % entries as u64) as usize]).collect(),
            _ => {
                let all = entries as u64 * u64::from(me.worker_count());
                (0..count).map(|at| mix(mix(at ^ u64::from(me.id().number()) << 32) % all)).collect()
            }
        };
        let state = State { map, there, keys };
        if self.op != Op::Insert {
            self.fill(me, &state)?;
        }
        Ok(state)
    }

    fn prepare(self, me: &Worker, state: &mut State<'_, V>) -> farside::Result<()> {
        if self.op == Op::Insert {
            match &state.map {
                AnyMap::Farside(map, _) => map.on(me).clear()?,
                AnyMap::Published(table) => table.clear()?,
            }
            self.fill(me, state)?;
        }
        Ok(())
    }

    fn perform(self, _: &Worker, state: &mut State<'_, V>, number: u64) -> farside::Result<()> {
        let key = state.keys[number as usize];
        let found = match (&state.map, self.op) {
            // All of them, at the first number.
            (AnyMap::Farside(..), _) if self.by == By::Batches && number > 0 => return Ok(()),
            (AnyMap::Farside(_, map), Op::Insert) if self.by == By::Batches => {
                let batch = map.batch()?;
                batch.extend(state.keys.iter().map(|key| (*key, (self.value)(*key))))?;
                return batch.finish();
            }
            (AnyMap::Farside(_, map), _) if self.by == By::Batches => {
                return map.get_many(&state.keys).map(|found| assert!(found.iter().all(Option::is_some)));
            }
            (AnyMap::Farside(_, map), Op::Insert) => return map.insert(key, (self.value)(key)).map(drop),
            (AnyMap::Farside(_, map), _) => map.get(&key)?,
            (AnyMap::Published(table), Op::Insert) => return table.insert(self.promise, key, &(self.value)(key)),
            (AnyMap::Published(table), _) => table.get(self.promise, key)?,
        };
        assert_eq!(black_box(found).is_some(), self.op == Op::Find, "key {key:#x}");
        Ok(())
    }

    fn end(self, me: &Worker, state: State<'_, V>) -> farside::Result<()> {
        me.barrier()?;
        match state.map {
            AnyMap::Farside(map, _) => map.free(me),
            AnyMap::Published(table) => table.free(),
        }
    }
}

/// Calls of random workers that return their argument.
#[derive(Clone, Copy)]
struct Calls;

impl Operation for Calls {
    type State<'w> = ();

    fn begin(self, _: &Worker, _: usize, _: u64) -> farside::Result<()> {
        Ok(())
    }

    fn prepare(self, _: &Worker, (): &mut ()) -> farside::Result<()> {
        Ok(())
    }

    fn perform(self, me: &Worker, (): &mut (), number: u64) -> farside::Result<()> {
        let to = me.neighbor((mix(number) % u64::from(me.worker_count())) as u32);
        me.call_return(to, number, |_, number: u64| number)?.wait().map(|returned| assert_eq!(returned, number))
    }

    fn end(self, me: &Worker, (): ()) -> farside::Result<()> {
        me.barrier()
    }
}

impl<V: Slot + Copy + PartialEq> Predicted for MapOperation<V> {
    fn name(self) -> String {
        let full = if self.fill == FULL { "/full" } else { "" };
        let wide = if size_of::<V>() == 8 { String::new() } else { format!("/{}", size_name(size_of::<V>())) };
        format!("{}/{}/{}{full}{wide}", op_name(self.op), self.by, self.promise)
    }

    fn predict(self, model: &CostModel, load: Load) -> Option<f64> {
        let load = Load { fill: self.fill as f64 / 100.0, probing: Probing::Quadratic, ..load };
        self.by.predict(model, self.op, self.promise, load)
    }

    fn limit_bytes(self, size: usize) -> usize {
        slots_of(size) * SLOT_BYTES
    }

    /// Clears the slots of this worker before a run of insertions, so that their lines are where
    /// the owner of a map has left them.
    fn prepare_limit(self, me: &Worker, memory: &Shared, size: usize) {
        if self.op != Op::Insert {
            return;
        }
        let slots = slots_of(size);
        let first = me.id().index() * slots;
        (first..first + slots).for_each(|slot| memory.word(slot * SLOT_BYTES).store(0, Ordering::Relaxed));
    }

    fn instruct(self, me: &Worker, memory: &Shared, size: usize, number: u64, last: u64) -> u64 {
        let slots = slots_of(size / me.worker_count() as usize) as u64;
        let drawn = mix(number ^ last);
        let slot = match self.promise.is_local() {
            true => u64::from(me.id().number()) * slots + drawn % slots,
            false => drawn % (slots * u64::from(me.worker_count())),
        };
        let word = memory.word(slot as usize * SLOT_BYTES);
        match self.op {
            Op::Insert if self.promise.is_local() => {
                word.store(black_box(word.load(Ordering::Acquire)) + number, Ordering::Release);
                0
            }
            Op::Insert => {
                let _ = black_box(word.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst));
                0
            }
            // A find waits for its line.
            _ => word.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run inserts half as many entries as the size that was asked for, at most.
    #[test]
    fn there_are_entries_for_each_operation() {
        for size in 2..10_000 {
            for fill in [HALF, FULL] {
                let entries = entries_of(slots_of(size), fill);
                assert!(entries > 0 && entries >= size / 2, "{entries} entries of {size}");
            }
        }
    }
}
