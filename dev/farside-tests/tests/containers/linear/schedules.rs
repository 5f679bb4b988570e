//! Bounded model checking of the code itself: two or three workers make an operation or two, in
//! every order in which their one-sided operations can take effect. What they do it to is at
//! another process, so that all of it is done by operations of the network. A put and a get of an
//! entry have two halves, which take effect one by one.
//!
//! The orders are run one after the other, each in a simulation of its own. Most tests bound the
//! number of times that an operation takes effect before an older one.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::{Error, GlobalAddress, ProcessId, Result, SimOptions, SimScript, Simulation, Worker};
use farside_containers::Implementation;
use farside_containers::map::HashMap;
use farside_containers::queue::Queue;
use farside_testbed::depth;

use super::histories::{CAPACITY, DYING, Entry, Record, assert_fit, change, empty, entry, number};
use super::{Change, MapStep, QueueStep, Step};

/// The virtual time after which a wait never ends.
const DEADLINE: Duration = Duration::from_millis(100);
/// Longer than a barrier.
const PAUSE: Duration = Duration::from_micros(1);

/// Runs every order in which at most `changes` choices differ from the order of age. Returns how
/// many these are.
fn in_every_order(changes: usize, script: impl Fn() -> SimScript, run: impl Fn(&Arc<SimScript>)) -> u64 {
    let (mut choices, mut runs) = (Vec::new(), 0);
    loop {
        let script = Arc::new(script().order(choices));
        run(&script);
        runs += 1;
        match script.following(changes) {
            Some(following) => choices = following,
            None => return runs,
        }
    }
}

/// As [`in_every_order`], while the second process dies with its first operation in transit, then
/// with its second, and so on, until it makes no more. The fast tier tries only some operations.
fn with_every_death(changes: usize, run: impl Fn(&Arc<SimScript>)) -> u64 {
    let (mut runs, step) = (0, if is_deep() { 1 } else { 5 });
    for operation in (1..).step_by(step) {
        let has_killed = AtomicBool::new(false);
        let script = || SimScript::new().kill(DYING, operation);
        runs += in_every_order(changes, script, |script| {
            run(script);
            has_killed.fetch_or(script.has_killed(), Ordering::Relaxed);
        });
        if !has_killed.into_inner() {
            break;
        }
    }
    runs
}

/// The begin and the end of what the script decides.
struct Gate<'s> {
    script: &'s SimScript,
    actors: u32,
    arrived: AtomicU32,
    /// A bit for each actor that has acted.
    done: AtomicU32,
}

impl<'s> Gate<'s> {
    fn new(script: &'s SimScript, actors: usize) -> Self {
        Self { script, actors: actors as u32, arrived: AtomicU32::new(0), done: AtomicU32::new(0) }
    }

    /// Returns whether all actors have acted, but for one that is lost.
    fn is_done(&self, me: &Worker) -> bool {
        let missing = ((1 << self.actors) - 1) & !self.done.load(Ordering::Relaxed);
        missing == 0 || missing == 1 << DYING.number() && me.is_lost(DYING)
    }

    /// Calls `act` on the actors, while the script decides. Waits for all workers before and after
    /// that, but for one that is lost.
    fn pass(&self, me: &Worker, act: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        me.barrier()?;
        let is_last = self.arrived.fetch_add(1, Ordering::Relaxed) == self.actors;
        // All have left the barrier, and nothing of it is in transit.
        me.charge(PAUSE);
        if is_last {
            self.script.begin();
        }
        me.charge(PAUSE);
        let mut acted = Ok(());
        if me.id().number() < self.actors {
            acted = act(me.id().index());
            self.done.fetch_or(1 << me.id().number(), Ordering::Relaxed);
        }
        // No message of the next barrier is among the choices.
        me.wait_while_serving(|| self.is_done(me))?;
        self.script.end();
        acted?;
        match me.barrier() {
            Err(Error::PeerLost { process: DYING, .. }) => Ok(()),
            outcome => outcome,
        }
    }
}

