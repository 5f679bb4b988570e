//! A process dies with its n-th operation in transit, for each n from the first on until it makes
//! no more: while maps grow, queues are pushed and popped, and snapshots are written. The others
//! come to their end, with losses that are named, and what was acknowledged is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::{Error, ProcessId, Result, SimScript, Simulation, Worker, simulate};
use farside_containers::map::HashMap;
use farside_containers::queue::Queue;
use farside_containers::{Implementation, keep};
use farside_testbed::depth;

use super::histories::{CAPACITY, DYING, Entry, Record, assert_fit, change, empty, entry, number, options};
use super::{Change, MapStep, QueueStep};
use crate::keep::Folder;

const PROCESSES: u32 = 4;
/// The virtual time after which a wait is one for the lost process.
const DEADLINE: Duration = Duration::from_millis(200);

/// Kills a process with its first operation in transit, then with its second, and so on, until it
/// makes no more. `run` makes a run, of this number. In the fast tier, only some operations are
/// tried. Returns the number of the last one that was, or could have been.
fn at_each_operation(dying: ProcessId, run: impl Fn(u64, &Arc<SimScript>)) -> u64 {
    let step = (7.0 / depth()).max(1.0) as usize;
    for number in (1..).step_by(step) {
        let script = Arc::new(SimScript::new().kill(dying, number));
        run(number, &script);
        if !script.has_killed() {
            return number - 1;
        }
    }
    unreachable!("a process makes no operations without an end")
}

/// The place where the script begins: all workers have come there, and none goes on.
struct Start<'s> {
    script: &'s SimScript,
    left: AtomicU32,
}

impl Start<'_> {
    fn meet(&self, me: &Worker) -> Result<()> {
        me.barrier()?;
        if self.left.fetch_add(1, Ordering::Relaxed) + 1 == me.worker_count() {
            self.script.begin();
        }
        // All have left the barrier by then.
        me.charge(Duration::from_millis(1));
        Ok(())
    }
}

