//! The histories: workers use few keys of a map, or one small queue, at random and note their
//! calls. By processes, and in simulations with torn, reordered and late writes and with deaths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::{Error, GlobalAddress, ProcessId, Result, SimOptions, Simulation, Wire, Worker, WorkerId};
use farside_containers::map::{CallMap, HashMap, Inserted, Map, WireMap};
use farside_containers::queue::{Ends, Queue};
use farside_containers::{Implementation, Op, Promise};
use farside_testbed::scaled;

use super::{Change, Line, MapStep, OPEN, QueueStep, Step, Timed, is_linearizable, mix};
use crate::map::Random;

const MAPS: [Implementation; 2] = [Implementation::OneSided, Implementation::Call];
const QUEUES: [Implementation; 3] = [Implementation::OneSided, Implementation::Call, Implementation::Checksum];
/// The process that dies in some simulations. It owns keys, and no queue.
pub(super) const DYING: ProcessId = ProcessId::new(1);

/// The value for a number: so long that a copy takes a while.
pub(super) type Entry = [u64; 256];

pub(super) fn entry(number: u64) -> Entry {
    std::array::from_fn(|index| number.wrapping_mul(2 * index as u64 + 1))
}

/// The number of a half-written entry. No operation stores it.
const TORN: u64 = u64::MAX;

pub(super) fn number(found: Entry) -> u64 {
    if entry(found[0]) == found { found[0] } else { TORN }
}

/// A call, which uses one key.
#[derive(Clone, Debug, Wire)]
pub(super) struct Call<S: 'static> {
    key: u64,
    begin: u64,
    end: u64,
    steps: Vec<S>,
}

/// The calls and their results.
pub(super) struct Record<S: 'static> {
    /// Counts the begins and ends of calls in a simulation, where one worker runs at a time.
    clock: Option<AtomicU64>,
    /// The number of calls of a worker under each promise.
    calls_each: u32,
    /// True if a process dies under the last promise.
    has_death: bool,
    pub(super) calls: Mutex<Vec<Call<S>>>,
}

impl<S> Record<S> {
    pub(super) fn new(clock: Option<AtomicU64>, calls_each: u32) -> Self {
        Self { clock, calls_each, has_death: false, calls: Mutex::default() }
    }

    /// The next number. Real processes count in a word of the first one. So what has the smaller
    /// number was earlier, whatever their clocks say.
    fn time(&self, me: &Worker) -> Result<u64> {
        match &self.clock {
            Some(clock) => Ok(clock.fetch_add(1, Ordering::Relaxed)),
            None => GlobalAddress::starter(ProcessId::new(0), 0).cast::<u64>().fetch_add(me, 1),
        }
    }

    /// Makes a call and notes it. It stays open if its caller dies, or learns of a death by it.
    pub(super) fn note<R>(
        &self,
        me: &Worker,
        key: u64,
        steps: impl Fn(Option<R>) -> Vec<S>,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<()> {
        let begin = self.time(me)?;
        let index = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(Call { key, begin, end: OPEN, steps: steps(None) });
            calls.len() - 1
        };
        match call() {
            Err(Error::PeerLost { process: DYING, .. }) => {}
            Err(error) => return Err(error),
            Ok(result) => {
                let end = self.time(me)?;
                let call = &mut self.calls.lock().unwrap()[index];
                (call.end, call.steps) = (end, steps(Some(result)));
            }
        }
        // Other workers have turns, and calls run.
        me.progress().map(drop)
    }
}

