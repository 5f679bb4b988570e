//! Programs whose accesses are ordered. The checker reports nothing.

use farside::global::GlobalError;
use std::sync::Mutex;

use farside::prelude::*;
use farside::{
    AddressFault, AtomicChange, Comparison, Error, GlobalPtr, Order, Result, ResultPlace, Signal, Simulation,
};
use farside_kit::sync::{Combining, LockManager};

use super::support::{Blind, Body, by_processes, serve, simulated, word};

use crate::support::room;

/// All workers write, meet, read what another wrote, and meet again.
fn by_barriers(me: &Worker) -> Result<()> {
    let count = me.worker_count();
    let own = me.id().number();
    for round in 0..10_u32 {
        for process in 0..me.process_count() {
            word(process, own).put(me, u64::from(own + round))?;
        }
        me.barrier()?;
        let other = (own + round) % count;
        for process in 0..me.process_count() {
            assert_eq!(word(process, other).get(me)?, u64::from(other + round));
        }
        me.barrier()?;
    }
    Ok(())
}

/// The root writes for all workers and announces it by a value.
fn by_values(me: &Worker) -> Result<()> {
    let root = WorkerId::new(me.worker_count() - 1);
    let at = word(0, 40);
    for round in 0..5 {
        if me.id() == root {
            at.put(me, round)?;
        }
        let told = me.broadcast(root, (me.id() == root).then_some(round))?;
        assert_eq!(at.get(me)?, told);
        // All have read it once the root has heard from all.
        me.gather(root, ())?;
    }
    me.barrier()
}

type Errand = (GlobalPtr<u64>, u64);

/// A function reads what was put before its call, and leaves another value.
fn change(there: &Worker, (at, round): Errand) {
    assert_eq!(at.get(there).unwrap(), round);
    at.put(there, round + 100).unwrap();
}

/// One worker puts a value into memory of another's process, has it changed there, and reads the
/// result, in many ways.
fn by_calls(me: &Worker) -> Result<()> {
    let next = me.neighbor(1);
    let there = me.process_of(next);
    let at = word(there.number(), 50 + me.id().number());
    let own = me.allocate_at(me.process(), 128)?;
    let mut round = 0;
    let mut exchange = |how: &dyn Fn(Errand) -> Result<()>| -> Result<()> {
        round += 1;
        at.put(me, round)?;
        how((at, round))?;
        assert_eq!(at.get(me)?, round + 100);
        Ok(())
    };
    for _ in 0..3 {
        exchange(&|order| me.call_return(next, order, change)?.wait())?;
        exchange(&|order| me.to(next).send_based().call_return(order, change)?.wait())?;
        exchange(&|order| {
            let done = me.synchronizer(1)?;
            me.to(next).notify(&done, On::Executed).call(order, change)?;
            done.wait()
        })?;
        exchange(&|order| {
            // The previous record leaves a batch open.
            let batch = me.aggregate(next);
            batch.call((), |_, ()| ())?;
            batch.call(order, change)?;
            drop(batch);
            me.call_return(next, (), |_, ()| ())?.wait()
        })?;
        exchange(&|order| {
            let place = ResultPlace::<u64>::new(me, own, 0, 64)?;
            let changed = |there: &Worker, order: Errand| {
                change(there, order);
                order.1
            };
            me.to(next).call_into(order, changed, place)?;
            assert_eq!(place.wait(me)?, order.1);
            Ok(())
        })?;
        exchange(&|order| {
            let done: GlobalPtr<u64> = own.address()?.cast::<u64>().add(8)?;
            done.store(me, 0)?;
            me.to(next).signalling(done, Signal::Add(1)).call(order, change)?;
            done.wait_until(me, Comparison::Eq, 1).map(drop)
        })?;
        exchange(&|order| {
            let later = me.call_with_reply(next, order, |there, order, reply: Reply<()>| {
                change(there, order);
                let asked = there.call_return(there.neighbor(1), (), |_, ()| ());
                asked.map(|asked| asked.then(|_, _| reply.send(()))).unwrap();
            });
            later?.wait()
        })?;
        exchange(&|order| {
            let pool = me.pool_of(there).expect("there are some");
            me.call_return(pool, order, change)?.wait()
        })?;
        exchange(&|order| {
            me.call(next, order, change)?;
            me.shutdown(next)
        })?;
        exchange(&|order| {
            let done = me.synchronizer(me.worker_count())?;
            me.everyone().notify(&done).call((order, there), |there, (order, process)| {
                // Only the first worker of that process.
                if there.process() == process && there.thread_index() == 0 {
                    change(there, order);
                }
            })?;
            done.wait()
        })?;
    }
    me.release(own)?;
    me.barrier()
}

