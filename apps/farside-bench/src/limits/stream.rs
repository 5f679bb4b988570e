//! A stream of bytes from one worker to another, without calls: the most that calls could carry.
//!
//! The sender copies blocks into a ring in shared memory. The receiver copies them out and sums all
//! bytes.
//!
//! Summing them in place would be slower. Words that another process may write are read one by one,
//! while the widest registers sum a private copy.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farside::Worker;

use super::Yardstick;
use crate::BenchError;
use crate::shared::{Patience, Shared, WORD_DISTANCE};

/// A block fits into the first cache. Blocks of 4 KiB are a sixth slower.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;
/// The ring has 256 KiB. Larger rings leave the caches and are not faster.
const BLOCK_COUNT: u64 = 16;
/// The receiver releases this number of blocks at a time. Releasing each alone would pass a cache
/// line to and fro for each.
const CREDIT_BLOCKS: u64 = 4;

// The layout of the memory: three words, each alone, and the blocks from the next page on.
const PRODUCED: usize = 0;
const CONSUMED: usize = WORD_DISTANCE;
const SUM: usize = 2 * WORD_DISTANCE;
const BLOCKS: usize = 4096;

/// The least that a stream moves in one measurement.
const BYTES_MIN: u64 = 4 << 20;

/// One end of a stream. Both sides create one.
#[derive(Debug)]
pub(crate) struct Stream {
    memory: Shared,
    patience: Patience,
    /// Number of blocks passed so far. Both sides count alike.
    done: Cell<u64>,
}

impl Stream {
    /// Creates a stream between two workers of the job. Collective.
    ///
    /// # Errors
    /// The errors of [`Shared::new`].
    pub(crate) fn new(me: &Worker) -> Result<Self, BenchError> {
        Ok(Self::on(Shared::new(me, BLOCKS + BLOCK_COUNT as usize * BLOCK_BYTES)?, Patience::new(2)))
    }

    fn on(memory: Shared, patience: Patience) -> Self {
        Self { memory, patience, done: Cell::new(0) }
    }

    /// The number of blocks for a case that moves `bytes` bytes.
    pub(crate) fn blocks_for(bytes: u64) -> u64 {
        bytes.max(BYTES_MIN).div_ceil(BLOCK_BYTES as u64)
    }

    /// Sends `blocks` blocks and waits until all are read. `fill` writes each of them and returns
    /// what it adds to the sum. Returns the number of blocks per second.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`]; [`BenchError::WrongSum`] if the receiver read other bytes than
    /// were sent.
    pub(crate) fn send(
        &self,
        blocks: u64,
        mut fill: impl FnMut(u64, &mut [u8; BLOCK_BYTES]) -> u64,
    ) -> Result<f64, BenchError> {
        let first = self.done.replace(self.done.get() + blocks);
        let end = first + blocks;
        let mut expected = 0_u64;
        let mut block = [1; BLOCK_BYTES];
        // The last value seen. While it suffices, the line stays with the receiver.
        let mut consumed = first;
        let start = Instant::now();
        for at in first..end {
            self.patience.wait_until(|| {
                if at - consumed >= BLOCK_COUNT {
                    consumed = self.memory.word(CONSUMED).load(Ordering::Acquire);
                }
                at - consumed < BLOCK_COUNT
            })?;
            expected = expected.wrapping_add(fill(at, &mut block));
            // The deadline matters only for memory that is not mapped.
            let copied = self.memory.bytes().put(offset_of(at) as u64, &block, start);
            copied.map_err(farside::Error::from)?;
            // SYNC: pairs with the acquire load in `receive`, which makes the block visible.
            self.memory.word(PRODUCED).store(at + 1, Ordering::Release);
        }
        self.patience.wait_until(|| self.memory.word(CONSUMED).load(Ordering::Acquire) == end)?;
        let elapsed = start.elapsed();
        let found = self.memory.word(SUM).load(Ordering::Relaxed);
        if found != expected {
            return Err(BenchError::WrongSum { what: "the raw stream", expected, found });
        }
        Ok(blocks as f64 / elapsed.as_secs_f64())
    }

    /// The other side of [`send`](Self::send). `read` returns what a block adds to the sum.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    pub(crate) fn receive(
        &self,
        blocks: u64,
        mut read: impl FnMut(&[u8; BLOCK_BYTES]) -> u64,
    ) -> Result<(), BenchError> {
        let first = self.done.replace(self.done.get() + blocks);
        let end = first + blocks;
        let mut sum = 0_u64;
        let mut block = [0; BLOCK_BYTES];
        // The deadline matters only for memory that is not mapped.
        let deadline = Instant::now();
        for at in first..end {
            // SYNC: pairs with the release store in `send`.
            self.patience.wait_until(|| self.memory.word(PRODUCED).load(Ordering::Acquire) > at)?;
            let copied = self.memory.bytes().get(offset_of(at) as u64, &mut block, deadline);
            copied.map_err(farside::Error::from)?;
            sum = sum.wrapping_add(read(&block));
            if at + 1 == end {
                self.memory.word(SUM).store(sum, Ordering::Relaxed);
            }
            if at + 1 == end || (at + 1).is_multiple_of(CREDIT_BLOCKS) {
                // SYNC: pairs with the acquire loads in `send`: the blocks were read, and at the
                // end the sum is visible.
                self.memory.word(CONSUMED).store(at + 1, Ordering::Release);
            }
        }
        Ok(())
    }
}

/// A stream as a limit for other things that it could carry.
#[derive(Debug)]
pub(crate) struct RawStream {
    pub(crate) stream: Stream,
    pub(crate) blocks: u64,
    /// Bytes of each thing carried.
    pub(crate) bytes_of_each: usize,
}

impl Yardstick for RawStream {
    fn name(&self) -> &str {
        "raw stream"
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        Ok(self.stream.send(self.blocks, stamp)? * BLOCK_BYTES as f64 / self.bytes_of_each as f64)
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        self.stream.receive(self.blocks, sum_of)
    }
}

/// Writes the number of a block into it. A sum then reveals a block that is read twice or too
/// early.
fn stamp(number: u64, block: &mut [u8; BLOCK_BYTES]) -> u64 {
    block[..8].copy_from_slice(&number.to_ne_bytes());
    number.wrapping_add(u64::from_ne_bytes([1; 8]).wrapping_mul(BLOCK_BYTES as u64 / 8 - 1))
}

/// Returns the sum of all words of a block.
fn sum_of(block: &[u8; BLOCK_BYTES]) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
}

fn offset_of(block: u64) -> usize {
    BLOCKS + (block % BLOCK_COUNT) as usize * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_byte_arrives() {
        let memory = Shared::in_process(BLOCKS + BLOCK_COUNT as usize * BLOCK_BYTES);
        let runs = [1, BLOCK_COUNT - 1, BLOCK_COUNT, BLOCK_COUNT + 1, 10 * BLOCK_COUNT];
        thread::scope(|scope| {
            let far = Stream::on(memory.clone(), Patience::new(100));
            scope.spawn(move || {
                runs.iter().for_each(|blocks| far.receive(*blocks, sum_of).unwrap());
            });
            let near = Stream::on(memory, Patience::new(100));
            runs.iter().for_each(|blocks| assert!(near.send(*blocks, stamp).unwrap() > 0.0));
        });
    }
}
