//! Jobs over the simulated network. No memory is mapped, so calls travel as messages.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use farside::prelude::*;
use farside::{Error, FullCause, LaunchError, ProcessEnd, Result, RingOptions, Simulated, Simulation, simulate};
use farside_testbed::scaled;

type Sum = PerWorker<Cell<u64>>;

fn add(there: &Worker, (sum, x): (Sum, u64)) {
    sum.here(there).set(sum.here(there).get() + x);
}

#[test]
fn calls_arrive_once_and_in_order() {
    const CALLS: u64 = 300;
    type Last = PerWorker<RefCell<Vec<u64>>>;
    fn arrive(there: &Worker, (last, from, number): (Last, WorkerId, u64)) {
        let mut last = last.here(there).borrow_mut();
        assert_eq!(last[from.index()] + 1, number);
        last[from.index()] = number;
    }
    simulate(3, 2, 1, |me| {
        let last = PerWorker::new(me, RefCell::new(vec![0; me.worker_count() as usize]))?;
        for number in 1..=CALLS {
            for to in me.workers() {
                let call = (last, me.id(), number);
                match number % 3 {
                    0 => me.call(to, call, arrive)?,
                    1 => me.aggregate(to).call(call, arrive)?,
                    _ => match me.to(to).when_full(WhenFull::Queue).call(call, arrive) {
                        Err(refused) if matches!(refused.error, Error::Full { cause: FullCause::Queue { .. }, .. }) => {
                            me.call(to, call, arrive)?;
                        }
                        other => other?,
                    },
                }
            }
        }
        me.wait_while_serving(|| last.here(me).borrow().iter().all(|last| *last == CALLS))?;
        me.barrier()
    })
    .unwrap();
}

