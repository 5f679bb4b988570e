//! Starting operations.

use bytemuck::Pod;
use farside_fabric::transport::AtomicChange;
use farside_sys::racy;

use super::error::MovementError;
use super::handle::{Handle, Order};
use super::incoming::Incoming;
use super::message::PUT_BYTES_MAX;
use super::orders::{Condition, OPEN_MAX, Place, Touched};
use super::room::{Note, Parcel};
use super::work::{MoveValue, Spot, Work};
use crate::error::{Error, Refused, Result};
use crate::global::atomics::Unsigned;
use crate::global::pointer::GlobalPtr;
use crate::global::room::GlobalRoom;
use crate::global::space::check_alignment;
use crate::memory::address::GlobalAddress;
use crate::runtime::observer::{AccessKind, Part, Touch};
use crate::runtime::worker::Worker;

/// An operation that is about to be started.
pub(super) struct Draft {
    work: Work,
    place: Place,
    note: Note,
}

impl Draft {
    pub(super) fn new(work: Work, place: Place, target: GlobalAddress, source: GlobalAddress) -> Self {
        Self { work, place, note: Note { target, source, brings: None, store_at: None, hold: None } }
    }

    /// Returns the buffer that was handed over for it.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.work.into_buffer()
    }
}

/// The start of an operation.
enum Started {
    /// The operation is over already, with this result.
    Over(Handle, MoveValue),
    Open(Handle),
}

impl Started {
    fn handle(self) -> Handle {
        match self {
            Self::Over(handle, _) | Self::Open(handle) => handle,
        }
    }
}

impl Worker {
    #[inline]
    #[track_caller]
    pub(crate) fn copy(
        &self,
        target: GlobalAddress,
        source: GlobalAddress,
        bytes: u64,
        order: Order,
    ) -> Result<Handle> {
        if self.may_start_at_once(order)
            && let Ok(length) = usize::try_from(bytes)
            && !target.overlaps(bytes, source, bytes)
            && let Some(to) = self.mapped(target, length)
            && let Some(from) = self.mapped(source, length)
        {
            // SAFETY: `mapped` found both ranges inside memory that is mapped here.
            unsafe { racy::copy_between(from, to, length) };
            return Ok(self.next_handle());
        }
        self.copy_slowly(target, source, bytes, order)
    }

    #[cold]
    #[track_caller]
    fn copy_slowly(&self, target: GlobalAddress, source: GlobalAddress, bytes: u64, order: Order) -> Result<Handle> {
        if let Some(started) = self.past_detour(|| self.copy(target, source, bytes, order)) {
            self.note_put_at(target, bytes as usize, Touch::here(AccessKind::Write));
            return started;
        }
        self.admit(order)?;
        if target.overlaps(bytes, source, bytes) {
            return Err(MovementError::Overlap { target, source_address: source, bytes }.into());
        }
        let (to, from) = (self.spot(target, bytes)?, self.spot(source, bytes)?);
        let (write, read) = (Touch::here(AccessKind::Write), Touch::here(AccessKind::Read));
        let parts = [to.part(bytes, write), from.part(bytes, read)];
        let owner = from.process();
        let place = match to.is_at_hand() || from.is_at_hand() || owner == self.process() {
            true => Place::Here,
            false => Place::At(owner),
        };
        let work = Work::Copy { target: to, source: from, bytes };
        let mut draft = Draft::new(work, place, target, source);
        self.hold(&mut draft, order, &parts)?;
        Ok(self.start(draft, order).handle())
    }

    #[inline]
    #[track_caller]
    pub(crate) fn start_put(&self, target: GlobalAddress, data: &[u8], order: Order) -> Result<Handle> {
        if data.len() <= PUT_BYTES_MAX
            && self.may_start_at_once(order)
            && let Some(to) = self.mapped(target, data.len())
        {
            // SAFETY: `data` is readable; `mapped` found the target range inside memory that is
            // mapped here.
            unsafe { racy::copy_out(data.as_ptr(), to, data.len()) };
            return Ok(self.next_handle());
        }
        self.put_slowly_from(target, data, order)
    }

