//! From JSON to bytes.

use super::*;

impl Type {
    /// Appends the encoding of a value.
    pub(crate) fn encode(&self, value: &Value, out: &mut Encoded) -> Result<(), Fault> {
        out.depth = deeper(out.depth)?;
        self.resolved(|ty| ty.write(value, out))?;
        out.depth -= 1;
        Ok(())
    }

    fn write(&self, value: &Value, out: &mut Encoded) -> Result<(), Fault> {
        match (self, value) {
            (Self::Unit, Value::Null) => {}
            (Self::Unit, _) => return Err(Fault::expected("null", value)),
            (Self::Bool, Value::Bool(truth)) => out.bytes.push(u8::from(*truth)),
            (Self::Bool, _) => return Err(Fault::expected("true or false", value)),
            (Self::Char, _) => {
                let mut characters = value.as_str().unwrap_or_default().chars();
                let (Some(character), None) = (characters.next(), characters.next()) else {
                    return Err(Fault::expected("a string of one character", value));
                };
                out.bytes.extend(u32::from(character).to_le_bytes());
            }
            (Self::Text, Value::String(text)) => out.list(text.bytes()),
            (Self::Text, _) => return Err(Fault::expected("a string", value)),
            (Self::Duration, _) if value["nanos"].as_u64() >= Some(NANOS_PER_SECOND) => {
                return Err(Fault::expected("less than a second in nanos", value));
            }
            (Self::Duration, _) => out.fields(&duration(), value)?,
            (Self::Integer { name, bytes, is_signed, is_zero_allowed }, _) => {
                let number = integer(value, *bytes, *is_signed).filter(|number| *is_zero_allowed || *number != [0; 16]);
                out.bytes.extend(&number.ok_or_else(|| Fault::expected(name, value))?[..*bytes]);
            }
            (Self::Float { bytes: 4 }, _) => {
                let number = float(value)?;
                let short = number as f32;
                if short.is_infinite() && number.is_finite() {
                    return Err(Fault::expected("f32", value));
                }
                out.bytes.extend(short.to_le_bytes());
            }
            (Self::Float { .. }, _) => out.bytes.extend(float(value)?.to_le_bytes()),
            (Self::Option(_), Value::Null) => out.bytes.push(0),
            (Self::Option(inner), _) => {
                out.bytes.push(1);
                match value {
                    Value::Object(object) if inner.may_be_null() => {
                        let only = object.get("Some").filter(|_| object.len() == 1);
                        let only = only.ok_or_else(|| Fault::expected("null or {\"Some\": value}", value))?;
                        inner.encode(only, out).map_err(|fault| fault.at("Some"))?;
                    }
                    _ if inner.may_be_null() => return Err(Fault::expected("null or {\"Some\": value}", value)),
                    _ => inner.encode(value, out)?,
                }
            }
            (Self::Result(variants), _) => out.variant(variants, value, |out, tag| out.bytes.push(tag as u8))?,
            (Self::Enum(variants), _) => {
                out.variant(variants, value, |out, tag| out.bytes.extend((tag as u32).to_le_bytes()))?;
            }
            (Self::List(inner), Value::String(text))
                if matches!(**inner, Self::Integer { bytes: 1, is_signed: false, .. }) =>
            {
                out.list(text.bytes());
            }
            (Self::List(inner), Value::Array(values)) => {
                out.bytes.extend((values.len() as u64).to_le_bytes());
                let start = out.bytes.len();
                out.each(values, |_| inner)?;
                // Each element takes a byte at least.
                let end = out.bytes.len().max(start + values.len());
                out.bytes.resize(end, 0);
            }
            (Self::List(_), _) => return Err(Fault::expected("an array", value)),
            (Self::Array(count, inner), Value::Array(values)) if values.len() as u64 == *count => {
                out.each(values, |_| inner)?;
            }
            (Self::Array(count, _), _) => return Err(Fault::expected(format_args!("an array of {count}"), value)),
            (Self::Tuple(types), Value::Array(values)) if values.len() == types.len() => {
                out.each(values, |index| &types[index])?;
            }
            (Self::Tuple(types), _) => {
                return Err(Fault::expected(format_args!("an array of {}", types.len()), value));
            }
            (Self::Struct(fields), _) => out.fields(fields, value)?,
            (Self::Extensible(fields), Value::Object(object)) => {
                // The server has defaults for the last fields.
                let is_given = |(name, _): &(String, Type)| object.contains_key(name);
                let count = fields.iter().rposition(is_given).map_or(0, |last| last + 1);
                let at = out.bytes.len();
                out.bytes.extend([0; 8]);
                out.named_fields(fields, count, object)?;
                let length = (out.bytes.len() - at - 8) as u64;
                out.bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
            }
            (Self::Extensible(fields), _) => return Err(no_object(fields, value)),
            (Self::Memory { may_write }, _) => {
                let memory = if *may_write { Memory::to_write(value) } else { Memory::to_read(value) }?;
                out.bytes.extend((out.memory.len() as u32).to_le_bytes());
                out.memory.push(memory);
            }
            (Self::Stream(_), _) => return Err(Fault::new("a stream is no argument")),
            (Self::Recursive(_) | Self::Again(_), _) => return self.encode(value, out),
        }
        Ok(())
    }

    /// Returns whether `null` is a value of the type, so that an `Option` of it needs another form.
    pub(super) fn may_be_null(&self) -> bool {
        // A type that is deeper in itself has no values.
        self.may_be_null_within(DEPTH_MAX)
    }

