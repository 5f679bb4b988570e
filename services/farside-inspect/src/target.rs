//! The side of the program that is looked at: [`Expose`] and what it makes.

mod activity;
mod areas;
mod atomics;
mod conductor;
mod description;
mod door;
mod error;
mod handlers;
mod host;
mod launcher;
mod lease;
mod locked;
mod memory;
mod named;
mod network;
mod questions;
mod setting;
mod shared;
mod simulated;
mod slots;
mod standalone;
mod stays;
mod view;
mod word;

use std::ops::RangeInclusive;
use std::path::Path;

use farside::{Error, Worker};

pub use self::error::{ExposeError, PublishError};
use self::handlers::Neighborhood;
use self::host::Host;
pub use self::launcher::LauncherDoor;
pub use self::memory::{Exposed, LockedHere, Memory};
pub use self::named::{Number, Shown};
pub use self::simulated::SimulatedWorker;
pub use self::standalone::{OwnMemory, Standalone};
pub use self::view::{View, ViewBuilder};
use crate::element::Element;
use crate::protocol::{Kind, Role};

/// The areas and values that a worker shows to programs outside of the job, and takes in from them.
///
/// The first area of a process opens the process's *door*: three threads that sleep until a reader
/// asks. The first reader has all processes of the job open theirs. Only programs of the same user
/// on the same machine get in. `FARSIDE_INSPECT=tcp` in the job's environment opens doors on the
/// network, too, which ask for a token. `FARSIDE_INSPECT=off` keeps all doors shut; the calls of
/// this trait then succeed and cost the same.
pub trait Expose {
    /// Begins a view: memory of any kind that the program publishes once a step.
    ///
    /// ```no_run
    /// use farside::prelude::*;
    /// use farside_inspect::Expose;
    ///
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let rows = me.share(0..512);
    /// let mut plate = vec![0.0; rows.len() * 100];
    /// let heat = me
    ///     .view::<f64>("temperature")
    ///     .shape([rows.len(), 100])
    ///     .part_of([512, 100], [rows.start, 0])
    ///     .units("K")
    ///     .open()?;
    /// for step in 0..1000 {
    ///     plate.iter_mut().for_each(|value| *value += 1.0);
    ///     heat.publish(step, &plate)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn view<T: Element>(&self, name: &str) -> ViewBuilder<'_, T>;

    /// Shows memory as it is now: an array, symmetric memory or a registered vector. Nothing is
    /// published, and readers take the values without the program's help.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside_inspect::Expose;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let counts = me.global_array::<u64>(1 << 20)?;
    /// let shown = me.expose("counts", &counts)?.shape([1 << 10, 1 << 10])?.writable();
    /// // Readers see both changes, or none.
    /// let locked = shown.lock()?;
    /// counts.local(me).set(0, 1);
    /// counts.local(me).set(1, 2);
    /// drop(locked);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ExposeError`].
    fn expose<M: Memory>(&self, name: &str, memory: &M) -> Result<Exposed<'_, M::Element>, ExposeError>;

    /// Shows a number that readers may set, within bounds.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside_inspect::Expose;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let dt = me.parameter("dt", 0.01, 0.0..=0.1)?;
    /// let time: f64 = (0..1000).map(|_| dt.get()).sum();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ExposeError`].
    fn parameter(&self, name: &str, default: f64, bounds: RangeInclusive<f64>) -> Result<Number, ExposeError>;

    /// Shows a number that the program sets. If several workers show one under this name, readers
    /// see a place for each of them, by worker.
    ///
    /// # Errors
    /// [`ExposeError`].
    fn gauge(&self, name: &str) -> Result<Number, ExposeError>;

    /// Lets readers start something. Workers that publish steps run it at the same step, between
    /// two publications, and may wait and use collectives in it if all of them have the action.
    /// Another worker runs it when it makes progress, and must not wait.
    ///
    /// An error of the action is returned by the publication, or by the wait, in which it ran.
    ///
    /// # Errors
    /// [`ExposeError`].
    fn action(
        &self,
        name: &str,
        action: impl FnMut(&Worker) -> Result<(), Error> + 'static,
    ) -> Result<Shown, ExposeError>;

    /// Lets readers ask for something that is computed when they ask. It runs on this worker when
    /// that makes progress. Question and answer are the program's own; for [`Kind::Tree`] and
    /// [`Kind::HexBoard`] they are JSON, as the guide says.
    ///
    /// # Errors
    /// [`ExposeError`].
    fn probe(
        &self,
        name: &str,
        kind: Kind,
        probe: impl FnMut(&Worker, &str) -> Vec<u8> + 'static,
    ) -> Result<Shown, ExposeError>;

    /// Opens the door of the process, for a program that shows no area. Others then see what the
    /// workers of the job do and wait for. One process of the job suffices: the others open their
    /// doors when a reader asks this one.
    ///
    /// ```no_run
    /// # use farside_inspect::Expose;
    /// # fn example(me: &farside::Worker) -> farside::Result<()> {
    /// me.open_door()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ExposeError::Setting`]; [`ExposeError::Door`].
    fn open_door(&self) -> Result<(), ExposeError>;

    /// Opens a door of this process on the network, as `FARSIDE_INSPECT=ADDRESS` does for
    /// process 0. `address` is `tcp`, or `tcp://HOST:PORT`; the tokens are those of a file of
    /// [`create_token_file`](crate::create_token_file). A door that is open stays as it is.
    ///
    /// # Errors
    /// [`ExposeError`]: among others `Off` if the environment keeps doors shut.
    fn open_network_door(&self, address: &str, token_file: &Path) -> Result<(), ExposeError>;
}

impl Expose for Worker {
    fn view<T: Element>(&self, name: &str) -> ViewBuilder<'_, T> {
        ViewBuilder::new(Host::Worker(self), name)
    }

    fn expose<M: Memory>(&self, name: &str, memory: &M) -> Result<Exposed<'_, M::Element>, ExposeError> {
        Exposed::new(self, name, memory)
    }

    fn parameter(&self, name: &str, default: f64, bounds: RangeInclusive<f64>) -> Result<Number, ExposeError> {
        Number::parameter(Host::Worker(self), name, default, bounds)
    }

    fn gauge(&self, name: &str) -> Result<Number, ExposeError> {
        Number::gauge(Host::Worker(self), name)
    }

    fn action(
        &self,
        name: &str,
        mut action: impl FnMut(&Worker) -> Result<(), Error> + 'static,
    ) -> Result<Shown, ExposeError> {
        Shown::of(self, name, (Role::Action, Kind::Plain), move |me, _| action(me).map(|()| Vec::new()))
    }

    fn probe(
        &self,
        name: &str,
        kind: Kind,
        mut probe: impl FnMut(&Worker, &str) -> Vec<u8> + 'static,
    ) -> Result<Shown, ExposeError> {
        Shown::of(self, name, (Role::Probe, kind), move |me, question| Ok(probe(me, question)))
    }

    fn open_door(&self) -> Result<(), ExposeError> {
        Host::Worker(self).doorway().map(drop)
    }

    fn open_network_door(&self, address: &str, token_file: &Path) -> Result<(), ExposeError> {
        let network = Host::Worker(self).doorway()?.network().ok_or(ExposeError::Off)?;
        network.open(setting::listen(address, token_file)?).map(drop)
    }
}
