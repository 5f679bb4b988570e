//! The protocol: how a worker finds, takes and changes the slot of a key, wherever it lies.

use std::hint;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use farside::{AccessBytes, AwaitSignals, bytemuck};
use farside::{Comparison, Deadline, Error, GlobalPtr, ProcessId, Result, Wire, Worker, WorkerId};

use super::MapError;
use super::slot::{HEAD_BYTES, Part, Slot, Spot, Stamp, checksum, has_key, verified, with_copy};
use super::state::{Doubt, Handle, State, stays_open};
use crate::agreement::held;
use crate::announced;
use crate::promise::{Implementation, Op, Promise};

/// The outcome of one try. A handler cannot wait, so what has to be waited for is a value that may
/// travel to the caller.
pub(super) type Tried<R> = Result<R, Stop>;

/// Why a try did not come to its end.
pub(super) enum Stop {
    Wait(Wait),
    Failed(Error),
}

/// The action of a worker before it tries again.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) enum Wait {
    /// Try again at once: another worker was faster.
    Again,
    /// Wait until the slot has another stamp.
    Busy { slot: GlobalPtr<u64>, stamp: Stamp },
    /// Ask the owner for its new part.
    Moved,
    /// Ask the owner for a larger part.
    Crowded,
    /// Give up: the owner has no such map.
    Gone,
    /// Give up: the owner has found bytes that are no entry.
    Damaged,
    /// Give up: the owner has no memory for this number of slots.
    Memory { owner: WorkerId, slots: u64 },
}

impl Wait {
    /// Returns why no other try is of use.
    pub(super) fn refusal(self) -> Option<MapError> {
        match self {
            Self::Gone => Some(MapError::Gone),
            Self::Damaged => Some(MapError::Damaged),
            Self::Memory { owner, slots } => Some(MapError::Memory { owner, slots }),
            Self::Again | Self::Busy { .. } | Self::Moved | Self::Crowded => None,
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Stop {
    /// Returns the event for which the caller of this worker waits. Another error becomes a panic,
    /// which the caller receives.
    pub(super) fn for_caller(self) -> Wait {
        match self {
            Self::Wait(wait) => wait,
            Self::Failed(error) => match error.room_error() {
                Some(MapError::Gone) => Wait::Gone,
                Some(MapError::Damaged) => Wait::Damaged,
                Some(&MapError::Memory { owner, slots }) => Wait::Memory { owner, slots },
                _ => panic!("{error}"),
            },
        }
    }
}

pub(super) fn wait<R>(wait: Wait) -> Tried<R> {
    Err(Stop::Wait(wait))
}

/// How far a try goes.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Effort {
    pub(super) tries: u32,
    /// The number of slots that an insertion looks at.
    pub(super) probes: u64,
}

/// The number of slots that an insertion looks at before it asks for a larger part. If a quarter of
/// the slots is free, one of a thousand insertions does.
const PROBES_BEFORE_GROWTH: u64 = 24;
/// The same number in a map that does not grow. Asking helps there only after removals, when nearly
/// all slots have been used.
const PROBES_BEFORE_CLEANUP: u64 = 96;
/// The number of slots that any operation looks at. Where an insertion finds none that is free,
/// less than one of a hundred is.
const PROBES_MAX: u64 = 512;
/// Tries without progress in between.
const TRIES_AT_ONCE: u32 = 64;
const TRIES_MAX: u32 = 1 << 20;

impl Effort {
    pub(super) const FIRST: Self = Self { tries: 0, probes: PROBES_BEFORE_GROWTH };
    pub(super) const LAST: Self = Self { tries: 0, probes: PROBES_MAX };
}

/// A try that the owner of a key makes.
type AtOwner<K, V, A, R> = fn(&Worker, (Handle<K, V>, Effort, A)) -> Result<R, Wait>;

/// The meaning of a promise for a map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    All,
    InsertOnly,
    FindOnly,
    Local,
    /// No operation of a map is permitted.
    Nothing,
}

impl Level {
    pub(super) fn of(promise: Promise) -> Self {
        match (promise.permits(Op::Insert), promise.permits(Op::Find)) {
            _ if promise.is_local() => Self::Local,
            (true, true) => Self::All,
            (true, false) => Self::InsertOnly,
            (false, true) => Self::FindOnly,
            (false, false) => Self::Nothing,
        }
    }
}

/// The effect of an operation on the entries of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Find,
    /// Inserts, and changes what is there.
    Insert,
    /// Changes or removes what is there.
    Change,
}

