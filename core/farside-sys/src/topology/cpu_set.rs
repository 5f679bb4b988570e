//! Sets of CPUs, in the kernel's notation.

use std::fmt;
use std::str::FromStr;

/// The most CPUs that any Linux kernel can be built for. Every [`CpuId`] in a set is smaller.
pub const MAX_CPUS: usize = 8192;

/// The kernel's number of a CPU, that is, of one hardware thread. Numbers may have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of CPUs. Formatted and parsed in the kernel's notation: `0-3,8,10-11`.
///
/// ```
/// use farside_sys::topology::{CpuId, CpuSet};
///
/// let cpus: CpuSet = "0-2,8".parse()?;
/// assert_eq!(cpus.len(), 4);
/// assert!(cpus.contains(CpuId(8)));
/// assert_eq!(cpus.to_string(), "0-2,8");
/// # Ok::<(), farside_sys::topology::ParseCpuSetError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// One bit per CPU. The last word is never 0, so that equal sets have equal words.
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> CpuSet {
        CpuSet { words: Vec::new() }
    }

    /// Builds the set that `words` describe, one bit per CPU.
    pub(super) fn from_words(mut words: Vec<u64>) -> CpuSet {
        let used = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        words.truncate(used);
        CpuSet { words }
    }

    /// The set as words, one bit per CPU.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds `cpu`.
    ///
    /// # Panics
    ///
    /// If `cpu` is [`MAX_CPUS`] or more.
    #[track_caller]
    pub fn insert(&mut self, cpu: CpuId) {
        let index = cpu.0 as usize;
        assert!(index < MAX_CPUS, "CPU {cpu} is beyond the largest that Linux supports, {}", MAX_CPUS - 1);
        if self.words.len() <= index / 64 {
            self.words.resize(index / 64 + 1, 0);
        }
        self.words[index / 64] |= 1 << (index % 64);
    }

    /// Returns whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        let index = cpu.0 as usize;
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest CPU of the set.
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet::from_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// The CPUs that are in either set.
    #[must_use]
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        let (long, short) = if self.words.len() < other.words.len() { (other, self) } else { (self, other) };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(a, b)| *a |= b);
        CpuSet { words }
    }

    /// The CPUs of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        let mut words = self.words.clone();
        words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
        CpuSet::from_words(words)
    }

    /// The CPUs of the set, ascending.
    pub fn iter(&self) -> Cpus<'_> {
        Cpus { words: &self.words, index: 0, left: self.words.first().copied().unwrap_or(0) }
    }
}

/// The CPUs of a [`CpuSet`], ascending.
#[derive(Clone, Debug)]
pub struct Cpus<'a> {
    words: &'a [u64],
    /// The word that `left` came from.
    index: usize,
    /// The bits of that word that the iterator has not returned yet.
    left: u64,
}

impl Iterator for Cpus<'_> {
    type Item = CpuId;

    fn next(&mut self) -> Option<CpuId> {
        while self.left == 0 {
            self.index += 1;
            self.left = *self.words.get(self.index)?;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(CpuId(self.index as u32 * 64 + bit))
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = CpuId;
    type IntoIter = Cpus<'a>;

    fn into_iter(self) -> Cpus<'a> {
        self.iter()
    }
}

impl FromIterator<CpuId> for CpuSet {
    /// # Panics
    ///
    /// As [`CpuSet::insert`].
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| next.0 == last.0 + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

/// Why a text is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseCpuSetError {
    /// The text has something other than a number where one is expected.
    #[error("{0:?} is not a CPU number; write a list such as 0-3,8")]
    NotANumber(String),
    /// A range ends before it starts.
    #[error("the range {first}-{last} ends before it starts; write the lower CPU first")]
    Backwards {
        /// The first CPU.
        first: CpuId,
        /// The last CPU.
        last: CpuId,
    },
    /// The number is larger than any kernel supports.
    #[error("CPU {0} is beyond the largest that Linux supports, {largest}", largest = MAX_CPUS - 1)]
    TooLarge(CpuId),
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Parses the kernel's list format. Empty text or white space gives the empty set.
    fn from_str(text: &str) -> Result<CpuSet, ParseCpuSetError> {
        let mut set = CpuSet::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (parse_cpu(first)?, parse_cpu(last)?);
            if last < first {
                return Err(ParseCpuSetError::Backwards { first, last });
            }
            (first.0..=last.0).for_each(|cpu| set.insert(CpuId(cpu)));
        }
        Ok(set)
    }
}

