//! [`Exposed`]: memory as it is now.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use bytemuck::Pod;
use farside::global::Segment;
use farside::{Caller, Error, GlobalArray, LocalBytes, Symmetric, Worker, WorkerId};

use super::areas::Listed;
use super::description::{DIMENSIONS_MAX, wide};
use super::error::ExposeError;
use super::host::Host;
use super::locked::{LEASE_MAX, LockedMemory};
use crate::element::Element;
use crate::protocol::{Kind, Part, Role};

/// Memory that can be [exposed](crate::Expose::expose): a [`GlobalArray`], of which the worker
/// shows its part; [`Symmetric`] memory, of which it shows that of its process; a [`Segment`].
///
/// Several workers of a process may expose its symmetric memory under one name. Readers see it
/// once, until the last of them drops its handle. What one says of it, such as its shape, holds for
/// all. Its lock keeps them from each other, too.
///
/// | distribution of the array | the area's dimensions |
/// |---|---|
/// | [`BLOCK`](farside::Distribution::BLOCK) | the index |
/// | [`CYCLIC`](farside::Distribution::CYCLIC) | the round, the part |
/// | [`block_cyclic`](farside::Distribution::block_cyclic) | the round, the part, the place in the block |
///
/// In each, the elements in row-major order are those of the array.
pub trait Memory: sealed::Sealed {
    /// The type of the values.
    type Element: Element + Pod;

    /// The area that this worker shows.
    #[doc(hidden)]
    fn shown(&self, me: &Worker) -> Result<ShownMemory, ExposeError>;
}

mod sealed {
    pub trait Sealed {}
}

/// The memory that a worker shows.
#[doc(hidden)]
#[derive(Debug)]
pub struct ShownMemory {
    bytes: LocalBytes,
    /// The shape of the whole, where this worker's part begins in it, and the shape of the part.
    whole: Vec<u64>,
    origin: Vec<u64>,
    shape: Vec<u64>,
    /// The worker in whose name it is shown, if all workers of the process have it.
    owner: Option<WorkerId>,
}

impl ShownMemory {
    /// Elements that follow each other in the whole, from `first` on.
    pub(super) fn row<T>(bytes: LocalBytes, whole: u64, first: u64) -> Self {
        let count = bytes.bytes() / size_of::<T>() as u64;
        Self { bytes, whole: vec![whole], origin: vec![first], shape: vec![count], owner: None }
    }
}

impl<T: Element + Pod> sealed::Sealed for GlobalArray<T> {}

impl<T: Element + Pod> Memory for GlobalArray<T> {
    type Element = T;

    fn shown(&self, me: &Worker) -> Result<ShownMemory, ExposeError> {
        let (length, parts, bytes) = (self.len() as u64, self.part_count() as u64, self.local_bytes(me));
        let first = self.local_indices(me).next().unwrap_or(0) as u64;
        let Some(block) = self.distribution().dealt().map(|block| block as u64) else {
            return Ok(ShownMemory::row::<T>(bytes, length, first));
        };
        let round = block.saturating_mul(parts);
        if !length.is_multiple_of(round) {
            return Err(ExposeError::Scattered { length, round });
        }
        let rounds = length / round;
        let (mut whole, mut origin, mut shape) = (vec![rounds, parts], vec![0, first / block], vec![rounds, 1]);
        if block > 1 {
            [&mut whole, &mut shape].into_iter().for_each(|shape| shape.push(block));
            origin.push(0);
        }
        Ok(ShownMemory { bytes, whole, origin, shape, owner: None })
    }
}

impl<T: Element + Pod> sealed::Sealed for Symmetric<T> {}

impl<T: Element + Pod> Memory for Symmetric<T> {
    type Element = T;

    fn shown(&self, me: &Worker) -> Result<ShownMemory, ExposeError> {
        let length = self.len() as u64;
        let (whole, first) = (length * u64::from(me.process_count()), length * u64::from(me.process().number()));
        let owner = me.workers().find(|worker| me.process_of(*worker) == me.process());
        Ok(ShownMemory { owner, ..ShownMemory::row::<T>(self.local_bytes(), whole, first) })
    }
}

impl<T: Element + Pod + Send> sealed::Sealed for Segment<T> {}

impl<T: Element + Pod + Send> Memory for Segment<T> {
    type Element = T;

    fn shown(&self, _: &Worker) -> Result<ShownMemory, ExposeError> {
        let bytes = self.local_bytes();
        let whole = bytes.bytes() / size_of::<T>() as u64;
        Ok(ShownMemory::row::<T>(bytes, whole, 0))
    }
}

/// The listed memory behind a handle, such as [`Exposed`].
#[derive(Debug)]
pub(super) struct MemoryArea {
    listed: Listed,
    memory: Arc<LockedMemory>,
    /// The shape of the whole, where this worker's part begins in it, and the shape of the part, as
    /// the memory has them.
    dealt: [Vec<u64>; 3],
    is_locked: Cell<bool>,
}

