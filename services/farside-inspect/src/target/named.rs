//! [`Gauge`] and [`Parameter`]: single numbers, without steps.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::areas::{Area, Areas, Source, number};
use super::error::ExposeError;
use super::host::Host;
use crate::protocol::{Part, Role};

/// A number that the program sets and readers see: [`Expose::gauge`](crate::Expose::gauge).
///
/// *Cost*: a store. Dropping it ends it.
pub struct Gauge(Number);

/// A number that readers set and the program uses: [`Expose::parameter`](crate::Expose::parameter).
///
/// Readers change it at the same step at all workers that [publish](crate::View::publish) steps:
/// within the first publication of that step. So look at it behind that publication, or publish at
/// each step what was computed before the change. A worker that publishes none sees a change at its
/// next look.
///
/// *Cost* of a look: a load. Dropping it ends it.
pub struct Parameter(Number);

struct Number {
    bits: Arc<AtomicU64>,
    area: Arc<Area>,
    areas: Arc<Areas>,
}

impl Number {
    fn show(host: Host<'_>, part: Part, value: f64) -> Result<Self, ExposeError> {
        let doorway = host.doorway()?;
        let bits = Arc::new(AtomicU64::new(value.to_bits()));
        let area = Area::new(part, Source::Number(bits.clone()));
        doorway.areas().add(&area)?;
        Ok(Self { bits, area, areas: doorway.areas().clone() })
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.areas.remove(&self.area);
    }
}

impl Gauge {
    pub(super) fn show(host: Host<'_>, part: Part) -> Result<Self, ExposeError> {
        Number::show(host, part, f64::NAN).map(Self)
    }

    /// Sets the number. It is `NaN` at first.
    #[inline]
    pub fn set(&self, value: f64) {
        // Relaxed: the number publishes nothing else.
        self.0.bits.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Parameter {
    pub(super) fn show(
        host: Host<'_>,
        mut part: Part,
        default: f64,
        bounds: RangeInclusive<f64>,
    ) -> Result<Self, ExposeError> {
        let (least, most) = bounds.into_inner();
        // Also false for NaN.
        if !(least <= default && default <= most && least.is_finite() && most.is_finite()) {
            return Err(ExposeError::Bounds { name: part.name, default, least, most });
        }
        part.role = Role::Parameter { least, most };
        part.is_writable = true;
        Number::show(host, part, default).map(Self)
    }

    /// The value at this step.
    #[inline]
    #[must_use]
    pub fn get(&self) -> f64 {
        number(&self.0.bits)
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&number(&self.0.bits)).finish()
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parameter").field(&self.get()).finish()
    }
}
