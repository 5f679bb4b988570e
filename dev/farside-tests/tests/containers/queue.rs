//! Queues: every item is popped once and in order, by each implementation.

mod choice;
mod faults;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use farside::{Error, PerWorker, ProcessId, Result, Simulation, Worker, WorkerId};
use farside_containers::queue::{Ends, Queue, QueueError, QueueSet};
use farside_containers::{Implementation, Op, Promise};
use farside_testbed::{depth, limit, scaled};

use crate::everywhere;

const ALL: [Implementation; 3] = [Implementation::OneSided, Implementation::Call, Implementation::Checksum];
const STAMPED: [Implementation; 2] = [Implementation::OneSided, Implementation::Checksum];

/// The implementations to test: one among many workers in a simulation, where all take long.
fn implementations(me: &Worker) -> &'static [Implementation] {
    if me.worker_count() > 16 { &ALL[..1] } else { &ALL }
}

/// Counters begin at 0, before the end of 32 bits, and far beyond.
const STARTS: [u64; 3] = [0, (1 << 32) - 5, 1 << 56];

/// An item of several words: who pushed it, which it is, and both again.
type Entry = [u64; 3];

fn entry(of: u32, number: u64) -> Entry {
    [of.into(), number, u64::from(of) << 32 | number]
}

fn host(me: &Worker) -> ProcessId {
    ProcessId::new(me.process_count() - 1)
}

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One worker pushes and pops at random, and finds what a deque of std has.
fn agrees_with_a_deque(ends: &Ends<'_, Entry>, seed: u64) -> Result<()> {
    let (mut random, mut oracle, mut next) = (Random(seed), VecDeque::new(), 0);
    let capacity = ends.capacity() as usize;
    let mut fresh = || {
        next += 1;
        entry(7, next)
    };
    for _ in 0..40 {
        match random.below(7) {
            0 | 1 => {
                let item = fresh();
                let has_room = oracle.len() < capacity;
                assert_eq!(ends.push(item)?, if has_room { Ok(()) } else { Err(item) });
                oracle.extend(has_room.then_some(item));
            }
            2 | 3 => assert_eq!(ends.pop()?, oracle.pop_front()),
            4 => {
                let items: Vec<_> = (0..random.below(12)).map(|_| fresh()).collect();
                let room = items.len().min(capacity - oracle.len());
                assert_eq!(ends.push_all(&items)?, room as u64);
                oracle.extend(&items[..room]);
            }
            5 => {
                let most = random.below(12) as usize;
                let expected: Vec<_> = oracle.drain(..most.min(oracle.len())).collect();
                assert_eq!(ends.pop_many(most)?, expected);
            }
            _ if random.below(5) == 0 => {
                ends.clear()?;
                oracle.clear();
            }
            _ => assert_eq!((ends.len()?, ends.is_empty()?), (oracle.len() as u64, oracle.is_empty())),
        }
    }
    Ok(())
}

fn one_worker_at_a_time(me: &Worker) -> Result<()> {
    for (round, capacity) in [1, 3, 8, 33].into_iter().enumerate() {
        for &implementation in implementations(me) {
            let queue = Queue::starting_at(me, host(me), capacity, implementation, STARTS[round % 3])?;
            // Two workers, one after the other: the second finds what it does not know of.
            for turn in [0, me.worker_count() - 1] {
                me.barrier()?;
                if me.id().number() == turn {
                    agrees_with_a_deque(&queue.on(me), round as u64 * 100 + u64::from(turn))?;
                    queue.on(me).clear()?;
                }
            }
            queue.free(me)?;
        }
    }
    Ok(())
}
everywhere!(oracle, super::one_worker_at_a_time);

/// Counts the items of each pusher, which must come to this popper in order.
#[derive(Default)]
struct Seen {
    last: HashMap<u64, u64>,
    count: u64,
    sum: u64,
}

impl Seen {
    fn take(&mut self, item: Entry) {
        assert_eq!(item, entry(item[0] as u32, item[1]), "a torn item");
        let before = self.last.insert(item[0], item[1]);
        assert!(before.is_none_or(|before| before < item[1]), "{item:?} after {before:?}");
        self.count += 1;
        self.sum += item[2];
    }
}

