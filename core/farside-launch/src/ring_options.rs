//! [`RingOptions`]: the sizes of rings, and how they grow.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use crate::error::{LaunchError as Error, Result};

/// The size of the chunks that a ring begins with.
pub const FIRST_CHUNK_BYTES: usize = 4 << 10;
/// The number of chunks that a ring begins with.
pub const FIRST_CHUNK_COUNT: usize = 2;
/// The size of the chunks that a shared ring begins with. Shared rings carry less than rings.
pub const FIRST_SHARED_CHUNK_BYTES: usize = FIRST_CHUNK_BYTES / 2;
/// The largest number of chunks that one request brings.
pub const CHUNKS_PER_REQUEST_MAX: usize = 16;
/// The largest number of chunks of one ring.
const CHUNKS_MAX: usize = 1024;
/// The unit of the start, end and size of chunks.
const CHUNK_BYTES_UNIT: usize = 128;
/// The growth of the chunk size from one request to the next, as a power of two.
const GROWTH_SHIFT: usize = 3;

/// The size of the ring to a worker, and how it grows when its receiver falls behind (Seriema
/// §4.4.1: c, c_max and the size of a chunk).
///
/// A ring begins with [`first_chunks`](Self::first_chunks) chunks of
/// [`chunk_bytes`](Self::chunk_bytes). If its sender finds no room, it asks for
/// [`chunks_per_growth`](Self::chunks_per_growth) more chunks, each time eight times as large, up
/// to [`chunk_bytes_max`](Self::chunk_bytes_max). It stops at [`chunks_max`](Self::chunks_max)
/// chunks. The receiver grants chunks while all rings to it take at most `Job::ring_cap_bytes`.
///
/// The default is two chunks of 4 KiB, then one of 32 KiB and one of 256 KiB. This was measured. A
/// busy ring must be longer than 192 KiB: in a shorter ring the same cache lines go back and forth
/// sooner, and each call takes more than twice as long. Much longer rings leave the caches.
///
/// Where the receiver's memory is not mapped (libfabric, simulated jobs), calls travel as messages
/// and there is no ring. These options then set the *window*, the number of bytes that may travel
/// before the receiver has run them. It is the size that the ring would grow to, or
/// `Job::ring_cap_bytes` if that is less.
///
/// In the environment of a job and for `farside run --ring`, the form is
/// `FIRST,GROWTH,MAX,BYTES,BYTES_MAX`, by default `2,1,4,4096,262144`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// The number of chunks that the first request brings: 2 to 16.
    pub first_chunks: usize,
    /// The number of chunks that each later request brings: 1 to 16.
    pub chunks_per_growth: usize,
    /// The largest number of chunks of a ring, without those for single long calls: 2 to 1024, and
    /// at least `first_chunks`.
    pub chunks_max: usize,
    /// The size of the first chunks: a multiple of 128. The shared rings of a process begin with
    /// half of it.
    pub chunk_bytes: usize,
    /// The largest size of a chunk: a multiple of 128. A longer call gets a chunk of its own.
    pub chunk_bytes_max: usize,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self {
            first_chunks: FIRST_CHUNK_COUNT,
            chunks_per_growth: 1,
            chunks_max: 4,
            chunk_bytes: FIRST_CHUNK_BYTES,
            chunk_bytes_max: 256 << 10,
        }
    }
}

impl RingOptions {
    /// Checks whether such a ring is possible if all rings to a worker may take `cap_bytes` bytes.
    ///
    /// # Errors
    /// [`Error::RingOptions`].
    pub fn check(&self, cap_bytes: usize) -> Result<()> {
        let refused = |why: String| Err(Error::RingOptions { why });
        if !(2..=CHUNKS_PER_REQUEST_MAX).contains(&self.first_chunks) {
            // A sender never leaves the only chunk of a ring, and the receiver credits only chunks
            // that were left.
            return refused(format!(
                "it begins with {} chunks: choose 2 to {CHUNKS_PER_REQUEST_MAX}",
                self.first_chunks
            ));
        }
        if !(1..=CHUNKS_PER_REQUEST_MAX).contains(&self.chunks_per_growth) {
            return refused(format!(
                "it grows by {} chunks: choose 1 to {CHUNKS_PER_REQUEST_MAX}",
                self.chunks_per_growth
            ));
        }
        if !(self.first_chunks..=CHUNKS_MAX).contains(&self.chunks_max) {
            let (first, max) = (self.first_chunks, self.chunks_max);
            return refused(format!("it has at most {max} chunks: choose {first}, its first chunks, to {CHUNKS_MAX}"));
        }
        for bytes in [self.chunk_bytes, self.chunk_bytes_max] {
            if bytes == 0 || !bytes.is_multiple_of(CHUNK_BYTES_UNIT) {
                return refused(format!("chunks of {bytes} bytes: choose a multiple of {CHUNK_BYTES_UNIT}"));
            }
        }
        if self.chunk_bytes > self.chunk_bytes_max {
            return refused(format!(
                "its first chunks have {} bytes, more than its largest ({}): raise the largest size",
                self.chunk_bytes, self.chunk_bytes_max
            ));
        }
        match self.chunk_bytes.checked_mul(self.first_chunks) {
            // A ring as small as the default is always granted.
            Some(bytes) if bytes <= cap_bytes.max(FIRST_CHUNK_COUNT * FIRST_CHUNK_BYTES) => Ok(()),
            _ => refused(format!(
                "its first {} chunks of {} bytes exceed the receiver's cap of {cap_bytes}: raise `Job::ring_cap_bytes`",
                self.first_chunks, self.chunk_bytes
            )),
        }
    }

