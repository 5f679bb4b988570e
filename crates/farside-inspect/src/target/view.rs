//! [`View`]: memory that the program publishes once a step.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use farside::Worker;

use super::door::{Areas, Doorway};
use super::error::{ExposeError, PublishError};
use super::shared::Shared;
use crate::element::Element;
use crate::protocol::Part;
use crate::spans::elements;

/// The most dimensions of an area.
pub(crate) const DIMENSIONS_MAX: usize = 8;
/// The longest name of an area, and the longest units.
const NAME_BYTES_MAX: usize = 200;
const UNITS_BYTES_MAX: usize = 40;

/// Describes a view. Made by [`Expose::view`](crate::Expose::view), ended by
/// [`open`](Self::open).
#[derive(Debug)]
#[must_use = "nothing is shown before `open`"]
pub struct ViewBuilder<'w, T> {
    me: &'w Worker,
    name: String,
    shape: Vec<usize>,
    /// The whole area and where the part begins in it, if the part is not all.
    whole: Option<(Vec<usize>, Vec<usize>)>,
    units: String,
    element: PhantomData<fn() -> T>,
}

impl<'w, T: Element> ViewBuilder<'w, T> {
    pub(super) fn new(me: &'w Worker, name: &str) -> Self {
        let (name, units) = (name.to_owned(), String::new());
        Self { me, name, shape: Vec::new(), whole: None, units, element: PhantomData }
    }

    /// The shape of what this worker publishes, in row-major order: up to 8 dimensions. The default
    /// is a single number.
    pub fn shape(mut self, shape: impl AsRef<[usize]>) -> Self {
        self.shape = shape.as_ref().to_vec();
        self
    }

    /// Makes what this worker publishes a part of an area of the shape `whole`, from the place
    /// `origin` on. Those who look see the parts of all workers as one.
    pub fn part_of(mut self, whole: impl AsRef<[usize]>, origin: impl AsRef<[usize]>) -> Self {
        self.whole = Some((whole.as_ref().to_vec(), origin.as_ref().to_vec()));
        self
    }

    /// The units of the elements, such as `K`.
    pub fn units(mut self, units: &str) -> Self {
        units.clone_into(&mut self.units);
        self
    }

    /// Opens the view. From now on it is listed.
    ///
    /// # Errors
    /// [`ExposeError`]: among others if this worker has an area of this name already.
    pub fn open(self) -> Result<View<T>, ExposeError> {
        let part = self.part()?;
        let count = elements(&part.shape, size_of::<T>()).ok_or(ExposeError::Shape {
            name: self.name.clone(),
            what: "its elements have more bytes than an address space; make it smaller",
        })?;
        let doorway = self.me.process_state::<Doorway>();
        doorway.open(self.me)?;
        let areas = doorway.areas().clone();
        let shared = areas.add(part)?;
        Ok(View { shared, areas, count, next: Cell::new(0), element: PhantomData })
    }

    fn part(&self) -> Result<Part, ExposeError> {
        let Self { me, name, shape, whole, units, .. } = self;
        let is_plain = |text: &str| !text.chars().any(char::is_control);
        let has_brackets = name.contains(['[', ']']);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || has_brackets || !is_plain(name) {
            return Err(ExposeError::Name { name: name.clone(), max: NAME_BYTES_MAX });
        }
        if units.len() > UNITS_BYTES_MAX || !is_plain(units) {
            return Err(ExposeError::Units { name: name.clone(), units: units.clone(), max: UNITS_BYTES_MAX });
        }
        let wrong = |what| ExposeError::Shape { name: name.clone(), what };
        let all = (shape.clone(), vec![0; shape.len()]);
        let (whole, origin) = whole.as_ref().unwrap_or(&all);
        if shape.len() > DIMENSIONS_MAX {
            return Err(wrong("it has more than 8 dimensions; join some"));
        }
        if whole.len() != shape.len() || origin.len() != shape.len() {
            return Err(wrong("part, whole and origin have different numbers of dimensions; give each the same"));
        }
        if shape.contains(&0) {
            return Err(wrong("a dimension of the part has the length 0; open no view on a worker without elements"));
        }
        let mut dimensions = shape.iter().zip(origin).zip(whole);
        if !dimensions.all(|((length, origin), whole)| origin.checked_add(*length).is_some_and(|end| end <= *whole)) {
            return Err(wrong("the part is not inside the whole; move its origin, or make the whole larger"));
        }
        let wide = |lengths: &[usize]| lengths.iter().map(|length| *length as u64).collect();
        Ok(Part {
            name: name.clone(),
            worker: me.id().number(),
            element: T::TYPE,
            whole: wide(whole),
            origin: wide(origin),
            shape: wide(shape),
            units: units.clone(),
            step: None,
        })
    }
}

/// Memory that the program publishes once a step, for those who look from outside.
///
/// *Cost.* A step that no reader asked for costs a store and a load. A step that one waits for is
/// copied once, into memory that is allocated with the first such step: up to three copies of the
/// part. The program never waits for a reader. If all copies are being read, it goes on, and the
/// readers get a later step.
///
/// Dropping the view ends it.
pub struct View<T> {
    shared: Arc<Shared>,
    areas: Arc<Areas>,
    /// The number of elements of the part.
    count: usize,
    /// The lowest number that the next step may have.
    next: Cell<u64>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> View<T> {
    /// Publishes a step: all elements of this worker's part, in row-major order. Steps have rising
    /// numbers, and some may be left out. Readers get the same step of all workers if all publish
    /// the same numbers.
    ///
    /// # Errors
    /// [`PublishError`]. Nothing was published then.
    #[inline]
    pub fn publish(&self, step: u64, values: &[T]) -> Result<(), PublishError> {
        let next = self.next.get();
        if values.len() != self.count || step < next || step == u64::MAX {
            return Err(self.refusal(step, values.len()));
        }
        self.next.set(step + 1);
        self.shared.publish(next, step, bytemuck::cast_slice(values));
        Ok(())
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

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<T> Drop for View<T> {
    fn drop(&mut self) {
        self.areas.remove(&self.shared);
    }
}
