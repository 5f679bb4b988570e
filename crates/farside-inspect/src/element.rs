//! [`Element`]: what an area consists of.

use std::fmt;

use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};
use farside_rpc::Wire;

/// The type of an area's elements, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
#[wire(crate = "farside_rpc")]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
    /// A complex number: real and imaginary part, each an `f32`.
    C64,
    /// The same of two `f64`.
    C128,
}

impl ElementType {
    /// The size of an element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// The name of the type in Rust.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::C64 => "c64",
            Self::C128 => "c128",
        }
    }

    /// The type as numpy writes it in the header of a file.
    #[must_use]
    pub fn numpy(self) -> &'static str {
        match self {
            Self::Bool => "|b1",
            Self::U8 => "|u1",
            Self::I8 => "|i1",
            Self::U16 => "<u2",
            Self::I16 => "<i2",
            Self::U32 => "<u4",
            Self::I32 => "<i4",
            Self::U64 => "<u8",
            Self::I64 => "<i8",
            Self::F32 => "<f4",
            Self::F64 => "<f8",
            Self::C64 => "<c8",
            Self::C128 => "<c16",
        }
    }

    /// Whether bytes are values of the type. All are but those of `bool`.
    pub(crate) fn are_values(self, bytes: &[u8]) -> bool {
        self != Self::Bool || bytes.iter().all(|byte| *byte < 2)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A type of which an area may consist: numbers, `bool`, and pairs of floats as complex numbers.
pub trait Element: NoUninit + CheckedBitPattern + Zeroable + Send + Sync + 'static + sealed::Sealed {
    /// The type, as it travels.
    const TYPE: ElementType;

    /// The bytes of elements, if any bytes are elements.
    #[doc(hidden)]
    fn bytes_mut(elements: &mut [Self]) -> Option<&mut [u8]>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $name:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $rust {}
            impl Element for $rust {
                const TYPE: ElementType = ElementType::$name;

                fn bytes_mut(elements: &mut [Self]) -> Option<&mut [u8]> {
                    Some(bytemuck::cast_slice_mut(elements))
                }
            }
        )*
    };
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const TYPE: ElementType = ElementType::Bool;

    fn bytes_mut(_: &mut [Self]) -> Option<&mut [u8]> {
        None
    }
}

elements! {
    u8 => U8,
    i8 => I8,
    u16 => U16,
    i16 => I16,
    u32 => U32,
    i32 => I32,
    u64 => U64,
    i64 => I64,
    f32 => F32,
    f64 => F64,
    [f32; 2] => C64,
    [f64; 2] => C128,
}
