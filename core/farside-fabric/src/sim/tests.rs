//! Tests that the simulator uses the freedom that the contract permits, respects its limits, and
//! replays. The conformance suite checks the contract itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Random;
use super::{LogGp, SimFabric, SimOptions, Trace};
use crate::clock::SeatEnd;
use crate::ids::ProcessId;
use crate::region::RemoteRegion;
use crate::transport::{AtomicChange, Completion, Event, FabricError, Operation, Outcome, RemoteKey, Transport};

const SEEDS: u64 = 300;
const STARTER_BYTES: usize = 4096;
const ORDERLY: SimOptions = SimOptions {
    network: LogGp::IDEAL,
    processes_per_machine: 1,
    delay_max_ns: 0,
    operations_max: 64,
    queue_depth: 64,
    messages_max: 64,
    message_bytes_max: 64,
    needs_target_progress: false,
    failing_registrations: (0, 0),
    ends_puts_early: false,
};

fn later() -> Instant {
    farside_testbed::deadline()
}

type Ends = Vec<Arc<dyn Transport>>;

fn start(processes: u32, seed: u64, options: SimOptions) -> (SimFabric, Ends) {
    let fabric = SimFabric::new(processes, STARTER_BYTES, seed, options).unwrap();
    let ends = (0..processes).map(|number| fabric.endpoint(ProcessId::new(number))).collect();
    (fabric, ends)
}

/// Attaches the starter memory of the second endpoint to the first.
fn attach(ends: &[Arc<dyn Transport>]) -> RemoteRegion {
    ends[0].attach(ends[1].starter().key(), later()).unwrap()
}

fn put(offset: u64, data: &[u8]) -> Operation {
    Operation::Put { offset, data: data.to_vec() }
}

/// Reads the owner's view of its own memory.
fn look(end: &Arc<dyn Transport>, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    end.starter().as_remote().get(0, &mut found, later()).unwrap();
    found
}

fn finish(end: &Arc<dyn Transport>, completion: Completion) -> Result<Outcome, FabricError> {
    completion.wait(&**end, end.process(), later())
}

fn is_disconnected<T>(result: &Result<T, FabricError>, from: u32) -> bool {
    matches!(result, Err(FabricError::Disconnected { process }) if process.number() == from)
}

/// Returns, as text, everything that a thread which drives three processes sees.
fn trace(seed: u64) -> String {
    let (fabric, ends) = start(3, seed, SimOptions { operations_max: 5, messages_max: 3, ..SimOptions::default() });
    for end in &ends {
        for peer in &ends {
            end.attach(peer.starter().key(), later()).unwrap();
        }
    }
    let mut script = Random::new(1);
    let mut posted: Vec<Completion> = Vec::new();
    let mut trace = String::new();
    for _ in 0..400 {
        let (end, peer) = (&ends[script.index(3)], &ends[script.index(3)]);
        let offset = script.up_to(20) * 8;
        let change = AtomicChange::Add(script.next());
        let operation = match script.index(3) {
            0 => put(offset, &[script.next() as u8; 20]),
            1 => Operation::get(offset, 40),
            _ => Operation::Atomic64 { offset, change },
        };
        let saw = match script.index(5) {
            0 => format!("{:?}", end.send(peer.process(), &script.next().to_le_bytes())),
            1 | 2 => match end.post(peer.starter().key(), operation) {
                Ok(completion) => {
                    posted.push(completion);
                    String::from("posted")
                }
                Err(error) => error.to_string(),
            },
            3 => format!("{:?}", end.receive()),
            _ => {
                end.progress();
                let ended: Vec<bool> = posted.iter().map(Completion::has_ended).collect();
                format!("{ended:?} {:?}", look(peer, 200))
            }
        };
        trace += &format!("{} {saw}\n", fabric.now_ns());
    }
    trace
}

#[test]
fn one_thread_replays_exactly() {
    let traces: BTreeSet<String> = (0..10).map(trace).collect();
    assert_eq!(traces.len(), 10, "every seed gives another run");
    assert!((0..10).all(|seed| traces.contains(&trace(seed))));
}

/// Effects of uncompleted operations that an owner may see in its memory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Harm {
    second_put_first: bool,
    torn_put: bool,
    torn_get: bool,
    message_before_put: bool,
}