    #[cold]
    #[track_caller]
    fn put_slowly_from(&self, target: GlobalAddress, data: &[u8], order: Order) -> Result<Handle> {
        if let Some(started) = self.past_detour(|| self.start_put(target, data, order)) {
            self.note_put_at(target, data.len(), Touch::here(AccessKind::Write));
            return started;
        }
        if data.len() > PUT_BYTES_MAX {
            return Err(MovementError::TooLong { bytes: data.len(), max: PUT_BYTES_MAX }.into());
        }
        self.admit(order)?;
        // Other workers may watch a word.
        let is_word = matches!(data.len(), 4 | 8) && (target.offset() as usize).is_multiple_of(data.len());
        let touch = Touch::here(if is_word { AccessKind::AtomicChange } else { AccessKind::Write });
        let bytes = data.len() as u64;
        let to = self.spot(target, bytes)?;
        let parts = [to.part(bytes, touch)];
        let work = Work::Put { target: to, data: data.to_vec() };
        let mut draft = Draft::new(work, Place::Anywhere, target, target);
        self.hold(&mut draft, order, &parts)?;
        Ok(self.start(draft, order).handle())
    }

    #[track_caller]
    pub(crate) fn start_put_owned(
        &self,
        target: GlobalAddress,
        buffer: Vec<u8>,
        order: Order,
    ) -> Result<Incoming<Vec<u8>>, Refused<Vec<u8>>> {
        self.start_with_buffer(target, buffer, order, AccessKind::Write, |target, data| Work::Put { target, data })
    }

    #[track_caller]
    pub(crate) fn start_get(
        &self,
        source: GlobalAddress,
        buffer: Vec<u8>,
        order: Order,
    ) -> Result<Incoming<Vec<u8>>, Refused<Vec<u8>>> {
        self.start_with_buffer(source, buffer, order, AccessKind::Read, |source, room| Work::Get { source, room })
    }

    #[track_caller]
    fn start_with_buffer(
        &self,
        address: GlobalAddress,
        buffer: Vec<u8>,
        order: Order,
        kind: AccessKind,
        work: impl FnOnce(Spot, Vec<u8>) -> Work,
    ) -> Result<Incoming<Vec<u8>>, Refused<Vec<u8>>> {
        let (touch, bytes) = (Touch::here(kind), buffer.len() as u64);
        let spot = match self.admit(order).and_then(|()| self.spot(address, bytes)) {
            Ok(spot) => spot,
            Err(error) => return Err(Refused { error, arguments: buffer }),
        };
        let parts = [spot.part(bytes, touch)];
        let mut draft = Draft::new(work(spot, buffer), Place::Here, address, address);
        match self.hold(&mut draft, order, &parts) {
            Ok(()) => Ok(self.start_bringing(draft, order)),
            Err(error) => Err(Refused { error, arguments: draft.into_buffer() }),
        }
    }

    #[track_caller]
    pub(crate) fn start_change<W: Unsigned>(
        &self,
        word: GlobalPtr<W>,
        change: AtomicChange<W>,
        order: Order,
    ) -> Result<Incoming<W>> {
        if self.may_start_at_once(order)
            && let Some(place) = self.mapped(word.address(), size_of::<W>())
            && place.addr().is_multiple_of(size_of::<W>())
        {
            let previous = word.change(self, change)?;
            return Ok(Incoming::over(self.next_handle(), MoveValue::Previous(previous.widen())));
        }
        self.admit(order)?;
        let (mut draft, part) = self.draft_change(word, change)?;
        self.hold(&mut draft, order, &[part])?;
        Ok(self.start_bringing(draft, order))
    }

