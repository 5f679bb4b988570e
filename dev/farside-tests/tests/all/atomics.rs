//! Atomic changes of words of all kinds are linearizable. The bodies run as processes, over the
//! fabric that `FARSIDE_FABRIC` names, and in the simulator.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use farside::prelude::*;
use farside::{AtomicChange, Comparison, GlobalAddress, GlobalPtr, Result, Simulation};
use farside_testbed::{limit, scaled};

/// Words of process 0: of its starter memory, or of a vector that it has registered and can change
/// itself.
#[derive(Clone, Copy)]
struct Words(GlobalAddress);

const WORDS: usize = 32;

impl Words {
    fn at<W>(self, number: u64) -> GlobalPtr<W> {
        self.0.checked_add(number * 8).expect("there are so many").cast()
    }
}

/// The changes of many workers to words of each kind are all there.
fn nothing_is_lost(me: &Worker, words: Words) -> Result<()> {
    let (workers, own) = (me.worker_count(), me.id().number() as i32);
    let rounds = 20;
    words.at::<f64>(0).store(me, 0.0)?;
    words.at::<f64>(2).store(me, f64::INFINITY)?;
    words.at::<f32>(3).store(me, f32::NAN)?;
    me.barrier()?;
    for round in 0..rounds {
        words.at::<f64>(0).fetch_add(me, 0.5)?;
        words.at::<f32>(1).fetch_add(me, -0.25)?;
        words.at::<f64>(2).fetch_min(me, f64::from(own - round))?;
        words.at::<f32>(3).fetch_max(me, (own + round) as f32)?;
        words.at::<i64>(4).fetch_add(me, i64::from(-own))?;
        words.at::<i64>(5).fetch_min(me, i64::from(-own * round))?;
        words.at::<i32>(6).fetch_max(me, own * round - 5)?;
        words.at::<i32>(7).fetch_xor(me, -1 << own)?;
    }
    me.barrier()?;
    let (count, last) = (rounds as f64 * f64::from(workers), workers as i32 - 1);
    assert_eq!(words.at::<f64>(0).load(me)?, count * 0.5);
    assert_eq!(words.at::<f32>(1).load(me)?, count as f32 * -0.25);
    assert_eq!(words.at::<f64>(2).load(me)?, f64::from(1 - rounds));
    assert_eq!(words.at::<f32>(3).load(me)?, (last + rounds - 1) as f32);
    assert_eq!(words.at::<i64>(4).load(me)?, i64::from(-rounds * (0..=last).sum::<i32>()));
    assert_eq!(words.at::<i64>(5).load(me)?, i64::from(-last * (rounds - 1)));
    assert_eq!(words.at::<i32>(6).load(me)?, last * (rounds - 1) - 5);
    assert_eq!(words.at::<i32>(7).load(me)?, 0);
    me.barrier()?;
    stores_publish(me, words)?;
    if me.id().number() == 0 {
        one_by_one(me, words)?;
        me.put_bytes(words.0, &[0; 8 * WORDS])?;
    }
    me.barrier()
}

/// A worker that loads what a store wrote sees what was put before it.
fn stores_publish(me: &Worker, words: Words) -> Result<()> {
    const ROUNDS: u64 = 200;
    let (flag, answer) = (words.at::<u64>(16), words.at::<u32>(17));
    let payload = words.at::<u64>(18).slice(8);
    for round in 1..=ROUNDS {
        match me.id().number() {
            0 => {
                payload.put(me, 0, &[round; 8])?;
                flag.store(me, round)?;
                answer.until(Comparison::Eq, round as u32).wait(me)?;
            }
            1 => {
                flag.until(Comparison::Eq, round).wait(me)?;
                let mut values = [0; 8];
                payload.look(me, 0, &mut values)?;
                assert_eq!(values, [round; 8]);
                answer.store(me, round as u32)?;
            }
            _ => {}
        }
    }
    me.barrier()
}

