//! A stream of bytes from one worker to another with nothing in it but the bytes: the most that calls could carry.
//!
//! Blocks are copied into a ring in shared memory, and the receiver copies them out and adds all their bytes up.
//!
//! Adding them up where they lie would be slower: words that another process may write are read one by one, while a copy that
//! nobody else can see is added up with the widest registers there are.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farside::Worker;

use super::Yardstick;
use crate::BenchError;
use crate::shared::{Patience, Shared, WORD_DISTANCE};

/// Fits into the first cache. Blocks of 4 KiB are a sixth slower.
const BLOCK_BYTES: usize = 16 << 10;
/// 256 KiB in all: larger rings leave the caches and are no faster.
const BLOCK_COUNT: u64 = 16;
/// The receiver gives blocks back so many at a time: a line that changes hands for each of them would cost more.
const CREDIT_BLOCKS: u64 = 4;

// Where things lie in the memory: three words, each alone, and the blocks on the next page.
const PRODUCED: usize = 0;
const CONSUMED: usize = WORD_DISTANCE;
const SUM: usize = 2 * WORD_DISTANCE;
const BLOCKS: usize = 4096;

/// What a stream moves at least in one measurement.
const BYTES_MIN: u64 = 4 << 20;

/// One end of a stream. Both sides make one.
#[derive(Debug)]
pub(crate) struct Stream {
    memory: Shared,
    patience: Patience,
    /// Blocks that went through so far, which both sides count alike.
    done: Cell<u64>,
}

impl Stream {
    /// A stream between two workers of the job. Collective.
    ///
    /// # Errors
    /// As [`Shared::new`].
    pub(crate) fn new(me: &Worker) -> Result<Self, BenchError> {
        Ok(Self::on(Shared::new(me, BLOCKS + BLOCK_COUNT as usize * BLOCK_BYTES)?, Patience::new(2)))
    }

    fn on(memory: Shared, patience: Patience) -> Self {
        Self { memory, patience, done: Cell::new(0) }
    }

    /// How many blocks to move for a case that moves so many bytes.
    pub(crate) fn blocks_for(bytes: u64) -> u64 {
        bytes.max(BYTES_MIN).div_ceil(BLOCK_BYTES as u64)
    }

    /// Sends so many blocks and waits until all are read. Returns the bytes sent in a second.
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`]; [`BenchError::WrongSum`] when the receiver did not read what was sent.
    pub(crate) fn send(&self, blocks: u64) -> Result<f64, BenchError> {
        let first = self.done.replace(self.done.get() + blocks);
        let end = first + blocks;
        let mut expected = 0_u64;
        let mut block = [1; BLOCK_BYTES];
        let rest = u64::from_ne_bytes([1; 8]).wrapping_mul(BLOCK_BYTES as u64 / 8 - 1);
        // What was seen last; while that will do, the line stays with the receiver.
        let mut consumed = first;
        let start = Instant::now();
        for at in first..end {
            self.patience.wait_until(|| {
                if at - consumed >= BLOCK_COUNT {
                    consumed = self.memory.word(CONSUMED).load(Ordering::Acquire);
                }
                at - consumed < BLOCK_COUNT
            })?;
            // Every block is another, so that one that is read twice or too early is found out.
            block[..8].copy_from_slice(&at.to_ne_bytes());
            expected = expected.wrapping_add(at).wrapping_add(rest);
            // The deadline is for memory that is not mapped.
            let copied = self.memory.bytes().put(offset_of(at) as u64, &block, start);
            copied.map_err(farside::Error::from)?;
            // SYNC: pairs with the acquire load in `receive`: the block comes with it.
            self.memory.word(PRODUCED).store(at + 1, Ordering::Release);
        }
        self.patience.wait_until(|| self.memory.word(CONSUMED).load(Ordering::Acquire) == end)?;
        let elapsed = start.elapsed();
        let found = self.memory.word(SUM).load(Ordering::Relaxed);
        if found != expected {
            return Err(BenchError::WrongSum { what: "the raw stream", expected, found });
        }
        Ok((blocks * BLOCK_BYTES as u64) as f64 / elapsed.as_secs_f64())
    }

    /// The other side of [`send`](Self::send).
    ///
    /// # Errors
    /// [`BenchError::NoAnswer`].
    pub(crate) fn receive(&self, blocks: u64) -> Result<(), BenchError> {
        let first = self.done.replace(self.done.get() + blocks);
        let end = first + blocks;
        let mut sum = 0_u64;
        let mut block = [0; BLOCK_BYTES];
        // The deadline is for memory that is not mapped.
        let deadline = Instant::now();
        for at in first..end {
            // SYNC: pairs with the release store in `send`.
            self.patience.wait_until(|| self.memory.word(PRODUCED).load(Ordering::Acquire) > at)?;
            let copied = self.memory.bytes().get(offset_of(at) as u64, &mut block, deadline);
            copied.map_err(farside::Error::from)?;
            sum = sum.wrapping_add(sum_of(&block));
            if at + 1 == end {
                self.memory.word(SUM).store(sum, Ordering::Relaxed);
            }
            if at + 1 == end || (at + 1).is_multiple_of(CREDIT_BLOCKS) {
                // SYNC: pairs with the acquire loads in `send`: the blocks were read, and the sum is there at the end.
                self.memory.word(CONSUMED).store(at + 1, Ordering::Release);
            }
        }
        Ok(())
    }
}

/// Such a stream, as what it could carry of something else.
#[derive(Debug)]
pub(crate) struct RawStream {
    pub(crate) stream: Stream,
    pub(crate) blocks: u64,
    /// The bytes that one of the things carried takes.
    pub(crate) bytes_of_each: usize,
}

impl Yardstick for RawStream {
    fn name(&self) -> &str {
        "raw stream"
    }

    fn lead(&mut self) -> Result<f64, BenchError> {
        Ok(self.stream.send(self.blocks)? / self.bytes_of_each as f64)
    }

    fn follow(&mut self) -> Result<(), BenchError> {
        self.stream.receive(self.blocks)
    }
}

/// The sum of all words of a block.
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
                runs.iter().for_each(|blocks| far.receive(*blocks).unwrap());
            });
            let near = Stream::on(memory, Patience::new(100));
            runs.iter().for_each(|blocks| assert!(near.send(*blocks).unwrap() > 0.0));
        });
    }
}