    fn may_be_null_within(&self, depth_left: u32) -> bool {
        self.resolved(|ty| match ty {
            Self::Unit | Self::Option(_) => true,
            Self::Struct(fields) if fields.is_empty() => true,
            Self::Struct(fields) if depth_left > 0 => {
                newtype(fields).is_some_and(|only| only.may_be_null_within(depth_left - 1))
            }
            _ => false,
        })
    }
}

impl Encoded {
    fn list(&mut self, bytes: impl ExactSizeIterator<Item = u8>) {
        self.bytes.extend((bytes.len() as u64).to_le_bytes());
        self.bytes.extend(bytes);
    }

    fn each<'a>(&mut self, values: &[Value], type_of: impl Fn(usize) -> &'a Type) -> Result<(), Fault> {
        for (index, value) in values.iter().enumerate() {
            type_of(index).encode(value, self).map_err(|fault| fault.at(index))?;
        }
        Ok(())
    }

    fn fields(&mut self, fields: &Fields, value: &Value) -> Result<(), Fault> {
        if fields.is_empty() {
            return Type::Unit.encode(value, self);
        }
        if let Some(only) = newtype(fields) {
            return only.encode(value, self);
        }
        if is_unnamed(fields) {
            return match value {
                Value::Array(values) if values.len() == fields.len() => self.each(values, |index| &fields[index].1),
                _ => Err(Fault::expected(format_args!("an array of {}", fields.len()), value)),
            };
        }
        let Value::Object(object) = value else { return Err(no_object(fields, value)) };
        self.named_fields(fields, fields.len(), object)
    }

    /// Appends the first fields, which must be there.
    fn named_fields(&mut self, fields: &Fields, count: usize, object: &Map<String, Value>) -> Result<(), Fault> {
        if let Some(unknown) = object.keys().find(|key| fields.iter().all(|(name, _)| name != *key)) {
            return Err(Fault::new(format!("there is no such field; the fields are {}", names(fields))).at(unknown));
        }
        for (name, ty) in &fields[..count] {
            let value = object.get(name).ok_or_else(|| Fault::new("the field is missing").at(name))?;
            ty.encode(value, self).map_err(|fault| fault.at(name))?;
        }
        Ok(())
    }

    fn variant(
        &mut self,
        variants: &[(String, Fields)],
        value: &Value,
        tag: impl Fn(&mut Self, usize),
    ) -> Result<(), Fault> {
        let (named, content) = match value {
            Value::String(name) => (Some(name), None),
            Value::Object(object) if object.len() == 1 => (object.keys().next(), object.values().next()),
            _ => (None, None),
        };
        let found = variants.iter().position(|(name, _)| Some(name) == named);
        match (found, content) {
            (Some(index), None) if variants[index].1.is_empty() => tag(self, index),
            (Some(index), Some(content)) if !variants[index].1.is_empty() => {
                tag(self, index);
                let (name, fields) = &variants[index];
                self.fields(fields, content).map_err(|fault| fault.at(name))?;
            }
            _ => {
                let forms = variants.iter().map(|(name, fields)| match fields.is_empty() {
                    true => format!("{name:?}"),
                    false => format!("{{{name:?}: ...}}"),
                });
                let forms: Vec<_> = forms.collect();
                return Err(Fault::expected(format_args!("one of {}", forms.join(", ")), value));
            }
        }
        Ok(())
    }
}

fn names(fields: &Fields) -> String {
    fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

fn no_object(fields: &Fields, value: &Value) -> Fault {
    Fault::expected(format_args!("an object with the fields {}", names(fields)), value)
}

impl Memory {
    fn to_read(value: &Value) -> Result<Self, Fault> {
        let text = value.as_str().ok_or_else(|| Fault::expected("a string, or \"@FILE\"", value))?;
        let bytes = match text.strip_prefix('@') {
            None => text.into(),
            Some(file) => std::fs::read(file).map_err(|cause| Fault::new(format!("cannot read {file}: {cause}")))?,
        };
        Ok(Self { bytes, file: None })
    }

    fn to_write(value: &Value) -> Result<Self, Fault> {
        let fault = || Fault::expected("{\"bytes\": N, \"file\": PATH}", value);
        let length = value["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(fault)?;
        let file = value["file"].as_str().filter(|_| value.as_object().is_some_and(|object| object.len() == 2));
        let file = file.ok_or_else(fault)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Fault::new(format!("there is no memory of {length} bytes")))?;
        bytes.resize(length, 0);
        Ok(Self { bytes, file: Some(file.into()) })
    }
}

/// The bytes of an integer, extended to 128 bits.
fn integer(value: &Value, bytes: usize, is_signed: bool) -> Option<[u8; 16]> {
    let text = value.as_str().filter(|_| bytes == 16);
    let unused_bits = 128 - 8 * bytes as u32;
    if is_signed {
        let small = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
        let number = small.or_else(|| text?.parse().ok())?;
        return (number << unused_bits >> unused_bits == number).then_some(number.to_le_bytes());
    }
    let number = value.as_u64().map(u128::from).or_else(|| text?.parse().ok())?;
    (number << unused_bits >> unused_bits == number).then_some(number.to_le_bytes())
}

fn float(value: &Value) -> Result<f64, Fault> {
    match value.as_str() {
        Some("NaN") => Ok(f64::NAN),
        Some("inf") => Ok(f64::INFINITY),
        Some("-inf") => Ok(f64::NEG_INFINITY),
        _ => value.as_f64().ok_or_else(|| Fault::expected("a number, \"NaN\", \"inf\" or \"-inf\"", value)),
    }
}