/// Returns the calls of a key that fit in no line, if there is one.
fn misfit<S: Step + Clone + std::fmt::Debug>(calls: Vec<Call<S>>, start: &S::State) -> Option<String> {
    let mut keys = BTreeMap::<u64, Vec<Timed<S>>>::new();
    for Call { key, begin, end, steps } in calls {
        keys.entry(key).or_default().extend(steps.into_iter().map(|step| Timed { begin, end, step }));
    }
    let (key, mut calls) = keys.into_iter().find(|(_, calls)| !is_linearizable(start.clone(), calls.clone()))?;
    calls.sort_by_key(|call| call.begin);
    // The call that ends there is the first one that has no place.
    let before = |time| {
        let begun = calls.iter().filter(move |call| call.begin < time).cloned();
        begun.map(move |call| Timed { end: if call.end > time { OPEN } else { call.end }, ..call }).collect()
    };
    let first = calls.iter().map(|call| call.end).filter(|end| !is_linearizable(start.clone(), before(*end))).min();
    let lines: Vec<_> = calls.iter().map(|call| format!("{} to {}: {:?}", call.begin, call.end, call.step)).collect();
    Some(format!("key {key} has no order up to {first:?} of\n{}", lines.join("\n")))
}

pub(super) fn assert_fit<S: Step + Clone + std::fmt::Debug>(which: &str, calls: Vec<Call<S>>, start: &S::State) {
    if let Some(why) = misfit(calls, start) {
        panic!("{which}: {why}");
    }
}

pub(super) fn change(m: &Map<'_, u64, Entry>, change: Change, key: u64, new: u64) -> Result<Option<u64>> {
    let mixed = |there: &mut Entry, by: Entry| {
        let before = number(*there);
        *there = entry(mix(before, by[0]));
        before
    };
    Ok(match change {
        Change::Insert => (m.insert(key, entry(new))? == Inserted::Replaced).then_some(0),
        Change::TryInsert => m.try_insert(key, entry(new))?.err().map(number),
        Change::Get => m.get(&key)?.map(number),
        Change::Remove => m.remove(&key)?.map(number),
        Change::Modify => m.modify(&key, entry(new), mixed)?,
        Change::Upsert => {
            m.upsert(key, entry(new), |there, by| *there = entry(mix(number(*there), by[0])))?;
            None
        }
    })
}

/// The same for a map of vectors, whose values lie elsewhere in memory.
fn change_wire(m: &CallMap<'_, u64, Vec<u64>>, change: Change, key: u64, new: u64) -> Result<Option<u64>> {
    let of = |found: Vec<u64>| found.try_into().map_or(TORN, number);
    let mixed = |there: &mut Vec<u64>, by: Vec<u64>| {
        let before = std::mem::take(there).try_into().map_or(TORN, number);
        *there = entry(mix(before, by[0])).to_vec();
        before
    };
    let new = entry(new).to_vec();
    Ok(match change {
        Change::Insert => (m.insert(key, new)? == Inserted::Replaced).then_some(0),
        Change::TryInsert => m.try_insert(key, new)?.err().map(of),
        Change::Get => m.get(&key)?.map(of),
        Change::Remove => m.remove(&key)?.map(of),
        Change::Modify => m.modify(&key, new, mixed)?,
        Change::Upsert => {
            m.upsert(key, new, |there, by| {
                let before = std::mem::take(there).try_into().map_or(TORN, number);
                *there = entry(mix(before, by[0])).to_vec();
            })?;
            None
        }
    })
}

/// A worker that uses a map, or a queue, as one implementation and one promise permit.
struct User<'w, S: 'static> {
    me: &'w Worker,
    implementation: Implementation,
    random: Random,
    record: &'w Record<S>,
}

