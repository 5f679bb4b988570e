//! The descriptions of jobs and areas.

use std::collections::BTreeMap;

use farside_inspect::__private::doors::Guest;
use farside_inspect::__private::element::{self, with_fields};
use farside_inspect::__private::protocol::Part;
use farside_inspect::__private::spans::elements;
use farside_inspect::{About, ElementType, Field, JobId, Kind, Role};

use super::error::InspectError;

/// A job that can be inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its name and number.
    pub id: JobId,
    /// The number of its processes.
    pub process_count: u32,
    /// The processes that have a door and answered.
    pub processes: Vec<About>,
    /// The processes that have a door and did not answer.
    pub silent: Vec<u32>,
    /// The processes that run and have no door, for which the launcher answers. It tells what their
    /// workers do; they show no areas.
    pub by_launcher: Vec<About>,
}

impl JobInfo {
    pub(super) fn new(id: JobId) -> Self {
        Self { id, process_count: 0, processes: Vec::new(), silent: Vec::new(), by_launcher: Vec::new() }
    }

    /// Returns whether the job is to have a door on the network, by `FARSIDE_INSPECT`, and has none
    /// because its process 0 has shown nothing yet. Known of jobs of `farside run`.
    #[must_use]
    pub fn awaits_network(&self) -> bool {
        self.by_launcher.iter().any(|about| about.awaits_network)
    }

    /// Adds those that have no door themselves.
    pub(super) fn add_launched(&mut self, launched: BTreeMap<u32, Guest>) {
        for (process, guest) in launched {
            self.process_count = self.process_count.max(guest.about.process_count);
            if !self.silent.contains(&process) && self.processes.iter().all(|about| about.process != process) {
                self.by_launcher.push(guest.about);
            }
        }
    }

    /// Returns whether any process answered, or should.
    pub(super) fn is_there(&self) -> bool {
        !(self.processes.is_empty() && self.silent.is_empty() && self.by_launcher.is_empty())
    }
}

/// An area of a job, with the parts of all workers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AreaInfo {
    /// The name.
    pub name: String,
    /// The type of the elements.
    pub element: ElementType,
    /// Its fields, if it is a struct.
    pub fields: Vec<Field>,
    /// The shape of the whole.
    pub shape: Vec<u64>,
    /// The units of the elements. Empty if they have none.
    pub units: String,
    /// The role.
    pub role: Role,
    /// How it is best drawn.
    pub kind: Kind,
    /// True if readers may write it.
    pub is_writable: bool,
    /// The coordinates of its first place, by dimension. Empty if the program gave none.
    pub origin: Vec<f64>,
    /// The distance of two places, by dimension. Empty if the program gave none.
    pub spacing: Vec<f64>,
    /// The parts, by worker.
    pub parts: Vec<PartInfo>,
}

/// One worker's part of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartInfo {
    /// The process.
    pub process: u32,
    /// The worker.
    pub worker: u32,
    /// Where the part begins in the whole.
    pub origin: Vec<u64>,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The step that was published last.
    pub step: Option<u64>,
}

impl AreaInfo {
    /// The step that all workers have published.
    #[must_use]
    pub fn step(&self) -> Option<u64> {
        self.parts.iter().map(|part| part.step).min().flatten()
    }

    /// The type of the elements with its fields, such as `f64` or `struct {mass: f32, kind: u32}`.
    #[must_use]
    pub fn type_name(&self) -> String {
        with_fields(self.element, &self.fields)
    }

    /// Returns whether all workers have the same, such as the value of a parameter.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.role, Role::Parameter { .. } | Role::Action | Role::Probe)
    }

    fn described(&self) -> String {
        format!("{}{:?}", self.type_name(), self.shape)
    }

    /// Returns the area, if all workers show the same under its name and no two have an element in
    /// common.
    pub(super) fn only(mut found: Vec<Self>) -> Result<Self, InspectError> {
        if found.len() > 1 {
            let kinds = found.iter().map(Self::described).collect::<Vec<_>>().join(", ");
            return Err(InspectError::Differ { name: found.remove(0).name, kinds });
        }
        let area = found.remove(0);
        if area.is_shared() {
            return Ok(area);
        }
        for (index, one) in area.parts.iter().enumerate() {
            if let Some(other) = area.parts[index + 1..].iter().find(|other| one.overlaps(other)) {
                let (one, other) = (one.worker, other.worker);
                return Err(InspectError::Overlap { name: area.name, one, other });
            }
        }
        Ok(area)
    }
}

impl PartInfo {
    fn overlaps(&self, other: &Self) -> bool {
        let own = self.origin.iter().zip(&self.shape);
        let others = other.origin.iter().zip(&other.shape);
        own.zip(others).all(|((a, length_a), (b, length_b))| *a < b + length_b && *b < a + length_a)
    }
}

/// Puts the parts of all processes together, by name. Parts of different types or shapes make
/// different areas.
pub(super) fn areas(parts: Vec<(u32, Vec<Part>)>) -> Result<Vec<AreaInfo>, InspectError> {
    let mut areas: BTreeMap<(String, String, Vec<u64>), AreaInfo> = BTreeMap::new();
    for (process, parts) in parts {
        for part in parts {
            if !is_possible(&part) {
                return Err(InspectError::Invalid { process, name: part.name });
            }
            let Part { name, worker, element, fields, whole, origin, shape, units, step, .. } = part;
            let Part { role, kind, is_writable, zero, spacing, .. } = part;
            let key = (name.clone(), with_fields(element, &fields), whole.clone());
            let area = || {
                let (shape, origin, parts) = (whole, zero, Vec::new());
                AreaInfo { name, element, fields, shape, units, role, kind, is_writable, origin, spacing, parts }
            };
            let area = areas.entry(key).or_insert_with(area);
            area.is_writable &= is_writable;
            area.parts.push(PartInfo { process, worker, origin, shape, step });
        }
    }
    let mut areas: Vec<AreaInfo> = areas.into_values().collect();
    for area in &mut areas {
        area.parts.sort_by_key(|part| part.worker);
        // The numbers of several workers have a place for each of them.
        if area.role == Role::Gauge && area.parts.len() > 1 {
            area.shape = vec![area.parts.len() as u64];
            for (part, place) in area.parts.iter_mut().zip(0..) {
                (part.origin, part.shape) = (vec![place], vec![1]);
            }
        }
    }
    Ok(areas)
}

fn is_possible(part: &Part) -> bool {
    let Part { element, fields, whole, origin, shape, .. } = part;
    let is_inside = |((origin, length), whole): ((&u64, &u64), &u64)| {
        *length > 0 && origin.checked_add(*length).is_some_and(|end| end <= *whole)
    };
    origin.len() == whole.len()
        && shape.len() == whole.len()
        && element::is_possible(*element, fields)
        && elements(shape, element.bytes()).is_some()
        && origin.iter().zip(shape).zip(whole).all(is_inside)
}
