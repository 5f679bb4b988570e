//! [`Host`]: what shows something: a worker of a job, or a program without one.

use std::sync::Arc;

use farside::{Error, Worker};

use super::door::Doorway;
use super::error::ExposeError;
use super::network::Place;
use super::standalone::Standalone;

/// A worker of a job, or a program without one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Host<'w> {
    Worker(&'w Worker),
    Alone(&'w Standalone),
}

impl Host<'_> {
    /// The number of the worker; of a program without a job, that of its process.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Worker(me) => me.id().number(),
            Self::Alone(alone) => alone.rank(),
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
            Self::Alone(alone) => Ok(alone.doorway().clone()),
        }
    }

    /// Serves others, if there are any, until `condition` holds. `wait` waits for a change of it.
    pub(super) fn wait_while(self, condition: impl Fn() -> bool, wait: impl Fn()) -> Result<(), Error> {
        let Self::Worker(me) = self else {
            while !condition() {
                wait();
            }
            return Ok(());
        };
        loop {
            match me.wait_while_serving(&condition) {
                // A hold may take longer than the job's deadline.
                Err(Error::Deadline { .. }) => {}
                // A handler that publishes must not wait, so it goes on.
                Err(Error::InHandler { .. }) => return Ok(()),
                ended => return ended,
            }
        }
    }
}
