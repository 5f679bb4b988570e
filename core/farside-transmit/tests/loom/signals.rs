//! The counters of a transmitter: threads that post, a network card that executes posted
//! operations, and memory that is reused.

use std::sync::Arc;

use farside_transmit::{Frontier, Signals, Step};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::check;
use crate::payload::Payload;

/// Maximum number of threads inside, and the size of a window.
const INSIDE_MAX: usize = 2;
const WINDOW_BITS: u32 = 0;
/// The sum in `README.md`: two windows, and one operation for each thread.
pub(crate) const UNSIGNALLED_MAX: usize = 2 * (1 << WINDOW_BITS) + INSIDE_MAX;

/// A queue and the card that executes it.
#[derive(Default)]
pub(crate) struct Card {
    queue: Mutex<Vec<Posted>>,
}

/// An operation that sends a word of memory.
pub(crate) struct Posted {
    pub(crate) memory: Arc<Payload>,
    pub(crate) value: u64,
    pub(crate) signal: Option<u64>,
}

impl Card {
    pub(crate) fn post(&self, posted: Posted) {
        let mut queue = self.queue.lock().unwrap();
        queue.push(posted);
        let unsignalled = queue.iter().filter(|posted| posted.signal.is_none()).count();
        assert!(unsignalled <= UNSIGNALLED_MAX, "the queue is overrun");
    }

    /// Executes the oldest operation, if there is one, and reports it by `tell`.
    pub(crate) fn step(&self, tell: impl FnOnce(u64)) -> bool {
        let mut queue = self.queue.lock().unwrap();
        if queue.is_empty() {
            return false;
        }
        let Posted { memory, value, signal } = queue.remove(0);
        assert_eq!(memory.read(), value, "the posted value is sent");
        // The poster must learn of the end by the frontier, not by this lock.
        drop(queue);
        if let Some(number) = signal {
            tell(number);
        }
        true
    }
}

/// Posts `count` values from one piece of memory when it is free, and from another otherwise. A
/// waiting thread drives the card.
fn post_all(signals: &Signals, frontier: &Frontier, card: &Card, count: u64) {
    let memory = Arc::new(Payload::default());
    let mut tag = 0;
    for value in 1..=count {
        // Only memory that is certainly free is reused; the signal for the rest may never arrive.
        let memory = if frontier.has_passed(tag) { memory.clone() } else { Arc::default() };
        memory.write(value);
        let ticket = signals.enter().expect("the model has no more threads than may be inside");
        let signalled = loop {
            match signals.step(&ticket, frontier) {
                Step::Post { signalled } => break signalled,
                Step::Wait if card.step(|number| frontier.raise(number)) => {}
                Step::Wait => thread::yield_now(),
            }
        };
        card.post(Posted { memory: memory.clone(), value, signal: signalled.then_some(ticket.number()) });
        tag = signals.posted(ticket, signalled);
    }
    while card.step(|number| frontier.raise(number)) {}
}

fn posting_threads(counts: [u64; 2]) {
    let signals = Arc::new(Signals::with(INSIDE_MAX, WINDOW_BITS));
    let (frontier, card) = (Arc::new(Frontier::default()), Arc::new(Card::default()));
    let posting = counts.map(|count| {
        let (signals, frontier, card) = (signals.clone(), frontier.clone(), card.clone());
        thread::spawn(move || post_all(&signals, &frontier, &card, count))
    });
    posting.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn memory_is_used_again_when_it_was_sent() {
    check(Some(2), || posting_threads([2, 2]));
}

#[test]
fn one_thread_never_waits_for_a_signal_that_does_not_come() {
    check(Some(2), || posting_threads([3, 1]));
}

/// A thread with a number that is not below a tag posts after the operation with that tag.
#[test]
fn a_tag_comes_after_its_post() {
    check(None, || {
        let signals = Arc::new(Signals::with(3, WINDOW_BITS));
        let posts: Arc<[(Payload, AtomicU64); 2]> = Arc::default();
        let post = |which: usize| {
            let (signals, posts) = (signals.clone(), posts.clone());
            move || {
                let ticket = signals.enter().unwrap();
                let (other, its_tag) = &posts[1 - which];
                let tag = its_tag.load(Ordering::Relaxed);
                if tag != 0 && tag <= ticket.number() {
                    assert_eq!(other.read(), 1, "it was posted before");
                }
                posts[which].0.write(1);
                posts[which].1.store(signals.posted(ticket, false), Ordering::Relaxed);
            }
        };
        let threads = [0, 1].map(|which| thread::spawn(post(which)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
