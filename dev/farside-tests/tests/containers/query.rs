//! Queries: every question is answered once, to the worker that asked it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside::{Error, ProcessId, Result, Simulation, Worker, WorkerId};
use farside_containers::Query;

use crate::everywhere;

/// Reads random words of a table that is spread over all workers.
pub(crate) fn gathers(me: &Worker) -> Result<()> {
    const WORDS: u64 = 300;
    let workers = u64::from(me.worker_count());
    let table: Vec<u64> = (0..WORDS).map(|word| 1000 * (word * workers + u64::from(me.id().number()))).collect();
    let got = Rc::new(RefCell::new(vec![None; 2 * WORDS as usize]));
    let taken = got.clone();
    let query = Query::new(
        me,
        move |_, word: u64| table[word as usize],
        move |_, tag, value: u64| assert_eq!(taken.borrow_mut()[tag as usize].replace(value), None),
    )?;
    let asker = query.on(me);
    let place = |tag: u64| tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (WORDS * workers);
    for tag in 0..2 * WORDS {
        let owner = WorkerId::new((place(tag) % workers) as u32);
        asker.ask(owner, tag as u32, place(tag) / workers)?;
    }
    me.quiesce()?;
    for (tag, value) in (0..).zip(got.take()) {
        assert_eq!(value, Some(1000 * place(tag)), "question {tag}");
    }
    me.barrier()
}
everywhere!(reads, super::gathers, crate::simulated_in_a_grid);

/// Questions and answers may be strings.
fn translates(me: &Worker) -> Result<()> {
    let got = Rc::new(RefCell::new(Vec::new()));
    let taken = got.clone();
    let query = Query::new(
        me,
        |there, word: String| format!("{word} at {}", there.id().number()),
        move |_, tag, answer: String| taken.borrow_mut().push((tag, answer)),
    )?;
    for of in me.workers() {
        query.on(me).ask(of, of.number(), "a word".to_owned())?;
    }
    me.quiesce()?;
    let mut answers = got.take();
    answers.sort_unstable();
    let expected: Vec<_> = me.workers().map(|of| (of.number(), format!("a word at {}", of.number()))).collect();
    assert_eq!(answers, expected);
    me.barrier()
}
everywhere!(strings, super::translates, crate::simulated_in_a_grid);

/// A worker that asks for much more than it sends waits for answers. Otherwise all of them would
/// pile up at the owner.
#[test]
fn unanswered_questions_have_a_limit() {
    const LIMIT: u64 = 512;
    type Answer = [u64; 1023];
    farside::simulate(2, 1, 1, |me| {
        let taken = Rc::new(Cell::new(0));
        let counted = taken.clone();
        let take = move |_: &Worker, tag: u32, answer: Answer| {
            assert_eq!(answer[1022], u64::from(tag));
            counted.set(counted.get() + 1);
        };
        let query = Query::new(me, |_, word: u64| [word; 1023], take)?;
        let mut most = 0;
        if me.is_first() {
            let asker = query.on(me);
            for tag in 0..4 * LIMIT {
                asker.ask(WorkerId::new(1), tag as u32, tag)?;
                most = most.max(tag + 1 - taken.get());
            }
        }
        me.quiesce()?;
        if me.is_first() {
            assert_eq!(taken.get(), 4 * LIMIT);
            assert!((LIMIT / 2..=LIMIT + 1).contains(&most), "{most} questions were unanswered");
        }
        query.free(me)
    })
    .unwrap();
}

/// The answers of a lost process do not come, and in a grid not those to questions that pass it. A
/// worker that has reached the limit asks on.
#[test]
fn a_loss_ends_the_wait_for_answers() {
    let lost = ProcessId::new(1);
    // Among 70 workers, questions of worker 0 for worker 9 pass worker 1.
    for (processes, asked) in [(3, [1, 2]), (70, [9, 9])] {
        let simulation = Simulation::new(processes, 1, 1).kill(lost, Duration::from_millis(1));
        let done = AtomicBool::new(false);
        let simulated = simulation.run(|me| {
            // The lost worker takes questions, and computes for ever.
            let answer = move |there: &Worker, word: u64| {
                if there.process() == lost {
                    there.charge(Duration::from_secs(1));
                }
                [word; 1023]
            };
            let query = Query::new(me, answer, |_, _, _: [u64; 1023]| ())?;
            if me.is_first() {
                let (asker, begun) = (query.on(me), me.now());
                let ask = |number: u32| match asker.ask(WorkerId::new(asked[number as usize % 2]), number, 7) {
                    Ok(()) | Err(Error::PeerLost { .. }) => {}
                    Err(error) => panic!("{error}"),
                };
                (0..3000).for_each(ask);
                assert!(me.now() - begun < Duration::from_secs(20), "no wait reaches its deadline");
                done.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err(), "the loss is the verdict");
        assert!(done.load(Ordering::Relaxed));
    }
}
