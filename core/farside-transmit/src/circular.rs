//! Units of one size, used cyclically: a unit is reused when the operations on it are over.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use farside_sys::racy;

use farside_fabric::memory::{Chunk, ChunkSource, Growth};
use farside_fabric::queue::{Span, TransferKind};
use farside_fabric::region::{LocalRegion, RemoteRegion};
use farside_fabric::transport::FabricError;

use super::transmitter::Transmitter;

/// Options of a [`Circular`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircularOptions {
    /// The size of a unit. Units begin on multiples of 64 bytes.
    pub unit_bytes: usize,
    /// Number of units at the start, allocated on first use.
    pub units: usize,
    /// The growth when the next unit is not free.
    pub growth: Growth,
    /// Maximum number of units.
    pub units_max: usize,
}

impl Default for CircularOptions {
    /// Units of 4 KiB, 128 of them and up to 16 Ki.
    fn default() -> Self {
        Self { unit_bytes: 4096, units: 128, growth: Growth::Exponential, units_max: 16 << 10 }
    }
}

/// Units begin on multiples of this, so that no two share a cache line.
const ALIGNMENT: usize = 64;

/// A thread's circle of units in registered memory (Seriema, Section 4.2).
///
/// It advances while the next unit is free: the unit is not [held](Unit), and every [`Transmitter`]
/// that it was given to has passed its tag. Otherwise the circle grows at this place, up to its
/// limit. A slow transmitter therefore blocks units that others could use. Where that matters, give
/// each transmitter a circle of its own.
///
/// Units whose transmitter has failed are set aside until the transport has released them, and
/// [counted](Self::quarantined). They count as held.
///
/// A circle belongs to one thread. Its chunks return to their source when it is dropped, except
/// those with a unit in flight: these stay registered as long as the transport lives.
///
/// *Cost* of a unit: some nanoseconds, and a load for each transmitter that it was given to.
/// Growing registers memory.
#[derive(Debug)]
pub struct Circular {
    source: Box<dyn ChunkSource>,
    options: CircularOptions,
    /// Distance from one unit to the next.
    pitch: usize,
    /// The circle.
    units: Vec<Rc<UnitCell>>,
    /// Index of the next unit.
    next: usize,
    set_aside: Vec<Rc<UnitCell>>,
    chunks: Vec<Rc<Chunk>>,
}

/// A piece of registered memory. It is held until it is dropped, and then in use until the
/// operations posted with it are over.
///
/// Peers that know its region's key may write it at any time, so it is written and read by copies.
#[derive(Debug)]
pub struct Unit {
    cell: Rc<UnitCell>,
    part: Part,
}

/// A part of a unit: its start and its length, in one word, so that a unit is passed in two
/// registers.
#[derive(Clone, Copy, Debug)]
struct Part(u64);

impl Part {
    #[inline]
    fn new(at: usize, bytes: usize) -> Self {
        Self((at as u64) << 32 | bytes as u64)
    }

    #[inline]
    fn at(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline]
    fn bytes(self) -> usize {
        self.0 as u32 as usize
    }
}

#[derive(Debug)]
pub(crate) struct UnitCell {
    chunk: Rc<Chunk>,
    /// The chunk's region, and the unit's offset in it, so that a write needs no lookup.
    region: LocalRegion,
    offset: u64,
    start: *mut u8,
    /// The tag that each transmitter of this unit must pass.
    tags: RefCell<Vec<(Transmitter, u64)>>,
}

/// Number of tags from which those of a reused unit are removed.
const TAGS_KEPT: usize = 4;

