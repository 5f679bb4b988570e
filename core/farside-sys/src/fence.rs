//! A memory fence that one thread executes on behalf of all threads: `membarrier`.
//!
//! Two threads that each store a word and then load the other's word both need a fence in between.
//! Where one side does so often and the other seldom, the seldom side can pay for both. It calls
//! [`everywhere`]; the other side only needs a
//! [`compiler_fence`](std::sync::atomic::compiler_fence) between its store and its load. After the
//! call, one of two things holds for each such thread: either the caller sees the thread's earlier
//! stores, or the thread's later loads see what the caller stored before the call.

use rustix::thread::{MembarrierCommand, membarrier};

/// Registers this process, so that [`everywhere`] reaches its threads. Returns whether that
/// succeeded. It fails where the kernel is too old or a sandbox forbids the call.
///
/// *Cost*: a system call; some milliseconds if the process already has several threads.
#[must_use]
pub fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Executes a full fence on every running thread of every registered process of this machine,
/// including this thread.
///
/// Only a registered process may call this (see [`register`]).
///
/// *Cost*: a system call, and an interrupt for each CPU that runs such a thread: 0.2 µs if there is
/// none, 5 to 15 µs on a virtual machine.
pub fn everywhere() {
    let reached = membarrier(MembarrierCommand::GlobalExpedited);
    // The call can fail only for lack of memory for a set of CPUs; the slow command needs none.
    if reached.is_err() {
        let reached = membarrier(MembarrierCommand::Global);
        debug_assert!(reached.is_ok(), "a fence everywhere: {reached:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

    use super::*;

    /// A word alone on its cache lines.
    #[derive(Default)]
    #[repr(align(128))]
    struct Word(AtomicU32);

    #[derive(Default)]
    struct Words {
        begun: Word,
        often: Word,
        seldom: Word,
        /// The last round in which the side without a fence missed the other side's store.
        missed: Word,
        ended: Word,
    }

    fn wait_for(word: &Word, value: u32) {
        let mut looks = 0;
        while word.0.load(Ordering::Acquire) != value {
            looks += 1;
            if looks % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// Dekker's handshake: at least one side sees the other's store. Without `everywhere`, both
    /// miss each other within a few rounds.
    #[test]
    fn one_fence_serves_two_threads() {
        let rounds = farside_testbed::scaled(5_000) as u32;
        assert!(register(), "this machine has `membarrier`");
        let words = Arc::new(Words::default());
        let often = std::thread::spawn({
            let words = words.clone();
            move || {
                for round in 1..=rounds {
                    wait_for(&words.begun, round);
                    words.often.0.store(round, Ordering::Relaxed);
                    compiler_fence(Ordering::SeqCst);
                    if words.seldom.0.load(Ordering::Relaxed) != round {
                        words.missed.0.store(round, Ordering::Relaxed);
                    }
                    words.ended.0.store(round, Ordering::Release);
                }
            }
        });
        for round in 1..=rounds {
            words.begun.0.store(round, Ordering::Relaxed);
            // Gives the other side some time to see the store.
            for step in 0..round % 512 {
                std::hint::black_box(step);
            }
            words.seldom.0.store(round, Ordering::Relaxed);
            everywhere();
            let missed = words.often.0.load(Ordering::Relaxed) != round;
            wait_for(&words.ended, round);
            let both = missed && words.missed.0.load(Ordering::Relaxed) == round;
            assert!(!both, "they missed each other in round {round}");
        }
        often.join().unwrap();
    }
}
