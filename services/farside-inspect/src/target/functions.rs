//! [`Shown`]: actions and probes, as the program has them.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use farside::{Error, Worker};

use super::areas::{Area, Areas, Source};
use super::error::ExposeError;
use super::host::Host;
use super::questions::{self, Function};
use crate::protocol::Part;

/// An [action](crate::Expose::action) or a [probe](crate::Expose::probe) of this worker. Dropping
/// it ends it.
pub struct Shown {
    area: Arc<Area>,
    areas: Arc<Areas>,
    /// The function belongs to its worker's thread.
    name: Rc<str>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.name).finish()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.areas.remove(&self.area);
        questions::end(&self.name);
    }
}

fn show(me: &Worker, part: Part, function: Function) -> Result<Shown, ExposeError> {
    let doorway = Host::Worker(me).doorway()?;
    let name: Rc<str> = part.name.as_str().into();
    let area = Area::new(part, Source::Function);
    doorway.areas().add(&area)?;
    questions::keep(&name, function);
    Ok(Shown { area, areas: doorway.areas().clone(), name })
}

pub(super) fn show_action(
    me: &Worker,
    part: Part,
    action: impl FnMut(&Worker) -> Result<(), Error> + 'static,
) -> Result<Shown, ExposeError> {
    show(me, part, Function::action(action))
}

pub(super) fn show_probe(
    me: &Worker,
    part: Part,
    probe: impl FnMut(&Worker, &str) -> Vec<u8> + 'static,
) -> Result<Shown, ExposeError> {
    show(me, part, Function::probe(probe))
}
