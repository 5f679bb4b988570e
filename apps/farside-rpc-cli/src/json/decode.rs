//! From bytes to JSON.

use super::*;

/// The bytes that are left, and what reading them may still cost.
struct Input<'a> {
    left: &'a [u8],
    cost_left: usize,
    depth: u32,
}

impl Type {
    /// Reads a value that takes all the bytes.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Value, Fault> {
        let mut input = Input::of(bytes);
        let value = self.read(&mut input)?;
        input.end()?;
        Ok(value)
    }

    /// Reads `count` values that together take all the bytes.
    pub(crate) fn decode_each(&self, count: u64, bytes: &[u8]) -> Result<Vec<Value>, Fault> {
        let mut input = Input::of(bytes);
        let values = (0..count).map(|_| self.read(&mut input)).collect::<Result<_, _>>()?;
        input.end()?;
        Ok(values)
    }

    /// The type of the items that follow a result of this type.
    pub(crate) fn items(&self) -> Option<&Self> {
        fn of(fields: &Fields) -> Option<&Type> {
            fields.iter().find_map(|(_, ty)| ty.items())
        }
        match self {
            Self::Stream(items) => Some(items),
            Self::Option(inner) => inner.items(),
            Self::Recursive(recursive) => recursive.get()?.items(),
            Self::Tuple(types) => types.iter().find_map(Self::items),
            Self::Struct(fields) | Self::Extensible(fields) => of(fields),
            Self::Result(variants) => variants.iter().find_map(|(_, fields)| of(fields)),
            Self::Enum(variants) => variants.iter().find_map(|(_, fields)| of(fields)),
            _ => None,
        }
    }

    fn read(&self, input: &mut Input<'_>) -> Result<Value, Fault> {
        input.depth = deeper(input.depth)?;
        let value = self.resolved(|ty| ty.read_part(input))?;
        input.depth -= 1;
        Ok(value)
    }

    fn read_part(&self, input: &mut Input<'_>) -> Result<Value, Fault> {
        input.pay(VALUE_COST)?;
        Ok(match self {
            Self::Unit => Value::Null,
            Self::Bool => match input.array()? {
                [truth @ (0 | 1)] => Value::Bool(truth == 1),
                _ => return Err(invalid("bool")),
            },
            Self::Char => {
                let character = char::from_u32(u32::from_le_bytes(input.array()?));
                character.ok_or_else(|| invalid("character"))?.to_string().into()
            }
            Self::Text => {
                let length = input.length()?;
                let text = std::str::from_utf8(input.take(length)?);
                text.map_err(|_| invalid("UTF-8"))?.into()
            }
            Self::Duration => {
                let value = input.fields(&duration())?;
                if value["nanos"].as_u64() >= Some(NANOS_PER_SECOND) {
                    return Err(invalid("duration"));
                }
                value
            }
            Self::Integer { name, bytes, is_signed, is_zero_allowed } => {
                let taken = input.take(*bytes)?;
                let is_negative = *is_signed && taken.last().is_some_and(|last| *last > 0x7f);
                let mut number = [if is_negative { 0xff } else { 0 }; 16];
                number[..*bytes].copy_from_slice(taken);
                if number == [0; 16] && !is_zero_allowed {
                    return Err(invalid(name));
                }
                let (unsigned, signed) = (u128::from_le_bytes(number), i128::from_le_bytes(number));
                if let (true, Ok(signed)) = (is_negative, i64::try_from(signed)) {
                    signed.into()
                } else if is_negative {
                    signed.to_string().into()
                } else {
                    u64::try_from(unsigned).map_or_else(|_| unsigned.to_string().into(), Value::from)
                }
            }
            Self::Float { bytes: 4 } => float(f32::from_le_bytes(input.array()?).into()),
            Self::Float { .. } => float(f64::from_le_bytes(input.array()?)),
            Self::Option(inner) => match input.array()? {
                [0] => Value::Null,
                [1] => match inner.read(input)? {
                    value if inner.may_be_null() => Map::from_iter([("Some".into(), value)]).into(),
                    value => value,
                },
                _ => return Err(invalid("Option")),
            },
            Self::Result(variants) => {
                let [tag] = input.array()?;
                input.variant(variants, tag.into())?
            }
            Self::Enum(variants) => {
                let tag = u32::from_le_bytes(input.array()?);
                input.variant(variants, tag)?
            }
            Self::List(inner) => {
                let length = input.length()?;
                let before = input.left.len();
                let values = input.each(length as u64, |_| inner)?;
                let used = before - input.left.len();
                input.take(length.saturating_sub(used))?;
                values
            }
            Self::Array(count, inner) => input.each(*count, |_| inner)?,
            Self::Tuple(types) => input.each(types.len() as u64, |index| &types[index])?,
            Self::Struct(fields) => input.fields(fields)?,
            Self::Extensible(fields) => {
                let length = input.length()?;
                let left = input.take(length)?;
                let mut inner = Input { left, ..*input };
                let value = inner.named_fields(fields);
                input.cost_left = inner.cost_left;
                value?
            }
            Self::Memory { .. } => {
                return Err(Fault::new("memory in a result has no form in JSON: call the procedure from a program"));
            }
            Self::Stream(_) => input.array::<4>().map(|_| Value::Null)?,
            Self::Recursive(_) | Self::Again(_) => self.read(input)?,
        })
    }
}

