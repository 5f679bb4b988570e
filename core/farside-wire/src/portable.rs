//! The encoding of values between processes of different binaries.
//!
//! Every part is written separately, little endian, and checked when it is read. Nothing depends on
//! how a compiler lays out a type, and no bytes can make a value that its type does not have.
//!
//! ```text
//! numbers, char            their bytes; usize and isize 8 B; bool 1 B
//! Duration                 seconds 8 B, nanoseconds 4 B
//! Vec, Box<[T]>, String    length 8 B, the elements, and zeroes up to one byte for each element
//! Option, Result           variant 1 B, value
//! enum                     variant 4 B, fields
//! array, tuple, struct     the parts in order
//! extensible struct        number of bytes 8 B, the fields in order
//! ```

use std::any::Any;

use super::{Wire, WireError};

/// The largest nesting depth of values through `Vec`s and `Box`es. The received bytes determine the
/// depth, and the stack is short.
const DEPTH_MAX: u32 = 128;
/// The memory reserved for elements before they are read, in bytes per remaining input byte.
const ELEMENT_BYTES_PER_BYTE: usize = 4;

/// The output of [`Wire::encode`].
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    attached: Vec<Box<dyn Any + Send>>,
}

impl Encoder {
    /// Returns an encoder that appends to `bytes`.
    #[must_use]
    pub fn behind(bytes: Vec<u8>) -> Self {
        Self { bytes, attached: Vec::new() }
    }

    /// Returns the bytes, including those that were there before.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the bytes like [`into_bytes`](Self::into_bytes), and what was
    /// [attached](Self::attach).
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Vec<Box<dyn Any + Send>>) {
        (self.bytes, self.attached)
    }

    /// Attaches a resource that travels separately from the bytes, for the code that sends them.
    /// Returns its index, which the value writes in its place.
    pub fn attach(&mut self, thing: Box<dyn Any + Send>) -> u32 {
        self.attached.push(thing);
        u32::try_from(self.attached.len() - 1).expect("memory holds fewer values")
    }

    /// Appends the fields of an extensible struct, behind the number of their bytes.
    pub fn extensible(&mut self, fields: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.bytes(&[0; 8]);
        fields(self);
        let length = (self.bytes.len() - at - 8) as u64;
        self.bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
    }

    /// Appends bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends zeroed room for `bytes` bytes and returns it to be filled.
    #[inline]
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let at = self.bytes.len();
        self.bytes.resize(at + bytes, 0);
        &mut self.bytes[at..]
    }

    /// Appends a length and elements.
    pub(crate) fn elements<T: Wire>(&mut self, elements: &[T]) {
        self.bytes(&(elements.len() as u64).to_le_bytes());
        let at = self.bytes.len();
        T::encode_each(elements, self);
        // Padding makes the input at least as long as the length. So a decoder can refuse a longer
        // length, even for elements without bytes.
        if self.bytes.len() < at + elements.len() {
            self.bytes.resize(at + elements.len(), 0);
        }
    }
}

/// The input of [`Wire::decode`]: bytes that are not trusted.
#[derive(Debug)]
pub struct Decoder<'a> {
    left: &'a [u8],
    depth: u32,
    context: Option<&'a dyn Any>,
}