/// The receiver runs nothing meanwhile, because simulated workers take turns when they wait.
#[test]
fn ring_options_set_the_window() {
    /// The default cap of the queue behind a window.
    const QUEUE_BYTES: usize = 1 << 20;
    let small = RingOptions { chunks_max: 2, chunk_bytes: 512, chunk_bytes_max: 512, ..RingOptions::default() };
    let accepted = [small, RingOptions::default()].map(|ring| {
        let (accepted, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        Simulation::new(2, 1, 5)
            .run(|me| {
                let sum = PerWorker::new(me, Cell::new(0))?;
                if me.id().number() == 0 {
                    me.shutdown(me.neighbor(1))?;
                    me.setup_with(me.neighbor(1), ring)?;
                    let to = me.to(me.neighbor(1)).when_full(WhenFull::Fail);
                    let refused = loop {
                        match to.call((sum, 1), add) {
                            Ok(()) => accepted.fetch_add(1, Ordering::Relaxed),
                            Err(refused) => break refused.error,
                        };
                    };
                    assert!(matches!(refused, Error::Full { .. }), "{refused}");
                } else {
                    me.wait_while_serving(|| sum.here(me).get() > 0)?;
                }
                me.barrier()?;
                seen.fetch_add(sum.here(me).get(), Ordering::Relaxed);
                Ok(())
            })
            .unwrap()
            .verdict
            .unwrap();
        assert_eq!(accepted.load(Ordering::Relaxed), seen.load(Ordering::Relaxed));
        accepted.into_inner() * 24
    });
    // One window and one queue of records, which have 24 bytes. More travels by default.
    let bytes = (small.grown_bytes() + QUEUE_BYTES) as u64;
    let [few, more] = accepted;
    assert!((bytes - 48..=bytes).contains(&few), "{few} of {bytes} bytes");
    assert!(more > bytes, "{more} of more than {bytes} bytes");
}

#[test]
fn results_of_all_sizes_come_back() {
    simulate(2, 1, 2, |me| {
        let next = me.neighbor(1);
        assert_eq!(me.call_return(next, (20_u64, 22_u64), |_, (a, b)| a + b)?.wait()?, 42);
        me.call_return(next, (), |_, ()| ())?.wait()?;
        // In the slot, in the space for longer results, and in several messages.
        assert_eq!(me.call_return(next, 5_u8, |_, x| [x; 56])?.wait()?, [5; 56]);
        assert_eq!(me.call_return(next, 5_u8, |_, x| [x; 57])?.wait()?, [5; 57]);
        assert_eq!(me.call_return(next, 6_u8, |_, x| [x; 4095])?.wait()?, [6; 4095]);
        let long = me.call_return(next, 7_u64, |_, x| std::array::from_fn::<_, 8000, _>(|place| place as u64 ^ x))?;
        assert!(long.wait()?.iter().enumerate().all(|(place, x)| *x == place as u64 ^ 7));
        let text = me.call_return(next, ("far".to_owned(), 3), |_, (word, times)| word.repeat(times))?;
        assert_eq!(text.wait()?, "farfarfar");
        let long = me.call_return(next, 100_000_usize, |_, bytes| "x".repeat(bytes))?;
        assert_eq!(long.wait()?.len(), 100_000);
        me.barrier()
    })
    .unwrap();
}

#[test]
fn panics_and_dropped_replies_are_answers() {
    simulate(2, 1, 3, |me| {
        let next = me.neighbor(1);
        let panicked = me.call_return(next, 3_u64, |_, x| -> u64 { panic!("{x} is too many") })?.wait();
        assert!(
            matches!(&panicked, Err(Error::RemotePanic { message, .. }) if message == "3 is too many"),
            "{panicked:?}"
        );
        let dropped = me.call_with_reply(next, (), |_, (), reply: Reply<u64>| drop(reply))?.wait();
        assert!(matches!(dropped, Err(Error::ReplyDropped { .. })));
        // The function calls back, and a continuation there sends the answer.
        let answer = me.call_with_reply(next, 20_u64, |there, x, reply: Reply<u64>| {
            let pending = there.call_return(there.neighbor(1), x, |_, x| x * 2).expect("there is room");
            pending.then(move |_, result| reply.send(result.unwrap() + 2));
        })?;
        assert_eq!(answer.wait()?, 42);
        me.barrier()
    })
    .unwrap();
}

#[test]
fn a_reply_may_be_given_to_a_third() {
    simulate(3, 1, 4, |me| {
        let answer = me.call_with_reply(me.neighbor(1), 5_u64, |there, x, reply: Reply<(u64, WorkerId)>| {
            let passed = there.call(there.neighbor(1), (x, reply), |third, (x, reply)| reply.send((x * x, third.id())));
            assert!(passed.is_ok());
        })?;
        assert_eq!(answer.wait()?, (25, me.neighbor(2)));
        me.barrier()
    })
    .unwrap();
}

/// Many more results are under way than the network takes messages.
#[test]
fn many_results_are_under_way_at_once() {
    simulate(3, 1, 5, |me| {
        for round in 0..10_u64 {
            let pending: Vec<_> = (0..240)
                .map(|x| me.call_return(WorkerId::new(x % 3), (round, x), |_, (round, x)| round * 1000 + u64::from(x)))
                .collect::<Result<_, _>>()?;
            for (x, pending) in pending.into_iter().enumerate() {
                assert_eq!(pending.wait()?, round * 1000 + x as u64);
            }
        }
        me.barrier()
    })
    .unwrap();
}

#[test]
fn buffers_of_all_sizes_travel() {
    simulate(2, 1, 6, |me| {
        let sum = PerWorker::new(me, Cell::new(0))?;
        let mut sent = 0;
        let sizes = [
            0,
            1,
            7,
            8,
            9,
            4031,
            4032,
            4033,
            65_535,
            65_536,
            262_144,
            262_145,
            524_288,
            1 << 20,
            (1 << 20) + 1,
            3 << 20,
        ];
        for (round, size) in sizes.into_iter().enumerate() {
            let buffer: Vec<u8> = (0..size).map(|i| (i * 31 + round) as u8).collect();
            sent += buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>() + size as u64;
            me.call_buffer(me.neighbor(1), (sum, size), &buffer, |there, (sum, size), buffer| {
                assert_eq!(buffer.len(), size);
                add(there, (sum, buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>() + size as u64));
            })?;
        }
        me.wait_while_serving(|| sum.here(me).get() == sent)?;
        me.barrier()
    })
    .unwrap();
}

#[test]
fn synchronizers_count_executions_and_sendings() {
    simulate(2, 2, 7, |me| {
        let hits = Dist::new(me, || AtomicU64::new(0))?;
        let executed = me.synchronizer(me.worker_count() * 300)?;
        let sent = me.synchronizer(0)?;
        for to in me.workers() {
            for _ in 0..300 {
                let hit = |there: &Worker, hits: Dist<AtomicU64>| hits.here(there).fetch_add(1, Ordering::Relaxed);
                me.to(to).notify(&executed, On::Executed).call(hits, hit)?;
                sent.add(1);
                me.to(to).notify(&sent, On::Sent).call(hits, hit)?;
            }
        }
        executed.wait()?;
        sent.wait()?;
        me.barrier()?;
        me.wait_while_serving(|| hits.here(me).load(Ordering::Relaxed) == 2 * 4 * 600)?;
        me.barrier()
    })
    .unwrap();
}

#[test]
fn lanes_are_shared_by_a_process() {
    const CALLS: u64 = 500;
    simulate(3, 2, 8, |me| {
        let sum = PerWorker::new(me, Cell::new(0))?;
        for x in 1..=CALLS {
            for to in me.workers() {
                me.to(to).send_based().call((sum, x), add)?;
            }
        }
        me.wait_while_serving(|| sum.here(me).get() == 6 * CALLS * (CALLS + 1) / 2)?;
        me.barrier()
    })
    .unwrap();
}

#[test]
fn collectives_agree() {
    for processes in [1, 2, 3, 5] {
        simulate(processes, 2, 9, |me| {
            let count = u64::from(me.worker_count());
            for round in 0..5_u64 {
                let root = WorkerId::new((round % count) as u32);
                let word = me.broadcast(root, (me.id() == root).then(|| format!("round {round}").repeat(1000)))?;
                assert_eq!(word, format!("round {round}").repeat(1000));
                let sum = me.all_reduce(u64::from(me.id().number()) + round, |a, b| a + b)?;
                assert_eq!(sum, count * (count - 1) / 2 + count * round);
                let gathered = me.gather(root, (me.id(), round))?;
                let expected: Vec<_> = me.workers().map(|worker| (worker, round)).collect();
                assert_eq!(gathered, (me.id() == root).then_some(expected));
                me.barrier()?;
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn the_end_waits_for_everything_that_was_sent() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    fn hop(there: &Worker, left: u32) {
        RUNS.fetch_add(1, Ordering::Relaxed);
        if left > 0 {
            there.call(there.neighbor(1), left - 1, hop).unwrap();
        }
    }
    simulate(3, 1, 10, |me| Ok(me.call(me.neighbor(1), 100, hop)?)).unwrap();
    assert_eq!(RUNS.load(Ordering::Relaxed), 3 * 101);
}

#[test]
fn a_panic_in_a_call_ends_the_job() {
    let verdict = simulate(3, 1, 11, |me| {
        me.barrier()?;
        if me.id().number() == 0 {
            me.call(WorkerId::new(1), (), |_, ()| panic!("so it goes"))?;
        }
        let told = me.wait_together(std::time::Duration::from_secs(60), || false);
        if me.id().number() == 1 {
            return told;
        }
        assert!(matches!(told, Err(Error::PeerLost { .. })), "{told:?}");
        Ok(())
    });
    match verdict {
        Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Reported(why) })) => {
            assert_eq!(process.number(), 1);
            assert_eq!(why, "worker 1: a function that worker 0 called here panicked: so it goes");
        }
        other => panic!("{other:?}"),
    }
}

/// When a process fails, the others go on. No call among them is lost, doubled or overtaken.
#[test]
fn survivors_go_on() {
    const CALLS: u64 = 300;
    type Last = PerWorker<RefCell<[u64; 4]>>;
    fn arrive(there: &Worker, (last, from, number): (Last, WorkerId, u64)) {
        let mut last = last.here(there).borrow_mut();
        assert_eq!(last[from.index()] + 1, number);
        last[from.index()] = number;
    }
    for seed in 0..scaled(5) {
        let survivors = AtomicU64::new(0);
        let verdict = simulate(4, 1, seed, |me| {
            let last = PerWorker::new(me, RefCell::new([0; 4]))?;
            for number in 1..=CALLS {
                if me.id().number() == 2 && number == CALLS / 2 {
                    // Earlier messages of this process may be lost with it, so the others must have
                    // passed the barrier.
                    me.wait_while_serving(|| last.here(me).borrow().iter().all(|last| *last > 0))?;
                    return Err(Error::JobEnded { why: "it has had enough".to_owned() });
                }
                for to in me.workers() {
                    match me.call(to, (last, me.id(), number), arrive).map_err(Error::from) {
                        Err(Error::PeerLost { process, .. }) if to.number() == 2 && process.number() == 2 => {}
                        other => other?,
                    }
                }
            }
            me.wait_while_serving(|| {
                let last = last.here(me).borrow();
                [0, 1, 3].into_iter().all(|from| last[from] == CALLS) && me.lost_processes() == [ProcessId::new(2)]
            })?;
            survivors.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(
            matches!(&verdict, Err(Error::Launch(LaunchError::ProcessFailed { process, .. })) if process.number() == 2),
            "{verdict:?}"
        );
        assert_eq!(survivors.load(Ordering::Relaxed), 3, "of seed {seed}");
    }
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// All kinds of calls at once, over networks with different behaviour. The same seed gives the same
/// run.
#[test]
fn soak() {
    for seed in 1..=scaled(4) {
        let simulated = everything_at_once(seed);
        simulated.verdict.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(everything_at_once(seed).trace, simulated.trace, "of seed {seed}");
    }
}

fn everything_at_once(seed: u64) -> Simulated {
    let simulated = Simulation::new(3, 1 + seed as u32 % 2, seed).run(|me| {
        let sum = PerWorker::new(me, Cell::new(0))?;
        let mut random = Random(seed << 32 | u64::from(me.id().number() + 1));
        let mut sent = vec![0; me.worker_count() as usize];
        let executed = me.synchronizer(0)?;
        for _ in 0..150 {
            let to = WorkerId::new(random.below(u64::from(me.worker_count())) as u32);
            let x = random.below(1000);
            sent[to.index()] += x;
            match random.below(7) {
                0 => me.call(to, (sum, x), add)?,
                1 => me.aggregate(to).call((sum, x), add)?,
                2 => me.to(to).send_based().call((sum, x), add)?,
                3 => {
                    executed.add(1);
                    me.to(to).notify(&executed, On::Executed).call((sum, x), add)?;
                }
                4 => {
                    let buffer = vec![1; random.below(20_000) as usize];
                    me.call_buffer(to, (sum, x), &buffer, |there, (sum, x), buffer| {
                        assert!(buffer.iter().all(|byte| *byte == 1));
                        add(there, (sum, x));
                    })?;
                }
                5 => {
                    let pending = me.call_return(to, (sum, x), |there, (sum, x)| {
                        add(there, (sum, x));
                        !x
                    })?;
                    assert_eq!(pending.wait()?, !x);
                }
                _ => {
                    let pending = me.call_with_reply(to, (sum, x), |there, (sum, x), reply: Reply<Vec<u64>>| {
                        add(there, (sum, x));
                        reply.send(vec![x; 400]);
                    })?;
                    assert_eq!(pending.wait()?, [x; 400]);
                }
            }
        }
        executed.wait()?;
        let totals = me.all_reduce(sent, |a, b| a.iter().zip(b).map(|(a, b)| a + b).collect())?;
        me.wait_while_serving(|| sum.here(me).get() == totals[me.id().index()])?;
        me.barrier()
    });
    simulated.unwrap()
}

/// Every hook runs once for each loss, on each survivor, after the last call of the lost process
/// has run there. It may make calls. One that is registered later does not hear of it.
#[test]
fn hooks_hear_of_each_loss() {
    const CALLS: u64 = 200;
    let (dying, ends) = ([ProcessId::new(1), ProcessId::new(3)], AtomicU64::new(0));
    for seed in 1..6 {
        let simulation = dying.iter().zip(2..).fold(Simulation::new(5, 1, seed), |simulation, (process, at)| {
            simulation.kill(*process, std::time::Duration::from_millis(at))
        });
        ends.store(0, Ordering::Relaxed);
        let simulated = simulation.run(|me| {
            let (sums, told) = (PerWorker::new(me, RefCell::new(vec![0; 5]))?, PerWorker::new(me, Cell::new(0))?);
            let add = |there: &Worker, (sums, from): (PerWorker<RefCell<Vec<u64>>>, WorkerId)| {
                sums.with(there, |sums| sums[from.index()] += 1);
            };
            let heard = std::rc::Rc::new(RefCell::new(Vec::new()));
            for hook in 0..2 {
                let heard = heard.clone();
                me.when_lost(move |me, lost| {
                    assert!(me.lost_processes().contains(&lost));
                    let sum = sums.with(me, |sums| sums[lost.number() as usize]);
                    heard.borrow_mut().push((lost, hook, sum));
                    // Of a survivor, or dropped.
                    let tell =
                        |there: &Worker, told: PerWorker<Cell<u64>>| told.here(there).set(told.here(there).get() + 1);
                    let _ = me.call(WorkerId::FIRST, told, tell);
                });
            }
            if dying.contains(&me.process()) {
                // Some of these calls are on their way when it dies.
                for _ in 0..CALLS {
                    for to in me.workers().filter(|to| *to != me.id()) {
                        let _ = me.call(to, (sums, me.id()), add);
                    }
                }
                let _ = me.wait_while_serving(|| false);
                return Ok(());
            }
            let wait = |condition: &dyn Fn() -> bool| me.wait_while_serving(condition);
            wait(&|| heard.borrow().len() == 4)?;
            let late = std::rc::Rc::new(Cell::new(false));
            let is_told = late.clone();
            me.when_lost(move |_, _| is_told.set(true));
            ends.fetch_add(1, Ordering::Relaxed);
            wait(&|| ends.load(Ordering::Relaxed) >= 3)?;
            if me.is_first() {
                // Two hooks of three survivors for two losses.
                wait(&|| told.here(me).get() >= 12)?;
            }
            let mut heard = heard.take();
            for (lost, _, sum) in &heard {
                assert_eq!(sums.with(me, |sums| sums[lost.number() as usize]), *sum, "a call came after the hook");
            }
            heard.sort_unstable();
            let heard: Vec<_> = heard.into_iter().map(|(lost, hook, _)| (lost, hook)).collect();
            assert_eq!(heard, dying.map(|lost| [(lost, 0), (lost, 1)]).concat());
            assert!(!late.get());
            ends.fetch_add(1, Ordering::Relaxed);
            wait(&|| ends.load(Ordering::Relaxed) == 6)
        });
        assert!(simulated.unwrap().verdict.is_err(), "a loss is the verdict");
        assert_eq!(ends.load(Ordering::Relaxed), 6);
    }
}