/// All workers add to a number by reading and writing it under a lock.
fn by_locks(me: &Worker) -> Result<()> {
    let locks = LockManager::new(me)?;
    let number = word(0, 90);
    let before = number.load(me)?;
    me.barrier()?;
    for _ in 0..10 {
        let guard = locks.named(me, "number").lock()?;
        number.put(me, number.get(me)? + 1)?;
        drop(guard);
    }
    me.barrier()?;
    assert_eq!(number.get(me)?, before + 10 * u64::from(me.worker_count()));
    me.barrier()
}

/// An atomically changed word announces writes to other words.
fn by_words(me: &Worker) -> Result<()> {
    let turn = word(0, 100);
    let value = word(me.process_count() - 1, 101);
    let count = u64::from(me.worker_count());
    for round in 0..5 {
        let own = round * count + u64::from(me.id().number());
        while turn.load(me)? != own {
            serve(me)?;
        }
        if own > 0 {
            assert_eq!(value.get(me)?, own - 1);
        }
        value.put(me, own)?;
        assert_eq!(turn.fetch_add(me, 1)?, own);
    }
    me.barrier()?;
    if me.id().number() == 0 {
        // No worker uses it atomically any more.
        turn.put(me, 0)?;
    }
    me.barrier()
}

/// Threads of one process meet at a value and at a mutex, of which the checker knows.
fn by_threads(me: &Worker) -> Result<()> {
    let combining = Dist::new(me, || Combining::new(0_u32))?;
    let mutex = Dist::new(me, || Mutex::new(0_u32))?;
    let at = word(me.process().number(), 110);
    let mine = me.thread_index() as u32;
    while combining.here(me).run(|turn| *turn)? != mine {
        serve(me)?;
    }
    at.put(me, mine.into())?;
    combining.here(me).run(|turn| *turn += 1)?;
    while *mutex.here(me).lock().unwrap() != mine {
        serve(me)?;
    }
    let others = me.threads_per_process() - 1;
    while combining.here(me).run(|turn| *turn)? <= others {
        serve(me)?;
    }
    at.put(me, 5)?;
    me.end_accesses();
    *mutex.here(me).lock().unwrap() += 1;
    me.barrier()
}

/// Memory that one worker has released serves another. Its earlier accesses conflict with nothing.
fn memory_is_used_again(me: &Worker) -> Result<()> {
    let owner = ProcessId::new(me.process_count() - 1);
    let blind = Blind::new(me)?;
    if me.id().number() < 2 {
        let turn = u64::from(me.id().number());
        for round in 0..5 {
            blind.wait_for(me, 2 * round + turn)?;
            let memory = me.allocate_at(owner, 512)?;
            memory.put(me, 0, &[1; 512])?;
            me.release(memory)?;
            blind.reach(me, 2 * round + turn + 1)?;
        }
    }
    me.barrier()
}

/// Copies carry a word through the processes, each after the previous one. Another word announces
/// its arrival. A worker that sees this word reads what the copies have written, whatever their
/// initiator knows.
fn by_started_operations(me: &Worker) -> Result<()> {
    let count = me.process_count();
    // A worker's words in the process at a distance from its own.
    let place = |worker: WorkerId, distance: u32, number: u32| {
        let process = (me.process_of(worker).number() + distance) % count;
        word(process, 200 + 16 * worker.number() + number)
    };
    let own = |distance, number| place(me.id(), distance, number);
    let before = me.neighbor(me.worker_count() - 1);
    for round in 1..=6_u64 {
        own(0, 0).put(me, round)?;
        let copy = |to: GlobalPtr<u64>, from: GlobalPtr<u64>, order| me.copy(to.address(), from.address(), 8, order);
        let beside = me.start_put_owned(own(1, 6).address(), round.to_ne_bytes().repeat(2), Order::None)?;
        let first = copy(own(1, 1), own(0, 0), Order::None)?;
        let second = copy(own(2, 2), own(1, 1), Order::After(first))?;
        copy(own(2, 3), own(1, 1), Order::Continuing)?;
        // Writes the same bytes again.
        let last = copy(own(2, 2), own(1, 1), Order::All)?;
        assert!(second < last);
        let told = match round % 3 {
            0 => me.start_put(own(2, 4).address(), &round.to_ne_bytes(), Order::After(last))?,
            1 => {
                me.fence_all();
                me.start_put(own(2, 4).address(), &round.to_ne_bytes(), Order::None)?
            }
            _ => me.change_into(own(0, 5), own(1, 4), AtomicChange::Swap(round), Order::All)?,
        };
        let flag = place(before, if round % 3 == 2 { 1 } else { 2 }, 4);
        while flag.load(me)? != round {
            serve(me)?;
        }
        for (distance, number) in [(1, 1), (2, 2), (1, 6), (1, 7)] {
            assert_eq!(place(before, distance, number).get(me)?, round);
        }
        me.complete(told)?;
        assert_eq!(beside.take(me)?.len(), 16);
        assert_eq!(own(2, 3).get(me)?, round);
        me.barrier()?;
    }
    Ok(())
}