impl User<'_, MapStep> {
    /// Uses one of three keys, or one of many so that the map grows. Under `LOCAL`, one of its own.
    fn use_map(&mut self, m: &Map<'_, u64, Entry>, promise: Promise) -> Result<()> {
        let is_own = |key: &u64| promise != Promise::LOCAL || m.owner_of(key) == self.me.id();
        self.use_keys(promise, is_own, |step, key, new| change(&m.promising(promise), step, key, new))
    }

    fn use_keys(
        &mut self,
        promise: Promise,
        is_permitted: impl Fn(&u64) -> bool,
        change: impl FnOnce(Change, u64, u64) -> Result<Option<u64>>,
    ) -> Result<()> {
        use Change::{Get, Insert, Modify, Remove, TryInsert, Upsert};
        let changes: &[Change] = match (promise.permits(Op::Insert), promise.permits(Op::Find)) {
            (true, true) => &[Insert, Insert, TryInsert, Get, Get, Remove, Modify, Upsert],
            (true, false) => &[Insert, TryInsert, Upsert],
            _ => &[Get],
        };
        let step = changes[self.random.below(changes.len() as u64) as usize];
        let mut any_key = || match self.random.below(4) {
            0 => 3 + self.random.below(60),
            _ => self.random.below(3),
        };
        let key = std::iter::repeat_with(&mut any_key).find(&is_permitted).expect("each worker has some keys");
        let new = self.random.below(1 << 48);
        // What a lost worker was changing by itself is removed.
        let may_remove = self.implementation != Implementation::Call && matches!(step, Insert | TryInsert | Remove);
        let steps = |answer| vec![MapStep { change: step, new, answer, may_remove }];
        self.record.note(self.me, key, steps, || change(step, key, new))
    }
}

impl User<'_, QueueStep> {
    fn use_queue(&mut self, ends: &Ends<'_, Entry>, promise: Promise) -> Result<()> {
        use QueueStep::{Fill, Free, Full, Nothing, Place, Skip, Take};
        let may = (promise.permits(Op::Push), promise.permits(Op::Pop));
        let item = self.random.below(1 << 48);
        // Only one worker has the queue.
        if promise == Promise::LOCAL && (self.me.process() != ends.host() || self.me.thread_index() > 0) {
            return Ok(());
        }
        if may == (true, false) || may.0 && self.random.below(2) == 0 {
            let steps = |pushed| match pushed {
                Some(Ok(())) => vec![Place(item), Fill(item)],
                Some(Err(_)) => vec![Full],
                None => vec![Place(item), Fill(item), Skip(item)],
            };
            self.record.note(self.me, 0, steps, || ends.push_with(promise, entry(item)))
        } else {
            let steps = |popped: Option<Option<Entry>>| match popped {
                Some(Some(item)) => vec![Take(Some(number(item))), Free],
                Some(None) => vec![Nothing],
                None => vec![Take(None), Free],
            };
            self.record.note(self.me, 0, steps, || ends.pop_with(promise))
        }
    }
}

/// The calls of a worker before a process is lost, and after that.
const CALLS: usize = 40;
const CALLS_AFTER: usize = 10;
/// The time of a round before that, at most.
const ROUND: Duration = Duration::from_micros(400);

/// Makes calls under each promise in turn. If a process dies, under the last one until it is lost,
/// and then some more.
fn in_rounds<S>(
    me: &Worker,
    promises: &[Promise],
    record: &Record<S>,
    mut call: impl FnMut(Promise) -> Result<()>,
) -> Result<()> {
    let (rounds, last) = match promises.split_last() {
        Some((last, rounds)) if record.has_death => (rounds, Some(*last)),
        _ => (promises, None),
    };
    for promise in rounds {
        (0..record.calls_each).try_for_each(|_| call(*promise))?;
        me.barrier()?;
    }
    let Some(promise) = last else { return Ok(()) };
    for _ in 0..CALLS {
        if !me.is_lost(DYING) {
            call(promise)?;
        }
    }
    me.wait_while_serving(|| me.is_lost(DYING))?;
    (0..CALLS_AFTER).try_for_each(|_| call(promise))
}

fn with_map(
    me: &Worker,
    (implementation, seed): (Implementation, u64),
    promises: &[Promise],
    record: &Record<MapStep>,
) -> Result<()> {
    let map = HashMap::<u64, Entry>::builder().capacity(1).implementation(implementation).build(me)?;
    let (m, mut user) = (map.on(me), User { me, implementation, random: Random::new(me, seed), record });
    in_rounds(me, promises, record, |promise| user.use_map(&m, promise))
}