impl Circular {
    /// Creates a circle without units. The first units are taken from the source on demand.
    ///
    /// # Panics
    /// If units have no bytes, or 4 GiB or more, or if their number is 0.
    #[track_caller]
    pub fn new(source: Box<dyn ChunkSource>, options: CircularOptions) -> Self {
        assert!(
            options.unit_bytes > 0 && options.units > 0 && options.units_max > 0,
            "{options:?}: units need a size and a number above 0"
        );
        assert!(options.unit_bytes <= u32::MAX as usize, "{options:?}: units are shorter than 4 GiB");
        let pitch = options.unit_bytes.next_multiple_of(ALIGNMENT);
        Self { source, options, pitch, units: Vec::new(), next: 0, set_aside: Vec::new(), chunks: Vec::new() }
    }

    /// Takes the next unit.
    ///
    /// # Errors
    /// [`FabricError::MemoryLimit`] if it is not free and the number of units is at its maximum;
    /// errors of the source.
    #[inline]
    pub fn take(&mut self) -> Result<Unit, FabricError> {
        match self.next_free() {
            Some(unit) => Ok(unit),
            None => self.take_another(),
        }
    }

    /// Takes the next unit as soon as it is free. If the number of units is at its maximum, this
    /// waits for the operations on the next one.
    ///
    /// # Errors
    /// [`FabricError::MemoryLimit`] if the next unit is held, so that waiting is useless;
    /// [`FabricError::Deadline`]; errors of the source.
    #[inline]
    pub fn take_by(&mut self, deadline: Instant) -> Result<Unit, FabricError> {
        match self.next_free() {
            Some(unit) => Ok(unit),
            None => self.await_another(deadline),
        }
    }

    #[inline(always)]
    fn next_free(&mut self) -> Option<Unit> {
        let cell = self.units.get(self.next).filter(|cell| cell.is_free())?;
        if cell.tags.borrow().len() > TAGS_KEPT {
            cell.tags.borrow_mut().clear();
        }
        let unit = Unit { cell: cell.clone(), part: Part::new(0, self.options.unit_bytes) };
        self.next += 1;
        if self.next == self.units.len() {
            self.next = 0;
        }
        Some(unit)
    }

    #[cold]
    fn take_another(&mut self) -> Result<Unit, FabricError> {
        self.sort_out();
        if self.units.get(self.next).is_none_or(|cell| !cell.is_free()) {
            self.grow()?;
        }
        Ok(self.next_free().expect("there is a free unit now"))
    }

