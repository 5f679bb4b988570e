//! What a value looks like on the way to a process of another binary.

use std::any::type_name;

use super::Wire;

/// How far the description of a type goes into `Vec`s and `Box`es. A type that holds itself ends there.
const CONTAINERS_MAX: u32 = 64;

/// What [`Wire::describe`] writes: the shape of a type, as processes of different binaries compare it.
///
/// Two types of the same shape have the same fields, of the same names and shapes, in the same order, and the same variants. What the
/// types themselves are called, and where they are defined, does not count. Only the hash of it is kept; it depends on nothing but
/// the source of the types, so that it is the same in programs that were built apart.
#[derive(Debug)]
pub struct Schema {
    hash: u64,
    containers_left: u32,
    /// No value is longer when it is encoded, if there is a limit.
    bytes_max: Option<usize>,
    unportable: Option<&'static str>,
}

impl Schema {
    /// The shape of `T`.
    #[inline]
    #[must_use]
    pub fn of<T: Wire>() -> Self {
        let mut schema =
            Self { hash: hash_name(""), containers_left: CONTAINERS_MAX, bytes_max: Some(0), unportable: None };
        T::describe(&mut schema);
        schema
    }

    /// Adds a name, or a word about the structure.
    #[inline]
    pub fn word(&mut self, word: &str) {
        self.hash = hash_bytes(self.hash, word.as_bytes());
        // No word ends where another goes on.
        self.hash = hash_bytes(self.hash, &[0xff]);
    }

    /// Adds a number that is part of the type, like the length of an array.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.hash = hash_bytes(self.hash, &number.to_le_bytes());
    }

    /// Adds a value that is encoded in so many bytes at most.
    #[inline]
    pub fn bytes(&mut self, bytes: usize) {
        self.bytes_max = self.bytes_max.and_then(|sum| sum.checked_add(bytes));
    }

    /// Adds what `part` does, `times` times in a row.
    pub(crate) fn repeated(&mut self, times: usize, part: fn(&mut Self)) {
        let before = self.bytes_max.replace(0);
        part(self);
        let all = self.bytes_max.and_then(|bytes| bytes.checked_mul(times));
        self.bytes_max = before.zip(all).and_then(|(before, all)| before.checked_add(all));
    }

    /// Adds a value that another one owns on the heap, any number of times. Its type may be one that holds itself.
    pub(crate) fn owned(&mut self, part: fn(&mut Self)) {
        if self.containers_left > 0 {
            self.containers_left -= 1;
            part(self);
        } else {
            self.word("...");
        }
        self.bytes_max = None;
    }

    /// Says that values of `T` travel only among processes of one binary.
    pub fn not_portable<T>(&mut self) {
        self.unportable.get_or_insert(type_name::<T>());
    }

    /// What two types have in common that are the same to the wire.
    #[inline]
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The longest that a value can be when it is encoded, if there is a limit.
    #[must_use]
    pub fn bytes_max(&self) -> Option<usize> {
        self.bytes_max
    }

    /// A type that is part of this one and does not travel to other binaries.
    #[inline]
    #[must_use]
    pub fn unportable(&self) -> Option<&'static str> {
        self.unportable
    }
}

/// Names a function or a type by its text, everywhere in the same way.
#[inline]
#[must_use]
pub const fn hash_name(name: &str) -> u64 {
    hash_bytes(0xcbf2_9ce4_8422_2325, name.as_bytes())
}

/// FNV-1a, which is short enough to be computed where a call is made.
#[inline]
const fn hash_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut next = 0;
    while next < bytes.len() {
        hash = (hash ^ bytes[next] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        next += 1;
    }
    hash
}