fn with_wire_map(me: &Worker, seed: u64, promises: &[Promise], record: &Record<MapStep>) -> Result<()> {
    let map = WireMap::<u64, Vec<u64>>::new(me)?;
    let (m, implementation) = (map.on(me), Implementation::Call);
    let mut user = User { me, implementation, random: Random::new(me, seed), record };
    in_rounds(me, promises, record, |promise| {
        user.use_keys(promise, |_| true, |step, key, new| change_wire(&m, step, key, new))
    })
}

fn with_queue(
    me: &Worker,
    (implementation, seed): (Implementation, u64),
    promises: &[Promise],
    record: &Record<QueueStep>,
) -> Result<()> {
    let host = ProcessId::new(me.process_count() - 1);
    let queue = Queue::with_implementation(me, host, CAPACITY as u64, implementation)?;
    let (ends, mut user) = (queue.on(me), User { me, implementation, random: Random::new(me, seed), record });
    in_rounds(me, promises, record, |promise| user.use_queue(&ends, promise))
}

pub(super) const CAPACITY: usize = 3;

/// The empty queue of an implementation. If stamps say what is there, the pushes of several workers
/// may bring one item each beyond the capacity, and a pop does not look behind an item that is
/// being pushed. After a loss, some places may be out of use.
pub(super) fn empty(implementation: Implementation, workers: usize, has_losses: bool) -> Line {
    let is_stamped = matches!(implementation, Implementation::OneSided | Implementation::Checksum);
    let beyond = if implementation == Implementation::Call { 0 } else { workers };
    let room = if has_losses { (0, usize::MAX) } else { (CAPACITY, CAPACITY + beyond) };
    Line::new(room, is_stamped)
}

const MAP_PROMISES: [Promise; 5] =
    [Promise::ALL, Promise::INSERT_ONLY, Promise::FIND_ONLY, Promise::LOCAL, Promise::ALL];
const QUEUE_PROMISES: [Promise; 5] =
    [Promise::ALL, Promise::PUSH_ONLY, Promise::POP_ONLY, Promise::LOCAL, Promise::ALL];

/// Networks with short and with long delays.
pub(super) fn options(seed: u64) -> SimOptions {
    SimOptions { delay_max_ns: [1_000, 30_000][seed as usize % 2], ..SimOptions::default() }
}

/// Simulates workers that note their calls, and returns the calls.
fn simulated<S: Send>(
    simulation: Simulation,
    body: impl Fn(&Worker, &Record<S>) -> Result<()> + Send + Sync,
) -> (Result<()>, Vec<Call<S>>) {
    simulated_as(simulation, false, body)
}

fn simulated_as<S: Send>(
    simulation: Simulation,
    has_death: bool,
    body: impl Fn(&Worker, &Record<S>) -> Result<()> + Send + Sync,
) -> (Result<()>, Vec<Call<S>>) {
    let record = Record { has_death, ..Record::new(Some(AtomicU64::new(0)), 10) };
    let verdict = simulation.run(|me| body(me, &record)).expect("a job").verdict;
    (verdict, record.calls.into_inner().unwrap())
}

const SHAPES: [(u32, u32); 3] = [(3, 1), (2, 2), (5, 1)];

#[test]
fn maps_in_simulations() {
    for (seed, (processes, threads)) in (0..scaled(6)).zip(SHAPES.into_iter().cycle()) {
        for implementation in MAPS {
            let simulation = Simulation::new(processes, threads, seed).options(options(seed));
            let (verdict, calls) =
                simulated(simulation, |me, record| with_map(me, (implementation, seed), &MAP_PROMISES, record));
            let which = format!("{implementation}, {processes} x {threads}, seed {seed}");
            verdict.unwrap_or_else(|error| panic!("{which}: {error}"));
            assert_grown(&calls, processes * threads);
            assert_fit(&which, calls, &None);
        }
    }
}

