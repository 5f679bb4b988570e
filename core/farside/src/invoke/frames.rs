//! Records on their way to a worker whose memory is not mapped at the sender: a stream of bytes,
//! cut into messages.
//!
//! The records are the same as in a ring, and follow each other without gaps. Each message is a
//! *frame*, which may end anywhere. Positions count the bytes since the stream's beginning. The
//! receiver tells the sender how far it has run the stream. The sender sends at most one window
//! beyond that. This is the hot path: the words of a stream are copied, and nothing encodes them.

use std::collections::HashMap;
use std::sync::Mutex;

use farside_fabric::ring::{Corrupt, Header};

use super::message::{Frame, RingName};
use crate::error::CorruptRecord;
use crate::runtime::process::lock;

/// The longest record. In rings the chunk size and the cap limit it further.
const RECORD_BYTES_MAX: usize = 1 << 30;
/// The largest window.
const WINDOW_BYTES_MAX: u64 = RECORD_BYTES_MAX as u64;
/// The number of fruitless looks after which the receiver sends credit for the records already run.
const IDLE_LOOKS: u32 = 64;

/// The capacity that an idle receiver keeps.
const WORDS_KEPT: usize = 32 << 10;

/// The sender's side of a stream.
#[derive(Debug, Default)]
pub(crate) struct OutFrames {
    /// The number of bytes that may be sent ahead of what the receiver has run.
    window: u64,
    /// The window that frames state: at least the records that are being sent.
    stated: u64,
    sent: u64,
    consumed: u64,
}

impl OutFrames {
    pub(crate) fn new(window: usize) -> Self {
        let window = (window as u64).min(WINDOW_BYTES_MAX);
        Self { window, stated: window, sent: 0, consumed: 0 }
    }

    /// The number of bytes that may be sent now.
    pub(crate) fn room(&self) -> usize {
        (self.consumed + self.window).saturating_sub(self.sent) as usize
    }

    /// Returns whether a record of `record_bytes` bytes may be sent now. A record longer than the
    /// window is sent alone.
    pub(crate) fn has_room(&self, record_bytes: usize) -> bool {
        self.consumed == self.sent || record_bytes <= self.room()
    }

    /// The number of bytes sent, which is the position of the next frame.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The window that the next frame states. No more bytes than this are sent before the receiver
    /// has run them.
    pub(crate) fn stated_window(&self) -> u64 {
        self.stated
    }

    /// Begins to send `bytes` bytes of whole records, for which there is [room](Self::has_room).
    pub(crate) fn begin(&mut self, bytes: usize) {
        self.stated = self.window.max(bytes as u64);
    }

    /// Counts `bytes` sent bytes.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Notes that the receiver has run the stream up to `consumed`.
    pub(crate) fn credit(&mut self, consumed: u64) {
        if consumed <= self.sent {
            self.consumed = self.consumed.max(consumed);
        }
    }

    /// Makes this a faulty sender, which has room whatever the receiver has run.
    #[cfg(test)]
    pub(crate) fn ignore_credit(&mut self) {
        self.consumed = u64::MAX / 2;
    }
}

/// The frames that wait in the mailboxes of this process's threads, by stream. A thread that
/// computes takes none in.
#[derive(Debug, Default)]
pub(crate) struct WaitingFrames(Mutex<HashMap<RingName, u64>>);

impl WaitingFrames {
    /// Counts a frame that arrives. Returns whether to keep it: a stream whose frames fill its
    /// window already has a faulty sender. Every frame counts, so that empty ones fill it, too.
    ///
    /// The frame that exceeds the window is kept. The receiver then reports the sender.
    pub(crate) fn admit(&self, frame: &Frame) -> bool {
        let mut waiting = lock(&self.0);
        let waiting = waiting.entry(frame.place.ring).or_default();
        let has_room = *waiting < frame.place.window.clamp(1, WINDOW_BYTES_MAX);
        *waiting += if has_room { counted_bytes(frame) } else { 0 };
        has_room
    }

    /// Notes that a thread takes a frame in.
    pub(crate) fn taken(&self, frame: &Frame) {
        let mut streams = lock(&self.0);
        let Some(waiting) = streams.get_mut(&frame.place.ring) else { return };
        *waiting -= counted_bytes(frame);
        if *waiting == 0 {
            streams.remove(&frame.place.ring);
        }
    }

    /// The number of bytes that wait.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.0).values().sum()
    }
}

