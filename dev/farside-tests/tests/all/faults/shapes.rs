//! Jobs of unusual shapes, and workers that take different paths.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside::job::Bind;
use farside::prelude::*;
use farside::{Error, ProcessEnd, Result};
use farside_testbed::wait_until;

use crate::support::{failure, is_launched, only, take_notes, verdict, within_time, write_note};

/// The first use of a ring needs no attentive worker. A pool answers while the workers of its
/// process are busy.
#[test]
fn pools_answer_for_busy_workers() {
    thread_local! {
        static BEGUN: Cell<bool> = const { Cell::new(false) };
    }
    let test = "faults::shapes::pools_answer_for_busy_workers";
    let verdict = verdict(test, farside::job().processes(2).pool_threads(1), |me| {
        let answered = Dist::new(me, || AtomicU64::new(0))?;
        let pool = me.pool_of(me.process_of(me.neighbor(1))).expect("the job has pools");
        // Worker 1 makes no progress until its pool has run a call.
        if me.id().number() == 1 {
            wait_until("the pool runs a call", || answered.here(me).load(Ordering::Relaxed) > 0);
        } else {
            let before =
                me.call_return(pool, answered, |there, answered| answered.here(there).fetch_add(1, Ordering::Relaxed));
            assert_eq!(before?.wait()?, 0);
        }
        me.barrier()
    });
    verdict.unwrap();
}

/// Returns the CPUs that this thread may run on, as the system writes them.
fn cpus_allowed() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("the system says on which CPUs a thread may run").trim().to_owned()
}

#[test]
fn workers_are_bound_to_cores() {
    let topology = farside_sys::topology::Topology::of_this_machine().unwrap();
    let usable =
        topology.cores.iter().filter(|core| core.iter().any(|cpu| topology.cpus_allowed.contains(cpu))).count();
    let job = farside::job().processes(2).bind(Bind::Core);
    let verdict = verdict("faults::shapes::workers_are_bound_to_cores", job, |me| {
        let places = me.gather(WorkerId::new(0), cpus_allowed())?;
        if let Some(places) = places {
            assert_eq!(places[0] != places[1], usable > 1, "{places:?} on {usable} cores");
        }
        me.barrier()
    });
    verdict.unwrap();
}

#[test]
fn two_jobs_of_one_program_run_at_once() {
    let name = "faults::shapes::two_jobs_of_one_program_run_at_once";
    let run = |processes| {
        let job = farside::job().processes(processes).entry(only(name)).quiet_stdout();
        job.run(|me| {
            for round in 0..100 {
                assert_eq!(me.all_reduce(round, |a, b| a + b)?, round * me.worker_count());
            }
            Ok(())
        })
    };
    if is_launched() {
        // The launcher's number of processes counts.
        std::process::exit(run(1).is_err().into());
    }
    within_time(|| {
        std::thread::scope(|scope| {
            for job in [2, 3].map(|processes| scope.spawn(move || run(processes))) {
                job.join().unwrap().unwrap();
            }
        });
    });
}

#[test]
fn the_others_learn_why_a_worker_failed() {
    let test = "faults::shapes::the_others_learn_why_a_worker_failed";
    let verdict = verdict(test, farside::job().processes(3).threads_per_process(2), |me| {
        if me.id().number() == 5 {
            return Err(Error::JobEnded { why: "worker five has had enough".to_owned() });
        }
        let told = me.barrier();
        match (me.process().number(), &told) {
            // The other worker of the same process.
            (2, Err(Error::JobEnded { why })) => assert!(why.contains("worker five has had enough"), "{why}"),
            (_, Err(Error::PeerLost { process, root, why })) => {
                assert!(process == root && process.number() == 2, "{process} {root}");
                assert!(why.contains("worker five has had enough"), "{why}");
                if me.thread_index() == 0 {
                    write_note(test, me.process().number(), "told");
                }
            }
            _ => panic!("{told:?}"),
        }
        if me.process().number() == 2 { told } else { Ok(()) }
    });
    let (process, how) = failure(verdict);
    assert_eq!(process, 2);
    assert!(matches!(&how, ProcessEnd::Reported(why) if why.contains("worker five has had enough")), "{how}");
    let told = || Some("told".to_owned());
    assert_eq!(take_notes(std::process::id(), test, 3), [told(), told(), None]);
}