/// All workers push and pop, one by one and several.
fn each_item_once(me: &Worker) -> Result<()> {
    let most = 4 + 60 / u64::from(me.worker_count());
    for round in if me.worker_count() > 16 { 1..2 } else { 0..3 } {
        for &implementation in implementations(me) {
            let capacity = [1, 8, 31][round];
            let queue = Queue::starting_at(me, host(me), capacity, implementation, STARTS[round % 3])?;
            let (ends, mut seen, mut next) = (queue.on(me), Seen::default(), 0);
            while next < most {
                if next % 3 == 0 {
                    let items = [entry(me.id().number(), next), entry(me.id().number(), next + 1)];
                    next += ends.push_all(&items[..items.len().min((most - next) as usize)])?;
                } else if ends.push(entry(me.id().number(), next))?.is_ok() {
                    next += 1;
                }
                if next % 2 == 0 {
                    ends.pop_many(3)?.into_iter().for_each(|item| seen.take(item));
                } else if let Some(item) = ends.pop()? {
                    seen.take(item);
                }
                me.progress()?;
            }
            me.barrier()?;
            while let Some(item) = ends.pop()? {
                seen.take(item);
            }
            let workers = u64::from(me.worker_count());
            let sum: u64 = (0..me.worker_count()).flat_map(|of| (0..most).map(move |next| entry(of, next)[2])).sum();
            let all = me.all_reduce((seen.count, seen.sum), |a, b| (a.0 + b.0, a.1 + b.1))?;
            assert_eq!(all, (most * workers, sum), "{implementation:?}, capacity {capacity}");
            assert!(ends.is_empty()?);
            queue.free(me)?;
        }
    }
    Ok(())
}
everywhere!(each_once, super::each_item_once);

/// The promise of a call or phase does not permit the operation.
fn refused<R: std::fmt::Debug>(outcome: Result<R>, op: Op, promise: Promise) {
    let expected = QueueError::NotPermitted { op, promise };
    assert_eq!(outcome.unwrap_err().room_error(), Some(&expected));
}

/// Phases and promises: the items of a phase are those of the phase before.
fn phases(me: &Worker) -> Result<()> {
    let workers = u64::from(me.worker_count());
    for &implementation in implementations(me) {
        let queue = Queue::with_implementation(me, host(me), 5 * workers, implementation)?;
        let ends = queue.on(me);
        for round in 0..3 {
            let pushing = ends.pushing()?;
            let own = [0, 1, 2, 3, 4].map(|number| entry(me.id().number(), 5 * round + number));
            assert_eq!(pushing.push_all(&own[..3])?, 3);
            assert_eq!((ends.push_all(&own[3..4])?, pushing.push(own[4])?), (1, Ok(())));
            refused(ends.pop(), Op::Pop, Promise::PUSH_ONLY);
            pushing.end()?;
            assert_eq!(ends.len()?, 5 * workers);
            let popping = ends.popping()?;
            let (mut seen, mut misses) = (Seen::default(), 0);
            refused(ends.push(own[0]), Op::Push, Promise::POP_ONLY);
            while misses < 3 {
                let items = popping.pop_many(2)?;
                misses += u32::from(items.is_empty());
                items.into_iter().chain(popping.pop()?).for_each(|item| seen.take(item));
            }
            popping.end()?;
            let pushed = |of| (5 * round..5 * round + 5).map(move |number| entry(of, number)[2]);
            let sum: u64 = (0..me.worker_count()).flat_map(pushed).sum();
            let all = me.all_reduce((seen.count, seen.sum), |a, b| (a.0 + b.0, a.1 + b.1))?;
            assert_eq!(all, (5 * workers, sum), "{implementation:?}");
            let local = ends.local()?;
            if me.process() == host(me) && me.thread_index() == 0 {
                for number in 0..7 {
                    let pushed = local.push(entry(0, number))?;
                    assert_eq!(pushed.is_ok(), number < 5 * workers);
                }
                assert_eq!(local.pop()?, Some(entry(0, 0)));
            }
            local.end()?;
            // What the phases leave behind suits pushes and pops without promises.
            if me.id().number() == 0 {
                assert_eq!(ends.pop()?, Some(entry(0, 1)));
                assert_eq!(ends.push(entry(1, 1))?, Ok(()));
                ends.clear()?;
            }
            me.barrier()?;
        }
        queue.free(me)?;
    }
    Ok(())
}
everywhere!(phases, super::phases);

