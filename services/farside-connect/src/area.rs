//! [`Area`]: memory that this side reads and writes on behalf of its peer.
//!
//! Only threads of this process access an area, under its lock. So memory that was lent for a
//! while can be taken back at any time: [`Area::revoke`] waits for an access that is under way, and
//! no later one finds the memory. A peer that reads the memory directly gets bytes that it
//! discards (see [`Direct`](crate::path::Direct)); no peer writes it directly.
//!
//! Memory that peers map is different: they write it, too. So this process accesses it only by
//! racy copies. A [`Source`] is accessed by its own function.
//!
//! Memory that a handler passes on to another server is an area without bytes: see
//! [`PassedOn`].

use std::any::Any;
use std::fmt;
use std::io::IoSliceMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farside_sys::racy;

use crate::allocated::Allocated;
use crate::frame::{Fetch, Head, Kind, Take};
use crate::path::{Frames, LinkEnd};
use crate::patience::{Patience, WaitEnd};
use crate::segments::{self, Segments};

/// Memory that a program keeps in a way of its own and shows to its peers: see
/// [`Bulk::of_source`](crate::bulk::Bulk::of_source).
pub trait Source: Send + Sync + 'static {
    /// The size.
    fn bytes(&self) -> u64;

    /// Copies the bytes from `offset` on into `into`; the range lies inside the memory. Returns
    /// false if the memory is gone. It runs on a thread of the library and must not wait.
    fn read(&self, offset: u64, into: &mut [u8]) -> bool;

    /// The address of the first byte, for peers that read this process's memory by system calls.
    /// `None` keeps them from it.
    ///
    /// No peer writes there. What a peer reads after the memory was freed or reused is not what it
    /// wanted: [withdraw](Withdrawal::withdraw) the memory before, or let the peer ask afterwards.
    fn address(&self) -> Option<usize>;
}

/// Takes memory of this side back from peers: [`Bulk::withdrawal`](crate::bulk::Bulk::withdrawal).
#[derive(Clone, Debug)]
pub struct Withdrawal(Weak<Area>);

impl Withdrawal {
    pub(crate) fn of(area: &Arc<Area>) -> Self {
        Self(Arc::downgrade(area))
    }

    /// Takes the memory back. A peer's pull that has not ended fails as
    /// [`Gone`](crate::TransferError::Gone), and so do later ones. What was
    /// [kept](crate::bulk::Bulk::keeping) with the memory is dropped.
    ///
    /// *Cost.* It waits for a copy that a thread of this process makes at the moment.
    pub fn withdraw(&self) {
        if let Some(area) = self.0.upgrade() {
            area.revoke();
        }
    }

    /// Returns whether a peer may have the memory still.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Memory that a peer reads or writes through this side.
#[derive(Debug)]
pub struct Area {
    state: Mutex<State>,
    bytes: u64,
    may_write: bool,
    /// The receiver of the bytes, if they are those of another process.
    passed_on: Option<Arc<dyn PassedOn>>,
}

/// Memory of another process that this one passes on.
pub(crate) trait PassedOn: Send + Sync + fmt::Debug {
    /// The memory, if this process maps it. The third party may map it as well.
    fn mapping(&self) -> Option<Arc<Allocated>>;

    /// Its segments at the owner.
    fn segments(&self) -> &Segments;

    /// Copies bytes, if the owner need not be asked.
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Option<()>;

    /// Returns whether this thread alone receives for the owner's connection at the moment.
    fn is_driven_here(&self) -> bool;

    /// Receives what has arrived from the owner, unless another thread does.
    fn look(&self);

