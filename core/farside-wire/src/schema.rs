//! [`Schema`]: the shape of a type in the encoding between different binaries.

use std::any::{TypeId, type_name};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Wire;

/// The largest depth of a description through `Vec`s and `Box`es, which ends that of a recursive
/// type.
const CONTAINERS_MAX: u32 = 64;

/// The words around the fields of an extensible struct.
const EXTENSIBLE: &str = "extensible{";
const EXTENSIBLE_END: &str = "}extensible";

/// The shape of a type, as processes of different binaries compare it. [`Wire::describe`] writes
/// it.
///
/// Two types have the same shape if their variants and fields agree: in names, shapes and order.
/// The names and paths of the types themselves do not count. Only the hash of the shape is kept. It
/// depends only on the source of the types, so it is the same in separately built programs.
#[derive(Debug)]
pub struct Schema {
    hash: u64,
    containers_left: u32,
    /// The largest encoded size of a value, if there is a limit.
    bytes_max: Option<usize>,
    unportable: Option<&'static str>,
    /// The words and numbers so far, if they are kept.
    text: Option<String>,
}

impl Schema {
    /// Returns the shape of `T`.
    #[inline]
    #[must_use]
    pub fn of<T: Wire>() -> Self {
        let mut schema = Self::empty(None);
        T::describe(&mut schema);
        schema
    }

    /// Returns the shape of `T` as text: its words and numbers, separated by spaces. Types of the
    /// same shape have the same text.
    ///
    /// ```
    /// use farside_wire::Schema;
    ///
    /// assert_eq!(Schema::text_of::<(u32, Vec<String>)>(), "( u32 Vec String u8 )");
    /// ```
    #[must_use]
    pub fn text_of<T: Wire>() -> String {
        let mut schema = Self::empty(Some(String::new()));
        T::describe(&mut schema);
        schema.text.unwrap_or_default()
    }

    /// Returns whether values of one shape can be read as values of another: the texts are equal,
    /// but for fields at the end of an extensible struct that one of them lacks.
    ///
    /// ```
    /// use farside_wire::Schema;
    ///
    /// mod old {
    ///     #[derive(farside_wire::Wire)]
    ///     #[wire(crate = "farside_wire", extensible)]
    ///     pub struct Options {
    ///         pub depth: u32,
    ///     }
    /// }
    ///
    /// #[derive(farside_wire::Wire)]
    /// #[wire(crate = "farside_wire", extensible)]
    /// struct Options {
    ///     depth: u32,
    ///     label: String,
    /// }
    ///
    /// let (older, newer) = (Schema::text_of::<old::Options>(), Schema::text_of::<Options>());
    /// assert!(Schema::agree(&older, &newer));
    /// assert!(!Schema::agree(&older, "u32"));
    /// ```
    #[must_use]
    pub fn agree(one: &str, other: &str) -> bool {
        let (mut one, mut other) = (one.split_ascii_whitespace(), other.split_ascii_whitespace());
        loop {
            match (one.next(), other.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if a == b => {}
                (Some(EXTENSIBLE_END), Some(first)) if skip_fields(first, &mut other) => {}
                (Some(first), Some(EXTENSIBLE_END)) if skip_fields(first, &mut one) => {}
                _ => return false,
            }
        }
    }

    #[inline]
    fn empty(text: Option<String>) -> Self {
        let (hash, containers_left) = (hash_name(""), CONTAINERS_MAX);
        Self { hash, containers_left, bytes_max: Some(0), unportable: None, text }
    }

    fn note(&mut self, word: std::fmt::Arguments<'_>) {
        if let Some(text) = &mut self.text {
            let space = if text.is_empty() { "" } else { " " };
            // Writing to a string does not fail.
            let _ = write!(text, "{space}{word}");
        }
    }

    /// Adds a name, or a word about the structure.
    #[inline]
    pub fn word(&mut self, word: &str) {
        self.note(format_args!("{word}"));
        self.hash = hash_bytes(self.hash, word.as_bytes());
        // A separator, so that no word runs into the next one.
        self.hash = hash_bytes(self.hash, &[0xff]);
    }

