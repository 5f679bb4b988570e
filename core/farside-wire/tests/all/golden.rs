//! The exact bytes of the validated codec. Programs that are built apart rely on them: bytes that
//! change here change every protocol that uses the codec.

use std::fmt::Debug;
use std::num::NonZeroU16;
use std::time::Duration;

use farside_wire::{Decoder, Wire, decode, encode};

/// Checks that a value has these bytes, which are given in parts.
#[track_caller]
fn golden<T: Wire + PartialEq + Debug>(value: T, parts: &[&[u8]]) {
    let bytes = parts.concat();
    assert_eq!(encode(&value, Vec::new()), bytes, "{value:?}");
    assert_eq!(decode(Decoder::new(&bytes), 0), Ok(value));
}

/// A length, as it precedes elements.
const fn length(count: u8) -> [u8; 8] {
    [count, 0, 0, 0, 0, 0, 0, 0]
}

#[derive(Debug, PartialEq, Wire)]
#[wire(crate = "farside_wire")]
struct Point {
    x: u16,
    name: String,
    y: i32,
}

#[derive(Debug, PartialEq, Wire)]
#[wire(crate = "farside_wire")]
struct Pair(u8, u64);

#[derive(Debug, PartialEq, Wire)]
#[wire(crate = "farside_wire")]
enum Shape {
    Empty,
    Circle(u8, u16),
    Square { side: u32 },
}

#[derive(Debug, Default, PartialEq, Wire)]
#[wire(crate = "farside_wire", extensible)]
struct Options {
    depth: u32,
    name: String,
}

#[test]
fn numbers_are_little_endian_without_padding() {
    golden(0x12_u8, &[&[0x12]]);
    golden(0x1234_u16, &[&[0x34, 0x12]]);
    golden(0x1234_5678_u32, &[&[0x78, 0x56, 0x34, 0x12]]);
    golden(0x0102_0304_0506_0708_u64, &[&[8, 7, 6, 5, 4, 3, 2, 1]]);
    golden(0x0102_u128, &[&[2, 1], &[0; 14]]);
    golden(7_usize, &[&length(7)]);
    golden(-2_i8, &[&[0xfe]]);
    golden(-2_i16, &[&[0xfe, 0xff]]);
    golden(-2_i32, &[&[0xfe, 0xff, 0xff, 0xff]]);
    golden(-2_i64, &[&[0xfe], &[0xff; 7]]);
    golden(-2_isize, &[&[0xfe], &[0xff; 7]]);
    golden(-2_i128, &[&[0xfe], &[0xff; 15]]);
    golden(NonZeroU16::MAX, &[&[0xff, 0xff]]);
    golden(1.5_f32, &[&[0, 0, 0xc0, 0x3f]]);
    golden(-2.0_f64, &[&[0, 0, 0, 0, 0, 0, 0, 0xc0]]);
    golden((1_u8, 2_u64, 3_u16), &[&[1], &length(2), &[3, 0]]);
    golden([1_u16, 2], &[&[1, 0, 2, 0]]);
    golden(((), [(); 3]), &[]);
    golden(Duration::new(3, 4), &[&length(3), &[4, 0, 0, 0]]);
}

#[test]
fn truth_and_text_have_fixed_bytes() {
    golden(false, &[&[0]]);
    golden(true, &[&[1]]);
    golden('a', &[&[0x61, 0, 0, 0]]);
    golden('\u{1f600}', &[&[0, 0xf6, 1, 0]]);
    golden(String::new(), &[&length(0)]);
    golden(String::from("né"), &[&length(3), b"n\xc3\xa9"]);
}

#[test]
fn containers_have_fixed_bytes() {
    golden(Vec::<u64>::new(), &[&length(0)]);
    golden(vec![1_u8, 2, 3], &[&length(3), &[1, 2, 3]]);
    golden(vec![1_u16, 2], &[&length(2), &[1, 0, 2, 0]]);
    golden(vec![String::from("a"), String::new()], &[&length(2), &length(1), b"a", &length(0)]);
    golden(vec![1_u8].into_boxed_slice(), &[&length(1), &[1]]);
    golden(Box::new(9_u16), &[&[9, 0]]);
    golden(None::<u32>, &[&[0]]);
    golden(Some(5_u32), &[&[1, 5, 0, 0, 0]]);
    golden(Some(None::<u8>), &[&[1, 0]]);
    golden(Ok::<u8, u16>(5), &[&[0, 5]]);
    golden(Err::<u8, u16>(5), &[&[1, 5, 0]]);
}

#[test]
fn derived_types_have_fixed_bytes() {
    let point = Point { x: 1, name: "p".into(), y: -1 };
    golden(point, &[&[1, 0], &length(1), b"p", &[0xff; 4]]);
    golden(Pair(1, 2), &[&[1], &length(2)]);
    golden(Shape::Empty, &[&[0, 0, 0, 0]]);
    golden(Shape::Circle(7, 8), &[&[1, 0, 0, 0], &[7], &[8, 0]]);
    golden(Shape::Square { side: 9 }, &[&[2, 0, 0, 0], &[9, 0, 0, 0]]);
    // The number of bytes of the fields comes first.
    golden(Options { depth: 3, name: "a".into() }, &[&length(13), &[3, 0, 0, 0], &length(1), b"a"]);
    golden(vec![Options::default()], &[&length(1), &length(12), &[0; 4], &length(0)]);
}
