//! Records that wait at the sender, in order: for their ring to open, for room in it, or to be sent
//! as frames.

use std::mem::MaybeUninit;

use farside_fabric::ring::Header;

use super::payload::Payload;

/// The capacity of the buffer that is kept while the queue is empty.
const WORDS_KEPT: usize = 32 << 10;

/// A queue of whole records in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// Records in the format of the ring, without gaps. In words, so that payloads are aligned. The
    /// padding of arguments is uninitialised; headers and lengths are not.
    words: Vec<MaybeUninit<u64>>,
    /// The index of the oldest word.
    first: usize,
}

impl Staged {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == self.words.len()
    }

    /// The number of queued bytes.
    pub(crate) fn bytes(&self) -> usize {
        (self.words.len() - self.first) * 8
    }

    /// Adds a record with this header.
    pub(crate) fn push<P: Payload>(&mut self, header: Header, record_bytes: usize, payload: P) {
        let at = self.words.len();
        self.words.extend(std::iter::repeat_n(MaybeUninit::uninit(), record_bytes / 8 - 1));
        // A payload need not fill the last word.
        self.words.push(MaybeUninit::new(0));
        self.words[at].write(header.word());
        let mut payload_at = at + 1;
        if Header::is_long_for(record_bytes) {
            self.words[payload_at].write(record_bytes as u64);
            payload_at += 1;
        }
        let room = &mut self.words[payload_at..];
        debug_assert!(payload.bytes() <= room.len() * 8);
        // SAFETY: `record_bytes` is the size of a record with this payload, so the words behind the
        // header have room for it.
        unsafe { payload.write(room.as_mut_ptr().cast()) };
    }

    /// Adds whole records.
    pub(crate) fn push_records(&mut self, records: &[MaybeUninit<u64>]) {
        self.words.extend_from_slice(records);
    }

    /// The oldest `count` words.
    pub(crate) fn words(&self, count: usize) -> &[MaybeUninit<u64>] {
        &self.words[self.first..][..count]
    }

    /// The oldest record, header included.
    pub(crate) fn front(&self) -> Option<&[MaybeUninit<u64>]> {
        let words = &self.words[self.first..];
        (!words.is_empty()).then(|| &words[..record_words(words)])
    }

    /// The oldest records: as many as fit in `bytes` bytes together.
    pub(crate) fn front_within(&self, bytes: usize) -> &[MaybeUninit<u64>] {
        let words = &self.words[self.first..];
        let mut end = 0;
        while end < words.len() {
            let next = end + record_words(&words[end..]);
            if next * 8 > bytes {
                break;
            }
            end = next;
        }
        &words[..end]
    }

    /// The oldest records within `bytes` bytes: the header of the first, and all words behind it.
    pub(crate) fn split_header(&self, bytes: usize) -> Option<(Header, &[MaybeUninit<u64>])> {
        let (header, behind) = self.front_within(bytes).split_first()?;
        Some((Header::from_word(initialised(*header)), behind))
    }

    /// Removes the oldest records, which are `words` words long.
    pub(crate) fn pop_words(&mut self, words: usize) {
        debug_assert!(self.first + words <= self.words.len());
        self.first += words;
        if self.is_empty() {
            self.words.clear();
            self.words.shrink_to(WORDS_KEPT);
            self.first = 0;
        } else if self.first > self.words.len() / 2 {
            // Moves at most one word for each word removed.
            self.words.drain(..self.first);
            self.first = 0;
        }
    }

    /// Drops all records and what they carried.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The length in words of the record at the beginning of these words.
fn record_words(words: &[MaybeUninit<u64>]) -> usize {
    let bytes =
        Header::from_word(initialised(words[0])).short_bytes().unwrap_or_else(|| initialised(words[1]) as usize);
    bytes / 8
}

/// The value of a header or a length.
fn initialised(word: MaybeUninit<u64>) -> u64 {
    // SAFETY: this module reads only headers, and the lengths behind those of long records: `push`
    // and the writer of a batch have written both, and whole records follow each other.
    unsafe { word.assume_init() }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use farside_fabric::ring::record_bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::invoke::payload::Arguments;

    proptest! {
        #[test]
        fn is_a_queue(steps: Vec<Option<Vec<u8>>>) {
            let mut staged = Staged::default();
            let mut oracle = VecDeque::new();
            for step in steps {
                if let Some(content) = step {
                    let payload = Arguments(content.clone());
                    let record = record_bytes(payload.bytes());
                    let header = Header::new(content.len() as u16, 7, record);
                    staged.push(header, record, payload);
                    oracle.push_back((header, record, content));
                } else if let Some((header, record, content)) = oracle.pop_front() {
                    let front = staged.front().unwrap();
                    prop_assert_eq!(front.len() * 8, record);
                    // These payloads have no padding.
                    let front: Vec<u64> = front.iter().map(|word| initialised(*word)).collect();
                    prop_assert_eq!(front[0], header.word());
                    prop_assert_eq!(front[1] as usize, content.len());
                    let bytes: Vec<u8> = front[2..].iter().flat_map(|word| word.to_ne_bytes()).collect();
                    prop_assert_eq!(&bytes[..content.len()], &content[..]);
                    let words = front.len();
                    staged.pop_words(words);
                }
                prop_assert_eq!(staged.is_empty(), oracle.is_empty());
                prop_assert_eq!(staged.bytes(), oracle.iter().map(|(_, record, _)| record).sum::<usize>());
                let two = oracle.iter().take(2).map(|(_, record, _)| record).sum::<usize>();
                prop_assert_eq!(staged.front_within(two).len() * 8, two);
                let less = oracle.front().map_or(0, |(_, record, _)| record - 8);
                prop_assert!(staged.front_within(less).is_empty());
            }
        }
    }
}
