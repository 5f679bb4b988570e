//! Damaged bytes are refused without a panic. These tests read only types whose plain parts accept
//! any bytes, because plain values are trusted.

use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::num::NonZeroU16;

use farside::Wire;
use farside::wire::WireError;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::record::{Record, read, write};

/// Reads bytes that need not be a `T`.
fn read_bytes<T: AnyBytes>(bytes: &[u8]) -> Result<(T, usize), WireError> {
    let record: Record = bytes.iter().copied().map(MaybeUninit::new).collect();
    // SAFETY: each plain part of a `T` accepts any bytes.
    unsafe { read(&record) }
}

/// The bytes of a value.
fn to_bytes<T: AnyBytes>(value: T) -> Vec<u8> {
    // SAFETY: no plain part of a `T` has padding.
    write(value, 0).iter().map(|byte| unsafe { byte.assume_init() }).collect()
}

/// Types whose plain parts accept any bytes and have no padding.
///
/// # Safety
/// The implementor promises exactly this.
unsafe trait AnyBytes: Wire + Debug {}

macro_rules! any_bytes {
    ($($type:ty),* $(,)?) => {$(
        // SAFETY: the plain parts are numbers, read one by one or in arrays of numbers; or values
        // that are checked when they are read by themselves. A part of a value that is not plain is
        // read by itself.
        unsafe impl AnyBytes for $type {}
    )*};
}

/// An enum that is not plain, with every shape of variant, also recursive.
#[derive(Debug, Clone, PartialEq, Wire)]
enum Tree {
    Nothing,
    Leaf(u64, bool),
    Named { name: String, symbol: char, count: NonZeroU16 },
    Branch(Vec<Tree>),
    Pair(Box<(Tree, Tree)>),
    Maybe(Option<Box<Tree>>, Result<String, Vec<i16>>),
}

any_bytes!(bool, char, NonZeroU16, u32, u64, String, Vec<u8>, Vec<u64>, Vec<String>, Vec<()>, Vec<Vec<Vec<u8>>>);
any_bytes!(Option<String>, Result<String, u8>, Box<u8>, Tree, Vec<Tree>, [Option<String>; 3], Box<[(String, u16)]>);
any_bytes!((String, Option<Vec<u32>>, u8), Vec<Option<Result<Vec<String>, Box<[u16]>>>>);

/// Checks that a value read from these bytes writes the same bytes again.
fn check_any<T: AnyBytes>(bytes: &[u8]) {
    if let Ok((value, left_bytes)) = read_bytes::<T>(bytes) {
        let consumed = &bytes[..bytes.len() - left_bytes];
        assert_eq!(value.wire_bytes(), consumed.len());
        assert_eq!(to_bytes(value), consumed);
    }
}

fn check_every_type(bytes: &[u8]) {
    check_any::<String>(bytes);
    check_any::<Vec<u64>>(bytes);
    check_any::<Vec<String>>(bytes);
    check_any::<Vec<()>>(bytes);
    check_any::<Vec<Vec<Vec<u8>>>>(bytes);
    check_any::<Tree>(bytes);
    check_any::<Vec<Tree>>(bytes);
    check_any::<[Option<String>; 3]>(bytes);
    check_any::<Box<[(String, u16)]>>(bytes);
    check_any::<(String, Option<Vec<u32>>, u8)>(bytes);
    check_any::<Vec<Option<Result<Vec<String>, Box<[u16]>>>>>(bytes);
}

/// Generates bytes that resemble lengths and tags more often than random bytes do.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        (0_u64..6).prop_map(|word| word.to_le_bytes().to_vec()),
        (0_u32..7).prop_map(|tag| tag.to_le_bytes().to_vec()),
        any::<u64>().prop_map(|word| word.to_le_bytes().to_vec()),
        any::<u8>().prop_map(|byte| vec![byte]),
        "[a-zé]{0,4}".prop_map(String::into_bytes),
    ];
    vec(word, 0..40).prop_map(|words| words.concat())
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Nothing),
        any::<(u64, bool)>().prop_map(|(number, truth)| Tree::Leaf(number, truth)),
        any::<(String, char, NonZeroU16)>().prop_map(|(name, symbol, count)| Tree::Named { name, symbol, count }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Tree::Branch),
            (inner.clone(), inner.clone()).prop_map(|pair| Tree::Pair(Box::new(pair))),
            (proptest::option::of(inner.prop_map(Box::new)), any::<Result<String, Vec<i16>>>())
                .prop_map(|(tree, result)| Tree::Maybe(tree, result)),
        ]
    })
}

