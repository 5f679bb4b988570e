//! The lock word of exposed memory under the model checker: no reader takes a half update for a
//! whole one, two holders exclude each other, and whatever waits for a lock learns of its end.
//!
//! The file of the word is compiled here with the checker's atomics, and once more with a fence
//! that does nothing, to show that the model finds what is missing then.

#![allow(clippy::duplicate_mod, reason = "the same file, with the checker's fences and without")]

mod checked;
mod without_fences;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Memory of two values that belong together, which are copied racily, and its word.
macro_rules! memory_model {
    ($word:ty) => {
        loom::model(|| {
            let word = Arc::new(<$word>::new(1));
            let values = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let program = thread::spawn({
                let (word, values) = (word.clone(), values.clone());
                move || {
                    for change in 1..=2 {
                        assert!(word.try_lock(), "the program alone locks it");
                        values.iter().for_each(|value| value.store(change, Ordering::Relaxed));
                        assert!(!word.unlock(), "nothing waits");
                    }
                }
            });
            if let Some(version) = word.version() {
                let copy = [&values[0], &values[1]].map(|value| value.load(Ordering::Relaxed));
                if word.is_unchanged(version) {
                    assert_eq!(copy[0], copy[1], "half of a change was read");
                }
            }
            program.join().unwrap();
            let version = word.version().expect("it is free");
            assert!(word.is_unchanged(version) && values.iter().all(|value| value.load(Ordering::Relaxed) == 2));
        })
    };
}

#[test]
fn a_reader_gets_no_half_update() {
    memory_model!(checked::word::LockWord);
}

#[test]
#[should_panic(expected = "half of a change was read")]
fn without_its_fences_it_gets_one() {
    memory_model!(without_fences::word::LockWord);
}

/// A reader that copies in another process asks the door afterwards. Its answer comes behind the
/// copy.
#[test]
fn a_copy_is_whole_if_another_thread_says_so_behind_it() {
    use checked::word::LockWord;

    loom::model(|| {
        let word = Arc::new(LockWord::new(1));
        let values = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let version = word.version().expect("it is free");
        let program = thread::spawn({
            let (word, values) = (word.clone(), values.clone());
            move || {
                assert!(word.try_lock());
                values.iter().for_each(|value| value.store(1, Ordering::Relaxed));
                assert!(!word.unlock(), "nothing waits");
            }
        });
        let reader = thread::spawn({
            let values = values.clone();
            move || {
                let copy = [&values[0], &values[1]].map(|value| value.load(Ordering::Relaxed));
                // The fence behind a transfer, which is one that both processes map.
                loom::sync::atomic::fence(Ordering::SeqCst);
                copy
            }
        });
        let copy = reader.join().unwrap();
        if word.is_unchanged(version) {
            assert_eq!(copy, [0, 0], "a change was read");
        }
        program.join().unwrap();
    });
}

#[test]
fn two_holders_exclude_each_other() {
    use checked::word::LockWord;

    loom::model(|| {
        let shared = Arc::new((LockWord::new(0), AtomicU64::new(0)));
        let change = |shared: &(LockWord, AtomicU64)| {
            let is_locked = shared.0.try_lock();
            if is_locked {
                // A holder that is not alone loses a change.
                shared.1.store(shared.1.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                assert!(!shared.0.unlock(), "nothing waits");
            }
            is_locked
        };
        let before = shared.0.version().expect("it is free");
        let other = thread::spawn({
            let shared = shared.clone();
            move || change(&shared)
        });
        let changes = u64::from(change(&shared)) + u64::from(other.join().unwrap());
        assert_eq!(shared.1.load(Ordering::Relaxed), changes);
        let after = shared.0.version().expect("it is free");
        // A lock adds 4 to the word, and so does its end.
        assert!(changes > 0 && after - before == 8 * changes);
    });
}

/// A program that claims the next lock finds the memory free, or hears of the end of the lock from
/// the reader that has it.
#[test]
fn the_program_hears_of_the_end_of_a_lock() {
    use checked::word::LockWord;

    loom::model(|| {
        let word = Arc::new(LockWord::new(1));
        assert!(word.try_lock_outside());
        let program = thread::spawn({
            let word = word.clone();
            move || {
                word.claim();
                word.try_lock()
            }
        });
        let is_told = word.unlock();
        let is_locked = program.join().unwrap();
        assert!(is_told || is_locked);
        assert!(is_locked || word.try_lock());
        assert!(!word.end_claim() && !word.unlock() && word.try_lock_outside());
    });
}

/// Behind a claim, no reader locks the memory before the program does.
#[test]
fn readers_lock_behind_the_program() {
    use checked::word::LockWord;

    loom::model(|| {
        let (word, locks) = (Arc::new(LockWord::new(1)), Arc::new(AtomicU64::new(0)));
        assert!(word.try_lock_outside());
        word.claim();
        let first = thread::spawn({
            let word = word.clone();
            move || assert!(word.unlock(), "the program waits")
        });
        let second = thread::spawn({
            let (word, locks) = (word.clone(), locks.clone());
            move || {
                let is_locked = word.try_lock_outside();
                if is_locked {
                    assert_eq!(locks.load(Ordering::Relaxed), 1, "the program was passed");
                    word.set_awaited(true);
                }
                is_locked
            }
        });
        if word.try_lock() {
            locks.store(1, Ordering::Relaxed);
            word.end_claim();
            let _ = word.unlock();
        }
        first.join().unwrap();
        let is_locked = second.join().unwrap();
        assert!(word.version().is_none() == is_locked);
    });
}

/// A reader that begins to wait finds the memory free, or the holder learns of it.
#[test]
fn the_end_of_a_lock_is_told_to_readers() {
    use checked::word::LockWord;

    loom::model(|| {
        let word = Arc::new(LockWord::new(1));
        assert!(word.try_lock());
        let reader = thread::spawn({
            let word = word.clone();
            move || {
                word.set_awaited(true);
                word.version().is_some()
            }
        });
        let is_told = word.unlock();
        assert!(reader.join().unwrap() || is_told);
        // The flag is no part of the version.
        let version = word.version().expect("it is free");
        word.set_awaited(false);
        assert!(word.is_unchanged(version));
        assert!(!word.end_claim());
    });
}
