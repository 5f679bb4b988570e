//! The activity of workers: the cause and the length of their waits, and their events.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farside::{Activity, EventKind, PerWorker, Result, Taken, Whom, Worker, WorkerActivity, WorkerId};
use farside_testbed::{limit, wait_for};

/// The activity of a process, and the line of a wait.
fn find<T>(activity: &Activity, look: impl Fn(&WorkerActivity, &Activity) -> Option<T>) -> T {
    wait_for("a worker waits", || activity.workers().iter().find_map(|worker| look(worker, activity)))
}

/// Whom and where a worker waits.
fn wait_of(worker: &WorkerActivity, activity: &Activity) -> Option<(Whom, &'static str, u32)> {
    let wait = worker.wait?;
    let place = activity.places()[usize::from(wait.place)];
    Some((wait.whom, place.doing, place.site.line()))
}

/// A worker that waits says so without being watched. Another thread of its process reads it.
#[farside::test(processes = 2, threads = 1)]
fn a_wait_has_a_place_and_a_cause(me: &Worker) -> Result<()> {
    let go = PerWorker::new(me, Cell::new(false))?;
    me.barrier()?;
    if me.is_first() {
        let (activity, caller) = (me.activity(), me.caller());
        let (sender, receiver) = mpsc::channel();
        let other = WorkerId::new(1);
        let reader = std::thread::spawn(move || {
            let at_call = find(&activity, wait_of);
            sender.send(()).unwrap();
            caller.call(other, go, |there, go| go.here(there).set(true)).unwrap();
            let at_barrier =
                find(&activity, |worker, activity| wait_of(worker, activity).filter(|wait| wait.1 != at_call.1));
            caller.call(other, go, |there, go| go.here(there).set(false)).unwrap();
            (at_call, at_barrier)
        });
        let result = me.call_with_reply(other, go, |there, go, reply: farside::Reply<()>| {
            // It keeps its caller waiting until the test lets it go on.
            let pending = there.call_return(WorkerId::FIRST, (), |_, ()| ()).unwrap();
            pending.then(move |there, _| answer_when_set(there, go, reply));
        })?;
        let line_of_call = line!() + 1;
        result.wait()?;
        receiver.recv().unwrap();
        let line_of_barrier = line!() + 1;
        me.barrier()?;
        let (at_call, at_barrier) = reader.join().unwrap();
        assert_eq!(at_call, (Whom::Worker(other), "waiting for the result of a call", line_of_call));
        assert_eq!(at_barrier, (Whom::Worker(other), "waiting at a barrier", line_of_barrier));
        return Ok(());
    }
    me.wait_while_serving(|| go.here(me).get())?;
    me.wait_while_serving(|| !go.here(me).get())?;
    me.barrier()
}

fn answer_when_set(there: &Worker, go: PerWorker<Cell<bool>>, reply: farside::Reply<()>) {
    if go.here(there).get() {
        reply.send(());
        return;
    }
    // Later, without waiting in a handler.
    let again = there.call_return(there.id(), (), |_, ()| ()).unwrap();
    again.then(move |there, _| answer_when_set(there, go, reply));
}

/// Each call that ran in a trace is paired with the one that was made, and comes after it.
#[farside::test(processes = 2, threads = 2)]
fn calls_in_a_trace_are_paired(me: &Worker) -> Result<()> {
    const SESSION: u32 = 77;
    let activity = me.activity();
    let ran = PerWorker::new(me, Cell::new(0_u32))?;
    me.barrier()?;
    if me.thread_index() == 0 {
        activity.trace(SESSION, limit(), false);
    }
    me.barrier()?;
    me.progress()?;
    me.barrier()?;
    if me.thread_index() == 0 {
        activity.trace(SESSION, limit(), true);
    }
    me.barrier()?;
    me.progress()?;
    me.barrier()?;
    let calls = 100;
    for number in 0..calls {
        for other in me.workers() {
            let add = |there: &Worker, ran: PerWorker<Cell<u32>>| ran.here(there).set(ran.here(there).get() + 1);
            match number % 3 {
                0 => me.call(other, ran, add)?,
                1 => me.aggregate(other).call(ran, add)?,
                _ => me.call_return(other, ran, add)?.wait()?,
            }
        }
    }
    me.quiesce()?;
    assert_eq!(ran.here(me).get(), calls * me.worker_count());
    me.barrier()?;
    if me.thread_index() == 0 {
        activity.end_trace();
        let taken_here: Vec<Taken> = activity.take_events(usize::MAX);
        assert_eq!(taken_here.len(), 2);
        check_pairs(&activity, &taken_here, calls);
    }
    me.barrier()
}