    /// The size of the ring when it has grown as far as it may. Where memory is not mapped, this is
    /// the window: the number of bytes of calls that travel before the receiver has run them.
    pub fn grown_bytes(&self) -> usize {
        let mut chunks = self.first_chunks;
        let mut bytes = chunks * self.chunk_bytes;
        while let Some((count, chunk_bytes)) = self.growth(chunks) {
            chunks += count;
            bytes = bytes.saturating_add(count.saturating_mul(chunk_bytes));
        }
        bytes
    }

    /// Returns the request of a ring that has `chunks` chunks and no room: the number and the size
    /// of the new chunks. Returns `None` if the ring may not grow.
    pub fn growth(&self, chunks: usize) -> Option<(usize, usize)> {
        let count = self.chunks_per_growth.min(self.chunks_max.checked_sub(chunks)?);
        let step = chunks.saturating_sub(self.first_chunks) / self.chunks_per_growth + 1;
        let mut bytes = self.chunk_bytes;
        for _ in 0..step {
            bytes = bytes.saturating_mul(1 << GROWTH_SHIFT).min(self.chunk_bytes_max);
        }
        (count > 0).then_some((count, bytes))
    }
}

impl Display for RingOptions {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { first_chunks, chunks_per_growth, chunks_max, chunk_bytes, chunk_bytes_max } = self;
        write!(out, "{first_chunks},{chunks_per_growth},{chunks_max},{chunk_bytes},{chunk_bytes_max}")
    }
}

impl FromStr for RingOptions {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "five numbers are expected: FIRST,GROWTH,MAX,BYTES,BYTES_MAX";
        let numbers = text.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>().map_err(|_| FORM)?;
        let [first_chunks, chunks_per_growth, chunks_max, chunk_bytes, chunk_bytes_max] = numbers[..] else {
            return Err(FORM);
        };
        Ok(Self { first_chunks, chunks_per_growth, chunks_max, chunk_bytes, chunk_bytes_max })
    }
}

/// Returns the size of a chunk for a record of this size, with room for one more header behind it.
pub fn chunk_bytes_for(record_bytes: usize) -> usize {
    (record_bytes + 8).next_multiple_of(FIRST_CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAP: usize = 8 << 20;

    #[test]
    fn the_default_is_what_was_measured() {
        let options = RingOptions::default();
        options.check(CAP).unwrap();
        options.check(0).unwrap();
        assert_eq!((options.first_chunks, options.chunk_bytes), (2, 4 << 10));
        assert_eq!(
            [2, 3, 4, 5].map(|chunks| options.growth(chunks)),
            [Some((1, 32 << 10)), Some((1, 256 << 10)), None, None]
        );
    }

    #[test]
    fn chunks_come_in_the_numbers_asked_for() {
        // Seriema's options: two chunks at a time, up to 16, all of one size.
        let seriema = RingOptions {
            chunks_per_growth: 2,
            chunks_max: 15,
            chunk_bytes: 64 << 10,
            chunk_bytes_max: 64 << 10,
            ..RingOptions::default()
        };
        seriema.check(CAP).unwrap();
        assert_eq!(seriema.growth(2), Some((2, 64 << 10)));
        assert_eq!(seriema.growth(14), Some((1, 64 << 10)));
        assert_eq!(seriema.growth(15), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = RingOptions::default();
        let bad = [
            RingOptions { first_chunks: 1, ..good },
            RingOptions { first_chunks: 17, chunks_max: 20, ..good },
            RingOptions { chunks_per_growth: 0, ..good },
            RingOptions { chunks_max: 1, ..good },
            RingOptions { chunks_max: CHUNKS_MAX + 1, ..good },
            RingOptions { chunk_bytes: 0, ..good },
            RingOptions { chunk_bytes: 100, ..good },
            RingOptions { chunk_bytes: 512 << 10, ..good },
            RingOptions { chunk_bytes: 8 << 20, chunk_bytes_max: 8 << 20, ..good },
            RingOptions { chunk_bytes: 1 << 63, chunk_bytes_max: 1 << 63, ..good },
        ];
        for options in bad {
            assert!(matches!(options.check(CAP), Err(Error::RingOptions { .. })), "{options:?}");
        }
    }

    fn any_options() -> impl Strategy<Value = RingOptions> {
        any::<[usize; 5]>().prop_map(|[first_chunks, chunks_per_growth, chunks_max, chunk_bytes, chunk_bytes_max]| {
            RingOptions { first_chunks, chunks_per_growth, chunks_max, chunk_bytes, chunk_bytes_max }
        })
    }

    proptest! {
        #[test]
        fn written_bytes_are_read_back(options in any_options()) {
            prop_assert_eq!(options.to_string().parse::<RingOptions>(), Ok(options));
        }

        #[test]
        fn arbitrary_bytes_are_checked_without_panic(text in "[0-9,]{0,40}", chunks in 0..3000_usize, cap: usize) {
            if let Ok(options) = text.parse::<RingOptions>()
                && options.check(cap).is_ok()
                && let Some((count, bytes)) = options.growth(chunks)
            {
                prop_assert!(count >= 1 && chunks + count <= options.chunks_max && bytes <= options.chunk_bytes_max);
            }
        }
    }
}
