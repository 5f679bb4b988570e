//! Waiting until all calls have run, and phases.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::prelude::*;
use farside::{Error, FullCause, Result, ResultPlace, Simulation, simulate};

use crate::support::failure;

type Count = PerWorker<Cell<u64>>;

fn add(there: &Worker, (count, x): (Count, u64)) {
    count.here(there).set(count.here(there).get() + x);
}

fn total(me: &Worker, count: Count) -> Result<u64> {
    me.all_reduce(count.here(me).get(), |a, b| a + b)
}

everywhere! {
    as_processes(processes = 2, threads = 2),
    simulated(processes = 3, threads = 2, seeds = 1);
    a_tree_of_calls
    all_forms_of_calls
    a_chain_through_answers
    results_in_memory
    handlers_find_room
}

fn grow(there: &Worker, (count, depth): (Count, u32)) {
    add(there, (count, 1));
    if depth > 0 {
        for distance in [1, 2] {
            there.call(there.neighbor(distance), (count, depth - 1), grow).unwrap();
        }
    }
}

fn a_tree_of_calls(me: &Worker) -> Result<()> {
    let count = Count::new(me, Cell::new(0))?;
    for round in 1..=3 {
        me.call(me.neighbor(1), (count, 9), grow)?;
        me.quiesce()?;
        assert_eq!(total(me, count)?, round * u64::from(me.worker_count()) * 1023);
    }
    // With nothing to wait for, and several times in a row.
    me.quiesce()?;
    me.quiesce()
}

fn results_in_memory(me: &Worker) -> Result<()> {
    for owner in 0..me.process_count() {
        let memory = me.allocate_at(ProcessId::new(owner), 64)?;
        let place = ResultPlace::<u64>::new(me, memory, 0, 64)?;
        for round in 1..=3_u64 {
            me.to(me.neighbor(1)).call_into(round, |_, x| 2 * x, place)?;
            me.quiesce()?;
            assert_eq!(place.poll(me)?, Some(2 * round));
            place.clear(me)?;
        }
        me.release(memory)?;
    }
    Ok(())
}

fn all_forms_of_calls(me: &Worker) -> Result<()> {
    let count = Count::new(me, Cell::new(0))?;
    let add_bytes = |there: &Worker, count: Count, bytes: &[u8]| add(there, (count, bytes.len() as u64));
    for round in 1..=3 {
        let mut held = Vec::new();
        let open = me.aggregate_all();
        let mut late = Vec::new();
        for to in me.workers() {
            me.call(to, (count, 1), add)?;
            me.to(to).send_based().call((count, 1), add)?;
            me.to(to).when_full(WhenFull::Queue).call((count, 1), add)?;
            me.call_buffer(to, count, &[0; 100], add_bytes)?;
            held.push(me.to(to).call_buffer_get(count, me.allocate(1000)?, add_bytes)?);
            held.push(me.to(to).call_buffer_get_unordered(count, me.allocate(10_000)?, add_bytes)?);
            (0..7).try_for_each(|_| open[to].call((count, 1), add))?;
            late.push(me.aggregate(to).flush_within(Duration::from_secs(3600)));
            late[to.index()].call((count, 1), add)?;
        }
        me.everyone().call((count, 1), add)?;
        me.scope(|scope| {
            scope.spawn(|caller| caller.workers().for_each(|to| caller.call(to, (count, 1), add).unwrap()))
        })??;
        me.quiesce()?;
        assert_eq!(count.here(me).get(), round * u64::from(me.worker_count()) * (3 + 11_100 + 8 + 2));
        me.barrier()?;
        held.into_iter().try_for_each(|lent| lent.wait().map(drop))?;
    }
    Ok(())
}

/// Continuations make calls, too.
fn a_chain_through_answers(me: &Worker) -> Result<()> {
    fn ask(there: &Worker, (count, left): (Count, u64)) {
        let answer = there.call_return(there.neighbor(1), left, |_, left| left - 1).unwrap();
        answer.then(move |there, left| {
            add(there, (count, 1));
            match left.unwrap() {
                0 => {}
                left => there.call(there.neighbor(1), (count, left), ask).unwrap(),
            }
        });
    }
    let count = Count::new(me, Cell::new(0))?;
    me.call(me.neighbor(1), (count, 20), ask)?;
    me.quiesce()?;
    assert_eq!(total(me, count)?, 20 * u64::from(me.worker_count()));
    Ok(())
}

/// A handler makes more calls than the queue of its worker holds, through its worker's ring or
/// through a shared ring.
fn handlers_find_room(me: &Worker) -> Result<()> {
    const CALLS: u64 = 20_000;
    type Flood = (Count, Count, bool, bool);
    fn flood(there: &Worker, (ran, refused, is_queued, on_shared_ring): Flood) {
        let to = there.to(there.id());
        let to = if is_queued { to.when_full(WhenFull::Queue) } else { to };
        let to = if on_shared_ring { to.send_based() } else { to };
        for _ in 0..CALLS {
            if let Err(error) = to.call((ran, [0_u64; 32]), |there, (ran, _)| add(there, (ran, 1))) {
                assert!(matches!(error.error, Error::Full { cause: FullCause::Queue { .. }, .. }), "{}", error.error);
                add(there, (refused, 1));
            }
        }
    }
    let (ran, refused) = (Count::new(me, Cell::new(0))?, Count::new(me, Cell::new(0))?);
    for (is_queued, on_shared_ring) in [(false, false), (false, true), (true, false), (true, true)] {
        me.call(me.id(), (ran, refused, is_queued, on_shared_ring), flood)?;
        me.quiesce()?;
        let (ran, refused) = (ran.here(me).take(), refused.here(me).take());
        assert_eq!((ran + refused, refused > 0), (CALLS, is_queued), "{ran} ran, {refused} were refused");
        me.barrier()?;
    }
    assert!(me.counters().sent.staged_bytes_max > 1 << 20, "{:?}", me.counters());
    Ok(())
}