/// Another capacity keeps the items. What cannot be done is said.
fn sizes_and_ends(me: &Worker) -> Result<()> {
    let is_host = me.process() == host(me);
    for &implementation in implementations(me) {
        let queue = Queue::<Entry>::with_implementation(me, host(me), 3, implementation)?;
        if me.is_first() {
            assert_eq!(queue.on(me).push_all(&[0, 1, 2, 3].map(|number| entry(0, number)))?, 3);
        }
        let small = queue.resize(me, 2);
        assert_eq!(small.unwrap_err().room_error(), Some(&QueueError::TooSmall { items: 3, capacity: 2 }));
        queue.resize(me, 5)?;
        assert_eq!(queue.on(me).capacity(), 5);
        if me.is_first() {
            assert_eq!(queue.on(me).push_all(&[3, 4, 5].map(|number| entry(0, number)))?, 2);
            assert_eq!(queue.on(me).pop_many(9)?, [0, 1, 2, 3, 4].map(|number| entry(0, number)));
        }
        refused(queue.on(me).push_with(Promise::FIND_ONLY, entry(0, 0)), Op::Push, Promise::FIND_ONLY);
        refused(queue.on(me).pop_many_with(Promise::PUSH_ONLY, 2), Op::Pop, Promise::PUSH_ONLY);
        if !is_host {
            let wrong = QueueError::NotLocal { host: host(me) };
            let outcome = queue.on(me).push_with(Promise::LOCAL, entry(0, 0));
            assert_eq!(outcome.unwrap_err().room_error(), Some(&wrong));
        }
        queue.free(me)?;
        let freed = Some(&QueueError::Gone);
        assert_eq!(queue.on(me).push(entry(0, 0)).unwrap_err().room_error(), freed);
        assert_eq!(queue.on(me).pop().unwrap_err().room_error(), freed);
        assert_eq!(queue.on(me).len().unwrap_err().room_error(), freed);
        assert_eq!(queue.resize(me, 1).unwrap_err().room_error(), freed);
        assert_eq!(queue.free(me).unwrap_err().room_error(), freed);
    }
    for capacity in [0, u64::MAX, 1 << 62] {
        let refused = Queue::<u32>::new(me, host(me), capacity).unwrap_err();
        assert_eq!(refused.room_error(), Some(&QueueError::Capacity { capacity, item_bytes: 4 }));
    }
    assert!(Queue::<u32>::new(me, ProcessId::new(me.process_count()), 1).is_err());
    me.barrier()
}

/// Workers that pass different arguments get an error, and nothing changes.
fn unequal_arguments(me: &Worker) -> Result<()> {
    let own = u64::from(me.id().number());
    let unequal = QueueError::Unequal { worker: WorkerId::new(1) };
    let is_told = |outcome: Result<()>| match (me.worker_count(), outcome) {
        (1, Ok(())) => {}
        (_, outcome) => assert_eq!(outcome.unwrap_err().room_error(), Some(&unequal)),
    };
    is_told(Queue::<u32>::new(me, host(me), 5 + own).map(drop));
    is_told(QueueSet::<u32>::new(me, 5 + own).map(drop));
    let implementation = if me.is_first() { Implementation::Call } else { Implementation::OneSided };
    is_told(Queue::<u32>::with_implementation(me, host(me), 5, implementation).map(drop));
    if me.process_count() > 1 {
        let other = if me.is_first() { ProcessId::new(0) } else { ProcessId::new(1) };
        let told = Queue::<u32>::new(me, other, 5);
        assert!(matches!(told.unwrap_err().room_error(), Some(QueueError::Unequal { .. })));
    }
    let queue = Queue::<u64>::new(me, host(me), 5)?;
    if me.is_first() {
        assert_eq!(queue.on(me).push(7)?, Ok(()));
    }
    is_told(queue.resize(me, 6 + own));
    if me.worker_count() > 1 {
        assert_eq!((queue.on(me).capacity(), queue.on(me).len()?), (5, 1));
    }
    me.barrier()?;
    queue.free(me)
}
everywhere!(unequal, super::unequal_arguments);
everywhere!(sizes, super::sizes_and_ends);

