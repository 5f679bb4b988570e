//! Units of one size, used in turn: one is handed out again when what was sent from it is over.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use farside_sys::racy;

use farside_fabric::memory::{Chunk, ChunkSource, Growth};
use farside_fabric::queue::Span;
use farside_fabric::region::LocalRegion;
use farside_fabric::transport::FabricError;

use super::transmitter::Transmitter;

/// What a [`Circular`] is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircularOptions {
    /// The size of a unit. Units begin on multiples of 64 bytes.
    pub unit_bytes: usize,
    /// How many units it begins with, when the first is asked for.
    pub units: usize,
    /// How it grows when the next unit is not free.
    pub growth: Growth,
    /// How many units there are at most.
    pub units_max: usize,
}

impl Default for CircularOptions {
    /// Units of 4 KiB, 128 of them and up to 16 Ki.
    fn default() -> Self {
        Self { unit_bytes: 4096, units: 128, growth: Growth::Exponential, units_max: 16 << 10 }
    }
}

/// Units begin on multiples of this, so that no two share a line of the cache.
const ALIGNMENT: usize = 64;

/// A thread's circle of units in registered memory (Seriema, Section 4.2).
///
/// It moves on while the next unit is free: nobody [holds](Unit) it, and every [`Transmitter`] that it was given to has passed its tag.
/// When it is not, the circle grows there, up to its limit. A transmitter that falls behind so holds up what others could use:
/// where that matters, give each transmitter a circle of its own.
///
/// Units whose transmitter has failed are set aside until the transport has let go of them, and [counted](Self::quarantined). They
/// count as held.
///
/// It belongs to one thread. Its chunks go back to their source when it is dropped, except for those of which a unit is under way:
/// they stay registered as long as the transport lives.
///
/// *Cost* of a unit: some nanoseconds, a load for each transmitter that it was given to. Growing registers memory.
#[derive(Debug)]
pub struct Circular {
    source: Box<dyn ChunkSource>,
    options: CircularOptions,
    /// From one unit to the next.
    pitch: usize,
    /// The circle.
    units: Vec<Rc<UnitCell>>,
    /// Where the next one is taken.
    next: usize,
    set_aside: Vec<Rc<UnitCell>>,
    chunks: Vec<Rc<Chunk>>,
}

/// A piece of registered memory, held until it is dropped, and then used until what was posted with it is over.
///
/// Peers that know its region's key may write it at any time; it is written and read by copies.
#[derive(Debug)]
pub struct Unit {
    cell: Rc<UnitCell>,
    part: Part,
}

/// A part of a unit: where it begins and how long it is, in one word, so that a unit is handed on in two registers.
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
    /// The chunk's region, and where the unit begins in it: nothing is looked up to write there.
    region: LocalRegion,
    offset: u64,
    start: *mut u8,
    /// How far each transmitter that it was given to must come.
    tags: RefCell<Vec<(Transmitter, u64)>>,
}

/// Tags of a unit that is taken anew are forgotten when they are so many.
const TAGS_KEPT: usize = 4;

impl Circular {
    /// A circle without units. The first are taken from the source when they are asked for.
    ///
    /// # Panics
    /// When units have no bytes, or 4 GiB, or there are to be none.
    #[track_caller]
    pub fn new(source: Box<dyn ChunkSource>, options: CircularOptions) -> Self {
        assert!(options.unit_bytes > 0 && options.units > 0 && options.units_max > 0, "{options:?}: no unit would do");
        assert!(options.unit_bytes <= u32::MAX as usize, "{options:?}: units are shorter than 4 GiB");
        let pitch = options.unit_bytes.next_multiple_of(ALIGNMENT);
        Self { source, options, pitch, units: Vec::new(), next: 0, set_aside: Vec::new(), chunks: Vec::new() }
    }

    /// The next unit.
    ///
    /// # Errors
    /// [`FabricError::MemoryLimit`] when it is not free and there are as many as may be; what the source says.
    #[inline]
    pub fn take(&mut self) -> Result<Unit, FabricError> {
        match self.next_free() {
            Some(unit) => Ok(unit),
            None => self.take_another(),
        }
    }

