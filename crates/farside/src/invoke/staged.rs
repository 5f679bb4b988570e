//! Records that wait at the sender, in order: until their ring stands, or until there is room in it.

use farside_fabric::ring::Header;

use super::payload::Payload;

/// A queue of whole records in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// Records as they go into the ring, each behind its length. In words, so that payloads are aligned.
    words: Vec<u64>,
    /// Where the oldest record's length is.
    first: usize,
    records: usize,
}

impl Staged {
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The bytes queued.
    pub(crate) fn bytes(&self) -> usize {
        (self.words.len() - self.first) * 8
    }

    /// Adds a record, whose header is written already in its final form.
    pub(crate) fn push<P: Payload>(&mut self, header: Header, record_bytes: usize, payload: P) {
        let at = self.words.len();
        self.words.resize(at + 1 + record_bytes / 8, 0);
        self.words[at] = record_bytes as u64;
        self.words[at + 1] = header.word();
        let mut payload_at = at + 2;
        if Header::is_long_for(record_bytes) {
            self.words[payload_at] = record_bytes as u64;
            payload_at += 1;
        }
        let room = &mut self.words[payload_at..];
        debug_assert!(payload.bytes() <= room.len() * 8);
        // SAFETY: `record_bytes` was made for this payload, so that the words behind the header have room for it.
        unsafe { payload.write(room.as_mut_ptr().cast()) };
        self.records += 1;
    }

    /// The oldest record, header included.
    pub(crate) fn front(&self) -> Option<&[u64]> {
        if self.records == 0 {
            return None;
        }
        let words = self.words[self.first] as usize / 8;
        Some(&self.words[self.first + 1..self.first + 1 + words])
    }

    /// Takes the oldest record away.
    pub(crate) fn pop(&mut self) {
        debug_assert!(self.records > 0);
        self.first += 1 + self.words[self.first] as usize / 8;
        self.records -= 1;
        if self.records == 0 {
            self.words.clear();
            self.first = 0;
        } else if self.first > self.words.len() / 2 {
            // At most one move of a word for each word taken.
            self.words.drain(..self.first);
            self.first = 0;
        }
    }

    /// Drops all. What the records carried is lost.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
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
                    prop_assert_eq!(front[0], header.word());
                    prop_assert_eq!(front[1] as usize, content.len());
                    let bytes: Vec<u8> = front[2..].iter().flat_map(|word| word.to_ne_bytes()).collect();
                    prop_assert_eq!(&bytes[..content.len()], &content[..]);
                    staged.pop();
                }
                prop_assert_eq!(staged.is_empty(), oracle.is_empty());
                prop_assert_eq!(staged.bytes(), oracle.iter().map(|(_, record, _)| record + 8).sum::<usize>());
            }
        }
    }
}