    /// Does what a third party asks for, at once or when the owner has answered. The third party
    /// knows the memory by `number`.
    fn accept(self: Arc<Self>, asker: Arc<dyn Asker>, number: u64, request: Request);
}

/// The owner of memory that is passed on.
#[derive(Debug)]
pub struct Owner(Arc<dyn PassedOn>);

impl Owner {
    /// Receives what has arrived from the owner, unless another thread does.
    pub fn look(&self) {
        self.0.look();
    }
}

/// The request of a third party.
#[derive(Debug)]
pub(crate) enum Request {
    /// Bytes of the memory.
    Fetch(Fetch),
    /// Bytes for the memory.
    Write { offset: u64, bytes: Vec<u8> },
    /// An answer when all earlier bytes are in place.
    Settle { operation: u64 },
    /// To read memory of the third party, for the memory.
    Take { offset: u64, take: Take },
}

/// The connection of a third party.
pub(crate) trait Asker: Frames {
    /// Returns whether the third party may still access the memory.
    fn is_exposed(&self, number: u64) -> bool;

    /// Ends an operation of the third party.
    ///
    /// # Errors
    /// [`LinkEnd`] if the connection has ended.
    fn acknowledge(&self, operation: u64, done: Result<(), u8>) -> Result<(), LinkEnd> {
        self.send_frame(Head::new(Kind::Ack, operation).with_status(done.err().unwrap_or(0)), &[])
    }

    /// Waits until little waits to be sent.
    ///
    /// # Errors
    /// [`WaitEnd`].
    fn wait_for_room(self: Arc<Self>, patience: &Patience) -> Result<(), WaitEnd>;

    /// Reads memory that the third party offers.
    ///
    /// # Errors
    /// The status that the third party hears.
    fn take(&self, take: &Take) -> Result<Vec<u8>, u8>;
}

/// Why a part of an [`Area`] cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The memory was taken back.
    Gone,
    /// The part is not inside the memory.
    OutOfRange,
    /// The memory may only be read.
    ReadOnly,
}

#[derive(Debug)]
struct State {
    /// The memory, in order. Empty once it was taken back.
    segments: Vec<Segment>,
    holds: Origin,
    is_gone: bool,
    withdrawals: Withdrawals,
    /// A value of the program that is dropped with the area.
    kept: Kept,
}

/// The owner that keeps the memory alive.
enum Origin {
    /// The area owns it.
    Owned(Vec<u8>),
    /// The lender keeps it.
    Lent,
    /// Peers may map it.
    Mapped(Arc<Allocated>),
    /// The program reads it.
    Source(Arc<dyn Source>),
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned(_) => "Owned",
            Self::Lent => "Lent",
            Self::Mapped(_) => "Mapped",
            Self::Source(_) => "Source",
        })
    }
}

/// Functions that say to the exposers of the memory that it is gone.
#[derive(Default)]
struct Withdrawals(Vec<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for Withdrawals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Withdrawals").field(&self.0.len()).finish()
    }
}

/// Values of the program.
#[derive(Default)]
struct Kept(Vec<Box<dyn Any + Send>>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.len()).finish()
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: *mut u8,
    bytes: usize,
    /// The bytes of the segments before.
    before: usize,
}

// SAFETY: a segment is memory that the area holds or that was lent to it. It is accessed only under
// the area's lock, by whichever thread holds that. Bytes have no thread identity.
unsafe impl Send for Segment {}

impl Area {
    /// Takes memory over.
    pub fn owned(mut bytes: Vec<u8>, may_write: bool) -> Self {
        let segment = Segment { start: bytes.as_mut_ptr(), bytes: bytes.len(), before: 0 };
        Self::new(vec![segment], Origin::Owned(bytes), may_write)
    }

    /// Borrows memory to read.
    ///
    /// # Safety
    /// The slices stay borrowed until [`revoke`](Self::revoke) returns.
    pub(crate) unsafe fn lent(slices: &[&[u8]]) -> Self {
        let segment = |slice: &&[u8]| Segment { start: slice.as_ptr().cast_mut(), bytes: slice.len(), before: 0 };
        Self::new(slices.iter().map(segment).collect(), Origin::Lent, false)
    }

