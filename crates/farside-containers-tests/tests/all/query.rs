//! Queries: every question is answered once, to the worker that asked it.

use std::cell::RefCell;
use std::rc::Rc;

use farside::{Result, Worker, WorkerId};
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
everywhere!(reads, super::gathers);

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
everywhere!(strings, super::translates);
