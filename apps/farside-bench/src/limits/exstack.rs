//! Random words of a table that all processes share, without Farside: one word at a time by the
//! instructions of the processor, and with buffers that all processes exchange in step, as bale's
//! *exstack* does.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use farside::Worker;
use farside_mcts::Rng;

use crate::BenchError;
use crate::shared::{Patience, Shared, WORD_DISTANCE};

/// Items of a buffer, as bale has it.
const ITEMS: usize = 1024;
/// Words between buffers. The first words of a buffer have a line to themselves.
const HEAD_WORDS: usize = WORD_DISTANCE / 8;
const BUFFER_WORDS: usize = HEAD_WORDS + ITEMS;
/// Marks the count of a sender that has no more items.
const LAST: u64 = 1 << 32;

/// The bytes of the buffers: two for each pair. One is filled while the other is read.
fn memory_bytes(workers: usize) -> usize {
    2 * workers * workers * BUFFER_WORDS * 8
}

/// One process's end of the buffers, and its part of the table.
#[derive(Debug)]
pub(crate) struct Exstack {
    memory: Shared,
    /// The table that is used one word at a time. Word `i` is that of index `i`.
    words: Shared,
    /// This process's part of the table that is used by its owner.
    part: Vec<u64>,
    target: Vec<u64>,
    /// The words that this process adds to or reads.
    indices: Rc<[u32]>,
    /// Their owners, and their places there, made before the clock starts.
    places: Rc<[(u32, u32)]>,
    own: usize,
    workers: usize,
    lap: u64,
    counts: Vec<usize>,
    patience: Patience,
}

impl Exstack {
    /// Makes a table of `words` words for each process, of which each uses `operations` at random.
    /// Collective.
    ///
    /// # Errors
    /// The errors of [`Shared::table`]: collectives, memory, or a process that may not open it.
    pub(crate) fn new(me: &Worker, operations: u32, words: u32) -> Result<Self, BenchError> {
        let (own, workers) = (me.id().index(), me.worker_count() as usize);
        let memory = Shared::new(me, memory_bytes(workers))?;
        let table = Shared::table(me, workers * words as usize * 8)?;
        let mut random = Rng::new(me.id().number().into());
        let indices = (0..operations).map(|_| random.below(words * me.worker_count())).collect();
        Ok(Self::of(memory, table, words as usize, own, workers, indices))
    }

    fn of(memory: Shared, words: Shared, part: usize, own: usize, workers: usize, indices: Rc<[u32]>) -> Self {
        // Pages that are never written would all be one page of zeros, which no cache misses.
        let part = vec![1; part];
        let (target, counts, patience) = (vec![0; indices.len()], vec![0; workers], Patience::new(workers as u32));
        let place = |index: &u32| (*index % workers as u32, *index / workers as u32);
        let places = indices.iter().map(place).collect();
        Self { memory, words, part, target, indices, places, own, workers, lap: 0, counts, patience }
    }

    /// Adds 1 to words, one at a time.
    pub(crate) fn add_by_word(&mut self) -> Result<(), BenchError> {
        for index in &*self.indices {
            self.words.word(*index as usize * 8).fetch_add(1, Ordering::Relaxed);
        }
        self.exchange(true).map(drop)
    }

    /// Reads words, one at a time.
    pub(crate) fn read_by_word(&mut self) -> Result<(), BenchError> {
        for (read, index) in self.target.iter_mut().zip(&*self.indices) {
            *read = self.words.word(*index as usize * 8).load(Ordering::Relaxed);
        }
        black_box(&self.target);
        self.exchange(true).map(drop)
    }