/// A wait ends with the item or the room that comes, or with its time.
fn waits(me: &Worker) -> Result<()> {
    let last = me.id().number() + 1 == me.worker_count();
    for &implementation in implementations(me) {
        let queue = Queue::with_implementation(me, ProcessId::new(0), 2, implementation)?;
        let ends = queue.on(me);
        if me.is_first() {
            assert_eq!(ends.pop_within(Duration::from_millis(1))?, None);
        }
        me.barrier()?;
        if me.is_first() && !last {
            for number in 0..6 {
                let time = if number == 5 { Duration::MAX } else { limit() };
                assert_eq!(ends.pop_within(time)?, Some(number));
            }
            me.call_return(me.neighbor(me.worker_count() - 1), (), |_, ()| ())?.wait()?;
        } else if last && !me.is_first() {
            for number in 0..6_u64 {
                assert_eq!(ends.push_within(limit(), number)?, Ok(()));
            }
        }
        me.barrier()?;
        if me.is_first() {
            assert_eq!(ends.push_all(&[1, 2])?, 2);
            assert_eq!(ends.push_within(Duration::from_millis(1), 3)?, Err(3));
        }
        queue.free(me)?;
    }
    Ok(())
}
everywhere!(waits, super::waits);

/// Each process has a queue of a set.
fn sets(me: &Worker) -> Result<()> {
    for &implementation in implementations(me) {
        let set = QueueSet::with_implementation(me, 100, implementation)?;
        let next = ProcessId::new((me.process().number() + 1) % me.process_count());
        for process in [me.process(), next] {
            assert_eq!(set.at(process).on(me).push(me.id().number())?, Ok(()));
        }
        me.barrier()?;
        set.resize(me, 101)?;
        let own = set.at(me.process()).on(me);
        assert_eq!((own.host(), own.capacity()), (me.process(), 101));
        if me.thread_index() == 0 {
            let mut got = own.pop_many(1000)?;
            got.sort_unstable();
            let to = |worker: WorkerId| {
                let of = me.process_of(worker).number();
                [of, (of + 1) % me.process_count()].into_iter().filter(|to| *to == me.process().number()).count()
            };
            let expected: Vec<_> = me.workers().flat_map(|of| vec![of.number(); to(of)]).collect();
            assert_eq!(got, expected);
        }
        set.free(me)?;
    }
    Ok(())
}
everywhere!(sets, super::sets);

mod deep {
    use super::*;

    /// All that by eight processes that share memory, on fewer CPUs.
    #[test]
    fn eight_processes_share_queues() {
        let all = |me: &Worker| {
            one_worker_at_a_time(me)?;
            each_item_once(me)?;
            super::phases(me)?;
            super::waits(me)?;
            super::sets(me)
        };
        crate::by_eight_over("shm", all, concat!(module_path!(), "::eight_processes_share_queues"));
    }
}

