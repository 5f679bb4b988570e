//! The words through which the two ends of a pipe communicate, and the private state of each end.
//!
//! Each slot of the pipe has a *flag*, which the writer sets. One count of messages *taken* is set
//! by the reader. Message `n` (the first is 0) has the slot `n % width`. Its flag holds 32 bits of
//! `n + 1`, the kind of the message, and its length. So a flag of an earlier lap differs from one
//! of this lap, and flags are never cleared.
//!
//! ```text
//! writer    n < taken + width ? (acquire)   write the slot     flag[n % width] := n + 1  (release)
//! reader    flag[n % width] = n + 1 ? (acquire)   read the slot     taken := n + 1  (release)
//! ```
//!
//! From the acquire that found it free to the release of its flag, a slot belongs to the writer
//! alone. From the acquire of its flag to the release of the count, it belongs to the reader alone.
//! `tests/models/pipe.rs` checks that under a model checker.
//!
//! Each end looks at the other's words only when it has used up what it knows of: a writer that has
//! room does not load the count.

use super::words::{AtomicU64, Ordering};

/// Gives access to the words of a pipe.
pub(crate) trait Words {
    /// Returns the flag of a slot. Written by the writer (or on its behalf by the reader's process,
    /// if the writer has not mapped the memory), read by the reader.
    fn flag(&self, slot: usize) -> &AtomicU64;

    /// Returns the count of messages taken. Written by the reader, read by the writer.
    fn taken(&self) -> &AtomicU64;
}

/// The place of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Behind its flag, in the same cache line.
    Inline,
    /// In the data of its slot.
    Slot,
    /// In memory of the writer; the bytes behind the flag name it.
    Offered,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Inline, Self::Slot, Self::Offered];
}

/// The content of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) kind: Kind,
    pub(crate) bytes: usize,
}

/// The length of the longest message.
pub(crate) const FLAG_BYTES_MAX: usize = (1 << 30) - 1;

impl Flag {
    /// Returns the word for message `number`: 32 bits of the number, counted from 1, 2 bits of
    /// kind, 30 bits of length.
    #[inline]
    pub(crate) fn word(self, number: u64) -> u64 {
        debug_assert!(self.bytes <= FLAG_BYTES_MAX, "the longest message was checked when the pipe was opened");
        stamp(number) | (self.kind as u64) << 32 | (self.bytes as u64) << 34
    }

    /// Returns the content of a word, if it is the flag of message `number`.
    #[inline]
    fn read(word: u64, number: u64) -> Option<Result<Self, Corrupt>> {
        if word & u64::from(u32::MAX) != stamp(number) {
            return None;
        }
        let bytes = (word >> 34) as usize;
        let kind = Kind::ALL.get((word >> 32 & 3) as usize).copied();
        Some(kind.map(|kind| Self { kind, bytes }).ok_or(Corrupt::Kind))
    }
}

#[inline]
fn stamp(number: u64) -> u64 {
    number.wrapping_add(1) & u64::from(u32::MAX)
}

/// A fault of a word that no end of a pipe can have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Corrupt {
    /// A flag of an unknown kind.
    Kind,
    /// A flag of neither this lap nor the previous one.
    Stamp,
    /// More messages were taken than sent, or fewer than before.
    Taken,
}

/// The writer's state: the next message, and the number known to be taken.
#[derive(Debug)]
pub(crate) struct Writing {
    width: u64,
    sent: u64,
    slot: usize,
    taken: u64,
}

impl Writing {
    pub(crate) fn new(width: usize) -> Self {
        Self { width: width as u64, sent: 0, slot: 0, taken: 0 }
    }

