//! Elements of a [`RawFrame`], one by one and as a file of numpy.

use std::fmt;
use std::io::{self, Write};

use bytemuck::checked::try_pod_read_unaligned;
use farside_inspect::{Element, ElementType, Field};

use super::area::RawFrame;
use super::error::InspectError;
use super::missing::mask;

/// An element of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Number {
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    /// The real and the imaginary part.
    Complex(f64, f64),
    /// The process of the element is gone.
    Missing,
}

impl Number {
    /// The number, rounded where it has more digits than an `f64`. `true` is 1. Of a complex number
    /// it is the absolute value. One that is missing is `NaN`.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Unsigned(value) => value as f64,
            Self::Signed(value) => value as f64,
            Self::F32(value) => value.into(),
            Self::F64(value) => value,
            Self::Complex(real, imaginary) => real.hypot(imaginary),
            Self::Missing => f64::NAN,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::F32(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::Complex(real, imaginary) => write!(f, "{real}{imaginary:+}i"),
            Self::Missing => f.write_str("-"),
        }
    }
}

impl RawFrame {
    /// The elements, in row-major order.
    ///
    /// # Errors
    /// [`InspectError::Value`] if an element is no value of its type, such as a `bool` of 2;
    /// [`InspectError::Structs`] if the elements are structs.
    pub fn numbers(&self) -> Result<Vec<Number>, InspectError> {
        fn all<T: Element>(bytes: &[u8], number: fn(T) -> Number) -> Option<Vec<Number>> {
            let values = bytes.chunks_exact(size_of::<T>());
            values.map(|value| try_pod_read_unaligned(value).ok().map(number)).collect()
        }
        let bytes = &self.bytes;
        let numbers = match self.element {
            ElementType::Bool => all(bytes, Number::Bool),
            ElementType::U8 => all(bytes, |value: u8| Number::Unsigned(value.into())),
            ElementType::U16 => all(bytes, |value: u16| Number::Unsigned(value.into())),
            ElementType::U32 => all(bytes, |value: u32| Number::Unsigned(value.into())),
            ElementType::U64 => all(bytes, Number::Unsigned),
            ElementType::I8 => all(bytes, |value: i8| Number::Signed(value.into())),
            ElementType::I16 => all(bytes, |value: i16| Number::Signed(value.into())),
            ElementType::I32 => all(bytes, |value: i32| Number::Signed(value.into())),
            ElementType::I64 => all(bytes, Number::Signed),
            ElementType::F32 => all(bytes, Number::F32),
            ElementType::F64 => all(bytes, Number::F64),
            ElementType::C64 => {
                all(bytes, |[real, imaginary]: [f32; 2]| Number::Complex(real.into(), imaginary.into()))
            }
            ElementType::C128 => all(bytes, |[real, imaginary]: [f64; 2]| Number::Complex(real, imaginary)),
            ElementType::Struct(_) => {
                let fields: Vec<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
                return Err(InspectError::Structs { name: self.name.clone(), fields: fields.join(", ") });
            }
        };
        let wrong = || InspectError::Value { name: self.name.clone(), element: self.element };
        let mut numbers = numbers.ok_or_else(wrong)?;
        if !self.missing.is_empty() {
            let places = numbers.iter_mut().zip(mask(&self.shape, &self.missing));
            places.filter(|(_, is_missing)| *is_missing).for_each(|(number, _)| *number = Number::Missing);
        }
        Ok(numbers)
    }

    /// The fields of structs, each as a frame of its own under the field's name. The dimensions of
    /// a field that is an array follow those of the frame.
    #[must_use]
    pub fn columns(&self) -> Vec<Self> {
        let column = |field: &Field| {
            let range = field.offset as usize..field.offset as usize + field.bytes() as usize;
            let bytes = self.bytes.chunks_exact(self.element.bytes()).flat_map(|element| &element[range.clone()]);
            Self {
                name: field.name.clone(),
                step: self.step,
                element: field.element,
                fields: Vec::new(),
                shape: self.shape.iter().copied().chain(field.shape.iter().map(|length| u64::from(*length))).collect(),
                bytes: bytes.copied().collect(),
                missing: self.missing.iter().map(|missing| missing.with_dimensions(&field.shape)).collect(),
            }
        };
        self.fields.iter().map(column).collect()
    }

