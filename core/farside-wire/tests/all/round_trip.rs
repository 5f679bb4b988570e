//! Round trips of arbitrary values through every implementation of this crate.

use std::marker::PhantomData;
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize, Wrapping,
};
use std::time::Duration;

use farside::Wire;
use farside_testbed::scaled;
use proptest::prelude::*;

use crate::record::{check, read, write};

/// Makes one property test for each type.
macro_rules! round_trips {
    ($($name:ident: $type:ty),* $(,)?) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(scaled(30) as u32))]
            $(
            #[test]
            fn $name(value in any::<$type>()) {
                check::<$type>(&value);
            }
            )*
        }
    };
}

round_trips! {
    unsigned: (u8, u16, u32, u64, u128, usize),
    signed: (i8, i16, i32, i64, i128, isize),
    truth: bool,
    character: char,
    non_zero_unsigned: (NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize),
    non_zero_signed: (NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize),
    duration: Duration,
    wrapping: Wrapping<u32>,
    plain_array: [u16; 7],
    owning_array: [String; 3],
    empty_array: [u64; 0],
    plain_option: Option<u64>,
    owning_option: Option<String>,
    nested_option: Option<Option<(String, u8)>>,
    plain_result: Result<u8, u64>,
    result_of_text: Result<String, u64>,
    result_with_text: Result<u64, String>,
    text: String,
    plain_vec: Vec<u64>,
    padded_vec: Vec<(u8, u32)>,
    owning_vec: Vec<String>,
    nested_vec: Vec<Vec<Option<String>>>,
    empty_elements: Vec<()>,
    plain_slice: Box<[u32]>,
    owning_slice: Box<[String]>,
    boxed: Box<(u8, String)>,
    boxed_unit: Box<()>,
    mixed: (u8, String, Option<u64>, Vec<u16>, bool),
}

/// Limits and special values, each by itself instead of inside a tuple.
#[test]
fn limits_of_numbers() {
    macro_rules! limits {
        ($($type:ty),*) => {$(check(&<$type>::MIN); check(&<$type>::MAX);)*};
    }
    limits!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, char, NonZeroU8);
    limits!(NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize, NonZeroI8, NonZeroI16, NonZeroI32);
    limits!(NonZeroI64, NonZeroI128, NonZeroIsize);
    check(&Duration::ZERO);
    check(&Duration::MAX);
    check(&());
    check(&PhantomData::<String>);
}

#[test]
fn floats_keep_their_bits() {
    let quiet = f64::NAN.to_bits() | 0x1234;
    for bits in [quiet, (-0.0_f64).to_bits(), f64::NEG_INFINITY.to_bits(), 1] {
        let record = write(f64::from_bits(bits), 1);
        // SAFETY: an `f64` was written there.
        let (value, _) = unsafe { read::<f64>(&record) }.unwrap();
        assert_eq!(value.to_bits(), bits);
    }
}

#[test]
fn sizes_around_powers_of_two() {
    for exponent in 0..=8 {
        for length in [(1_usize << exponent) - 1, 1 << exponent, (1 << exponent) + 1] {
            check(&vec![0x5A_u8; length]);
            check(&"x".repeat(length));
            check(&(0..length as u64).collect::<Vec<_>>());
            check(&(0..length).map(|index| Some(index.to_string())).collect::<Vec<_>>());
        }
    }
}

#[test]
fn tuples_of_every_length() {
    let text = || String::from("text");
    check(&(1_u8,));
    check(&(text(),));
    check(&(1_u8, text()));
    check(&(1_u8, text(), 3_u16));
    check(&(1_u8, text(), 3_u16, ()));
    check(&(1_u8, text(), 3_u16, (), 5_u64));
    check(&(1_u8, text(), 3_u16, (), 5_u64, 'f'));
    check(&(1_u8, text(), 3_u16, (), 5_u64, 'f', true));
    check(&(1_u8, text(), 3_u16, (), 5_u64, 'f', true, 8.0_f32));
    check(&(1_u8, text(), 3_u16, (), 5_u64, 'f', true, 8.0_f32, -9_i8));
    check(&(1_u8, text(), 3_u16, (), 5_u64, 'f', true, 8.0_f32, -9_i8, text()));
    check(&(1_u8, text(), 3_u16, (), 5_u64, 'f', true, 8.0_f32, -9_i8, text(), [11_u8; 11]));
    check(&(1_u8, text(), 3_u16, (), 5_u64, 'f', true, 8.0_f32, -9_i8, text(), [11_u8; 11], Some(12)));
    check(&(1_u8, 2_u64, 3_u16, (), 5_u64, 'f', true, 8.0_f32, -9_i8, 10, [11_u8; 11], Some(12)));
}

#[test]
fn plain_if_all_parts_are() {
    const {
        assert!(<(u8, [Option<char>; 4], Result<(), u64>)>::PLAIN);
        assert!(<[String; 0]>::PLAIN);
        assert!(<Option<[String; 0]>>::PLAIN);
        assert!(!<(u8, String)>::PLAIN);
        assert!(!<[String; 1]>::PLAIN);
        assert!(!<Option<Vec<u8>>>::PLAIN);
        assert!(!<Result<u8, Box<u8>>>::PLAIN);
        assert!(!<Wrapping<Box<u8>>>::PLAIN);
    }
}

#[test]
fn lengths_on_the_wire() {
    assert_eq!(write(String::from("four"), 0).len(), 8 + 4);
    assert_eq!(write(vec![(1_u8, 2_u64); 3], 0).len(), 8 + 3 * 16);
    assert_eq!(write(vec![String::new(); 3], 0).len(), 8 + 3 * 8);
    assert_eq!(write(vec![(); 1000], 0).len(), 8);
    assert_eq!(write(None::<String>, 0).len(), 4);
    assert_eq!(write(Ok::<u8, String>(1), 0).len(), 4 + 1);
    assert_eq!(write(Box::new(()), 0).len(), 1);
}

#[test]
fn sums_that_exceed_memory_saturate() {
    /// A value that claims more bytes than any buffer has.
    #[derive(Debug)]
    struct Endless;
    // SAFETY: its `write` is never called, as no buffer is large enough.
    unsafe impl Wire for Endless {
        const PLAIN: bool = false;
        fn wire_bytes(&self) -> usize {
            usize::MAX - 1
        }
        unsafe fn write(self, _out: *mut u8) {
            unreachable!("no buffer is large enough")
        }
        unsafe fn read(_input: &mut farside::wire::Reader<'_>) -> Result<Self, farside::wire::WireError> {
            Ok(Self)
        }
    }
    assert_eq!((Endless, Endless).wire_bytes(), usize::MAX);
    assert_eq!([Endless, Endless].wire_bytes(), usize::MAX);
    assert_eq!(vec![Endless].wire_bytes(), usize::MAX);
    assert_eq!(Some(Endless).wire_bytes(), usize::MAX);
    assert_eq!(Ok::<_, u8>(Endless).wire_bytes(), usize::MAX);
    assert_eq!(Err::<u8, _>(Endless).wire_bytes(), usize::MAX);
    assert_eq!(Box::new((Endless, 1_u8)).wire_bytes(), usize::MAX);
}