impl<'a> Input<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { left: bytes, cost_left: COST_MAX, depth: 0 }
    }

    fn end(&self) -> Result<(), Fault> {
        match self.left.len() {
            0 => Ok(()),
            count => Err(Fault::new(format!("the server sent {count} bytes too many"))),
        }
    }

    fn pay(&mut self, cost: usize) -> Result<(), Fault> {
        let left = self.cost_left.checked_sub(cost);
        self.cost_left =
            left.ok_or_else(|| Fault::new("it is too large for JSON: call the procedure from a program"))?;
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Fault> {
        let (taken, left) = self.left.split_at_checked(bytes).ok_or_else(|| invalid("whole value"))?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.take(N).map(|taken| taken.try_into().expect("it has this length"))
    }

    /// A number of elements, each of which takes a byte at least.
    fn length(&mut self) -> Result<usize, Fault> {
        let length = usize::try_from(u64::from_le_bytes(self.array()?)).unwrap_or(usize::MAX);
        if length > self.left.len() { Err(invalid("whole value")) } else { Ok(length) }
    }

    fn each<'t>(&mut self, count: u64, type_of: impl Fn(usize) -> &'t Type) -> Result<Value, Fault> {
        let read = |index| type_of(index as usize).read(self).map_err(|fault| fault.at(index));
        (0..count).map(read).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    fn fields(&mut self, fields: &Fields) -> Result<Value, Fault> {
        if fields.is_empty() {
            return Ok(Value::Null);
        }
        if let Some(only) = newtype(fields) {
            return only.read(self);
        }
        if is_unnamed(fields) {
            return self.each(fields.len() as u64, |index| &fields[index].1);
        }
        self.named_fields(fields)
    }

    fn named_fields(&mut self, fields: &Fields) -> Result<Value, Fault> {
        let mut object = Map::new();
        for (name, ty) in fields {
            self.pay(name.len())?;
            object.insert(name.clone(), ty.read(self).map_err(|fault| fault.at(name))?);
        }
        Ok(object.into())
    }

    fn variant(&mut self, variants: &[(String, Fields)], tag: u32) -> Result<Value, Fault> {
        let (name, fields) = variants.get(tag as usize).ok_or_else(|| invalid("variant of the enum"))?;
        self.pay(name.len())?;
        if fields.is_empty() {
            return Ok(name.as_str().into());
        }
        let value = self.fields(fields).map_err(|fault| fault.at(name))?;
        Ok(Map::from_iter([(name.clone(), value)]).into())
    }
}

fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => number.into(),
        None if number.is_nan() => "NaN".into(),
        None => if number > 0.0 { "inf" } else { "-inf" }.into(),
    }
}