/// The size of a frame; records are whole words.
fn counted_bytes(frame: &Frame) -> u64 {
    frame.bytes().len().max(8) as u64
}

/// The receiver's side of a stream.
#[derive(Debug, Default)]
pub(crate) struct InFrames {
    /// The sender's window.
    window: u64,
    /// The whole words that arrived; those before `first` were handed out.
    words: Vec<u64>,
    first: usize,
    /// The bytes that arrived beyond the last whole word.
    rest: Vec<u8>,
    /// The number of bytes handed out.
    consumed: u64,
    /// The number of those bytes that the sender has credit for.
    credited: u64,
    /// Looks in a row that found nothing new, and the value of `consumed` at the last look that
    /// did.
    idle_looks: u32,
    consumed_before: u64,
    /// Why no record is handed out behind those that have arrived: a frame did not follow its
    /// predecessor, or was sent without credit.
    fault: Option<CorruptRecord>,
    /// True if further frames are ignored.
    closed: bool,
    /// The fetch that must end before the next record runs.
    held: Option<u64>,
}

impl InFrames {
    /// Notes the sender's window, which every frame states.
    pub(crate) fn set_window(&mut self, window: u64) {
        self.window = window.min(WINDOW_BYTES_MAX);
    }

    /// Takes in the next piece of the stream. The stream ends behind a piece for which the sender
    /// had no credit, and before one that does not follow its predecessor.
    pub(crate) fn take(&mut self, position: u64, bytes: &[u8]) {
        if self.closed || self.fault.is_some() {
            return;
        }
        let expected = self.consumed + self.kept_bytes();
        if position != expected {
            self.fault = Some(CorruptRecord::Gap { position, expected });
            return;
        }
        if self.first > self.words.len() / 2 {
            // Moves at most one word for each word handed out.
            self.words.drain(..self.first);
            self.first = 0;
        }
        let bytes = if self.rest.is_empty() {
            bytes
        } else {
            self.rest.extend(bytes);
            &std::mem::take(&mut self.rest)
        };
        let (whole, rest) = bytes.as_chunks();
        self.words.extend(whole.iter().map(|word| u64::from_ne_bytes(*word)));
        self.rest = rest.to_vec();
        if self.is_overrun() {
            self.fault = Some(CorruptRecord::Overrun { position, credited: self.credited });
        }
    }

    /// Returns the next record, header included, if it has arrived completely. Hands each record
    /// out once.
    ///
    /// # Errors
    /// [`CorruptRecord`] if there can be no such record; the error repeats until the stream is
    /// closed.
    pub(crate) fn next_record(&mut self) -> Result<Option<&[u64]>, CorruptRecord> {
        match (self.next_length()?, self.fault) {
            (None, Some(fault)) => Err(fault),
            (None, None) => Ok(None),
            (Some(length), _) => {
                let begin = self.first;
                self.first += length;
                self.consumed += length as u64 * 8;
                Ok(Some(&self.words[begin..self.first]))
            }
        }
    }

    /// Stops handing out records until a fetch has ended; `None` continues.
    pub(crate) fn hold(&mut self, fetch: Option<u64>) {
        self.held = fetch;
    }

    /// The fetch that the next record waits for.
    pub(crate) fn held(&self) -> Option<u64> {
        self.held
    }

    /// Drops what has arrived, and ignores further frames.
    pub(crate) fn close(&mut self) {
        *self = Self { closed: true, ..Self::default() };
    }

    /// Returns whether the sender has sent more than it had credit for.
    fn is_overrun(&self) -> bool {
        let ahead = self.consumed - self.credited + self.kept_bytes();
        // A longer record is sent alone, when all before it was credited.
        let is_alone = || {
            let next = next_record_bytes(&self.words[self.first..]).ok().flatten();
            self.consumed == self.credited && next.is_some_and(|bytes| ahead <= bytes as u64)
        };
        ahead > self.window && !is_alone()
    }

    /// The number of bytes that arrived and were not handed out.
    fn kept_bytes(&self) -> u64 {
        ((self.words.len() - self.first) * 8 + self.rest.len()) as u64
    }

    /// Returns the length of the next record in words, if it has arrived completely.
    fn next_length(&self) -> Result<Option<usize>, Corrupt> {
        let words = &self.words[self.first..];
        let length = next_record_bytes(words)?.map(|bytes| bytes / 8);
        Ok(length.filter(|length| *length <= words.len()))
    }