/// A map on one worker.
#[derive(Clone)]
pub(super) struct Core<'w, K: 'static, V: 'static> {
    pub(super) me: &'w Worker,
    pub(super) state: Rc<State<K, V>>,
    pub(super) handle: Handle<K, V>,
    pub(super) promise: Promise,
    pub(super) level: Level,
}

/// Where the search for a key ended.
enum Found {
    /// At the slot of the key, of which a copy was made.
    Key(GlobalPtr<u64>, Stamp),
    /// At a slot that was never used.
    Free(GlobalPtr<u64>, Stamp),
    /// At a slot that was never used, which is claimed now.
    Claimed(GlobalPtr<u64>),
    /// Nowhere.
    None,
}

/// Why a key is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Reading,
    Changing,
    Inserting,
}

impl<'w, K: Slot, V: Slot> Core<'w, K, V> {
    #[track_caller]
    pub(super) fn on(handle: Handle<K, V>, me: &'w Worker) -> Self {
        Self { me, state: held(handle, me, || State::gone(me)), handle, promise: Promise::ALL, level: Level::All }
    }

    #[inline]
    pub(super) fn spot(&self, key: &K) -> Spot {
        Spot::new((self.state.settings.placement)(bytemuck::bytes_of(key)), self.state.parts.len())
    }

    #[inline]
    pub(super) fn part(&self, owner: usize) -> Result<Part> {
        let part = self.state.parts[owner].get();
        if part.slots == 0 { Err(MapError::Gone.into()) } else { Ok(part) }
    }

    /// Returns the part of this worker.
    pub(super) fn own_part(&self) -> Result<Part> {
        self.part(self.state.mine)
    }

    /// Asks for the first slot of a key, which an operation will access soon. Returns where the key
    /// belongs.
    #[inline]
    pub(super) fn prefetch(&self, key: &K, why: For) -> Spot {
        let spot = self.spot(key);
        let part = self.state.parts[spot.owner].get();
        let first = spot.probes(part).next().filter(|_| part.is_mapped);
        if let Some(Ok(slot)) = first.map(|index| part.slot(index, self.state.layout)) {
            match why {
                For::Reading => slot.prefetch(self.me),
                For::Changing | For::Inserting => slot.prefetch_to_write(self.me),
            }
        }
        spot
    }

    /// Refuses an operation outside of the promise.
    #[inline]
    pub(super) fn check(&self, operation: &'static str, kind: Kind) -> Result<()> {
        let is_permitted = match self.level {
            Level::All | Level::Local => true,
            Level::InsertOnly => kind == Kind::Insert,
            Level::FindOnly => kind == Kind::Find,
            Level::Nothing => false,
        };
        if is_permitted { Ok(()) } else { Err(MapError::Promise { operation, promise: self.promise }.into()) }
    }

    /// Where accesses are checked, meets the operations on a part that the promise excludes.
    #[inline]
    #[track_caller]
    pub(super) fn announce(&self, owner: usize) -> Result<()> {
        match self.announced_words(owner) {
            Some(words) => {
                self.part(owner)?;
                announced::meet(self.me, self.promise, words?)
            }
            None => Ok(()),
        }
    }

    /// Notes an operation on a part, where accesses are checked.
    #[inline]
    #[track_caller]
    pub(super) fn note_done(&self, owner: usize, kind: Kind) -> Result<()> {
        let done: &[Op] = match kind {
            Kind::Find => &[Op::Find],
            Kind::Insert => &[Op::Insert],
            Kind::Change => &[Op::Insert, Op::Find],
        };
        match self.announced_words(owner) {
            Some(words) => announced::note(self.me, words?, done),
            None => Ok(()),
        }
    }

    /// The owners of the parts whose operations are announced: all or none.
    pub(super) fn announced_parts(&self) -> std::ops::Range<usize> {
        0..self.state.announced.len()
    }

    #[inline]
    fn announced_words(&self, owner: usize) -> Option<Result<announced::Words>> {
        let first = *self.state.announced.get(owner)?;
        Some(first.add(1).map(|second| [(Op::Insert, first), (Op::Find, second)]))
    }

