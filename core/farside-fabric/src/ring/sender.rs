//! The sending side of a ring.

use std::collections::VecDeque;
use std::mem::MaybeUninit;

use super::record::Header;
use super::{CHUNK_BYTES_MIN, RingControl, RingControlMemory, RingMemory};
use crate::sync::{Ordering, fence};

/// Writes the records that one worker sends to another. Owned by the sending worker.
#[derive(Debug)]
pub struct Sender<M, C> {
    /// The chunk being filled.
    chunk: M,
    /// Offset of the next header. The word there is zero.
    offset: usize,
    /// The largest end of a record; behind it is room for one more header.
    limit: usize,
    control: C,
    circle: Vec<Filled<M>>,
    current: usize,
    /// Number of chunks begun, including the current one.
    fillings: u64,
    /// Total bytes of records in the chunks already left.
    left_bytes: u64,
    granted: VecDeque<M>,
}

#[derive(Debug)]
struct Filled<M> {
    chunk: M,
    /// The filling during which the chunk was last used; 0 if it never was.
    filling: u64,
}

/// The ring has no room for a record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Set if no chunk of the circle is long enough, however much is consumed: a chunk of this size
    /// must be granted.
    pub needs_chunk_bytes: Option<usize>,
}

impl<M: RingMemory, C: RingControlMemory> Sender<M, C> {
    /// Creates the sender of a new ring. The first word of every chunk is zero.
    ///
    /// # Panics
    /// If `chunks` is empty.
    pub fn new(control: C, chunks: Vec<M>) -> Self {
        let first = chunks.first().expect("a ring has a chunk").clone();
        let mut circle: Vec<_> = chunks.into_iter().map(|chunk| Filled { chunk, filling: 0 }).collect();
        circle[0].filling = 1;
        let limit = first.bytes() - 8;
        Self {
            chunk: first,
            offset: 0,
            limit,
            control,
            circle,
            current: 0,
            fillings: 1,
            left_bytes: 0,
            granted: VecDeque::new(),
        }
    }

    /// Returns the offset in the current [`chunk`](Self::chunk) at which a record of `record_bytes`
    /// bytes, header included, would begin. `None` if the record does not fit there.
    #[inline]
    pub fn try_reserve(&self, record_bytes: usize) -> Option<usize> {
        (self.offset + record_bytes <= self.limit).then_some(self.offset)
    }