/// Within a process, each worker called each of both `calls` times. The library's own calls are
/// events as well.
fn check_pairs(activity: &Activity, taken: &[Taken], calls: u32) {
    let mut sent = HashMap::new();
    for Taken { worker, events, lost } in taken {
        assert_eq!(*lost, 0);
        for event in events {
            if let EventKind::Sent { to, function, place, number: Some(number) } = event.kind {
                assert!(sent.insert((*worker, to, number), (event.at, function, place)).is_none());
            }
        }
    }
    // A thread that meets a place while another thread notes one does not wait: that one call has
    // place 0.
    let (mut pairs, mut without_place, mut lines) = (0, 0, HashSet::new());
    for Taken { worker, events, .. } in taken {
        for event in events {
            let EventKind::Ran { from: Whom::Worker(from), function, number: Some(number) } = event.kind else {
                continue;
            };
            if !taken.iter().any(|other| other.worker == from) {
                continue;
            }
            let (at, called, place) = sent.remove(&(from, *worker, number)).expect("each call that ran was made");
            assert_eq!(called, function, "call {number} from {from} to {worker}");
            // Times have the precision of the measured rate.
            assert!(event.at + event.time + Duration::from_micros(50) >= at, "it runs after it was made");
            let site = activity.places()[usize::from(place)].site;
            if place == 0 {
                without_place += 1;
            } else if site.file() == file!() {
                pairs += 1;
                lines.insert(site.line());
            }
        }
    }
    assert!(pairs <= calls * 4 && pairs + without_place >= calls * 4, "{pairs} and {without_place}");
    assert_eq!(lines.len(), 3, "each call has its own line");
    let kinds =
        |wanted: fn(&EventKind) -> bool| taken.iter().all(|taken| taken.events.iter().any(|event| wanted(&event.kind)));
    assert!(kinds(|kind| matches!(kind, EventKind::Waited { .. })));
    assert!(kinds(|kind| matches!(kind, EventKind::Collective { .. })));
}

mod timing {
    use super::*;

    /// Computes for some time. Returns how long it took.
    fn compute(time: Duration) -> Duration {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
        begun.elapsed()
    }

    /// The counted times of waits and calls are those of the program's own clock, within 5 %.
    ///
    /// On a busy machine, a thread may lose its processor between the looks at the two clocks. So
    /// the test tries again: some try agrees, unless the times are counted wrongly.
    #[farside::test(processes = 2, threads = 1)]
    fn counted_times_agree_with_the_programs_own(me: &Worker) -> Result<()> {
        let times = PerWorker::new(me, Cell::new(Duration::ZERO))?;
        me.activity().watch(limit());
        let until = Instant::now() + limit();
        loop {
            let agrees = compare_times(me, times)?;
            if me.all_reduce(agrees.is_ok(), |one, other| one && other)? {
                return Ok(());
            }
            assert!(Instant::now() < until, "{agrees:?}");
        }
    }

    /// Compares the times of some calls and waits with those that were counted. Says how they
    /// differ.
    fn compare_times(me: &Worker, times: PerWorker<Cell<Duration>>) -> Result<std::result::Result<(), String>> {
        let activity = me.activity();
        times.here(me).set(Duration::ZERO);
        me.barrier()?;
        let (rounds, pause) = (10_u32, Duration::from_millis(10));
        let before = activity.workers().remove(0);
        let mut in_waits = Duration::ZERO;
        for _ in 0..rounds {
            if me.is_first() {
                // It waits while the other one runs a call that computes.
                let pending = me.call_return(WorkerId::new(1), (times, pause), |there, (times, pause)| {
                    times.here(there).set(times.here(there).get() + compute(pause));
                })?;
                let begun = Instant::now();
                pending.wait()?;
                in_waits += begun.elapsed();
            }
            me.barrier()?;
        }
        let after = activity.workers().remove(0);
        let (Some(first), Some(last)) = (before.counted_from, after.counted_from) else {
            return Ok(Err("this worker does not count yet".into()));
        };
        let from = first.abs_diff(last);
        let (counted, own) = if me.is_first() {
            let counted = |worker: &WorkerActivity| {
                let is_call = |place: &u16| activity.places()[usize::from(*place)].doing.contains("result of a call");
                worker.in_waits.iter().filter(|(place, _)| is_call(place)).map(|(_, time)| *time).sum::<Duration>()
            };
            (counted(&after) - counted(&before), in_waits)
        } else {
            let own = times.here(me).get();
            assert!(own >= pause * rounds);
            (after.in_calls - before.in_calls, own)
        };
        let is_near = counted.abs_diff(own) < own / 20 + Duration::from_millis(2) && from < Duration::from_millis(1);
        Ok(if is_near { Ok(()) } else { Err(format!("counted {counted:?}, own {own:?}, counted from {from:?}")) })
    }
}