/// A called function uses a queue of its own process, and gets the error that it cannot wait
/// elsewhere. Then it has done nothing.
#[test]
fn called_functions_use_queues_at_hand() {
    for implementation in [Implementation::OneSided, Implementation::Call] {
        farside::simulate(2, 1, 1, |me| {
            let queue = Queue::<u64>::with_implementation(me, ProcessId::new(1), 4, implementation)?;
            if me.is_first() {
                let push =
                    |there: &Worker, queue: Queue<u64>| queue.on(there).push(5).map_err(|error| error.to_string());
                assert_eq!(me.call_return(me.neighbor(1), queue, push)?.wait()?, Ok(Ok(())));
                assert_eq!(queue.on(me).pop()?, Some(5));
            } else {
                let push_and_pop = |there: &Worker, queue: Queue<u64>| {
                    let outcomes = [queue.on(there).push(6).map(drop), queue.on(there).pop().map(drop)];
                    outcomes.iter().all(|outcome| matches!(outcome, Err(Error::InHandler { .. })))
                };
                assert!(me.call_return(me.neighbor(1), queue, push_and_pop)?.wait()?);
            }
            me.barrier()?;
            assert_eq!(queue.on(me).len()?, 0);
            queue.free(me)
        })
        .unwrap();
    }
}

/// A push that fails after it has taken its tickets does not keep others from going on. Here it
/// fails because a called function fails while it waits.
#[test]
fn a_push_that_fails_blocks_no_other() {
    for items in [1, 7] {
        farside::simulate(3, 1, items, |me| {
            let queue = Queue::new(me, ProcessId::new(0), 30)?;
            let (ends, own, mut next) = (queue.on(me), me.id().number(), 0);
            let mut seen = Seen::default();
            if own == 1 {
                assert_eq!(ends.push(entry(own, next))?, Ok(()));
                next += 1;
            } else if own == 2 {
                // From now on, the other worker waits in pushes only.
                seen.take(ends.pop_within(limit())?.expect("it comes"));
                me.call(WorkerId::new(1), (), |_, ()| Err::<(), _>("it fails"))?;
            }
            if own == 1 {
                loop {
                    let batch: Vec<_> = (next..next + items).map(|number| entry(own, number)).collect();
                    next += items;
                    match ends.push_all(&batch) {
                        Ok(pushed) => assert_eq!(pushed, items),
                        Err(Error::HandlerFailed { .. }) => break,
                        Err(error) => return Err(error),
                    }
                    ends.pop_many(9)?.into_iter().for_each(|item| seen.take(item));
                }
                assert_eq!(ends.len()?, items, "the tickets are taken");
                assert_eq!(ends.push(entry(own, next))?, Ok(()));
            }
            me.barrier()?;
            if own == 2 {
                let before = ends.pop_many(9)?;
                assert!(!before.is_empty(), "the push that failed is in the way");
                before.into_iter().for_each(|item| seen.take(item));
                // No item is lost in the next laps.
                for lap in 0..20 {
                    let lap: Vec<_> = (0..6).map(|number| entry(own, 6 * lap + number)).collect();
                    assert_eq!(ends.push_all(&lap)?, 6);
                    assert_eq!(ends.pop_many(9)?, lap);
                }
            }
            me.barrier()?;
            queue.free(me)
        })
        .unwrap();
    }
}

/// A job of four processes, of which the last is lost at any moment of a push. The others go on
/// pushing and popping for many laps, and each of their items is popped once.
struct Loss {
    implementation: Implementation,
    in_batches: bool,
    /// All workers pop, and not only the first one.
    all_pop: bool,
    /// The promise when the other workers are done.
    last_pops: Promise,
}

impl Loss {
    /// Returns the number of slots that the loss has retired.
    fn run(&self, seed: u64) -> u64 {
        let dying = ProcessId::new(3);
        let popped = Mutex::new(HashMap::<u64, BTreeSet<u64>>::new());
        let (ends_of_jobs, retired) = (Mutex::new(0), Mutex::new(0));
        let death = Duration::from_micros(400 + 1_700 * seed / 1000) + Duration::from_nanos(1_337 * seed);
        let simulated = Simulation::new(4, 1, seed).kill(dying, death).run(|me| {
            self.body(me, dying, &popped, &retired)?;
            *ends_of_jobs.lock().unwrap() += 1;
            Ok(())
        });
        let which = format!("{:?}, in batches {}, seed {seed}", self.implementation, self.in_batches);
        assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
        assert_eq!(ends_of_jobs.into_inner().unwrap(), 3, "{which}");
        let popped = popped.into_inner().unwrap();
        for pusher in [1, 2] {
            assert!(popped[&pusher].iter().copied().eq(0..popped[&pusher].len() as u64), "{which}: an item is missing");
        }
        // With checksums, the lost process may have put the last items of its last batch, and not
        // the first ones. A popper of it has no items of it any more.
        if self.implementation != Implementation::Checksum {
            let lost = popped.get(&3).cloned().unwrap_or_default();
            assert!(lost.iter().copied().eq(0..lost.len() as u64), "{which}: the lost process's items have a gap");
        }
        // Only the lost process's last push has left slots behind.
        let retired = retired.into_inner().unwrap();
        let most = if self.in_batches { 4 } else { 1 };
        assert!(retired <= most, "{which}: {retired} slots are retired");
        retired
    }

