//! A worker's knowledge of the address space, and its accesses.
//!
//! # Why the cached pointers are valid
//!
//! A line of the worker's [`AddressCache`](crate::runtime::address_cache::AddressCache) holds
//! pointers into two mappings: the region's, and that of its owner's starter memory.
//! [`Worker::fill`] fills a line only from a [`Known`] segment of the same worker, which keeps both
//! mapped. A segment is taken out of `known` only after its line is cleared
//! ([`Worker::forget_segment`], [`Worker::forget_retired`]). A pointer found in the cache is used
//! within one call that does neither.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use farside_fabric::transport::AtomicChange;
use farside_fabric::{FabricError, ProcessId, RemoteKey, RemoteRegion};
use farside_sys::racy;

use crate::error::{Error, Result};
use crate::global::room::GlobalRoom;
use crate::global::{AddressFault, GlobalError};
use crate::memory::ProcessMemory;
use crate::memory::address::{GlobalAddress, SLOT_COUNT, Segment};
use crate::memory::segments::{Entry, look_up};
use crate::runtime::address_cache::{LINE_COUNT, Range};
use crate::runtime::home::{Home, SEGMENT_BYTES};
use crate::runtime::observer::{AccessKind, Touch};
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// The segments that a worker has used. They stay attached here.
pub(super) type KnownSegments = RefCell<HashMap<Segment, Rc<Known>>>;

/// A segment, attached.
#[derive(Clone, Debug)]
pub(super) struct Known {
    region: RemoteRegion,
    /// The owner's starter memory, if it is mapped.
    home: Option<Home>,
    /// The offset in the region of the memory with addresses, and its size.
    begin: u64,
    bytes: u64,
    /// The bytes of that memory before this segment: 0, or less than its size.
    before: u64,
    /// The slot of the segment, and its entry.
    slot: u32,
    entry: Entry,
}

impl Worker {
    /// Returns where an access of `bytes` bytes reaches memory that is mapped here, if the worker
    /// knows the segment and nothing is wrong with it.
    #[inline(always)]
    pub(super) fn mapped(&self, address: GlobalAddress, bytes: usize) -> Option<*mut u8> {
        let segment = address.segment();
        let (line, losses) = (segment.index(LINE_COUNT), self.process_handle().losses.count());
        self.address_cache().find(line, segment.bits(), address.within(), bytes, losses)
    }

    /// Learns where a segment is mapped, if that takes no wait. Returns whether it did so.
    pub(super) fn learns_at_once(&self, address: GlobalAddress) -> bool {
        let is_mapped = address.process().is_some_and(|owner| self.process_handle().links.home_of(owner).is_some());
        is_mapped && self.known_within(address.segment(), Duration::ZERO).is_ok()
    }

    /// Returns a segment, attached first if need be.
    fn known(&self, segment: Segment) -> Result<Rc<Known>, Fault> {
        self.known_within(segment, self.patience())
    }

    fn known_within(&self, segment: Segment, time: Duration) -> Result<Rc<Known>, Fault> {
        let process = self.process_handle();
        let owner = segment.process().ok_or(AddressFault::Null)?;
        let count = process.shape().processes;
        if owner.number() >= count {
            return Err(AddressFault::NoSuchProcess { count }.into());
        }
        // Counted before the look at this owner, so that the next access notices a loss in between.
        let losses = process.losses.count();
        if let Some(lost) = process.losses.lost(owner) {
            return Err(lost.into());
        }
        self.address_cache().note_losses(losses);
        let known = self.known_segments().borrow().get(&segment).cloned();
        let known = match known.filter(|known| known.is_current()) {
            Some(known) => known,
            None => {
                self.forget_retired();
                let found = find(process, owner, segment, time);
                let found = Rc::new(found.map_err(|fault| fault.with_its_root(self))?);
                self.known_segments().borrow_mut().insert(segment, found.clone());
                found
            }
        };
        self.fill(segment, &known);
        Ok(known)
    }

