//! Writes JSON. The command reads none, and so needs no library for it.

use std::fmt::{self, Write};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// A number; what is none becomes null.
    Float(f64),
    Text(String),
    List(Vec<Json>),
    /// Members in their order.
    Object(Vec<(&'static str, Json)>),
}

/// Makes an object of members.
macro_rules! object {
    ($($key:literal: $value:expr),* $(,)?) => {
        $crate::json::Json::Object(vec![$(($key, $crate::json::Json::from($value))),*])
    };
}

pub(crate) use object;

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Float(value) if !value.is_finite() => f.write_str("null"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(text) => write_text(text, f),
            Self::List(values) => {
                f.write_char('[')?;
                for (number, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if number > 0 { "," } else { "" })?;
                }
                f.write_char(']')
            }
            Self::Object(members) => {
                f.write_char('{')?;
                for (number, (key, value)) in members.iter().enumerate() {
                    f.write_str(if number > 0 { "," } else { "" })?;
                    write_text(key, f)?;
                    write!(f, ":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for char in text.chars() {
        match char {
            '"' | '\\' => write!(f, "\\{char}")?,
            '\n' => f.write_str("\\n")?,
            control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Self {
        Self::Unsigned(value.into())
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Self {
        Self::Unsigned(value as u64)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn values_are_read_back() {
        let value = object! {
            "text": "a \"b\" \\ \n \u{1} ß",
            "numbers": vec![0.1, 1.0, -2.5e300, f64::NAN],
            "all": u64::MAX,
            "none": None::<u32>,
            "inner": object! { "is": true },
        };
        let read: Value = serde_json::from_str(&value.to_string()).unwrap();
        let expected = json!({
            "text": "a \"b\" \\ \n \u{1} ß", "numbers": [0.1, 1.0, -2.5e300, null], "all": u64::MAX, "none": null,
            "inner": { "is": true },
        });
        assert_eq!(read, expected);
    }
}
