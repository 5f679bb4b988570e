//! The level below calls: records of the same size in the same kind of ring, published 4 KiB at a
//! time, without a call. They are read word by word, which is the part of the ring without unsafe
//! code; calls read faster.

use std::sync::atomic::Ordering;

use farside::{AGGREGATE_BYTES, CorruptRecord, ProcessId, Source, Worker, WorkerId};
use farside_fabric::ring::{
    Corrupt, Header, MappedChunk, MappedControl, Next, Receiver, RingMemory, Sender, as_record_words, record_bytes,
};

use super::Traffic;
use crate::kit::*;

/// About the size that the rings of calls grow to.
const CHUNK_COUNT: usize = 4;
const CHUNK_BYTES: usize = 64 << 10;

// The layout of the memory: two words, each alone, the control block of the ring, and its chunks
// from the next page on.
const RUNS_READ: usize = 0;
const SUM: usize = WORD_DISTANCE;
const CONTROL: usize = 2 * WORD_DISTANCE;
const CHUNKS: usize = 4096;
const BYTES: usize = CHUNKS + CHUNK_COUNT * CHUNK_BYTES;

/// One side of the ring.
#[derive(Debug)]
pub(super) struct Raw<const WORDS: usize> {
    memory: Shared,
    patience: Patience,
    /// Number of runs so far. Both sides count alike.
    runs: u64,
    end: End,
}

#[derive(Debug)]
enum End {
    Sender(Sender<MappedChunk, MappedControl>),
    Receiver(Receiver<MappedChunk, MappedControl>),
}

impl<const WORDS: usize> Raw<WORDS> {
    const RECORD_BYTES: usize = record_bytes(WORDS * 8);

    /// Creates a ring from worker 0 to the other. Collective.
    ///
    /// # Errors
    /// The errors of [`Shared::new`].
    pub(super) fn new(me: &Worker) -> Result<Self, BenchError> {
        let memory = Shared::new(me, BYTES)?;
        Ok(Self::on(memory, me.id() == WorkerId::new(0), Patience::new(2)))
    }

    fn on(memory: Shared, is_sender: bool, patience: Patience) -> Self {
        let chunks = (0..CHUNK_COUNT).map(|index| memory.chunk(CHUNKS + index * CHUNK_BYTES, CHUNK_BYTES)).collect();
        let control = memory.control(CONTROL);
        let end = if is_sender {
            End::Sender(Sender::new(control, chunks))
        } else {
            End::Receiver(Receiver::new(control, chunks))
        };
        Self { memory, patience, runs: 0, end }
    }
}

impl<const WORDS: usize> Traffic for Raw<WORDS> {
    fn produce(&mut self, _: &Worker, calls: u64) -> Result<u64, BenchError> {
        self.send(calls)
    }

    fn consume(&mut self, calls: u64) -> Result<(), BenchError> {
        self.receive(calls)
    }
}

impl<const WORDS: usize> Raw<WORDS> {
    fn send(&mut self, records: u64) -> Result<u64, BenchError> {
        let End::Sender(sender) = &mut self.end else { return Ok(0) };
        let header = Header::new(0, 0, Self::RECORD_BYTES);
        let mut batch = [0; AGGREGATE_BYTES / 8];
        let mut number = 0;
        while number < records {
            self.patience.wait_for(|| sender.reserve(Self::RECORD_BYTES).ok())?;
            let count = (size_of_val(&batch).min(sender.room()) / Self::RECORD_BYTES).min((records - number) as usize);
            let batched = &mut batch[..count * Self::RECORD_BYTES / 8];
            for record in batched.chunks_exact_mut(Self::RECORD_BYTES / 8) {
                record[0] = header.word();
                record[1..].fill(number);
                number += 1;
            }
            sender.publish_records(header, as_record_words(&batched[1..]));
        }
        self.runs += 1;
        // SYNC: pairs with the release store in `receive`, which makes the sum visible.
        self.patience.wait_until(|| self.memory.word(RUNS_READ).load(Ordering::Acquire) == self.runs)?;
        Ok(self.memory.word(SUM).load(Ordering::Relaxed))
    }

    fn receive(&mut self, records: u64) -> Result<(), BenchError> {
        let End::Receiver(receiver) = &mut self.end else { return Ok(()) };
        let mut sum = 0_u64;
        for _ in 0..records {
            let record = self.patience.wait_for(|| match receiver.peek() {
                Ok(Next::Empty) => None,
                Ok(Next::Record { payload, end, .. }) => Some(Ok((payload, end))),
                Err(cause) => Some(Err(corrupt(cause))),
            });
            let (payload, end) = record??;
            let chunk = receiver.chunk();
            for at in (payload..end).step_by(8) {
                sum = sum.wrapping_add(chunk.word(at).load(Ordering::Relaxed));
            }
            receiver.consume(end);
        }
        self.runs += 1;
        self.memory.word(SUM).store(sum, Ordering::Relaxed);
        // SYNC: pairs with the acquire load in `send`.
        self.memory.word(RUNS_READ).store(self.runs, Ordering::Release);
        Ok(())
    }
}

fn corrupt(cause: Corrupt) -> BenchError {
    let from = Source::Process(ProcessId::new(0));
    BenchError::Job(farside::Error::CorruptRing { from, cause: CorruptRecord::Ring(cause) })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn every_record_arrives<const WORDS: usize>() {
        let memory = Shared::in_process(BYTES);
        let records_in_a_chunk = (CHUNK_BYTES / Raw::<WORDS>::RECORD_BYTES) as u64;
        let runs = [1, records_in_a_chunk, records_in_a_chunk * CHUNK_COUNT as u64 + 1];
        thread::scope(|scope| {
            let mut receiver = Raw::<WORDS>::on(memory.clone(), false, Patience::new(100));
            scope.spawn(move || runs.iter().for_each(|records| receiver.receive(*records).unwrap()));
            let mut sender = Raw::<WORDS>::on(memory, true, Patience::new(100));
            for records in runs {
                assert_eq!(sender.send(records).unwrap(), super::super::sum_below(records) * WORDS as u64);
            }
        });
    }

    #[test]
    fn records_of_every_size_arrive() {
        every_record_arrives::<1>();
        every_record_arrives::<8>();
        every_record_arrives::<31>();
        every_record_arrives::<32>();
        every_record_arrives::<33>();
    }
}