/// A worker that sees the signal of a started put reads its data, even before the initiator knows
/// that the put is complete.
fn by_started_signals(me: &Worker) -> Result<()> {
    const WORDS: usize = 40;
    let shared = me.symmetric::<u64>(me.worker_count() as usize * (WORDS + 1))?;
    // The words that a worker writes in the next process, and their signal.
    let place = |worker: WorkerId| {
        let process = ProcessId::new((me.process_of(worker).number() + 1) % me.process_count());
        let begin = worker.index() * (WORDS + 1);
        let all = shared.at(process)?;
        Ok::<_, Error>((all.part(begin..begin + WORDS)?, all.at(begin + WORDS)?))
    };
    let (there, signal) = place(me.id())?;
    let (data, heard) = place(me.neighbor(me.worker_count() - 1))?;
    for round in 1..=6_u64 {
        let before = me.start_put(there.start().address(), &[0; 8], Order::None)?;
        let order = [Order::After(before), Order::All, Order::Continuing][round as usize % 3];
        let bytes = round.to_ne_bytes().repeat(WORDS);
        let sent = me.start_put_signal(there.start().address(), bytes, signal, Signal::Set(round), order);
        let sent = sent.map_err(|refused| refused.error)?;
        while heard.load(me)? != round {
            serve(me)?;
        }
        assert_eq!(data.to_vec(me)?, [round; WORDS]);
        assert_eq!(sent.take(me)?.len(), 8 * WORDS);
        me.barrier()?;
    }
    shared.free(me)
}

/// A refused put writes nothing and conflicts with nothing.
fn refused_operations_leave_no_trace(me: &Worker) -> Result<()> {
    let blind = Blind::new(me)?;
    let segment = me.register_read_only(vec![9_u64; 8])?;
    let root = WorkerId::new(0);
    let starts = me.broadcast(root, me.gather(root, segment.slice().start())?)?;
    let at = starts[me.worker_count() as usize - 1];
    match me.id().number() {
        0 => {
            let refused = at.put(me, 1);
            assert!(
                matches!(room(&refused), Some(GlobalError::Address { why: AddressFault::ReadOnly, .. })),
                "{refused:?}"
            );
            let started = me.start_put(at.address(), &[1; 24], Order::None)?;
            assert!(me.complete(started).is_err());
            blind.reach(me, 1)?;
        }
        1 => {
            blind.wait_for(me, 1)?;
            assert_eq!(at.get(me)?, 9);
        }
        _ => {}
    }
    me.barrier()?;
    segment.deregister(me)?;
    me.barrier()
}

const BODIES: [Body; 10] = [
    by_barriers,
    by_values,
    by_calls,
    by_locks,
    by_words,
    by_threads,
    by_started_operations,
    by_started_signals,
    refused_operations_leave_no_trace,
    memory_is_used_again,
];

fn all(me: &Worker) -> Result<()> {
    BODIES.into_iter().try_for_each(|body| body(me))?;
    let checks = me.access_checks().expect("it is checked");
    assert!(checks.accesses > 0 && checks.forgotten == 0, "{checks:?}");
    Ok(())
}

#[test]
fn pass_by_processes() {
    by_processes("accesses::ordered::pass_by_processes", "shm", 3, 2, all);
}

mod deep {
    use super::*;

    #[test]
    fn pass_over_libfabric() {
        by_processes("accesses::ordered::deep::pass_over_libfabric", "ofi:tcp", 3, 1, all);
    }
}

#[test]
fn pass_in_the_simulator() {
    simulated(2, 3, all);
}

#[test]
fn are_not_looked_at_unless_they_are_to_be() {
    let simulation = Simulation::new(2, 1, 1).check_accesses(false);
    let run = simulation.run(|me| {
        assert_eq!(me.access_checks(), None);
        by_barriers(me)
    });
    run.unwrap().verdict.unwrap();
}
