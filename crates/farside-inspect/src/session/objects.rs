//! Jobs, areas and numbers as JSON.

use serde_json::{Value, json};

use crate::client::{AreaInfo, JobInfo, Number};
use crate::protocol::{About, Kind, Role};

/// A job: `name`, `id`, `process_count`, `processes`, `silent`.
#[must_use]
pub fn job_object(job: &JobInfo) -> Value {
    let JobInfo { id, process_count, processes, silent, .. } = job;
    let process = |about: &About| json!({ "process": about.process, "system_process": about.system_process });
    let processes: Vec<Value> = processes.iter().map(process).collect();
    json!({
        "name": id.name, "id": id.id, "process_count": process_count, "processes": processes, "silent": silent,
    })
}

/// An area: `name`, `type`, `shape`, `units`, `step`, `parts`, `role`, `kind`, `writable`, and as
/// far as the program gave them, `bounds` of a parameter, `origin` and `spacing`.
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

/// A number. Those that JSON does not have are `"NaN"`, `"inf"` and `"-inf"`.
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
        number => number.to_string().into(),
    }
}