    /// The type as numpy writes it in the header of a file.
    fn numpy(&self) -> String {
        if self.fields.is_empty() {
            return format!("'{}'", self.element.numpy());
        }
        let field = |Field { name, element, shape, .. }: &Field| {
            // Python's own escapes.
            let name = name.chars().map(|c| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if c.is_ascii() => c.to_string(),
                c => format!("\\U{:08x}", u32::from(c)),
            });
            let lengths: Vec<String> = shape.iter().map(|length| format!("{length},")).collect();
            let shape = if shape.is_empty() { String::new() } else { format!(", ({})", lengths.join(" ")) };
            format!("('{}', '{}'{shape})", name.collect::<String>(), element.numpy())
        };
        format!("[{}]", self.fields.iter().map(field).collect::<Vec<_>>().join(", "))
    }

    /// Writes the frame as a file of numpy (`.npy`, version 1.0, or 2.0 if the names of its fields
    /// are long). Neither the step is in it, nor what is [missing](Self::missing).
    ///
    /// # Errors
    /// The error of a write to `out`.
    pub fn write_npy(&self, mut out: impl Write) -> io::Result<()> {
        let lengths: Vec<String> = self.shape.iter().map(|length| format!("{length},")).collect();
        let (element, shape) = (self.numpy(), lengths.join(" "));
        let described = format!("{{'descr': {element}, 'fortran_order': False, 'shape': ({shape}), }}");
        // The elements begin at a multiple of 64 bytes, behind 10 or 12 bytes, the text and the end
        // of its line.
        let is_long = described.len() > usize::from(u16::MAX) - 64;
        let (first, version, length_bytes) = if is_long { (12, 2, 4) } else { (10, 1, 2) };
        let padding = (first + described.len() + 1).next_multiple_of(64) - (first + described.len() + 1);
        let bytes = described.len() + padding + 1;
        out.write_all(b"\x93NUMPY")?;
        out.write_all(&[version, 0])?;
        out.write_all(&bytes.to_le_bytes()[..length_bytes])?;
        writeln!(out, "{described}{:padding$}", "")?;
        out.write_all(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use farside_inspect::__private::element::field;

    use super::*;

    fn frame(element: ElementType, shape: &[u64], bytes: &[u8]) -> RawFrame {
        let (name, fields) = ("it".into(), Vec::new());
        let (step, missing) = (None, Vec::new());
        RawFrame { name, step, element, fields, shape: shape.to_vec(), bytes: bytes.to_vec(), missing }
    }

    #[test]
    fn elements_are_numbers() {
        let numbers = |element, bytes: &[u8]| frame(element, &[], bytes).numbers();
        assert_eq!(numbers(ElementType::I16, &(-7_i16).to_ne_bytes()).unwrap(), [Number::Signed(-7)]);
        assert_eq!(numbers(ElementType::U8, &[255, 1]).unwrap(), [Number::Unsigned(255), Number::Unsigned(1)]);
        let text = numbers(ElementType::F32, &0.1_f32.to_ne_bytes()).unwrap()[0].to_string();
        assert_eq!(text, "0.1");
        assert!(numbers(ElementType::Bool, &[0, 1]).is_ok());
        assert!(matches!(numbers(ElementType::Bool, &[2]), Err(InspectError::Value { .. })));
    }

    #[test]
    fn files_of_structs_name_the_fields() {
        let mut structs = frame(ElementType::Struct(12), &[1], b"twelve bytes");
        structs.fields = vec![field("a.b", ElementType::F64, 0, &[]), field("\u{e9}", ElementType::U16, 8, &[2])];
        let mut file = Vec::new();
        structs.write_npy(&mut file).unwrap();
        let text = String::from_utf8_lossy(&file);
        assert!(text.contains("'descr': [('a.b', '<f8'), ('\\U000000e9', '<u2', (2,))],"), "{text}");
        assert_eq!((file.len() % 64, structs.columns()[1].bytes.as_slice()), (12, &b"ytes"[..]));
    }

    #[test]
    fn long_descriptions_have_a_long_length() {
        let fields = |name_length| {
            let name = |at: u32| format!("{at:\u{e9}>name_length$}");
            (0..200).map(|at| field(&name(at), ElementType::U8, at, &[])).collect()
        };
        for (name_length, version) in [(20, 1), (40, 2)] {
            let mut structs = frame(ElementType::Struct(200), &[1], &[7; 200]);
            structs.fields = fields(name_length);
            let mut file = Vec::new();
            structs.write_npy(&mut file).unwrap();
            assert_eq!(&file[..8], [&b"\x93NUMPY"[..], &[version, 0]].concat());
            let behind = match version {
                1 => 10 + usize::from(u16::from_le_bytes([file[8], file[9]])),
                _ => 12 + u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize,
            };
            assert_eq!((behind % 64, &file[behind..], file[behind - 1]), (0, &[7; 200][..], b'\n'));
        }
    }

    #[test]
    fn files_are_those_of_numpy() {
        for (shape, text) in [(&[][..], "()"), (&[3], "(3,)"), (&[3, 4], "(3, 4,)")] {
            let mut file = Vec::new();
            frame(ElementType::F64, shape, b"elements").write_npy(&mut file).unwrap();
            assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
            let behind = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
            assert_eq!((behind % 64, &file[behind..]), (0, &b"elements"[..]));
            let described = std::str::from_utf8(&file[10..behind]).unwrap();
            let expected = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {text}, }}");
            assert_eq!(described.trim_end(), expected);
            assert!(described.ends_with('\n'));
        }
    }
}