fn observe(options: SimOptions) -> Harm {
    let mut harm = Harm::default();
    for seed in 0..SEEDS {
        let (_fabric, ends) = start(2, seed, options);
        let key = attach(&ends).key();
        ends[0].post(key, put(0, &[1; 8])).unwrap();
        ends[0].post(key, put(8, &[1; 8])).unwrap();
        ends[0].post(key, put(16, &[1; 64])).unwrap();
        let get = ends[0].post(key, Operation::get(128, 64)).unwrap();
        ends[0].send(ends[1].process(), b"sent after the puts").unwrap();
        let mut has_message = false;
        for _ in 0..4 * options.delay_max_ns.max(1) {
            let seen = look(&ends[1], 80);
            let has_first = seen[0] == 1;
            harm.second_put_first |= !has_first && seen[8] == 1;
            harm.torn_put |= seen[16..].contains(&0) && seen[16..].contains(&1);
            harm.message_before_put |= has_message && !has_first;
            // Steps by the target, so that the initiator's operations are not hurried.
            ends[1].progress();
            has_message |= ends[1].receive().is_some();
            if !get.has_ended() && has_first {
                ends[1].starter().as_remote().put(128, &[1; 64], later()).unwrap();
            }
        }
        let Outcome::Got(got) = finish(&ends[0], get).unwrap() else { panic!("a get brings bytes") };
        harm.torn_get |= got.contains(&0) && got.contains(&1);
        assert_eq!(look(&ends[1], 80), [1; 80], "in the end all puts are visible");
    }
    harm
}

#[test]
fn everything_the_contract_leaves_open_happens() {
    let harm = observe(SimOptions { delay_max_ns: 50, ..SimOptions::default() });
    let all = Harm { second_put_first: true, torn_put: true, torn_get: true, message_before_put: true };
    assert_eq!(harm, all);
}

#[test]
fn without_delays_nothing_is_torn_or_overtaken() {
    assert_eq!(observe(ORDERLY), Harm::default());
}

#[test]
fn a_killed_process_leaves_some_of_its_operations_behind() {
    let mut left = BTreeSet::new();
    for seed in 0..SEEDS {
        let (fabric, ends) = start(2, seed, SimOptions::default());
        let key = attach(&ends).key();
        let posted = ends[0].post(key, put(0, &[1; 40])).unwrap();
        fabric.kill(ends[0].process());
        assert!(is_disconnected(&finish(&ends[0], posted), 0), "the killed process learns of its death");
        (0..4000).for_each(|_| ends[1].progress());
        left.insert(look(&ends[1], 40).iter().map(|byte| u32::from(*byte)).sum::<u32>());
    }
    assert!(left.contains(&0) && left.contains(&40), "both all and nothing are possible: {left:?}");
    assert!(left.len() > 2, "a part is possible: {left:?}");
}

#[test]
fn a_killed_processs_first_messages_arrive_and_then_the_news() {
    const MESSAGES: u8 = 20;
    let mut arrived = BTreeSet::new();
    for seed in 0..SEEDS {
        let (fabric, ends) = start(2, seed, SimOptions::default());
        (0..MESSAGES).for_each(|number| ends[0].send(ends[1].process(), &[number]).unwrap());
        // Some messages have been received by then, some are in transit.
        (0..seed % 64).for_each(|_| ends[1].progress());
        fabric.kill(ends[0].process());
        (0..4000).for_each(|_| ends[1].progress());
        let events: Vec<Event> = std::iter::from_fn(|| ends[1].receive()).collect();
        let (news, messages) = events.split_last().expect("the peer learns of the death");
        assert_eq!(*news, Event::Disconnected { process: ends[0].process() });
        for (number, event) in messages.iter().enumerate() {
            let message = vec![number as u8];
            assert_eq!(*event, Event::Message { from: ends[0].process(), message });
        }
        arrived.insert(messages.len());
    }
    assert!(arrived.contains(&0) && arrived.len() > 5, "number of arrived messages, by seed: {arrived:?}");
}

#[test]
fn a_killed_process_finds_itself_alone() {
    let (fabric, ends) = start(2, 1, SimOptions::default());
    let key = attach(&ends).key();
    ends[1].send(ends[0].process(), b"too late").unwrap();
    fabric.kill(ends[0].process());
    fabric.kill(ends[0].process());
    ends[0].wait(&[], None);
    ends[0].progress();
    assert_eq!(ends[0].receive(), Some(Event::Disconnected { process: ends[0].process() }));
    assert_eq!(ends[0].receive(), None);
    assert!(is_disconnected(&ends[0].send(ends[1].process(), b"hello?"), 0));
    assert!(is_disconnected(&ends[0].attach(RemoteKey::starter(ends[1].process(), 1), later()), 0));
    let posted = ends[0].post(key, put(0, &[1])).unwrap();
    assert!(is_disconnected(&finish(&ends[0], posted), 0));
}

