//! The required behaviour of a ring, in a different form: two queues, without indices and counted
//! fillings.

use std::collections::VecDeque;

use farside_fabric::ring::{CHUNK_BYTES_MIN, NoRoom};

/// A chunk, as the oracle sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) number: usize,
    pub(crate) bytes: usize,
}

/// An item in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Record { sequence: u64, chunk: usize, offset: usize, end: usize },
    Rotation { chunk: usize, offset: usize },
}

/// The oracle.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// The chunk being filled, then the free chunks, then those that the receiver has not finished,
    /// oldest first.
    circle: VecDeque<Chunk>,
    free: usize,
    granted: VecDeque<Chunk>,
    offset: usize,
    /// Published and not received.
    stream: VecDeque<Item>,
    /// Published since the last call of `take_published`.
    published: Vec<Item>,
    pub(crate) consumed: u64,
    sequence: u64,
}

impl Oracle {
    pub(crate) fn new(chunks: impl IntoIterator<Item = Chunk>) -> Self {
        let circle: VecDeque<_> = chunks.into_iter().collect();
        let free = circle.len() - 1;
        Self {
            circle,
            free,
            granted: VecDeque::new(),
            offset: 0,
            stream: VecDeque::new(),
            published: Vec::new(),
            consumed: 0,
            sequence: 0,
        }
    }

    fn fits(&self, record_bytes: usize) -> bool {
        self.offset + record_bytes + 8 <= self.circle[0].bytes
    }

    /// Number of chunks that the sender moves on, apart from granted ones.
    fn steps(&self, record_bytes: usize) -> usize {
        let long_enough = |chunk: &Chunk| record_bytes + 8 <= chunk.bytes;
        match self.circle.iter().skip(1).position(long_enough) {
            Some(before) if before < self.free => before + 1,
            Some(_) => 0,
            None if long_enough(&self.circle[0]) && self.free > 0 => 1,
            None => 0,
        }
    }

    pub(crate) fn has_room(&self, record_bytes: usize) -> bool {
        self.fits(record_bytes) || !self.granted.is_empty() || self.steps(record_bytes) > 0
    }

    pub(crate) fn reserve(&mut self, record_bytes: usize) -> Result<usize, NoRoom> {
        if self.fits(record_bytes) {
            return Ok(self.offset);
        }
        while let Some(chunk) = self.granted.pop_front() {
            self.leave();
            self.circle.push_front(chunk);
            if self.fits(record_bytes) {
                return Ok(0);
            }
        }
        for _ in 0..self.steps(record_bytes) {
            self.leave();
            self.free -= 1;
        }
        if self.fits(record_bytes) {
            return Ok(self.offset);
        }
        let comes_round = self.circle.len() > 1 && self.circle.iter().any(|chunk| record_bytes + 8 <= chunk.bytes);
        let needs = (record_bytes + 8).max(CHUNK_BYTES_MIN);
        Err(NoRoom { needs_chunk_bytes: (!comes_round).then_some(needs) })
    }

    fn leave(&mut self) {
        let left = self.circle.pop_front().expect("the sender fills a chunk");
        self.circle.push_back(left);
        self.publish_item(Item::Rotation { chunk: left.number, offset: self.offset });
        self.offset = 0;
    }

    /// Records that a record was published.
    pub(crate) fn publish(&mut self, record_bytes: usize) {
        let (chunk, offset, sequence) = (self.circle[0].number, self.offset, self.sequence);
        self.offset += record_bytes;
        self.sequence += 1;
        self.publish_item(Item::Record { sequence, chunk, offset, end: self.offset });
    }

    fn publish_item(&mut self, item: Item) {
        self.stream.push_back(item);
        self.published.push(item);
    }

    /// Tells the sender of a chunk.
    pub(crate) fn grant(&mut self, chunk: Chunk) {
        self.granted.push_back(chunk);
    }

    /// The items that became visible since the last call.
    pub(crate) fn take_published(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.published)
    }

    /// The next item for the receiver, and the chunks that it finishes on the way.
    pub(crate) fn next(&mut self) -> (Option<Item>, Vec<usize>) {
        let mut finished = Vec::new();
        while let Some(Item::Rotation { chunk, .. }) = self.stream.front() {
            finished.push(*chunk);
            self.stream.pop_front();
            self.free += 1;
            self.consumed += 1;
        }
        (self.stream.front().copied(), finished)
    }

    /// Consumes the next record.
    pub(crate) fn consume(&mut self) {
        self.stream.pop_front();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stream.is_empty()
    }

    pub(crate) fn room(&self) -> usize {
        self.circle[0].bytes - 8 - self.offset
    }

    pub(crate) fn chunk_count(&self) -> usize {
        self.circle.len() + self.granted.len()
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        self.circle.iter().chain(&self.granted).map(|chunk| chunk.bytes).sum()
    }

    pub(crate) fn longest_record(&self) -> Option<usize> {
        let longest = self.circle.iter().chain(&self.granted).map(|chunk| chunk.bytes - 8).max();
        longest.filter(|_| self.chunk_count() > 1)
    }

    /// The number of the next record.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }
}
