//! The choice of signalled operations among those of many threads, and the tags of their memory. It
//! consists of counters, and no thread waits for another.
//!
//! This follows Seriema, Section 4.1, where `k` counts the operations and `k'` the flushes.
//! `README.md` states the differences.

use farside_fabric::queue::{Frontier, QueueLimits};

use crate::sync::{AtomicU64, Ordering};

/// The lower bits of the state count the threads that are inside; the upper bits are `k`. At ten
/// million operations a second, `k` lasts for fourteen years.
const INSIDE_BITS: u32 = 12;
const ONE_INSIDE: u64 = 1;
const ONE_POST: u64 = 1 << INSIDE_BITS;
const INSIDE_MASK: u64 = ONE_POST - 1;

/// The counters of a transmitter.
///
/// A thread [enters](Self::enter), which numbers its operation. It asks for the next
/// [step](Self::step) until the answer is to post. It posts the operation and
/// [leaves](Self::posted), which returns the tag for its memory. The [`Frontier`] is raised to the
/// number of each signalled operation when that is over. It has [passed](Frontier::has_passed) the
/// tag when the operation is over.
///
/// *Cost*: two atomic additions and two loads per operation.
#[derive(Debug)]
pub struct Signals {
    /// `k` and the number of threads inside. Written by every thread. The release when a thread
    /// leaves pairs with the acquire when another enters: a thread that gets a number not below a
    /// tag posts after the operation with that tag.
    state: AtomicU64,
    /// The largest number of a posted signalled operation, plus one. Written by the thread that
    /// posted it; read by threads that must wait, to learn whether there is a signal to wait for.
    /// It is a hint: an old value costs one unnecessary signal.
    signalled: AtomicU64,
    /// The same for signals that move no data. There is one of them at a time, unless several
    /// threads check at the same time.
    flushing: AtomicU64,
    /// Base-two logarithm of the window, a number of operations.
    window_bits: u32,
    inside_max: u64,
}

/// A thread inside, with the number of its operation.
#[derive(Debug)]
#[must_use = "a thread that entered must leave"]
pub struct Ticket {
    number: u64,
}

impl Ticket {
    /// The number with which to signal the operation.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Post the operation.
    Post {
        /// True to post it with a signal.
        signalled: bool,
    },
    /// Make progress and ask again: a signalled operation is in flight, and there is no room before
    /// it is over.
    Wait,
}