    /// Fills the cache line of a segment of this worker that is mapped here. Where accesses are
    /// observed, all lines stay empty, so that every access takes the slow path, which reports it.
    fn fill(&self, segment: Segment, known: &Known) {
        if self.process_handle().accesses.is_observed() {
            return;
        }
        let (Some(memory), Some(home)) = (known.region.mapped(), &known.home) else { return };
        let range = Range {
            base: memory.base().as_ptr().wrapping_add((known.begin + known.before) as usize),
            bytes: known.bytes - known.before,
            state: home.segment(segment.slot()).0,
            expected: known.entry.state,
        };
        // SAFETY: `known` keeps the region and the owner's starter memory mapped. It is in this
        // worker's table, and is taken out only after the line is cleared (see the module). The
        // state is an atomic word of the starter memory. The memory with addresses lies inside the
        // region, from `begin` on, and the segment begins inside that memory (see `find`).
        unsafe { self.address_cache().fill(segment.index(LINE_COUNT), segment.bits(), range) };
    }

    /// Drops the segments that their owners have taken back, so that they do not stay mapped here.
    /// Later uses of their slots are other segments.
    fn forget_retired(&self) {
        self.known_segments().borrow_mut().retain(|segment, known| {
            let is_current = known.is_current();
            if !is_current {
                self.address_cache().clear(segment.index(LINE_COUNT), segment.bits());
            }
            is_current
        });
    }

    /// Drops a segment.
    pub(super) fn forget_segment(&self, segment: Segment) {
        self.address_cache().clear(segment.index(LINE_COUNT), segment.bits());
        self.known_segments().borrow_mut().remove(&segment);
    }
}

impl Known {
    /// Returns whether the owner has not taken the region back, as far as its table is mapped here.
    fn is_current(&self) -> bool {
        self.home.as_ref().is_none_or(|home| look_up(home, self.slot) == self.entry)
    }

    /// Returns where in the region an access begins, if it is inside.
    fn inside(&self, address: GlobalAddress, bytes: usize) -> Result<u64, AddressFault> {
        let offset = self.before + u64::from(address.within());
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes => Ok(self.begin + offset),
            _ => Err(AddressFault::OutOfRange { bytes: bytes as u64, region_bytes: self.bytes }),
        }
    }
}

/// Returns the region of this process that a range lies in, and the range's offset in it. Does not
/// wait.
pub(super) fn own_range(process: &Process, address: GlobalAddress, bytes: usize) -> Option<(RemoteRegion, u64)> {
    if address.process() == Some(process.id()) { range_at_once(process, address, bytes) } else { None }
}

/// Returns the region that a range lies in, and the range's offset in it, if no access to it waits.
/// Does not wait: requests a region that is mapped but not attached yet.
pub(super) fn range_at_once(process: &Process, address: GlobalAddress, bytes: usize) -> Option<(RemoteRegion, u64)> {
    let owner = address.process()?;
    if owner != process.id() && process.links.home_of(owner).is_none() {
        return None;
    }
    let known = find(process, owner, address.segment(), Duration::ZERO).ok()?;
    let offset = known.inside(address, bytes).ok()?;
    (owner == process.id() || !known.region.waits(true)).then_some((known.region, offset))
}

/// Reads the owner's table and attaches the region that it names.
fn find(process: &Process, owner: ProcessId, segment: Segment, time: Duration) -> Result<Known, Fault> {
    let deadline = process.clock().now() + time;
    let starter = match owner == process.id() {
        true => process.transport().starter().as_remote(),
        false => process.starter_region(owner, deadline)?,
    };
    let home = process.links.home_of(owner).cloned();
    let entry = match &home {
        Some(home) => look_up(home, segment.slot()),
        None => {
            let mut words = [0_u64; SEGMENT_BYTES / 8];
            let offset = process.home().layout().segment(segment.slot()) as u64;
            let read = starter.get(offset, bytemuck::bytes_of_mut(&mut words), deadline);
            read.map_err(|error| process.explain(error))?;
            Entry { state: words[0], bytes: words[1] }
        }
    };
    let slot = segment.slot();
    let (key, before) = entry.key(owner, segment).ok_or(AddressFault::Stale)?;
    if key.slot == 0 {
        let layout = process.home().layout();
        let (begin, bytes) = (layout.starter() as u64, layout.starter_bytes() as u64);
        // The region is larger than its part with addresses.
        if before > 0 && before >= bytes {
            return Err(AddressFault::Stale.into());
        }
        return Ok(Known { region: starter, home, begin, bytes, before, slot, entry });
    }
    // This process's own memory is reached without the transport.
    let region = match owner == process.id() {
        true => own_region(process, key).ok_or(AddressFault::Stale)?,
        false => attach(process, key, deadline)?,
    };
    Ok(Known { region, home, begin: 0, bytes: key.bytes, before, slot, entry })
}

