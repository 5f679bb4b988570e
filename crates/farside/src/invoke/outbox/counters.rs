//! What an outbox counts.

/// Why a batch was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum FlushCause {
    /// It reached its size.
    Size,
    /// It reached its age.
    Age,
    /// Its worker had nothing else to do.
    Idle,
    /// Its chunk was full.
    Chunk,
    /// The program asked for it.
    Asked,
    /// Its [`Aggregator`](crate::Aggregator) was dropped.
    Dropped,
}

/// The number of causes.
pub(crate) const FLUSH_CAUSES: usize = 6;

/// What an outbox did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Calls sent or staged.
    pub calls: u64,
    /// Their bytes, with headers.
    pub bytes: u64,
    /// Batches published, by [`FlushCause`].
    pub flushes: [u64; FLUSH_CAUSES],
    /// Times that the ring had no room.
    pub stalls: u64,
    /// Chunks granted after the first.
    pub chunks_grown: u64,
    /// Calls that were staged first.
    pub staged: u64,
    /// Rings opened.
    pub rings: u64,
    /// Their memory at the receivers.
    pub ring_bytes: u64,
}

impl SendCounters {
    /// Adds another outbox's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.flushes.iter_mut().zip(other.flushes).for_each(|(sum, more)| *sum += more);
        self.stalls += other.stalls;
        self.chunks_grown += other.chunks_grown;
        self.staged += other.staged;
        self.rings += other.rings;
        self.ring_bytes += other.ring_bytes;
    }
}
