//! Calls to all workers, over shared memory, libfabric and the simulator.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::job::FabricChoice;
use farside::prelude::*;
use farside::{
    Error, FullCause, GlobalAddress, GlobalPtr, LaunchError, Registered, RemoteMemory, Result, Simulation, Written,
};
use farside_testbed::scaled;

use crate::support::{is_over_missing_libfabric, verdict};

/// Runs a job whose processes reach this call by running the test of this name.
fn run(test: &str, fabric: &str, processes: u32, threads: u32, body: fn(&Worker) -> Result<()>) {
    if is_over_missing_libfabric(fabric) {
        return;
    }
    let fabric: FabricChoice = fabric.parse().unwrap();
    let job = farside::job().processes(processes).threads_per_process(threads).force_fabric(fabric);
    verdict(test, job, body).unwrap();
}

/// Returns a buffer of registered memory with these bytes.
fn buffer_of(me: &Worker, bytes: &[u8]) -> Result<Registered> {
    let buffer = me.allocate(bytes.len())?;
    buffer.write_at(0, bytes)?;
    Ok(buffer)
}

type Log = PerWorker<RefCell<Vec<(u32, usize, u64)>>>;

fn arrive(there: &Worker, (log, from, number): (Log, u32, usize)) {
    log.here(there).borrow_mut().push((from, number, 0));
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

fn arrive_with(there: &Worker, (log, from, number): (Log, u32, usize), buffer: &[u8]) {
    log.here(there).borrow_mut().push((from, number, sum(buffer)));
}

fn arrive_written(there: &Worker, ((log, from, number), written): ((Log, u32, usize), Written)) {
    arrive_with(there, (log, from, number), &written.to_vec(there).expect("it is memory of this process"));
}

/// Every worker calls all workers in every form. Every worker runs each call once.
fn every_form(me: &Worker) -> Result<()> {
    const ROUNDS: usize = 3;
    let log: Log = PerWorker::new(me, RefCell::default())?;
    let own = me.id().number();
    let places: Vec<(RemoteMemory, u64)> = (0..me.process_count())
        .map(|process| Ok((me.allocate_at(ProcessId::new(process), 70_000)?, 8)))
        .collect::<Result<_>>()?;
    let content: Vec<u8> = (0..60_000).map(|i| (i * 7 + own) as u8).collect();
    for round in 0..ROUNDS {
        let all = me.synchronizer(4 * me.worker_count())?;
        let everyone = me.everyone().notify(&all);
        everyone.call((log, own, 4 * round), arrive)?;
        everyone.call_buffer((log, own, 4 * round + 1), &content[..30_000 * round], arrive_with)?;
        everyone.call_buffer_put((log, own, 4 * round + 2), &content, &places, arrive_written)?;
        let lent = everyone.call_buffer_get((log, own, 4 * round + 3), buffer_of(me, &content)?, arrive_with)?;
        assert_eq!(lent.wait()?.bytes(), 60_000);
        all.wait()?;
    }
    me.barrier()?;
    let mut got = log.here(me).take();
    got.sort_unstable();
    let mut expected = Vec::new();
    for from in 0..me.worker_count() {
        let content: Vec<u8> = (0..60_000).map(|i| (i * 7 + from) as u8).collect();
        for round in 0..ROUNDS {
            let sums = [0, sum(&content[..30_000 * round]), sum(&content), sum(&content)];
            expected.extend((0..).zip(sums).map(|(form, sum)| (from, 4 * round + form, sum)));
        }
    }
    assert_eq!(got, expected);
    me.barrier()?;
    places.into_iter().try_for_each(|(place, _)| me.release(place))?;
    me.barrier()
}

#[test]
fn everyone_runs_every_form_once() {
    run("broadcast::everyone_runs_every_form_once", "shm", 5, 2, every_form);
}

#[test]
fn everyone_runs_every_form_once_over_libfabric() {
    run("broadcast::everyone_runs_every_form_once_over_libfabric", "ofi:tcp", 4, 1, every_form);
}

#[test]
fn everyone_runs_every_form_once_in_a_simulation() {
    for (processes, threads) in [(1, 1), (1, 3), (2, 1), (3, 2), (7, 1), (8, 1)] {
        farside::simulate(processes, threads, 51, every_form).unwrap();
    }
}

/// Handlers make more calls than there is room for. Calls that find no room go later.
fn flood(me: &Worker) -> Result<()> {
    let count = PerWorker::new(me, Cell::new(0_u64))?;
    let hit = |there: &Worker, count: PerWorker<Cell<u64>>, bytes: &[u8]| {
        assert_eq!(bytes.len(), 40_000);
        count.here(there).set(count.here(there).get() + 1);
    };
    if me.id().number() == 1 {
        for _ in 0..100 {
            me.everyone().call_buffer(count, &[1; 40_000], hit)?;
        }
        let sent = me.call_return(me.id(), count, |there, count| {
            let hit = |there: &Worker, count: PerWorker<Cell<u64>>| count.here(there).set(count.here(there).get() + 1);
            there.everyone().call(count, hit).is_ok()
        });
        assert!(sent?.wait()?);
    }
    me.wait_while_serving(|| count.here(me).get() == 101)?;
    me.barrier()
}

#[test]
fn calls_without_room_are_sent_later() {
    run("broadcast::calls_without_room_are_sent_later", "shm", 5, 1, flood);
    farside::simulate(5, 1, 52, flood).unwrap();
}

/// A worker makes no progress. Process 2 sends on to it, and keeps no more than the job's limit for
/// queues. After that the caller gets an error, and nothing is lost.
#[test]
fn what_is_kept_for_a_worker_that_computes_has_a_limit() {
    const BYTES: usize = 10_000;
    const CAP_BYTES: usize = 1 << 20;
    type Count = PerWorker<Cell<usize>>;
    fn hit(there: &Worker, count: Count, bytes: &[u8]) {
        assert_eq!(bytes, [1; BYTES]);
        count.here(there).set(count.here(there).get() + 1);
    }
    let simulation = Simulation::new(4, 1, 53).deadline(Duration::from_millis(50));
    let report = simulation.run(|me| {
        let count: Count = PerWorker::new(me, Cell::default())?;
        let goes_on: GlobalPtr<u64> = GlobalAddress::starter(ProcessId::new(0), 8).cast();
        me.barrier()?;
        if me.id().number() == 3 {
            // Runs no calls meanwhile.
            while goes_on.load(me)? == 0 {}
        }
        if me.id().number() > 0 {
            return Ok(());
        }
        let call = |me: &Worker| me.everyone().call_buffer(count, &[1; BYTES], hit);
        let mut sent = 0;
        let refused = loop {
            match call(me) {
                Ok(()) => sent += 1,
                Err(refused) => break refused.error,
            }
            assert!(sent * BYTES <= CAP_BYTES, "{sent} calls are on their way");
        };
        assert!(matches!(refused, Error::Deadline { .. }), "{refused}");
        assert!(sent * BYTES > CAP_BYTES / 2, "{sent}");
        let in_handler = me.call_return(me.id(), count, |there, count| {
            let refused = there.everyone().call_buffer(count, &[1; BYTES], hit).map_err(|refused| refused.error);
            matches!(refused, Err(Error::Full { cause: FullCause::Everyone { unreceived_bytes }, .. }) if unreceived_bytes > CAP_BYTES / 2)
        });
        assert!(in_handler?.wait()?);
        goes_on.store(me, 1)?;
        for _ in 0..300 {
            call(me)?;
        }
        let all = me.synchronizer(me.worker_count())?;
        me.everyone().notify(&all).call((), |_, ()| ())?;
        all.wait()?;
        for worker in me.workers() {
            let counted = me.call_return(worker, count, |there, count| count.here(there).get())?;
            assert_eq!(counted.wait()?, sent + 300, "{worker}");
        }
        Ok(())
    });
    report.unwrap().verdict.unwrap();
}

#[farside::test(processes = 2, threads = 1)]
fn bad_input_is_refused(me: &Worker) -> Result<()> {
    let nothing = |_: &Worker, _: (u8, Written)| ();
    let here = me.allocate_at(me.process(), 64)?;
    let few = me.everyone().call_buffer_put(7, &[1; 8], &[(here, 0)], nothing).unwrap_err();
    assert!(matches!(few.error, Error::UnknownProcess { .. }) && few.arguments == 7, "{few:?}");
    let wrong = me.everyone().call_buffer_put(7, &[1; 8], &[(here, 0), (here, 0)], nothing).unwrap_err();
    assert!(matches!(wrong.error, Error::WrongProcess { .. }), "{wrong:?}");
    let long = me.everyone().call_buffer((), &vec![0; 5 << 20], |_, (), _| ()).unwrap_err();
    assert!(matches!(long.error, Error::TooLarge { .. }), "{long:?}");
    me.barrier()
}

/// A process in the middle of the tree dies before a call comes to it or while it has it. Waiting
/// workers get errors, nothing hangs, and calls reach the workers below a process that is known to
/// be dead.
#[test]
fn a_process_that_dies_in_the_tree_is_lost_and_nothing_hangs() {
    thread_local!(static RAN: Cell<u64> = const { Cell::new(0) });
    for seed in 0..scaled(8) {
        // The child of the root with the most workers below it.
        let doomed = ProcessId::new(4);
        let simulation = Simulation::new(8, 1, 500 + seed).kill(doomed, Duration::from_micros(60 + 30 * (seed % 8)));
        // The verdict is the first failure and would hide a later one.
        let well = AtomicU64::new(0);
        let simulated = simulation.deadline(Duration::from_secs(5)).run(|me| {
            RAN.set(0);
            if me.process() == doomed {
                return me.wait_while_serving(|| false);
            }
            let hit = |_: &Worker, ()| RAN.set(RAN.get() + 1);
            if me.id().number() == 0 {
                let lost = |error: Error| matches!(error, Error::PeerLost { process, .. } if process == doomed);
                // Until this worker knows of the loss.
                loop {
                    let all = me.synchronizer(me.worker_count())?;
                    let called = me.everyone().notify(&all).call((), hit).map_err(Error::from);
                    if let Err(error) = called.and_then(|()| all.wait()) {
                        assert!(lost(error));
                        break;
                    }
                }
                // Calls reach the other workers now, including those below the dead one.
                let before: Vec<u64> = counts(me, doomed)?;
                assert!(lost(me.everyone().call((), hit).unwrap_err().error));
                me.wait_while_serving(|| RAN.get() == before[0] + 1)?;
                for (process, before) in [0, 1, 2, 3, 5, 6, 7].into_iter().zip(before) {
                    let runs = |_| me.call_return(WorkerId::new(process), (), |_, ()| RAN.get())?.wait();
                    let has_run = (0..1000).map(runs).any(|now| now.is_ok_and(|now| now == before + 1));
                    assert!(has_run, "the call does not come to process {process}");
                }
            }
            well.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(well.load(Ordering::Relaxed), 7, "seed {seed}");
        let verdict = simulated.unwrap().verdict;
        assert!(
            matches!(verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process == doomed),
            "{verdict:?}"
        );
    }

    /// How often the survivors have run the call, when no more are under way.
    fn counts(me: &Worker, doomed: ProcessId) -> Result<Vec<u64>> {
        let survivors = || me.workers().filter(|worker| me.process_of(*worker) != doomed);
        let look =
            || survivors().map(|of| me.call_return(of, (), |_, ()| RAN.get())?.wait()).collect::<Result<Vec<_>>>();
        let mut counts = look()?;
        for _ in 0..20 {
            let again = look()?;
            counts = again;
        }
        Ok(counts)
    }
}
