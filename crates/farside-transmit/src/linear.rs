//! Pieces of any length, cut one after the other from the units of a circle.

use std::time::Instant;

use super::circular::{Circular, Unit};
use farside_fabric::transport::FabricError;

/// Pieces begin on multiples of this in their unit: words in them are aligned.
const ALIGNMENT: usize = 8;

/// A circle of units of which parts are handed out, so that small pieces do not take a unit each (Seriema, Section 4.2).
///
/// A unit is taken again when none of its parts is held and everything posted with any of them is over.
///
/// *Cost* of a piece: an addition; of one that does not fit into what is left of its unit, a unit.
#[derive(Debug)]
pub struct LinearCircular {
    /// The unit that is being cut, and how much of it is given out. Dropped before the circle, which gives back what nobody holds.
    current: Option<(Unit, usize)>,
    units: Circular,
}

impl LinearCircular {
    /// Cuts the units of a circle.
    pub fn new(units: Circular) -> Self {
        Self { current: None, units }
    }

    /// A piece of so many bytes.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] when that is more than a unit has; those of [`Circular::take`].
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<Unit, FabricError> {
        self.take_with(bytes, Circular::take)
    }

    /// A piece of so many bytes, as soon as there is one.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] when that is more than a unit has; those of [`Circular::take_by`].
    #[inline]
    pub fn take_by(&mut self, bytes: usize, deadline: Instant) -> Result<Unit, FabricError> {
        self.take_with(bytes, |units| units.take_by(deadline))
    }

    #[inline]
    fn take_with(
        &mut self,
        bytes: usize,
        next: impl FnOnce(&mut Circular) -> Result<Unit, FabricError>,
    ) -> Result<Unit, FabricError> {
        if let Some((unit, used)) = &mut self.current
            && bytes <= unit.bytes() - *used
        {
            let piece = unit.cut(*used, bytes);
            *used = (*used + bytes).next_multiple_of(ALIGNMENT).min(unit.bytes());
            return Ok(piece);
        }
        let unit_bytes = self.units.unit_bytes();
        if bytes > unit_bytes {
            return Err(FabricError::OutOfRange { offset: 0, bytes, region_bytes: unit_bytes as u64 });
        }
        // It must not be held when the circle comes to it.
        self.current = None;
        let unit = next(&mut self.units)?;
        let piece = unit.cut(0, bytes);
        self.current = Some((unit, bytes.next_multiple_of(ALIGNMENT).min(unit_bytes)));
        Ok(piece)
    }

    /// The circle.
    pub fn units(&self) -> &Circular {
        &self.units
    }
}
