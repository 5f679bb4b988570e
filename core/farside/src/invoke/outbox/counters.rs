//! The counters of an outbox.

/// The reason why a batch was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum FlushCause {
    /// The batch reached its size.
    Size,
    /// The batch reached its age.
    Age,
    /// The worker had nothing else to do.
    Idle,
    /// The ring's chunk, or the memory of the batch, was full.
    Chunk,
    /// The program asked for it, or made a call that is not aggregated.
    Asked,
    /// The [`Aggregator`](crate::Aggregator) was dropped.
    Dropped,
    /// Credit arrived for staged calls.
    Credit,
}

/// The number of causes.
pub(crate) const FLUSH_CAUSES: usize = 7;

/// Counters of the calls sent to one worker, or to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Calls sent or staged.
    pub calls: u64,
    /// The bytes of these calls, with headers.
    pub bytes: u64,
    /// Batches published, by [`FlushCause`].
    pub flushes: [u64; FLUSH_CAUSES],
    /// The number of times that the ring had no room.
    pub stalls: u64,
    /// Chunks granted after the first.
    pub chunks_grown: u64,
    /// Calls that were staged before they were sent.
    pub staged: u64,
    /// The number of times that the service thread sent staged calls, because the worker was busy.
    pub helped: u64,
    /// The most bytes staged for one destination at once. A sum of counters has the largest value.
    pub staged_bytes_max: u64,
    /// Rings opened.
    pub rings: u64,
    /// The memory of these rings at the receivers, in bytes.
    pub ring_bytes: u64,
    /// Rings that were shut down or reclaimed.
    pub rings_reclaimed: u64,
    /// The memory of these rings that went back to the receivers, in bytes.
    pub reclaimed_bytes: u64,
}

impl SendCounters {
    /// The largest number of chunks of `chunk_bytes` that staged calls for one destination filled
    /// at once. Seriema calls these chunks buffered.
    pub fn staged_chunks_max(&self, chunk_bytes: usize) -> u64 {
        self.staged_bytes_max.div_ceil(chunk_bytes.max(1) as u64)
    }

    /// Adds the counters of another outbox.
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