    /// Returns whether only this worker accesses the slot of the key. A map that chooses its
    /// implementation is not sure of that: if a process is lost meanwhile, workers may have
    /// different ones.
    #[inline]
    fn is_alone(&self) -> bool {
        self.level == Level::Local || self.state.settings.choice.0 == Some(Implementation::Call)
    }

    /// Tries until a try comes to its end.
    #[inline]
    pub(super) fn persist<R>(&self, spot: Spot, mut attempt: impl FnMut(Effort) -> Tried<R>) -> Result<R> {
        let (mut effort, mut end) = (Effort::FIRST, None);
        loop {
            match attempt(effort) {
                Ok(result) => return Ok(result),
                Err(stop) => self.prepare(spot, stop, &mut effort, &mut end)?,
            }
        }
    }

    /// Has a try made by the owner of the key, until one comes to its end.
    pub(super) fn at_owner<A: Wire, R: Wire>(
        &self,
        spot: Spot,
        arguments: impl Fn() -> A,
        attempt: AtOwner<K, V, A, R>,
    ) -> Result<R> {
        let owner = self.state.owners[spot.owner];
        self.part(spot.owner)?;
        self.persist(spot, |effort| {
            let asked = self.me.call_return(owner, (self.handle, effort, arguments()), attempt);
            let answer = asked.map_err(Error::from)?;
            answer.wait()?.map_err(Stop::Wait)
        })
    }

    /// Does what lets the next try succeed. The operation ends one deadline of the job after its
    /// first try.
    #[cold]
    #[inline(never)]
    fn prepare(&self, spot: Spot, stop: Stop, effort: &mut Effort, end: &mut Option<Deadline>) -> Result<()> {
        let wait = match stop {
            Stop::Failed(error) => return Err(error),
            Stop::Wait(wait) => wait,
        };
        effort.tries += 1;
        let end = end.get_or_insert_with(|| self.me.deadline_after(self.me.default_deadline()));
        if effort.tries > TRIES_MAX || end.has_passed(self.me) {
            return Err(MapError::Contended { tries: effort.tries }.into());
        }
        match wait {
            Wait::Gone | Wait::Damaged | Wait::Memory { .. } => {
                let refusal = wait.refusal().expect("no other try is of use");
                Err(refusal.into())
            }
            Wait::Again if effort.tries.is_multiple_of(TRIES_AT_ONCE) => self.me.progress().map(drop),
            Wait::Again => {
                hint::spin_loop();
                Ok(())
            }
            Wait::Busy { slot, stamp } => self.wait_for(slot, stamp),
            Wait::Moved => self.renew(spot.owner, false).map(drop),
            Wait::Crowded => {
                let has_grown = match self.renew(spot.owner, true) {
                    // First, all slots of the part are used.
                    Err(error) if effort.probes < PROBES_MAX && lacks_memory(&error) => false,
                    outcome => outcome?,
                };
                if !has_grown {
                    if effort.probes == PROBES_MAX {
                        let slots = self.part(spot.owner)?.slots;
                        return Err(MapError::Full { owner: self.state.owners[spot.owner], slots }.into());
                    }
                    effort.probes = PROBES_MAX;
                }
                Ok(())
            }
        }
    }