#[test]
fn operations_on_a_killed_process_end_with_the_news() {
    for seed in 0..SEEDS {
        let options = SimOptions { needs_target_progress: seed % 2 == 0, ..SimOptions::default() };
        let (fabric, ends) = start(3, seed, options);
        let key = attach_helped(&ends);
        let posted: Vec<_> = (0..4).map(|word| ends[0].post(key, put(word * 8, &[1; 8])).unwrap()).collect();
        (0..seed % 32).for_each(|_| ends[2].progress());
        fabric.kill(ends[1].process());
        for completion in posted {
            let ended = finish(&ends[0], completion);
            assert!(ended.is_ok() || is_disconnected(&ended, 1), "{ended:?}");
            assert!(!options.needs_target_progress || ended.is_err(), "a killed process makes no progress");
        }
    }
}

/// Attaches while another thread makes progress for the target.
fn attach_helped(ends: &[Arc<dyn Transport>]) -> RemoteKey {
    let is_attached = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_attached.load(Ordering::SeqCst) {
                ends[1].progress();
                thread::yield_now();
            }
        });
        let key = attach(ends).key();
        is_attached.store(true, Ordering::SeqCst);
        key
    })
}

#[test]
fn operations_wait_for_the_target_if_they_need_it() {
    let (_fabric, ends) = start(2, 1, SimOptions { needs_target_progress: true, ..SimOptions::default() });
    let key = attach_helped(&ends);
    let posted = ends[0].post(key, put(0, &[1; 8])).unwrap();
    (0..5000).for_each(|_| ends[0].progress());
    assert!(!posted.has_ended());
    assert_eq!(look(&ends[1], 8), [0; 8]);
    ends[1].progress();
    assert_eq!(look(&ends[1], 8), [1; 8]);
    assert_eq!(finish(&ends[0], posted).unwrap(), Outcome::Put(vec![1; 8]));
}

#[test]
fn queues_are_as_long_as_they_say() {
    for max in [1, 2, 3, 4, 5] {
        let (_fabric, ends) = start(2, 1, SimOptions { operations_max: max, messages_max: max, ..ORDERLY });
        let key = attach(&ends).key();
        let post = || ends[0].post(key, put(0, &[1])).map_err(FabricError::from);
        let posted: Vec<_> = (0..max).map(|_| post().unwrap()).collect();
        assert!(matches!(post(), Err(FabricError::QueueFull { max: told, .. }) if told == max));
        posted.into_iter().for_each(|completion| assert!(finish(&ends[0], completion).is_ok()));
        assert!(post().is_ok());

        let send = || ends[0].send(ends[1].process(), b"m");
        (0..max).for_each(|_| send().unwrap());
        assert!(matches!(send(), Err(FabricError::QueueFull { max: told, .. }) if told == max));
        ends[1].progress();
        assert!(send().is_err(), "an arrived message that is not received still counts");
        assert!(ends[1].receive().is_some());
        assert!(send().is_ok());
    }
}

#[test]
fn a_forgotten_peer_is_notified_and_ignored() {
    for seed in 0..SEEDS {
        let (_fabric, ends) = start(2, seed, SimOptions::default());
        ends[0].send(ends[1].process(), b"connect").unwrap();
        ends[1].send(ends[0].process(), b"unheard").unwrap();
        ends[0].forget(ends[1].process());
        (0..4000).for_each(|_| ends.iter().for_each(|end| end.progress()));
        assert_eq!(ends[0].receive(), Some(Event::Disconnected { process: ends[1].process() }));
        assert_eq!(ends[0].receive(), None);
        assert!(matches!(ends[1].receive(), Some(Event::Message { .. })));
        assert_eq!(ends[1].receive(), Some(Event::Disconnected { process: ends[0].process() }));
        assert!(is_disconnected(&ends[1].send(ends[0].process(), b"?"), 0));
    }
}

#[test]
fn an_unattached_key_is_stale() {
    let (_fabric, ends) = start(2, 1, SimOptions::default());
    let posted = ends[0].post(ends[1].starter().key(), put(0, &[1])).unwrap();
    assert!(matches!(finish(&ends[0], posted), Err(FabricError::StaleKey { .. })));
}

#[test]
fn an_end_is_the_same_every_time() {
    let (fabric, ends) = start(2, 1, SimOptions::default());
    assert!(Arc::ptr_eq(&ends[0], &fabric.endpoint(ends[0].process())));
}

