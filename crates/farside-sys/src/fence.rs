//! A fence that one thread executes for all: `membarrier`.
//!
//! Two sides that each store and then look at what the other stored need a fence in between, both of them. Where one side does so
//! often and the other seldom, the seldom one can pay for both: it calls [`everywhere`], and the other only keeps the compiler
//! from reordering ([`compiler_fence`](std::sync::atomic::compiler_fence)). Every store that such a thread made before is then
//! visible to the caller, or every load that it makes after sees what the caller stored before.

use rustix::thread::{MembarrierCommand, membarrier};

/// Makes this process one whose threads [`everywhere`] reaches. Says whether that is so; it is not where the system is old or
/// forbids the call.
///
/// *Cost*: a system call; some milliseconds if the process has threads already.
#[must_use]
pub fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Has every running thread of every registered process of this machine execute a full fence, and this thread, too.
///
/// To be called by a registered process only.
///
/// *Cost*: a system call, and an interrupt for each CPU that runs such a thread: 0.2 µs if there is none, 5 to 15 µs on a virtual
/// machine.
pub fn everywhere() {
    let reached = membarrier(MembarrierCommand::GlobalExpedited);
    // The only way to fail is to have no memory for a set of CPUs; the slow way needs none.
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
        /// The last round in which the side that does not fence missed the other.
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

    /// Dekker's handshake: at least one side sees the other. Without `everywhere` both miss each other within a few rounds.
    #[test]
    fn one_fence_serves_two_threads() {
        const ROUNDS: u32 = 20_000;
        assert!(register(), "this machine has `membarrier`");
        let words = Arc::new(Words::default());
        let often = std::thread::spawn({
            let words = words.clone();
            move || {
                for round in 1..=ROUNDS {
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
        for round in 1..=ROUNDS {
            words.begun.0.store(round, Ordering::Relaxed);
            // The other side takes a while to see that.
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
