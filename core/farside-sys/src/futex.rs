//! Sleeping on a word of shared memory, and waking the threads that sleep there.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

/// Sleeps while `word` holds `seen`, until another thread wakes this one or `timeout` has passed.
///
/// The word may lie in memory shared with other processes. The call may return early without a
/// reason, so the caller must check its condition again. The timeout is mandatory, because the
/// process that would wake this one may die.
pub fn wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let timeout =
        Timespec { tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: timeout.subsec_nanos().into() };
    let slept = futex::wait(word, Flags::empty(), seen, Some(&timeout));
    debug_assert!(
        matches!(slept, Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT)),
        "a futex wait on a live word fails only so: {slept:?}"
    );
}

/// Wakes all threads that sleep on `word`.
pub fn wake(word: &AtomicU32) {
    let woken = futex::wake(word, Flags::empty(), i32::MAX as u32);
    debug_assert!(woken.is_ok(), "a futex wake on a live word cannot fail: {woken:?}");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_changed_word_is_not_slept_on() {
        let word = AtomicU32::new(1);
        wait(&word, 0, farside_testbed::limit());
    }

    #[test]
    fn a_sleeper_is_woken() {
        let word = Arc::new(AtomicU32::new(0));
        let sleeper = std::thread::spawn({
            let word = word.clone();
            move || {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, farside_testbed::limit());
                }
            }
        });
        word.store(1, Ordering::Release);
        wake(&word);
        sleeper.join().unwrap();
    }
}