/// Each change has its effect on a word and returns the previous value.
fn one_by_one(me: &Worker, words: Words) -> Result<()> {
    let signed = words.at::<i64>(10);
    signed.store(me, -5)?;
    assert_eq!((signed.fetch_min(me, 3)?, signed.fetch_max(me, -2)?, signed.load(me)?), (-5, -5, -2));
    assert_eq!((signed.fetch_and(me, 0b110)?, signed.fetch_or(me, 1)?, signed.load(me)?), (-2, 0b110, 0b111));
    assert_eq!((signed.compare_swap(me, 1, 2)?, signed.compare_swap(me, 7, i64::MIN)?), (7, 7));
    assert_eq!((signed.fetch_add(me, -1)?, signed.load(me)?), (i64::MIN, i64::MAX));
    assert_eq!(signed.change(me, AtomicChange::Min(-1))?, i64::MAX);
    assert_eq!(signed.change(me, AtomicChange::Xor(-1))?, -1);
    let float = words.at::<f64>(10);
    float.store(me, f64::NAN)?;
    assert!(float.fetch_add(me, 1.0)?.is_nan() && float.load(me)?.is_nan());
    assert!(float.fetch_min(me, 2.0)?.is_nan());
    assert_eq!((float.fetch_max(me, f64::NAN)?, float.load(me)?), (2.0, 2.0));
    float.store(me, -0.0)?;
    assert_eq!(float.compare_swap(me, 0.0, 1.0)?.to_bits(), (-0.0_f64).to_bits());
    assert_eq!(float.compare_swap(me, -0.0, 1.0)?.to_bits(), (-0.0_f64).to_bits());
    assert_eq!((float.swap(me, 3.5)?, float.load(me)?), (1.0, 3.5));
    let narrow = words.at::<i32>(10);
    narrow.store(me, -1)?;
    assert_eq!((narrow.fetch_max(me, -2)?, narrow.fetch_min(me, i32::MIN)?, narrow.load(me)?), (-1, -1, i32::MIN));
    Ok(())
}

/// The owner changes words by its own instructions while others have its service thread change
/// them. No change is lost.
fn the_owner_changes_them_meanwhile(me: &Worker, words: Words, is_simulated: bool) -> Result<()> {
    let (wide, narrow, over) = (words.at::<u64>(24), words.at::<u32>(25), words.at::<u64>(26));
    let (rounds, others) = (100, u64::from(me.worker_count() - 1));
    me.barrier()?;
    let mut own = 0;
    if me.id().number() == 0 {
        let end = me.now() + limit();
        let here = |address| me.local_address(address).expect("it is this process's");
        // SAFETY: the word is aligned, exists as long as this runs, and is accessed by atomics
        // only.
        let own_wide = unsafe { AtomicU64::from_ptr(here(wide.address()).cast()) };
        // SAFETY: as for `own_wide`: an aligned word that exists as long as this runs, accessed by
        // atomics only.
        let own_over = unsafe { AtomicU64::from_ptr(here(over.address()).cast()) };
        // SAFETY: as for `own_wide`: an aligned word that exists as long as this runs, accessed by
        // atomics only.
        let own_narrow = unsafe { AtomicU32::from_ptr(here(narrow.address()).cast()) };
        while own_over.load(Ordering::SeqCst) < others {
            assert!(me.now() < end, "they never come to an end");
            for _ in 0..10 {
                own_wide.fetch_add(1, Ordering::SeqCst);
                own_narrow.fetch_add(1, Ordering::SeqCst);
            }
            own += 10;
            // Outside of the simulator this worker makes no progress. It would run the others'
            // changes itself, between its own, instead of its service thread.
            if is_simulated {
                me.progress()?;
            }
        }
    } else {
        for _ in 0..rounds {
            wide.fetch_add(me, 1)?;
            narrow.fetch_add(me, 1)?;
        }
        over.fetch_add(me, 1)?;
    }
    me.barrier()?;
    let all = me.all_reduce(own, |a, b| a + b)? + rounds * others;
    assert_eq!((wide.load(me)?, narrow.load(me)?), (all, all as u32));
    me.barrier()
}

/// One change: when it was requested and when it was answered, by a clock that all share, and its
/// kind.
type Event = (u64, u64, (u8, u64, u64), u64);

/// The changes of each worker, in its order.
type History = Vec<Vec<Event>>;

const KINDS: u64 = 9;

fn change((kind, a, b): (u8, u64, u64)) -> AtomicChange<u64> {
    match kind {
        0 => AtomicChange::Load,
        1 => AtomicChange::Swap(a),
        2 => AtomicChange::CompareSwap { expected: a, new: b },
        3 => AtomicChange::Add(a),
        4 => AtomicChange::And(a),
        5 => AtomicChange::Or(a),
        6 => AtomicChange::Xor(a),
        7 => AtomicChange::Min(a),
        _ => AtomicChange::Max(a),
    }
}

/// Returns the value of a word after a change, by the definition of the change.
fn after((kind, a, b): (u8, u64, u64), word: u64) -> u64 {
    match kind {
        0 => word,
        1 => a,
        2 if word == a => b,
        2 => word,
        3 => word.wrapping_add(a),
        4 => word & a,
        5 => word | a,
        6 => word ^ a,
        7 => word.min(a),
        _ => word.max(a),
    }
}