/// Runs a body on all workers. Survivors must come to its end.
fn survive(
    (dying, number): (ProcessId, u64),
    script: &Arc<SimScript>,
    body: impl Fn(&Worker, &Start<'_>) -> Result<()> + Send + Sync,
) {
    let start = Start { script, left: AtomicU32::new(0) };
    let ends = Mutex::new(Vec::new());
    let simulation = Simulation::new(PROCESSES, 1, number).options(options(number)).script(script.clone());
    let simulation = simulation.deadline(DEADLINE);
    let simulated = simulation.run(|me| {
        let end = body(me, &start);
        if me.process() != dying {
            ends.lock().unwrap().push((me.process(), end));
        }
        Ok(())
    });
    let verdict = simulated.expect("a job").verdict;
    assert_eq!(verdict.is_err(), script.has_killed(), "{dying}, operation {number}: {verdict:?}");
    let ends = ends.into_inner().unwrap();
    assert_eq!(ends.len(), PROCESSES as usize - 1, "{dying}, operation {number}: {ends:?}");
    for (process, end) in ends {
        end.unwrap_or_else(|error| panic!("{dying}, operation {number}: {process}: {error}"));
    }
}

/// Waits for all workers, or until one is lost. Returns whether it is.
fn meets_loss(me: &Worker) -> Result<bool> {
    match me.barrier() {
        Ok(()) => Ok(false),
        Err(Error::PeerLost { process: DYING, .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Uses a map whose parts begin with two slots, so that all of them grow.
fn use_map(me: &Worker, implementation: Implementation, start: &Start<'_>, record: &Record<MapStep>) -> Result<()> {
    use Change::{Get, Insert, Remove};
    let map = HashMap::<u64, Entry>::builder().capacity(1).implementation(implementation).build(me)?;
    let (m, mut value) = (map.on(me), u64::from(me.id().number()) << 32);
    let mut call = |step, key| {
        value += 1;
        let is_of_lost = me.process_of(m.owner_of(&key)) == DYING;
        let may_remove = implementation != Implementation::Call && step != Get;
        let steps = |answer| vec![MapStep { change: step, new: value, answer, may_remove }];
        record.note(me, key, steps, || match change(&m, step, key, value) {
            Err(Error::PeerLost { .. }) if !is_of_lost && me.process() != DYING => {
                panic!("key {key} belongs to a survivor")
            }
            outcome => outcome,
        })
    };
    start.meet(me)?;
    // Each has keys of its own, and all use the first ones.
    let own = 100 * u64::from(me.id().number() + 1);
    for round in 0..4 {
        call(Insert, own + round)?;
        call(Insert, round % 3)?;
        call(Get, own + round / 2)?;
        if round % 4 == 3 {
            call(Remove, round % 3)?;
        }
    }
    meets_loss(me)?;
    // No slot is held any more, and what was acknowledged is there.
    for key in (0..3).chain((100..).step_by(100).take(PROCESSES as usize).flat_map(|own| own..own + 4)) {
        call(Get, key)?;
        call(Insert, key)?;
        call(Get, key)?;
    }
    Ok(())
}

fn maps_grow(implementation: Implementation) {
    let operations = at_each_operation(DYING, |number, script| {
        let record = Record::new(Some(AtomicU64::new(0)), 0);
        survive((DYING, number), script, |me, start| use_map(me, implementation, start, &record));
        assert_fit(&format!("{implementation}, operation {number}"), record.calls.into_inner().unwrap(), &None);
    });
    println!("{implementation}: {operations} operations");
    assert!(operations > 40, "{operations} operations");
}

#[test]
fn while_one_sided_maps_grow() {
    maps_grow(Implementation::OneSided);
}

#[test]
fn while_maps_by_calls_grow() {
    maps_grow(Implementation::Call);
}

/// Pushes and pops items of a queue that a survivor hosts, also in batches.
fn use_queue(me: &Worker, implementation: Implementation, start: &Start<'_>, record: &Record<QueueStep>) -> Result<()> {
    use QueueStep::{Fill, Free, Full, Nothing, Place, Skip, Take};
    let host = ProcessId::new(PROCESSES - 1);
    let queue = Queue::<Entry>::with_implementation(me, host, CAPACITY as u64, implementation)?;
    let ends = queue.on(me);
    let mut item = u64::from(me.id().number()) << 32;
    let mut push = || {
        item += 1;
        let steps = |pushed| match pushed {
            Some(Ok(())) => vec![Place(item), Fill(item)],
            Some(Err(_)) => vec![Full],
            None => vec![Place(item), Fill(item), Skip(item)],
        };
        record.note(me, 0, steps, || ends.push(entry(item)))
    };
    let pop = || {
        let steps = |popped: Option<Option<Entry>>| match popped {
            Some(Some(item)) => vec![Take(Some(number(item))), Free],
            Some(None) => vec![Nothing],
            None => vec![Take(None), Free],
        };
        record.note(me, 0, steps, || ends.pop())
    };
    start.meet(me)?;
    for round in 0..5 {
        push()?;
        if (round + me.id().number()).is_multiple_of(2) {
            push()?;
            pop()?;
        }
        pop()?;
    }
    meets_loss(me)?;
    // Places that the lost process has left without items are passed.
    for _ in 0..3 {
        push()?;
        pop()?;
    }
    Ok(())
}

fn queues(implementation: Implementation) {
    let operations = at_each_operation(DYING, |number, script| {
        let record = Record::new(Some(AtomicU64::new(0)), 0);
        survive((DYING, number), script, |me, start| use_queue(me, implementation, start, &record));
        let start = empty(implementation, PROCESSES as usize, true);
        assert_fit(&format!("{implementation}, operation {number}"), record.calls.into_inner().unwrap(), &start);
    });
    println!("{implementation}: {operations} operations");
    assert!(operations > 20, "{operations} operations");
}

#[test]
fn while_one_sided_queues_are_used() {
    queues(Implementation::OneSided);
}

#[test]
fn while_queues_with_checksums_are_used() {
    queues(Implementation::Checksum);
}

#[test]
fn while_queues_by_calls_are_used() {
    queues(Implementation::Call);
}

/// Returns the entries of the snapshot, which is whole.
fn restored(path: &Path) -> BTreeMap<u64, u64> {
    let all = Mutex::new(BTreeMap::new());
    let read = simulate(2, 1, 1, |me| {
        keep::restore(me, path, |(key, value): (u64, u64)| {
            assert_eq!(all.lock().unwrap().insert(key, value), None, "key {key} comes once");
            Ok(())
        })
        .map(drop)
    });
    read.expect("a whole snapshot");
    all.into_inner().unwrap()
}

/// The earlier snapshot stays whole, or the new one is there. No worker waits for the lost one.
#[test]
fn while_snapshots_are_written() {
    let folder = Folder::new("deaths");
    let path = folder.file("map");
    let entries = |number| (0..40).map(move |key| (key, number)).collect::<BTreeMap<u64, u64>>();
    let save = |me: &Worker, number: u64, start: &Start<'_>| {
        let map = HashMap::<u64, u64>::new(me, 100)?;
        let m = map.on(me);
        for key in (0..40).filter(|key| key % u64::from(me.worker_count()) == u64::from(me.id().number())) {
            m.insert(key, number)?;
        }
        start.meet(me)?;
        m.snapshot(&path)
    };
    let mut earlier = 0;
    survive((DYING, 0), &Arc::default(), |me, start| save(me, 0, start).map(drop));
    for dying in [0, 1].map(ProcessId::new) {
        let (first, last) = (earlier + 1, Mutex::new(earlier));
        let operations = at_each_operation(dying, |operation, script| {
            let number = first + operation;
            survive((dying, operation), script, |me, start| match save(me, number, start) {
                Ok(40) => Ok(()),
                Ok(entries) => panic!("{entries} entries"),
                Err(Error::PeerLost { process, .. }) if process == dying => Ok(()),
                Err(error) => Err(error),
            });
            let (found, mut last) = (restored(&path), last.lock().unwrap());
            let is_new = found == entries(number);
            assert!(is_new || found == entries(*last), "{dying}, operation {operation}: {found:?}");
            *last = if is_new { number } else { *last };
        });
        println!("{dying}: {operations} operations");
        earlier = last.into_inner().unwrap();
        // Without a death, the snapshot was replaced.
        assert_eq!(earlier, first + operations + 1);
    }
}
