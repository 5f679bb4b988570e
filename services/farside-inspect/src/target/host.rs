//! [`Host`]: what shows something: a worker of a job, or a program without one.

use std::sync::Arc;

use farside::{Error, Worker};

use super::areas::{Listed, Source};
use super::door::Doorway;
use super::error::ExposeError;
use super::network::Place;
use super::questions;
use super::stays::Publisher;
use crate::protocol::{Part, Role};

/// A worker of a job, or a program without one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Host<'w> {
    Worker(&'w Worker),
    Alone(&'w Alone),
}

/// A program without a job, whose door is open.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) rank: u32,
    pub(super) doorway: Arc<Doorway>,
}

impl Host<'_> {
    /// The number of the worker; of a program without a job, that of its process.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Worker(me) => me.id().number(),
            Self::Alone(alone) => alone.rank,
        }
    }

    /// The doorway of the process, whose door is open now.
    pub(super) fn doorway(self) -> Result<Arc<Doorway>, ExposeError> {
        match self {
            Self::Worker(me) => {
                let doorway = me.process_state::<Doorway>();
                let place = Place { process: me.process().number(), process_count: me.process_count() };
                doorway.open(place, || me.caller())?;
                Ok(doorway)
            }
            Self::Alone(alone) => Ok(alone.doorway.clone()),
        }
    }

    /// Shows a part to readers.
    pub(super) fn list(self, part: Part, source: Source) -> Result<Listed, ExposeError> {
        self.doorway()?.areas().add(part, source)
    }

    /// The description of a number or a function.
    pub(super) fn part(self, name: &str, role: Role) -> Result<Part, ExposeError> {
        let part = Part::new(name, self.number(), role);
        part.check().map(|()| part)
    }
}

impl Publisher for Host<'_> {
    fn number(&self) -> u32 {
        Host::number(*self)
    }

    fn wait_while(&self, condition: &dyn Fn() -> bool, wait: &dyn Fn()) -> Result<(), Error> {
        let Self::Worker(me) = self else {
            while !condition() {
                wait();
            }
            return Ok(());
        };
        loop {
            match me.wait_while_serving(condition) {
                // A stay may take longer than the job's deadline.
                Err(Error::Deadline { .. }) => {}
                // A handler that publishes must not wait, so it goes on.
                Err(Error::InHandler { .. }) => return Ok(()),
                ended => return ended,
            }
        }
    }

    fn act(&self, action: &str) -> Result<(), Error> {
        match self {
            Self::Worker(me) => questions::act(me, action),
            Self::Alone(_) => Ok(()),
        }
    }
}