    #[cold]
    fn await_another(&mut self, deadline: Instant) -> Result<Unit, FabricError> {
        loop {
            let refusal = match self.take_another() {
                Err(refusal @ FabricError::MemoryLimit { .. }) => refusal,
                taken => return taken,
            };
            let Some(cell) = self.units.get(self.next) else { return Err(refusal) };
            if cell.is_held() {
                return Err(refusal);
            }
            let tags = cell.tags.borrow().clone();
            for (transmitter, tag) in tags {
                match transmitter.wait(tag, deadline) {
                    Ok(()) => {}
                    // The unit is set aside at the next look.
                    Err(_) if transmitter.has_failed() => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Removes units from the circle, from the next one on, whose transmitters have failed. Inserts
    /// those again that are free by now.
    fn sort_out(&mut self) {
        while self.units.get(self.next).is_some_and(|cell| cell.is_in_quarantine()) {
            let cell = self.units.remove(self.next);
            self.set_aside.push(cell);
            if self.next == self.units.len() {
                self.next = 0;
            }
        }
        let free = self.set_aside.extract_if(.., |cell| cell.is_free());
        self.units.splice(self.next..self.next, free);
    }

    /// Inserts more units into the circle, before the next one.
    fn grow(&mut self) -> Result<(), FabricError> {
        let CircularOptions { units, units_max, growth, .. } = self.options;
        let held = self.unit_count();
        let count = growth.step(units, held, units_max).min(units_max.saturating_sub(held));
        if count == 0 {
            let [held, limit] = [held, units_max].map(|units| units.saturating_mul(self.pitch));
            return Err(FabricError::MemoryLimit { bytes: self.pitch, held, limit });
        }
        // An overflowing size exceeds the memory of any source.
        let bytes = count.saturating_mul(self.pitch);
        let chunk = Rc::new(self.source.take(bytes)?);
        // Units are written without another check of the chunk, and a source may be a user's own.
        assert!(chunk.bytes() >= bytes, "a source gives at least the requested size");
        self.chunks.push(chunk.clone());
        let new = (0..count).map(|number| {
            let offset = chunk.offset() + (number * self.pitch) as u64;
            let region = chunk.region().clone();
            let start = region.memory().base().as_ptr().wrapping_add(offset as usize);
            Rc::new(UnitCell { chunk: chunk.clone(), region, offset, start, tags: RefCell::default() })
        });
        self.units.splice(self.next..self.next, new);
        Ok(())
    }

    /// Number of units, including those set aside.
    pub fn unit_count(&self) -> usize {
        self.units.len() + self.set_aside.len()
    }

    /// The size of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.options.unit_bytes
    }

    /// Number of units set aside because their transmitters have failed and the transport has not
    /// released them.
    pub fn quarantined(&self) -> usize {
        self.set_aside.len()
    }
}

impl Drop for Circular {
    fn drop(&mut self) {
        let cells = self.units.drain(..).chain(self.set_aside.drain(..));
        let busy: Vec<Rc<UnitCell>> = cells.filter(|cell| !cell.is_free()).collect();
        for chunk in self.chunks.drain(..) {
            if !busy.iter().any(|cell| Rc::ptr_eq(&cell.chunk, &chunk))
                && let Some(chunk) = Rc::into_inner(chunk)
            {
                self.source.give_back(chunk);
            }
        }
    }
}

impl UnitCell {
    #[inline]
    fn is_over(&self) -> bool {
        self.tags.borrow().iter().all(|(transmitter, tag)| transmitter.has_passed(*tag))
    }

    /// Returns whether only the circle holds the unit (which only its own thread can change), and
    /// nothing posted with it is in flight.
    #[inline]
    fn is_free(self: &Rc<Self>) -> bool {
        !self.is_held() && self.is_over()
    }

    #[inline]
    fn is_held(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }

    fn is_in_quarantine(self: &Rc<Self>) -> bool {
        let is_stuck =
            |(transmitter, tag): &(Transmitter, u64)| transmitter.has_failed() && !transmitter.has_passed(*tag);
        !self.is_held() && self.tags.borrow().iter().any(is_stuck)
    }
}

impl Unit {
    /// A part of the unit, which holds the whole unit.
    pub(crate) fn cut(&self, at: usize, bytes: usize) -> Self {
        debug_assert!(at + bytes <= self.bytes());
        Self { cell: self.cell.clone(), part: Part::new(self.part.at() + at, bytes) }
    }

    /// Length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.part.bytes()
    }

    /// Returns whether everything posted with it is over, or released if its transmitter [has
    /// failed](Transmitter::has_failed).
    pub fn is_over(&self) -> bool {
        self.cell.is_over()
    }

    /// A part of the unit, for a [queue](crate::Queue). The caller must hold the unit until the
    /// operation is over.
    ///
    /// # Panics
    /// If the range exceeds the unit.
    #[inline]
    #[track_caller]
    pub fn part(&self, bytes: Range<usize>) -> Span<'_> {
        self.check(&bytes);
        let offset = self.cell.offset + (self.part.at() + bytes.start) as u64;
        // SAFETY: `check` found the range inside the unit. `grow` created the unit inside its
        // chunk, and a chunk lies inside its region.
        unsafe { Span::new_unchecked(&self.cell.region, offset, bytes.len()) }
    }

    #[inline]
    #[track_caller]
    fn check(&self, bytes: &Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end <= self.bytes(), "{bytes:?} of a unit of {} bytes", self.bytes());
    }

    /// The address of a part of the unit.
    #[inline]
    #[track_caller]
    fn start(&self, at: usize, bytes: usize) -> *mut u8 {
        self.check(&(at..at.saturating_add(bytes)));
        self.cell.start.wrapping_add(self.part.at() + at)
    }