/// A job of these actors and one process more, which has the memory.
fn simulation(actors: usize, script: &Arc<SimScript>) -> Simulation {
    let options = SimOptions { delay_max_ns: 0, ..SimOptions::default() };
    Simulation::new(actors as u32 + 1, 1, 1).options(options).deadline(DEADLINE).script(script.clone())
}

/// Runs a body on all workers. Those that do not die must come to its end, and the calls that they
/// note must fit in a line.
fn run<S: Step + Clone + std::fmt::Debug + Send + 'static>(
    script: &Arc<SimScript>,
    actors: usize,
    start: &S::State,
    which: impl Fn() -> String,
    act: impl Fn(&Worker, &Record<S>, &Gate<'_>) -> Result<()> + Send + Sync,
) {
    let record = Record::new(Some(AtomicU64::new(0)), 0);
    let ends = Mutex::new(Vec::new());
    let gate = Gate::new(script, actors);
    let simulated = simulation(actors, script).run(|me| {
        let end = act(me, &record, &gate);
        if !(me.process() == DYING && script.has_killed()) {
            ends.lock().unwrap().push(end);
        }
        Ok(())
    });
    let verdict = simulated.expect("a job").verdict;
    assert_eq!(verdict.is_err(), script.has_killed(), "{}: {verdict:?}", which());
    let ends = ends.into_inner().unwrap();
    assert_eq!(ends.len() + usize::from(script.has_killed()), actors + 1, "{}", which());
    ends.into_iter().for_each(|end| end.unwrap_or_else(|error| panic!("{}: {error}", which())));
    assert_fit(&which(), record.calls.into_inner().unwrap(), start);
}

/// All keys are at the last worker. They have one tag and are tried from the slot of their number.
fn at_the_last(key: &[u8]) -> u64 {
    u64::from(u32::MAX) << 32 | u64::from(key[0])
}

type Use = (Change, u64);

/// The operations of workers on a map whose part has two slots.
struct MapCase<'c> {
    /// The keys that are there.
    before: &'c [u64],
    /// The operations of each actor.
    actors: &'c [&'c [Use]],
}

impl MapCase<'_> {
    /// Runs one order, and checks what was returned.
    fn run(&self, script: &Arc<SimScript>) {
        let which = || format!("{:?}, order {:?}", self.actors, script.taken());
        run(script, self.actors.len(), &None, which, |me, record, gate| self.act(me, record, gate));
    }

    fn act(&self, me: &Worker, record: &Record<MapStep>, gate: &Gate<'_>) -> Result<()> {
        let builder = HashMap::<u64, Entry>::builder().capacity(1).placement(at_the_last);
        let map = builder.build(me)?;
        let m = map.on(me);
        let mut value = 100 * u64::from(me.id().number());
        let mut call = |(step, key): Use| {
            value += 1;
            let may_remove = !matches!(step, Change::Get | Change::Modify | Change::Upsert);
            let steps = |answer| vec![MapStep { change: step, new: value, answer, may_remove }];
            record.note(me, key, steps, || change(&m, step, key, value))
        };
        if me.is_first() {
            self.before.iter().try_for_each(|key| call((Change::Insert, *key)))?;
        }
        // The first operation learns where the memory is.
        m.contains_key(&9)?;
        gate.pass(me, |index| self.actors[index].iter().try_for_each(|used| call(*used)))?;
        // All keys can still be used, and have the values that the order explains.
        if me.is_first() {
            for key in 0..4 {
                call((Change::Get, key))?;
                call((Change::Insert, key))?;
                call((Change::Get, key))?;
            }
        }
        Ok(())
    }
}

/// Returns the bound of changes in this run, of that in the deep tier.
fn bound(changes: usize) -> usize {
    if is_deep() { changes } else { (changes - 1).max(1) }
}

fn is_deep() -> bool {
    depth() >= 2.0
}

fn report(which: impl std::fmt::Display, actors: impl std::fmt::Debug, runs: u64) {
    println!("{which}, {actors:?}: {runs} orders");
    assert!(runs > if is_deep() { 10 } else { 1 }, "{runs} orders");
}