    /// Sends each word to its owner, which adds 1.
    pub(crate) fn add(&mut self) -> Result<(), BenchError> {
        let places = self.places.clone();
        let mut at = 0;
        loop {
            while let Some((owner, word)) = places.get(at)
                && self.push(*owner as usize, (*word).into())
            {
                at += 1;
            }
            let is_over = self.exchange(at == places.len())?;
            for from in 0..self.workers {
                let (start, count) = self.arrived(from);
                for item in 0..count {
                    let word = self.memory.word(start + item * 8).load(Ordering::Relaxed);
                    self.part[word as usize] += 1;
                }
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// Asks the owner of each word for its value. Answers return in the order of the questions.
    pub(crate) fn read(&mut self) -> Result<(), BenchError> {
        let places = self.places.clone();
        let mut asked = vec![Vec::with_capacity(ITEMS); self.workers];
        let mut at = 0;
        loop {
            while let Some((owner, word)) = places.get(at)
                && self.push(*owner as usize, (*word).into())
            {
                asked[*owner as usize].push(at);
                at += 1;
            }
            let is_over = self.exchange(at == places.len())?;
            for from in 0..self.workers {
                let (start, count) = self.arrived(from);
                for item in 0..count {
                    let word = self.memory.word(start + item * 8).load(Ordering::Relaxed);
                    self.push(from, self.part[word as usize]);
                }
            }
            self.exchange(false)?;
            for (from, asked) in asked.iter_mut().enumerate() {
                let start = self.arrived(from).0;
                for (item, read) in asked.drain(..).enumerate() {
                    self.target[read] = self.memory.word(start + item * 8).load(Ordering::Relaxed);
                }
            }
            if is_over {
                black_box(&self.target);
                return Ok(());
            }
        }
    }

    /// The offset of the buffer from one process to another in a lap.
    fn buffer(&self, from: usize, to: usize, lap: u64) -> usize {
        ((lap as usize % 2 * self.workers + from) * self.workers + to) * BUFFER_WORDS * 8
    }

    /// Adds an item to the buffer for `to`, if there is room.
    #[inline]
    fn push(&mut self, to: usize, item: u64) -> bool {
        let count = self.counts[to];
        if count == ITEMS {
            return false;
        }
        let at = self.buffer(self.own, to, self.lap) + (HEAD_WORDS + count) * 8;
        self.memory.word(at).store(item, Ordering::Relaxed);
        self.counts[to] = count + 1;
        true
    }

    /// Hands over all buffers, and waits for those of this lap. Returns whether they are the last
    /// of all processes.
    ///
    /// A process fills a buffer again two laps later. By then it has seen the lap in between of the
    /// reader, which had read it before.
    fn exchange(&mut self, is_last: bool) -> Result<bool, BenchError> {
        let mark = if is_last { LAST } else { 0 };
        for to in 0..self.workers {
            let head = self.buffer(self.own, to, self.lap);
            self.memory.word(head + 8).store(self.counts[to] as u64 | mark, Ordering::Relaxed);
            // SYNC: pairs with the acquire load below, at the reader.
            self.memory.word(head).store(self.lap + 1, Ordering::Release);
        }
        self.counts.fill(0);
        self.lap += 1;
        let mut is_over = true;
        for from in 0..self.workers {
            let head = self.buffer(from, self.own, self.lap - 1);
            let lap = self.memory.word(head);
            self.patience.wait_until(|| lap.load(Ordering::Acquire) == self.lap)?;
            is_over &= self.memory.word(head + 8).load(Ordering::Relaxed) & LAST != 0;
        }
        Ok(is_over)
    }

    /// The offset and the number of the items that `from` has handed over last.
    fn arrived(&self, from: usize) -> (usize, usize) {
        let head = self.buffer(from, self.own, self.lap - 1);
        (head + HEAD_WORDS * 8, (self.memory.word(head + 8).load(Ordering::Relaxed) & (LAST - 1)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_items_arrive_and_all_answers_return() {
        const WORDS: usize = 100;
        let workers = 3;
        let (memory, words) = (Shared::in_process(memory_bytes(workers)), Shared::in_process(workers * WORDS * 8));
        let counts = thread::scope(|scope| {
            let run = |own: usize| {
                let (memory, words) = (memory.clone(), words.clone());
                scope.spawn(move || {
                    // Unequal numbers of items: the processes run out at different times.
                    let indices = (0..5000 * own as u32).map(|i| i * 7 % (workers * WORDS) as u32).collect();
                    let mut end = Exstack::of(memory, words, WORDS, own, workers, indices);
                    end.patience = Patience::new(100);
                    assert!(end.part.iter().all(|word| *word != 0), "the table has pages of its own");
                    end.part.fill(0);
                    end.add().unwrap();
                    end.add_by_word().unwrap();
                    let values = (0..).map(|word| (word * workers + own) as u64);
                    let counts = std::mem::take(&mut end.part);
                    end.part = values.take(counts.len()).collect();
                    end.read().unwrap();
                    assert!(end.target.iter().zip(&*end.indices).all(|(read, index)| *read == u64::from(*index)));
                    counts
                })
            };
            let threads: Vec<_> = (0..workers).map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(counts.iter().flatten().sum::<u64>(), 15000);
        for index in 0..workers * WORDS {
            let counted = words.word(index * 8).load(Ordering::Relaxed);
            assert_eq!(counts[index % workers][index / workers], counted, "index {index}");
        }
    }
}
