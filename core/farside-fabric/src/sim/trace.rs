//! A summary of a simulation.

/// A summary of the events of a simulation: equal runs have equal traces, and different runs almost
/// never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// Hash of all switches from one thread to another and all deliveries, with their times.
    pub hash: u64,
    /// Number of turns.
    pub switches: u64,
    /// Number of deliveries: messages, pieces of operations, and replies to those.
    pub deliveries: u64,
    /// Number of registrations of memory, including those that failed.
    pub registrations: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        // The offset basis of FNV-1a.
        Self { hash: 0xcbf2_9ce4_8422_2325, switches: 0, deliveries: 0, registrations: 0 }
    }

    /// Adds words to the hash: FNV-1a, one word at a time.
    pub(super) fn note(&mut self, words: &[u64]) {
        for word in words {
            // The rotation moves high bits down, because the multiplication only moves bits up.
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
    }

    pub(super) fn note_delivery(&mut self, words: &[u64]) {
        self.deliveries += 1;
        self.note(words);
    }
}
