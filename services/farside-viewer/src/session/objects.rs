//! Jobs, areas and numbers as JSON.

use farside_inspect::{About, Field, Kind, Role};
use serde_json::{Value, json};

use crate::client::{AreaInfo, InspectError, JobInfo, Missing, Number, RawFrame};

/// A job: `name`, `id`, `process_count`, `processes`, `silent`, `by_launcher`, `awaits_network`.
#[must_use]
pub fn job_object(job: &JobInfo) -> Value {
    let JobInfo { id, process_count, processes, silent, by_launcher, .. } = job;
    let process = |about: &About| json!({ "process": about.process, "system_process": about.system_process, "network": about.network });
    let [processes, by_launcher] = [processes, by_launcher].map(|all| all.iter().map(process).collect::<Vec<Value>>());
    json!({
        "name": id.name, "id": id.id, "process_count": process_count, "processes": processes, "silent": silent,
        "by_launcher": by_launcher, "awaits_network": job.awaits_network(),
    })
}

/// An area: `name`, `type` (with `fields` and `bytes_each` of a struct), `shape`, `units`, `step`,
/// `parts`, `role`, `kind`, `writable`, and as far as the program gave them, `bounds` of a
/// parameter, `origin` and `spacing`.
#[must_use]
pub fn area_object(area: &AreaInfo) -> Value {
    let AreaInfo { name, element, shape, units, parts, .. } = area;
    let (role, bounds) = match area.role {
        Role::View => ("view", None),
        Role::Memory => ("memory", None),
        Role::Gauge => ("gauge", None),
        Role::Parameter { least, most } => ("parameter", Some([least, most])),
        Role::Action => ("action", None),
        Role::Probe => ("probe", None),
    };
    let kind = match area.kind {
        Kind::Plain => "plain",
        Kind::Line => "line",
        Kind::Image => "image",
        Kind::Table => "table",
        Kind::Tree => "tree",
        Kind::HexBoard => "hex-board",
    };
    let parts: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({
                "process": part.process, "worker": part.worker, "origin": part.origin, "shape": part.shape,
                "step": part.step,
            })
        })
        .collect();
    let mut object = json!({
        "name": name, "type": element.name(), "shape": shape, "units": units, "step": area.step(), "parts": parts,
        "role": role, "kind": kind, "writable": area.is_writable,
    });
    add_fields(&mut object, element.bytes(), &area.fields);
    if let Some(bounds) = bounds {
        object["bounds"] = json!(bounds);
    }
    if !area.origin.is_empty() {
        object["origin"] = json!(area.origin);
    }
    if !area.spacing.is_empty() {
        object["spacing"] = json!(area.spacing);
    }
    object
}

/// Says of a struct which fields it has: `bytes_each` and `fields`, each with `name`, `type`,
/// `offset` and `shape`.
pub(super) fn add_fields(object: &mut Value, bytes: usize, fields: &[Field]) {
    if fields.is_empty() {
        return;
    }
    let described = fields.iter().map(|Field { name, element, offset, shape, .. }| {
        json!({ "name": name, "type": element.name(), "offset": offset, "shape": shape })
    });
    object["fields"] = described.collect();
    object["bytes_each"] = bytes.into();
}

/// The elements of a frame, in lists as its shape says. Structs are objects.
///
/// # Errors
/// [`InspectError::Value`].
pub fn values(frame: &RawFrame) -> Result<Value, InspectError> {
    let values: Vec<Value> = match &frame.fields[..] {
        [] => frame.numbers()?.into_iter().map(value).collect(),
        fields => {
            let each = frame.element.bytes();
            let mut objects: Vec<Value> = (0..frame.bytes.len() / each).map(|_| json!({})).collect();
            for (column, field) in frame.columns().iter().zip(fields) {
                let numbers: Vec<Value> = column.numbers()?.into_iter().map(value).collect();
                let shape: Vec<u64> = field.shape.iter().map(|length| u64::from(*length)).collect();
                let of_each = numbers.len() / objects.len().max(1);
                for (object, numbers) in objects.iter_mut().zip(numbers.chunks(of_each.max(1))) {
                    object[&field.name] = nested(numbers.to_vec(), &shape);
                }
            }
            objects
        }
    };
    Ok(nested(values, &frame.shape))
}

/// Puts values into lists of a shape.
fn nested(mut values: Vec<Value>, shape: &[u64]) -> Value {
    for length in shape.iter().rev() {
        let mut inner = values.into_iter();
        let mut outer = Vec::new();
        while inner.len() > 0 {
            outer.push(Value::Array(inner.by_ref().take(*length as usize).collect()));
        }
        values = outer;
    }
    values.pop().unwrap_or(Value::Null)
}

/// The missing part of a frame: `worker` and `process`, which may be `null`, `origin` and `shape`.
#[must_use]
pub fn missing_object(missing: &Missing) -> Value {
    let (worker, process) = missing.worker.unzip();
    json!({ "worker": worker, "process": process, "origin": missing.origin, "shape": missing.shape })
}

/// A number. Those that JSON does not have are `"NaN"`, `"inf"` and `"-inf"`. One that is missing
/// is `null`.
#[must_use]
pub fn value(number: Number) -> Value {
    match number {
        Number::Bool(value) => value.into(),
        Number::Unsigned(value) => value.into(),
        Number::Signed(value) => value.into(),
        Number::F32(value) if value.is_finite() => {
            // The shortest digits of the narrower type.
            value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
        }
        Number::F64(value) if value.is_finite() => value.into(),
        Number::Missing => Value::Null,
        number => number.to_string().into(),
    }
}
