//! The receiving side of a ring.

use std::collections::VecDeque;

use super::record::Header;
use super::{RingControl, RingControlMemory, RingMemory};
use crate::sync::{Ordering, fence};

/// Reads the records of one worker from another. Owned by the receiving worker.
#[derive(Debug)]
pub struct Receiver<M, C> {
    chunk: M,
    /// Where the next header is.
    offset: usize,
    control: C,
    circle: Vec<M>,
    current: usize,
    /// How many chunks were consumed.
    consumed: u64,
    granted: VecDeque<M>,
    /// Credit was given since [`credited_sender_waits`](Self::credited_sender_waits) was last asked.
    credited: bool,
}

/// What is next in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Empty,
    /// A record. It lies inside the chunk.
    Record {
        /// Its header.
        header: Header,
        /// Where its payload begins in [`chunk`](Receiver::chunk).
        payload: usize,
        /// Where it ends.
        end: usize,
    },
}

/// A ring holds what no sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A record reaches beyond its chunk.
    #[error("a record of {bytes} bytes at offset {offset} of a chunk of {chunk_bytes} bytes")]
    Length {
        /// Where it begins.
        offset: usize,
        /// How long it says it is.
        bytes: u64,
        /// The chunk's size.
        chunk_bytes: usize,
    },
    /// A rotate record points at a chunk that was never granted.
    #[error("a rotation into a chunk that was never granted")]
    Rotation,
    /// A chunk holds nothing but rotations, all the way round.
    #[error("a circle of {chunks} chunks that are all empty")]
    Circle {
        /// How many.
        chunks: usize,
    },
}

impl<M: RingMemory, C: RingControlMemory> Receiver<M, C> {
    /// A receiver of a new ring with the same chunks in the same order as its sender's.
    ///
    /// # Panics
    /// When there is no chunk.
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

    /// What is next. A record stays next until [`consume`](Self::consume).
    ///
    /// # Errors
    /// [`Corrupt`], and then again at every call.
    #[inline]
    pub fn peek(&mut self) -> Result<Next, Corrupt> {
        // SYNC: pairs with the release stores in `Sender::publish`, `flush` and `enter`.
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

    /// Done with the record that ends here.
    #[inline]
    pub fn consume(&mut self, end: usize) {
        debug_assert!(end > self.offset && end <= self.chunk.bytes() - 8, "`peek` said where it ends");
        self.offset = end;
    }

    /// Whether the next header is still zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // A record that this finds is loaded again, with acquire, by `peek`.
        self.chunk.word(self.offset).load(Ordering::Relaxed) == 0
    }

    /// Learns of a chunk before its sender does.
    pub fn grant(&mut self, chunk: M) {
        self.granted.push_back(chunk);
    }

    /// The control block shared with the sender.
    pub fn control(&self) -> &RingControl {
        self.control.control()
    }

    /// Whether credit was given since this was last asked and the sender waits for it: then its doorbell must be rung.
    #[inline]
    pub fn credited_sender_waits(&mut self) -> bool {
        if !std::mem::take(&mut self.credited) {
            return false;
        }
        // SYNC: pairs with the fence in `Sender::begin_waiting`: either this sees the flag, or the sender sees the credit.
        fence(Ordering::SeqCst);
        self.control().sender_waits.load(Ordering::Relaxed) != 0
    }

    #[cold]
    #[inline(never)]
    fn rotate(&mut self, mut header: Header) -> Result<Next, Corrupt> {
        // A sender passes at most every chunk once without putting a record in.
        for _ in 0..=self.circle.len() + self.granted.len() {
            self.finish_chunk(header.operand() != 0)?;
            // SYNC: as in `peek`.
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
        // SYNC: pairs with the acquire load in `Sender::steps_towards_room`: every read of the finished chunk came before.
        self.control.control().consumed.store(self.consumed, Ordering::Release);
        Ok(())
    }
}

/// Why [`Receiver::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Nothing is left.
    Empty,
    /// As many records as were asked for.
    Enough,
    /// A record was refused. It is consumed.
    Refused {
        /// Its header.
        header: Header,
    },
}

#[cfg(not(loom))]
impl<C: RingControlMemory> Receiver<super::MappedChunk, C> {
    /// Hands records to `run`, with the address of their payload and of their end, until there is none or as many as `count`.
    /// `run` returns the record's end again, or null to refuse it. Each record counts as consumed before it is handed out, so that
    /// one that panics is not run again.
    ///
    /// A `run` that computes the end from the types it knows gives the processor the place of the next header before it has
    /// seen this one: that is why it returns it.
    ///
    /// # Errors
    /// [`Corrupt`].
    ///
    /// # Safety
    /// What `run` returns is the end that it was given, or null.
    #[inline]
    pub unsafe fn run(
        &mut self,
        count: usize,
        mut run: impl FnMut(Header, *const u8, *const u8) -> *const u8,
    ) -> Result<RunEnd, Corrupt> {
        let (mut base, mut last) = self.bounds();
        let mut at = base.wrapping_add(self.offset);
        for _ in 0..count {
            // SAFETY: `at` is the place of a header: in the chunk, which is mapped as long as `self` lives, on a multiple of 8.
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

    /// Where the chunk begins, and where its last record must end.
    #[inline]
    fn bounds(&self) -> (*const u8, *const u8) {
        let base = self.chunk.address(0).cast_const();
        (base, base.wrapping_add(self.chunk.bytes() - 8))
    }
}
