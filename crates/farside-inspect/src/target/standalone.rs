//! [`Standalone`]: a program without a job shows what it has.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use farside::LocalBytes;

use super::areas::{Area, Areas, Source};
use super::door::Doorway;
use super::error::ExposeError;
use super::host::Host;
use super::locked::LockedMemory;
use super::memory::LockedHere;
use super::numbers::{Gauge, Parameter};
use super::view::{ViewBuilder, described, elements_of, fields_of};
use crate::element::Element;
use crate::names::RANKS;
use crate::protocol::{Part, Role};

/// The pause between two looks at the lock of a reader.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// A program that is no job of Farside, and shows what it has: a program of one process, or one of
/// the processes that `mpirun` or `srun` started.
///
/// ```no_run
/// use farside_inspect::Standalone;
///
/// let shown = Standalone::begin()?;
/// let field = shown.view::<f64>("field").shape([100, 100]).open()?;
/// let dt = shown.parameter("dt", 0.01, 0.0..=0.1)?;
/// let mut values = vec![0.0; 10_000];
/// for step in 0..1000 {
///     values.iter_mut().for_each(|value| *value += dt.get());
///     field.publish(step, &values)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Readers see the processes that `mpirun` or `srun` starts together as one job, and otherwise
/// processes of one program that have the same parent. `FARSIDE_JOB` names the job. A process shows by one `Standalone`; dropping it shuts the door.
///
/// OpAS's targets are such programs: its `opast_init` is [`begin`](Self::begin).
#[derive(Debug)]
pub struct Standalone {
    rank: u32,
    doorway: Arc<Doorway>,
}

impl Standalone {
    /// Opens the door of this process. Its number and the number of processes are those that
    /// `mpirun` or `srun` passed on; otherwise it is the only one.
    ///
    /// # Errors
    /// [`ExposeError::Door`], among others if this process has a door already.
    pub fn begin() -> Result<Self, ExposeError> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let found = RANKS.iter().find_map(|(rank, count)| Some((number(rank)?, number(count).unwrap_or(1))));
        let (rank, count) = found.unwrap_or((0, 1));
        Self::begin_as(rank, count)
    }

    /// The same, for a process whose number the program knows.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    pub fn begin_as(rank: u32, count: u32) -> Result<Self, ExposeError> {
        let doorway = Arc::new(Doorway::default());
        doorway.open_alone(rank, count.max(rank.saturating_add(1)))?;
        Ok(Self { rank, doorway })
    }

    /// The number of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub(super) fn doorway(&self) -> &Arc<Doorway> {
        &self.doorway
    }

    /// Begins a view: see [`Expose::view`](crate::Expose::view).
    pub fn view<T: Element>(&self, name: &str) -> ViewBuilder<'_, T> {
        ViewBuilder::new(Host::Alone(self), name)
    }

    /// Shows a number that the program sets.
    ///
    /// # Errors
    /// [`ExposeError`].
    pub fn gauge(&self, name: &str) -> Result<Gauge, ExposeError> {
        let host = Host::Alone(self);
        Gauge::show(host, described(host, name, Role::Gauge)?)
    }

    /// Shows a number that readers may set.
    ///
    /// # Errors
    /// [`ExposeError`].
    pub fn parameter(&self, name: &str, default: f64, bounds: RangeInclusive<f64>) -> Result<Parameter, ExposeError> {
        let host = Host::Alone(self);
        Parameter::show(host, described(host, name, Role::Gauge)?, default, bounds)
    }

    /// Makes memory for `count` elements, all bytes 0, that readers see as it is now.
    ///
    /// # Errors
    /// [`ExposeError`].
    pub fn expose<T: Element + Pod>(&self, name: &str, count: usize) -> Result<OwnMemory<'_, T>, ExposeError> {
        let host = Host::Alone(self);
        if count == 0 {
            return Err(ExposeError::Shape { name: name.into(), what: "it has no elements; expose at least one" });
        }
        let part = Part {
            element: T::TYPE,
            fields: fields_of::<T>(name)?,
            whole: vec![count as u64],
            origin: vec![0],
            shape: vec![count as u64],
            ..described(host, name, Role::Memory)?
        };
        elements_of(&part)?;
        let no_memory = || ExposeError::Shape { name: name.into(), what: "there is no memory for it; make it smaller" };
        let bytes = LocalBytes::new(count * size_of::<T>()).ok_or_else(no_memory)?;
        let memory = Arc::new(LockedMemory::new(bytes.clone(), self.doorway.areas().next_memory()));
        let area = Area::new(part, Source::Memory(memory.clone()));
        self.doorway.areas().add(&area)?;
        let areas = self.doorway.areas().clone();
        Ok(OwnMemory {
            bytes,
            memory,
            area,
            areas,
            is_locked: Cell::new(false),
            shown_by: PhantomData,
            of: PhantomData,
        })
    }
}

/// Memory of a program without a job that readers see as it is now: [`Standalone::expose`].
///
/// Values are copied in and out, because readers may write the memory at any time.
pub struct OwnMemory<'s, T> {
    bytes: LocalBytes,
    memory: Arc<LockedMemory>,
    area: Arc<Area>,
    areas: Arc<Areas>,
    is_locked: Cell<bool>,
    shown_by: PhantomData<&'s Standalone>,
    of: PhantomData<fn() -> T>,
}

impl<T: Element + Pod> OwnMemory<'_, T> {
    /// Lets readers write the memory.
    #[must_use]
    pub fn writable(self) -> Self {
        self.area.describe(|part| part.is_writable = true);
        self
    }

    /// Copies values from an index on, until `values` is full.
    ///
    /// # Panics
    /// If the memory has too few values.
    #[track_caller]
    pub fn read(&self, index: usize, values: &mut [T]) {
        let read = self.bytes.read(offset::<T>(index), bytemuck::cast_slice_mut(values));
        read.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Writes values from an index on.
    ///
    /// # Panics
    /// If the values do not fit.
    #[track_caller]
    pub fn write(&self, index: usize, values: &[T]) {
        let written = self.bytes.write(offset::<T>(index), bytemuck::cast_slice(values));
        written.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Locks the memory until the result is dropped: readers see all changes until then, or none.
    /// A reader that has locked it is waited for, 10 s at most.
    ///
    /// # Panics
    /// If this handle has locked the memory already.
    #[track_caller]
    pub fn lock(&self) -> LockedHere<'_> {
        assert!(!self.is_locked.get(), "the memory is locked already: drop that lock first");
        while !self.memory.try_lock() {
            self.memory.end_lease();
            std::thread::sleep(LOOK_AFTER);
        }
        LockedHere::new(&self.memory, &self.is_locked)
    }
}

fn offset<T>(index: usize) -> u64 {
    (index as u64).saturating_mul(size_of::<T>() as u64)
}

impl<T> fmt::Debug for OwnMemory<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMemory").field("area", &self.area).finish_non_exhaustive()
    }
}

impl<T> Drop for OwnMemory<'_, T> {
    fn drop(&mut self) {
        self.areas.remove(&self.area);
    }
}