    /// Borrows memory to write.
    ///
    /// # Safety
    /// The slices stay borrowed until [`revoke`](Self::revoke) returns.
    pub(crate) unsafe fn lent_mut(slices: &mut [&mut [u8]]) -> Self {
        let segment = |slice: &mut &mut [u8]| Segment { start: slice.as_mut_ptr(), bytes: slice.len(), before: 0 };
        Self::new(slices.iter_mut().map(segment).collect(), Origin::Lent, true)
    }

    /// Takes parts of memory that peers map: offsets and lengths, which lie inside it.
    pub(crate) fn mapped(memory: Arc<Allocated>, parts: &[segments::Segment], may_write: bool) -> Self {
        let base = memory.mapping.base().as_ptr();
        let segment = |(offset, bytes): &segments::Segment| {
            assert!(offset + bytes <= memory.mapping.bytes(), "the parts lie inside the memory");
            Segment { start: base.wrapping_add(*offset), bytes: *bytes, before: 0 }
        };
        let segments = parts.iter().map(segment).collect();
        Self::new(segments, Origin::Mapped(memory), may_write)
    }

    /// Takes memory that the program reads.
    pub(crate) fn of_source(source: Arc<dyn Source>) -> Self {
        // A size beyond an address space is none. The address is used by other processes alone.
        let bytes = usize::try_from(source.bytes()).unwrap_or(0);
        let start = std::ptr::without_provenance_mut(source.address().unwrap_or(0));
        Self::new(vec![Segment { start, bytes, before: 0 }], Origin::Source(source), false)
    }

    fn new(mut segments: Vec<Segment>, holds: Origin, may_write: bool) -> Self {
        segments.retain(|segment| segment.bytes > 0);
        let mut bytes = 0;
        for segment in &mut segments {
            segment.before = bytes;
            // Slices of one address space do not have more bytes, unless they overlap.
            bytes = bytes.checked_add(segment.bytes).expect("segments that overlap have too many bytes");
        }
        let bytes = bytes as u64;
        let state =
            State { segments, holds, is_gone: false, withdrawals: Withdrawals::default(), kept: Kept::default() };
        Self { state: Mutex::new(state), bytes, may_write, passed_on: None }
    }

    /// Passes memory of another process on.
    pub(crate) fn passing_on(bytes: u64, may_write: bool, memory: Arc<dyn PassedOn>) -> Self {
        let area = Self::new(Vec::new(), Origin::Owned(Vec::new()), may_write);
        Self { bytes, passed_on: Some(memory), ..area }
    }

    /// The receiver of the bytes of memory that is passed on. Such an area refuses all accesses but
    /// [`copy_out`](Self::copy_out).
    pub(crate) fn passed_on(&self) -> Option<&Arc<dyn PassedOn>> {
        self.passed_on.as_ref()
    }

