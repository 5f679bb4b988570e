//! Memory for rings under test: on the heap or mapped, and with a guard on the sender's side.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::ring::{
    Header, MappedChunk, MappedControl, Next, Receiver, RingControl, RingControlMemory, RingMemory, RunEnd,
};
use farside_sys::racy;
use farside_sys::shm::SharedMemory;

/// A chunk on the heap. An access outside it panics.
#[derive(Clone, Debug)]
pub(crate) struct HeapChunk(Arc<[AtomicU64]>);

impl HeapChunk {
    pub(crate) fn new(bytes: usize) -> Self {
        Self((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }
}

impl RingMemory for HeapChunk {
    fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word at offset {offset}");
        &self.0[offset / 8]
    }

    fn put(&self, offset: usize, words: &[MaybeUninit<u64>]) {
        for (place, word) in (offset..).step_by(8).zip(words) {
            // SAFETY: both are words of 8 bytes, and the one of the chunk is only used atomically.
            unsafe { racy::copy_out(word.as_ptr().cast(), self.word(place).as_ptr().cast(), 8) };
        }
    }
}

/// A control block on the heap.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeapControl(Arc<RingControl>);

impl RingControlMemory for HeapControl {
    fn control(&self) -> &RingControl {
        &self.0
    }
}

/// A source of a ring's chunks.
pub(crate) trait Source {
    type Chunk: RingMemory;
    type Control: RingControlMemory + Clone;

    fn control(&mut self) -> Self::Control;

    fn chunk(&mut self, bytes: usize) -> Self::Chunk;

    /// Takes up to `count` records out in one call.
    fn run(receiver: &mut Receiver<Self::Chunk, Self::Control>, count: usize) -> (Vec<Taken>, RunEnd);
}

/// A copy of a record that was taken out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u64>,
}

/// Chunks on the heap.
#[derive(Debug)]
pub(crate) struct Heap;

impl Source for Heap {
    type Chunk = HeapChunk;
    type Control = HeapControl;

    fn control(&mut self) -> HeapControl {
        HeapControl::default()
    }

    fn chunk(&mut self, bytes: usize) -> HeapChunk {
        HeapChunk::new(bytes)
    }

    fn run(receiver: &mut Receiver<HeapChunk, HeapControl>, count: usize) -> (Vec<Taken>, RunEnd) {
        let mut taken = Vec::new();
        while taken.len() < count {
            match receiver.peek().expect("the sender writes valid records") {
                Next::Empty => return (taken, RunEnd::Empty),
                Next::Record { header, payload, end } => {
                    let word = |offset| receiver.chunk().word(offset).load(Ordering::Relaxed);
                    taken.push(Taken { header, payload: (payload..end).step_by(8).map(word).collect() });
                    receiver.consume(end);
                }
            }
        }
        (taken, RunEnd::Enough)
    }
}

/// Chunks in shared memory, one after the other.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: Arc<SharedMemory>,
    used_bytes: usize,
}

impl Mapped {
    pub(crate) fn new(bytes: usize) -> Self {
        let memory = SharedMemory::create("ring-model", bytes).expect("the machine has enough memory");
        Self { memory: Arc::new(memory), used_bytes: 0 }
    }

    fn place(&mut self, bytes: usize) -> usize {
        let offset = self.used_bytes;
        self.used_bytes = (offset + bytes).next_multiple_of(64);
        offset
    }
}

impl Source for Mapped {
    type Chunk = MappedChunk;
    type Control = MappedControl;

    fn control(&mut self) -> MappedControl {
        let offset = self.place(size_of::<RingControl>());
        MappedControl::new(self.memory.clone(), offset).expect("the block lies in the mapping")
    }

    fn chunk(&mut self, bytes: usize) -> MappedChunk {
        let offset = self.place(bytes);
        MappedChunk::new(self.memory.clone(), offset, bytes).expect("the chunk lies in the mapping")
    }

    fn run(receiver: &mut Receiver<MappedChunk, MappedControl>, count: usize) -> (Vec<Taken>, RunEnd) {
        let mut taken = Vec::new();
        let run = |header: Header, payload: *const u8, end: *const u8| {
            let words = (0..(end.addr() - payload.addr()) / 8).map(|index| payload.cast::<u64>().wrapping_add(index));
            // SAFETY: the receiver checked that the record lies in its chunk, which stays mapped as
            // long as the receiver lives.
            let payload = words.map(|word| unsafe { racy::load(word) }).collect();
            taken.push(Taken { header, payload });
            end
        };
        // SAFETY: the closure returns the end that it was given, or null.
        let ended = unsafe { receiver.run(count, run) };
        (taken, ended.expect("the sender writes valid records"))
    }
}

/// The words of each chunk that belong to the receiver: published and not credited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Rc<RefCell<Vec<Vec<bool>>>>);

impl Ledger {
    /// Adds a chunk, and returns its number.
    pub(crate) fn add(&self, bytes: usize) -> usize {
        let mut chunks = self.0.borrow_mut();
        chunks.push(vec![false; bytes / 8]);
        chunks.len() - 1
    }

    /// Records that these bytes were published.
    pub(crate) fn publish(&self, chunk: usize, from: usize, end: usize) {
        self.0.borrow_mut()[chunk][from / 8..end / 8].fill(true);
    }

    /// Records that the whole chunk was credited.
    pub(crate) fn credit(&self, chunk: usize) {
        self.0.borrow_mut()[chunk].fill(false);
    }
}

/// The sender's view of a chunk. An access to words that belong to the receiver panics.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<M> {
    pub(crate) chunk: M,
    pub(crate) number: usize,
    pub(crate) ledger: Ledger,
}

impl<M: RingMemory> RingMemory for Guarded<M> {
    fn bytes(&self) -> usize {
        self.chunk.bytes()
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let taken = self.ledger.0.borrow()[self.number][offset / 8];
        assert!(!taken, "the sender touches offset {offset} of chunk {}, which belongs to the receiver", self.number);
        self.chunk.word(offset)
    }

    fn put(&self, offset: usize, words: &[MaybeUninit<u64>]) {
        (0..words.len()).for_each(|index| {
            self.word(offset + 8 * index);
        });
        self.chunk.put(offset, words);
    }
}

/// Fills a chunk, from `offset` on, with words, some of which look like headers of records and
/// rotations.
pub(crate) fn poison(chunk: &impl RingMemory, offset: usize) {
    let looks = [Header::new(1, 1, 16).word(), u64::MAX, Header::new(2, 2, 64).word(), 0xffff << 32 | 1 << 48];
    for (word, look) in (offset..chunk.bytes()).step_by(8).zip(looks.into_iter().cycle()) {
        chunk.word(word).store(look, Ordering::Relaxed);
    }
}

/// The word `index` of the payload of record `sequence`.
pub(crate) fn payload_word(sequence: u64, index: usize) -> u64 {
    (sequence << 20 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
