//! [`View`]: memory that the program publishes once a step.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use super::areas::{Listed, Source};
use super::description::wide;
use super::door::Doorway;
use super::error::{ExposeError, PublishError};
use super::host::Host;
use super::shared::Shared;
use super::stays::Stepping;
use crate::element::Element;
use crate::protocol::{Kind, Part, Role};

/// Describes a view. Made by [`Expose::view`](crate::Expose::view), ended by
/// [`open`](Self::open).
#[derive(Debug)]
#[must_use = "nothing is shown before `open`"]
pub struct ViewBuilder<'w, T> {
    host: Host<'w>,
    /// The description, as far as it was given. Its worker and role come with `open`.
    part: Part,
    /// The whole area and where the part begins in it, if the part is not all.
    whole: Option<[Vec<u64>; 2]>,
    element: PhantomData<fn() -> T>,
}

impl<'w, T: Element> ViewBuilder<'w, T> {
    pub(super) fn new(host: Host<'w>, name: &str) -> Self {
        Self { host, part: Part::new(name, host.number(), Role::View), whole: None, element: PhantomData }
    }

    /// Sets the shape of what this worker publishes, in row-major order: up to 8 dimensions. The
    /// default is a single number.
    pub fn shape(mut self, shape: impl AsRef<[usize]>) -> Self {
        self.part.shape = wide(shape.as_ref());
        self
    }

    /// Makes what this worker publishes a part of an area of the shape `whole`, from the place
    /// `origin` on. Readers see the parts of all workers as one.
    pub fn part_of(mut self, whole: impl AsRef<[usize]>, origin: impl AsRef<[usize]>) -> Self {
        self.whole = Some([wide(whole.as_ref()), wide(origin.as_ref())]);
        self
    }

    /// Sets the units of the elements, such as `K`.
    pub fn units(mut self, units: &str) -> Self {
        units.clone_into(&mut self.part.units);
        self
    }

    /// Sets the coordinates of the first place of the whole, by dimension.
    pub fn origin(mut self, zero: impl AsRef<[f64]>) -> Self {
        self.part.zero = zero.as_ref().to_vec();
        self
    }

    /// Sets the distance of neighboring places, by dimension.
    pub fn spacing(mut self, spacing: impl AsRef<[f64]>) -> Self {
        self.part.spacing = spacing.as_ref().to_vec();
        self
    }

    /// Says how the view is best drawn.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.part.kind = kind;
        self
    }

    /// Lets readers change elements, which [`View::publish_mut`] takes in.
    pub fn writable(mut self) -> Self
    where
        T: Pod,
    {
        self.part.is_writable = true;
        self
    }

    /// Opens the view. From now on it is listed.
    ///
    /// # Errors
    /// [`ExposeError`]: among others if this worker has an area of this name already.
    pub fn open(self) -> Result<View<'w, T>, ExposeError> {
        let Self { host, mut part, whole, element } = self;
        part.check()?;
        let all = [part.shape.clone(), vec![0; part.shape.len()]];
        [part.whole, part.origin] = whole.unwrap_or(all);
        part.check_place()?;
        part.check_axes()?;
        let count = part.set_element::<T>()?;
        let doorway = host.doorway()?;
        let shared = Arc::new(Shared::new(part.clone(), doorway.stays().clone(), doorway.areas().budget().clone()));
        let listed = doorway.areas().add(part, Source::View(shared.clone()))?;
        doorway.stays().add_view(host.number(), shared.clone());
        Ok(View { host, shared, _listed: listed, doorway, count, next: Cell::new(0), element })
    }
}

/// Memory that the program publishes once a step, for readers outside of the program.
///
/// *Cost.* A step that no reader asked for costs a store and a load. A step that one waits for is
/// copied once, into memory that is allocated with the first such step: up to three copies of the
/// part, and one for a pause, which readers on this machine map. The program never waits for a
/// reader. If all copies are being read, it goes on, and the readers get a later step.
///
/// While a reader has the job pause, publishing serves other workers
/// until the reader lets the job go on.
///
/// Dropping the view ends it.
pub struct View<'w, T> {
    host: Host<'w>,
    shared: Arc<Shared>,
    _listed: Listed,
    doorway: Arc<Doorway>,
    /// The number of elements of the part.
    count: usize,
    /// The lowest number that the next step may have.
    next: Cell<u64>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> View<'_, T> {
    /// Publishes a step: all elements of this worker's part, in row-major order. Steps have rising
    /// numbers, and some may be left out. Readers get the same step of all workers if all publish
    /// the same numbers.
    ///
    /// # Errors
    /// [`PublishError`]. Nothing was published then.
    #[inline]
    pub fn publish(&self, step: u64, values: &[T]) -> Result<(), PublishError> {
        self.check(step, values.len())?;
        if self.shared.is_wanted() {
            self.shared.before(&self.host, step).map_err(|error| PublishError::Job(Box::new(error)))?;
        }
        self.publish_checked(step, values);
        Ok(())
    }

    /// Publishes a step, as [`publish`](Self::publish) does, after it has made the changes that
    /// readers have asked for. Those of one reader's call come at the same step at all workers.
    ///
    /// The view must be [writable](ViewBuilder::writable) for that.
    ///
    /// # Errors
    /// [`PublishError`]. Nothing was published then.
    #[inline]
    pub fn publish_mut(&self, step: u64, values: &mut [T]) -> Result<(), PublishError>
    where
        T: Pod,
    {
        self.check(step, values.len())?;
        if self.shared.is_wanted() {
            self.shared.before(&self.host, step).map_err(|error| PublishError::Job(Box::new(error)))?;
            self.shared.take_edits(bytemuck::cast_slice_mut(values));
        }
        self.publish_checked(step, values);
        Ok(())
    }

    #[inline]
    fn check(&self, step: u64, given: usize) -> Result<(), PublishError> {
        let is_next = given == self.count && step >= self.next.get() && step != u64::MAX;
        if is_next { Ok(()) } else { Err(self.refusal(step, given)) }
    }

    #[inline]
    fn publish_checked(&self, step: u64, values: &[T]) {
        let next = self.next.replace(step + 1);
        self.shared.publish(next, step, bytemuck::cast_slice(values));
    }

    #[cold]
    fn refusal(&self, step: u64, given: usize) -> PublishError {
        let name = self.shared.name().to_owned();
        match self.next.get() {
            _ if given != self.count => PublishError::Length { name, given, expected: self.count },
            _ if step == u64::MAX => PublishError::Last { name },
            next => PublishError::Back { name, step, last: next.saturating_sub(1) },
        }
    }
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<T> Drop for View<'_, T> {
    fn drop(&mut self) {
        let view: Arc<dyn Stepping> = self.shared.clone();
        self.doorway.stays().remove_view(self.host.number(), &view);
    }
}
