//! Pieces of any length, cut one after the other from the units of a circle.

use std::time::Instant;

use super::circular::{Circular, Unit};
use farside_fabric::transport::FabricError;

/// Pieces begin on multiples of this in their unit, so that words in them are aligned.
const ALIGNMENT: usize = 8;

/// A circle of units that are given out in parts, so that small pieces do not take a unit each
/// (Seriema, Section 4.2).
///
/// A unit is reused when none of its parts is held and every operation posted with them is over.
///
/// *Cost* of a piece: an addition, or a unit if the piece does not fit into the rest of the current
/// one.
#[derive(Debug)]
pub struct LinearCircular {
    /// The current unit, and the number of its bytes that are given out. Dropped before the circle,
    /// whose drop gives back units that are not held.
    current: Option<(Unit, usize)>,
    units: Circular,
}

impl LinearCircular {
    /// Creates a divider of a circle's units.
    pub fn new(units: Circular) -> Self {
        Self { current: None, units }
    }

    /// Takes a piece of `bytes` bytes.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] if that exceeds a unit; [`FabricError::MemoryLimit`] if no unit
    /// is free and their number is at its maximum; the error of the source.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<Unit, FabricError> {
        self.take_with(bytes, Circular::take)
    }

    /// Takes a piece of `bytes` bytes, as soon as there is one.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`] if that exceeds a unit; [`FabricError::MemoryLimit`] if the next
    /// unit is held, so that waiting is useless; [`FabricError::Deadline`]; the error of the
    /// source.
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
        // The unit must not be held when the circle reaches it.
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
