//! [`Standalone`]: a program without a job shows what it has.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use bytemuck::Pod;
use bytemuck::allocation::try_zeroed_vec;
use farside::LocalVec;

use super::areas::{Area, Areas, Source};
use super::door::Doorway;
use super::error::ExposeError;
use super::host::{Alone, Host};
use super::locked::LockedMemory;
use super::memory::{LockedHere, set_origin, set_spacing, set_units, wrong};
use super::named::Number;
use super::view::{ViewBuilder, check_place, described, elements_of, fields_of};
use crate::element::Element;
use crate::names::RANKS;
use crate::protocol::{Kind, Part, Role};

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

    /// The same, for a process whose number the program knows.
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
        let (host, count) = (Host::Alone(&self.0), values.len() as u64);
        if count == 0 {
            return Err(ExposeError::Shape { name: name.into(), what: "it has no elements; expose at least one" });
        }
        let part = Part {
            element: T::TYPE,
            fields: fields_of::<T>(name)?,
            whole: vec![count],
            origin: vec![0],
            shape: vec![count],
            ..described(host, name, Role::Memory)?
        };
        elements_of(&part)?;
        let values = LocalVec::new(values);
        let memory = Arc::new(LockedMemory::new(values.local_bytes(), self.0.doorway.areas().next_memory()));
        let area = Area::new(part, Source::Memory(memory.clone()));
        self.0.doorway.areas().add(&area)?;
        let shown = ShownArea { area, areas: self.0.doorway.areas().clone() };
        Ok(OwnMemory { shown, values, memory, is_locked: Cell::new(false), shown_by: PhantomData })
    }
}

/// An area, until it is dropped.
#[derive(Debug)]
struct ShownArea {
    area: Arc<Area>,
    areas: Arc<Areas>,
}

impl Drop for ShownArea {
    fn drop(&mut self) {
        self.areas.remove(&self.area);
    }
}

/// Memory of a program without a job that readers see as it is now: [`Standalone::expose`].
///
/// Readers may write the memory at any time if it is [writable](Self::writable). So values are
/// copied in and out, or changed while no reader has access.
pub struct OwnMemory<'s, T: Pod + Send> {
    shown: ShownArea,
    values: LocalVec<T>,
    memory: Arc<LockedMemory>,
    is_locked: Cell<bool>,
    shown_by: PhantomData<&'s Standalone>,
}

impl<T: Element + Pod + Send> OwnMemory<'_, T> {
    /// Lets readers write the memory.
    #[must_use]
    pub fn writable(self) -> Self {
        self.shown.area.describe(|part| part.is_writable = true);
        self
    }

    /// Gives the memory a shape, in row-major order. The default is one dimension.
    ///
    /// # Errors
    /// [`ExposeError::Shape`] if it is that of another number of elements, or has more than 8
    /// dimensions.
    pub fn shape(self, shape: impl AsRef<[usize]>) -> Result<Self, ExposeError> {
        let shape = shape.as_ref();
        self.place(shape, shape, &vec![0; shape.len()])
    }

    /// Makes the memory a part of an area of the shape `whole`, from the place `origin` on. Readers
    /// see the parts of all processes as one. Give the part's own [shape](Self::shape) before.
    ///
    /// # Errors
    /// [`ExposeError::Shape`] if the part is not inside.
    pub fn part_of(self, whole: impl AsRef<[usize]>, origin: impl AsRef<[usize]>) -> Result<Self, ExposeError> {
        let shape: Vec<usize> = self.shown.area.part().shape.iter().map(|length| *length as usize).collect();
        self.place(&shape, whole.as_ref(), origin.as_ref())
    }

    fn place(self, shape: &[usize], whole: &[usize], origin: &[usize]) -> Result<Self, ExposeError> {
        let Self { shown: ShownArea { area, .. }, .. } = &self;
        let part = area.part();
        check_place(shape, whole, origin).map_err(|what| wrong(area, what))?;
        let total = shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length as u64));
        if total != Some(part.shape.iter().product()) {
            return Err(wrong(area, "it has another number of elements than the memory; give one with as many"));
        }
        if [&part.zero, &part.spacing].iter().any(|axes| !axes.is_empty() && axes.len() != shape.len()) {
            return Err(wrong(area, "its coordinates have another number of dimensions; give the shape before them"));
        }
        let [shape, whole, origin] =
            [shape, whole, origin].map(|lengths| lengths.iter().map(|length| *length as u64).collect::<Vec<_>>());
        area.describe(|part| (part.shape, part.whole, part.origin) = (shape, whole, origin));
        Ok(self)
    }

    /// The units of the elements, such as `K`.
    ///
    /// # Errors
    /// [`ExposeError::Units`].
    pub fn units(self, units: &str) -> Result<Self, ExposeError> {
        set_units(&self.shown.area, units)?;
        Ok(self)
    }

    /// The coordinates of the first place of the whole, by dimension.
    ///
    /// # Errors
    /// [`ExposeError::Shape`] if there is not one for each dimension.
    pub fn origin(self, zero: impl AsRef<[f64]>) -> Result<Self, ExposeError> {
        set_origin(&self.shown.area, zero.as_ref())?;
        Ok(self)
    }

    /// The distance of two places, by dimension.
    ///
    /// # Errors
    /// [`ExposeError::Shape`] if there is not one for each dimension.
    pub fn spacing(self, spacing: impl AsRef<[f64]>) -> Result<Self, ExposeError> {
        set_spacing(&self.shown.area, spacing.as_ref())?;
        Ok(self)
    }

    /// Says how the memory is best drawn.
    #[must_use]
    pub fn kind(self, kind: Kind) -> Self {
        self.shown.area.describe(|part| part.kind = kind);
        self
    }

    /// Calls `work` with the values. Readers see all that it changes, or nothing, and wait
    /// meanwhile: do what takes long elsewhere. A reader that has locked the memory is waited for,
    /// 10 s at most.
    ///
    /// # Panics
    /// If this handle has locked the memory for ever, by a lock that was forgotten.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut [T]) -> R) -> R {
        assert!(!self.is_locked.get(), "the memory is locked already: drop that lock first");
        lock_memory(&self.memory);
        let _locked = LockedHere::new(&self.memory, &self.is_locked);
        self.values.with(work)
    }

    /// Ends it, and returns the vector.
    #[must_use]
    pub fn take(self) -> Vec<T> {
        let Self { shown, values, .. } = self;
        drop(shown);
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
        assert!(!self.is_locked.get(), "the memory is locked already: drop that lock first");
        lock_memory(&self.memory);
        LockedHere::new(&self.memory, &self.is_locked)
    }
}

/// Locks memory, when no reader has locked it any more.
fn lock_memory(memory: &LockedMemory) {
    if memory.try_lock() {
        return;
    }
    let claim = memory.claim(Waker::from(Arc::new(Parked(thread::current()))));
    while !claim.try_lock() {
        thread::park_timeout(claim.patience());
    }
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
        f.debug_struct("OwnMemory").field("area", &self.shown.area).finish_non_exhaustive()
    }
}