fn parse_cpu(text: &str) -> Result<CpuId, ParseCpuSetError> {
    // `u32::from_str` would accept a leading plus.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseCpuSetError::NotANumber(text.to_owned()));
    }
    let number = text.parse().map_err(|_| ParseCpuSetError::NotANumber(text.to_owned()))?;
    match CpuId(number) {
        cpu if (number as usize) < MAX_CPUS => Ok(cpu),
        cpu => Err(ParseCpuSetError::TooLarge(cpu)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect(text)
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        let cases: &[(&str, &[u32], &str)] = &[
            ("", &[], ""),
            ("\n", &[], ""),
            ("0", &[0], "0"),
            ("0-3,8,10-11\n", &[0, 1, 2, 3, 8, 10, 11], "0-3,8,10-11"),
            ("63,64,65", &[63, 64, 65], "63-65"),
            ("8,1,0", &[0, 1, 8], "0-1,8"),
            ("1-2,2-3,2", &[1, 2, 3], "1-3"),
            ("8191", &[8191], "8191"),
        ];
        for (text, cpus, written) in cases {
            let set = set(text);
            assert!(set.iter().map(|cpu| cpu.0).eq(cpus.iter().copied()), "{text:?} gave {set}");
            assert_eq!(set.len(), cpus.len(), "{text:?}");
            assert_eq!(set.to_string(), *written);
            assert_eq!(set.to_string().parse(), Ok(set));
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        use ParseCpuSetError::{Backwards, NotANumber, TooLarge};
        let not_a_number = |text: &str| NotANumber(text.to_owned());
        let cases = [
            ("x", not_a_number("x")),
            ("1,", not_a_number("")),
            (",", not_a_number("")),
            ("-3", not_a_number("")),
            ("1-", not_a_number("")),
            ("1-2-3", not_a_number("2-3")),
            ("+1", not_a_number("+1")),
            ("1, 2", not_a_number(" 2")),
            ("0-31:2/4", not_a_number("31:2/4")),
            ("99999999999", not_a_number("99999999999")),
            ("3-1", Backwards { first: CpuId(3), last: CpuId(1) }),
            ("8192", TooLarge(CpuId(8192))),
            ("0-4294967295", TooLarge(CpuId(u32::MAX))),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<CpuSet>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn set_algebra_agrees_with_a_tree_set() {
        let texts = ["", "0", "0-63", "64", "1,65,129", "0-200", "63-65", "8191", "5-7,8000-8100"];
        let tree = |set: &CpuSet| set.iter().collect::<BTreeSet<_>>();
        for a in texts.map(set) {
            for b in texts.map(set) {
                let (x, y) = (tree(&a), tree(&b));
                assert_eq!(a.union(&b), (&x | &y).into_iter().collect::<CpuSet>(), "{a} | {b}");
                assert_eq!(a.intersection(&b), (&x & &y).into_iter().collect::<CpuSet>(), "{a} & {b}");
                assert_eq!(a.difference(&b), (&x - &y).into_iter().collect::<CpuSet>(), "{a} - {b}");
                assert_eq!(a.intersection(&b).is_empty(), x.is_disjoint(&y));
            }
            assert!((0..300).all(|cpu| a.contains(CpuId(cpu)) == tree(&a).contains(&CpuId(cpu))), "{a}");
            assert_eq!(a.first(), tree(&a).first().copied());
        }
    }

    #[test]
    #[should_panic(expected = "beyond the largest")]
    fn an_impossible_cpu_is_refused() {
        CpuSet::new().insert(CpuId(8192));
    }
}