    /// Waits until a slot has another stamp. Retires it if the process that holds it is lost.
    pub(super) fn wait_for(&self, slot: GlobalPtr<u64>, stamp: Stamp) -> Result<()> {
        // Without a holder the stamp is damaged, and the operation ends with its tries.
        let Some(holder) = self.holder(stamp) else { return self.me.progress().map(drop) };
        if stamp.holder() == Some(self.me.id()) {
            // It changes one slot at a time, so a request that it gave up has taken this one.
            self.settle();
            return self.me.progress().map(drop);
        }
        match slot.until(Comparison::Ne, stamp.0).signalled_by(holder).wait(self.me) {
            Err(Error::PeerLost { .. }) if self.retire_if_lost(slot, stamp)? => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Returns the process that holds a slot.
    fn holder(&self, stamp: Stamp) -> Option<ProcessId> {
        let worker = stamp.holder().filter(|worker| worker.number() < self.me.worker_count())?;
        Some(self.me.process_of(worker))
    }

    /// Retires a slot if the process that holds it is lost. Its data may still arrive, so the slot
    /// is not used again; its stamp cannot, since it would replace that of the holder.
    pub(super) fn retire_if_lost(&self, slot: GlobalPtr<u64>, stamp: Stamp) -> Result<bool> {
        let is_lost = self.holder(stamp).is_some_and(|holder| self.me.is_lost(holder));
        if is_lost {
            self.replace(slot, stamp, Stamp::RETIRED)?;
        }
        Ok(is_lost)
    }

    /// Replaces a stamp. Returns whether it was still there.
    fn replace(&self, slot: GlobalPtr<u64>, stamp: Stamp, new: u64) -> Result<bool> {
        let found = slot.compare_swap(self.me, stamp.0, new).inspect_err(|error| self.state.note_late(error))?;
        Ok(found == stamp.0)
    }

    /// Takes a slot with the stamp `from`.
    #[inline]
    fn take(&self, slot: GlobalPtr<u64>, from: Stamp, held: Stamp, back_to: u64) -> Result<bool> {
        match slot.compare_swap(self.me, from.0, held.0) {
            Ok(found) => Ok(found == from.0),
            Err(error) => {
                self.state.doubt(&error, Doubt { slot, from: Some(from), held, back_to });
                Err(error)
            }
        }
    }

    /// Gives back the slots that requests of this worker have taken after it gave them up. Such a
    /// request may be carried out after later ones (rule 2.3 of the memory model). So a doubt stays
    /// until its slot shows that the request was carried out, or never will be.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self) {
        let mut doubts = self.state.doubtful.take();
        // One that does not answer is asked once.
        let mut silent = Vec::new();
        doubts.retain(|doubt| {
            let owner = doubt.slot.address().process();
            if silent.contains(&owner) {
                return true;
            }
            match self.is_settled(doubt) {
                Ok(is_settled) => !is_settled,
                Err(error) => {
                    silent.push(owner);
                    stays_open(&error)
                }
            }
        });
        self.state.doubtful.borrow_mut().append(&mut doubts);
    }

    /// Settles what is in doubt, and [meets](State::meet) all workers.
    pub(super) fn meet<T: Wire + Clone>(&self, value: T) -> Result<Vec<T>> {
        if self.state.is_doubtful() {
            self.settle();
        }
        self.state.meet(self.me, value)
    }

    /// Gives a slot back if a request has taken it. Returns whether it cannot be taken any more.
    fn is_settled(&self, doubt: &Doubt) -> Result<bool> {
        if self.replace(doubt.slot, doubt.held, doubt.back_to)? {
            return Ok(true);
        }
        // A slot that this worker held has been published late, or retired.
        let Some(from) = doubt.from else { return Ok(true) };
        let now = Stamp(doubt.slot.load(self.me)?);
        // Only a holder that publishes nothing gives a slot its earlier stamp.
        Ok(now.state() != Stamp::LOCKED && now != from && now.holder() != Some(self.me.id()))
    }

    /// Searches a key among the first `probes` slots of a part. Makes a copy of its slot.
    #[inline(always)]
    fn seek(&self, part: Part, spot: Spot, key: &K, why: For, probes: u64, copy: &mut [u8]) -> Tried<Found> {
        let layout = self.state.layout;
        for index in spot.probes(part).take(probes as usize) {
            let slot = part.slot(index, layout)?;
            if why == For::Inserting && !part.is_mapped && self.claim(slot, Stamp(Stamp::EMPTY), spot.tag)? {
                return Ok(Found::Claimed(slot));
            }
            let Some(stamp) = self.look(part, slot, spot.tag, copy)? else { return wait(Wait::Again) };
            match stamp.state() {
                Stamp::EMPTY => return Ok(Found::Free(slot, stamp)),
                Stamp::MOVED => return wait(Wait::Moved),
                Stamp::LOCKED if stamp.may_be(spot.tag) => return wait(Wait::Busy { slot, stamp }),
                // It may be claimed for this key. A reader need not wait: until the entry is there,
                // the key is not.
                Stamp::CLAIMED if why == For::Inserting => return wait(Wait::Busy { slot, stamp }),
                Stamp::FULL | Stamp::DEAD if stamp.may_be(spot.tag) && has_key(copy, key) => {
                    return Ok(Found::Key(slot, stamp));
                }
                _ => {}
            }
        }
        Ok(Found::None)
    }

    /// Reads a slot. Returns its stamp, and copies its entry if that may have this tag and no
    /// worker is changing it. Returns `None` if the copy is of different moments.
    #[inline(always)]
    pub(super) fn look(&self, part: Part, slot: GlobalPtr<u64>, tag: u64, copy: &mut [u8]) -> Result<Option<Stamp>> {
        let entry = slot.address().checked_add(self.state.layout.entry as u64).unwrap_or_default();
        if !part.is_mapped {
            look_bytes(self.me, slot.address(), copy)?;
            return Ok(verified(copy, |stamp| stamp.may_be(tag) && self.level != Level::FindOnly));
        }
        // SYNC: acquire, for the release store of the writer.
        let stamp = Stamp(slot.load(self.me)?);
        if !stamp.may_be(tag) || stamp.state() == Stamp::LOCKED {
            return Ok(Some(stamp));
        }
        look_bytes(self.me, entry, &mut copy[HEAD_BYTES..])?;
        let is_own = || part.base == self.state.parts[self.state.mine].get().base;
        if matches!(self.level, Level::FindOnly | Level::Local) || self.is_alone() && is_own() {
            return Ok(Some(stamp));
        }
        // SYNC: the copy is made before the second load. A writer has changed the stamp before it
        // changes the entry.
        fence(Ordering::Acquire);
        let after = Stamp(slot.load(self.me)?);
        Ok((after == stamp).then_some(stamp))
    }

    /// Finds the value of a key. Its copy is in `copy`.
    #[inline(always)]
    pub(super) fn find(&self, spot: Spot, key: &K, copy: &mut [u8]) -> Tried<bool> {
        let part = self.part(spot.owner)?;
        match self.seek(part, spot, key, For::Reading, PROBES_MAX, copy)? {
            Found::Key(_, stamp) => Ok(stamp.state() == Stamp::FULL),
            _ => Ok(false),
        }
    }

    /// Takes the slot of a key, so that no other worker changes it. Returns `None` if the key has
    /// none and none is wanted. Its entry is in `copy`.
    #[inline(always)]
    pub(super) fn hold(
        &self,
        spot: Spot,
        key: &K,
        why: For,
        effort: Effort,
        copy: &mut [u8],
    ) -> Tried<Option<Held<'_, 'w, K, V>>> {
        self.hold_in(self.part(spot.owner)?, spot, key, why, effort, copy)
    }

    #[inline(always)]
    pub(super) fn hold_in(
        &self,
        part: Part,
        spot: Spot,
        key: &K,
        why: For,
        effort: Effort,
        copy: &mut [u8],
    ) -> Tried<Option<Held<'_, 'w, K, V>>> {
        let probes = match why {
            For::Inserting if self.state.settings.is_fixed => effort.probes.max(PROBES_BEFORE_CLEANUP),
            For::Inserting => effort.probes,
            _ => PROBES_MAX,
        };
        let (locked, claimed) = (self.held(Stamp::LOCKED, spot.tag), self.held(Stamp::CLAIMED, spot.tag));
        let hold = |slot, before, held| Held { core: self, slot, before, held, is_mapped: part.is_mapped };
        let empty = Stamp(Stamp::EMPTY);
        match self.seek(part, spot, key, why, probes, copy)? {
            Found::Claimed(slot) => Ok(Some(hold(slot, empty, claimed))),
            Found::None if why == For::Inserting => wait(Wait::Crowded),
            Found::Free(slot, stamp) if why == For::Inserting => match self.claim(slot, stamp, spot.tag)? {
                true => Ok(Some(hold(slot, empty, claimed))),
                false => wait(Wait::Again),
            },
            Found::None | Found::Free(..) => Ok(None),
            Found::Key(slot, stamp) => {
                let is_held = match self.level {
                    Level::Local => true,
                    _ if self.is_alone() => {
                        slot.store(self.me, locked.0)?;
                        // SYNC: other workers may read the entry, and see this stamp if they see
                        // any of the next entry.
                        fence(Ordering::Release);
                        true
                    }
                    _ => self.take(slot, stamp, locked, stamp.0)?,
                };
                if is_held { Ok(Some(hold(slot, stamp, locked))) } else { wait(Wait::Again) }
            }
        }
    }

    /// Claims a slot that was never used.
    #[inline]
    fn claim(&self, slot: GlobalPtr<u64>, empty: Stamp, tag: u64) -> Result<bool> {
        Ok(self.is_alone() || self.take(slot, empty, self.held(Stamp::CLAIMED, tag), Stamp::RETIRED)?)
    }

    /// The stamp of a slot that this worker holds.
    fn held(&self, state: u64, tag: u64) -> Stamp {
        Stamp::held(state, tag, self.me.id(), self.state.era())
    }
}

/// A slot that this worker holds. It is released with the entry that it had, unless another one is
/// published.
pub(super) struct Held<'a, 'w, K: Slot, V: Slot> {
    core: &'a Core<'w, K, V>,
    slot: GlobalPtr<u64>,
    before: Stamp,
    held: Stamp,
    is_mapped: bool,
}

impl<K: Slot, V: Slot> Held<'_, '_, K, V> {
    /// Returns whether the key was there.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.before.state() == Stamp::FULL
    }