impl<'a> Decoder<'a> {
    /// Returns a decoder of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, depth: 0, context: None }
    }

    /// Sets the context that handles need to become usable at the receiver.
    #[must_use]
    pub fn within(self, context: &'a dyn Any) -> Self {
        Self { context: Some(context), ..self }
    }

    /// Returns the context, if it is a `C`.
    #[must_use]
    pub fn context<C: Any>(&self) -> Option<&'a C> {
        self.context?.downcast_ref()
    }

    /// Returns the number of bytes that are left.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.left.len()
    }

    /// Returns the bytes that are left.
    #[inline]
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.left
    }

    /// Takes `bytes` bytes. An error names `T` as the type that was read.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if fewer are left.
    #[inline]
    pub fn take<T>(&mut self, bytes: usize) -> Result<&'a [u8], WireError> {
        let taken = self.left.split_at_checked(bytes);
        let (taken, left) = taken.ok_or_else(|| WireError::truncated::<T>(bytes, self.left.len()))?;
        self.left = left;
        Ok(taken)
    }

    /// Takes an array of bytes. An error names `T` as the type that was read.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if fewer are left.
    #[inline]
    pub fn array<T, const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.left.split_first_chunk();
        let (taken, left) = taken.ok_or_else(|| WireError::truncated::<T>(N, self.left.len()))?;
        self.left = left;
        Ok(*taken)
    }

    /// Reads the fields of an extensible struct. Fields of a later version, which `read` does not
    /// know, are skipped.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer bytes than announced; the error of `read`.
    pub fn extensible<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        let length = usize::try_from(u64::from_le_bytes(self.array::<T, _>()?)).unwrap_or(usize::MAX);
        let left = self.take::<T>(length)?;
        read(&mut Self { left, ..*self })
    }

    /// Reads a field of an extensible struct. An earlier version does not send it: then it has its
    /// default.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a value of the type.
    pub fn field<T: Wire + Default>(&mut self) -> Result<T, WireError> {
        if self.left.is_empty() { Ok(T::default()) } else { T::decode(self) }
    }

    /// Reads a value inside a `T`, one level deeper.
    pub(crate) fn inside<T, V>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<V, WireError>,
    ) -> Result<V, WireError> {
        if self.depth == DEPTH_MAX {
            return Err(WireError::too_deep::<T>(DEPTH_MAX));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Reads a length and elements.
    pub(crate) fn elements<T: Wire>(&mut self) -> Result<Vec<T>, WireError> {
        let length = u64::from_le_bytes(self.array::<Vec<T>, _>()?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.remaining() {
            return Err(WireError::truncated::<Vec<T>>(length, self.remaining()));
        }
        let before = self.remaining();
        let elements = self.inside::<Vec<T>, _>(|input| T::decode_each(length, input))?;
        let used = before - self.remaining();
        self.take::<Vec<T>>(length.saturating_sub(used))?;
        Ok(elements)
    }

    /// Reads elements one by one.
    pub(crate) fn one_by_one<T: Wire>(&mut self, length: usize) -> Result<Vec<T>, WireError> {
        let memory_bytes = self.remaining().saturating_mul(ELEMENT_BYTES_PER_BYTE);
        let mut elements = Vec::with_capacity(length.min(memory_bytes / size_of::<T>().max(1)));
        for _ in 0..length {
            elements.push(T::decode(self)?);
        }
        Ok(elements)
    }
}

/// Encodes a value for processes of other binaries. Appends it to `bytes` and returns them.
pub fn encode<T: Wire>(value: &T, bytes: Vec<u8>) -> Vec<u8> {
    let mut out = Encoder::behind(bytes);
    value.encode(&mut out);
    out.into_bytes()
}

/// Decodes a value, after which at most `padding_max` bytes may be left.
///
/// # Errors
/// [`WireError`] if the bytes are not a value of the type, or more bytes are left.
pub fn decode<T: Wire>(mut input: Decoder<'_>, padding_max: usize) -> Result<T, WireError> {
    let value = T::decode(&mut input)?;
    match input.remaining() {
        left_bytes if left_bytes > padding_max => Err(WireError::left_over::<T>(left_bytes)),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;
    use std::num::{NonZeroI8, NonZeroU64, Wrapping};
    use std::time::Duration;

    use farside_macros::Wire;
    use proptest::prelude::*;

    use super::*;
    use crate::schema::Schema;

    #[derive(Clone, Debug, PartialEq, Wire)]
    #[wire(crate = "crate")]
    enum Tree {
        Leaf,
        Named { name: String, weight: i16 },
        Fork(Box<(Tree, Tree)>),
        Many(Vec<Tree>),
    }

    #[derive(Clone, Debug, PartialEq, Wire)]
    #[wire(crate = "crate")]
    struct All {
        numbers: (u8, i16, u32, i64, u128, usize, isize),
        checked: (bool, char, Option<NonZeroU64>, NonZeroI8),
        others: (Wrapping<u32>, PhantomData<u8>),
        time: Duration,
        several: [Option<Result<u8, String>>; 3],
        vectors: Vectors,
        tree: Tree,
    }

    type Vectors = (Vec<u8>, Vec<u64>, Vec<()>, Vec<String>, Box<[bool]>);

    fn tree() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![
            Just(Tree::Leaf),
            (any::<String>(), any::<i16>()).prop_map(|(name, weight)| Tree::Named { name, weight })
        ];
        leaf.prop_recursive(4, 20, 4, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|fork| Tree::Fork(Box::new(fork))),
                prop::collection::vec(inner, 0..4).prop_map(Tree::Many)
            ]
        })
    }

    fn all() -> impl Strategy<Value = All> {
        let checked = (any::<bool>(), any::<char>(), any::<u64>(), 1..=i8::MAX);
        let checked = checked.prop_map(|(a, b, c, d)| (a, b, NonZeroU64::new(c), NonZeroI8::new(d).unwrap()));
        let others = any::<u32>().prop_map(|number| (Wrapping(number), PhantomData));
        let vectors = (any::<Vec<u8>>(), any::<Vec<u64>>(), 0..20_usize, any::<Vec<String>>(), any::<Vec<bool>>());
        let vectors = vectors.prop_map(|(a, b, c, d, e)| (a, b, vec![(); c], d, e.into_boxed_slice()));
        let time = (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos));
        (
            any::<(u8, i16, u32, i64, u128, usize, isize)>(),
            checked,
            others,
            time,
            any::<[Option<Result<u8, String>>; 3]>(),
            vectors,
            tree(),
        )
            .prop_map(|(numbers, checked, others, time, several, vectors, tree)| All {
                numbers,
                checked,
                others,
                time,
                several,
                vectors,
                tree,
            })
    }

    /// Two versions of a type.
    mod versions {
        use super::*;

        #[derive(Clone, Debug, Default, PartialEq, Wire)]
        #[wire(crate = "crate", extensible)]
        pub(super) struct Old {
            pub(super) depth: u32,
            pub(super) inner: OldInner,
        }

        #[derive(Clone, Debug, Default, PartialEq, Wire)]
        #[wire(crate = "crate", extensible)]
        pub(super) struct OldInner {
            pub(super) name: String,
        }

        #[derive(Clone, Debug, Default, PartialEq, Wire)]
        #[wire(crate = "crate", extensible)]
        pub(super) struct New {
            pub(super) depth: u32,
            pub(super) inner: NewInner,
            pub(super) nothing: (),
            pub(super) tags: Vec<String>,
            pub(super) limit: Option<u64>,
        }

        #[derive(Clone, Debug, Default, PartialEq, Wire)]
        #[wire(crate = "crate", extensible)]
        pub(super) struct NewInner {
            pub(super) name: String,
            pub(super) weight: f64,
        }
    }

    #[test]
    fn versions_of_a_type_read_each_other() {
        use versions::{New, NewInner, Old, OldInner};
        let old = Old { depth: 3, inner: OldInner { name: "a".into() } };
        let inner = NewInner { name: "a".into(), weight: 2.5 };
        let new = New { depth: 3, inner, nothing: (), tags: vec!["x".into()], limit: Some(7) };
        // Values in front of it and behind it stay where they are.
        let old_bytes = encode(&(1_u8, vec![old.clone(); 2], 2_u8), Vec::new());
        let new_bytes = encode(&(1_u8, vec![new.clone(); 2], 2_u8), Vec::new());
        let as_old = (1_u8, vec![old; 2], 2_u8);
        assert_eq!(decode(Decoder::new(&old_bytes), 0), Ok(as_old.clone()));
        assert_eq!(decode(Decoder::new(&new_bytes), 0), Ok(as_old));
        assert_eq!(decode(Decoder::new(&new_bytes), 0), Ok((1_u8, vec![new.clone(); 2], 2_u8)));
        let widened = New { inner: NewInner { weight: 0.0, ..new.inner }, tags: Vec::new(), limit: None, ..new };
        assert_eq!(decode(Decoder::new(&old_bytes), 0), Ok((1_u8, vec![widened; 2], 2_u8)));
        assert!(Schema::agree(&Schema::text_of::<Old>(), &Schema::text_of::<New>()));
        assert_eq!(Schema::of::<Old>().bytes_max(), None);
    }

    #[test]
    fn a_struct_that_is_longer_than_its_bytes_is_refused() {
        let mut bytes = encode(&versions::Old::default(), Vec::new());
        for length in [u64::MAX, bytes.len() as u64 - 7] {
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            let error = decode::<versions::Old>(Decoder::new(&bytes), 0).unwrap_err();
            assert!(matches!(error, WireError::Truncated { .. }), "{error}");
        }
        // A field does not reach beyond its struct.
        bytes[..8].copy_from_slice(&2_u64.to_le_bytes());
        assert!(decode::<versions::Old>(Decoder::new(&bytes), usize::MAX).is_err());
    }

    /// Any bytes decode without a panic. If they are a value, it survives another round trip.
    fn check<T: Wire + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        if let Ok(value) = decode::<T>(Decoder::new(bytes), 0) {
            let again = encode(&value, Vec::new());
            assert_eq!(decode(Decoder::new(&again), 0), Ok(value));
        }
    }

    proptest! {
        #[test]
        fn a_value_arrives_as_it_was(value in all()) {
            let bytes = encode(&value, Vec::new());
            prop_assert_eq!(decode(Decoder::new(&bytes), 0), Ok(value));
        }

        #[test]
        fn any_bytes_are_a_value_or_refused(bytes: Vec<u8>) {
            check::<versions::New>(&bytes);
            check::<All>(&bytes);
            check::<Tree>(&bytes);
            check::<(Vec<Option<u16>>, String, char)>(&bytes);
            check::<Vec<[(); 3]>>(&bytes);
        }

        /// Most random bytes are refused early; damaged values are decoded further.
        #[test]
        fn damaged_bytes_are_a_value_or_refused(value in all(), place: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut bytes = encode(&value, Vec::new());
            let place = place.index(bytes.len());
            bytes[place] = byte;
            check::<versions::New>(&bytes);
            check::<All>(&bytes);
            check::<All>(&bytes[..cut.index(bytes.len())]);
        }

        #[test]
        fn a_value_with_a_byte_more_or_less_is_refused(value in all(), byte: u8) {
            let mut bytes = encode(&value, Vec::new());
            prop_assert!(decode::<All>(Decoder::new(&bytes[..bytes.len() - 1]), 0).is_err());
            bytes.push(byte);
            prop_assert_eq!(
                decode::<All>(Decoder::new(&bytes), 0),
                Err(WireError::LeftOver { type_name: std::any::type_name::<All>(), left_bytes: 1 })
            );
        }

        #[test]
        fn no_value_is_longer_than_its_schema_says(value: (Option<u16>, [Result<bool, (u8, char)>; 3], Duration)) {
            fn check_length<T: Wire>(value: &T) {
                let max = Schema::of::<T>().bytes_max().expect("it has a limit");
                assert!(encode(value, Vec::new()).len() <= max);
            }
            check_length(&value);
        }
    }

    #[test]
    fn operations_missing_in_a_type_are_refused() {
        fn refused<T: Wire + std::fmt::Debug>(bytes: &[u8]) {
            assert!(matches!(decode::<T>(Decoder::new(bytes), 0), Err(WireError::Invalid { .. })));
        }
        refused::<bool>(&[2]);
        refused::<char>(&0xd800_u32.to_le_bytes());
        refused::<NonZeroI8>(&[0]);
        refused::<Option<u8>>(&[2, 0]);
        refused::<Result<u8, u8>>(&[2, 0]);
        refused::<Tree>(&[4, 0, 0, 0]);
        refused::<Duration>(&[&[0; 8], &1_000_000_000_u32.to_le_bytes()[..]].concat());
    }

    #[test]
    fn nesting_has_an_end() {
        // A fork of a fork of a fork…
        let bytes = [2, 0, 0, 0].repeat(100_000);
        assert!(matches!(decode::<Tree>(Decoder::new(&bytes), 0), Err(WireError::TooDeep { .. })));
        // Vectors in vectors, of one element each.
        let bytes = [3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].repeat(100_000);
        assert!(matches!(decode::<Tree>(Decoder::new(&bytes), 0), Err(WireError::TooDeep { .. })));
    }

    #[test]
    fn shapes_are_distinguished() {
        #[derive(Wire)]
        #[wire(crate = "crate")]
        struct Point {
            x: u32,
            y: u32,
        }
        mod elsewhere {
            #[derive(farside_macros::Wire)]
            #[wire(crate = "crate")]
            pub(crate) struct Place {
                pub(crate) x: u32,
                pub(crate) y: u32,
            }
        }
        #[derive(Wire)]
        #[wire(crate = "crate")]
        struct Swapped {
            y: u32,
            x: u32,
        }
        #[derive(Wire)]
        #[wire(crate = "crate")]
        enum One {
            A(u8),
            B,
        }
        #[derive(Wire)]
        #[wire(crate = "crate")]
        enum Other {
            B(u8),
            A,
        }
        fn hash<T: Wire>() -> u64 {
            Schema::of::<T>().hash()
        }
        assert_eq!(hash::<Point>(), hash::<elsewhere::Place>());
        let hashes = [
            hash::<Point>(),
            hash::<Swapped>(),
            hash::<(u32, u32)>(),
            hash::<((u32, u32),)>(),
            hash::<(u32, i32)>(),
            hash::<[u32; 2]>(),
            hash::<[u32; 3]>(),
            hash::<Vec<u32>>(),
            hash::<Vec<Vec<u32>>>(),
            hash::<Option<u32>>(),
            hash::<Result<u32, ()>>(),
            hash::<One>(),
            hash::<Other>(),
            hash::<Tree>(),
            hash::<()>(),
            hash::<String>(),
            hash::<Vec<u8>>(),
            hash::<usize>(),
            hash::<u64>(),
        ];
        let mut distinct = hashes.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), hashes.len());
        // Separately built programs must agree on the hash, and so must later versions.
        assert_eq!(hash::<(u32, String)>(), 0x7674_3ed5_330b_4e8f);
    }

    #[test]
    fn types_of_one_binary_are_marked() {
        struct Bound;
        // SAFETY: it has no bytes and no destructor.
        unsafe impl Wire for Bound {
            crate::plain_whole!();
        }
        assert_eq!(Schema::of::<(u8, Vec<Bound>)>().unportable(), Some(std::any::type_name::<Bound>()));
        assert_eq!(Schema::of::<All>().unportable(), None);
    }
}