    /// The next unit, as soon as it is free. When there are as many as may be, this waits for what was posted with it.
    ///
    /// # Errors
    /// [`FabricError::MemoryLimit`] when the next unit is held, so that waiting is in vain; [`FabricError::Deadline`]; what the source
    /// says.
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
                    // The unit is set aside when it is looked at again.
                    Err(_) if transmitter.has_failed() => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Takes those out of the circle, from the next on, whose transmitters have failed, and those in that are free by now.
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

    /// Puts more units into the circle, in front of the next.
    fn grow(&mut self) -> Result<(), FabricError> {
        let CircularOptions { units, units_max, growth, .. } = self.options;
        let held = self.unit_count();
        let count = growth.step(units, held, units_max).min(units_max.saturating_sub(held));
        if count == 0 {
            let [held, limit] = [held, units_max].map(|units| units.saturating_mul(self.pitch));
            return Err(FabricError::MemoryLimit { bytes: self.pitch, held, limit });
        }
        // More than can be counted is more than any source has.
        let bytes = count.saturating_mul(self.pitch);
        let chunk = Rc::new(self.source.take(bytes)?);
        // Units are written without another look at the chunk, and a source may be anybody's.
        assert!(chunk.bytes() >= bytes, "a source gives as much as it was asked for");
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

    /// How many units there are, whatever becomes of them.
    pub fn unit_count(&self) -> usize {
        self.units.len() + self.set_aside.len()
    }

    /// The size of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.options.unit_bytes
    }

    /// How many units are set aside since their transmitters have failed and the transport has not let go of them.
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

    /// Nobody holds it but the circle, which one thread has, and nothing posted with it is under way.
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
    /// A part of it, which holds all of it.
    pub(crate) fn cut(&self, at: usize, bytes: usize) -> Self {
        debug_assert!(at + bytes <= self.bytes());
        Self { cell: self.cell.clone(), part: Part::new(self.part.at() + at, bytes) }
    }

    /// How long it is.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.part.bytes()
    }

    /// Whether everything that was posted with it is over; or released, where its transmitter [has failed](Transmitter::has_failed).
    pub fn is_over(&self) -> bool {
        self.cell.is_over()
    }

    /// Such bytes of it, for [queues](crate::Queue) by hand. Whoever posts them must hold the unit until that is over.
    ///
    /// # Panics
    /// When it has not so many.
    #[inline]
    #[track_caller]
    pub fn part(&self, bytes: Range<usize>) -> Span<'_> {
        self.check(&bytes);
        let offset = self.cell.offset + (self.part.at() + bytes.start) as u64;
        // SAFETY: `check` found the range inside the unit. `grow` made the unit inside its chunk, and a chunk lies inside its region.
        unsafe { Span::new_unchecked(&self.cell.region, offset, bytes.len()) }
    }

    #[inline]
    #[track_caller]
    fn check(&self, bytes: &Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end <= self.bytes(), "{bytes:?} of a unit of {} bytes", self.bytes());
    }

    /// The address of such bytes of it.
    #[inline]
    #[track_caller]
    fn start(&self, at: usize, bytes: usize) -> *mut u8 {
        self.check(&(at..at.saturating_add(bytes)));
        self.cell.start.wrapping_add(self.part.at() + at)
    }

    /// Writes bytes into it. Not while what was posted with it is under way: a put may send either.
    ///
    /// # Panics
    /// When they do not fit.
    #[inline]
    #[track_caller]
    pub fn write(&self, at: usize, data: &[u8]) {
        let to = self.start(at, data.len());
        // SAFETY: `start` found the range in the unit, which `grow` found in its chunk, and so in its region's mapping; `data` is readable, and elsewhere, since no
        // reference points at registered memory.
        unsafe { racy::copy_out(data.as_ptr(), to, data.len()) };
    }

    /// Reads bytes of it.
    ///
    /// # Panics
    /// When it has not so many.
    #[inline]
    #[track_caller]
    pub fn read(&self, at: usize, data: &mut [u8]) {
        let from = self.start(at, data.len());
        // SAFETY: as in `write`, the other way.
        unsafe { racy::copy_in(from, data.as_mut_ptr(), data.len()) };
    }

    /// A transmitter must come so far before it is handed out again.
    #[inline]
    pub(crate) fn tag(&self, transmitter: &Transmitter, tag: u64) {
        let mut tags = self.cell.tags.borrow_mut();
        match tags.iter_mut().find(|(known, _)| known.is(transmitter)) {
            Some((_, known)) => *known = tag.max(*known),
            None => tags.push((transmitter.clone(), tag)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
