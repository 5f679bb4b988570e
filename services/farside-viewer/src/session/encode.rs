//! Numbers in JSON as elements.

use farside_inspect::ElementType;
use serde_json::Value;

use super::SessionError;

/// The most elements that are made of one number.
const REPEATED_MAX: u64 = 1 << 24;

/// Makes elements of a list of numbers, or of one number for all places.
pub(super) fn encode(values: &Value, count: u64, element: ElementType) -> Result<Vec<u8>, SessionError> {
    let one =
        |value| encode_one(value, element).ok_or_else(|| SessionError::Values(format!("{value} is no {element}")));
    match values {
        Value::Array(values) => {
            let mut bytes = Vec::with_capacity(values.len() * element.bytes());
            for value in values {
                bytes.extend_from_slice(&one(value)?);
            }
            Ok(bytes)
        }
        _ if count > REPEATED_MAX => Err(SessionError::Values(format!("{count} places are selected: select fewer"))),
        value => Ok(one(value)?.repeat(count as usize)),
    }
}

/// Makes an element of a number. There is none if the type does not have the number.
fn encode_one(value: &Value, element: ElementType) -> Option<Vec<u8>> {
    fn whole<T: TryFrom<i128>>(value: &Value) -> Option<T> {
        let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
        // Pages have no other numbers than floats.
        let float =
            || value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e18).map(|float| float as i128);
        number.or_else(float).and_then(|number| T::try_from(number).ok())
    }
    let float = || match value {
        Value::String(text) if ["NaN", "inf", "-inf"].contains(&text.as_str()) => text.parse::<f64>().ok(),
        value => value.as_f64(),
    };
    let bytes = match element {
        ElementType::Bool => {
            vec![u8::from(value.as_bool().or_else(|| whole::<u8>(value).filter(|one| *one < 2).map(|one| one == 1))?)]
        }
        ElementType::U8 => whole::<u8>(value)?.to_ne_bytes().to_vec(),
        ElementType::I8 => whole::<i8>(value)?.to_ne_bytes().to_vec(),
        ElementType::U16 => whole::<u16>(value)?.to_ne_bytes().to_vec(),
        ElementType::I16 => whole::<i16>(value)?.to_ne_bytes().to_vec(),
        ElementType::U32 => whole::<u32>(value)?.to_ne_bytes().to_vec(),
        ElementType::I32 => whole::<i32>(value)?.to_ne_bytes().to_vec(),
        ElementType::U64 => whole::<u64>(value)?.to_ne_bytes().to_vec(),
        ElementType::I64 => whole::<i64>(value)?.to_ne_bytes().to_vec(),
        ElementType::F32 => (float()? as f32).to_ne_bytes().to_vec(),
        ElementType::F64 => float()?.to_ne_bytes().to_vec(),
        ElementType::C64 => [(float()? as f32).to_ne_bytes(), [0; 4]].concat(),
        ElementType::C128 => [float()?.to_ne_bytes(), [0; 8]].concat(),
        ElementType::Struct(_) => return None,
    };
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_elements_of_the_type() {
        let all = |values: Value, element| encode(&values, 2, element).unwrap();
        assert_eq!(all(json!([1, 255]), ElementType::U8), [1, 255]);
        assert_eq!(all(json!(-1), ElementType::I16), [255; 4]);
        assert_eq!(all(json!([true, 0]), ElementType::Bool), [1, 0]);
        assert_eq!(all(json!(2.0), ElementType::U32), [2, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(
            all(json!([0.5, "inf"]), ElementType::F32),
            [0.5_f32.to_ne_bytes(), f32::INFINITY.to_ne_bytes()].concat()
        );
        assert_eq!(all(json!([u64::MAX]), ElementType::U64), [255; 8]);
        for (values, element) in [
            (json!([256]), ElementType::U8),
            (json!(-1), ElementType::U64),
            (json!(0.5), ElementType::I32),
            (json!([2]), ElementType::Bool),
            (json!("one"), ElementType::F64),
            (json!([[1]]), ElementType::F64),
            (json!(null), ElementType::F64),
        ] {
            let error = encode(&values, 2, element).unwrap_err();
            assert!(error.to_string().contains(element.name()), "{error}");
        }
        assert!(encode(&json!(1), u64::MAX, ElementType::U8).is_err());
    }
}
