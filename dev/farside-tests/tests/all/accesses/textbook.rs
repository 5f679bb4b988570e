//! The textbook race: one worker puts, and the owner of the memory reads, also by its own slice.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use farside::prelude::*;
use farside::{Error, Result, Symmetric};
use farside_kit::prelude::*;
use farside_kit::sync::LockManager;

use super::support::{Blind, Body, by_processes, serve, simulated, word};

/// The worker that does not own the memory, its owner, and one that does neither.
const OTHER: WorkerId = WorkerId::new(0);
const OWNER: WorkerId = WorkerId::new(1);
const THIRD: WorkerId = WorkerId::new(2);

type Memory = Symmetric<u64>;

/// An access to the first value of the owner's part. Returns the message of a conflict.
type Deed = fn(&Worker, &Memory) -> Option<String>;

/// The work of workers between two accesses.
type Between = fn(&Worker, &Tools) -> Result<()>;

/// The means by which workers meet.
struct Tools {
    blind: Blind,
    flag: PerWorker<Cell<u64>>,
    locks: LockManager,
    /// The number of the meeting.
    round: u64,
    /// The worker of the first access, and that of the second.
    first: WorkerId,
    second: WorkerId,
}

fn by_pointer(result: Result<()>) -> Option<String> {
    match result {
        Err(Error::Room(conflict)) => Some(conflict.to_string()),
        other => {
            other.unwrap();
            None
        }
    }
}

fn by_slice(access: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(access)).err()?;
    Some(panic.downcast_ref::<String>().expect("it has a message").clone())
}

fn part(me: &Worker, memory: &Memory) -> farside::GlobalSlice<u64> {
    memory.at(me.process_of(OWNER)).unwrap()
}

/// Accesses of a worker by address.
fn by_address() -> [(bool, Deed); 4] {
    [
        (true, |me, memory| by_pointer(part(me, memory).start().put(me, 1))),
        (true, |me, memory| by_pointer(part(me, memory).put(me, 0, &[1, 2]))),
        (false, |me, memory| by_pointer(part(me, memory).start().get(me).map(drop))),
        (false, |me, memory| by_pointer(part(me, memory).start().load(me).map(drop))),
    ]
}

/// Accesses of the owner by its slice.
fn of_own_slice() -> [(bool, Deed); 7] {
    [
        (true, |_, memory| by_slice(|| memory.here().set(0, 1))),
        (true, |_, memory| by_slice(|| memory.here().part(0..1).write(0, &[1]))),
        (true, |_, memory| by_slice(|| memory.here().fill(1))),
        (false, |_, memory| by_slice(|| assert!(memory.here().get(0) < 9))),
        (false, |_, memory| by_slice(|| memory.here().read(0, &mut [0; 2]))),
        (false, |_, memory| by_slice(|| drop(memory.here().to_vec()))),
        (false, |_, memory| by_slice(|| assert!(memory.here().iter().all(|value| value < 9)))),
    ]
}

fn memory(me: &Worker) -> Result<Memory> {
    me.symmetric(2)
}

/// Returns accesses of the worker that does not own the memory and of the owner. Either of them
/// writes, both do, or none.
fn pairs() -> impl Iterator<Item = ((bool, Deed), (bool, Deed))> {
    let by_owner = by_address().into_iter().chain(of_own_slice()).enumerate();
    by_owner.flat_map(|(number, owner)| [number, number + 2].map(|other| (by_address()[other % 4], owner)))
}

/// Makes accesses of the two workers, one after the other, with something in between. Each pair
/// comes twice, with the other order.
fn meet(me: &Worker, between: Between, check: fn(bool, Option<String>)) -> Result<()> {
    let memory = memory(me)?;
    let (blind, flag, locks) = (Blind::new(me)?, PerWorker::new(me, Cell::new(0))?, LockManager::new(me)?);
    let mut tools = Tools { blind, flag, locks, round: 0, first: OTHER, second: OWNER };
    for ((other_writes, other), (owner_writes, owner)) in pairs() {
        for (first, second) in [(OTHER, OWNER), (OWNER, OTHER)] {
            (tools.first, tools.second) = (first, second);
            tools.round += 1;
            let deed = |me| if me == OTHER { other } else { owner };
            if me.id() == second {
                // It has left the barrier, so it runs no call of the first one there.
                tools.blind.reach(me, 3 * tools.round)?;
            }
            if me.id() == first {
                tools.blind.wait_for(me, 3 * tools.round)?;
                assert_eq!(deed(first)(me, &memory), None, "nothing came before");
            }
            between(me, &tools)?;
            if me.id() == second {
                check(other_writes || owner_writes, deed(second)(me, &memory));
                tools.blind.reach(me, 3 * tools.round + 2)?;
            }
            if me.id() == first {
                // The third worker might hear of its access by the barrier, and then publish it.
                while !tools.blind.is_at(me, 3 * tools.round + 2) {
                    serve(me)?;
                }
            }
            me.barrier()?;
        }
    }
    me.barrier()?;
    memory.free(me)
}