    /// Writes bytes into the unit. Must not be called while an operation posted with it is in
    /// flight: a put may send the old bytes or the new ones.
    ///
    /// # Panics
    /// If the bytes do not fit.
    #[inline]
    #[track_caller]
    pub fn write(&self, at: usize, data: &[u8]) {
        let to = self.start(at, data.len());
        // SAFETY: `start` found the range inside the unit. `grow` created the unit inside its
        // chunk, and so inside its region's mapping. `data` is readable, and elsewhere, because no
        // reference points at registered memory.
        unsafe { racy::copy_out(data.as_ptr(), to, data.len()) };
    }

    /// Reads bytes of the unit.
    ///
    /// # Panics
    /// If the range exceeds the unit.
    #[inline]
    #[track_caller]
    pub fn read(&self, at: usize, data: &mut [u8]) {
        let from = self.start(at, data.len());
        // SAFETY: `start` found the range inside the unit, and so inside its region's mapping.
        // `data` is writable, and elsewhere, because no reference points at registered memory.
        unsafe { racy::copy_in(from, data.as_mut_ptr(), data.len()) };
    }

    /// Records the tag that a transmitter must pass before the unit is reused.
    #[inline]
    pub(crate) fn tag(&self, transmitter: &Transmitter, tag: u64) {
        let mut tags = self.cell.tags.borrow_mut();
        match tags.iter_mut().find(|(known, _)| known.is(transmitter)) {
            Some((_, known)) => *known = tag.max(*known),
            None => tags.push((transmitter.clone(), tag)),
        }
    }
}

impl Transmitter {
    /// Writes bytes of a unit to the peer's region, and tags the unit: it is reused when the put is
    /// over.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::StaleKey`]; [`FabricError::Deadline`], and then
    /// it was not posted, or not as a whole; the error of a failed queue.
    ///
    /// # Panics
    /// If the region is not the peer's, or the range exceeds the unit.
    #[inline]
    #[track_caller]
    pub fn put_unit(
        &self,
        unit: &Unit,
        bytes: Range<usize>,
        to: &RemoteRegion,
        offset: u64,
        deadline: Instant,
    ) -> Result<(), FabricError> {
        self.transfer_tagged(TransferKind::Put, unit, bytes, to, offset, deadline)
    }

    /// Reads the peer's region into bytes of a unit, and tags the unit. Otherwise like
    /// [`put_unit`](Self::put_unit). The data is there when the unit [is over](Unit::is_over),
    /// unless the transmitter [has failed](Self::has_failed).
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::StaleKey`]; [`FabricError::Deadline`], and then
    /// it was not posted, or not as a whole; the error of a failed queue.
    ///
    /// # Panics
    /// If the region is not the peer's, or the range exceeds the unit.
    #[inline]
    #[track_caller]
    pub fn get_unit(
        &self,
        unit: &Unit,
        bytes: Range<usize>,
        from: &RemoteRegion,
        offset: u64,
        deadline: Instant,
    ) -> Result<(), FabricError> {
        self.transfer_tagged(TransferKind::Get, unit, bytes, from, offset, deadline)
    }

    #[inline]
    #[track_caller]
    fn transfer_tagged(
        &self,
        kind: TransferKind,
        unit: &Unit,
        bytes: Range<usize>,
        remote: &RemoteRegion,
        offset: u64,
        deadline: Instant,
    ) -> Result<(), FabricError> {
        let local = unit.part(bytes);
        let posted = self.transfer(kind, local, remote, offset, deadline);
        match &posted {
            Ok(0) => {}
            Ok(tag) => unit.tag(self, *tag),
            Err(_) if local.bytes() > self.bytes_max() => {
                // Some of its pieces may be in flight.
                unit.tag(self, self.tag_now());
            }
            Err(_) => {}
        }
        posted.map(drop)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