/// Returns whether the changes can have happened one after another, each between its request and
/// its answer, so that each found the value that it returned.
fn is_linearizable(history: &History) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0; history.len()], 0_u64)];
    while let Some((done, word)) = open.pop() {
        let next: Vec<Option<&Event>> = history.iter().zip(&done).map(|(events, done)| events.get(*done)).collect();
        let Some(first_answer) = next.iter().flatten().map(|event| event.1).min() else { return true };
        for (worker, event) in next.iter().enumerate() {
            let Some(&(asked, _, what, found)) = *event else { continue };
            // No change that was answered before another was requested comes after that one.
            if asked <= first_answer && found == word {
                let mut done = done.clone();
                done[worker] += 1;
                let state = (done, after(what, word));
                if seen.insert(state.clone()) {
                    open.push(state);
                }
            }
        }
    }
    false
}

/// Returns the nanoseconds of a clock that all processes share.
fn clock(me: &Worker, begun: Option<Instant>) -> u64 {
    match begun {
        Some(begun) => (me.now() - begun).as_nanos() as u64,
        None => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64,
    }
}

/// Each worker changes one word with small numbers by `apply`. Worker 0 gathers the history.
fn record(
    me: &Worker,
    words: Words,
    begun: Option<Instant>,
    seed: u64,
    changes: u64,
    apply: impl Fn((u8, u64, u64)) -> Result<u64>,
) -> Result<Option<History>> {
    let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(me.id().number() + 1) << 32;
    let mut below = |bound: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % bound
    };
    me.barrier()?;
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..changes {
        let what = (below(KINDS) as u8, below(4), below(4));
        let asked = clock(me, begun);
        let found = apply(what)?;
        events.push((asked, clock(me, begun), what, found));
    }
    me.barrier()?;
    words.at::<u64>(20).store(me, 0)?;
    me.gather(WorkerId::new(0), events)
}

fn changes_are_linearizable(me: &Worker, words: Words, begun: Option<Instant>, seed: u64, changes: u64) -> Result<()> {
    let history = record(me, words, begun, seed, changes, |what| words.at::<u64>(20).change(me, change(what)))?;
    assert!(history.is_none_or(|history| is_linearizable(&history)), "seed {seed}");
    Ok(())
}

/// The owner changes words of its part of an array by a slice, and others by their addresses.
fn changes_by_a_slice_are_linearizable(me: &Worker, begun: Option<Instant>, rounds: u64, changes: u64) -> Result<()> {
    let array = me.global_array::<u64>(WORDS * me.process_count() as usize)?;
    let (words, own) = (Words(array.at(0)?.address()), array.local(me));
    for seed in 0..rounds {
        let apply = |what| match me.is_first() {
            true => Ok(own.change(20, change(what))),
            false => words.at::<u64>(20).change(me, change(what)),
        };
        let history = record(me, words, begun, seed, changes, apply)?;
        assert!(history.is_none_or(|history| is_linearizable(&history)), "seed {seed}");
    }
    array.free(me)
}

/// Each change by a slice has its effect on a word and returns the previous value.
fn one_by_one_by_a_slice(me: &Worker) -> Result<()> {
    let segment = me.register(vec![0_i64; 3])?;
    let signed = segment.local();
    signed.store(1, -5);
    assert_eq!((signed.fetch_min(1, 3), signed.fetch_max(1, -2), signed.load(1)), (-5, -5, -2));
    assert_eq!((signed.fetch_and(1, 0b110), signed.fetch_or(1, 1), signed.fetch_xor(1, 0b100)), (-2, 0b110, 0b111));
    assert_eq!((signed.compare_swap(1, 1, 2), signed.compare_swap(1, 3, i64::MIN)), (3, 3));
    assert_eq!((signed.fetch_add(1, -1), signed.swap(1, 9), signed.get(1)), (i64::MIN, i64::MAX, 9));
    assert_eq!((signed.get(0), signed.get(2)), (0, 0), "neighbors stay as they are");
    segment.deregister(me)?;
    let segment = me.register(vec![0.0_f32; 3])?;
    let float = segment.local();
    float.store(2, f32::NAN);
    assert!(float.fetch_add(2, 1.0).is_nan() && float.load(2).is_nan());
    assert!(float.fetch_max(2, 2.0).is_nan());
    assert_eq!((float.fetch_add(2, 0.5), float.fetch_min(2, f32::NAN), float.load(2)), (2.0, 2.5, 2.5));
    assert_eq!((float.compare_swap(2, 2.5, -0.0), float.compare_swap(2, 0.0, 1.0).to_bits()), (2.5, 1 << 31));
    assert_eq!((float.get(0), float.get(1)), (0.0, 0.0), "neighbors stay as they are");
    segment.deregister(me).map(drop)
}