    /// The owner of memory that is passed on, if this thread alone receives for its connection at
    /// the moment. A wait for another connection then has to receive for that one, too.
    pub fn owner_led_here(&self) -> Option<Owner> {
        self.passed_on.as_ref().filter(|memory| memory.is_driven_here()).map(|memory| Owner(memory.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of the memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the peer may write.
    pub(crate) fn may_write(&self) -> bool {
        self.may_write
    }

    /// Returns whether the memory was lent: it may be taken back.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.lock().holds, Origin::Lent)
    }

    /// The size of memory that the area owns. 0 if others keep it.
    pub fn owned_bytes(&self) -> u64 {
        match &self.lock().holds {
            Origin::Owned(bytes) => bytes.len() as u64,
            Origin::Lent | Origin::Mapped(_) | Origin::Source(_) => 0,
        }
    }

    /// Keeps a value until the memory is gone.
    pub fn keep(&self, value: Box<dyn Any + Send>) {
        self.lock().kept.0.push(value);
    }

    /// Calls `withdraw` when the memory is taken back, before it is free. If it is gone already,
    /// does so at once.
    pub(crate) fn when_revoked(&self, withdraw: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if !state.is_gone {
            state.withdrawals.0.push(Box::new(withdraw));
            return;
        }
        drop(state);
        withdraw();
    }

    /// Takes the memory back. No access is under way when this returns, and none comes later.
    pub(crate) fn revoke(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        state.segments.clear();
        let withdrawals = std::mem::take(&mut state.withdrawals.0);
        let kept = std::mem::take(&mut state.kept.0);
        drop(state);
        withdrawals.into_iter().for_each(|withdraw| withdraw());
        // No peer finds the memory from here on.
        drop(kept);
    }

    /// Gives the memory back, as the peer needs it no longer: what the area keeps is free, and what
    /// the program keeps with it is dropped. Lent memory stays borrowed.
    pub(crate) fn come_back(&self) {
        self.revoke();
        let free = std::mem::replace(&mut self.lock().holds, Origin::Lent);
        drop(free);
    }

    /// Returns whether the memory was taken or given back.
    pub fn is_gone(&self) -> bool {
        self.lock().is_gone
    }

    /// Takes the bytes of an [owned](Self::owned) area, which is gone then.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut state = self.lock();
        state.is_gone = true;
        state.segments.clear();
        match std::mem::replace(&mut state.holds, Origin::Lent) {
            Origin::Owned(bytes) => bytes,
            Origin::Lent | Origin::Mapped(_) | Origin::Source(_) => Vec::new(),
        }
    }

    /// The memory of which the area consists, if peers may map it.
    pub(crate) fn allocated(&self) -> Option<Arc<Allocated>> {
        if let Some(memory) = &self.passed_on {
            return memory.mapping();
        }
        match &self.lock().holds {
            Origin::Mapped(memory) => Some(memory.clone()),
            Origin::Owned(_) | Origin::Lent | Origin::Source(_) => None,
        }
    }

    /// Returns whether the program changes the memory while peers have it.
    pub(crate) fn is_alive(&self) -> bool {
        self.allocated().is_some() || matches!(self.lock().holds, Origin::Source(_))
    }

    /// The addresses and lengths of the segments, for a peer that reads them directly. There are
    /// none if it must not.
    pub(crate) fn segments(&self) -> Vec<segments::Segment> {
        let state = self.lock();
        if let Origin::Source(source) = &state.holds
            && source.address().is_none()
        {
            return Vec::new();
        }
        state.segments.iter().map(|segment| (segment.start.expose_provenance(), segment.bytes)).collect()
    }

    /// Copies the bytes from `offset` on. Those of another process are gone if it had to be asked.
    pub(crate) fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), Refusal> {
        if let Some(memory) = &self.passed_on {
            return memory.copy_out(offset, into).ok_or(Refusal::Gone);
        }
        let state = self.lock();
        if let Origin::Source(source) = &state.holds {
            self.each_part(&state, offset, into.len(), |_, _, _| Ok(()))?;
            return source.read(offset, into).then_some(()).ok_or(Refusal::Gone);
        }
        self.each_part(&state, offset, into.len(), |start, at, bytes| {
            // SAFETY: `each_part` passes `bytes` bytes of one segment. The memory behind a segment
            // is valid until `revoke`, which needs the lock that `state` holds: the area keeps it,
            // or its lender keeps it borrowed. In this process, others write it only under this
            // lock or by racy copies. `into` is a mutable slice, so it does not overlap memory that
            // others borrow.
            unsafe { racy::copy_in(start, into[at..at + bytes].as_mut_ptr(), bytes) };
            Ok(())
        })
    }

    /// Overwrites the bytes from `offset` on.
    pub(crate) fn copy_in(&self, offset: u64, from: &[u8]) -> Result<(), Refusal> {
        if !self.may_write {
            return Err(Refusal::ReadOnly);
        }
        let state = self.lock();
        self.each_part(&state, offset, from.len(), |start, at, bytes| {
            // SAFETY: as in `copy_out`. The memory may be written: it is mapped, or was owned or
            // borrowed mutably when the area was made, since `may_write`, which no source has. So
            // it does not overlap `from`.
            unsafe { racy::copy_out(from[at..at + bytes].as_ptr(), start, bytes) };
            Ok(())
        })
    }

