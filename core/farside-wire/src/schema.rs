//! [`Schema`]: the shape of a type in the encoding between different binaries.

mod agree;
mod text;

use std::any::{TypeId, type_name};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use self::text::Text;
use super::Wire;

/// The words around the fields of an extensible struct.
const EXTENSIBLE: &str = "extensible{";
const EXTENSIBLE_END: &str = "}extensible";

/// The word of a reference in the hash of a shape.
const REFERENCE: &str = "^";

/// The largest depth of types in types. Nothing that compiles without a `recursion_limit` of its
/// own comes near.
const DEPTH_MAX: usize = 512;

/// The shape of a type, as processes of different binaries compare it. [`Wire::describe`] writes
/// it.
///
/// Two types have the same shape if their variants and fields agree: in names, shapes and order.
/// The names and paths of the types themselves do not count. Only the hash of the shape is kept. It
/// depends only on the source of the types, so it is the same in separately built programs.
///
/// Every type is described to its end, wherever it occurs. Only a recursive type is described once,
/// and referred to from then on. Its hash therefore depends on the type at which the recursion is
/// entered: if one program splits a recursive type in two, which contain each other, the hashes of
/// its shapes change.
#[derive(Debug)]
pub struct Schema {
    hash: u64,
    /// The number of words and numbers so far.
    words: u64,
    /// The largest encoded size of a value, if there is a limit.
    bytes_max: Option<usize>,
    unportable: Option<&'static str>,
    /// The types that are being described, from the outside to the inside.
    open: Vec<Open>,
    /// The recursive types that are described.
    done: Vec<Done>,
    /// The words and numbers so far, if they are kept.
    text: Option<Text>,
}

/// A type that is being described.
#[derive(Debug)]
struct Open {
    id: TypeId,
    place: Place,
    /// The outermost of the open types to which the description refers, if it refers to one.
    leads_to: Option<usize>,
}

/// A recursive type that is described.
#[derive(Debug)]
struct Done {
    id: TypeId,
    place: Place,
    /// The outermost type of its recursion, while that is open.
    leads_to: Option<usize>,
}

/// The beginning of the description of a type.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of words and numbers before it.
    words: u64,
    /// Its number in the text.
    in_text: usize,
}

/// The shape of a type with `#[derive(Wire)]`, as constant data.
#[doc(hidden)]
#[derive(Debug)]
pub struct Shape {
    /// A word that makes another type of it.
    pub word: Option<&'static str>,
    /// The kind of the type.
    pub kind: ShapeKind,
    /// The variants of an enum, or the only one of a struct.
    pub variants: &'static [Variant],
}

/// The kind of a type with `#[derive(Wire)]`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeKind {
    /// A struct.
    Struct,
    /// A struct whose later versions have further fields.
    Extensible,
    /// An enum.
    Enum,
}

/// A variant: its name, and the names and descriptions of its fields.
#[doc(hidden)]
#[derive(Debug)]
pub struct Variant(pub &'static str, pub &'static [Field]);