pub(super) fn own_region(process: &Process, key: RemoteKey) -> Option<RemoteRegion> {
    let private = || GlobalRoom::of(process).own_segments.find(key).map(|region| region.as_remote());
    ProcessMemory::of(process).own_region(key).or_else(private)
}

/// Returns where a region of this process begins.
fn own_base(process: &Process, key: RemoteKey) -> Option<*mut u8> {
    if key.slot == 0 {
        return Some(process.transport().starter().memory().base().as_ptr());
    }
    let shared = ProcessMemory::of(process).own_region(key);
    match shared.as_ref().and_then(RemoteRegion::mapped) {
        Some(memory) => Some(memory.base().as_ptr()),
        None => GlobalRoom::of(process).own_segments.find(key).map(|region| region.memory().base().as_ptr()),
    }
}

fn attach(process: &Process, key: RemoteKey, deadline: Instant) -> Result<RemoteRegion, Fault> {
    process.transport().attach(key, deadline).map_err(|error| match error {
        FabricError::StaleKey { .. } => AddressFault::Stale.into(),
        other => process.explain(other).into(),
    })
}

/// The access path to a range of memory.
#[derive(Clone, Debug)]
pub enum Reach {
    /// It is mapped and begins here, until the worker attaches or drops a region.
    Mapped(*mut u8),
    /// By accesses to this region, from this offset on, which do not wait for others.
    AtOnce {
        /// The region.
        region: RemoteRegion,
        /// The range's offset in it.
        offset: u64,
    },
    /// By posted operations on this region, from this offset on.
    Posted {
        /// The region.
        key: RemoteKey,
        /// The range's offset in it.
        offset: u64,
    },
}

impl Reach {
    /// Returns how memory of a region is reached, from an offset on.
    pub fn of(region: &RemoteRegion, offset: u64) -> Self {
        match region.mapped() {
            Some(memory) => Self::Mapped(memory.base().as_ptr().wrapping_add(offset as usize)),
            None if !region.waits(false) => Self::AtOnce { region: region.clone(), offset },
            None => Self::Posted { key: region.key(), offset },
        }
    }
}

/// Why an access was not made.
enum Fault {
    /// The address cannot be used.
    Address(AddressFault),
    Other(Box<Error>),
}

impl Fault {
    fn with_its_root(self, me: &Worker) -> Self {
        match self {
            Self::Other(error) => me.with_its_root(*error).into(),
            address => address,
        }
    }
}

impl From<AddressFault> for Fault {
    fn from(fault: AddressFault) -> Self {
        Self::Address(fault)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Other(Box::new(error))
    }
}

impl GlobalAddress {
    #[cold]
    pub(super) fn refused(self, why: AddressFault) -> Error {
        GlobalError::Address { address: self, why }.into()
    }

    fn explain(self, fault: Fault) -> Error {
        match fault {
            Fault::Address(_) if self.is_null() => self.refused(AddressFault::Null),
            Fault::Address(why) => self.refused(why),
            Fault::Other(error) => *error,
        }
    }

    /// The error of a computation that led out of the region.
    #[cold]
    pub(super) fn moved_outside(self, count: u64, size: usize) -> Error {
        let bytes = count.saturating_mul(size as u64);
        self.refused(if self.is_null() { AddressFault::Null } else { AddressFault::MovedOutside { bytes } })
    }

    /// The error of a range of `bytes` bytes that begins here and ends beyond its region.
    #[cold]
    pub(super) fn beyond(self, bytes: u64, region_bytes: u64) -> Error {
        let why = if self.is_null() { AddressFault::Null } else { AddressFault::OutOfRange { bytes, region_bytes } };
        self.refused(why)
    }
}

