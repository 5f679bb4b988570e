//! The steps of a transmitter, each in turn omitted or weakened: the checker finds the consequence.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::payload::Payload;
use crate::signals::{Card, Posted};
use crate::{check, check_finds};

/// The error in the protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutation {
    Nothing,
    TagBeforePost,
    RaiseAtPost,
    NoWindow,
    NoRescue,
    ReleaseInPosted,
    AcquireInEnter,
    ReleaseInRaise,
    AcquireOfCompleted,
}

impl Mutation {
    fn order(self, left_out: Self, order: Ordering) -> Ordering {
        if self == left_out { Ordering::Relaxed } else { order }
    }
}

/// The counters: windows of one number, the first of which is 1.
struct Counters {
    k: AtomicU64,
    signalled: AtomicU64,
    completed: AtomicU64,
}

impl Counters {
    fn new() -> Self {
        Self { k: AtomicU64::new(1), signalled: AtomicU64::new(0), completed: AtomicU64::new(0) }
    }

    fn completed(&self, mutation: Mutation) -> u64 {
        self.completed.load(mutation.order(Mutation::AcquireOfCompleted, Ordering::Acquire))
    }

    fn enter(&self, mutation: Mutation) -> u64 {
        self.k.fetch_add(1, mutation.order(Mutation::AcquireInEnter, Ordering::Acquire))
    }

    fn tag(&self, mutation: Mutation) -> u64 {
        self.k.fetch_add(0, mutation.order(Mutation::ReleaseInPosted, Ordering::Release))
    }

    /// Posts from memory that is reused when it is free.
    fn post_all(&self, card: &Card, signals: impl Fn(u64) -> bool, count: u64, mutation: Mutation) {
        let memory = Arc::new(Payload::default());
        let mut tag = 0;
        for value in 1..=count {
            let memory = if self.completed(mutation) >= tag { memory.clone() } else { Arc::default() };
            memory.write(value);
            let number = self.enter(mutation);
            let early = self.k.load(Ordering::Relaxed);
            let signalled = loop {
                let completed = self.completed(mutation);
                if number < completed + 2 || mutation == Mutation::NoWindow {
                    break signals(number);
                }
                if self.signalled.load(Ordering::Relaxed) <= completed + 1 && mutation != Mutation::NoRescue {
                    break true;
                }
                if !self.send(card, mutation) {
                    thread::yield_now();
                }
            };
            card.post(Posted { memory: memory.clone(), value, signal: signalled.then_some(number) });
            if signalled && mutation == Mutation::RaiseAtPost {
                self.completed.fetch_max(number, Ordering::Release);
            }
            if signalled {
                self.signalled.fetch_max(number + 1, Ordering::Relaxed);
            }
            tag = if mutation == Mutation::TagBeforePost { early } else { self.tag(mutation) };
        }
        while self.send(card, mutation) {}
    }

    /// Lets the card execute an operation, if there is one.
    fn send(&self, card: &Card, mutation: Mutation) -> bool {
        let release = mutation.order(Mutation::ReleaseInRaise, Ordering::Release);
        card.step(|number| {
            self.completed.fetch_max(number, release);
        })
    }
}

fn run(posters: &[u64], signals: fn(u64) -> bool, mutation: Mutation) {
    let (counters, card) = (Arc::new(Counters::new()), Arc::new(Card::default()));
    let posting: Vec<_> = posters
        .iter()
        .map(|count| {
            let (counters, card, count) = (counters.clone(), card.clone(), *count);
            thread::spawn(move || counters.post_all(&card, signals, count, mutation))
        })
        .collect();
    posting.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two threads that signal every operation.
fn two_threads(mutation: Mutation) {
    run(&[2, 2], |_| true, mutation);
}

/// One thread, whose window signals none of its first operations.
fn forgetful(mutation: Mutation) {
    run(&[6], |_| false, mutation);
}

/// A thread with a number that is not below a tag posts after the operation with that tag.
fn tags_and_posts(mutation: Mutation) {
    let counters = Arc::new(Counters::new());
    let posts: Arc<[(Payload, AtomicU64); 2]> = Arc::default();
    let threads = [0, 1].map(|which: usize| {
        let (counters, posts) = (counters.clone(), posts.clone());
        thread::spawn(move || {
            let number = counters.enter(mutation);
            let tag = posts[1 - which].1.load(Ordering::Relaxed);
            if tag != 0 && tag <= number {
                assert_eq!(posts[1 - which].0.read(), 1);
            }
            posts[which].0.write(1);
            posts[which].1.store(counters.tag(mutation), Ordering::Relaxed);
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_whole_protocol_harms_nothing() {
    check(Some(2), || two_threads(Mutation::Nothing));
    check(Some(3), || forgetful(Mutation::Nothing));
    check(None, || tags_and_posts(Mutation::Nothing));
}

const RACE: &str = "Causality violation";
const OVERWRITTEN: &str = "the posted value is sent";
const OVERRUN: &str = "the queue is overrun";
const ENDLESS: &str = "exceeded maximum number of branches";

macro_rules! mutants {
    ($($test:ident: $mutation:ident in $model:ident finds $expected:ident;)*) => {$(
        #[test]
        fn $test() {
            check_finds($expected, stringify!($mutation), || $model(Mutation::$mutation));
        }
    )*};
}

mutants! {
    memory_is_overwritten_with_a_tag_from_before_the_post: TagBeforePost in two_threads finds OVERWRITTEN;
    memory_is_overwritten_when_it_is_free_too_early: RaiseAtPost in two_threads finds RACE;
    memory_is_overwritten_without_the_release_of_the_frontier: ReleaseInRaise in two_threads finds RACE;
    memory_is_overwritten_without_the_acquire_of_the_frontier: AcquireOfCompleted in two_threads finds RACE;
    a_post_is_not_seen_without_the_release_of_the_tag: ReleaseInPosted in tags_and_posts finds RACE;
    a_post_is_not_seen_without_the_acquire_of_the_number: AcquireInEnter in tags_and_posts finds RACE;
    the_queue_is_overrun_without_windows: NoWindow in forgetful finds OVERRUN;
    no_thread_continues_without_a_signal_of_its_own: NoRescue in forgetful finds ENDLESS;
}
