//! [`Element`]: what an area consists of.

use std::fmt;

use bytemuck::{CheckedBitPattern, NoUninit, Pod, Zeroable};
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
    /// A complex number of two `f64`.
    C128,
    /// A struct of this size in bytes. Its [fields](Field) are described apart.
    Struct(u32),
}

/// A field of a struct that is an element.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
#[non_exhaustive]
pub struct Field {
    /// The name. That of a field of an inner struct begins with the outer field's name and a dot.
    pub name: String,
    /// The type, which is no struct.
    pub element: ElementType,
    /// The number of bytes before it in the struct.
    pub offset: u32,
    /// The shape, if it is an array. Otherwise empty.
    pub shape: Vec<u32>,
}

/// The most fields of a struct.
const FIELDS_MAX: usize = 256;
/// The longest name of a field.
const NAME_BYTES_MAX: usize = 100;
/// The most dimensions of a field.
const DIMENSIONS_MAX: usize = 8;

impl Field {
    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let count = |bytes: u64, length: &u32| bytes.saturating_mul(u64::from(*length));
        self.shape.iter().fold(self.element.bytes() as u64, count)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.element)?;
        if self.shape.is_empty() { Ok(()) } else { write!(f, "{:?}", self.shape) }
    }
}

/// Makes a field, for tests of readers.
#[must_use]
pub fn field(name: &str, element: ElementType, offset: u32, shape: &[u32]) -> Field {
    Field { name: name.into(), element, offset, shape: shape.to_vec() }
}

/// A type with its fields, such as `struct {mass: f32, position: f64[3]}`.
pub fn with_fields(element: ElementType, fields: &[Field]) -> String {
    match element {
        ElementType::Struct(_) => {
            let fields: Vec<String> = fields.iter().map(Field::to_string).collect();
            format!("{element} {{{}}}", fields.join(", "))
        }
        element => element.to_string(),
    }
}

/// Returns whether a type can be that of elements, and has these fields.
pub fn is_possible(element: ElementType, fields: &[Field]) -> bool {
    let ElementType::Struct(bytes) = element else { return fields.is_empty() };
    let has_place = |field: &Field| {
        !matches!(field.element, ElementType::Struct(_))
            && !field.name.is_empty()
            && field.name.len() <= NAME_BYTES_MAX
            && !field.name.chars().any(char::is_control)
            && field.shape.len() <= DIMENSIONS_MAX
            && field.bytes() > 0
            && field.bytes() <= u64::from(bytes)
            && u64::from(field.offset) <= u64::from(bytes) - field.bytes()
    };
    let follow = |pair: &[Field]| u64::from(pair[0].offset) + pair[0].bytes() == u64::from(pair[1].offset);
    let is_filled = |last: &Field| u64::from(last.offset) + last.bytes() == u64::from(bytes);
    // A struct without padding: its fields follow each other.
    fields.len() <= FIELDS_MAX
        && fields.first().is_some_and(|first| first.offset == 0)
        && fields.iter().all(has_place)
        && fields.windows(2).all(follow)
        && fields.last().is_some_and(is_filled)
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
            Self::Struct(bytes) => bytes as usize,
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
            Self::Struct(_) => "struct",
        }
    }

    /// The type as numpy writes it in the header of a file. Of a struct, it is that of bytes
    /// without a meaning.
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
            Self::Struct(_) => "|V",
        }
    }

    /// Returns whether bytes are values of the type. All are but those of `bool`.
    pub fn are_values(self, bytes: &[u8]) -> bool {
        self != Self::Bool || bytes.iter().all(|byte| *byte < 2)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A type of which an area may consist: numbers, `bool`, pairs of floats as complex numbers, and
/// structs that derive it.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use farside_inspect::Element;
///
/// #[derive(Clone, Copy, Pod, Zeroable, Element)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f32,
///     kind: u32,
/// }
/// assert_eq!(Particle::fields()[1].name, "mass");
/// ```
pub trait Element: NoUninit + CheckedBitPattern + Zeroable + Send + Sync + 'static + sealed::Sealed {
    /// The type, as it travels.
    const TYPE: ElementType;

    /// The fields of a struct. Other types have none.
    #[must_use]
    fn fields() -> Vec<Field> {
        Vec::new()
    }

    /// The bytes of elements, if any bytes are elements.
    #[doc(hidden)]
    fn bytes_mut(elements: &mut [Self]) -> Option<&mut [u8]>;
}

/// The names that `#[derive(Element)]` uses.
#[doc(hidden)]
pub(crate) mod derived {
    use super::{Element, ElementType, Field, Pod};

    pub trait Sealed {}

    #[must_use]
    pub const fn struct_of<T: Pod>() -> ElementType {
        assert!(size_of::<T>() > 0 && size_of::<T>() <= u32::MAX as usize, "an element has 1 byte to 4 GiB");
        ElementType::Struct(size_of::<T>() as u32)
    }

    pub fn bytes_of<T: Pod>(elements: &mut [T]) -> &mut [u8] {
        bytemuck::cast_slice_mut(elements)
    }

    /// Adds a field of the type `T`, or an array of the shape. Those of a struct are added one by
    /// one.
    pub fn add_field<T: Element>(fields: &mut Vec<Field>, name: &str, offset: usize, shape: &[usize]) {
        let inner = T::fields();
        let element = T::TYPE;
        let offset = offset as u32;
        if inner.is_empty() {
            let shape = shape.iter().map(|length| *length as u32).collect();
            fields.push(Field { name: name.into(), element, offset, shape });
            return;
        }
        for index in 0..shape.iter().product() {
            let outer = if shape.is_empty() { name.to_owned() } else { format!("{name}.{index}") };
            let before = offset + index as u32 * element.bytes() as u32;
            fields.extend(inner.iter().map(|field| Field {
                name: format!("{outer}.{}", field.name),
                offset: before + field.offset,
                ..field.clone()
            }));
        }
    }
}

use derived as sealed;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fill_their_struct() {
        let field = |name: &str, element, offset, shape: &[u32]| Field {
            name: name.into(),
            element,
            offset,
            shape: shape.to_vec(),
        };
        let (f64_at, u32_at) =
            (|offset| field("a", ElementType::F64, offset, &[]), |offset| field("b", ElementType::U32, offset, &[2]));
        let sixteen = ElementType::Struct(16);
        assert!(is_possible(sixteen, &[f64_at(0), u32_at(8)]) && is_possible(ElementType::F64, &[]));
        for (element, fields) in [
            (sixteen, vec![]),
            (ElementType::F64, vec![f64_at(0)]),
            (sixteen, vec![f64_at(0)]),
            (sixteen, vec![f64_at(0), f64_at(0)]),
            (sixteen, vec![u32_at(8), f64_at(0)]),
            (ElementType::Struct(17), vec![f64_at(0), u32_at(8)]),
            (ElementType::Struct(0), vec![field("a", ElementType::U8, 0, &[0])]),
            (ElementType::Struct(16), vec![field("a", sixteen, 0, &[])]),
            (ElementType::Struct(1), vec![field("", ElementType::U8, 0, &[])]),
            (ElementType::Struct(1), vec![field("a\n", ElementType::U8, 0, &[])]),
            (ElementType::Struct(8), vec![field("a", ElementType::F64, 0, &[u32::MAX, u32::MAX, u32::MAX])]),
        ] {
            assert!(!is_possible(element, &fields), "{fields:?} in {element:?}");
        }
    }
}
