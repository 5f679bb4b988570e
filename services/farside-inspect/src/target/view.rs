//! [`View`]: memory that the program publishes once a step.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use super::areas::{Area, Source};
use super::door::Doorway;
use super::error::{ExposeError, PublishError};
use super::holds::Stepping;
use super::host::Host;
use super::shared::Shared;
use crate::element::{Element, ElementType, Field, is_possible};
use crate::protocol::{Kind, Part, Role};
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
    host: Host<'w>,
    name: String,
    shape: Vec<usize>,
    /// The whole area and where the part begins in it, if the part is not all.
    whole: Option<(Vec<usize>, Vec<usize>)>,
    units: String,
    zero: Vec<f64>,
    spacing: Vec<f64>,
    kind: Kind,
    is_writable: bool,
    element: PhantomData<fn() -> T>,
}

impl<'w, T: Element> ViewBuilder<'w, T> {
    pub(super) fn new(host: Host<'w>, name: &str) -> Self {
        Self {
            host,
            name: name.to_owned(),
            shape: Vec::new(),
            whole: None,
            units: String::new(),
            zero: Vec::new(),
            spacing: Vec::new(),
            kind: Kind::Plain,
            is_writable: false,
            element: PhantomData,
        }
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

    /// The coordinates of the first place of the whole, by dimension.
    pub fn origin(mut self, zero: impl AsRef<[f64]>) -> Self {
        self.zero = zero.as_ref().to_vec();
        self
    }

    /// The distance of two places, by dimension.
    pub fn spacing(mut self, spacing: impl AsRef<[f64]>) -> Self {
        self.spacing = spacing.as_ref().to_vec();
        self
    }

    /// How the view is best drawn.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Lets readers change elements, which [`View::publish_mut`] takes in.
    pub fn writable(mut self) -> Self
    where
        T: Pod,
    {
        self.is_writable = true;
        self
    }

    /// Opens the view. From now on it is listed.
    ///
    /// # Errors
    /// [`ExposeError`]: among others if this worker has an area of this name already.
    pub fn open(self) -> Result<View<'w, T>, ExposeError> {
        let part = self.part()?;
        let count = elements_of(&part)?;
        let doorway = self.host.doorway()?;
        let shared = Arc::new(Shared::new(part.clone(), doorway.holds().clone(), doorway.areas().budget().clone()));
        let area = Area::new(part, Source::View(shared.clone()));
        doorway.areas().add(&area)?;
        doorway.holds().add_view(self.host.number(), shared.clone());
        Ok(View { host: self.host, shared, area, doorway, count, next: Cell::new(0), element: PhantomData })
    }

    fn part(&self) -> Result<Part, ExposeError> {
        let Self { host, name, shape, whole, units, zero, spacing, kind, is_writable, .. } = self;
        let described = described(*host, name, Role::View)?;
        check_units(name, units)?;
        let all = (shape.clone(), vec![0; shape.len()]);
        let (whole, origin) = whole.as_ref().unwrap_or(&all);
        let wrong = |what| ExposeError::Shape { name: name.clone(), what };
        check_place(shape, whole, origin).map_err(wrong)?;
        if [zero, spacing].iter().any(|axes| !axes.is_empty() && axes.len() != shape.len()) {
            return Err(wrong("its coordinates have another number of dimensions; give one for each, or none"));
        }
        let wide = |lengths: &[usize]| lengths.iter().map(|length| *length as u64).collect();
        Ok(Part {
            kind: *kind,
            is_writable: *is_writable,
            element: T::TYPE,
            fields: fields_of::<T>(name)?,
            whole: wide(whole),
            origin: wide(origin),
            shape: wide(shape),
            units: units.clone(),
            zero: zero.clone(),
            spacing: spacing.clone(),
            ..described
        })
    }
}

/// Checks that a part of a shape can be at a place of the whole.
pub(super) fn check_place(shape: &[usize], whole: &[usize], origin: &[usize]) -> Result<(), &'static str> {
    if shape.len() > DIMENSIONS_MAX {
        return Err("it has more than 8 dimensions; join some");
    }
    if whole.len() != shape.len() || origin.len() != shape.len() {
        return Err("part, whole and origin have different numbers of dimensions; give each the same");
    }
    if shape.contains(&0) {
        return Err("a dimension of the part has the length 0; show nothing on a worker without elements");
    }
    let mut dimensions = shape.iter().zip(origin).zip(whole);
    if !dimensions.all(|((length, origin), whole)| origin.checked_add(*length).is_some_and(|end| end <= *whole)) {
        return Err("the part is not inside the whole; move its origin, or make the whole larger");
    }
    Ok(())
}

/// A part without elements, under a name that those who look can write.
pub(super) fn described(host: Host<'_>, name: &str, role: Role) -> Result<Part, ExposeError> {
    let has_brackets = name.contains(['[', ']']);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || has_brackets || name.chars().any(char::is_control) {
        return Err(ExposeError::Name { name: name.into(), max: NAME_BYTES_MAX });
    }
    Ok(Part {
        name: name.into(),
        worker: host.number(),
        role,
        kind: Kind::Plain,
        is_writable: false,
        element: ElementType::F64,
        fields: Vec::new(),
        whole: Vec::new(),
        origin: Vec::new(),
        shape: Vec::new(),
        units: String::new(),
        zero: Vec::new(),
        spacing: Vec::new(),
        step: None,
    })
}

/// The fields of a type that can be that of elements.
pub(super) fn fields_of<T: Element>(name: &str) -> Result<Vec<Field>, ExposeError> {
    let fields = T::fields();
    let what = "its elements have more than 256 fields, or one with more than 8 dimensions or a name of \
        more than 100 bytes; show fewer, or in several areas";
    let possible = is_possible(T::TYPE, &fields).then_some(fields);
    possible.ok_or_else(|| ExposeError::Shape { name: name.into(), what })
}

/// Checks that a text can be the units of an area.
pub(super) fn check_units(name: &str, units: &str) -> Result<(), ExposeError> {
    if units.len() <= UNITS_BYTES_MAX && !units.chars().any(char::is_control) {
        return Ok(());
    }
    Err(ExposeError::Units { name: name.into(), units: units.into(), max: UNITS_BYTES_MAX })
}

/// The number of elements of a part.
pub(super) fn elements_of(part: &Part) -> Result<usize, ExposeError> {
    elements(&part.shape, part.element.bytes()).ok_or_else(|| ExposeError::Shape {
        name: part.name.clone(),
        what: "its elements have more bytes than an address space; make it smaller",
    })
}

/// Memory that the program publishes once a step, for those who look from outside.
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
    area: Arc<Area>,
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
        self.doorway.holds().remove_view(self.host.number(), &view);
        self.doorway.areas().remove(&self.area);
    }
}
