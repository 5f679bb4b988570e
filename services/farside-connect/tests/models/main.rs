//! Memory that a peer reads directly, under the model checker: a reader that still finds its mark
//! has read the bytes of its result, whoever reuses the memory.
//!
//! Three threads take part: one that takes memory back, one that then writes it anew, and a reader
//! in another process. `farside-inspect` has them all: a thread of the door, the program, and a
//! viewer.

#![allow(clippy::duplicate_mod, reason = "the same file, with the checker's fences and without")]

mod checked;
mod without_fences;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

const NUMBER: u64 = 7;
const OLD: u64 = 1;
const NEW: u64 = 2;

macro_rules! model {
    ($marks:ident) => {{
        use $marks::mark;
        loom::model(|| {
            let bytes = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let word = Arc::new(AtomicU64::new(0));
            // The number of holders of the memory, as an `Arc` counts them.
            let holders = Arc::new(AtomicUsize::new(2));
            bytes.iter().for_each(|byte| byte.store(OLD, Ordering::Relaxed));
            mark::set(&word, NUMBER);
            let door = thread::spawn({
                let (word, holders) = (word.clone(), holders.clone());
                move || {
                    mark::clear(&word);
                    holders.fetch_sub(1, Ordering::Release);
                }
            });
            let program = thread::spawn({
                let (bytes, holders) = (bytes.clone(), holders.clone());
                move || {
                    if holders.load(Ordering::Acquire) == 1 {
                        bytes.iter().for_each(|byte| byte.store(NEW, Ordering::Relaxed));
                    }
                }
            });
            let copy = [&bytes[0], &bytes[1]].map(|byte| byte.load(Ordering::Relaxed));
            if mark::is_set(&word, NUMBER) {
                assert_eq!(copy, [OLD; 2], "bytes of another result were read");
            }
            door.join().unwrap();
            program.join().unwrap();
            assert!(!mark::is_set(&word, NUMBER));
        })
    }};
}

#[test]
fn a_reader_that_finds_its_mark_has_read_its_bytes() {
    model!(checked);
}

#[test]
#[should_panic(expected = "bytes of another result were read")]
fn without_fences_it_may_have_read_others() {
    model!(without_fences);
}

/// A peer that finds the number has the bytes that were written before.
#[test]
fn a_mark_shows_the_bytes_before_it() {
    loom::model(|| {
        let byte = Arc::new(AtomicU64::new(0));
        let word = Arc::new(AtomicU64::new(0));
        let server = thread::spawn({
            let (byte, word) = (byte.clone(), word.clone());
            move || {
                byte.store(OLD, Ordering::Relaxed);
                checked::mark::set(&word, NUMBER);
            }
        });
        if checked::mark::is_set(&word, NUMBER) {
            assert_eq!(byte.load(Ordering::Relaxed), OLD);
        }
        server.join().unwrap();
    });
}