    /// Passes `bytes` bytes from `offset` on to `fill`, as the parts that lie in each segment.
    pub(crate) fn fill<E>(
        &self,
        offset: u64,
        bytes: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<(), E>,
    ) -> Result<(), FillError<E>> {
        if !self.may_write {
            return Err(FillError::Refused(Refusal::ReadOnly));
        }
        let state = self.lock();
        if matches!(state.holds, Origin::Mapped(_)) {
            self.each_part(&state, offset, bytes, |_, _, _| Ok(())).map_err(FillError::Refused)?;
            drop(state);
            // No reference may point at memory that peers map.
            let mut copy = vec![0; bytes];
            fill(&mut [IoSliceMut::new(&mut copy)]).map_err(FillError::Failed)?;
            return self.copy_in(offset, &copy).map_err(FillError::Refused);
        }
        let mut parts = Vec::new();
        self.each_part(&state, offset, bytes, |start, _, bytes| {
            // SAFETY: `each_part` passes `bytes` initialised bytes of one segment. As in
            // `copy_out`, the memory is valid while `state` is locked, which outlives `parts`. It
            // was owned or borrowed mutably when the area was made, since `may_write`, which no
            // source has; so nothing else accesses it, and no two segments overlap.
            parts.push(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(start, bytes) }));
            Ok(())
        })
        .map_err(FillError::Refused)?;
        fill(&mut parts).map_err(FillError::Failed)
    }

    /// Passes the parts of a range that lie in each segment: the address, the number of bytes
    /// before it in the range, and the length.
    fn each_part(
        &self,
        state: &State,
        offset: u64,
        bytes: usize,
        mut part: impl FnMut(*mut u8, usize, usize) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if state.is_gone || self.passed_on.is_some() {
            return Err(Refusal::Gone);
        }
        if offset.checked_add(bytes as u64).is_none_or(|end| end > self.bytes) {
            return Err(Refusal::OutOfRange);
        }
        let (offset, mut at) = (offset as usize, 0);
        let first = state.segments.partition_point(|segment| segment.before + segment.bytes <= offset);
        for segment in &state.segments[first..] {
            if at == bytes {
                break;
            }
            let skip = offset.saturating_sub(segment.before);
            let length = (segment.bytes - skip).min(bytes - at);
            part(segment.start.wrapping_add(skip), at, length)?;
            at += length;
        }
        Ok(())
    }
}

/// Why [`Area::fill`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillError<E> {
    /// The area refused.
    Refused(Refusal),
    /// The function failed.
    Failed(E),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_one_range() {
        let (mut a, mut b) = ([1, 2, 3], [4, 5]);
        let mut slices = [&mut a[..], &mut [], &mut b[..]];
        // SAFETY: the arrays live until `revoke`, and are not used before.
        let area = unsafe { Area::lent_mut(&mut slices) };
        let mut found = [0; 3];
        area.copy_out(1, &mut found).unwrap();
        assert_eq!((found, area.bytes()), ([2, 3, 4], 5));
        area.copy_in(2, &[7, 8]).unwrap();
        assert_eq!(area.copy_out(3, &mut found), Err(Refusal::OutOfRange));
        assert_eq!(area.copy_in(u64::MAX, &[1]), Err(Refusal::OutOfRange));
        area.copy_in(5, &[]).unwrap();
        area.revoke();
        assert_eq!(area.copy_in(0, &[9]), Err(Refusal::Gone));
        assert_eq!((a, b), ([1, 2, 7], [8, 5]));
    }

    #[test]
    fn what_may_be_read_is_not_written() {
        let area = Area::owned(vec![1, 2, 3], false);
        assert_eq!(area.copy_in(0, &[1]), Err(Refusal::ReadOnly));
        let mut found = [0; 3];
        area.copy_out(0, &mut found).unwrap();
        assert_eq!(found, [1, 2, 3]);
    }
}
