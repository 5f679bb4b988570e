//! Records that wait to be published together.

use std::mem::MaybeUninit;

use farside_fabric::ring::Header;

use crate::invoke::payload::Payload;

/// The most bytes of a batch. The records of a batch stay in the first cache until they are copied.
pub(super) const BATCH_BYTES_MAX: usize = 16 << 10;

/// Whole records in memory of this process, laid out as in a ring. One copy into a ring is faster
/// than stores of single records: see [`farside_fabric::ring`].
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Long enough for the longest batch so far. The padding of arguments is uninitialised.
    words: Box<[MaybeUninit<u64>]>,
    /// The bytes of the records so far.
    bytes: usize,
    /// The bytes for which there is room, here and at the receiver.
    room: usize,
    /// Records [join](Self::join) while the batch stays shorter than this. At most `room + 1`,
    /// and 0 while the batch is empty.
    join_bytes: usize,
}

impl Batch {
    /// Begins a batch with a record of `record_bytes` bytes, at most [`BATCH_BYTES_MAX`]. It is
    /// published at `batch_bytes`, and the receiver has room for `room` bytes.
    pub(super) fn begin(&mut self, room: usize, batch_bytes: usize, record_bytes: usize) {
        debug_assert!(self.is_empty());
        // Twice the size, so that the record which completes the batch has room.
        let bytes = batch_bytes.saturating_mul(2).clamp(record_bytes, BATCH_BYTES_MAX).next_multiple_of(8);
        if size_of_val(&*self.words) < bytes {
            self.words = vec![MaybeUninit::new(0); bytes / 8].into();
        }
        self.room = room.min(size_of_val(&*self.words));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The size of the records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records.
    pub(super) fn records(&self) -> &[MaybeUninit<u64>] {
        &self.words[..self.bytes / 8]
    }

    /// The header of the first record, and all words behind it.
    ///
    /// # Panics
    /// If the batch is empty.
    pub(super) fn split_header(&self) -> (Header, &[MaybeUninit<u64>]) {
        let (header, behind) = self.records().split_first().expect("there is a record to publish");
        // SAFETY: the first record begins with the header that `write` has written.
        (Header::from_word(unsafe { header.assume_init() }), behind)
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) {
        (self.bytes, self.room, self.join_bytes) = (0, 0, 0);
    }

    /// Returns whether a record of `record_bytes` bytes has room in the batch.
    pub(super) fn has_room(&self, record_bytes: usize) -> bool {
        self.bytes.checked_add(record_bytes).is_some_and(|end| end <= self.room)
    }

    /// Lets records join while the batch stays shorter than `batch_bytes`.
    pub(super) fn let_join(&mut self, batch_bytes: usize) {
        self.join_bytes = batch_bytes.min(self.room + 1);
    }

    /// Adds a record while the batch stays as short as [`let_join`](Self::let_join) said. Hands the
    /// payload back otherwise. This is the fast path of batched calls.
    ///
    /// # Safety
    /// `record_bytes` is the size of a record with this payload.
    #[inline(always)]
    pub(super) unsafe fn join<P: Payload>(&mut self, header: Header, record_bytes: usize, payload: P) -> Result<(), P> {
        if self.bytes.checked_add(record_bytes).is_none_or(|end| end >= self.join_bytes) {
            return Err(payload);
        }
        // SAFETY: the contract of this function, and the record ends below `join_bytes`, so at most
        // at `room`.
        unsafe { self.write(header, record_bytes, payload) };
        Ok(())
    }

    /// Adds a record.
    ///
    /// # Panics
    /// If there is no room for it.
    ///
    /// # Safety
    /// `record_bytes` is the size of a record with this payload.
    pub(super) unsafe fn push<P: Payload>(&mut self, header: Header, record_bytes: usize, payload: P) {
        assert!(self.has_room(record_bytes), "a record has room in its batch");
        // SAFETY: the contract of this function, and the check above.
        unsafe { self.write(header, record_bytes, payload) };
    }

    /// # Safety
    /// `record_bytes` is the size of a record with this payload, and the batch has room for it.
    #[inline(always)]
    unsafe fn write<P: Payload>(&mut self, header: Header, record_bytes: usize, payload: P) {
        let record = self.words.as_mut_ptr().wrapping_add(self.bytes / 8);
        // SAFETY: `room` is at most the size of `words`, and 0 while there are none. So the record
        // lies in `words`, from a whole word on: all records are whole words.
        unsafe { record.cast::<u64>().write(header.word()) };
        // SAFETY: by the contract the payload fits behind the header: a record that is so short has
        // no word for its length. Words are aligned to 8.
        unsafe { payload.write(record.wrapping_add(1).cast()) };
        self.bytes += record_bytes;
    }
}