    #[track_caller]
    pub(crate) fn change_into<W: Unsigned>(
        &self,
        old: GlobalPtr<W>,
        word: GlobalPtr<W>,
        change: AtomicChange<W>,
        order: Order,
    ) -> Result<Handle> {
        self.admit(order)?;
        let (mut draft, part) = self.draft_change(word, change)?;
        let place = self.spot_of(old)?;
        if place.process() != self.process() {
            return Err(MovementError::NotOwn { address: old.address() }.into());
        }
        let store = place.part(size_of::<W>() as u64, Touch::here(AccessKind::Write));
        self.hold(&mut draft, order, &[part, store])?;
        draft.note.store_at = Some((place, size_of::<W>()));
        Ok(self.start(draft, order).handle())
    }

    #[track_caller]
    fn draft_change<W: Unsigned>(&self, word: GlobalPtr<W>, change: AtomicChange<W>) -> Result<(Draft, Part)> {
        let target = self.spot_of(word)?;
        let part = target.part(size_of::<W>() as u64, Touch::here(AccessKind::of(&change)));
        let change = W::operation(target.offset, change);
        Ok((Draft::new(Work::Change { target, change }, Place::Anywhere, word.address(), word.address()), part))
    }

    /// Returns whether a new operation need not look at those before it.
    #[inline]
    pub(super) fn may_start_at_once(&self, order: Order) -> bool {
        let is_free = match order {
            Order::None => !self.started_operations().is_fenced(),
            Order::After(handle) if self.check_handle(handle).is_err() => return false,
            Order::After(_) | Order::All | Order::Continuing => false,
        };
        is_free || GlobalRoom::of(self.process_handle()).movement.open(self.thread_index()) == 0
    }

    #[inline]
    pub(super) fn next_handle(&self) -> Handle {
        self.handle(self.started_operations().count())
    }

    #[inline]
    pub(super) fn handle(&self, number: u64) -> Handle {
        Handle { worker: self.id(), number }
    }

    /// Returns the number of an operation that this worker has started.
    #[inline]
    pub(super) fn check_handle(&self, handle: Handle) -> Result<u64> {
        let is_started = (1..=self.started_operations().last()).contains(&handle.number);
        match handle.worker == self.id() && is_started {
            true => Ok(handle.number),
            false => Err(self.wrong_handle(handle)),
        }
    }

    #[cold]
    fn wrong_handle(&self, handle: Handle) -> Error {
        let started = self.started_operations().last();
        match handle.worker == self.id() {
            true => MovementError::NeverStarted { handle, started }.into(),
            false => MovementError::Foreign { handle, by: self.id() }.into(),
        }
    }

    /// Returns when a new operation may be started. Waits while too many are open.
    pub(super) fn admit(&self, order: Order) -> Result<()> {
        // Other workers may learn by this operation of everything before it.
        self.end_accesses();
        if let Order::After(handle) = order {
            self.check_handle(handle)?;
        }
        let (movement, local) = (&GlobalRoom::of(self.process_handle()).movement, self.thread_index());
        if movement.open(local) as usize >= OPEN_MAX {
            self.wait_until("waiting for one of 256 operations to end", self.default_deadline(), |_| {
                let orders = &movement.lock().threads[local].orders;
                let are_failed = !orders.has_room() && !orders.are_under_way(u64::MAX);
                let too_many = || Err(MovementError::TooMany { max: OPEN_MAX }.into());
                if are_failed { Some(too_many()) } else { orders.has_room().then_some(Ok(())) }
            })?;
        }
        Ok(())
    }

    fn spot_of<W: Pod>(&self, word: GlobalPtr<W>) -> Result<Spot> {
        check_alignment::<W>(word.address())?;
        self.spot(word.address(), size_of::<W>() as u64)
    }

    /// Finds the region of an address, attaching it if need be.
    pub(super) fn spot(&self, address: GlobalAddress, bytes: u64) -> Result<Spot> {
        let (region, offset) = self.find_region(address, bytes)?;
        Ok(Spot::attached(region, offset))
    }

