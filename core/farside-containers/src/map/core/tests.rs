//! Details that no program sees: slots that others take away, requests whose answers are late, and
//! memory.

use std::sync::Mutex;
use std::time::Duration;

use farside::{GlobalPtr, Result, SimOptions, Simulation, Worker, WorkerId, simulate};

use super::*;
use crate::cost::CostModel;
use crate::map::{HashMap, Inserted, Map};

type Numbers<'w> = Map<'w, u64, u64>;

/// Runs a body with a map, whose memory is mapped with one process and not with more.
fn with_map(capacity: usize, body: impl Fn(&Worker, &Numbers<'_>) -> Result<()> + Sync) {
    for (processes, threads, seed) in [(1, 1, 1), (1, 3, 2), (3, 1, 3), (4, 1, 4), (5, 1, 5)] {
        let simulated = simulate(processes, threads, seed, |me| {
            let map = HashMap::<u64, u64>::new(me, capacity)?;
            body(me, &map.on(me))?;
            me.barrier()?;
            map.free(me)
        });
        simulated.unwrap_or_else(|error| panic!("{processes} x {threads}: {error}"));
    }
}

/// A key that another worker owns, if there is one.
fn foreign(me: &Worker, m: &Numbers<'_>) -> u64 {
    let own = u64::from(me.id().number()) << 32;
    (own..own + 100).find(|key| m.owner_of(key) != me.id()).unwrap_or(own)
}

/// The first slot of a key.
fn slot_of(m: &Numbers<'_>, key: u64) -> (GlobalPtr<u64>, Spot) {
    let spot = m.core.spot(&key);
    let part = m.core.part(spot.owner).unwrap();
    let index = spot.probes(part).next().expect("a part has slots");
    (part.slot(index, m.core.state.layout).unwrap(), spot)
}

/// A worker that others took for lost does not overwrite what they did since.
#[test]
fn a_late_publication_is_refused() {
    with_map(1000, |me, m| {
        for is_there in [false, true] {
            let (core, key) = (&m.core, foreign(me, m) + u64::from(is_there));
            if is_there {
                m.insert(key, 1)?;
            }
            let spot = core.spot(&key);
            with_copy::<u64, u64, Result<()>>(|copy| {
                let held = core.hold(spot, &key, For::Inserting, Effort::FIRST, copy);
                let held = held.unwrap_or_else(|_| panic!("no other worker has the key")).unwrap();
                assert!(core.replace(held.slot, held.held, Stamp::RETIRED)?);
                m.insert(key, 2)?;
                let late = held.publish(Stamp::FULL, &key, &3).unwrap_err();
                assert!(matches!(late.room_error(), Some(MapError::Retired)), "{late}");
                assert_eq!(m.get(&key)?, Some(2));
                Ok(())
            })?;
        }
        Ok(())
    });
}

/// A doubt about a request that this worker has given up. It would take a slot as it is now.
fn doubt(core: &Core<'_, u64, u64>, slot: GlobalPtr<u64>, spot: Spot) -> Doubt {
    let from = Stamp(slot.load(core.me).unwrap());
    let (state, back_to) = match from.state() {
        Stamp::EMPTY => (Stamp::CLAIMED, Stamp::RETIRED),
        _ => (Stamp::LOCKED, from.0),
    };
    let doubt = Doubt { slot, from: Some(from), held: core.held(state, spot.tag), back_to };
    let error = Error::Deadline { doing: "testing", after: Duration::ZERO, waiting_for: Vec::new() };
    core.state.doubt(&error, doubt);
    doubt
}

impl Doubt {
    /// Carries the request out. Returns whether it took the slot.
    fn happen(self, me: &Worker) -> Result<bool> {
        let from = self.from.expect("it takes a slot").0;
        Ok(self.slot.compare_swap(me, from, self.held.0)? == from)
    }
}

/// A request that takes a slot after the worker gave it up blocks no worker, also if the worker's
/// next requests overtake it.
#[test]
fn a_slot_that_was_taken_late_is_given_back() {
    for overtaken_by in [0, 1, 3] {
        with_map(1000, |me, m| {
            let (core, key) = (&m.core, u64::from(me.id().number()));
            for is_there in [false, true] {
                if is_there {
                    m.insert(key, 1)?;
                }
                let (slot, spot) = slot_of(m, key + 1000 * u64::from(!is_there));
                let late = doubt(core, slot, spot);
                // Also operations on other keys look after it.
                for _ in 0..overtaken_by {
                    m.get(&9999)?;
                    assert!(core.state.is_doubtful());
                }
                assert!(late.happen(me)?);
                m.get(&9999)?;
                assert_eq!(slot.load(me)?, late.back_to);
                assert!(!core.state.is_doubtful());
            }
            assert_eq!(m.get(&key)?, Some(1));
            Ok(())
        });
    }
}

/// A request that this worker gave up neither takes nor frees the slot that it uses in the
/// meantime.
#[test]
fn a_late_request_does_not_touch_a_later_entry() {
    with_map(1000, |me, m| {
        let (core, key) = (&m.core, u64::from(me.id().number()));
        for is_there in [false, true] {
            let key = key + 1000 * u64::from(is_there);
            if is_there {
                m.insert(key, 1)?;
            }
            let (slot, spot) = slot_of(m, key);
            let late = doubt(core, slot, spot);
            with_copy::<u64, u64, Result<()>>(|copy| {
                let held = core.hold(spot, &key, For::Inserting, Effort::FIRST, copy);
                let held = held.unwrap_or_else(|_| panic!("no other worker has the key")).unwrap();
                // A request to give the slot back, which was given up before.
                assert!(!core.replace(slot, late.held, late.back_to)?);
                held.publish(Stamp::FULL, &key, &2)
            })?;
            assert!(!late.happen(me)?);
            assert_eq!(m.get(&key)?, Some(2));
            assert!(!core.state.is_doubtful());
        }
        Ok(())
    });
}

/// A request that was given up before `clear`, or before a part was left, changes nothing later.
#[test]
fn a_late_request_finds_no_memory_in_use() {
    with_map(16, |me, m| {
        let (core, key) = (&m.core, u64::from(me.id().number()));
        let (slot, spot) = slot_of(m, key);
        let late = doubt(core, slot, spot);
        me.barrier()?;
        m.clear()?;
        assert!(!core.state.is_doubtful());
        late.happen(me)?;
        me.barrier()?;
        for key in 0..8 {
            m.insert(key, 1)?;
        }
        me.barrier()?;
        m.clear()?;
        let late = doubt(core, slot_of(m, key).0, spot);
        me.barrier()?;
        let own = u64::from(me.id().number()) << 32;
        for key in own..own + 200 {
            m.insert(key, 1)?;
        }
        m.finding()?.end()?;
        assert!(core.state.parts_held() > 1, "an earlier part was freed");
        assert!(!late.happen(me)?);
        Ok(())
    });
}

/// Keys that come and go use the memory of one part, if the workers meet.
#[test]
fn earlier_parts_are_freed_where_workers_meet() {
    with_map(16, |me, m| {
        let own = u64::from(me.id().number()) << 32;
        let mut parts_max = 0;
        for round in 0..6 {
            for key in own..own + 40 {
                m.insert(key + round * 1000, key)?;
                m.remove(&(key + round * 1000))?;
            }
            m.insert(own, round)?;
            parts_max = parts_max.max(m.core.state.parts_held());
            // A part may still be moved for the last workers that come to the first meeting.
            m.finding()?.end()?;
            let phase = m.finding()?;
            assert_eq!(m.core.state.parts_held(), 1);
            assert_eq!(phase.get(&own)?, Some(round));
            phase.end()?;
        }
        // Otherwise there was nothing to free.
        assert!(me.all_reduce(parts_max, usize::max)? > 1);
        Ok(())
    });
}

/// A batch waits for a slot that a worker holds.
#[test]
fn a_batch_passes_slots_that_are_held() {
    with_map(1000, |me, m| {
        let (core, key) = (&m.core, 77);
        let (slot, _) = slot_of(m, key);
        let held = if me.id() == WorkerId::FIRST {
            m.insert(key, 1)?;
            with_copy::<u64, u64, _>(|copy| {
                core.hold(core.spot(&key), &key, For::Changing, Effort::FIRST, copy).ok().flatten()
            })
        } else {
            None
        };
        me.barrier()?;
        let batch = m.batch()?;
        batch.insert(key, 2)?;
        me.quiesce()?;
        assert!(slot.load(me)? & 7 == Stamp::LOCKED);
        me.barrier()?;
        drop(held);
        batch.finish()?;
        assert_eq!(m.get(&key)?, Some(2));
        Ok(())
    });
}

/// Bytes that are no entry are a typed error also where the owner finds them. No entry is lost.
#[test]
fn damage_is_told_and_loses_nothing() {
    simulate(3, 1, 1, |me| {
        let builder = HashMap::<u64, bool>::builder().capacity(8).implementation(Implementation::Call);
        let map = builder.build(me)?;
        let m = map.on(me);
        if me.id() == WorkerId::FIRST {
            let mut keys = (0..).filter(|key| m.owner_of(key).number() == 1);
            let damaged = keys.next().unwrap();
            m.insert(damaged, true)?;
            let spot = m.core.spot(&damaged);
            let part = m.core.part(spot.owner)?;
            let slot = part.slot(spot.probes(part).next().unwrap(), m.core.state.layout)?;
            let byte = slot.cast::<u8>().add(m.core.state.layout.entry + 8)?;
            byte.put(me, 7)?;
            let is_damaged = |result: Result<()>| {
                let error = result.unwrap_err();
                assert!(matches!(error.room_error(), Some(MapError::Damaged)), "{error}");
            };
            is_damaged(m.get(&damaged).map(drop));
            let mut inserted = Vec::new();
            // The part cannot be moved.
            let refused = loop {
                let key = keys.next().unwrap();
                match m.insert(key, false) {
                    Ok(_) => inserted.push(key),
                    Err(error) => break Err(error),
                }
            };
            is_damaged(refused);
            byte.put(me, 1)?;
            for key in keys.take(50) {
                m.insert(key, false)?;
                inserted.push(key);
            }
            assert_eq!(m.get(&damaged)?, Some(true));
            for key in inserted {
                assert_eq!(m.get(&key)?, Some(false), "key {key}");
            }
        }
        me.barrier()?;
        map.free(me)
    })
    .unwrap();
}

/// A part that cannot grow for lack of memory is a typed error of the insertion, whoever makes it.
#[test]
fn a_lack_of_memory_is_told() {
    for implementation in [Implementation::OneSided, Implementation::Call] {
        let told = Mutex::new(0);
        let run = |me: &Worker| {
            let map = HashMap::<u64, [u64; 512]>::builder().capacity(8).implementation(implementation).build(me);
            if !me.all_reduce(map.is_ok(), |one, other| one && other)? {
                return Ok(());
            }
            let m = map?.on(me);
            for key in (0..1500).filter(|_| me.id() == WorkerId::FIRST) {
                match m.insert(key, [key; 512]) {
                    Ok(_) => {}
                    Err(error) => {
                        let Some(MapError::Memory { owner, .. }) = error.room_error() else { panic!("{error}") };
                        assert_eq!(*owner, m.owner_of(&key));
                        *told.lock().unwrap() += 1;
                        break;
                    }
                }
            }
            me.barrier()
        };
        for first in 0.. {
            let options = SimOptions { failing_registrations: (first, u64::MAX), ..SimOptions::default() };
            let simulated = Simulation::new(2, 1, first).options(options).run(run).unwrap();
            simulated.verdict.unwrap_or_else(|error| panic!("{implementation}, {first}: {error}"));
            if simulated.trace.registrations <= first {
                break;
            }
        }
        let told = told.into_inner().unwrap();
        assert!(told > 2, "{told}");
    }
}

/// If a process is lost while a map chooses again, some of the others change the implementation. An
/// owner that executes calls then meets one that comes to the slot itself.
#[test]
fn workers_may_differ_in_the_implementation() {
    const FREE_CALLS: CostModel = CostModel { call: 0.0, ..CostModel::CORI };
    simulate(2, 1, 1, |me| {
        let builder = HashMap::<u64, u64>::builder().implementation(Implementation::Auto).cost_model(FREE_CALLS);
        let map = builder.build(me)?;
        let m = map.on(me);
        assert_eq!(m.implementation(), Implementation::Call);
        let key = (0..).find(|key| m.owner_of(key) == WorkerId::FIRST).unwrap();
        me.barrier()?;
        if me.id() == WorkerId::FIRST {
            with_copy::<u64, u64, Result<()>>(|copy| {
                let held = m.core.hold(m.core.spot(&key), &key, For::Inserting, Effort::FIRST, copy);
                let held = held.unwrap_or_else(|_| panic!("no other worker has the key")).unwrap();
                me.charge(Duration::from_millis(1));
                held.publish(Stamp::FULL, &key, &1)
            })?;
        } else {
            m.core.state.implementation.set(Implementation::OneSided);
            me.charge(Duration::from_micros(100));
            assert_eq!(m.insert(key, 2)?, Inserted::Replaced);
        }
        me.barrier()?;
        assert_eq!(m.get(&key)?, Some(2));
        me.barrier()?;
        map.free(me)
    })
    .unwrap();
}