fn refused(is_race: bool, conflict: Option<String>) {
    let Some(conflict) = conflict else { return assert!(!is_race, "the race was not found") };
    assert!(is_race, "{conflict}");
    assert_eq!(conflict.matches("textbook.rs").count(), 2, "{conflict}");
    assert!(conflict.contains("worker 0") && conflict.contains("worker 1"), "{conflict}");
}

fn allowed(_: bool, conflict: Option<String>) {
    assert_eq!(conflict, None);
}

impl Tools {
    /// Comes after what the first worker did so far, in time but not in order.
    fn later(&self, me: &Worker) -> Result<()> {
        match me.id() {
            id if id == self.first => self.blind.reach(me, 3 * self.round + 1),
            id if id == self.second => self.blind.wait_for(me, 3 * self.round + 1),
            // Serves until the next barrier.
            _ => Ok(()),
        }
    }

    fn raise(&self, there: &Worker) {
        self.flag.here(there).set(self.round);
    }
}

fn calls_to_the_third(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        me.call(THIRD, (), |_, ()| ())?;
        me.call_return(THIRD, (), |_, ()| ())?.wait()?;
        let done = me.synchronizer(1)?;
        me.to(THIRD).notify(&done, On::Executed).call((), |_, ()| ())?;
        done.wait()?;
    }
    tools.later(me)
}

/// The call has arrived, but the second worker has not run it.
fn calls_that_have_not_run(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        me.call(tools.second, (), |_, ()| ())?;
        me.call(THIRD, tools.second, |there, second| there.call(second, (), |_, ()| ()).unwrap())?;
    }
    tools.later(me)
}

/// The third worker atomically changes a word, and knows nothing of the first access.
fn atomics_of_the_third(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        me.call(tools.second, (), |_, ()| ())?;
    }
    if me.id() == THIRD {
        word(0, 50).fetch_add(me, 1)?;
        me.call(tools.second, (), |_, ()| ())?;
    }
    tools.later(me)
}

const UNORDERED: [Between; 3] = [calls_to_the_third, calls_that_have_not_run, atomics_of_the_third];

type Report = (PerWorker<Cell<u64>>, u64, WorkerId);

fn set_flag(there: &Worker, (flag, round, to): Report) {
    match there.id() == to {
        true => flag.here(there).set(round),
        false => there.call(to, (flag, round, to), set_flag).unwrap(),
    }
}

fn wait_for_flag(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.second {
        me.wait_while_serving(|| tools.flag.here(me).get() == tools.round)?;
    }
    Ok(())
}

fn by_barrier(me: &Worker, _: &Tools) -> Result<()> {
    me.barrier()
}

fn by_call(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        me.call(tools.second, (tools.flag, tools.round, tools.second), set_flag)?;
    }
    wait_for_flag(me, tools)
}

fn by_relayed_call(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        me.call(THIRD, (tools.flag, tools.round, tools.second), set_flag)?;
    }
    wait_for_flag(me, tools)
}

/// The second worker asks, and the first one or, relayed, the third one answers.
fn by_answer(me: &Worker, tools: &Tools) -> Result<()> {
    let asked = [tools.first, THIRD][tools.round as usize % 2];
    if me.id() == tools.first {
        tools.raise(me);
        if asked == THIRD {
            me.call(THIRD, (tools.flag, tools.round, THIRD), set_flag)?;
        }
    }
    let is_raised = |there: &Worker, (flag, round): (PerWorker<Cell<u64>>, u64)| flag.here(there).get() == round;
    if me.id() == tools.second {
        while !me.call_return(asked, (tools.flag, tools.round), is_raised)?.wait()? {}
    }
    Ok(())
}

/// The first worker calls the third one, which atomically changes the word.
fn by_word_of_the_third(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        me.call(THIRD, tools.round, |there, round| word(2, 51).store(there, round).unwrap())?;
    }
    if me.id() == tools.second {
        while word(2, 51).load(me)? != tools.round {
            serve(me)?;
        }
    }
    Ok(())
}

fn by_lock(me: &Worker, tools: &Tools) -> Result<()> {
    let lock = || tools.locks.named(me, "it").lock().map(drop);
    if me.id() == tools.first {
        lock()?;
        tools.later(me)?;
    }
    if me.id() == tools.second {
        // It may be the one that grants the lock.
        while !tools.blind.is_at(me, 3 * tools.round + 1) {
            serve(me)?;
        }
        lock()?;
    }
    Ok(())
}