    fn body(
        &self,
        me: &Worker,
        dying: ProcessId,
        popped: &Mutex<HashMap<u64, BTreeSet<u64>>>,
        retired: &Mutex<u64>,
    ) -> Result<()> {
        let (capacity, most, more) = if self.in_batches { (20, 4, 80) } else { (6, 1, 40) };
        let queue = Queue::with_implementation(me, ProcessId::new(0), capacity, self.implementation)?;
        let done = PerWorker::new(me, Cell::new(0_u32))?;
        let (ends, own) = (queue.on(me), me.id().number());
        let seen = RefCell::new(Seen::default());
        let take = |item: Entry| {
            seen.borrow_mut().take(item);
            assert!(popped.lock().unwrap().entry(item[0]).or_default().insert(item[1]), "{item:?} was popped twice");
        };
        let end = me.now() + limit();
        if own != 0 {
            let next = Cell::new(0);
            let push = || {
                let items: Vec<_> = (next.get()..next.get() + most).map(|number| entry(own, number)).collect();
                let pushed =
                    if self.in_batches { ends.push_all(&items)? } else { u64::from(ends.push(items[0])?.is_ok()) };
                next.set(next.get() + pushed);
                if self.all_pop && me.process() != dying {
                    ends.pop()?.into_iter().for_each(take);
                }
                me.progress()?;
                assert!(me.now() < end, "worker {own} is stuck");
                Ok::<_, Error>(next.get())
            };
            while me.process() == dying || !me.is_lost(dying) {
                push()?;
            }
            let target = push()? + more;
            while push()? < target {}
            return Ok(me.call(WorkerId::new(0), done, |there, done| done.here(there).set(done.here(there).get() + 1))?);
        }
        for round in 0.. {
            let is_over = done.here(me).get() == 2;
            if is_over && ends.is_empty()? {
                break;
            }
            match round % 3 {
                _ if is_over => ends.pop_with(self.last_pops)?.into_iter().for_each(take),
                0 => ends.pop_many(4)?.into_iter().for_each(take),
                _ => ends.pop()?.into_iter().for_each(take),
            }
            me.progress()?;
            assert!(me.now() < end, "stuck with {:?}", ends.len());
        }
        // A collective of it fails, and the queue goes on.
        assert!(matches!(queue.free(me), Err(Error::PeerLost { .. })));
        for number in 0..2 * more {
            let item = entry(own, number);
            assert_eq!(ends.push(item)?, Ok(()));
            assert_eq!(ends.pop()?, Some(item));
        }
        *retired.lock().unwrap() = ends.retired_slots()?;
        Ok(())
    }
}