    /// Reports an operation to the observer of accesses as if it were made now. A worker that finds
    /// its signal may use the memory that it accessed, also before this worker knows that it is
    /// over.
    pub(super) fn note(&self, draft: &mut Draft, order: Order, parts: &[Part]) -> Result<()> {
        self.hold(draft, order, parts)?;
        if let Some(hold) = draft.note.hold.take() {
            hold.complete(self.process_handle());
        }
        Ok(())
    }

    /// Reports an operation to the observer of accesses, which refuses it if it conflicts with an
    /// open access, and otherwise keeps its accesses open until it is over. It may access the
    /// memory of the operations that it is ordered after.
    fn hold(&self, draft: &mut Draft, order: Order, parts: &[Part]) -> Result<()> {
        let process = self.process_handle();
        if !process.accesses.is_observed() {
            return Ok(());
        }
        let touched = touched(&mut draft.work);
        let after = {
            let inner = GlobalRoom::of(process).movement.lock();
            let thread = &inner.threads[self.thread_index()];
            thread.held_before(thread.orders.before(self.condition(order), draft.place, touched))
        };
        draft.note.hold = self.open_until_over(parts, &after)?;
        Ok(())
    }

    pub(super) fn start_bringing<T>(&self, mut draft: Draft, order: Order) -> Incoming<T> {
        let parcel = Parcel::default();
        draft.note.brings = Some(parcel.clone());
        match self.start(draft, order) {
            Started::Over(handle, brought) => Incoming::over(handle, brought),
            Started::Open(handle) => Incoming::open(handle, parcel),
        }
    }

    fn condition(&self, order: Order) -> Condition {
        match order {
            Order::None => Condition::None,
            Order::After(handle) => Condition::After(handle.number),
            Order::All => Condition::All,
            Order::Continuing => Condition::Continuing(self.started_operations().last()),
        }
    }

    /// Starts an operation, or does it, if that is possible at once.
    fn start(&self, draft: Draft, order: Order) -> Started {
        let Draft { mut work, place, mut note } = draft;
        let (process, local) = (self.process_handle(), self.thread_index());
        let touched = touched(&mut work);
        // Only now: handlers may have started others while this one waited to be admitted.
        let condition = self.condition(order);
        let mut inner = GlobalRoom::of(process).movement.lock();
        let orders = &mut inner.threads[local].orders;
        let after = orders.before(condition, place, touched);
        // Other workers may learn by this operation of everything before it, also of the operations
        // that it is ordered after and that are over.
        self.end_accesses();
        self.started_operations().set_fenced(orders.is_fenced());
        let handle = self.next_handle();
        if after.is_empty() {
            drop(inner);
            if let Some(brought) = work.do_now(process) {
                if let (Some((spot, bytes)), MoveValue::Previous(previous)) = (&note.store_at, &brought) {
                    spot.store_word(process, *previous, *bytes);
                }
                if let Some(hold) = note.hold.take() {
                    hold.complete(process);
                }
                return Started::Over(handle, brought);
            }
            inner = GlobalRoom::of(process).movement.lock();
        }
        let thread = &mut inner.threads[local];
        thread.orders.push(handle.number, touched, place, after, work);
        thread.notes.insert(handle.number, note);
        if !thread.orders.is_under_way(handle.number) {
            // An operation that it is ordered after has failed, so it never begins.
            thread.end_hold(process, handle.number);
        }
        drop(inner);
        GlobalRoom::of(process).movement.stir(process);
        GlobalRoom::of(process).movement.advance(process);
        Started::Open(handle)
    }
}

/// Returns the processes whose memory it accesses.
fn touched(work: &mut Work) -> Touched {
    let target = work.target().map(|spot| spot.process());
    let source = work.source().map(|spot| spot.process());
    [target, source]
}