/// The name of a field, and the description of its type.
type Field = (&'static str, fn(&mut Schema));

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
    /// A recursive type stands between `rec{` and `}rec`. Where it occurs again, there is `^N`: the
    /// type after which `N` more of these began.
    ///
    /// ```
    /// use farside_wire::{Schema, Wire};
    ///
    /// #[derive(Wire)]
    /// #[wire(crate = "farside_wire")]
    /// struct Tree {
    ///     children: Vec<Tree>,
    ///     leaves: Vec<u32>,
    /// }
    ///
    /// assert_eq!(Schema::text_of::<(u32, Vec<String>)>(), "( u32 Vec String u8 )");
    /// assert_eq!(
    ///     Schema::text_of::<Tree>(),
    ///     "rec{ 1 struct children Vec ^0 leaves Vec u32 } }rec"
    /// );
    /// ```
    #[must_use]
    pub fn text_of<T: Wire>() -> String {
        let mut schema = Self::empty(Some(Text::default()));
        T::describe(&mut schema);
        schema.text.map(Text::finish).unwrap_or_default()
    }

    /// Returns how often a word occurs in the text of a shape. In a recursive type it counts twice,
    /// since values have any number of them.
    ///
    /// ```
    /// use farside_wire::Schema;
    ///
    /// assert_eq!(Schema::occurrences("( Ticket Vec Ticket )", "Ticket"), 2);
    /// assert_eq!(Schema::occurrences("rec{ ( Ticket Vec ^0 ) }rec", "Ticket"), 2);
    /// ```
    #[must_use]
    pub fn occurrences(text: &str, word: &str) -> usize {
        let (mut count, mut depth) = (0, 0_usize);
        for found in text.split_ascii_whitespace() {
            match found {
                agree::RECURSIVE => depth += 1,
                agree::RECURSIVE_END => depth = depth.saturating_sub(1),
                _ if found == word => count += if depth > 0 { 2 } else { 1 },
                _ => {}
            }
        }
        count
    }

    /// Returns whether values of one shape can be read as values of another: the texts are equal,
    /// but for fields at the end of an extensible struct that one of them lacks. A recursive type
    /// also agrees with one that has the same parts and begins its recursion elsewhere.
    ///
    /// Either text may come from an untrusted peer.
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
        agree::agree(one, other)
    }

    #[inline]
    fn empty(text: Option<Text>) -> Self {
        Self {
            hash: hash_name(""),
            words: 0,
            bytes_max: Some(0),
            unportable: None,
            open: Vec::new(),
            done: Vec::new(),
            text,
        }
    }

    fn note(&mut self, word: fmt::Arguments<'_>) {
        self.words += 1;
        if let Some(text) = &mut self.text {
            text.word(word);
        }
    }

    /// Adds a name, or a word about the structure.
    #[inline]
    pub fn word(&mut self, word: &str) {
        self.note(format_args!("{word}"));
        self.hash_word(word);
    }

    #[inline]
    fn hash_word(&mut self, word: &str) {
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

    /// Notes that the encoding of a value has any number of bytes.
    #[inline]
    pub(crate) fn any_bytes(&mut self) {
        self.bytes_max = None;
    }

    /// Adds what `part` adds, as a sequence of `times` equal values.
    pub(crate) fn repeated(&mut self, times: usize, part: fn(&mut Self)) {
        let before = self.bytes_max.replace(0);
        part(self);
        let all = self.bytes_max.and_then(|bytes| bytes.checked_mul(times));
        self.bytes_max = before.zip(all).and_then(|(before, all)| before.checked_add(all));
    }

    /// Adds a container of the type `C` with any number of values on the heap, which `part`
    /// describes.
    ///
    /// Every recursive type contains itself through a container. So the recursion of a type with a
    /// `Wire` of its own ends here, where the container is described for the third time in itself.
    /// That of a derived type ends before, at the type itself.
    #[inline]
    pub(crate) fn container<C: 'static>(&mut self, word: &'static str, part: fn(&mut Self)) {
        self.add_container(TypeId::of::<C>(), type_name::<C>(), word, part);
    }

    fn add_container(&mut self, id: TypeId, type_name: &'static str, word: &'static str, part: fn(&mut Self)) {
        let mut same = self.open.iter().enumerate().filter(|(_, open)| open.id == id);
        if let (Some((depth, _)), Some(_)) = (same.next(), same.next()) {
            self.refer_to_open(depth);
        } else {
            let describe = |schema: &mut Self| {
                schema.word(word);
                part(schema);
            };
            self.describe_within(id, type_name, describe);
        }
        self.any_bytes();
    }

    /// Adds a type with `#[derive(Wire)]`.
    #[doc(hidden)]
    #[inline]
    pub fn derived<T: 'static>(&mut self, shape: &'static Shape) {
        self.add_derived(TypeId::of::<T>(), type_name::<T>(), shape);
    }

    fn add_derived(&mut self, id: TypeId, type_name: &'static str, shape: &'static Shape) {
        if let Some(depth) = self.open.iter().position(|open| open.id == id) {
            return self.refer_to_open(depth);
        }
        if let Some(Done { place, leads_to, .. }) = self.done.iter().find(|done| done.id == id) {
            let (place, leads_to) = (*place, *leads_to);
            return self.refer(place, leads_to);
        }
        if let Some(open) = self.describe_within(id, type_name, |schema| schema.add_shape(shape)) {
            let Open { id, place, leads_to } = open;
            // The outermost type of the recursion is this one if it leads no further.
            let leads_to = leads_to.filter(|depth| *depth < self.open.len());
            self.done.push(Done { id, place, leads_to });
        }
    }

    fn add_shape(&mut self, shape: &'static Shape) {
        let Shape { word, kind, variants } = shape;
        if let Some(word) = word {
            self.word(word);
        }
        match kind {
            ShapeKind::Extensible => {
                self.word(EXTENSIBLE);
                variants.iter().for_each(|variant| self.add_fields(variant));
                self.word(EXTENSIBLE_END);
                self.any_bytes();
                return;
            }
            ShapeKind::Enum => {
                self.word("enum");
                self.bytes(4);
            }
            ShapeKind::Struct => {}
        }
        self.number(variants.len() as u64);
        for variant in *variants {
            self.word(variant.0);
            self.add_fields(variant);
            self.word("}");
        }
    }

    fn add_fields(&mut self, Variant(_, fields): &Variant) {
        for (name, describe) in *fields {
            self.word(name);
            describe(self);
        }
    }

    /// Describes a type. Returns how that went if the type is recursive.
    fn describe_within(
        &mut self,
        id: TypeId,
        type_name: &'static str,
        describe: impl FnOnce(&mut Self),
    ) -> Option<Open> {
        let depth = self.open.len();
        if depth == DEPTH_MAX {
            self.unportable.get_or_insert(type_name);
            return None;
        }
        let place = Place { words: self.words, in_text: self.text.as_mut().map_or(0, Text::begin) };
        self.open.push(Open { id, place, leads_to: None });
        describe(self);
        if let Some(text) = &mut self.text {
            text.end(place.in_text);
        }
        let open = self.open.pop()?;
        let outermost = open.leads_to.filter(|outermost| *outermost <= depth)?;
        if outermost < depth {
            self.leads_to(outermost);
        }
        let further = (outermost < depth).then_some(outermost);
        // What leads here leads as far as this.
        self.done.iter_mut().filter(|done| done.leads_to == Some(depth)).for_each(|done| done.leads_to = further);
        Some(open)
    }

    fn refer_to_open(&mut self, depth: usize) {
        self.refer(self.open[depth].place, Some(depth));
    }

    /// Refers to a type that is described already, or is being described.
    fn refer(&mut self, place: Place, leads_to: Option<usize>) {
        self.words += 1;
        if let Some(text) = &mut self.text {
            text.refer(place.in_text);
        }
        self.hash_word(REFERENCE);
        self.hash = hash_bytes(self.hash, &place.words.to_le_bytes());
        if let Some(depth) = leads_to {
            self.leads_to(depth);
        }
        self.any_bytes();
    }

    /// Notes that the type which is being described refers to an open one.
    fn leads_to(&mut self, depth: usize) {
        if let Some(open) = self.open.last_mut() {
            open.leads_to = Some(open.leads_to.map_or(depth, |before| before.min(depth)));
        }
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

    /// Returns a type inside this one that cannot travel to other binaries, if there is one. So is
    /// a type that lies more than 512 types deep: its description would have no end here.
    #[inline]
    #[must_use]
    pub fn unportable(&self) -> Option<&'static str> {
        self.unportable
    }
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
mod tests;