#[test]
#[should_panic(expected = "outside of the slice")]
fn a_word_outside_of_a_slice_is_refused() {
    let simulated = Simulation::new(1, 1, 1).run(|me| {
        let array = me.global_array::<u64>(3)?;
        array.local(me).fetch_add(3, 1);
        Ok(())
    });
    simulated.unwrap().verdict.unwrap();
}

/// The owner changes its registered words itself while its service thread changes them for others.
fn with_words_of_each_kind(me: &Worker, body: impl Fn(Words) -> Result<()>) -> Result<()> {
    body(Words(GlobalAddress::starter(ProcessId::new(0), 0)))?;
    let root = WorkerId::new(0);
    let registered = if me.id() == root { Some(me.register(vec![0_u64; WORDS])?) } else { None };
    let start = registered.as_ref().map(|segment| segment.slice().start().address());
    body(Words(me.broadcast(root, start)?))?;
    me.barrier()?;
    registered.map_or(Ok(()), |segment| segment.deregister(me).map(drop))
}

#[farside::test(processes = 3)]
fn everything_by_processes(me: &Worker) -> Result<()> {
    with_words_of_each_kind(me, |words| {
        nothing_is_lost(me, words)?;
        the_owner_changes_them_meanwhile(me, words, false)?;
        (0..10).try_for_each(|seed| changes_are_linearizable(me, words, None, seed, 60))
    })?;
    one_by_one_by_a_slice(me)?;
    changes_by_a_slice_are_linearizable(me, None, 10, 60)
}

#[test]
fn everything_in_the_simulator() {
    for seed in 0..scaled(4) {
        let begun = OnceLock::new();
        let simulation = Simulation::new(3, 1, seed);
        let simulated = simulation.run(|me| {
            let begun = *begun.get_or_init(|| me.now());
            with_words_of_each_kind(me, |words| {
                nothing_is_lost(me, words)?;
                the_owner_changes_them_meanwhile(me, words, true)?;
                let check = |round| changes_are_linearizable(me, words, Some(begun), seed * 100 + round, 30);
                (0..4).try_for_each(check)
            })?;
            one_by_one_by_a_slice(me)?;
            changes_by_a_slice_are_linearizable(me, Some(begun), 4, 30)
        });
        simulated.unwrap().verdict.unwrap();
    }
}

/// The checker finds changes that consist of a get and a put.
#[test]
fn changes_that_are_not_atomic_are_found() {
    let found = std::sync::atomic::AtomicU32::new(0);
    for seed in 0..8 {
        let begun = OnceLock::new();
        let simulated = Simulation::new(3, 1, seed).run(|me| {
            let begun = *begun.get_or_init(|| me.now());
            let words = Words(GlobalAddress::starter(ProcessId::new(0), 0));
            let torn = |what| {
                let before = words.at::<u64>(20).get(me)?;
                words.at(20).put(me, after(what, before))?;
                Ok(before)
            };
            let history = record(me, words, Some(begun), seed, 30, torn)?;
            if history.is_some_and(|history| !is_linearizable(&history)) {
                found.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(())
        });
        simulated.unwrap().verdict.unwrap();
    }
    assert!(found.into_inner() >= 6);
}

/// The checker refuses impossible histories and accepts possible ones.
#[test]
fn the_checker_can_fail() {
    let (load, one, two) = ((0, 0, 0), (3, 1, 0), (1, 2, 0));
    // Both found 0, so one change was lost.
    assert!(!is_linearizable(&vec![vec![(0, 10, one, 0)], vec![(5, 15, one, 0)]]));
    assert!(is_linearizable(&vec![vec![(0, 10, one, 1)], vec![(5, 15, one, 0)]]));
    // The load began after the swap was answered.
    assert!(!is_linearizable(&vec![vec![(0, 10, two, 0)], vec![(11, 12, load, 0)]]));
    assert!(is_linearizable(&vec![vec![(0, 10, two, 0)], vec![(9, 12, load, 0)]]));
    // Two loads of one worker see a swap come and go.
    let swap = vec![(0, 100, two, 0)];
    assert!(!is_linearizable(&vec![swap.clone(), vec![(1, 2, load, 2), (3, 4, load, 0)]]));
    assert!(is_linearizable(&vec![swap, vec![(1, 2, load, 0), (3, 4, load, 2)]]));
    // A value that no change has written.
    assert!(!is_linearizable(&vec![vec![(0, 1, load, 7)]]));
    assert!(is_linearizable(&vec![vec![], vec![]]));
}