/// Checks a case with its bound of changes.
fn map_case(changes: usize, before: &[u64], actors: &[&[Use]]) {
    let case = MapCase { before, actors };
    report("a map", actors, in_every_order(bound(changes), SimScript::new, |script| case.run(script)));
}

fn map_deaths(changes: usize, before: &[u64], actors: &[&[Use]]) {
    let case = MapCase { before, actors };
    report("a map", actors, with_every_death(changes, |script| case.run(script)));
}

use Change::{Get, Insert, Remove, TryInsert};

#[test]
fn a_new_key_is_inserted_twice() {
    map_case(3, &[], &[&[(Insert, 0)], &[(Insert, 0)]]);
}

#[test]
fn a_new_key_is_tried_twice() {
    map_case(2, &[], &[&[(TryInsert, 0)], &[(TryInsert, 0)]]);
}

#[test]
fn two_keys_meet_at_a_slot() {
    map_case(2, &[], &[&[(Insert, 0)], &[(Insert, 2)]]);
}

#[test]
fn a_new_key_is_found() {
    map_case(3, &[], &[&[(Insert, 0)], &[(Get, 0), (Get, 0)]]);
}

#[test]
fn a_value_is_replaced_and_found() {
    map_case(3, &[0], &[&[(Insert, 0)], &[(Get, 0), (Get, 0)]]);
}

#[test]
fn a_key_is_removed_and_inserted() {
    map_case(2, &[0], &[&[(Remove, 0)], &[(Insert, 0)]]);
}

#[test]
fn a_slot_is_used_again() {
    map_case(2, &[0], &[&[(Remove, 0), (Insert, 0)], &[(Get, 0)]]);
}

#[test]
fn three_insert_find_and_remove() {
    map_case(1, &[0], &[&[(Insert, 0)], &[(Remove, 0)], &[(Get, 0)]]);
}

#[test]
fn a_part_grows_beside_changes() {
    map_case(2, &[0, 1], &[&[(Insert, 2)], &[(Insert, 0)]]);
    map_case(1, &[0, 1], &[&[(Insert, 2)], &[(Remove, 1)]]);
}

#[test]
fn a_part_grows_for_two() {
    map_case(2, &[0, 1], &[&[(Insert, 2)], &[(Insert, 2)]]);
}

#[test]
fn a_part_grows_beside_searches() {
    map_case(2, &[0, 1], &[&[(Insert, 2)], &[(Get, 0), (Get, 1)]]);
}

#[test]
fn a_slot_of_the_lost_is_taken_over() {
    map_deaths(1, &[], &[&[(Insert, 0)], &[(Insert, 0)]]);
    map_deaths(1, &[0], &[&[(Get, 0), (Insert, 0)], &[(Insert, 0)]]);
}

#[test]
fn a_part_grows_that_the_lost_asked_for() {
    map_deaths(1, &[0, 1], &[&[(Insert, 0)], &[(Insert, 2)]]);
}

#[test]
fn a_part_grows_around_a_slot_of_the_lost() {
    map_deaths(1, &[0, 1], &[&[(Insert, 2)], &[(Insert, 0)]]);
}

/// The operations of workers on a queue.
struct QueueCase<'c> {
    implementation: Implementation,
    /// The number of items that are there.
    before: u64,
    /// The operations of each actor: true for a push.
    actors: &'c [&'c [bool]],
    has_deaths: bool,
}