proptest! {
    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..300)) {
        check_every_type(&bytes);
    }

    #[test]
    fn likely_lengths_and_tags(bytes in likely_bytes()) {
        check_every_type(&bytes);
    }

    #[test]
    fn trees_round_trip(tree in tree()) {
        crate::record::check(&tree);
    }

    #[test]
    fn damaged_trees(tree in tree(), at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let mut bytes = to_bytes(tree);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        check_any::<Tree>(&bytes);
    }
}

#[test]
fn wrong_tags_are_refused() {
    let invalid = |type_name, value| Some(WireError::Invalid { type_name, value });
    assert_eq!(read_bytes::<bool>(&[2]).err(), invalid("bool", 2));
    assert_eq!(read_bytes::<char>(&0xD800_u32.to_le_bytes()).err(), invalid("char", 0xD800));
    assert_eq!(read_bytes::<NonZeroU16>(&[0, 0]).err(), invalid(std::any::type_name::<NonZeroU16>(), 0));
    assert_eq!(read_bytes::<Box<u8>>(&[0, 7]).err(), invalid("alloc::boxed::Box<u8>", 0));
    let tag = |tag: u32| tag.to_le_bytes();
    assert_eq!(read_bytes::<Option<String>>(&tag(2)).err(), invalid(std::any::type_name::<Option<String>>(), 2));
    assert_eq!(
        read_bytes::<Result<String, u8>>(&tag(u32::MAX)).err(),
        invalid(std::any::type_name::<Result<String, u8>>(), u64::from(u32::MAX))
    );
    assert_eq!(read_bytes::<Tree>(&tag(6)).err(), invalid(std::any::type_name::<Tree>(), 6));
}

#[test]
fn text_is_checked() {
    let mut bytes = to_bytes(String::from("naïve"));
    bytes[8 + 2] = 0xFF;
    assert_eq!(read_bytes::<String>(&bytes).err(), Some(WireError::NotUtf8 { valid_bytes: 2 }));
}

#[test]
fn wrong_lengths_are_refused() {
    fn with_length<T: AnyBytes>(value: T, length: u64) -> Vec<u8> {
        let mut bytes = to_bytes(value);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    }
    fn is_truncated<T: AnyBytes>(bytes: &[u8]) {
        match read_bytes::<T>(bytes) {
            Err(WireError::Truncated { wanted, available, .. }) => assert!(wanted > available),
            other => panic!("{other:?}"),
        }
    }
    for length in [4, 5, 1 << 32, (1 << 61) - 1, 1 << 61, (1 << 61) + 1, 1 << 63, u64::MAX] {
        is_truncated::<Vec<u64>>(&with_length(vec![1_u64, 2, 3], length));
        is_truncated::<Vec<u8>>(&with_length(vec![1_u8, 2, 3], length));
        is_truncated::<String>(&with_length(String::from("abc"), length));
        is_truncated::<Vec<String>>(&with_length(vec![String::from("a"); 3], length));
        is_truncated::<Vec<Tree>>(&with_length(vec![Tree::Nothing; 3], length));
    }
    // Too short a length leaves bytes over, which the reader of the record must detect.
    assert_eq!(read_bytes::<Vec<u64>>(&with_length(vec![1_u64, 2, 3], 2)), Ok((vec![1, 2], 8)));
    // Elements without bytes: any length is valid.
    let (units, _) = read_bytes::<Vec<()>>(&u64::MAX.to_le_bytes()).unwrap();
    assert_eq!(units.len() as u64, u64::MAX);
}

#[test]
fn messages_name_the_facts() {
    let error = read_bytes::<Vec<u64>>(&9_u64.to_le_bytes()).unwrap_err();
    assert!(error.to_string().contains("Vec<u64> needs 72 bytes where its record has 0 left"), "{error}");
    let error = read_bytes::<bool>(&[9]).unwrap_err();
    assert!(error.to_string().contains("0x9 is not a valid bool"), "{error}");
}
