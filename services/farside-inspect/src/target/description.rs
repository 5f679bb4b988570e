//! Descriptions of areas, as a program gives them: names, shapes, places, units and coordinates.

use super::error::ExposeError;
use crate::element::{Element, is_possible};
use crate::protocol::Part;
use crate::spans::elements;

/// The most dimensions of an area.
pub(super) const DIMENSIONS_MAX: usize = 8;
/// The most bytes of the name of an area, and of its units.
const NAME_BYTES_MAX: usize = 200;
const UNITS_BYTES_MAX: usize = 40;

/// Lengths as they travel.
pub(super) fn wide(lengths: &[usize]) -> Vec<u64> {
    lengths.iter().map(|length| *length as u64).collect()
}

impl Part {
    pub(super) fn wrong(&self, what: &'static str) -> ExposeError {
        ExposeError::Shape { name: self.name.clone(), what }
    }

    /// Checks that readers can write the name, and print the units.
    pub(super) fn check(&self) -> Result<(), ExposeError> {
        let Self { name, units, .. } = self;
        let is_long = |text: &str, max| text.len() > max || text.chars().any(char::is_control);
        if name.is_empty() || name.contains(['[', ']']) || is_long(name, NAME_BYTES_MAX) {
            return Err(ExposeError::Name { name: name.clone(), max: NAME_BYTES_MAX });
        }
        if is_long(units, UNITS_BYTES_MAX) {
            return Err(ExposeError::Units { name: name.clone(), units: units.clone(), max: UNITS_BYTES_MAX });
        }
        Ok(())
    }

    /// Checks that the part can be at its place of the whole.
    pub(super) fn check_place(&self) -> Result<(), ExposeError> {
        let Self { shape, whole, origin, .. } = self;
        if shape.len() > DIMENSIONS_MAX {
            return Err(self.wrong("it has more than 8 dimensions; join some"));
        }
        if whole.len() != shape.len() || origin.len() != shape.len() {
            return Err(self.wrong("part, whole and origin have different numbers of dimensions; give each the same"));
        }
        if shape.contains(&0) {
            return Err(
                self.wrong("a dimension of the part has the length 0; show nothing on a worker without elements")
            );
        }
        let mut dimensions = shape.iter().zip(origin).zip(whole);
        if !dimensions.all(|((length, origin), whole)| origin.checked_add(*length).is_some_and(|end| end <= *whole)) {
            return Err(self.wrong("the part is not inside the whole; move its origin, or make the whole larger"));
        }
        Ok(())
    }

    /// Checks that the coordinates have a number for each dimension, or none.
    pub(super) fn check_axes(&self) -> Result<(), ExposeError> {
        if [&self.zero, &self.spacing].iter().all(|axes| axes.is_empty() || axes.len() == self.shape.len()) {
            return Ok(());
        }
        Err(self.wrong("its coordinates have another number of dimensions; give one for each, or none"))
    }

    /// Sets the type of the elements. Returns the number of elements.
    pub(super) fn set_element<T: Element>(&mut self) -> Result<usize, ExposeError> {
        (self.element, self.fields) = (T::TYPE, T::fields());
        if !is_possible(self.element, &self.fields) {
            return Err(self.wrong(
                "its elements have more than 256 fields, or one with more than 8 dimensions or a name of more than \
                 100 bytes; show fewer, or in several areas",
            ));
        }
        let count = elements(&self.shape, self.element.bytes());
        count.ok_or_else(|| self.wrong("its elements have more bytes than an address space; make it smaller"))
    }
}