    /// Returns the number of slots known to be free.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        self.taken + self.width - self.sent
    }

    /// Loads the number of messages taken.
    ///
    /// # Errors
    /// [`Corrupt::Taken`].
    pub(crate) fn look(&mut self, words: &impl Words) -> Result<(), Corrupt> {
        // SYNC: pairs with the release in `Reading::release`: the reader's accesses to the counted
        // slots come before.
        let taken = words.taken().load(Ordering::Acquire);
        self.credit(taken)
    }

    /// Sets the number of messages taken.
    ///
    /// # Errors
    /// [`Corrupt::Taken`].
    pub(crate) fn credit(&mut self, taken: u64) -> Result<(), Corrupt> {
        if !(self.taken..=self.sent).contains(&taken) {
            return Err(Corrupt::Taken);
        }
        self.taken = taken;
        Ok(())
    }

    /// Returns the slot of the next message. It belongs to the writer while a slot is
    /// [free](Self::free).
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the number of the next message, which is the number of messages sent.
    #[inline]
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of messages that the reader is known to have taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Publishes the message in the next slot to the reader.
    #[inline]
    pub(crate) fn publish(&mut self, words: &impl Words, flag: Flag) {
        // SYNC: pairs with the acquire in `Reading::look`: the reader sees the content of the slot.
        words.flag(self.slot).store(flag.word(self.sent), Ordering::Release);
        self.pass();
    }

    /// Counts a message that reaches the reader by other means.
    #[inline]
    pub(crate) fn pass(&mut self) {
        debug_assert!(self.free() > 0, "only a free slot is filled");
        self.sent += 1;
        self.slot = if self.slot + 1 == self.width as usize { 0 } else { self.slot + 1 };
    }
}

/// The reader's state: the next message.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    width: u64,
    read: u64,
    slot: usize,
}

impl Reading {
    pub(crate) fn new(width: usize) -> Self {
        Self { width: width as u64, read: 0, slot: 0 }
    }

    /// Returns the flag of the next message, if it has arrived. Its slot belongs to the reader
    /// until [`release`](Self::release).
    ///
    /// # Errors
    /// [`Corrupt`].
    #[inline]
    pub(crate) fn look(&self, words: &impl Words) -> Result<Option<Flag>, Corrupt> {
        // SYNC: pairs with the release in `Writing::publish`: the content of the slot is visible.
        let word = words.flag(self.slot).load(Ordering::Acquire);
        match Flag::read(word, self.read) {
            Some(flag) => flag.map(Some),
            None if is_before(word, self.read, self.width) => Ok(None),
            None => Err(Corrupt::Stamp),
        }
    }

    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the number of messages read.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Gives the slot of the next message back to the writer.
    #[inline]
    pub(crate) fn release(&mut self, words: &impl Words) {
        self.read += 1;
        self.slot = if self.slot + 1 == self.width as usize { 0 } else { self.slot + 1 };
        // SYNC: pairs with the acquire in `Writing::look`: all reads of the slot come before.
        words.taken().store(self.read, Ordering::Release);
    }
}

/// Returns whether a flag is that of the lap before message `number`, so that the message has not
/// arrived.
#[inline]
fn is_before(word: u64, number: u64, width: u64) -> bool {
    match number.checked_sub(width) {
        Some(before) => word & u64::from(u32::MAX) == stamp(before),
        None => word == 0,
    }
}

/// Sets the flag of a message that arrived by other means, for a reader in this process. Returns
/// false, and does nothing, unless the slot belongs to the writer, so that nothing reads it.
///
/// The caller must be the only thread that sets flags of this pipe. `fill` stores the message into
/// its slot.
pub(crate) fn deliver(words: &impl Words, width: usize, number: u64, flag: Flag, fill: impl FnOnce(usize)) -> bool {
    let slot = (number % width as u64) as usize;
    // SYNC: pairs with the release in `Reading::release`: the reader's accesses to the slot come
    // before `fill`.
    let taken = words.taken().load(Ordering::Acquire);
    let is_free = number.checked_sub(taken).is_some_and(|ahead| ahead < width as u64);
    let is_next = is_before(words.flag(slot).load(Ordering::Relaxed), number, width as u64);
    if is_free && is_next {
        fill(slot);
        // SYNC: pairs with the acquire in `Reading::look`: the reader sees what `fill` stored.
        words.flag(slot).store(flag.word(number), Ordering::Release);
    }
    is_free && is_next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Including where the 32 bits of the number wrap around.
    #[test]
    fn flags_of_different_laps_differ() {
        let wrap = 1_u64 << 32;
        let flag = Flag { kind: Kind::Offered, bytes: FLAG_BYTES_MAX };
        for width in [1, 3, 1 << 16] {
            for number in [0, 1, width, wrap - 2, wrap - 1, wrap, wrap + 1, wrap - 1 - width, 5 * wrap - 1] {
                let word = flag.word(number);
                assert_eq!(Flag::read(word, number), Some(Ok(flag)));
                assert_eq!(Flag::read(word, number + width), None);
                assert!(is_before(word, number + width, width) && !is_before(word, number + 2 * width, width));
            }
        }
    }
}
