//! What no program sees: slots that others take away, requests whose answers are late, and memory.

use std::time::Duration;

use farside::{GlobalPtr, Result, Worker, WorkerId, simulate};

use super::*;
use crate::map::{HashMap, Map};

type Numbers<'w> = Map<'w, u64, u64>;

const ONE_SIDED: [Implementation; 2] = [Implementation::OneSided, Implementation::OneSidedPublished];

/// Runs a body with a map, whose memory is mapped with one process and not with more.
fn with_map(
    implementation: Implementation,
    capacity: usize,
    body: impl Fn(&Worker, &Numbers<'_>) -> Result<()> + Sync,
) {
    for (processes, threads, seed) in [(1, 1, 1), (1, 3, 2), (3, 1, 3), (4, 1, 4), (5, 1, 5)] {
        let simulated = simulate(processes, threads, seed, |me| {
            let builder = HashMap::<u64, u64>::builder().capacity(capacity).implementation(implementation);
            let map = builder.build(me)?;
            body(me, &map.on(me))?;
            me.barrier()?;
            map.free(me)
        });
        simulated.unwrap_or_else(|error| panic!("{implementation}, {processes} x {threads}: {error}"));
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
    for implementation in ONE_SIDED {
        with_map(implementation, 1000, |me, m| {
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
}

/// A request that takes a slot after the worker gave it up blocks no worker.
#[test]
fn a_slot_that_was_taken_late_is_given_back() {
    for implementation in ONE_SIDED {
        with_map(implementation, 1000, |me, m| {
            let (core, key) = (&m.core, u64::from(me.id().number()));
            for is_there in [false, true] {
                if is_there {
                    m.insert(key, 1)?;
                }
                let (slot, spot) = slot_of(m, key + 1000 * u64::from(!is_there));
                let before = Stamp(slot.load(me)?);
                let (state, back_to) = match before.state() {
                    Stamp::EMPTY => (Stamp::CLAIMED, Stamp::RETIRED),
                    _ => (Stamp::LOCKED, before.0),
                };
                let held = core.held(state, spot.tag);
                let error = Error::Deadline { doing: "testing", after: Duration::ZERO, waiting_for: Vec::new() };
                core.state.doubt(&error, Doubt { slot, held, back_to });
                assert_eq!(slot.compare_swap(me, before.0, held.0)?, before.0);
                // Also for operations on other keys.
                m.get(&9999)?;
                assert_eq!(slot.load(me)?, back_to);
                assert!(!core.state.is_doubtful());
            }
            assert_eq!(m.get(&key)?, Some(1));
            Ok(())
        });
    }
}

/// Keys that come and go use the memory of one part, if the workers meet.
#[test]
fn earlier_parts_are_freed_where_workers_meet() {
    for implementation in ONE_SIDED {
        with_map(implementation, 16, |me, m| {
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
}

/// A batch waits for a slot that a worker holds, and not for the bit of a reader that is gone.
#[test]
fn a_batch_passes_slots_that_are_held() {
    for implementation in ONE_SIDED {
        with_map(implementation, 1000, |me, m| {
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
            me.barrier()?;
            if me.id() == WorkerId::FIRST {
                slot.fetch_or(me, Stamp::reader(9))?;
            }
            me.barrier()?;
            let batch = m.batch()?;
            batch.insert(key, 3)?;
            batch.finish()?;
            assert_eq!(m.get(&key)?, Some(3));
            Ok(())
        });
    }
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