#[test]
fn a_lost_pusher_stops_no_other() {
    let mut retired = HashMap::<_, u64>::new();
    for seed in 0..scaled(1).clamp(2, 6) {
        for in_batches in [false, true] {
            for implementation in STAMPED {
                let last_pops = [Promise::ALL, Promise::POP_ONLY, Promise::LOCAL][seed as usize % 3];
                let loss = Loss { implementation, in_batches, all_pop: seed % 2 == 1, last_pops };
                *retired.entry((implementation, in_batches)).or_default() += loss.run(seed);
            }
        }
    }
    // In few cases a part of a batch has arrived.
    for seed in 6..6 + scaled(2).min(18) {
        let last_pops = Promise::ALL;
        let implementation = Implementation::OneSided;
        let loss = Loss { implementation, in_batches: true, all_pop: seed % 2 == 1, last_pops };
        *retired.entry((implementation, true)).or_default() += loss.run(seed);
    }
    // A slot that a lost process may yet write is not used again.
    assert!(retired.len() == 4 && (depth() < 10.0 || retired.values().all(|slots| *slots > 0)), "{retired:?}");
    let by_calls =
        Loss { implementation: Implementation::Call, in_batches: true, all_pop: true, last_pops: Promise::ALL };
    assert_eq!(by_calls.run(1), 0);
}

/// A worker that is lost while it pops takes no more than the item that it is popping. All others
/// are popped once, and so is what is pushed later.
#[test]
fn a_lost_popper_leaves_what_is_pushed_later() {
    const ITEMS: u64 = 3000;
    let mut taken = 0;
    let seeds = scaled(8);
    for seed in 0..seeds {
        let implementation = STAMPED[seed as usize % 2];
        let promise = [Promise::ALL, Promise::POP_ONLY][seed as usize / 2 % 2];
        let dying = ProcessId::new(1);
        let death = Duration::from_micros(400) + Duration::from_nanos(3_337 * seed);
        let (popped, ended) = (Mutex::new(Vec::new()), Mutex::new(false));
        let simulated = Simulation::new(2, 1, seed).kill(dying, death).run(|me| {
            let queue = Queue::with_implementation(me, ProcessId::new(0), ITEMS, implementation)?;
            let ends = queue.on(me);
            if me.is_first() {
                assert_eq!(ends.push_all(&(0..ITEMS).collect::<Vec<_>>())?, ITEMS);
            }
            me.barrier()?;
            while me.process() == dying || !me.is_lost(dying) {
                if me.process() == dying
                    && let Some(item) = ends.pop_with(promise)?
                {
                    popped.lock().unwrap().push(item);
                }
                me.progress()?;
            }
            let by_lost = popped.lock().unwrap().len() as u64;
            assert!(by_lost < ITEMS, "it is lost before it has popped all");
            assert!(popped.lock().unwrap().iter().copied().eq(0..by_lost));
            let rest = ends.pop_many_with(promise, ITEMS as usize)?;
            let first = ITEMS - rest.len() as u64;
            assert!(by_lost <= first && first <= by_lost + 1, "{by_lost} and {} were popped", rest.len());
            assert!(rest.into_iter().eq(first..ITEMS), "{implementation:?}, seed {seed}");
            for number in 0..30 {
                assert_eq!(ends.push(number)?, Ok(()));
                assert_eq!(ends.pop()?, Some(number), "{implementation:?}, seed {seed}");
            }
            *ended.lock().unwrap() = true;
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert!(ended.into_inner().unwrap(), "{implementation:?}, seed {seed}");
        taken += u64::from(!popped.into_inner().unwrap().is_empty());
    }
    assert!(taken > seeds / 2, "only {taken} were lost while they popped");
}

/// A lost host ends waits, and all that follows, with an error that names it.
#[test]
fn a_lost_host_is_named() {
    for implementation in ALL {
        let dying = ProcessId::new(1);
        let told = Mutex::new(0);
        let simulated = Simulation::new(3, 1, 5).kill(dying, Duration::from_millis(3)).run(|me| {
            let queue = Queue::<u64>::with_implementation(me, dying, 4, implementation)?;
            let ends = queue.on(me);
            let names = |outcome: Result<()>| {
                assert!(matches!(outcome, Err(Error::PeerLost { process, .. }) if process == dying), "{outcome:?}");
            };
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            names(ends.pop_within(limit()).map(drop));
            names(ends.push(1).map(drop));
            names(ends.pop().map(drop));
            names(ends.len().map(drop));
            names(queue.free(me));
            *told.lock().unwrap() += 1;
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
        assert_eq!(told.into_inner().unwrap(), 2, "{implementation:?}");
    }
}