fn by_pipe(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        let mut pipe = me.pipe(tools.second).number(tools.round as u32).writer()?;
        pipe.write(b"it")?;
        let _ = pipe.close()?;
    }
    if me.id() == tools.second {
        assert_eq!(*me.pipe(tools.first).number(tools.round as u32).reader()?.recv()?, *b"it");
    }
    Ok(())
}

/// A thread of the pool knows of the access, and a thread that finds the pool idle knows so, too.
fn by_pool_and_quiescence(me: &Worker, tools: &Tools) -> Result<()> {
    if me.id() == tools.first {
        let pool = me.pool_of(me.process_of(THIRD)).expect("there is one");
        me.call(pool, (tools.flag, tools.round, tools.second), set_flag)?;
    }
    wait_for_flag(me, tools)?;
    me.quiesce()
}

const ORDERED: [Between; 8] =
    [by_barrier, by_call, by_relayed_call, by_answer, by_word_of_the_third, by_lock, by_pipe, by_pool_and_quiescence];

/// Both workers enter the next barrier at once. Whichever comes second to the memory is refused,
/// whatever the timing.
fn between_two_barriers(me: &Worker) -> Result<()> {
    let (memory, blind) = (memory(me)?, Blind::new(me)?);
    for (step, ((other_writes, other), (owner_writes, owner))) in (1..).step_by(2).zip(pairs()) {
        // Both have left the barrier before, where they would run messages of the next one.
        match me.id() {
            OTHER => {
                blind.reach(me, step)?;
                blind.wait_for(me, step + 1)?;
            }
            OWNER => {
                blind.wait_for(me, step)?;
                blind.reach(me, step + 1)?;
            }
            _ => {}
        }
        let found = match me.id() {
            OTHER => other(me, &memory).is_some(),
            OWNER => owner(me, &memory).is_some(),
            _ => false,
        };
        let found = me.all_reduce(u32::from(found), |a, b| a + b)?;
        assert_eq!(found, u32::from(other_writes || owner_writes));
        me.barrier()?;
    }
    memory.free(me)
}

/// The writes of a function on a pool are known when all calls have run.
fn what_a_pool_did_is_known_at_quiescence(me: &Worker) -> Result<()> {
    let memory = memory(me)?;
    let at = part(me, &memory).start();
    for round in 1..10 {
        if me.id() == THIRD {
            let pool = me.pool_of(me.process()).expect("there is one");
            me.call(pool, (at, round), |there, (at, round)| at.put(there, round).unwrap())?;
        }
        me.quiesce()?;
        assert_eq!(at.get(me)?, round);
        if me.id() == OWNER {
            assert_eq!(memory.here().get(0), round);
        }
        me.barrier()?;
    }
    memory.free(me)
}

/// Registered memory has slices, too.
fn registered_memory(me: &Worker) -> Result<()> {
    let blind = Blind::new(me)?;
    let segment = me.register(vec![0_u64; 8])?;
    let mut lent = [0_u64; 8];
    me.lend(&mut lent, |lent| -> Result<()> {
        for (number, slice, local) in [(1, segment.slice(), segment.local()), (2, lent.slice(), lent.local())] {
            let at = me.broadcast(OWNER, Some(slice.at(3)?))?;
            match me.id() {
                OTHER => {
                    at.put(me, 5)?;
                    blind.reach(me, number)?;
                }
                OWNER => {
                    blind.wait_for(me, number)?;
                    assert_eq!(local.get(2), 0);
                    refused(true, by_slice(|| assert_eq!(local.get(3), 5)));
                }
                _ => {}
            }
            me.barrier()?;
            assert_eq!(local.get(3), if me.id() == OWNER { 5 } else { 0 });
            me.barrier()?;
        }
        Ok(())
    })??;
    assert_eq!(segment.deregister(me)?.len(), 8);
    me.barrier()
}

const BODIES: [Body; 3] = [between_two_barriers, what_a_pool_did_is_known_at_quiescence, registered_memory];

fn all(me: &Worker) -> Result<()> {
    UNORDERED.into_iter().try_for_each(|between| meet(me, between, refused))?;
    ORDERED.into_iter().try_for_each(|between| meet(me, between, allowed))?;
    BODIES.into_iter().try_for_each(|body| body(me))
}

#[test]
fn is_found_by_processes() {
    by_processes("accesses::textbook::is_found_by_processes", "shm", 3, 1, all);
}

mod deep {
    use super::*;

    #[test]
    fn is_found_over_libfabric() {
        by_processes("accesses::textbook::deep::is_found_over_libfabric", "ofi:tcp", 3, 1, all);
    }
}

#[test]
fn is_found_in_the_simulator() {
    simulated(1, 3, all);
}
