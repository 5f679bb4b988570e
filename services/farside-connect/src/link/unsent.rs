//! [`Unsent`]: the bytes that wait to be sent on all connections of a server.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that wait to be sent on all connections of a server, and their limit.
///
/// Threads that send change the counts. Nothing else depends on them, so they may lag behind a
/// little.
#[derive(Debug)]
pub struct Unsent {
    bytes: AtomicUsize,
    /// The number of connections for which some wait.
    connections: AtomicUsize,
    max: usize,
}

impl Unsent {
    /// Counts bytes of which `max` may wait.
    pub fn new(max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), connections: AtomicUsize::new(0), max }
    }

    /// The most bytes that may wait.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Counts a connection for which `now` bytes wait, in place of `before`.
    pub(super) fn change(&self, before: usize, now: usize) {
        // The sum wraps around in between, and is right in the end.
        self.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        let connections = usize::from(now > 0).wrapping_sub(usize::from(before > 0));
        self.connections.fetch_add(connections, Ordering::Relaxed);
    }

    /// Returns whether half of what is allowed waits. Then connections for which some wait get no
    /// more work.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.max / 2
    }

    /// Returns whether more than what is allowed waits.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.max
    }

    /// Returns whether a connection for which `bytes` wait has at least an equal share of too much.
    pub fn is_to_end(&self, bytes: usize) -> bool {
        self.is_over() && bytes >= self.bytes.load(Ordering::Relaxed) / self.connections.load(Ordering::Relaxed).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_for_which_the_most_waits_end() {
        let unsent = Unsent::new(100);
        unsent.change(0, 50);
        assert!(!unsent.is_crowded());
        unsent.change(0, 10);
        assert!(unsent.is_crowded() && !unsent.is_over() && !unsent.is_to_end(50));
        unsent.change(10, 60);
        assert!(unsent.is_over() && unsent.is_to_end(60) && !unsent.is_to_end(50));
        unsent.change(60, 0);
        assert!(!unsent.is_crowded() && !unsent.is_over());
        // One connection alone may have too much, too.
        unsent.change(50, 101);
        assert!(unsent.is_to_end(101));
        unsent.change(101, 0);
        assert_eq!((unsent.bytes.into_inner(), unsent.connections.into_inner()), (0, 0));
    }
}
