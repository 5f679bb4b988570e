//! Moving sections between a program's own values and global memory, and between places in global
//! memory.

use std::ops::Range;

use farside::bytemuck::{self, Pod};
use farside::kit::{Reach, SpaceParts as _, Touch, WorkerParts as _, check_alignment};
use farside::{AccessKind, GlobalAddress, GlobalPtr, GlobalSlice, Result, Worker};
use farside_fabric::RemoteRegion;
use farside_fabric::region::flights::{BYTES_MAX, Flights, OPERATIONS_MAX};
use farside_sys::racy;

use super::pieces::Pieces;
use super::{Section, SectionFault};

/// Moves sections between global memory and values of the program, or between places in global
/// memory. The prelude brings it in.
pub trait MoveSections<T: Pod> {
    /// Writes the values at the places `from` of `values` to the places `to` of this slice.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::GlobalSlice;
    /// # use farside_kit::prelude::*;
    /// # use farside_kit::section::Section;
    /// # fn example(me: &Worker, matrix: GlobalSlice<f64>) -> farside::Result<()> {
    /// // Columns 3 and 4 of a matrix of 100 x 40 values, from 200 values that lie together.
    /// let columns = Section::subarray(&[100, 40], &[0, 3], &[100, 2])?;
    /// matrix.put_section(me, &columns, &[0.5; 200], &Section::contiguous(200))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Completion*: all values are visible when it returns. Until then they become visible in any
    /// order.
    ///
    /// *Cost*: in mapped memory, one copy for each piece that is contiguous on both sides, and no
    /// allocation. In registered memory of other processes on this machine, one system call for
    /// each piece. Otherwise one operation for each piece, with up to 64 operations or 256 KiB
    /// under way.
    ///
    /// # Errors
    /// [`SectionError`](super::SectionError) if the sections differ in their number of values, if
    /// either leaves its memory, or if `to` names a value twice;
    /// [`GlobalError::Address`](farside::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if the owner is lost;
    /// [`Error::Fabric`](farside::Error::Fabric) if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`](farside::Error::InHandler) if a handler would have to wait for
    /// it. Nothing is written then, unless the owner is lost or the deadline passes meanwhile.
    #[track_caller]
    fn put_section(&self, me: &Worker, to: &Section, values: &[T], from: &Section) -> Result<()>;

    /// Reads the values at the places `from` of this slice into the places `to` of `values`.
    ///
    /// *Cost*: that of [`put_section`](Self::put_section).
    ///
    /// # Errors
    /// [`SectionError`](super::SectionError) if the sections differ in their number of values, if
    /// either leaves its memory, or if `to` names a value twice;
    /// [`GlobalError::Address`](farside::global::GlobalError::Address) for a null, stale or
    /// misaligned address, or one out of range; [`Error::PeerLost`](farside::Error::PeerLost) if
    /// the owner is lost; [`Error::Fabric`](farside::Error::Fabric) if it does not answer in time,
    /// or the transport fails; [`Error::InHandler`](farside::Error::InHandler) if a handler would
    /// have to wait for it. The contents of `values` are unspecified then.
    #[track_caller]
    fn get_section(&self, me: &Worker, from: &Section, values: &mut [T], to: &Section) -> Result<()>;

    /// Copies the values at the places `from` of `source` to the places `to` of this slice. If the
    /// two share memory, the result is as if all values were read before the first is written.
    ///
    /// *Cost*: one copy for each piece, if both are mapped and share no memory. Otherwise the
    /// values pass through memory of this worker: 256 KiB at a time, or all at once if the two
    /// share memory.
    ///
    /// # Errors
    /// [`SectionError`](super::SectionError) if the sections differ in their number of values, if
    /// either leaves its memory, or if `to` names a value twice;
    /// [`GlobalError::Address`](farside::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::PeerLost`](farside::Error::PeerLost) if an owner is lost;
    /// [`Error::Fabric`](farside::Error::Fabric) if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`](farside::Error::InHandler) if a handler would have to wait for
    /// it.
    #[track_caller]
    fn copy_section(&self, me: &Worker, to: &Section, source: &Self, from: &Section) -> Result<()>;
}