#[test]
#[should_panic(expected = "has not been dropped")]
fn an_end_that_was_dropped_stays_away() {
    let (fabric, ends) = start(1, 1, SimOptions::default());
    drop(ends);
    fabric.endpoint(ProcessId::new(0));
}

/// The work of one process at its endpoint.
type Work<'a> = &'a (dyn Fn(&dyn Transport) + Sync);

/// Runs the work of two processes in turns, and returns when both are done.
fn in_turns(seed: u64, options: SimOptions, work: [Work<'_>; 2]) -> Trace {
    let fabric = SimFabric::in_turns(2, STARTER_BYTES, seed, options).unwrap();
    let ends = [0, 1].map(|number| fabric.endpoint(ProcessId::new(number)));
    let seat = fabric.clock().seat();
    thread::scope(|scope| {
        seat.take(|| {
            let mut seats = Vec::new();
            for (end, work) in ends.iter().zip(work) {
                let seat = end.clock().seat();
                seats.push(seat.end());
                scope.spawn(move || seat.take(|| work(&**end)));
            }
            seats.iter().for_each(SeatEnd::wait);
            fabric.end();
        });
    });
    fabric.trace()
}

fn virtually_later(end: &dyn Transport) -> Instant {
    end.clock().now() + Duration::from_secs(30)
}

/// Puts 40 bytes repeatedly, while their owner looks at them.
fn watch_a_put(seed: u64, options: SimOptions) -> (bool, Trace) {
    let torn = AtomicBool::new(false);
    let put_all = |end: &dyn Transport| {
        let region =
            end.attach(RemoteKey::starter(ProcessId::new(1), STARTER_BYTES as u64), virtually_later(end)).unwrap();
        for value in 1..=20 {
            region.put(0, &[value; 40], virtually_later(end)).unwrap();
        }
        end.send(ProcessId::new(1), b"done").unwrap();
    };
    let look = |end: &dyn Transport| {
        let mut found = [0; 40];
        let mut done = false;
        while !done {
            end.starter().as_remote().get(0, &mut found, virtually_later(end)).unwrap();
            torn.fetch_or(found != [found[0]; 40], Ordering::Relaxed);
            end.clock().pause();
            end.progress();
            done = end.receive().is_some();
        }
        end.starter().as_remote().get(0, &mut found, virtually_later(end)).unwrap();
        assert_eq!(found, [20; 40], "a completed put is visible after a message");
    };
    let trace = in_turns(seed, options, [&put_all, &look]);
    (torn.into_inner(), trace)
}

#[test]
fn puts_are_torn_in_turns_too_and_replay() {
    let jittery = SimOptions { network: LogGp::FDR, ..SimOptions::default() };
    let mut torn = 0;
    for seed in 0..30 {
        let first = watch_a_put(seed, jittery);
        assert_eq!(watch_a_put(seed, jittery), first, "of seed {seed}");
        torn += u32::from(first.0);
        let (torn_without_jitter, _) = watch_a_put(seed, SimOptions { delay_max_ns: 0, ..jittery });
        assert!(!torn_without_jitter);
    }
    assert!(torn > 0, "no put was seen half done");
}

#[test]
fn operations_take_what_the_model_says() {
    let network = LogGp { latency_ns: 1000, overhead_ns: 10, gap_ns: 200, gap_per_byte_ps: 500, ..LogGp::IDEAL };
    let measure = |end: &dyn Transport| {
        let region =
            end.attach(RemoteKey::starter(ProcessId::new(1), STARTER_BYTES as u64), virtually_later(end)).unwrap();
        let took = |work: &dyn Fn()| {
            // A pause, so that earlier operations leave the ports free.
            end.clock().sleep_for(Duration::from_micros(10));
            let start = end.clock().now();
            work();
            (end.clock().now() - start).as_nanos()
        };
        assert_eq!(took(&|| region.put(0, &[1; 2000], virtually_later(end)).unwrap()), 10 + 2 * 1000 + 1000);
        assert_eq!(took(&|| region.get(0, &mut [0; 400], virtually_later(end)).unwrap()), 10 + 2 * 1000 + 200);
        let add = AtomicChange::Add(1);
        assert_eq!(
            took(&|| assert_eq!(region.atomic64(0, add, virtually_later(end)).unwrap() >> 32, 0x0101_0101)),
            10 + 2 * 1000 + 2 * 4
        );
        assert_eq!(took(&|| end.clock().charge(Duration::from_nanos(7))), 7);
    };
    in_turns(1, SimOptions { network, ..ORDERLY }, [&measure, &|_| ()]);
}

/// Runs `work` in process 0 with the starter memory of process 1.
fn with_a_neighbour(options: SimOptions, work: impl Fn(&dyn Transport, RemoteRegion) + Sync) {
    let attach = |end: &dyn Transport| {
        let key = RemoteKey::starter(ProcessId::new(1), STARTER_BYTES as u64);
        let region = end.attach(key, virtually_later(end)).unwrap();
        end.clock().sleep_for(Duration::from_micros(10));
        work(end, region);
    };
    in_turns(1, options, [&attach, &|_| ()]);
}

/// Posts these operations together, and returns the nanoseconds until the last has ended.
fn time_all(end: &dyn Transport, region: &RemoteRegion, operations: &[Operation]) -> u64 {
    let start = end.clock().now();
    let posted: Vec<_> = operations.iter().map(|each| end.post(region.key(), each.clone()).unwrap()).collect();
    for completion in posted {
        completion.wait(end, ProcessId::new(1), virtually_later(end)).unwrap();
    }
    let took = (end.clock().now() - start).as_nanos() as u64;
    end.clock().sleep_for(Duration::from_micros(100));
    took
}

const fn add(offset: u64) -> Operation {
    Operation::Atomic64 { offset, change: AtomicChange::Add(1) }
}

#[test]
fn aries_gives_the_published_latencies() {
    with_a_neighbour(SimOptions { network: LogGp::ARIES, ..ORDERLY }, |end, region| {
        let swap = AtomicChange::CompareSwap { expected: 0, new: 1 };
        let table = [
            (3000, put(0, &[1; 8])),
            (3700, Operation::get(0, 8)),
            (3800, Operation::Atomic64 { offset: 8, change: swap }),
            (3900, add(16)),
        ];
        for (published_ns, operation) in table {
            assert_eq!(time_all(end, &region, std::slice::from_ref(&operation)), published_ns, "{operation:?}");
        }
    });
}

#[test]
fn atomics_on_one_word_take_turns() {
    with_a_neighbour(SimOptions { network: LogGp::ARIES, ..ORDERLY }, |end, region| {
        let model = LogGp::ARIES;
        let spread = time_all(end, &region, &[add(0), add(8), add(16), add(24)]);
        assert_eq!(spread, 3900 + 3 * model.gap_ns);
        assert_eq!(time_all(end, &region, &[add(0), add(0), add(0), add(0)]), 3900 + 3 * model.word_ns);
        // The word is free again.
        assert_eq!(time_all(end, &region, &[add(0)]), 3900);
        let mut count = [0; 8];
        region.get(0, &mut count, virtually_later(end)).unwrap();
        assert_eq!(u64::from_le_bytes(count), 6);
    });
}

#[test]
fn processes_of_one_machine_share_memory() {
    for (processes_per_machine, nanoseconds) in [(1, 3000), (2, 61), (3, 61)] {
        let options = SimOptions { network: LogGp::ARIES, processes_per_machine, ..ORDERLY };
        with_a_neighbour(options, |end, region| {
            assert_eq!(time_all(end, &region, &[put(0, &[1; 8])]), nanoseconds);
        });
    }
}

#[test]
fn a_full_queue_ends_a_wait_when_there_is_room() {
    let options = SimOptions { network: LogGp::FDR, messages_max: 2, ..ORDERLY };
    let send_all = |end: &dyn Transport| {
        let start = end.clock().now();
        for number in 0..50_u8 {
            while let Err(error) = end.send(ProcessId::new(1), &[number]) {
                assert!(matches!(error, FabricError::QueueFull { max: 2, .. }), "{error}");
                end.wait(&[], Some(virtually_later(end)));
            }
        }
        assert!(end.clock().now() - start < Duration::from_secs(1), "no wait lasted until its deadline");
    };
    let receive_all = |end: &dyn Transport| {
        let mut expected = 0..50_u8;
        while !expected.is_empty() {
            end.progress();
            match end.receive() {
                Some(Event::Message { message, .. }) => assert_eq!(message, [expected.next().unwrap()]),
                Some(other) => panic!("{other:?}"),
                None => end.wait(&[], None),
            }
        }
    };
    in_turns(3, options, [&send_all, &receive_all]);
}

#[test]
fn a_process_alone_in_a_simulation_comes_to_its_end() {
    // No message will ever arrive: the simulation is over, and so is its wait.
    in_turns(1, ORDERLY, [&|end| end.wait(&[], None), &|end| end.wait(&[], None)]);
}