#[test]
fn wire_maps_in_simulations() {
    for (seed, (processes, threads)) in (0..scaled(6)).zip(SHAPES.into_iter().cycle()) {
        let simulation = Simulation::new(processes, threads, seed).options(options(seed));
        let promises = [Promise::ALL, Promise::ALL];
        let (verdict, calls) = simulated(simulation, |me, record| with_wire_map(me, seed, &promises, record));
        let which = format!("{processes} x {threads}, seed {seed}");
        verdict.unwrap_or_else(|error| panic!("{which}: {error}"));
        assert_fit(&which, calls, &None);
    }
}

#[test]
fn queues_in_simulations() {
    for (seed, (processes, threads)) in (0..scaled(6)).zip(SHAPES.into_iter().cycle()) {
        for implementation in QUEUES {
            let simulation = Simulation::new(processes, threads, seed).options(options(seed));
            let (verdict, calls) =
                simulated(simulation, |me, record| with_queue(me, (implementation, seed), &QUEUE_PROMISES, record));
            let which = format!("{implementation}, {processes} x {threads}, seed {seed}");
            verdict.unwrap_or_else(|error| panic!("{which}: {error}"));
            assert_fit(&which, calls, &empty(implementation, (processes * threads) as usize, false));
        }
    }
}

/// Each part begins with two slots, and a key keeps its slot until the part grows.
fn assert_grown(calls: &[Call<MapStep>], workers: u32) {
    let is_new = |call: &&Call<MapStep>| {
        let [MapStep { change, answer, .. }] = call.steps[..] else { return false };
        matches!(change, Change::Insert | Change::TryInsert) && answer == Some(None)
    };
    let keys: BTreeSet<_> = calls.iter().filter(is_new).map(|call| call.key).collect();
    assert!(keys.len() > 2 * workers as usize, "{} keys do not make {workers} parts grow", keys.len());
}

/// Simulations in which a process is lost between two calls or in one, some time after the rounds
/// before.
fn with_death<S: Send>(
    seed: u64,
    rounds: Duration,
    body: impl Fn(&Worker, &Record<S>) -> Result<()> + Send + Sync,
) -> (Vec<Result<()>>, Vec<Call<S>>) {
    let ends = Mutex::new(Vec::new());
    let death = rounds + Duration::from_micros(20) + Duration::from_nanos(500 * seed);
    let simulation = Simulation::new(4, 1, seed).kill(DYING, death);
    let (verdict, calls) = simulated_as(simulation, true, |me, record| {
        let end = body(me, record);
        if me.process() != DYING {
            ends.lock().unwrap().push(end);
        }
        Ok(())
    });
    assert!(verdict.is_err(), "the loss is the verdict");
    (ends.into_inner().unwrap(), calls)
}

#[test]
fn maps_with_deaths() {
    let (mut cut, seeds) = (0, scaled(5).min(40));
    for seed in 0..seeds {
        for implementation in MAPS {
            let promises: &[Promise] = match seed % 5 {
                0 | 2 => &[Promise::ALL],
                1 => &[Promise::INSERT_ONLY],
                // Something is there to find.
                3 => &[Promise::INSERT_ONLY, Promise::FIND_ONLY],
                _ => &[Promise::ALL, Promise::LOCAL],
            };
            let rounds = ROUND * (promises.len() as u32 - 1);
            let body = |me: &Worker, record: &Record<MapStep>| with_map(me, (implementation, seed), promises, record);
            let (ends, calls) = with_death(seed, rounds, body);
            let which = format!("{implementation}, {promises:?}, seed {seed}");
            ends.into_iter().for_each(|end| end.unwrap_or_else(|error| panic!("{which}: {error}")));
            cut += u64::from(calls.len() < 4 * CALLS + 3 * CALLS_AFTER);
            assert_fit(&which, calls, &None);
        }
    }
    // Two runs a seed. The later deaths come when most calls are over.
    assert!(cut > seeds / 2, "few deaths come between the calls: {cut}");
}

