//! The set of offsets at which functions start.

use std::fmt;
use std::ops::Range;

/// The function starts, if the linker wrote a table of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum FunctionStarts {
    Known(Starts),
    Unknown,
}

impl FunctionStarts {
    /// Collects those `addresses` that lie in code. `text` spans the `executable` ranges and is
    /// shorter than 4 GiB.
    ///
    /// A linker may leave entries for functions that it discarded; those lie elsewhere.
    pub(super) fn collect(
        addresses: impl Iterator<Item = usize>,
        text: &Range<usize>,
        executable: &[Range<usize>],
    ) -> FunctionStarts {
        let mut starts = NewStarts::new(text.len());
        for address in addresses {
            if executable.iter().any(|range| range.contains(&address)) {
                starts.insert(address - text.start);
            }
        }
        FunctionStarts::Known(starts.for_good())
    }
}

/// A bitmap with one bit for each byte of text: an eighth of its size, in pages that are zero until
/// first written.
///
/// A sorted list would be smaller, but a search in it would be about twenty times slower. A bit for
/// every 16 bytes would suffice on most targets, but nothing guarantees that functions are aligned.
///
/// All copies share the bitmap, which stays until the program ends.
#[derive(Clone, Copy)]
pub(super) struct Starts {
    words: &'static [u64],
    len: usize,
}

/// A bitmap that is being written.
struct NewStarts {
    words: Vec<u64>,
    len: usize,
}

impl NewStarts {
    fn new(text_bytes: usize) -> NewStarts {
        NewStarts { words: vec![0; text_bytes.div_ceil(64)], len: 0 }
    }

    fn insert(&mut self, offset: usize) {
        let word = &mut self.words[offset / 64];
        let bit = 1 << (offset % 64);
        self.len += usize::from(*word & bit == 0);
        *word |= bit;
    }

    /// The finished bitmap. Its memory is never given back.
    fn for_good(self) -> Starts {
        Starts { words: self.words.leak(), len: self.len }
    }
}

impl Starts {
    #[inline]
    pub(super) fn contains(&self, offset: u32) -> bool {
        let word = self.words.get(offset as usize / 64).copied().unwrap_or(0);
        word >> (offset % 64) & 1 == 1
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub(super) fn shares_memory_with(&self, other: &Starts) -> bool {
        std::ptr::eq(self.words, other.words)
    }
}

impl fmt::Debug for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Starts({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_addresses_in_code_are_starts() {
        let (text, executable) = (1000..1300, [1000..1100, 1200..1300]);
        let addresses = [0, 999, 1000, 1001, 1063, 1064, 1099, 1100, 1150, 1199, 1200, 1299, 1300, 1000, usize::MAX];
        let FunctionStarts::Known(starts) = FunctionStarts::collect(addresses.into_iter(), &text, &executable) else {
            panic!("they are known")
        };
        let expected = BTreeSet::from([0, 1, 63, 64, 99, 200, 299]);
        for offset in (0..400).chain([u32::MAX]) {
            assert_eq!(starts.contains(offset), expected.contains(&offset), "{offset}");
        }
        assert_eq!(starts.len(), expected.len());
    }
}