impl QueueCase<'_> {
    /// Runs one order, and checks what was returned.
    fn run(&self, script: &Arc<SimScript>) {
        let which = || format!("{}: {:?}, order {:?}", self.implementation, self.actors, script.taken());
        let start = empty(self.implementation, self.actors.len() + 1, self.has_deaths);
        run(script, self.actors.len(), &start, which, |me, record, gate| self.act(me, record, gate));
    }

    fn act(&self, me: &Worker, record: &Record<QueueStep>, gate: &Gate<'_>) -> Result<()> {
        use QueueStep::{Fill, Free, Full, Nothing, Place, Skip, Take};
        let host = ProcessId::new(self.actors.len() as u32);
        let queue = Queue::<Entry>::with_implementation(me, host, CAPACITY as u64, self.implementation)?;
        let ends = queue.on(me);
        let mut item = 100 * u64::from(me.id().number());
        let mut call = |is_push| {
            item += 1;
            let pushed = |pushed| match pushed {
                Some(Ok(())) => vec![Place(item), Fill(item)],
                Some(Err(_)) => vec![Full],
                None => vec![Place(item), Fill(item), Skip(item)],
            };
            let popped = |popped: Option<Option<Entry>>| match popped {
                Some(Some(item)) => vec![Take(Some(number(item))), Free],
                Some(None) => vec![Nothing],
                None => vec![Take(None), Free],
            };
            match is_push {
                true => record.note(me, 0, pushed, || ends.push(entry(item))),
                false => record.note(me, 0, popped, || ends.pop()),
            }
        };
        if me.is_first() {
            (0..self.before).try_for_each(|_| call(PUSH))?;
        }
        // The first operation learns where the memory is.
        ends.len()?;
        gate.pass(me, |index| self.actors[index].iter().try_for_each(|used| call(*used)))?;
        if me.is_first() {
            [PUSH, POP, POP, POP, POP].into_iter().try_for_each(call)?;
        }
        Ok(())
    }
}

const PUSH: bool = true;
const POP: bool = false;
const QUEUES: [Implementation; 2] = [Implementation::OneSided, Implementation::Checksum];

fn queue_case(changes: usize, before: u64, actors: &[&[bool]]) {
    for implementation in QUEUES {
        let case = QueueCase { implementation, before, actors, has_deaths: false };
        report(implementation, actors, in_every_order(bound(changes), SimScript::new, |script| case.run(script)));
    }
}

#[test]
fn a_queue_is_pushed_and_popped() {
    queue_case(3, 0, &[&[PUSH], &[POP, POP]]);
    queue_case(2, 1, &[&[PUSH], &[POP]]);
}

#[test]
fn two_use_one_end() {
    queue_case(2, 0, &[&[PUSH], &[PUSH]]);
    queue_case(2, 1, &[&[POP], &[POP]]);
}

#[test]
fn a_full_queue_is_used() {
    queue_case(2, CAPACITY as u64, &[&[PUSH, PUSH], &[POP, POP]]);
}

#[test]
fn a_place_of_the_lost_is_passed() {
    for implementation in QUEUES {
        for actors in [[&[PUSH][..], &[PUSH]], [&[PUSH], &[POP]], [&[POP], &[PUSH]]] {
            let case = QueueCase { implementation, before: 1, actors: &actors, has_deaths: true };
            report(implementation, actors, with_every_death(1, |script| case.run(script)));
        }
    }
}

/// The script leads to all orders of the operations of two workers. There are
/// more runs than orders, since each operation is followed by a message.
#[test]
fn orders_are_complete() {
    let found = Mutex::new(Vec::new());
    let changes = if is_deep() { usize::MAX } else { 2 };
    let runs = in_every_order(changes, SimScript::new, |script| {
        let gate = Gate::new(script, 2);
        let order = Mutex::new(Vec::new());
        let simulated = simulation(2, script).run(|me| {
            let word = GlobalAddress::starter(ProcessId::new(2), 0).cast::<u64>();
            word.load(me)?;
            gate.pass(me, |index| {
                (0..2).try_for_each(|_| {
                    let turn = word.fetch_add(me, 1)?;
                    order.lock().unwrap().push((turn, index));
                    Ok(())
                })
            })
        });
        simulated.expect("a job").verdict.unwrap();
        let mut order = order.into_inner().unwrap();
        order.sort_unstable();
        found.lock().unwrap().push(order);
    });
    let mut found = found.into_inner().unwrap();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 6, "orders of two and two, in {runs} runs");
}