#[test]
fn shares_make_up_the_range() {
    for length in [0, 1, 4, 5, 1000, usize::MAX - 7] {
        simulate(5, 1, 1, |me| {
            let own = me.share(7..7 + length);
            let mut shares = me.gather(WorkerId::FIRST, (own.start, own.end))?.unwrap_or_default();
            if me.is_first() {
                let lengths: Vec<usize> = shares.iter().map(|(start, end)| end - start).collect();
                assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1, "{lengths:?}");
                shares.push((7 + length, 0));
                assert!(shares.windows(2).all(|pair| pair[0].1 == pair[1].0) && shares[0].0 == 7);
            }
            Ok(())
        })
        .unwrap();
    }
}

/// Worker 0 makes many calls to worker 3, and all meet. Returns how many have not run then.
fn missing_after(meet: fn(&Worker) -> Result<()>, seed: u64) -> u64 {
    const CALLS: u64 = 2000;
    let missing = AtomicU64::new(0);
    simulate(4, 1, seed, |me| {
        let count = Count::new(me, Cell::new(0))?;
        if me.id().number() == 0 {
            let third = me.aggregate(WorkerId::new(3));
            (0..CALLS).try_for_each(|_| third.call((count, 1), add))?;
        }
        meet(me)?;
        if me.id().number() == 3 {
            missing.store(CALLS - count.here(me).get(), Ordering::Relaxed);
        }
        me.barrier()
    })
    .unwrap();
    missing.into_inner()
}

#[test]
fn a_barrier_is_not_enough_but_quiesce_is() {
    assert!((0..20).any(|seed| missing_after(Worker::barrier, seed) > 0), "this program does not tell them apart");
    assert!((0..20).all(|seed| missing_after(Worker::quiesce, seed) == 0));
}

type Steps = PerWorker<RefCell<Vec<u64>>>;

fn call_all(me: &Worker, steps: Steps, step: u64) -> Result<()> {
    for to in me.workers() {
        me.call(to, (steps, step), |there, (steps, step)| steps.here(there).borrow_mut().push(step))?;
    }
    Ok(())
}

fn by_all_reduce(me: &Worker, steps: Steps, step: u64) -> Result<Vec<u64>> {
    call_all(me, steps, step)?;
    me.quiesce()?;
    me.all_reduce(0, |a: u64, b| a + b)?;
    Ok(steps.here(me).take())
}

fn by_quiesce(me: &Worker, steps: Steps, step: u64) -> Result<Vec<u64>> {
    call_all(me, steps, step)?;
    me.quiesce()?;
    Ok(steps.here(me).take())
}

fn by_superstep(me: &Worker, steps: Steps, step: u64) -> Result<Vec<u64>> {
    me.superstep(|| call_all(me, steps, step), || steps.here(me).take())
}

/// In every step each worker calls all workers. Returns whether one took calls of other steps.
fn mixes_steps(run: fn(&Worker, Steps, u64) -> Result<Vec<u64>>, seed: u64) -> bool {
    let mixed = AtomicU64::new(0);
    simulate(5, 1, seed, |me| {
        let steps = Steps::new(me, RefCell::default())?;
        for step in 0..10 {
            let taken = run(me, steps, step)?;
            let is_whole = taken == vec![step; me.worker_count() as usize];
            mixed.fetch_add((!is_whole).into(), Ordering::Relaxed);
        }
        me.barrier()
    })
    .unwrap();
    mixed.into_inner() > 0
}

#[test]
fn supersteps_do_not_mix() {
    for insufficient in [by_all_reduce, by_quiesce] {
        assert!((0..20).any(|seed| mixes_steps(insufficient, seed)), "this program does not tell them apart");
    }
    assert!(!(0..20).any(|seed| mixes_steps(by_superstep, seed)));
}

/// A continuation whose result does not come, and a loss, end the wait with an error.
#[test]
fn it_does_not_wait_for_ever() {
    type Kept = PerWorker<RefCell<Vec<Reply<u64>>>>;
    let simulation = Simulation::new(3, 1, 7).deadline(Duration::from_millis(10));
    let simulated = simulation.clone().run(|me| {
        let kept = Kept::new(me, RefCell::default())?;
        if me.id().number() == 0 {
            let answer = me.call_with_reply(me.neighbor(1), kept, |there, kept, reply| {
                kept.here(there).borrow_mut().push(reply);
            })?;
            answer.then(|_, _| ());
        }
        let late = me.quiesce();
        // The first worker that gives up returns, so the others cannot go on.
        let expected = matches!(late, Err(Error::Deadline { .. } | Error::CollectiveMismatch { .. }));
        assert!(expected, "{late:?}");
        kept.here(me).take().into_iter().for_each(|reply| reply.send(1));
        Ok(())
    });
    simulated.unwrap().verdict.unwrap();

    let (victim, survivors) = (ProcessId::new(1), AtomicU64::new(0));
    let simulated = simulation.kill(victim, Duration::from_micros(300)).run(|me| {
        let error = loop {
            if let Err(error) = me.quiesce() {
                break error;
            }
        };
        let is_lost = matches!(error, Error::PeerLost { process, .. } if process == victim);
        survivors.fetch_add(is_lost.into(), Ordering::Relaxed);
        Ok(())
    });
    assert_eq!(failure(simulated.unwrap().verdict).0, victim.number());
    assert_eq!(survivors.into_inner(), 2);
}