impl MemoryArea {
    pub(super) fn new<T: Element>(host: Host<'_>, name: &str, shown: ShownMemory) -> Result<Self, ExposeError> {
        let ShownMemory { bytes, whole, origin, shape, owner } = shown;
        let mut part = Part { whole, origin, shape, ..host.part(name, Role::Memory)? };
        if part.shape.contains(&0) || bytes.bytes() == 0 {
            return Err(part.wrong("this worker has no elements of it; do not expose it here"));
        }
        part.set_element::<T>()?;
        part.worker = owner.map_or(part.worker, WorkerId::number);
        let dealt = [part.whole.clone(), part.origin.clone(), part.shape.clone()];
        let (listed, memory) = host.doorway()?.areas().share(part, bytes, host.number())?;
        Ok(Self { listed, memory, dealt, is_locked: Cell::new(false) })
    }

    pub(super) fn describe(
        &self,
        change: impl FnOnce(&mut Part) -> Result<(), ExposeError>,
    ) -> Result<(), ExposeError> {
        self.listed.describe(change)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Part)) {
        // This refuses nothing.
        let _ = self.listed.describe(|part| {
            change(part);
            Ok(())
        });
    }

    /// Gives the whole a shape, and the part its place in it.
    pub(super) fn set_shape(&self, part: &mut Part, shape: &[usize]) -> Result<(), ExposeError> {
        let (shape, [whole, first, dealt]) = (wide(shape), &self.dealt);
        let count: u64 = whole.iter().product();
        if shape.len() > DIMENSIONS_MAX || shape.is_empty() && count != 1 {
            return Err(part.wrong("it has not 1 to 8 dimensions; give as many"));
        }
        if shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length)) != Some(count) {
            return Err(part.wrong("it has another number of elements than the memory; give one with as many"));
        }
        let (mut origin, mut own) = (vec![0; shape.len()], shape.clone());
        match (&first[..], &dealt[..]) {
            _ if shape.is_empty() => {}
            ([first], [count]) => {
                // The whole has elements, so no length is 0.
                let row: u64 = shape[1..].iter().product();
                if !first.is_multiple_of(row) || !count.is_multiple_of(row) {
                    return Err(part.wrong("this worker has no whole rows of it; give the array blocks of whole rows"));
                }
                (origin[0], own[0]) = (first / row, count / row);
            }
            _ if shape.len() < 2 || shape[..2] != whole[..2] => {
                return Err(part.wrong("it does not begin with the numbers of rounds and parts; give these first"));
            }
            _ => (origin[1], own[1]) = (first[1], 1),
        }
        (part.whole, part.origin, part.shape) = (shape, origin, own);
        part.check_axes()
    }

    /// Locks the memory, by `slowly` if it is locked.
    #[inline]
    #[track_caller]
    pub(super) fn lock<E>(&self, slowly: impl FnOnce(&LockedMemory) -> Result<(), E>) -> Result<LockedHere<'_>, E> {
        assert!(!self.is_locked.get(), "the memory is locked already: drop that lock first");
        if !self.memory.try_lock() {
            slowly(&self.memory)?;
        }
        self.is_locked.set(true);
        Ok(LockedHere { memory: &self.memory, is_locked: &self.is_locked })
    }
}

