//! [`Fields`]: the fields of a question.

use serde_json::{Map, Value};

use super::SessionError;

/// The fields of a question that were not read yet.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn of(question: &Value) -> Result<Self, SessionError> {
        match question {
            Value::Object(fields) => Ok(Self(fields.clone())),
            _ => Err(SessionError::Question("it is no object".into())),
        }
    }

    /// A text that has to be there.
    pub(crate) fn text(&mut self, name: &str) -> Result<String, SessionError> {
        match self.0.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(SessionError::Question(format!("{name:?} is no text"))),
            None => Err(SessionError::Question(format!("{name:?} is missing"))),
        }
    }

    /// A text that may be left out.
    pub(crate) fn text_or_empty(&mut self, name: &str) -> Result<String, SessionError> {
        if self.0.get(name).is_none_or(Value::is_null) {
            self.0.remove(name);
            return Ok(String::new());
        }
        self.text(name)
    }

    /// A whole number that may be left out.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, SessionError> {
        let wrong = || SessionError::Question(format!("{name:?} is no whole number"));
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(wrong),
        }
    }

    /// A list of whole numbers that may be left out.
    pub(crate) fn numbers(&mut self, name: &str) -> Result<Vec<u64>, SessionError> {
        let wrong = || SessionError::Question(format!("{name:?} is no list of whole numbers"));
        let Some(value) = self.0.remove(name) else { return Ok(Vec::new()) };
        let numbers = value.as_array().ok_or_else(wrong)?;
        numbers.iter().map(|number| number.as_u64().ok_or_else(wrong)).collect()
    }

    /// A flag. One that is left out is false.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, SessionError> {
        let value = self.0.remove(name).unwrap_or(Value::Bool(false));
        value.as_bool().ok_or_else(|| SessionError::Question(format!("{name:?} is neither true nor false")))
    }

    /// A number that has to be there.
    pub(crate) fn float(&mut self, name: &str) -> Result<f64, SessionError> {
        let value = self.0.remove(name).and_then(|value| value.as_f64());
        value.ok_or_else(|| SessionError::Question(format!("{name:?} is missing or no number")))
    }

    /// Any value that may be left out.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Checks that all fields were read. `id` belongs to who asks.
    pub(crate) fn end(mut self) -> Result<(), SessionError> {
        self.0.remove("id");
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(SessionError::Question(format!("this question has no {name:?}: leave it out"))),
        }
    }
}