    /// Writes the entry, then the stamp, unless others took this process for lost and retired the
    /// slot.
    #[inline(always)]
    pub(super) fn publish(mut self, state: u64, key: &K, value: &V) -> Result<()> {
        let (core, layout) = (self.core, self.core.state.layout);
        let version = if self.before.state() == Stamp::EMPTY { 1 } else { self.before.upper().wrapping_add(1) };
        let stamp = Stamp::new(state, self.held.tag(), version);
        // A slot whose publication fails may be half-written.
        self.before = Stamp(Stamp::RETIRED);
        let is_published = with_copy::<K, V, _>(|copy| {
            let (head, entry) = copy.split_at_mut(HEAD_BYTES);
            entry[..size_of::<K>()].copy_from_slice(bytemuck::bytes_of(key));
            entry[size_of::<K>()..].copy_from_slice(bytemuck::bytes_of(value));
            if layout.has_checksum() {
                head[8..].copy_from_slice(&checksum(entry, stamp).to_le_bytes());
            }
            let data = &copy[HEAD_BYTES + 8 - layout.entry..];
            let start = self.slot.cast::<u8>().add(8)?.address();
            if core.is_alone() {
                core.me.put_bytes(start, data)?;
                // SYNC: release, for the acquiring loads of `look`.
                return self.slot.store(core.me, stamp.0).map(|()| true);
            }
            if self.is_mapped {
                core.me.put_bytes(start, data)?;
                return core.replace(self.slot, self.held, stamp.0);
            }
            let found = core.me.put_compare_swap(start, data, self.slot, self.held.0, stamp.0)?;
            Ok(found == self.held.0)
        });
        let is_published = is_published.inspect_err(|error| core.state.note_unpublished(error))?;
        match is_published {
            true => {
                std::mem::forget(self);
                Ok(())
            }
            false => Err(MapError::Retired.into()),
        }
    }
}

impl<K: Slot, V: Slot> Drop for Held<'_, '_, K, V> {
    /// Gives back what was not published, also if a function of the program panicked.
    fn drop(&mut self) {
        let (core, slot, held) = (self.core, self.slot, self.held);
        let back_to = match self.before.state() {
            // Alone, a worker claims nothing.
            Stamp::EMPTY if core.is_alone() => return,
            Stamp::EMPTY => Stamp::RETIRED,
            _ => self.before.0,
        };
        let released = match core.is_alone() {
            true => slot.store(core.me, back_to),
            false => core.replace(slot, held, back_to).map(drop),
        };
        if let Err(error) = released {
            core.state.doubt(&error, Doubt { slot, from: None, held, back_to });
        }
    }
}

/// Returns whether a part could not grow for lack of memory.
pub(super) fn lacks_memory(error: &Error) -> bool {
    matches!(error.room_error(), Some(MapError::Memory { .. }))
}

/// Reads bytes that others may be writing. The caller verifies them.
#[inline]
pub(super) fn look_bytes(me: &Worker, from: farside::GlobalAddress, bytes: &mut [u8]) -> Result<()> {
    from.cast::<u8>().slice(bytes.len()).look(me, 0, bytes)
}

#[cfg(test)]
mod tests;