/// The methods by which a program describes memory that it shows.
macro_rules! describe_memory {
    (impl[$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> $type {
            /// Gives the whole memory a shape, in row-major order. The default is one dimension, or
            /// what [`Memory`](crate::Memory) says. The dimensions of rounds and parts stay: give
            /// those of a block behind them.
            ///
            /// # Errors
            /// [`ExposeError::Shape`] if the shape has another number of elements than the whole,
            /// or more than 8 dimensions, or if this worker's elements are not whole rows of it:
            /// give an array blocks of whole rows.
            pub fn shape(self, shape: impl AsRef<[usize]>) -> Result<Self, ExposeError> {
                self.area.describe(|part| self.area.set_shape(part, shape.as_ref()))?;
                Ok(self)
            }

            /// Makes this worker's part, with the shape that it has now, a part of an area of the
            /// shape `whole`, from the place `origin` on. Readers see the parts of all workers as
            /// one. Without this, the part has its place in the memory, and a registered vector is
            /// a whole by itself.
            ///
            /// # Errors
            /// [`ExposeError::Shape`] if the part is not inside.
            pub fn part_of(self, whole: impl AsRef<[usize]>, origin: impl AsRef<[usize]>) -> Result<Self, ExposeError> {
                self.area.describe(|part| {
                    (part.whole, part.origin) = (wide(whole.as_ref()), wide(origin.as_ref()));
                    part.check_place()
                })?;
                Ok(self)
            }

            /// Sets the coordinates of the first place of the whole, by dimension.
            ///
            /// # Errors
            /// [`ExposeError::Shape`] if there is not one for each dimension.
            pub fn origin(self, zero: impl AsRef<[f64]>) -> Result<Self, ExposeError> {
                self.area.describe(|part| {
                    part.zero = zero.as_ref().to_vec();
                    part.check_axes()
                })?;
                Ok(self)
            }

            /// Sets the distance of neighboring places, by dimension.
            ///
            /// # Errors
            /// [`ExposeError::Shape`] if there is not one for each dimension.
            pub fn spacing(self, spacing: impl AsRef<[f64]>) -> Result<Self, ExposeError> {
                self.area.describe(|part| {
                    part.spacing = spacing.as_ref().to_vec();
                    part.check_axes()
                })?;
                Ok(self)
            }

            /// Sets the units of the elements, such as `K`.
            ///
            /// # Errors
            /// [`ExposeError::Units`] if they have more than 40 bytes, or control characters.
            pub fn units(self, units: &str) -> Result<Self, ExposeError> {
                self.area.describe(|part| {
                    units.clone_into(&mut part.units);
                    part.check()
                })?;
                Ok(self)
            }

            /// Lets readers write the memory. A write of several values is one update: it waits
            /// while the program has locked the memory, and is made as a whole.
            #[must_use]
            pub fn writable(self) -> Self {
                self.area.change(|part| part.is_writable = true);
                self
            }

            /// Says how the memory is best drawn.
            #[must_use]
            pub fn kind(self, kind: Kind) -> Self {
                self.area.change(|part| part.kind = kind);
                self
            }
        }
    };
}

pub(super) use describe_memory;

/// Memory that readers see as it is now: [`Expose::expose`](crate::Expose::expose).
///
/// Exposing costs nothing afterwards: readers or the door's threads copy the memory, and the
/// program takes no part. A program that changes several values which belong together
/// [locks](Self::lock) the memory, so that no reader sees half of the change.
///
/// Dropping it ends the exposure. So does freeing the memory; readers then learn that it is gone.
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside_inspect::Expose;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let rows = me.share(0..512);
/// let plate = me.register(vec![0.0; rows.len() * 100])?;
/// let shown = me.expose("plate", &plate)?.shape([rows.len(), 100])?;
/// let shown = shown.part_of([512, 100], [rows.start, 0])?;
/// # Ok(())
/// # }
/// ```
pub struct Exposed<'w, T> {
    me: &'w Worker,
    area: MemoryArea,
    element: PhantomData<fn() -> T>,
}

describe_memory!(impl[T: Element] Exposed<'_, T>);

impl<'w, T: Element> Exposed<'w, T> {
    pub(super) fn new<M: Memory<Element = T>>(me: &'w Worker, name: &str, memory: &M) -> Result<Self, ExposeError> {
        let area = MemoryArea::new::<T>(Host::Worker(me), name, memory.shown(me)?)?;
        Ok(Self { me, area, element: PhantomData })
    }

    /// Locks the memory until the result is dropped. No reader sees what it has at a moment in
    /// between, and none writes it. This does not keep other workers from accessing it; of those of
    /// this process that expose the same symmetric memory, one at a time has the lock.
    ///
    /// *Cost*: two atomic changes of a word. A reader that has locked the memory is waited for, but
    /// no longer than its lease lasts (10 s), and no other reader locks it before this worker. The
    /// worker serves others meanwhile.
    ///
    /// # Errors
    /// An error of [`Worker::progress`], if it has to wait. [`Error::Deadline`] if another worker
    /// of this process keeps symmetric memory locked for 20 s.
    ///
    /// # Panics
    /// If this handle has locked the memory already.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> Result<LockedHere<'_>, Error> {
        self.area.lock(|memory| self.lock_slowly(memory))
    }

    #[cold]
    fn lock_slowly(&self, memory: &LockedMemory) -> Result<(), Error> {
        let ring = Ring { caller: self.me.caller(), worker: self.me.id() };
        let claim = memory.claim(Waker::from(Arc::new(ring)));
        let waits = Instant::now();
        loop {
            match self.me.wait_together(claim.patience(), || claim.try_lock()) {
                Err(Error::Deadline { .. }) if waits.elapsed() < LEASE_MAX * 2 => {}
                ended => return ended,
            }
        }
    }
}

/// Rings a worker that waits.
struct Ring {
    caller: Caller,
    worker: WorkerId,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        // An error is the end of the job, and then the worker does not wait.
        let _ = self.caller.call(self.worker, (), |_, ()| ());
    }
}

impl<T> fmt::Debug for Exposed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed").field("area", &self.area).finish_non_exhaustive()
    }
}

/// The lock of exposed memory. Dropping it ends it.
#[derive(Debug)]
pub struct LockedHere<'a> {
    memory: &'a LockedMemory,
    is_locked: &'a Cell<bool>,
}

impl Drop for LockedHere<'_> {
    #[inline]
    fn drop(&mut self) {
        self.is_locked.set(false);
        self.memory.unlock();
    }
}
