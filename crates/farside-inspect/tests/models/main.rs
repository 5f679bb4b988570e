//! The lock word of exposed memory under the model checker: no reader takes a half update for a
//! whole one, and two holders exclude each other.
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
                        word.unlock();
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
                word.unlock();
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
                shared.0.unlock();
            }
            is_locked
        };
        let other = thread::spawn({
            let shared = shared.clone();
            move || change(&shared)
        });
        let changes = u64::from(change(&shared)) + u64::from(other.join().unwrap());
        assert_eq!(shared.1.load(Ordering::Relaxed), changes);
        assert!(changes > 0 && shared.0.version() == Some(2 * changes));
    });
}