    /// Returns how far the stream was run, if it is time to tell the sender. That is so when a good
    /// part of the window was run, or nothing more has come for a while. Called once for each look
    /// at the stream.
    pub(crate) fn credit(&mut self) -> Option<u64> {
        let untold = self.consumed - self.credited;
        if untold == 0 {
            return None;
        }
        let found = std::mem::replace(&mut self.consumed_before, self.consumed) != self.consumed;
        self.idle_looks = if found { 0 } else { self.idle_looks + 1 };
        if untold < self.window / 4 && self.idle_looks < IDLE_LOOKS {
            return None;
        }
        self.idle_looks = 0;
        self.credited = self.consumed;
        if self.first == self.words.len() {
            self.words.clear();
            self.words.shrink_to(WORDS_KEPT);
            self.first = 0;
        }
        Some(self.consumed)
    }

    /// Returns how far the stream was run if the sender does not know, without waiting for more to
    /// come.
    pub(crate) fn credit_now(&mut self) -> Option<u64> {
        self.idle_looks = IDLE_LOOKS;
        self.consumed_before = self.consumed;
        self.credit()
    }
}

/// Returns the length in bytes of the record that begins with these words, if they tell it.
fn next_record_bytes(words: &[u64]) -> Result<Option<usize>, Corrupt> {
    let Some(header) = words.first() else { return Ok(None) };
    let (bytes, bytes_min) = match Header::from_word(*header).short_bytes() {
        Some(bytes) => (bytes as u64, 8),
        None => match words.get(1) {
            Some(bytes) => (*bytes, 16),
            None => return Ok(None),
        },
    };
    if bytes < bytes_min || !bytes.is_multiple_of(8) || bytes > RECORD_BYTES_MAX as u64 {
        return Err(Corrupt::Length { offset: 0, bytes, chunk_bytes: RECORD_BYTES_MAX });
    }
    Ok(Some(bytes as usize))
}

#[cfg(test)]
mod tests {
    use farside_fabric::ring::record_bytes;
    use proptest::prelude::*;

    use super::*;

    const WINDOW_BYTES: u64 = 256 << 10;

    fn ends() -> (OutFrames, InFrames) {
        let mut frames = InFrames::default();
        frames.set_window(WINDOW_BYTES);
        (OutFrames::new(WINDOW_BYTES as usize), frames)
    }

    /// Encodes a record as a sender does.
    fn record(entry: u16, payload: &[u8]) -> Vec<u8> {
        let bytes = record_bytes(payload.len());
        let mut record = Header::new(entry, 7, bytes).word().to_ne_bytes().to_vec();
        if Header::is_long_for(bytes) {
            record.extend((bytes as u64).to_ne_bytes());
        }
        record.extend(payload);
        record.resize(bytes, 0);
        record
    }

    proptest! {
        #[test]
        fn records_come_out_as_they_went_in(
            sizes in prop::collection::vec(prop_oneof![0..100_usize, 524_200..524_400_usize], 1..8),
            cuts in prop::collection::vec(1..5000_usize, 1..50),
        ) {
            let records: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(number, size)| record(number as u16, &vec![number as u8; *size])).collect();
            let (mut sender, mut frames) = ends();
            let mut out = Vec::new();
            let mut cuts = cuts.iter().cycle();
            // A record longer than the window is sent alone.
            let is_long = |record: &Vec<u8>| record.len() as u64 > WINDOW_BYTES;
            for together in records.chunk_by(|one, next| !is_long(one) && !is_long(next)) {
                let stream = together.concat();
                let mut rest = &stream[..];
                while !rest.is_empty() {
                    let (frame, after) = rest.split_at(cuts.next().unwrap().min(&rest.len()).to_owned());
                    rest = after;
                    frames.take(sender.sent(), frame);
                    sender.advance(frame.len());
                    while let Some(record) = frames.next_record().unwrap() {
                        out.push(record.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>());
                    }
                    if let Some(consumed) = frames.credit_now() {
                        sender.credit(consumed);
                    }
                }
            }
            prop_assert_eq!(sender.room() as u64, WINDOW_BYTES);
            prop_assert!(out == records);
            prop_assert_eq!(frames.credit_now(), None);
        }