impl Worker {
    #[inline]
    #[track_caller]
    pub(crate) fn put_bytes(&self, address: GlobalAddress, data: &[u8]) -> Result<()> {
        let Some(target) = self.mapped(address, data.len()) else {
            return self.put_slowly(address, data);
        };
        // SAFETY: `data` is readable; `mapped` found the target range inside memory that is mapped
        // here.
        unsafe { racy::copy_out(data.as_ptr(), target, data.len()) };
        Ok(())
    }

    #[inline]
    #[track_caller]
    pub(crate) fn get_bytes(&self, address: GlobalAddress, data: &mut [u8]) -> Result<()> {
        let Some(source) = self.mapped(address, data.len()) else {
            return self.get_slowly(address, data);
        };
        // SAFETY: `data` is writable; `mapped` found the source range inside memory that is mapped
        // here.
        unsafe { racy::copy_in(source, data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    pub(crate) fn is_mapped(&self, address: GlobalAddress) -> Result<bool> {
        let process = self.process_handle();
        let known = self.known(address.segment()).map_err(|fault| address.explain(fault))?;
        known.inside(address, 0).map_err(|why| address.refused(why))?;
        Ok(known.region.mapped().is_some() || known.region.key().process == process.id())
    }

    pub(crate) fn local_address(&self, address: GlobalAddress) -> Option<*mut u8> {
        let process = self.process_handle();
        if address.process() != Some(process.id()) {
            return None;
        }
        let known = self.known(address.segment()).ok()?;
        let offset = known.inside(address, 1).ok()?;
        let base = own_base(process, known.region.key())?;
        Some(base.wrapping_add(offset as usize))
    }

    pub(crate) fn address_at(&self, pointer: *const u8) -> Option<GlobalAddress> {
        let process = self.process_handle();
        let layout = process.home().layout();
        (0..SLOT_COUNT).find_map(|slot| {
            let (key, before) = look_up(process.home(), slot).key_of(process.id(), slot)?;
            // The first slot of a region stands for all of it.
            if before > 0 {
                return None;
            }
            let (begin, bytes) = match slot {
                0 => (layout.starter(), layout.starter_bytes() as u64),
                _ => (0, key.bytes),
            };
            let first = own_base(process, key)?.wrapping_add(begin);
            let offset = (pointer.addr() as u64).checked_sub(first.addr() as u64).filter(|offset| *offset < bytes)?;
            GlobalAddress::in_region(key, offset)
        })
    }

    /// Reports an access that something else makes to the observer of accesses.
    pub(crate) fn touch(&self, address: GlobalAddress, bytes: usize, touch: Touch) -> Result<()> {
        self.on_region(address, bytes, Some(touch), |_, _, _| Ok(()))
    }

    /// Refuses a range that cannot be accessed, before its size is used.
    pub(super) fn check_address(&self, address: GlobalAddress, bytes: usize) -> Result<()> {
        self.on_region(address, bytes, None, |_, _, _| Ok(()))
    }

    #[inline]
    #[track_caller]
    pub(super) fn put_value<T: Pod>(&self, address: GlobalAddress, value: &T) -> Result<()> {
        check_alignment::<T>(address)?;
        let Some(target) = self.mapped(address, size_of::<T>()) else {
            return self.put_slowly(address, bytemuck::bytes_of(value));
        };
        // SAFETY: regions begin on pages and the starter on a multiple of 128, no type needs more,
        // and `check_alignment` has checked the offset.
        unsafe { std::hint::assert_unchecked(target.addr().is_multiple_of(align_of::<T>())) };
        // SAFETY: the value is readable; `mapped` found the target range in memory that is mapped
        // here.
        unsafe { racy::copy_out(ptr::from_ref(value).cast(), target, size_of::<T>()) };
        Ok(())
    }

    #[inline]
    #[track_caller]
    pub(super) fn get_value<T: Pod>(&self, address: GlobalAddress, value: &mut T) -> Result<()> {
        if self.get_mapped(address, value)? {
            return Ok(());
        }
        self.get_slowly(address, bytemuck::bytes_of_mut(value))
    }

    /// Like [`get_value`](Self::get_value), without a report to the observer of accesses.
    #[inline]
    pub(super) fn look_value<T: Pod>(&self, address: GlobalAddress, value: &mut T) -> Result<()> {
        if self.get_mapped(address, value)? {
            return Ok(());
        }
        self.look_slowly(address, bytemuck::bytes_of_mut(value))
    }

    /// Reads a value if its memory is mapped. Returns whether it is.
    #[inline(always)]
    fn get_mapped<T: Pod>(&self, address: GlobalAddress, value: &mut T) -> Result<bool> {
        check_alignment::<T>(address)?;
        let Some(source) = self.mapped(address, size_of::<T>()) else { return Ok(false) };
        // SAFETY: regions begin on pages and the starter on a multiple of 128, no type needs more,
        // and `check_alignment` has checked the offset.
        unsafe { std::hint::assert_unchecked(source.addr().is_multiple_of(align_of::<T>())) };
        // SAFETY: the value is writable, and any bytes are a valid `T`; `mapped` found the source
        // range in memory that is mapped here.
        unsafe { racy::copy_in(source, ptr::from_mut(value).cast(), size_of::<T>()) };
        Ok(true)
    }

    #[inline]
    #[track_caller]
    pub(super) fn put_values<T: Pod>(&self, address: GlobalAddress, values: &[T]) -> Result<()> {
        check_alignment::<T>(address)?;
        self.put_bytes(address, bytemuck::cast_slice(values))
    }

    #[inline]
    #[track_caller]
    pub(super) fn get_values<T: Pod>(&self, address: GlobalAddress, values: &mut [T]) -> Result<()> {
        check_alignment::<T>(address)?;
        self.get_bytes(address, bytemuck::cast_slice_mut(values))
    }

    /// Like [`get_values`](Self::get_values), without a report to the observer of accesses.
    #[inline]
    pub(super) fn look_values<T: Pod>(&self, address: GlobalAddress, values: &mut [T]) -> Result<()> {
        check_alignment::<T>(address)?;
        let data: &mut [u8] = bytemuck::cast_slice_mut(values);
        let Some(source) = self.mapped(address, data.len()) else {
            return self.look_slowly(address, data);
        };
        // SAFETY: `data` is writable; `mapped` found the source range inside memory that is mapped
        // here.
        unsafe { racy::copy_in(source, data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// Writes a word, with release ordering where it is mapped.
    #[inline]
    #[track_caller]
    pub(super) fn store64(&self, address: GlobalAddress, value: u64) -> Result<()> {
        check_alignment::<u64>(address)?;
        let Some(word) = self.mapped(address, 8) else {
            return self.change64_slowly(address, AtomicChange::Swap(value)).map(drop);
        };
        // SAFETY: aligned, as `check_alignment` has checked, and inside memory that is mapped here,
        // as `mapped` found.
        let word = unsafe { racy::atomic_u64(word) };
        word.store(value, Ordering::Release);
        Ok(())
    }

    /// Like [`store64`](Self::store64), for 32 bits.
    #[inline]
    #[track_caller]
    pub(super) fn store32(&self, address: GlobalAddress, value: u32) -> Result<()> {
        check_alignment::<u32>(address)?;
        let Some(word) = self.mapped(address, 4) else {
            return self.change32_slowly(address, AtomicChange::Swap(value)).map(drop);
        };
        // SAFETY: aligned, as `check_alignment` has checked, and inside memory that is mapped here,
        // as `mapped` found.
        let word = unsafe { racy::atomic_u32(word) };
        word.store(value, Ordering::Release);
        Ok(())
    }

    /// Changes a word. The kind of the change is nearly always known where this is inlined.
    #[inline(always)]
    #[track_caller]
    pub(super) fn change64(&self, address: GlobalAddress, change: AtomicChange<u64>) -> Result<u64> {
        check_alignment::<u64>(address)?;
        let Some(word) = self.mapped(address, 8) else { return self.change64_slowly(address, change) };
        // SAFETY: aligned, as `check_alignment` has checked, and inside memory that is mapped here,
        // as `mapped` found.
        Ok(change.apply(unsafe { racy::atomic_u64(word) }))
    }

    /// Changes a word. The kind of the change is nearly always known where this is inlined.
    #[inline(always)]
    #[track_caller]
    pub(super) fn change32(&self, address: GlobalAddress, change: AtomicChange<u32>) -> Result<u32> {
        check_alignment::<u32>(address)?;
        let Some(word) = self.mapped(address, 4) else { return self.change32_slowly(address, change) };
        // SAFETY: aligned, as `check_alignment` has checked, and inside memory that is mapped here,
        // as `mapped` found.
        Ok(change.apply(unsafe { racy::atomic_u32(word) }))
    }

    /// Calls `work` with access to words of memory, from an address on. `work` changes a word by
    /// its index, which must be below `count`. Words of other processes are changed one by one.
    ///
    /// # Safety
    /// `work` must not make this worker attach or drop a region: it must not use the worker.
    pub(crate) unsafe fn with_own_words<R>(
        &self,
        address: GlobalAddress,
        count: usize,
        work: impl FnOnce(&dyn Fn(usize, AtomicChange<u64>) -> Result<u64>) -> Result<R>,
    ) -> Result<R> {
        check_alignment::<u64>(address)?;
        let bytes = count.saturating_mul(8);
        // The words tell other workers what this one has done.
        self.end_accesses();
        if let Some(base) = self.mapped(address, bytes) {
            return work(&|index, change| {
                assert!(index < count, "the index of a word is below the count");
                // SAFETY: aligned, as `check_alignment` has checked, and below `count` words that
                // are mapped here, as `mapped` found. They stay mapped while `work` runs, since by
                // the contract it makes this worker attach or drop no region.
                Ok(change.apply(unsafe { racy::atomic_u64(base.wrapping_add(index * 8)) }))
            });
        }
        let found = |region: &RemoteRegion, offset, now| Ok((region.clone(), offset, now));
        let (region, offset, now) = self.on_region(address, bytes, None, found)?;
        work(&|index, change| {
            let changed = region.atomic64(offset + index as u64 * 8, change, now);
            changed.map_err(|error| self.access_failed(address, error))
        })
    }

    #[cold]
    #[track_caller]
    fn change64_slowly(&self, address: GlobalAddress, change: AtomicChange<u64>) -> Result<u64> {
        if let Some(changed) = self.past_detour(|| self.change64(address, change)) {
            return changed;
        }
        let touch = Touch::here(AccessKind::of(&change));
        let access = |region: &RemoteRegion, offset, deadline| region.atomic64(offset, change, deadline);
        self.on_region_as(address, 8, true, Some(touch), access)
    }

    #[cold]
    #[track_caller]
    fn change32_slowly(&self, address: GlobalAddress, change: AtomicChange<u32>) -> Result<u32> {
        if let Some(changed) = self.past_detour(|| self.change32(address, change)) {
            return changed;
        }
        let touch = Touch::here(AccessKind::of(&change));
        let access = |region: &RemoteRegion, offset, deadline| region.atomic32(offset, change, deadline);
        self.on_region_as(address, 4, true, Some(touch), access)
    }

    #[cold]
    #[track_caller]
    fn put_slowly(&self, address: GlobalAddress, data: &[u8]) -> Result<()> {
        let touch = Touch::here(AccessKind::Write);
        if let Some(put) = self.past_detour(|| self.put_bytes(address, data)) {
            self.note_put_at(address, data.len(), touch);
            return put;
        }
        self.on_region(address, data.len(), Some(touch), |region, offset, deadline| region.put(offset, data, deadline))
    }

    #[cold]
    #[track_caller]
    fn get_slowly(&self, address: GlobalAddress, data: &mut [u8]) -> Result<()> {
        if let Some(got) = self.past_detour(|| self.get_bytes(address, data)) {
            return got;
        }
        let touch = Touch::here(AccessKind::Read);
        self.on_region(address, data.len(), Some(touch), |region, offset, deadline| region.get(offset, data, deadline))
    }

    #[cold]
    fn look_slowly(&self, address: GlobalAddress, data: &mut [u8]) -> Result<()> {
        if let Some(got) = self.past_detour(|| self.look_values(address, data)) {
            return got;
        }
        self.on_region(address, data.len(), None, |region, offset, deadline| region.get(offset, data, deadline))
    }

    /// Notes a put of this worker, which is being recorded.
    pub(crate) fn note_put_at(&self, address: GlobalAddress, bytes: usize, touch: Touch) {
        if let Some(owner) = address.process() {
            self.note_put(owner, bytes, touch.site);
        }
    }

    /// Returns the region that a range lies in, and the range's offset in it.
    pub(super) fn find_region(&self, address: GlobalAddress, bytes: u64) -> Result<(RemoteRegion, u64)> {
        let known = self.known(address.segment()).map_err(|fault| address.explain(fault))?;
        let offset = match usize::try_from(bytes) {
            Ok(bytes) => known.inside(address, bytes),
            Err(_) => Err(AddressFault::OutOfRange { bytes, region_bytes: known.bytes }),
        };
        Ok((known.region.clone(), offset.map_err(|why| address.refused(why))?))
    }

    /// Runs `access` on the region that a range lies in, with the range's offset in it. If accesses
    /// are observed, reports `touch`.
    pub(crate) fn on_region<T>(
        &self,
        address: GlobalAddress,
        bytes: usize,
        touch: Option<Touch>,
        access: impl FnOnce(&RemoteRegion, u64, Instant) -> Result<T, FabricError>,
    ) -> Result<T> {
        self.on_region_as(address, bytes, false, touch, access)
    }

    /// Like [`on_region`](Self::on_region), for a range that may be a word.
    fn on_region_as<T>(
        &self,
        address: GlobalAddress,
        bytes: usize,
        is_word: bool,
        touch: Option<Touch>,
        access: impl FnOnce(&RemoteRegion, u64, Instant) -> Result<T, FabricError>,
    ) -> Result<T> {
        let segment = address.segment();
        let known = self.known(segment).map_err(|fault| address.explain(fault))?;
        let offset = known.inside(address, bytes).map_err(|why| address.refused(why))?;
        if known.region.waits(is_word) {
            self.not_in_handler("an access to memory that is not mapped here")?;
        }
        if let Some(touch) = touch {
            self.check_access(known.region.key(), offset, bytes, touch)?;
        }
        let deadline = self.now() + self.default_deadline();
        access(&known.region, offset, deadline).map_err(|error| self.access_failed(address, error))
    }

    /// The error of a failed access to an address that was looked up.
    #[cold]
    pub(crate) fn access_failed(&self, address: GlobalAddress, error: FabricError) -> Error {
        // The observer has noted the access, which was not made, or may not have been.
        self.end_accesses();
        match error {
            FabricError::StaleKey { .. } => {
                self.forget_segment(address.segment());
                address.refused(AddressFault::Stale)
            }
            FabricError::ReadOnly { .. } => address.refused(AddressFault::ReadOnly),
            // Private memory may begin anywhere, so the offset alone does not tell the alignment.
            FabricError::Misaligned { bytes, .. } => address.refused(AddressFault::Misaligned { align: bytes }),
            other => self.with_its_root(self.process_handle().explain(other)),
        }
    }

    /// Returns how a range is reached, for several accesses inside it.
    pub(crate) fn reach(&self, address: GlobalAddress, bytes: usize) -> Result<Reach> {
        if let Some(base) = self.mapped(address, bytes) {
            return Ok(Reach::Mapped(base));
        }
        self.on_region(address, bytes, None, |region, offset, _| Ok(Reach::of(region, offset)))
    }
}

/// Refuses an address that is not aligned for a type.
///
/// # Errors
/// [`GlobalError::Address`].
#[inline(always)]
pub fn check_alignment<T>(address: GlobalAddress) -> Result<()> {
    const { assert!(align_of::<T>() <= 128, "no memory is aligned to more than 128 bytes for sure") };
    if (address.offset() as usize).is_multiple_of(align_of::<T>()) {
        Ok(())
    } else {
        Err(address.refused(AddressFault::Misaligned { align: align_of::<T>() }))
    }
}

#[cfg(test)]
mod tests {
    use crate::Result;

    /// Registers and deregisters memory repeatedly, each time with another address.
    #[test]
    fn retired_segments_are_dropped() {
        let body = |me: &super::Worker| -> Result<()> {
            for round in 0..40_u64 {
                let segment = me.register(vec![round; 10])?;
                assert_eq!(segment.slice().at(9)?.get(me)?, round);
                let known = me.known_segments().borrow().len();
                assert!(known <= 2, "{known} segments after {round} others");
                segment.deregister(me)?;
            }
            Ok(())
        };
        crate::simulate(1, 1, 1, body).unwrap();
    }
}
