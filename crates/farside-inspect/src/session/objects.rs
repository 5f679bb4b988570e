//! Jobs, areas and numbers as JSON.

use serde_json::{Value, json};

use crate::client::{AreaInfo, JobInfo, Number};
use crate::protocol::About;

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

/// An area: `name`, `type`, `shape`, `units`, `step`, `parts`.
#[must_use]
pub fn area_object(area: &AreaInfo) -> Value {
    let AreaInfo { name, element, shape, units, parts, .. } = area;
    let parts: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({
                "process": part.process, "worker": part.worker, "origin": part.origin, "shape": part.shape,
                "step": part.step,
            })
        })
        .collect();
    json!({
        "name": name, "type": element.name(), "shape": shape, "units": units, "step": area.step(), "parts": parts,
    })
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