/// The maximum number of threads is inside. Another may enter when one has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Signals {
    /// Creates the counters for a queue. If all its operations are posted by these counters, they
    /// never exceed the queue's limits.
    ///
    /// # Panics
    /// If the limits are too narrow for one thread: see [`QueueLimits`].
    pub fn new(limits: QueueLimits) -> Self {
        // In addition to two windows, each thread inside may have one late operation, one that it
        // signals because no other signal is in flight, and one for a flush.
        let inside_max = (limits.depth / 16).min(limits.completions_max / 4).clamp(1, INSIDE_MASK as usize / 2);
        let room = (limits.depth.saturating_sub(3 * inside_max)).min(limits.unsignalled_max.saturating_sub(inside_max));
        assert!(
            room >= 2 && limits.completions_max >= 2 + 3 * inside_max,
            "{limits:?} are too narrow for a transmitter"
        );
        Self::with(inside_max, (room / 2).ilog2())
    }

    /// Creates the counters for `inside_max` threads at a time, and windows of `2^window_bits`
    /// operations.
    #[doc(hidden)]
    pub fn with(inside_max: usize, window_bits: u32) -> Self {
        // The first number opens a window, so that a frontier of zero is below every number.
        let state = AtomicU64::new(1 << window_bits << INSIDE_BITS);
        Self {
            state,
            signalled: AtomicU64::new(0),
            flushing: AtomicU64::new(0),
            window_bits,
            inside_max: inside_max as u64,
        }
    }

    /// Number of operations per signal if one thread posts them.
    pub fn window(&self) -> u64 {
        1 << self.window_bits
    }

    /// Maximum number of threads inside.
    pub fn inside_max(&self) -> usize {
        self.inside_max as usize
    }

    /// Enters with an operation, and numbers it.
    ///
    /// # Errors
    /// [`TooMany`].
    #[inline]
    pub fn enter(&self) -> Result<Ticket, TooMany> {
        // SYNC: pairs with the release in `posted`.
        let state = self.state.fetch_add(ONE_POST + ONE_INSIDE, Ordering::Acquire);
        if state & INSIDE_MASK >= self.inside_max {
            // The number stays unused. No other number depends on it.
            self.state.fetch_sub(ONE_INSIDE, Ordering::Release);
            return Err(TooMany);
        }
        Ok(Ticket { number: state >> INSIDE_BITS })
    }

    /// The next step of the thread.
    #[inline]
    pub fn step(&self, ticket: &Ticket, frontier: &Frontier) -> Step {
        let completed = frontier.completed();
        let (window, flushed) = (ticket.number >> self.window_bits, completed >> self.window_bits);
        // `flushed` windows and all before them are over. This window and the next are open, so
        // that the link stays busy while the signal of the first one returns.
        if window < flushed.saturating_add(2) {
            let opens_window = ticket.number & (self.window() - 1) == 0;
            return Step::Post { signalled: opens_window };
        }
        // No thread has the sole right to signal: if the thread that should have done so is
        // delayed, another does it.
        if self.signalled.load(Ordering::Relaxed) > completed.saturating_add(1) {
            Step::Wait
        } else {
            Step::Post { signalled: true }
        }
    }

    /// Returns whether a signal that moves no data may be posted, because no other one is in
    /// flight.
    pub fn may_flush(&self, frontier: &Frontier) -> bool {
        self.flushing.load(Ordering::Relaxed) <= frontier.completed().saturating_add(1)
    }

    /// Records that a signal that moves no data is posted.
    pub fn flushed(&self, ticket: Ticket) {
        self.flushing.fetch_max(ticket.number + 1, Ordering::Relaxed);
        self.posted(ticket, true);
    }

    /// Records that the operation is posted. Returns the tag for its memory.
    #[inline]
    pub fn posted(&self, ticket: Ticket, signalled: bool) -> u64 {
        if signalled {
            self.signalled.fetch_max(ticket.number + 1, Ordering::Relaxed);
        }
        // SYNC: pairs with the acquire in `enter`: the operation is posted before any thread gets a
        // number that is not below the tag.
        self.state.fetch_sub(ONE_INSIDE, Ordering::Release) >> INSIDE_BITS
    }

    /// Records that the operation was not posted and will not be.
    pub fn given_up(&self, _: Ticket) {
        self.state.fetch_sub(ONE_INSIDE, Ordering::Release);
    }

    /// A tag that is passed when all operations posted so far are over.
    pub fn tag_now(&self) -> u64 {
        self.state.load(Ordering::Acquire) >> INSIDE_BITS
    }

    /// Returns whether a signalled operation has been posted whose end will pass this tag.
    pub fn is_signalled(&self, tag: u64) -> bool {
        self.signalled.load(Ordering::Relaxed) > tag
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn post(signals: &Signals, frontier: &Frontier) -> (u64, bool, u64) {
        let ticket = signals.enter().unwrap();
        let number = ticket.number();
        let Step::Post { signalled } = signals.step(&ticket, frontier) else { panic!("{number} must wait") };
        (number, signalled, signals.posted(ticket, signalled))
    }

    #[test]
    fn one_of_a_window_is_signalled() {
        let (signals, frontier) = (Signals::with(4, 2), Frontier::default());
        let posted: Vec<_> = (0..4).map(|_| post(&signals, &frontier)).collect();
        assert_eq!(posted.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert_eq!(posted.iter().map(|(_, signalled, _)| *signalled).collect::<Vec<_>>(), [true, false, false, false]);
        assert!(posted.iter().all(|(number, _, tag)| *tag == number + 1));
        // The second window must wait for the signal of the first, which has not arrived.
        let ticket = signals.enter().unwrap();
        assert_eq!((ticket.number(), signals.step(&ticket, &frontier)), (8, Step::Wait));
        frontier.raise(4);
        assert_eq!(signals.step(&ticket, &frontier), Step::Post { signalled: true });
        assert_eq!(signals.posted(ticket, true), 9);
        assert!(!frontier.has_passed(5), "the signal does not cover later operations");
    }

    #[test]
    fn a_waiter_without_a_signal_makes_one() {
        let (signals, frontier) = (Signals::with(4, 1), Frontier::default());
        // The operation that should be signalled is given up.
        signals.given_up(signals.enter().unwrap());
        assert!(!post(&signals, &frontier).1);
        let (number, signalled, _) = post(&signals, &frontier);
        assert_eq!((number, signalled), (4, true));
        let ticket = signals.enter().unwrap();
        assert_eq!(signals.step(&ticket, &frontier), Step::Wait, "one is enough");
        frontier.raise(4);
        assert_eq!(signals.step(&ticket, &frontier), Step::Post { signalled: false });
        signals.given_up(ticket);
    }

    #[test]
    fn no_more_enter_than_may() {
        let signals = Signals::with(2, 4);
        let [one, two] = [signals.enter().unwrap(), signals.enter().unwrap()];
        assert!(matches!(signals.enter(), Err(TooMany)));
        signals.given_up(one);
        let three = signals.enter().unwrap();
        assert_eq!(three.number(), 16 + 3);
        assert!(matches!(signals.enter(), Err(TooMany)));
        assert_eq!(signals.posted(two, false), 16 + 5);
        signals.given_up(three);
    }

    #[test]
    fn limits_are_kept_by_their_sums() {
        for depth in 16..2000 {
            let limits = QueueLimits::of_depth(depth, 1);
            let signals = Signals::new(limits);
            let (window, inside) = (signals.window() as usize, signals.inside_max());
            assert!(2 * window + inside <= limits.unsignalled_max, "{limits:?}");
            assert!(2 * window + 3 * inside <= limits.depth, "{limits:?}");
            assert!(2 + 3 * inside <= limits.completions_max, "{limits:?}");
        }
    }
}