        /// The sender sends whatever the receiver has run: what is kept stays within its credit and
        /// one frame, and all records sent within the credit come out.
        #[test]
        fn a_sender_that_ignores_its_credit_is_given_up(
            sizes in prop::collection::vec(prop_oneof![0..100_usize, 60_000..70_000_usize, 300_000..300_100_usize], 1..8),
            frame_bytes in 512..9000_usize,
            runs_until in 0..10_usize,
        ) {
            let records: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(number, size)| record(number as u16, &vec![number as u8; *size])).collect();
            let (_, mut frames) = ends();
            let (mut ran, mut sent) = (0, 0);
            for frame in records.concat().chunks(frame_bytes) {
                frames.take(sent, frame);
                sent += frame.len() as u64;
                while ran < runs_until && frames.next_record().is_ok_and(|record| record.is_some()) {
                    ran += 1;
                }
                frames.credit_now();
            }
            for _ in 0..1000 {
                frames.take(sent, &vec![0xff; frame_bytes]);
                sent += frame_bytes as u64;
                let largest = records.get(ran).map_or(0, Vec::len).max(WINDOW_BYTES as usize);
                prop_assert!(frames.kept_bytes() as usize <= largest + frame_bytes);
            }
            // Records that had arrived whole come out, and nothing behind the fault.
            let outcome = loop {
                match frames.next_record() {
                    Ok(Some(_)) => ran += 1,
                    other => break other.map(|record| record.is_some()),
                }
            };
            prop_assert!(ran <= records.len());
            prop_assert!(matches!(outcome, Err(CorruptRecord::Overrun { .. } | CorruptRecord::Ring(_))), "{outcome:?}");
        }

        #[test]
        fn an_impossible_length_is_corrupt(units in prop_oneof![Just(0_u64), Just(0xffff)], bytes: u64) {
            prop_assume!(units == 0 || bytes < 16 || bytes % 8 != 0 || bytes > RECORD_BYTES_MAX as u64);
            let (_, mut frames) = ends();
            frames.take(0, &(units << 48 | 1).to_ne_bytes());
            frames.take(8, &bytes.to_ne_bytes());
            for _ in 0..2 {
                prop_assert!(matches!(frames.next_record(), Err(CorruptRecord::Ring(Corrupt::Length { .. }))), "{frames:?}");
            }
        }
    }

    #[test]
    fn frames_after_a_gap_are_refused() {
        let [one, two] = [1, 2].map(|entry| record(entry, &[7; 24]));
        for position in [0, one.len() as u64 + 8, u64::MAX] {
            let mut frames = InFrames::default();
            frames.take(0, &one);
            frames.take(position, &two);
            frames.take(one.len() as u64, &two);
            assert!(frames.next_record().unwrap().is_some(), "what came before it is whole");
            for _ in 0..2 {
                let found = frames.next_record();
                assert!(
                    matches!(found, Err(CorruptRecord::Gap { position: at, expected: 32 }) if at == position),
                    "{found:?}"
                );
            }
            frames.close();
            frames.take(0, &one);
            assert!(matches!(frames.next_record(), Ok(None)));
            assert_eq!(frames.credit_now(), None);
        }
    }

    #[test]
    fn credit_is_published_in_large_parts_or_when_idle() {
        let (_, mut frames) = ends();
        let one = record(1, &[7; 24]);
        frames.take(0, &one);
        assert_eq!(frames.credit(), None);
        frames.next_record().unwrap().unwrap();
        let looks = (0..1000).map(|_| frames.credit()).collect::<Vec<_>>();
        assert_eq!(looks.iter().position(Option::is_some), Some(IDLE_LOOKS as usize));
        assert_eq!(looks.iter().flatten().collect::<Vec<_>>(), [&32]);

        let large = record(2, &vec![7; WINDOW_BYTES as usize / 4]);
        frames.take(32, &large);
        frames.next_record().unwrap().unwrap();
        assert_eq!(frames.credit(), Some(32 + large.len() as u64));
    }

    #[test]
    fn a_window_is_under_way_or_one_record() {
        let (mut sender, _) = ends();
        let window = WINDOW_BYTES as usize;
        assert!(sender.has_room(10 * window));
        sender.advance(window - 8);
        assert!(sender.has_room(8) && !sender.has_room(16));
        sender.credit(16);
        assert!(sender.has_room(24) && !sender.has_room(32));
        // Bytes that were never sent cannot have been run, and credit is never taken back.
        sender.credit(u64::MAX);
        sender.credit(8);
        assert!(sender.has_room(24) && !sender.has_room(32));
        sender.credit(WINDOW_BYTES - 8);
        assert!(sender.room() == window && sender.has_room(10 * window));
    }
}
