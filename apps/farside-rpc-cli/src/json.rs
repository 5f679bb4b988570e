//! Values as JSON, by the types that a server describes as text.
//!
//! JSON is as `serde` has it: structs are objects, tuples are arrays, a struct of one unnamed field
//! is that field, a variant without fields is its name and any other `{"Name": fields}`. Beyond
//! that:
//!
//! | type | JSON |
//! |---|---|
//! | `u128`, `i128` | a string, where the number does not fit into 64 bits |
//! | floats | also `"NaN"`, `"inf"` and `"-inf"` |
//! | `Option<T>` where `null` is a `T` | `null`, or `{"Some": T}` |
//! | `Vec<u8>` | an array; as an argument also a string |
//! | `Bulk<Read>` | a string, or `"@FILE"` for the content of a file |
//! | `Bulk<Write>` | `{"bytes": N, "file": PATH}`: memory that is written to the file afterwards |
//! | `Stream<T>` | `null` in the result; each item is a `T` of its own |
//!
//! The server is not trusted: neither its description nor its answer makes this program recurse or
//! allocate without a limit.

mod decode;
mod encode;
mod recursive;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::str::SplitAsciiWhitespace;

use serde_json::{Map, Number, Value};

use recursive::{Again, Recursive};

/// The longest description, the longest name in one, and the largest depth of its types, and of the
/// values of a recursive one. Each level takes some KiB of stack.
const TEXT_BYTES_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 256;
const DEPTH_MAX: u32 = 128;
/// The limit of a result: each value costs 16, and a name its length.
const COST_MAX: usize = 1 << 26;
const VALUE_COST: usize = 16;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The types of a procedure.
#[derive(Debug)]
pub(super) struct Types {
    pub(super) arguments: Type,
    pub(super) result: Type,
    pub(super) error: Type,
}

/// A type that has a form in JSON.
#[derive(Debug)]
pub(super) enum Type {
    Unit,
    Bool,
    Char,
    Text,
    Duration,
    Integer {
        name: String,
        bytes: usize,
        is_signed: bool,
        is_zero_allowed: bool,
    },
    Float {
        bytes: usize,
    },
    Option(Box<Type>),
    Result([(String, Fields); 2]),
    List(Box<Type>),
    Array(u64, Box<Type>),
    Tuple(Vec<Type>),
    Struct(Fields),
    /// A struct of which other versions have more or fewer fields.
    Extensible(Fields),
    Enum(Vec<(String, Fields)>),
    Memory {
        may_write: bool,
    },
    /// Items that follow the result.
    Stream(Box<Type>),
    /// A type that contains itself.
    Recursive(Recursive),
    /// A recursive type that occurs again.
    Again(Again),
}

type Fields = Vec<(String, Type)>;

/// Encoded arguments, and the memory that goes with them.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) memory: Vec<Memory>,
    /// The depth of the value that is being encoded.
    depth: u32,
}

/// Memory for the server to read, or to write and then for a file.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    pub(super) file: Option<PathBuf>,
}

/// A fault of a value, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// From the inside to the outside.
    path: Vec<String>,
    what: String,
}

impl Fault {
    fn new(what: impl Into<String>) -> Self {
        Self { path: Vec::new(), what: what.into() }
    }

    fn expected(what: impl fmt::Display, found: &Value) -> Self {
        let mut found = found.to_string();
        if found.chars().count() > 60 {
            found = found.chars().take(60).chain("...".chars()).collect();
        }
        Self::new(format!("expected {what}, found {found}"))
    }

    pub(super) fn at(mut self, name: impl fmt::Display) -> Self {
        self.path.push(name.to_string());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: Vec<_> = self.path.iter().rev().map(String::as_str).collect();
        write!(f, "{}: {}", path.join("."), self.what)
    }
}

impl Types {
    /// Reads the description of a procedure's types.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("the description of the types is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let mut words = Words::of(text);
        let arguments = words.a_type(0)?;
        words.expect("->")?;
        let result = words.a_type(0)?;
        words.expect("!")?;
        let error = words.a_type(0)?;
        match words.words.next() {
            None => Ok(Self { arguments, result, error }),
            Some(word) => Err(format!("{word:?} follows the description of the types")),
        }
    }
}

