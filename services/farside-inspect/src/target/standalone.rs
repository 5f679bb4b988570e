//! [`Standalone`]: a program without a job shows what it has.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use bytemuck::Pod;
use bytemuck::allocation::try_zeroed_vec;
use farside::LocalVec;

use super::description::wide;
use super::door::Doorway;
use super::error::ExposeError;
use super::host::{Alone, Host};
use super::locked::LockedMemory;
use super::memory::{LockedHere, MemoryArea, ShownMemory, describe_memory};
use super::named::Number;
use super::view::ViewBuilder;
use crate::element::Element;
use crate::names::RANKS;
use crate::protocol::Kind;

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
/// processes of one program that have the same parent. `FARSIDE_JOB` names the job. A process shows
/// by one `Standalone`; dropping it shuts the door.
///
/// OpAS's targets are such programs: its `opast_init` is [`begin`](Self::begin).
#[derive(Debug)]
pub struct Standalone(Alone);

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

    /// Opens the door as [`begin`](Self::begin) does, of a process whose number the program knows.
    ///
    /// # Errors
    /// [`ExposeError`], as for [`begin`](Self::begin).
    pub fn begin_as(rank: u32, count: u32) -> Result<Self, ExposeError> {
        let doorway = Arc::new(Doorway::default());
        doorway.open_alone(rank, count.max(rank.saturating_add(1)))?;
        Ok(Self(Alone { rank, doorway }))
    }

    /// The number of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Begins a view: see [`Expose::view`](crate::Expose::view).
    pub fn view<T: Element>(&self, name: &str) -> ViewBuilder<'_, T> {
        ViewBuilder::new(Host::Alone(&self.0), name)
    }

    /// Shows a number that the program sets.
    ///
    /// # Errors
    /// [`ExposeError`].
    pub fn gauge(&self, name: &str) -> Result<Number, ExposeError> {
        Number::gauge(Host::Alone(&self.0), name)
    }

    /// Shows a number that readers may set.
    ///
    /// # Errors
    /// [`ExposeError`].
    pub fn parameter(&self, name: &str, default: f64, bounds: RangeInclusive<f64>) -> Result<Number, ExposeError> {
        Number::parameter(Host::Alone(&self.0), name, default, bounds)
    }

    /// Makes memory for `count` elements, all bytes 0, that readers see as it is now.
    ///
    /// # Errors
    /// [`ExposeError`].
    pub fn expose<T: Element + Pod + Send>(&self, name: &str, count: usize) -> Result<OwnMemory<'_, T>, ExposeError> {
        let no_memory =
            |()| ExposeError::Shape { name: name.into(), what: "there is no memory for it; make it smaller" };
        self.expose_vec(name, try_zeroed_vec(count).map_err(no_memory)?)
    }

    /// Shows a vector that the program has, as it is now. [`OwnMemory::take`] gives it back.
    ///
    /// ```no_run
    /// # let shown = farside_inspect::Standalone::begin()?;
    /// let mut plate = shown.expose_vec("plate", vec![0.0; 5000])?.shape([100, 50])?.units("K")?;
    /// for _ in 0..1000 {
    ///     plate.with(|plate| plate.iter_mut().for_each(|value| *value += 0.5));
    /// }
    /// let plate = plate.take();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ExposeError`]. The vector is freed then.
    pub fn expose_vec<T: Element + Pod + Send>(
        &self,
        name: &str,
        values: Vec<T>,
    ) -> Result<OwnMemory<'_, T>, ExposeError> {
        let count = values.len() as u64;
        if count == 0 {
            return Err(ExposeError::Shape { name: name.into(), what: "it has no elements; expose at least one" });
        }
        let values = LocalVec::new(values);
        let shown = ShownMemory::row::<T>(values.local_bytes(), count, 0);
        let area = MemoryArea::new::<T>(Host::Alone(&self.0), name, shown)?;
        Ok(OwnMemory { area, values, shown_by: PhantomData })
    }
}

/// Memory of a program without a job that readers see as it is now: [`Standalone::expose`].
///
/// Readers may write the memory at any time if it is [writable](Self::writable). So values are
/// copied in and out, or changed while no reader has access.
pub struct OwnMemory<'s, T: Pod + Send> {
    area: MemoryArea,
    values: LocalVec<T>,
    shown_by: PhantomData<&'s Standalone>,
}

describe_memory!(impl[T: Element + Pod + Send] OwnMemory<'_, T>);

impl<T: Element + Pod + Send> OwnMemory<'_, T> {
    /// Calls `work` with the values. Readers see all that it changes, or nothing, and wait
    /// meanwhile: do what takes long elsewhere. A reader that has locked the memory is waited for,
    /// 10 s at most.
    ///
    /// # Panics
    /// If this handle has locked the memory for ever, by a lock that was forgotten.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut [T]) -> R) -> R {
        let Ok(_locked) = self.area.lock(wait_for_lock);
        self.values.with(work)
    }

    /// Ends it, and returns the vector.
    #[must_use]
    pub fn take(self) -> Vec<T> {
        let Self { area, values, .. } = self;
        drop(area);
        values.take()
    }

    /// Copies values from an index on, until `values` is full.
    ///
    /// # Panics
    /// If the memory has too few values.
    #[track_caller]
    pub fn read(&self, index: usize, values: &mut [T]) {
        let read = self.values.local_bytes().read(offset::<T>(index), bytemuck::cast_slice_mut(values));
        read.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Writes values from an index on.
    ///
    /// # Panics
    /// If the values do not fit.
    #[track_caller]
    pub fn write(&self, index: usize, values: &[T]) {
        let written = self.values.local_bytes().write(offset::<T>(index), bytemuck::cast_slice(values));
        written.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Locks the memory until the result is dropped: readers see all changes until then, or none.
    /// A reader that has locked it is waited for, 10 s at most.
    ///
    /// # Panics
    /// If this handle has locked the memory already.
    #[track_caller]
    pub fn lock(&self) -> LockedHere<'_> {
        let Ok(locked) = self.area.lock(wait_for_lock);
        locked
    }
}

/// Locks memory, when no reader has locked it any more.
fn wait_for_lock(memory: &LockedMemory) -> Result<(), Infallible> {
    let claim = memory.claim(Waker::from(Arc::new(Parked(thread::current()))));
    while !claim.try_lock() {
        thread::park_timeout(claim.patience());
    }
    Ok(())
}

/// Wakes a thread that is parked.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn offset<T>(index: usize) -> u64 {
    (index as u64).saturating_mul(size_of::<T>() as u64)
}

impl<T: Pod + Send> fmt::Debug for OwnMemory<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMemory").field("area", &self.area).finish_non_exhaustive()
    }
}