#[test]
fn wire_maps_with_deaths() {
    let (mut cut, seeds) = (0, scaled(10).min(40));
    for seed in 0..seeds {
        let (ends, calls) =
            with_death(seed, Duration::ZERO, |me, record| with_wire_map(me, seed, &[Promise::ALL], record));
        ends.into_iter().for_each(|end| end.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
        cut += u64::from(calls.len() < 4 * CALLS + 3 * CALLS_AFTER);
        assert_fit(&format!("seed {seed}"), calls, &None);
    }
    // Most workers have made their calls by then: they take less time than those of other maps.
    assert!(cut > seeds / 5, "few deaths come between the calls: {cut}");
}

#[test]
fn queues_with_deaths() {
    let (mut cut, seeds) = (0, scaled(5).min(40));
    for seed in 0..seeds {
        for implementation in QUEUES {
            let promises: &[Promise] = match seed % 5 {
                0 | 2 => &[Promise::ALL],
                1 => &[Promise::PUSH_ONLY],
                // Something is there to pop.
                3 => &[Promise::PUSH_ONLY, Promise::POP_ONLY],
                _ => &[Promise::ALL, Promise::LOCAL],
            };
            let rounds = ROUND * (promises.len() as u32 - 1);
            let body =
                |me: &Worker, record: &Record<QueueStep>| with_queue(me, (implementation, seed), promises, record);
            let (ends, calls) = with_death(seed, rounds, body);
            let which = format!("{implementation}, {promises:?}, seed {seed}");
            ends.into_iter().for_each(|end| end.unwrap_or_else(|error| panic!("{which}: {error}")));
            cut += u64::from(calls.len() < 4 * CALLS + 3 * CALLS_AFTER);
            assert_fit(&which, calls, &empty(implementation, 4, true));
        }
    }
    assert!(cut > seeds / 2, "few deaths come between the calls: {cut}");
}

/// Real processes over the transport of the job, which share memory by default.
#[farside::test(processes = 2, threads = 2, timeout_s = 600)]
fn by_processes(me: &Worker) -> Result<()> {
    for seed in 0..scaled(1) {
        for implementation in MAPS {
            let record = Record::new(None, 200);
            with_map(me, (implementation, seed), &MAP_PROMISES, &record)?;
            let which = format!("a map, {implementation}, seed {seed}");
            if let Some(calls) = gathered(me, record)? {
                assert_fit(&which, calls, &None);
            }
        }
        let record = Record::new(None, 200);
        with_wire_map(me, seed, &[Promise::ALL, Promise::ALL], &record)?;
        if let Some(calls) = gathered(me, record)? {
            assert_fit(&format!("a map of vectors, seed {seed}"), calls, &None);
        }
        for implementation in QUEUES {
            let record = Record::new(None, 200);
            with_queue(me, (implementation, seed), &QUEUE_PROMISES, &record)?;
            let which = format!("a queue, {implementation}, seed {seed}");
            if let Some(calls) = gathered(me, record)? {
                assert_fit(&which, calls, &empty(implementation, me.worker_count() as usize, false));
            }
        }
    }
    Ok(())
}

/// The calls of all workers, at the first one.
fn gathered<S: Wire + Clone>(me: &Worker, record: Record<S>) -> Result<Option<Vec<Call<S>>>> {
    let calls = me.gather(WorkerId::FIRST, record.calls.into_inner().unwrap())?;
    Ok(calls.map(|calls| calls.into_iter().flatten().collect()))
}

/// A fabric that reports puts before they have taken effect is found out, where data is put without
/// an order.
#[test]
fn a_broken_fabric_is_found_out() {
    let by = Implementation::Checksum;
    let in_queue = |seed: u64| {
        let options = SimOptions { ends_puts_early: true, ..options(seed) };
        let broken = Simulation::new(3, 1, seed).options(options);
        let (_, calls) = simulated(broken, |me, record| with_queue(me, (by, seed), &QUEUE_PROMISES, record));
        misfit(calls, &empty(by, 3, false)).is_some()
    };
    assert!((0..40).any(in_queue));
}
