//! The receiving side of a ring.

use std::collections::VecDeque;

use super::record::Header;
use super::{RingControl, RingControlMemory, RingMemory};
use crate::sync::{Ordering, fence};

/// Reads the records that one worker receives from another. Owned by the receiving worker.
#[derive(Debug)]
pub struct Receiver<M, C> {
    chunk: M,
    /// Offset of the next header.
    offset: usize,
    control: C,
    circle: Vec<M>,
    current: usize,
    /// Number of chunks consumed.
    consumed: u64,
    granted: VecDeque<M>,
    /// True if credit was given since the last call of
    /// [`credited_sender_waits`](Self::credited_sender_waits).
    credited: bool,
}

/// The next entry of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No record has been published yet.
    Empty,
    /// A record, which lies inside the chunk.
    Record {
        /// Its header.
        header: Header,
        /// Offset of its payload in [`chunk`](Receiver::chunk).
        payload: usize,
        /// Offset of its end.
        end: usize,
    },
}

/// A ring's contents could not have been written by a correct sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A record reaches beyond its chunk.
    #[error("a record of {bytes} bytes at offset {offset} does not fit into its chunk of {chunk_bytes} bytes")]
    Length {
        /// Offset of the record.
        offset: usize,
        /// Length in its header.
        bytes: u64,
        /// The chunk's size.
        chunk_bytes: usize,
    },
    /// A rotate record leads to a chunk that was never granted.
    #[error("a rotate record leads to a chunk that was never granted")]
    Rotation,
    /// Every chunk of the circle holds only a rotate record.
    #[error("each of the {chunks} chunks of a circle holds only a rotate record")]
    Circle {
        /// Number of chunks.
        chunks: usize,
    },
}

impl<M: RingMemory, C: RingControlMemory> Receiver<M, C> {
    /// Creates the receiver of a new ring, with the same chunks in the same order as its sender's.
    ///
    /// # Panics
    /// If `chunks` is empty.
    pub fn new(control: C, chunks: Vec<M>) -> Self {
        let chunk = chunks.first().expect("a ring has a chunk").clone();
        Self {
            chunk,
            offset: 0,
            control,
            circle: chunks,
            current: 0,
            consumed: 0,
            granted: VecDeque::new(),
            credited: false,
        }
    }

    /// Returns the next entry. A record stays next until [`consume`](Self::consume).
    ///
    /// # Errors
    /// [`Corrupt`], and again at every further call.
    #[inline]
    pub fn peek(&mut self) -> Result<Next, Corrupt> {
        // SYNC: pairs with the release stores in `Sender::publish` and `enter`.
        let word = self.chunk.word(self.offset).load(Ordering::Acquire);
        if word == 0 {
            return Ok(Next::Empty);
        }
        let header = Header::from_word(word);
        if header.is_rotate() {
            return self.rotate(header);
        }
        self.check(header)
    }

    #[inline]
    fn check(&self, header: Header) -> Result<Next, Corrupt> {
        let payload = self.offset + 8;
        match header.short_bytes() {
            // The last word of a chunk is never part of a record.
            Some(bytes) if bytes >= 8 && self.offset + bytes <= self.chunk.bytes() - 8 => {
                Ok(Next::Record { header, payload, end: self.offset + bytes })
            }
            short => self.check_long(header, short),
        }
    }