impl<T: Pod> MoveSections<T> for GlobalSlice<T> {
    fn put_section(&self, me: &Worker, to: &Section, values: &[T], from: &Section) -> Result<()> {
        check::<T>(to, self.len(), from, values.len())?;
        let touch = Touch::here(AccessKind::Write);
        touch_parts(self, me, parts::<T>(to, from).map(|part| (part.to, part.bytes)), touch)?;
        let Some(place) = Place::new(me, self, to)? else { return Ok(()) };
        let bytes: &[u8] = bytemuck::cast_slice(values);
        place.write(me, parts::<T>(to, from).map(|part| (part.to, &bytes[part.from..][..part.bytes])))
    }

    fn get_section(&self, me: &Worker, from: &Section, values: &mut [T], to: &Section) -> Result<()> {
        check::<T>(to, values.len(), from, self.len())?;
        let touch = Touch::here(AccessKind::Read);
        touch_parts(self, me, parts::<T>(to, from).map(|part| (part.from, part.bytes)), touch)?;
        let Some(place) = Place::new(me, self, from)? else { return Ok(()) };
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
        place.read(me, parts::<T>(to, from).map(|part| (part.from, part.to..part.to + part.bytes)), bytes)
    }

    fn copy_section(&self, me: &Worker, to: &Section, source: &Self, from: &Section) -> Result<()> {
        check::<T>(to, self.len(), from, source.len())?;
        let (write, read) = (Touch::here(AccessKind::Write), Touch::here(AccessKind::Read));
        touch_parts(source, me, parts::<T>(to, from).map(|part| (part.from, part.bytes)), read)?;
        touch_parts(self, me, parts::<T>(to, from).map(|part| (part.to, part.bytes)), write)?;
        let (Some(target), Some(origin)) = (Place::kept(me, self, to)?, Place::kept(me, source, from)?) else {
            return Ok(());
        };
        if target.meets(me, &origin) {
            let mut all = vec![T::zeroed(); to.len()];
            let together = Section::contiguous(all.len());
            source.get_section(me, from, &mut all, &together)?;
            return self.put_section(me, to, &all, &together);
        }
        if let (Reach::Mapped(target), Reach::Mapped(origin)) = (&target.reach, &origin.reach) {
            for part in parts::<T>(to, from) {
                let (source, place) = (origin.wrapping_add(part.from), target.wrapping_add(part.to));
                // SAFETY: `target` and `origin` are the starts of ranges that are mapped here, each
                // as long as its section's span. No part leaves its section's span, so both parts
                // lie inside these ranges. The two places keep them mapped.
                unsafe { racy::copy_between(source, place, part.bytes) };
            }
            return Ok(());
        }
        let mut batch = Batch::default();
        for part in parts::<T>(to, from) {
            let mut moved = 0;
            while moved < part.bytes {
                let bytes = (part.bytes - moved).min(BYTES_MAX);
                if !batch.has_room(bytes) {
                    batch.carry(me, &target, &origin)?;
                }
                batch.parts.push(Part { to: part.to + moved, from: part.from + moved, bytes });
                batch.bytes += bytes;
                moved += bytes;
            }
        }
        batch.carry(me, &target, &origin)
    }
}

/// Reports the accesses to parts, each given by its offset and its size, to the observer of
/// accesses, if there is one. In a trace, all of them are one put.
fn touch_parts<T: Pod>(
    slice: &GlobalSlice<T>,
    me: &Worker,
    mut parts: impl Iterator<Item = (usize, usize)>,
    touch: Touch,
) -> Result<()> {
    if !me.is_noticing() {
        return Ok(());
    }
    let start: GlobalPtr<u8> = slice.start().cast();
    if me.is_observed() {
        return parts.try_for_each(|(at, bytes)| me.touch(start.add(at)?.address(), bytes, touch));
    }
    if touch.kind == AccessKind::Write {
        me.note_put_at(start.address(), parts.map(|(_, bytes)| bytes).sum(), touch);
    }
    Ok(())
}