    /// Returns the number of bytes that are free in the current chunk.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit - self.offset
    }

    /// Reserves room like [`try_reserve`](Self::try_reserve), and moves on to another chunk if
    /// necessary.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn reserve(&mut self, record_bytes: usize) -> Result<usize, NoRoom> {
        if self.offset + record_bytes > self.limit {
            self.rotate(record_bytes)?;
        }
        Ok(self.offset)
    }

    /// The chunk in which [`reserve`](Self::reserve) found room.
    #[inline]
    pub fn chunk(&self) -> &M {
        &self.chunk
    }

    /// Publishes the reserved and filled record.
    ///
    /// # Panics
    /// Unless `record_bytes` bytes are free, and `record_bytes` is a multiple of 8.
    #[inline(always)]
    pub fn publish(&mut self, header: Header, record_bytes: usize) {
        assert!(record_bytes.is_multiple_of(8), "records are whole words");
        let end = self.offset.checked_add(record_bytes).filter(|end| *end <= self.limit);
        let end = end.expect("a record lies where it was reserved");
        // SAFETY: every end of a record is a multiple of 8. This one is at most `limit`, which is 8
        // below the size of the chunk.
        let behind = unsafe { self.chunk.word_unchecked(end) };
        behind.store(0, Ordering::Relaxed);
        // SAFETY: `offset` is a multiple of 8 too, and at most `end`.
        let word = unsafe { self.chunk.word_unchecked(self.offset) };
        // SYNC: pairs with the acquire load in `Receiver::peek`: the payload and the zero behind it
        // become visible with the header.
        word.store(header.word(), Ordering::Release);
        self.offset = end;
    }

    /// Copies whole records into the current chunk and publishes them together. `behind` are the
    /// words behind the header of the first record.
    ///
    /// # Panics
    /// If the records are longer than the [`room`](Self::room).
    pub fn publish_records(&mut self, first: Header, behind: &[MaybeUninit<u64>]) {
        let bytes = 8 + size_of_val(behind);
        assert!(bytes <= self.room(), "the records lie where they were reserved");
        self.chunk.put(self.offset + 8, behind);
        self.publish(first, bytes);
    }

    /// Adds a chunk that the receiver already knows. It is spliced in when the current chunk is
    /// full.
    pub fn grant(&mut self, chunk: M) {
        self.granted.push_back(chunk);
    }

    /// Number of chunks, including granted ones.
    pub fn chunk_count(&self) -> usize {
        self.circle.len() + self.granted.len()
    }

    /// Total size of all chunks.
    pub fn chunk_bytes(&self) -> usize {
        let granted = self.granted.iter().map(RingMemory::bytes).sum::<usize>();
        self.circle.iter().map(|filled| filled.chunk.bytes()).sum::<usize>() + granted
    }

    /// Total size of all records so far.
    pub fn written_bytes(&self) -> u64 {
        self.left_bytes + self.offset as u64
    }

    /// The control block shared with the receiver.
    pub fn control(&self) -> &RingControl {
        self.control.control()
    }

    /// Returns whether it is worthwhile to [`reserve`](Self::reserve) `record_bytes` bytes now.
    /// Either there is room, or the sender moves on to another chunk and has less to do the next
    /// time.
    pub fn has_room(&self, record_bytes: usize) -> bool {
        self.offset + record_bytes <= self.limit
            || !self.granted.is_empty()
            || self.steps_towards_room(record_bytes) > 0
    }

    /// Returns whether a record of `record_bytes` bytes will find room once enough is consumed.
    pub fn has_chunk_for(&self, record_bytes: usize) -> bool {
        // The only chunk of a ring is never left, and a chunk that is not left is never credited.
        self.chunk_count() > 1
            && (self.circle.iter().any(|filled| fits(record_bytes, &filled.chunk))
                || self.granted.iter().any(|chunk| fits(record_bytes, chunk)))
    }

    /// Announces that this sender waits for credit; the receiver rings after the next one. The
    /// caller must check for room once more after this call.
    pub fn begin_waiting(&self) {
        self.control().sender_waits.store(1, Ordering::Relaxed);
        // SYNC: pairs with the fence in `Receiver::credited_sender_waits`.
        fence(Ordering::SeqCst);
    }

    /// Ends the wait that [`begin_waiting`](Self::begin_waiting) announced.
    pub fn end_waiting(&self) {
        self.control().sender_waits.store(0, Ordering::Relaxed);
    }

    /// Moves on to a chunk in which a record of `record_bytes` bytes fits.
    #[cold]
    #[inline(never)]
    fn rotate(&mut self, record_bytes: usize) -> Result<(), NoRoom> {
        // The receiver splices granted chunks in the order in which they were granted, so the
        // sender may not skip a short one.
        while let Some(chunk) = self.granted.pop_front() {
            self.circle.insert(self.current + 1, Filled { chunk, filling: 0 });
            self.enter(self.current + 1, true);
            if self.offset + record_bytes <= self.limit {
                return Ok(());
            }
        }
        // Chunks on the way that are too short are entered and left again, so that both circles
        // stay alike.
        for _ in 0..self.steps_towards_room(record_bytes) {
            self.enter((self.current + 1) % self.circle.len(), false);
        }
        if self.offset + record_bytes <= self.limit {
            return Ok(());
        }
        let needs = (record_bytes + 8).max(CHUNK_BYTES_MIN);
        Err(NoRoom { needs_chunk_bytes: (!self.has_chunk_for(record_bytes)).then_some(needs) })
    }

    fn enter(&mut self, index: usize, splice: bool) {
        let chunk = self.circle[index].chunk.clone();
        chunk.word(0).store(0, Ordering::Relaxed);
        // SYNC: pairs with the acquire load in `Receiver::rotate`: the zero at the beginning of the
        // new chunk becomes visible with the rotation.
        self.chunk.word(self.offset).store(Header::rotate(splice).word(), Ordering::Release);
        self.fillings += 1;
        self.left_bytes += self.offset as u64;
        self.circle[index].filling = self.fillings;
        self.current = index;
        self.limit = chunk.bytes() - 8;
        self.chunk = chunk;
        self.offset = 0;
    }

    /// Number of chunks to move on for a record that does not fit into the rest of the current one:
    /// to the next chunk that is long enough, if credit suffices. If only the current chunk is long
    /// enough, the sender must leave it before it can be credited; then the number is one.
    fn steps_towards_room(&self, record_bytes: usize) -> usize {
        // SYNC: pairs with the release store in `Receiver::finish_chunk`: the receiver no longer
        // reads the chunks that it credits.
        let consumed = self.control.control().consumed.load(Ordering::Acquire);
        let ahead = |steps| &self.circle[(self.current + steps) % self.circle.len()];
        let steps = match (1..self.circle.len()).find(|steps| fits(record_bytes, &ahead(*steps).chunk)) {
            Some(steps) => steps,
            None if self.circle.len() > 1 && fits(record_bytes, &self.chunk) => 1,
            None => 0,
        };
        if (1..=steps).all(|step| ahead(step).filling <= consumed) { steps } else { 0 }
    }
}

/// Returns whether a chunk can hold the record and the header behind it.
fn fits<M: RingMemory>(record_bytes: usize, chunk: &M) -> bool {
    record_bytes + 8 <= chunk.bytes()
}
