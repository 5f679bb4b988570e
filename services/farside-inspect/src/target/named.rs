//! [`Number`] and [`Shown`]: values with a name and without steps.
//!
//! A named value has a type and a reader: a number, or a function that the program runs when it is
//! asked. A number may have bounds within which readers set it.

use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside::{Error, Worker};

use super::areas::{Listed, Source, number};
use super::error::ExposeError;
use super::host::Host;
use super::questions;
use crate::protocol::{Kind, Part, Role};

/// A number that the program shows under a name: a [gauge](crate::Expose::gauge), which the program
/// sets, or a [parameter](crate::Expose::parameter), which readers set.
///
/// Readers change a parameter at the same step at all workers that [publish](crate::View::publish)
/// steps: within the first publication of that step. So look at it behind that publication, or
/// publish at each step what was computed before the change. A worker that publishes none sees a
/// change at its next look.
///
/// *Cost*: a load or a store. Dropping it ends it.
pub struct Number {
    bits: Arc<AtomicU64>,
    _listed: Listed,
}

/// An [action](crate::Expose::action) or a [probe](crate::Expose::probe) of this worker. Dropping
/// it ends it.
pub struct Shown {
    /// The function belongs to its worker's thread.
    name: Rc<str>,
    _listed: Listed,
}

impl Number {
    pub(super) fn gauge(host: Host<'_>, name: &str) -> Result<Self, ExposeError> {
        Self::show(host, host.part(name, Role::Gauge)?, f64::NAN)
    }

    pub(super) fn parameter(
        host: Host<'_>,
        name: &str,
        default: f64,
        bounds: RangeInclusive<f64>,
    ) -> Result<Self, ExposeError> {
        let (least, most) = bounds.into_inner();
        let part = host.part(name, Role::Parameter { least, most })?;
        // Also false for NaN.
        if !(least <= default && default <= most && least.is_finite() && most.is_finite()) {
            return Err(ExposeError::Bounds { name: part.name, default, least, most });
        }
        Self::show(host, Part { is_writable: true, ..part }, default)
    }

    fn show(host: Host<'_>, part: Part, value: f64) -> Result<Self, ExposeError> {
        let bits = Arc::new(AtomicU64::new(value.to_bits()));
        let _listed = host.list(part, Source::Named(Some(bits.clone())))?;
        Ok(Self { bits, _listed })
    }

    /// Sets the number of this worker. A gauge is `NaN` at first. A parameter is set by readers at
    /// all workers; if the program sets it, it should do so at all of them, too.
    #[inline]
    pub fn set(&self, value: f64) {
        // Relaxed: the number publishes nothing else.
        self.bits.store(value.to_bits(), Ordering::Relaxed);
    }

    /// The value at this step.
    #[inline]
    #[must_use]
    pub fn get(&self) -> f64 {
        number(&self.bits)
    }
}

impl Shown {
    pub(super) fn of(
        me: &Worker,
        name: &str,
        (role, kind): (Role, Kind),
        function: impl FnMut(&Worker, &str) -> Result<Vec<u8>, Error> + 'static,
    ) -> Result<Self, ExposeError> {
        let host = Host::Worker(me);
        let _listed = host.list(Part { kind, ..host.part(name, role)? }, Source::Named(None))?;
        questions::keep(name, role, function);
        Ok(Self { name: name.into(), _listed })
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        questions::end(&self.name);
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Number").field(&self.get()).finish()
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.name).finish()
    }
}