/// Refuses sections that cannot be moved.
fn check<T>(to: &Section, to_length: usize, from: &Section, from_length: usize) -> Result<(), SectionFault> {
    if to.len() != from.len() {
        return Err(SectionFault::LengthsDiffer { from: from.len(), to: to.len() });
    }
    for (section, length) in [(to, to_length), (from, from_length)] {
        if section.span() > length {
            return Err(SectionFault::TooLong { span: section.span(), length });
        }
        // A slice of global memory may claim any length, so the size in bytes may overflow.
        if section.span().checked_mul(size_of::<T>()).is_none() {
            return Err(SectionFault::TooLarge);
        }
    }
    if to.is_disjoint() { Ok(()) } else { Err(SectionFault::Overlaps) }
}

/// Bytes that are contiguous on both sides.
#[derive(Clone, Copy, Debug)]
struct Part {
    to: usize,
    from: usize,
    bytes: usize,
}

/// Returns the pieces of two sections, in bytes.
#[inline]
fn parts<'a, T>(to: &'a Section, from: &'a Section) -> impl Iterator<Item = Part> + use<'a, T> {
    let size = size_of::<T>();
    // The products do not overflow: no place is beyond its section's span, whose size in bytes fits
    // into a `usize` (see `check`).
    let part =
        move |to: usize, from: usize, length: usize| Part { to: to * size, from: from * size, bytes: length * size };
    Pieces::new(to, from).map(move |piece| part(piece.to, piece.from, piece.length))
}

/// The memory that a section lies in.
#[derive(Debug)]
struct Place {
    address: GlobalAddress,
    bytes: usize,
    reach: Reach,
    /// Keeps the memory mapped, even if the worker lets go of the region meanwhile.
    _region: Option<RemoteRegion>,
}

impl Place {
    /// Returns `None` if there is nothing to move.
    fn new<T: Pod>(me: &Worker, slice: &GlobalSlice<T>, section: &Section) -> Result<Option<Self>> {
        let Some((address, bytes)) = Self::range(slice, section)? else { return Ok(None) };
        Ok(Some(Self { address, bytes, reach: me.reach(address, bytes)?, _region: None }))
    }

    /// Like [`new`](Self::new), for one of two places. Keeps the memory mapped while the other is
    /// looked up.
    fn kept<T: Pod>(me: &Worker, slice: &GlobalSlice<T>, section: &Section) -> Result<Option<Self>> {
        let Some((address, bytes)) = Self::range(slice, section)? else { return Ok(None) };
        let (reach, region) =
            me.on_region(address, bytes, None, |region, offset, _| Ok((Reach::of(region, offset), region.clone())))?;
        Ok(Some(Self { address, bytes, reach, _region: Some(region) }))
    }

    fn range<T: Pod>(slice: &GlobalSlice<T>, section: &Section) -> Result<Option<(GlobalAddress, usize)>> {
        let (address, bytes) = (slice.start().address(), section.span() * size_of::<T>());
        check_alignment::<T>(address)?;
        Ok((bytes > 0).then_some((address, bytes)))
    }

    /// Returns whether the ranges from the first to the last byte of the two overlap.
    fn meets(&self, me: &Worker, other: &Self) -> bool {
        me.overlap((self.address, self.bytes), (other.address, other.bytes))
    }

