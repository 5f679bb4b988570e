//! The words that the two ends of a pipe tell each other by, and what each end keeps for itself.
//!
//! There is a *flag* for each of the pipe's slots, which the writer sets, and one count of messages *taken*, which the reader does.
//! Message `n` (the first is 0) has the slot `n % width`. Its flag says `n + 1`, of which it keeps 32 bits, how the message goes,
//! and how long it is. So a flag of the lap before is told from this lap's, and nobody ever clears one.
//!
//! ```text
//! writer    n < taken + width ? (acquire)   write the slot     flag[n % width] := n + 1  (release)
//! reader    flag[n % width] = n + 1 ? (acquire)   read the slot     taken := n + 1  (release)
//! ```
//!
//! Between the acquire that found it free and the release of its flag a slot is the writer's alone; between the acquire of its flag and the
//! release of the count it is the reader's alone. `tests/all/pipe_model.rs` checks that under a model checker.
//!
//! Both ends look at the other's words only when those that they know of are used up: a writer that has room does not touch the count.

use super::words::{AtomicU64, Ordering};

/// Where the words of a pipe lie.
pub(crate) trait Words {
    /// The flag of a slot. Written by the writer (or, where the reader's memory is not mapped there, for it by the reader's process),
    /// read by the reader.
    fn flag(&self, slot: usize) -> &AtomicU64;

    /// How many messages were taken. Written by the reader, read by the writer.
    fn taken(&self) -> &AtomicU64;
}

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Behind its flag, in the same cache line.
    Inline,
    /// In the data of its slot.
    Slot,
    /// In memory of the writer, whose place is behind the flag.
    Offered,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Inline, Self::Slot, Self::Offered];
}

/// What a flag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) kind: Kind,
    pub(crate) bytes: usize,
}

/// Messages are shorter.
pub(crate) const FLAG_BYTES_MAX: usize = (1 << 30) - 1;

impl Flag {
    /// The word for message `number`: 32 bits of its number, counted from 1, 2 of its kind, 30 of its length.
    #[inline]
    pub(crate) fn word(self, number: u64) -> u64 {
        debug_assert!(self.bytes <= FLAG_BYTES_MAX, "the longest message was checked when the pipe was opened");
        stamp(number) | (self.kind as u64) << 32 | (self.bytes as u64) << 34
    }

    /// What a word says, if it is that of message `number`.
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

/// Words that no end of a pipe can have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Corrupt {
    /// A flag of a kind that there is not.
    Kind,
    /// A flag of neither this lap nor the one before.
    Stamp,
    /// More was taken than was sent, or less than before.
    Taken,
}

/// The writer's side: which message is next, and how far the reader is known to be.
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

    /// How many slots are free, as far as is known.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        self.taken + self.width - self.sent
    }

    /// Finds out how far the reader is.
    ///
    /// # Errors
    /// [`Corrupt::Taken`].
    pub(crate) fn look(&mut self, words: &impl Words) -> Result<(), Corrupt> {
        // SYNC: pairs with the release in `Reading::release`: the reader reads no more of the slots that this counts.
        let taken = words.taken().load(Ordering::Acquire);
        self.credit(taken)
    }

    /// The reader is so far.
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

    /// The slot of the next message. It is the writer's while one is [free](Self::free).
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// The number of the next message, which is how many there were.
    #[inline]
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// How many of them the reader is known to have taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Gives the message in the next slot to the reader.
    #[inline]
    pub(crate) fn publish(&mut self, words: &impl Words, flag: Flag) {
        // SYNC: pairs with the acquire in `Reading::look`: what is in the slot comes with it.
        words.flag(self.slot).store(flag.word(self.sent), Ordering::Release);
        self.pass();
    }

    /// The message in the next slot goes to the reader by another way.
    #[inline]
    pub(crate) fn pass(&mut self) {
        debug_assert!(self.free() > 0, "only a free slot is filled");
        self.sent += 1;
        self.slot = if self.slot + 1 == self.width as usize { 0 } else { self.slot + 1 };
    }
}

/// The reader's side: which message is next.
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

    /// The next message, if it is there. Its slot is the reader's until [`release`](Self::release).
    ///
    /// # Errors
    /// [`Corrupt`].
    #[inline]
    pub(crate) fn look(&self, words: &impl Words) -> Result<Option<Flag>, Corrupt> {
        // SYNC: pairs with the release in `Writing::publish`.
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

    /// How many messages were read.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Gives the slot of the next message back to the writer.
    #[inline]
    pub(crate) fn release(&mut self, words: &impl Words) {
        self.read += 1;
        self.slot = if self.slot + 1 == self.width as usize { 0 } else { self.slot + 1 };
        // SYNC: pairs with the acquire in `Writing::look`: every read of the slot came before.
        words.taken().store(self.read, Ordering::Release);
    }
}

/// Whether a flag is that of the lap before message `number`: then the message has not come.
#[inline]
fn is_before(word: u64, number: u64, width: u64) -> bool {
    match number.checked_sub(width) {
        Some(before) => word & u64::from(u32::MAX) == stamp(before),
        None => word == 0,
    }
}

/// Sets the flag of a message that has come by another way, for a reader that is in the same process. Says whether that may be: its
/// slot must be the writer's, so that nobody reads it.
///
/// The caller is the only one who sets flags of this pipe, and `fill` puts the message where it belongs.
pub(crate) fn deliver(words: &impl Words, width: usize, number: u64, flag: Flag, fill: impl FnOnce(usize)) -> bool {
    let slot = (number % width as u64) as usize;
    // SYNC: pairs with the release in `Reading::release`.
    let taken = words.taken().load(Ordering::Acquire);
    let is_free = number.checked_sub(taken).is_some_and(|ahead| ahead < width as u64);
    let is_next = is_before(words.flag(slot).load(Ordering::Relaxed), number, width as u64);
    if is_free && is_next {
        fill(slot);
        // SYNC: pairs with the acquire in `Reading::look`.
        words.flag(slot).store(flag.word(number), Ordering::Release);
    }
    is_free && is_next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the 32 bits of the number begin again.
    #[test]
    fn flags_of_other_laps_are_told_apart() {
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
