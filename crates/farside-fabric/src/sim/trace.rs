//! What happened, in short.

/// What happened in a simulation, summed up: two runs that are the same have the same trace, and two that differ hardly ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// Over all switches from one thread to another and all that arrived anywhere, with its time.
    pub hash: u64,
    /// How often a thread had its turn.
    pub switches: u64,
    /// How much arrived: messages, pieces of operations, and answers to those.
    pub deliveries: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        // The offset basis of FNV-1a.
        Self { hash: 0xcbf2_9ce4_8422_2325, switches: 0, deliveries: 0 }
    }

    /// Adds words to the hash: FNV-1a, a word at a time.
    pub(super) fn note(&mut self, words: &[u64]) {
        for word in words {
            // The rotation brings high bits down, which the multiplication only moves up.
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
    }

    pub(super) fn note_delivery(&mut self, words: &[u64]) {
        self.deliveries += 1;
        self.note(words);
    }
}
