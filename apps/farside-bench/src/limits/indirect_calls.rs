//! A stream of records, each of which the receiver passes to the function that it names: the least
//! that one-way calls to chosen functions need.

use std::hint::black_box;

use super::Yardstick;
use super::stream::{BLOCK_BYTES, Stream};
use crate::BenchError;

/// A function of the receiver. A record names it by its place in a table.
type Function<const WORDS: usize> = fn([u64; WORDS]) -> u64;

/// A record is a word that names the function, and `WORDS` words of arguments.
#[derive(Debug)]
pub(crate) struct IndirectCalls<const WORDS: usize> {
    stream: Stream,
    blocks: u64,
    /// The number of the next record.
    number: u64,
}

impl<const WORDS: usize> IndirectCalls<WORDS> {
    const RECORD_BYTES: usize = 8 * (1 + WORDS);
    /// A block ends with less than a record of bytes that nothing reads.
    const RECORDS: usize = BLOCK_BYTES / Self::RECORD_BYTES;

    /// Creates a limit that moves at least `calls` records each time.
    pub(crate) fn new(stream: Stream, calls: u64) -> Self {
        Self { stream, blocks: Stream::blocks_for(calls.saturating_mul(Self::RECORD_BYTES as u64)), number: 0 }
    }
}

impl<const WORDS: usize> Yardstick for IndirectCalls<WORDS> {
    fn name(&self) -> &str {
        "indirect calls"
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        let mut number = self.number;
        let blocks_per_s = self.stream.send(self.blocks, |_, block| {
            let mut sum = 0_u64;
            for record in block.chunks_exact_mut(Self::RECORD_BYTES) {
                let (function, arguments) = record.split_at_mut(8);
                function.copy_from_slice(&0_u64.to_ne_bytes());
                arguments.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = number.to_ne_bytes());
                sum = sum.wrapping_add(number.wrapping_mul(WORDS as u64));
                number += 1;
            }
            sum
        })?;
        self.number = number;
        Ok(blocks_per_s * Self::RECORDS as f64)
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        // The compiler must not know which function is called.
        let functions: [Function<WORDS>; 1] = black_box([add_up::<WORDS>]);
        self.stream.receive(self.blocks, |block| {
            let call = |record: &[u8]| {
                let (words, _) = record.as_chunks::<8>();
                let mut arguments = [0; WORDS];
                arguments.iter_mut().zip(&words[1..]).for_each(|(to, word)| *to = u64::from_ne_bytes(*word));
                functions[u64::from_ne_bytes(words[0]) as usize](arguments)
            };
            block.chunks_exact(Self::RECORD_BYTES).fold(0, |sum, record| sum.wrapping_add(call(record)))
        })
    }
}

fn add_up<const WORDS: usize>(words: [u64; WORDS]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}