    /// Adds a number that is part of the type, like the length of an array.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.note(format_args!("{number}"));
        self.hash = hash_bytes(self.hash, &number.to_le_bytes());
    }

    /// Adds a value whose encoding has at most `bytes` bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: usize) {
        self.bytes_max = self.bytes_max.and_then(|sum| sum.checked_add(bytes));
    }

    /// Adds what `part` adds, as a sequence of `times` equal values.
    pub(crate) fn repeated(&mut self, times: usize, part: fn(&mut Self)) {
        let before = self.bytes_max.replace(0);
        part(self);
        let all = self.bytes_max.and_then(|bytes| bytes.checked_mul(times));
        self.bytes_max = before.zip(all).and_then(|(before, all)| before.checked_add(all));
    }

    /// Adds heap-owned values, any number of them. Their type may be recursive.
    pub(crate) fn owned(&mut self, part: fn(&mut Self)) {
        if self.containers_left > 0 {
            self.containers_left -= 1;
            part(self);
        } else {
            self.word("...");
        }
        self.bytes_max = None;
    }

    /// Adds a struct whose later versions have further fields, which `fields` adds.
    pub fn extensible(&mut self, fields: impl FnOnce(&mut Self)) {
        self.word(EXTENSIBLE);
        fields(self);
        self.word(EXTENSIBLE_END);
        self.bytes_max = None;
    }

    /// Notes that values of `T` travel only among processes of one binary.
    pub fn not_portable<T>(&mut self) {
        self.unportable.get_or_insert(type_name::<T>());
    }

    /// Returns the hash of the shape. Types of the same shape have the same hash.
    #[inline]
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the largest encoded size of a value, if there is a limit.
    #[must_use]
    pub fn bytes_max(&self) -> Option<usize> {
        self.bytes_max
    }

    /// Returns a type inside this one that cannot travel to other binaries, if there is one.
    #[inline]
    #[must_use]
    pub fn unportable(&self) -> Option<&'static str> {
        self.unportable
    }
}

/// Skips the rest of an extensible struct, of which `first` is the next word. Returns whether it
/// ends.
fn skip_fields<'a>(first: &'a str, words: &mut impl Iterator<Item = &'a str>) -> bool {
    let mut depth = 1_u32;
    for word in std::iter::once(first).chain(words) {
        match word {
            EXTENSIBLE => depth += 1,
            EXTENSIBLE_END => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return true;
        }
    }
    false
}

/// Returns a number that identifies a type among processes of one binary. Never 0.
#[must_use]
pub fn type_hash<T: 'static>() -> u64 {
    let mut hasher = DefaultHasher::new();
    TypeId::of::<T>().hash(&mut hasher);
    hasher.finish() | 1
}

/// Returns the hash of a name of a function or a type, the same in every binary.
#[inline]
#[must_use]
pub const fn hash_name(name: &str) -> u64 {
    hash_bytes(0xcbf2_9ce4_8422_2325, name.as_bytes())
}

/// FNV-1a, which is short enough to be computed at each call site.
#[inline]
const fn hash_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut next = 0;
    while next < bytes.len() {
        hash = (hash ^ bytes[next] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        next += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_agree_up_to_fields_that_one_of_them_lacks() {
        let agree = |one: &str, other: &str| {
            assert_eq!(Schema::agree(one, other), Schema::agree(other, one), "{one} | {other}");
            Schema::agree(one, other)
        };
        let short = "( extensible{ a u8 }extensible u16 )";
        assert!(agree(short, "( extensible{ a u8 b Vec u8 }extensible u16 )"));
        assert!(agree(short, "( extensible{ a u8 b extensible{ c u8 }extensible d u8 }extensible u16 )"));
        assert!(agree(short, "( extensible{ }extensible u16 )"));
        for other in [
            "( extensible{ a u16 }extensible u16 )",
            "( extensible{ b u8 a u8 }extensible u16 )",
            "( extensible{ a u8 }extensible u16 u8 )",
            "( extensible{ a u8 b u8 }extensible u32 )",
            "( extensible{ a u8 b u8",
            "( 1 struct a u8 } u16 )",
            "",
        ] {
            assert!(!agree(short, other), "{other}");
        }
        // Of two structs, one may be newer inside and the other outside.
        let inner_is_newer = "extensible{ a extensible{ x u8 y u8 }extensible }extensible";
        let outer_is_newer = "extensible{ a extensible{ x u8 }extensible b u8 }extensible";
        assert!(agree(inner_is_newer, outer_is_newer));
    }
}