    /// Writes parts, each given by its offset and its bytes.
    fn write<'a>(&self, me: &Worker, parts: impl Iterator<Item = (usize, &'a [u8])>) -> Result<()> {
        let mut parts = parts;
        let (key, offset) = match &self.reach {
            Reach::Posted { key, offset } => (*key, *offset),
            Reach::AtOnce { region, offset } => {
                let deadline = me.now() + me.default_deadline();
                let written = parts.try_for_each(|(at, data)| region.put(offset + at as u64, data, deadline));
                return written.map_err(|error| me.access_failed(self.address, error));
            }
            Reach::Mapped(base) => {
                for (at, data) in parts {
                    // SAFETY: `data` is readable. No part leaves its section's span, so each lies
                    // inside the range that is mapped from `base` on. No region was attached or let
                    // go since that range was found, so it is still mapped.
                    unsafe { copy_out(data.as_ptr(), base.wrapping_add(at), data.len()) };
                }
                return Ok(());
            }
        };
        let deadline = me.now() + me.default_deadline();
        let mut flights = Flights::new(&**me.process_handle().transport(), key, deadline, |_, _| ());
        let posted = parts.try_for_each(|(at, data)| flights.put(offset + at as u64, data));
        posted.and_then(|()| flights.finish()).map_err(|error| me.access_failed(self.address, error))
    }

    /// Reads parts, each given by its offset and by its range in `buffer`.
    fn read(&self, me: &Worker, parts: impl Iterator<Item = (usize, Range<usize>)>, buffer: &mut [u8]) -> Result<()> {
        let mut parts = parts;
        let (key, offset) = match &self.reach {
            Reach::Posted { key, offset } => (*key, *offset),
            Reach::AtOnce { region, offset } => {
                let deadline = me.now() + me.default_deadline();
                let read =
                    parts.try_for_each(|(at, range)| region.get(offset + at as u64, &mut buffer[range], deadline));
                return read.map_err(|error| me.access_failed(self.address, error));
            }
            Reach::Mapped(base) => {
                for (at, range) in parts {
                    let data = &mut buffer[range];
                    // SAFETY: `data` is writable. No part leaves its section's span, so each lies
                    // inside the range that is mapped from `base` on. No region was attached or let
                    // go since that range was found, so it is still mapped.
                    unsafe { copy_in(base.wrapping_add(at), data.as_mut_ptr(), data.len()) };
                }
                return Ok(());
            }
        };
        let deadline = me.now() + me.default_deadline();
        let land = |range: Range<usize>, data: &[u8]| buffer[range].copy_from_slice(data);
        let mut flights = Flights::new(&**me.process_handle().transport(), key, deadline, land);
        let posted = parts.try_for_each(|(at, range)| flights.get(offset + at as u64, range));
        posted.and_then(|()| flights.finish()).map_err(|error| me.access_failed(self.address, error))
    }
}

/// Parts that move together from memory to memory through a buffer of this worker.
#[derive(Debug, Default)]
struct Batch {
    parts: Vec<Part>,
    bytes: usize,
    buffer: Vec<u8>,
}

impl Batch {
    fn has_room(&self, bytes: usize) -> bool {
        self.parts.len() < OPERATIONS_MAX && self.bytes + bytes <= BYTES_MAX
    }

    /// Moves its parts, and is empty afterwards.
    fn carry(&mut self, me: &Worker, target: &Place, origin: &Place) -> Result<()> {
        self.buffer.resize(self.bytes, 0);
        let mut end = 0;
        let mut next = |bytes: usize| {
            end += bytes;
            end - bytes..end
        };
        let ranges: Vec<Range<usize>> = self.parts.iter().map(|part| next(part.bytes)).collect();
        let reads = self.parts.iter().zip(&ranges).map(|(part, range)| (part.from, range.clone()));
        origin.read(me, reads, &mut self.buffer)?;
        let writes = self.parts.iter().zip(&ranges).map(|(part, range)| (part.to, &self.buffer[range.clone()]));
        target.write(me, writes)?;
        self.parts.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// [`racy::copy_out`], for callers whose copies are mostly of one number.
///
/// # Safety
/// That of [`racy::copy_out`].
#[inline(always)]
unsafe fn copy_out(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes {
        // SAFETY: the caller makes the promises that this function asks for, with `bytes` = 8.
        8 => unsafe { racy::copy_out(from, to, 8) },
        // SAFETY: the caller makes the promises that this function asks for, with `bytes` = 4.
        4 => unsafe { racy::copy_out(from, to, 4) },
        // SAFETY: the caller makes the promises that this function asks for.
        _ => unsafe { racy::copy_out(from, to, bytes) },
    }
}

/// [`racy::copy_in`], for callers whose copies are mostly of one number.
///
/// # Safety
/// That of [`racy::copy_in`].
#[inline(always)]
unsafe fn copy_in(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes {
        // SAFETY: the caller makes the promises that this function asks for, with `bytes` = 8.
        8 => unsafe { racy::copy_in(from, to, 8) },
        // SAFETY: the caller makes the promises that this function asks for, with `bytes` = 4.
        4 => unsafe { racy::copy_in(from, to, 4) },
        // SAFETY: the caller makes the promises that this function asks for.
        _ => unsafe { racy::copy_in(from, to, bytes) },
    }
}
