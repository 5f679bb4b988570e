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
    /// There was room again for calls that had waited for it.
    Credit,
}

/// The number of causes.
pub(crate) const FLUSH_CAUSES: usize = 7;

/// What was sent to one worker, or to all, so far.
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
    /// Times that the service thread sent staged calls, since their worker was at something else.
    pub helped: u64,
    /// The most bytes that were staged for one destination at once. In a sum, the largest.
    pub staged_bytes_max: u64,
    /// Rings opened.
    pub rings: u64,
    /// Their memory at the receivers.
    pub ring_bytes: u64,
    /// Rings that were shut down or reclaimed.
    pub rings_reclaimed: u64,
    /// Their memory, which the receivers have back.
    pub reclaimed_bytes: u64,
}

impl SendCounters {
    /// The most chunks of so many bytes that were filled with staged calls for one destination at once: what Seriema calls buffered.
    pub fn staged_chunks_max(&self, chunk_bytes: usize) -> u64 {
        self.staged_bytes_max.div_ceil(chunk_bytes.max(1) as u64)
    }

    /// Adds another's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.flushes.iter_mut().zip(other.flushes).for_each(|(sum, more)| *sum += more);
        self.stalls += other.stalls;
        self.chunks_grown += other.chunks_grown;
        self.staged += other.staged;
        self.helped += other.helped;
        self.staged_bytes_max = self.staged_bytes_max.max(other.staged_bytes_max);
        self.rings += other.rings;
        self.ring_bytes += other.ring_bytes;
        self.rings_reclaimed += other.rings_reclaimed;
        self.reclaimed_bytes += other.reclaimed_bytes;
    }
}