    #[cold]
    fn check_long(&self, header: Header, short_bytes: Option<usize>) -> Result<Next, Corrupt> {
        let chunk_bytes = self.chunk.bytes();
        let corrupt = |bytes| Err(Corrupt::Length { offset: self.offset, bytes, chunk_bytes });
        if let Some(bytes) = short_bytes {
            return corrupt(bytes as u64);
        }
        let length_at = self.offset + 8;
        if length_at + 8 > chunk_bytes - 8 {
            return corrupt(0);
        }
        let bytes = self.chunk.word(length_at).load(Ordering::Relaxed);
        let fits = usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes >= 16 && bytes.is_multiple_of(8) && *bytes <= chunk_bytes - 8 - self.offset);
        match fits {
            Some(fits) => Ok(Next::Record { header, payload: length_at + 8, end: self.offset + fits }),
            None => corrupt(bytes),
        }
    }

    /// The chunk in which [`peek`](Self::peek) found a record.
    #[inline]
    pub fn chunk(&self) -> &M {
        &self.chunk
    }

    /// Consumes the record that ends at `end`.
    #[inline]
    pub fn consume(&mut self, end: usize) {
        debug_assert!(end > self.offset && end <= self.chunk.bytes() - 8, "`peek` returned the end");
        self.offset = end;
    }

    /// Returns whether the next header is still zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // A record seen here is loaded again, with acquire, by `peek`.
        self.chunk.word(self.offset).load(Ordering::Relaxed) == 0
    }

    /// Adds a chunk, before its sender learns of it.
    pub fn grant(&mut self, chunk: M) {
        self.granted.push_back(chunk);
    }

    /// The control block shared with the sender.
    pub fn control(&self) -> &RingControl {
        self.control.control()
    }

    /// Returns whether credit was given since the last call and the sender waits for it. If so, the
    /// caller must ring the sender's doorbell.
    #[inline]
    pub fn credited_sender_waits(&mut self) -> bool {
        if !std::mem::take(&mut self.credited) {
            return false;
        }
        // SYNC: pairs with the fence in `Sender::begin_waiting`: either this load sees the flag, or
        // the sender sees the credit.
        fence(Ordering::SeqCst);
        self.control().sender_waits.load(Ordering::Relaxed) != 0
    }

    #[cold]
    #[inline(never)]
    fn rotate(&mut self, mut header: Header) -> Result<Next, Corrupt> {
        // A sender passes each chunk at most once without writing a record. After a round without a
        // splice each later look would find the same.
        let mut steps = 0;
        while steps <= self.circle.len() {
            let is_spliced = header.operand() != 0;
            steps = if is_spliced { 0 } else { steps + 1 };
            self.finish_chunk(is_spliced)?;
            // SYNC: pairs with the release stores in `Sender::publish` and `enter`.
            let word = self.chunk.word(0).load(Ordering::Acquire);
            header = Header::from_word(word);
            if word == 0 {
                return Ok(Next::Empty);
            }
            if !header.is_rotate() {
                return self.check(header);
            }
        }
        Err(Corrupt::Circle { chunks: self.circle.len() })
    }

    fn finish_chunk(&mut self, splice: bool) -> Result<(), Corrupt> {
        let next = self.current + 1;
        if splice {
            let chunk = self.granted.pop_front().ok_or(Corrupt::Rotation)?;
            self.circle.insert(next, chunk);
        }
        self.current = if next < self.circle.len() { next } else { 0 };
        self.chunk = self.circle[self.current].clone();
        self.offset = 0;
        self.consumed += 1;
        self.credited = true;
        // SYNC: pairs with the acquire load in `Sender::steps_towards_room`: every read of the
        // finished chunk happened before this store.
        self.control.control().consumed.store(self.consumed, Ordering::Release);
        Ok(())
    }
}

/// Why [`Receiver::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The ring has no further record.
    Empty,
    /// The requested number of records was processed.
    Enough,
    /// The callback refused a record. The record is consumed.
    Refused {
        /// Its header.
        header: Header,
    },
}

#[cfg(not(loom))]
impl<C: RingControlMemory> Receiver<super::MappedChunk, C> {
    /// Passes records to `run`, with the addresses of their payload and of their end, until the
    /// ring is empty or `count` records were passed. `run` returns the record's end, or null to
    /// refuse the record. Each record is consumed before it is passed, so that a record whose `run`
    /// panics is not run again.
    ///
    /// A `run` that computes the end from types known at compile time lets the processor find the
    /// next header before it has loaded this one. That is why it returns the end.
    ///
    /// # Errors
    /// [`Corrupt`].
    ///
    /// # Safety
    /// `run` returns the end that it was given, or null.
    #[inline]
    pub unsafe fn run(
        &mut self,
        count: usize,
        mut run: impl FnMut(Header, *const u8, *const u8) -> *const u8,
    ) -> Result<RunEnd, Corrupt> {
        let (mut base, mut last) = self.bounds();
        let mut at = base.wrapping_add(self.offset);
        for _ in 0..count {
            // SAFETY: `at` is the address of a header: on a multiple of 8 in the chunk, which is
            // mapped as long as `self` lives.
            let word = unsafe { farside_sys::racy::atomic_u64(at.cast_mut()) }.load(Ordering::Acquire);
            if word == 0 {
                return Ok(RunEnd::Empty);
            }
            let mut header = Header::from_word(word);
            let (mut payload, mut end) = (at.wrapping_add(8), at.wrapping_add(header.unit_bytes()));
            if header.is_special() || end > last {
                match self.peek()? {
                    Next::Empty => return Ok(RunEnd::Empty),
                    Next::Record { header: after, payload: from, end: to } => {
                        (base, last) = self.bounds();
                        (header, payload, end) = (after, base.wrapping_add(from), base.wrapping_add(to));
                    }
                }
            }
            self.offset = end.addr() - base.addr();
            at = run(header, payload, end);
            if at.is_null() {
                return Ok(RunEnd::Refused { header });
            }
            debug_assert_eq!(at, end, "a record ends where its header says");
        }
        Ok(RunEnd::Enough)
    }

    /// The address of the chunk, and the address at which its last record must end.
    #[inline]
    fn bounds(&self) -> (*const u8, *const u8) {
        let base = self.chunk.address(0).cast_const();
        (base, base.wrapping_add(self.chunk.bytes() - 8))
    }
}