/// 32 workers share the CPUs of this machine.
#[farside::test(processes = 8, threads = 4)]
fn many_workers_share_few_cores(me: &Worker) -> Result<()> {
    let count = u64::from(me.worker_count());
    let sum = PerWorker::new(me, Cell::new(0_u64))?;
    let from = u64::from(me.id().number());
    for to in me.workers() {
        me.call(to, (sum, from), |there, (sum, from)| sum.here(there).set(sum.here(there).get() + from))?;
    }
    let next = me.call_return(me.neighbor(1), from, |there, from| (there.id(), from))?;
    assert_eq!(next.wait()?, (me.neighbor(1), from));
    me.wait_while_serving(|| sum.here(me).get() == count * (count - 1) / 2)?;
    assert_eq!(me.all_reduce(from, |a, b| a + b)?, count * (count - 1) / 2);
    me.barrier()
}

fn call_in_every_way(me: &Worker) -> Result<()> {
    let sum = PerWorker::new(me, Cell::new(0_u64))?;
    let add = |there: &Worker, (sum, x): (PerWorker<Cell<u64>>, u64)| sum.here(there).set(sum.here(there).get() + x);
    let add_buffer = |there: &Worker, sum: PerWorker<Cell<u64>>, buffer: &[u8]| {
        let more = buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        sum.here(there).set(sum.here(there).get() + more);
    };
    let executed = me.synchronizer(0)?;
    for to in me.workers() {
        for x in 0..1000 {
            me.call(to, (sum, x), add)?;
            me.to(to).when_full(WhenFull::Retry).send_based().call((sum, x), add)?;
            executed.add(1);
            me.to(to).notify(&executed, On::Executed).call((sum, x), add)?;
        }
        let aggregator = me.aggregate(to);
        (0..1000).try_for_each(|x| aggregator.call((sum, x), add))?;
        drop(aggregator);
        me.call_buffer(to, sum, &[1; 499_500], add_buffer)?;
        assert_eq!(me.call_return(to, 6_u64, |_, x| x * 7)?.wait()?, 42);
        let reply = me.call_with_reply(to, 6_u64, |_, x, reply: Reply<u64>| reply.send(x * 7))?;
        assert_eq!(reply.wait()?, 42);
    }
    executed.wait()?;
    let all = u64::from(me.worker_count()) * 5 * 499_500;
    me.wait_while_serving(|| sum.here(me).get() == all)?;
    assert_eq!(me.all_reduce(1, |a, b| a + b)?, me.worker_count());
    me.barrier()
}

#[farside::test(processes = 1, threads = 1)]
fn a_worker_calls_itself(me: &Worker) -> Result<()> {
    call_in_every_way(me)
}

#[farside::test(processes = 1, threads = 3)]
fn the_workers_of_one_process_call_each_other(me: &Worker) -> Result<()> {
    call_in_every_way(me)
}

mod timing {
    use super::*;

    /// A worker that has returned from its body serves the others as long as they go on. The time
    /// in which the job must become quiescent begins after that.
    #[test]
    fn a_worker_that_returns_early_still_serves() {
        let deadline = Duration::from_secs(2);
        let job = farside::job().processes(3).finalize_deadline(deadline);
        let verdict = verdict("faults::shapes::timing::a_worker_that_returns_early_still_serves", job, |me| {
            if me.id().number() > 0 {
                return Ok(());
            }
            for round in 0..20_u64 {
                for to in me.workers() {
                    assert_eq!(me.call_return(to, round, |_, round| round + 1)?.wait()?, round + 1);
                }
                std::thread::sleep(deadline / 16);
            }
            Ok(())
        });
        verdict.unwrap();
    }
}