struct Words<'a> {
    words: SplitAsciiWhitespace<'a>,
    /// The recursive types that have begun.
    recursive: Vec<Recursive>,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        Self { words: text.split_ascii_whitespace(), recursive: Vec::new() }
    }

    fn next(&mut self) -> Result<&'a str, String> {
        self.words.next().ok_or_else(|| "the description of the types ends early".into())
    }

    fn expect(&mut self, expected: &str) -> Result<(), String> {
        match self.next()? {
            word if word == expected => Ok(()),
            word => Err(format!("the description of the types has {word:?} where {expected:?} belongs")),
        }
    }

    fn name(&mut self) -> Result<&'a str, String> {
        self.next().and_then(|name| match name.len() {
            ..=NAME_BYTES_MAX => Ok(name),
            bytes => Err(format!("the description of the types has a name of {bytes} bytes")),
        })
    }

    fn number(&mut self) -> Result<u64, String> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("the description of the types has {word:?} where a number belongs"))
    }

    fn a_type(&mut self, depth: u32) -> Result<Type, String> {
        let word = self.next()?;
        self.type_of(word, depth)
    }

    fn type_of(&mut self, word: &str, depth: u32) -> Result<Type, String> {
        if depth == DEPTH_MAX {
            return Err(format!("the types are nested more than {DEPTH_MAX} deep"));
        }
        let mut inner = || self.a_type(depth + 1);
        Ok(match word {
            "()" | "PhantomData" => Type::Unit,
            "Bulk<Read>" => Type::Memory { may_write: false },
            "Bulk<Write>" => Type::Memory { may_write: true },
            "f32" => Type::Float { bytes: 4 },
            "f64" => Type::Float { bytes: 8 },
            "rec{" => self.a_recursive_type(depth)?,
            "Stream<" => {
                let items = inner()?;
                self.expect(">")?;
                Type::Stream(Box::new(items))
            }
            "Box" | "usize" | "isize" => inner()?,
            "Option" => Type::Option(Box::new(inner()?)),
            "Vec" => Type::List(Box::new(inner()?)),
            "Result" => {
                let (ok, err) = (inner()?, inner()?);
                Type::Result([("Ok", ok), ("Err", err)].map(|(name, ty)| (name.into(), vec![("0".into(), ty)])))
            }
            "String" => self.next().map(|_| Type::Text)?,
            "bool" => self.expect("u8").map(|()| Type::Bool)?,
            "char" => self.expect("u32").map(|()| Type::Char)?,
            "Duration" => {
                ["(", "u64", "u32", ")"].into_iter().try_for_each(|word| self.expect(word))?;
                Type::Duration
            }
            "array" => Type::Array(self.number()?, Box::new(self.a_type(depth + 1)?)),
            "(" => {
                let mut types = Vec::new();
                loop {
                    match self.next()? {
                        ")" => break Type::Tuple(types),
                        word => types.push(self.type_of(word, depth + 1)?),
                    }
                }
            }
            "1" => {
                self.expect("struct")?;
                Type::Struct(self.fields(depth, "}")?)
            }
            "extensible{" => Type::Extensible(self.fields(depth, "}extensible")?),
            "enum" => {
                let mut variants = Vec::new();
                for _ in 0..self.number()? {
                    variants.push((self.name()?.to_owned(), self.fields(depth, "}")?));
                }
                Type::Enum(variants)
            }
            _ if word.starts_with('^') => self.again(word)?,
            _ if word.starts_with("NonZero") => match inner()? {
                Type::Integer { name, bytes, is_signed, .. } => {
                    Type::Integer { name: format!("{name} other than 0"), bytes, is_signed, is_zero_allowed: false }
                }
                _ => return Err(format!("the description of the types has a {word} of what is no number")),
            },
            _ => match (word.split_at_checked(1), word.get(1..).and_then(|bits| bits.parse().ok())) {
                (Some((sign @ ("u" | "i"), _)), Some(bits @ (8 | 16 | 32 | 64 | 128))) => {
                    let (name, bytes, is_signed) = (word.into(), bits / 8, sign == "i");
                    Type::Integer { name, bytes, is_signed, is_zero_allowed: true }
                }
                _ => return Err(format!("{word:?} has no form in JSON: call the procedure from a program")),
            },
        })
    }

    fn fields(&mut self, depth: u32, end: &str) -> Result<Fields, String> {
        let mut fields = Vec::new();
        loop {
            match self.name()? {
                word if word == end => return Ok(fields),
                name => fields.push((name.to_owned(), self.a_type(depth + 1)?)),
            }
        }
    }
}

/// The only field, if it has no name.
fn newtype(fields: &Fields) -> Option<&Type> {
    match &fields[..] {
        [(name, ty)] if name == "0" => Some(ty),
        _ => None,
    }
}

fn is_unnamed(fields: &Fields) -> bool {
    fields.iter().enumerate().all(|(index, (name, _))| *name == index.to_string())
}

/// A `Duration` as `serde` has it.
fn duration() -> Fields {
    [("secs", 8), ("nanos", 4)]
        .map(|(name, bytes)| {
            let ty = format!("u{}", 8 * bytes);
            (name.to_owned(), Type::Integer { name: ty, bytes, is_signed: false, is_zero_allowed: true })
        })
        .into()
}

fn invalid(ty: &str) -> Fault {
    Fault::new(format!("the server sent what is no {ty}"))
}

/// Goes a level deeper into a value.
fn deeper(depth: u32) -> Result<u32, Fault> {
    match depth {
        DEPTH_MAX => Err(Fault::new(format!("it is nested more than {DEPTH_MAX} deep"))),
        _ => Ok(depth + 1),
    }
}
