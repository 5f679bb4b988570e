//! Processes that are really killed while they insert, one for each implementation.

use std::path::PathBuf;
use std::process::{Command, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use farside::{Dist, Error, LaunchError, ProcessEnd, ProcessId, Result, Worker, WorkerId};
use farside_containers::map::{HashMap, Map, MapError};
use farside_testbed::{limit, wait_until};

use super::faults::map_error;
use super::{IMPLEMENTATIONS, Value, assert_whole, value};

/// Long, so that a writer is often killed while it writes one.
type Long = [Value; 64];

const PROCESSES: u32 = 5;
const KEYS: u64 = 12;
/// Process 1 is killed while it uses the map of the first implementation, and so on.
const VICTIMS: [ProcessId; 3] = [ProcessId::new(1), ProcessId::new(2), ProcessId::new(3)];

/// Kills this process some time after it has begun this round. Libraries under libfabric catch the
/// signal of an abort.
fn die_after(last: u64, round: Arc<AtomicU64>) {
    thread::spawn(move || {
        wait_until("the victim writes", || round.load(Ordering::Relaxed) >= last);
        let killed = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        unreachable!("a killed process has ended: {killed:?}")
    });
}

/// Writes and reads all keys. Only those of lost victims may be refused, and are refused for good.
fn use_keys(me: &Worker, m: &Map<'_, u64, Long>, number: u64) -> Result<()> {
    for key in 0..KEYS {
        let owner = me.process_of(m.owner_of(&key));
        let was_lost = me.is_lost(owner);
        let check = |outcome: Result<()>| match outcome {
            Err(Error::PeerLost { process, .. }) if process == owner && VICTIMS.contains(&owner) => Ok(()),
            Ok(()) if was_lost => panic!("key {key} of the lost {owner} was used"),
            outcome => outcome,
        };
        let new = [value(me.id().number(), number); 64];
        let get = |found: Option<Long>| {
            if let Some(found) = found {
                assert_whole(found[0]);
                assert!(found.iter().all(|each| *each == found[0]), "parts of different entries under key {key}");
            }
        };
        check(m.insert(key, new).map(drop))?;
        check(m.get(&key).map(get))?;
        check(m.upsert(key, new, |there, new| *there = new))?;
        check(m.remove(&key).map(get))?;
    }
    Ok(())
}

/// The work of each process. Survivors go on with all maps after the losses.
fn work(me: &Worker) -> Result<()> {
    let maps = IMPLEMENTATIONS.into_iter().map(|by| HashMap::<u64, Long>::builder().implementation(by).build(me));
    let maps = maps.collect::<Result<Vec<_>>>()?;
    let begun = Dist::new(me, || AtomicU32::new(0))?;
    me.barrier()?;
    if let Some(which) = VICTIMS.iter().position(|victim| *victim == me.process()) {
        // Nothing dies while a survivor is still in the barrier.
        me.wait_while_serving(|| begun.here(me).load(Ordering::Relaxed) == PROCESSES - VICTIMS.len() as u32)?;
        let round = Arc::new(AtomicU64::new(0));
        die_after(3 + 2 * which as u64, round.clone());
        for number in 0.. {
            round.store(number, Ordering::Relaxed);
            use_keys(me, &maps[which % maps.len()].on(me), number)?;
        }
    }
    for victim in VICTIMS {
        me.call(WorkerId::new(victim.number()), begun, |there, begun| {
            begun.here(there).fetch_add(1, Ordering::Relaxed);
        })?;
    }
    let mut number = 0;
    while VICTIMS.iter().any(|victim| !me.is_lost(*victim)) {
        number += 1;
        maps.iter().try_for_each(|map| use_keys(me, &map.on(me), number))?;
    }
    for map in maps {
        let m = map.on(me);
        // No slot is held any more, and none that was is read.
        use_keys(me, &m, number)?;
        let own = 1000 * u64::from(me.id().number() + 1);
        for key in (own..own + 50).filter(|key| !VICTIMS.contains(&me.process_of(m.owner_of(key)))) {
            m.insert(key, [value(9, key); 64])?;
            assert_eq!(m.get(&key)?.map(|found| found[63]), Some(value(9, key)));
        }
        let len = m.len();
        let MapError::Partial { missing, counted } = map_error(&len) else { panic!("{len:?}") };
        assert!(*missing == VICTIMS && *counted > 0, "{len:?}");
    }
    Ok(())
}

/// Returns the file by which a survivor reports that it came to its end. The verdict of the job is
/// its first failure, which is a loss.
fn mark(fabric: &str, launcher: &str, process: ProcessId) -> PathBuf {
    std::env::temp_dir().join(format!("farside-map-kills-{fabric}-{launcher}-{}", process.number()))
}

fn lose(test: &str, fabric: &str) {
    let job = farside::job().processes(PROCESSES).force_fabric(fabric.parse().expect("a transport"));
    let job = job.entry([test, "--exact", "--nocapture", "--test-threads=1"]).quiet_stdout();
    let verdict = job.time_limit(limit()).run(|me| {
        work(me).inspect_err(|error| eprintln!("{}: {error}", me.process()))?;
        let launcher = std::env::var("FARSIDE_LAUNCHER").unwrap();
        std::fs::write(mark(fabric, &launcher, me.process()), "").unwrap();
        // A survivor that ends early is lost to the other one.
        let survivors: Vec<_> = (0..PROCESSES).map(ProcessId::new).filter(|one| !VICTIMS.contains(one)).collect();
        me.wait_while_serving(|| survivors.iter().all(|survivor| mark(fabric, &launcher, *survivor).exists()))
    });
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        exit(verdict.is_err().into());
    }
    match verdict {
        Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Killed(_) })) => {
            assert!(VICTIMS.contains(&process), "{process} was killed");
        }
        other => panic!("{other:?}"),
    }
    let launcher = std::process::id().to_string();
    for process in [0, 4].map(ProcessId::new) {
        std::fs::remove_file(mark(fabric, &launcher, process)).expect("the survivor came to its end");
    }
}

#[test]
fn writers_are_killed_over_shared_memory() {
    lose("map::kills::writers_are_killed_over_shared_memory", "shm");
}

mod deep {
    #[test]
    fn writers_are_killed_over_libfabric() {
        if !farside_testbed::is_left_out("fabric") {
            super::lose("map::kills::deep::writers_are_killed_over_libfabric", "ofi:tcp");
        }
    }
}
