//! Which operations of many threads are signalled, and how their memory is tagged: counters, and nobody waits for anybody.
//!
//! This follows Seriema, Section 4.1, where `k` counts the operations and `k'` the flushes. What differs is said in `README.md`.

use farside_fabric::queue::{Frontier, QueueLimits};

use crate::sync::{AtomicU64, Ordering};

/// The lower bits of the state count the threads that are inside; the upper ones are `k`. At ten million operations a second `k` lasts
/// for fourteen years.
const INSIDE_BITS: u32 = 12;
const ONE_INSIDE: u64 = 1;
const ONE_POST: u64 = 1 << INSIDE_BITS;
const INSIDE_MASK: u64 = ONE_POST - 1;

/// The counters of a transmitter.
///
/// A thread [enters](Self::enter), which numbers its operation, asks for the next [step](Self::step) until that is to post it, posts it,
/// and [leaves](Self::posted), which brings the tag for its memory. Its [`Frontier`] is raised to the number of each signalled
/// operation when that is over; it has [passed](Frontier::has_passed) the tag when the operation is over.
///
/// *Cost*: two atomic additions and two loads for an operation.
#[derive(Debug)]
pub struct Signals {
    /// `k` and the number of threads inside. Written by everybody. The release when a thread leaves is acquired when another
    /// enters: whoever gets a number that is not below a tag posts after the operation that was tagged.
    state: AtomicU64,
    /// One more than the largest number of a signalled operation that was posted. Written by whoever posted it; read by those who
    /// have to wait, to know whether there is something to wait for. It is a hint: an old value costs a signal too many.
    signalled: AtomicU64,
    /// The same of those that move nothing. There is one of them at a time, but for threads that look at the same time.
    flushing: AtomicU64,
    /// A window is so many numbers, as a power of two.
    window_bits: u32,
    inside_max: u64,
}

/// A thread inside, and the number of its operation.
#[derive(Debug)]
#[must_use = "whoever entered must leave"]
pub struct Ticket {
    number: u64,
}

impl Ticket {
    /// What to signal the operation with.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Post the operation.
    Post {
        /// With a signal.
        signalled: bool,
    },
    /// Make progress and ask again: a signalled operation is under way, and there is no room before it is over.
    Wait,
}

/// As many threads are inside as may be. Others are let in when one has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Signals {
    /// The counters for a queue, which is never asked for more than its limits when all its operations are posted so.
    ///
    /// # Panics
    /// When the limits are too narrow for one thread: see [`QueueLimits`].
    pub fn new(limits: QueueLimits) -> Self {
        // Beside two windows, each thread inside may have one late operation, one that it signals for want of a signal, and one that it
        // flushes with.
        let inside_max = (limits.depth / 16).min(limits.completions_max / 4).clamp(1, INSIDE_MASK as usize / 2);
        let room = (limits.depth.saturating_sub(3 * inside_max)).min(limits.unsignalled_max.saturating_sub(inside_max));
        assert!(
            room >= 2 && limits.completions_max >= 2 + 3 * inside_max,
            "{limits:?} are too narrow for a transmitter"
        );
        Self::with(inside_max, (room / 2).ilog2())
    }

    /// For so many threads at a time, and windows of a power of two operations.
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

    /// How many operations are posted for a signal when one thread posts them.
    pub fn window(&self) -> u64 {
        1 << self.window_bits
    }

    /// How many threads may be inside.
    pub fn inside_max(&self) -> usize {
        self.inside_max as usize
    }

    /// A thread enters with an operation.
    ///
    /// # Errors
    /// [`TooMany`].
    #[inline]
    pub fn enter(&self) -> Result<Ticket, TooMany> {
        // Acquire: the partner of the release in `posted`.
        let state = self.state.fetch_add(ONE_POST + ONE_INSIDE, Ordering::Acquire);
        if state & INSIDE_MASK >= self.inside_max {
            // Its number is nobody's. Nothing needs all of them.
            self.state.fetch_sub(ONE_INSIDE, Ordering::Release);
            return Err(TooMany);
        }
        Ok(Ticket { number: state >> INSIDE_BITS })
    }

    /// What the thread does next.
    #[inline]
    pub fn step(&self, ticket: &Ticket, frontier: &Frontier) -> Step {
        let completed = frontier.completed();
        let (window, flushed) = (ticket.number >> self.window_bits, completed >> self.window_bits);
        // `flushed` windows and all before are over. This one and the next are open, so that the line is busy while the signal of the
        // first comes back.
        if window < flushed.saturating_add(2) {
            let opens_window = ticket.number & (self.window() - 1) == 0;
            return Step::Post { signalled: opens_window };
        }
        // Nobody has a claim to signal: if the thread that should have done so stands still, another does.
        if self.signalled.load(Ordering::Relaxed) > completed.saturating_add(1) {
            Step::Wait
        } else {
            Step::Post { signalled: true }
        }
    }

    /// Whether a signal that moves nothing may be posted: no other is under way.
    pub fn may_flush(&self, frontier: &Frontier) -> bool {
        self.flushing.load(Ordering::Relaxed) <= frontier.completed().saturating_add(1)
    }

    /// A signal that moves nothing is posted.
    pub fn flushed(&self, ticket: Ticket) {
        self.flushing.fetch_max(ticket.number + 1, Ordering::Relaxed);
        self.posted(ticket, true);
    }

    /// The operation is posted. Returns the tag for its memory.
    #[inline]
    pub fn posted(&self, ticket: Ticket, signalled: bool) -> u64 {
        if signalled {
            self.signalled.fetch_max(ticket.number + 1, Ordering::Relaxed);
        }
        // Release: the operation is posted before anybody gets a number that is not below the tag.
        self.state.fetch_sub(ONE_INSIDE, Ordering::Release) >> INSIDE_BITS
    }

    /// The operation was not posted and will not be.
    pub fn given_up(&self, _: Ticket) {
        self.state.fetch_sub(ONE_INSIDE, Ordering::Release);
    }

    /// A tag that is passed when all is over that was posted so far.
    pub fn tag_now(&self) -> u64 {
        self.state.load(Ordering::Acquire) >> INSIDE_BITS
    }

    /// Whether a signalled operation was posted whose end will pass this tag.
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
        // The second window is behind the first, whose signal has not come.
        let ticket = signals.enter().unwrap();
        assert_eq!((ticket.number(), signals.step(&ticket, &frontier)), (8, Step::Wait));
        frontier.raise(4);
        assert_eq!(signals.step(&ticket, &frontier), Step::Post { signalled: true });
        assert_eq!(signals.posted(ticket, true), 9);
        assert!(!frontier.has_passed(5), "the signal says nothing of those behind it");
    }

    #[test]
    fn who_finds_no_signal_makes_one() {
        let (signals, frontier) = (Signals::with(4, 1), Frontier::default());
        // The one that should be signalled is given up.
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
