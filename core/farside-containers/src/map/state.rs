//! The state of a map on one worker: its own part, and the places of the others.

use std::cell::{Cell, RefCell};

use farside::memory::Registered;
use farside::{
    AccessBytes, Error, FabricError, GlobalAddress, GlobalPtr, Losses, PerWorker, RegisterMemory, Result, Wire, Worker,
    WorkerId,
};

use super::batch::Ledger;
use super::core::{Core, Effort, For, Held, Level, Stop, Tried, Wait, look_bytes, wait};
use super::put::Put;
use super::slot::{HEAD_BYTES, Layout, Part, Slot, Stamp, entry_of, with_copy};
use super::{MapError, Settings};
use crate::agreement::{exchange, place};
use crate::cost::{CostModel, Planner};
use crate::promise::Implementation;

/// The states of a map on all workers.
pub(super) type Handle<K, V> = PerWorker<State<K, V>>;

/// The state of a map on one worker.
pub(super) struct State<K, V> {
    pub(super) settings: Settings,
    pub(super) implementation: Cell<Implementation>,
    pub(super) planner: Cell<Planner>,
    pub(super) layout: Layout,
    /// The workers that made the map. Each has a part.
    pub(super) owners: Box<[WorkerId]>,
    /// The index of this worker among them.
    pub(super) mine: usize,
    /// The part of each owner, as far as known. An owner marks the slots of a part that it has
    /// left.
    pub(super) parts: Box<[Cell<Part>]>,
    /// The words of operations that are announced, by owner: two each where accesses are checked,
    /// otherwise none.
    pub(super) announced: Pointers,
    own: RefCell<Own>,
    pub(super) ledger: Ledger<V>,
    /// The operations of batches whose slots other workers were changing.
    pub(super) pending: RefCell<Vec<Put<K, V>>>,
    /// The slots that requests of this worker may have taken after it gave them up.
    pub(super) doubtful: RefCell<Vec<Doubt>>,
    /// The number of doubts so far.
    doubts: Cell<u32>,
    /// True if a request of this worker was given up: it may change the map's memory at any time.
    is_late: Cell<bool>,
}

/// A slot that a request may have taken, or may still take, whose answer did not come in time.
#[derive(Clone, Copy)]
pub(super) struct Doubt {
    pub(super) slot: GlobalPtr<u64>,
    /// The stamp that the request expects. `None` if this worker has the slot already, and did not
    /// give it back.
    pub(super) from: Option<Stamp>,
    /// Its stamp if the request has taken it.
    pub(super) held: Stamp,
    /// The stamp to give it back with.
    pub(super) back_to: u64,
}

/// The memory of a part.
struct PartMemory {
    bytes: Registered,
    /// The number of processes that were lost when it was allocated.
    losses: usize,
}

impl PartMemory {
    /// Returns whether no process was lost that may know of it. What such a process had sent may
    /// arrive late.
    fn is_safe(&self, me: &Worker) -> bool {
        self.losses == me.lost_processes().len()
    }

    /// Gives the memory back, unless a lost process may still change it. Then it stays until the
    /// job ends.
    fn release(self, me: &Worker) {
        if !self.is_safe(me) {
            std::mem::forget(self);
        }
    }
}

/// The memory of this worker.
struct Own {
    /// The current part is the last one. Other workers may still look at earlier ones.
    memory: Vec<PartMemory>,
    growing: Option<Growing>,
    /// The memory of the words in `announced`.
    _announced: Option<Registered>,
}

struct Growing {
    memory: PartMemory,
    part: Part,
    /// The first slot that is not moved.
    next: u64,
}

/// Number of slots that are looked at to know how full a part is.
const SAMPLE: u64 = 512;
/// The slots up to which a part grows fourfold, to be moved less often.
const SMALL_SLOTS: u64 = 1 << 20;

impl<K: Slot, V: Slot> State<K, V> {
    /// Makes the part of this worker, and learns where the others are. All workers call this.
    pub(super) fn new(me: &Worker, settings: Settings) -> Result<Self> {
        let is_far = me.remaining_workers().into_iter().try_fold(false, |is_far, worker| {
            let starter = GlobalAddress::starter(me.process_of(worker), 0);
            Ok::<_, Error>(is_far || !me.is_mapped(starter)?)
        })?;
        // Functions cannot be compared, so the placement of one key is.
        let key: Vec<u8> = (1..=u8::MAX).cycle().take(size_of::<K>()).collect();
        let placed = (settings.placement)(&key);
        let own = (settings.capacity, settings.choice, settings.model.is_some(), (settings.is_fixed, placed));
        let all = exchange(me, (own, is_far))?;
        let owners = me.remaining_workers();
        if let Some(owner) = all.iter().position(|(other, _)| *other != all[0].0) {
            return Err(MapError::Unequal { worker: owners[owner] }.into());
        }
        if me.worker_count() > Stamp::WORKERS_MAX {
            let why = format!("a map has at most {} workers", Stamp::WORKERS_MAX).into();
            return Err(MapError::Capacity { capacity: settings.capacity, why }.into());
        }
        let (implementation, planner) = settings.decide(me)?;
        let layout = Layout::new(size_of::<K>() + size_of::<V>(), all.iter().any(|(_, is_far)| *is_far));
        let made = settings.slots(all.len()).and_then(|slots| allocate(me, slots, layout));
        let places = exchange(me, made.as_ref().ok().map(|(_, part)| (part.base, part.slots)))?;
        let (memory, _) = made?;
        if let Some(owner) = places.iter().position(Option::is_none) {
            let why = format!("{} has no memory for its part", owners[owner]).into();
            return Err(MapError::Capacity { capacity: settings.capacity, why }.into());
        }
        let (words, announced) = announced_words(me)?;
        let state = Self {
            settings,
            implementation: Cell::new(implementation),
            planner: Cell::new(planner),
            layout,
            mine: place(me).0,
            owners: owners.into(),
            parts: places.iter().map(|_| Cell::new(Part::NONE)).collect(),
            announced,
            own: RefCell::new(Own { memory: vec![memory], growing: None, _announced: words }),
            ..Self::gone(me)
        };
        for (owner, (base, slots)) in places.into_iter().flatten().enumerate() {
            state.learn(me, owner, base, slots)?;
        }
        Ok(state)
    }

    /// Returns the state of a map that this worker has not.
    pub(super) fn gone(me: &Worker) -> Self {
        let settings = Settings::DEFAULT;
        Self {
            settings,
            implementation: Cell::default(),
            planner: Cell::new(Planner::by(CostModel::CORI)),
            layout: Layout::new(size_of::<K>() + size_of::<V>(), false),
            mine: me.id().index(),
            owners: me.workers().collect(),
            parts: me.workers().map(|_| Cell::new(Part::NONE)).collect(),
            announced: Box::default(),
            own: RefCell::new(Own { memory: Vec::new(), growing: None, _announced: None }),
            ledger: Ledger::default(),
            pending: RefCell::default(),
            doubtful: RefCell::default(),
            doubts: Cell::new(0),
            is_late: Cell::new(false),
        }
    }

    /// Notes where the part of a worker is.
    fn learn(&self, me: &Worker, owner: usize, base: GlobalPtr<u8>, slots: u64) -> Result<()> {
        self.parts[owner].set(Part { base, slots, is_mapped: me.is_mapped(base.address())? });
        Ok(())
    }

    /// Empties all parts. All workers call this.
    pub(super) fn clear(&self, me: &Worker) -> Result<()> {
        let is_late = self.is_late.get() || self.own.borrow().memory.last().is_some_and(|memory| !memory.is_safe(me));
        let is_late = exchange(me, is_late)?.contains(&true);
        let mine = self.mine;
        let part = self.parts[mine].get();
        if part.slots == 0 {
            return Err(MapError::Gone.into());
        }
        let emptied = if is_late { self.replace_memory(me, part)? } else { part };
        let mut own = self.own.borrow_mut();
        own.growing = None;
        let earlier = own.memory.len() - 1;
        own.memory.drain(..earlier).for_each(|memory| memory.release(me));
        own.memory[0].bytes.fill(0);
        drop(own);
        self.pending.take();
        self.doubtful.take();
        for (owner, (base, slots)) in self.exchange(me, (emptied.base, emptied.slots))? {
            // The own part is known already.
            if owner != mine {
                self.learn(me, owner, base, slots)?;
            }
        }
        Ok(())
    }

    /// Takes other memory for the part of each worker, so that requests which were given up change
    /// nothing in it. The memory that they may change stays until the job ends. All workers call
    /// this.
    fn replace_memory(&self, me: &Worker, part: Part) -> Result<Part> {
        let made = allocate(me, part.slots, self.layout);
        if let Some((owner, _)) = self.exchange(me, made.is_ok())?.iter().find(|(_, is_made)| !is_made) {
            return Err(MapError::Memory { owner: self.owners[*owner], slots: part.slots }.into());
        }
        let (memory, part) = made?;
        std::mem::forget(std::mem::replace(&mut self.own.borrow_mut().memory, vec![memory]));
        self.parts[self.mine].set(part);
        self.is_late.set(false);
        Ok(part)
    }

    /// Gives the memory back. All workers call this.
    pub(super) fn free(&self, me: &Worker) -> Result<()> {
        let late = exchange(me, self.is_late.get());
        self.parts.iter().for_each(|part| part.set(Part::NONE));
        let own =
            std::mem::replace(&mut *self.own.borrow_mut(), Own { memory: Vec::new(), growing: None, _announced: None });
        if late.as_ref().map_or(true, |late| late.contains(&true)) {
            // Workers that have not come, and requests that were given up, may still use it. It
            // stays until the job ends.
            std::mem::forget(own);
        } else {
            own.memory.into_iter().for_each(|memory| memory.release(me));
        }
        self.pending.take();
        self.doubtful.take();
        late.map(drop)
    }

    /// Waits for all workers, returns their values, and frees the earlier parts: no worker looks at
    /// them any more. All workers call this.
    pub(super) fn meet<T: Wire + Clone>(&self, me: &Worker, value: T) -> Result<Vec<T>> {
        let part = self.parts[self.mine].get();
        let earlier = self.own.borrow().memory.len().saturating_sub(1);
        let (mut values, mut learned, mut is_any_late) = (Vec::new(), Ok(()), false);
        let all = self.exchange(me, (value, part.base, part.slots, self.is_late.get()))?;
        for (owner, (value, base, slots, is_late)) in all {
            // The own part may have been moved meanwhile.
            if slots > 0 && owner != self.mine {
                learned = learned.and(self.learn(me, owner, base, slots));
            }
            values.push(value);
            is_any_late |= is_late;
        }
        // Also with an error, so that no worker leaves the others waiting.
        me.barrier().and(learned)?;
        if is_any_late {
            // Requests that were given up may still change the earlier parts.
            return Ok(values);
        }
        // A handler may have added a part meanwhile.
        let mut own = self.own.borrow_mut();
        let earlier = earlier.min(own.memory.len().saturating_sub(1));
        own.memory.drain(..earlier).for_each(|memory| memory.release(me));
        Ok(values)
    }

    /// Returns the values of the owners that are left, by owner. All of them call this.
    fn exchange<T: Wire + Clone>(&self, me: &Worker, value: T) -> Result<Vec<(usize, T)>> {
        let values = exchange(me, value)?;
        let owners = me.remaining_workers().into_iter().map(|worker| self.owner(worker));
        Ok(owners.zip(values).filter_map(|(owner, value)| Some((owner?, value))).collect::<Vec<_>>())
    }

    /// Returns the index of an owner.
    pub(super) fn owner(&self, worker: WorkerId) -> Option<usize> {
        self.owners.binary_search(&worker).ok()
    }

    /// Returns the number of parts that this worker has memory for.
    #[cfg(test)]
    pub(super) fn parts_held(&self) -> usize {
        self.own.borrow().memory.len()
    }

    /// Returns whether no request of this worker may still change the map's memory.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_doubtful() && !self.is_late.get()
    }

    #[inline]
    pub(super) fn is_doubtful(&self) -> bool {
        !self.doubtful.borrow().is_empty()
    }

    /// The era of this worker: its number of doubts, as far as a stamp has room for it.
    #[inline]
    pub(super) fn era(&self) -> u32 {
        self.doubts.get() & Stamp::ERA_MASK
    }

    /// Notes a slot if a request for it, which has failed, may still be carried out, or if the slot
    /// was not given back.
    pub(super) fn doubt(&self, error: &Error, doubt: Doubt) {
        self.note_late(error);
        let was_made = !matches!(error, Error::InHandler { .. } | Error::Borrowed { .. });
        if (was_made || doubt.from.is_none()) && stays_open(error) {
            self.doubts.set(self.doubts.get().wrapping_add(1));
            self.doubtful.borrow_mut().push(doubt);
        }
    }

    /// Notes that a request was given up, if that is the error.
    pub(super) fn note_late(&self, error: &Error) {
        self.is_late.set(self.is_late.get() || is_deadline(error));
    }

    /// Notes that a publication may be under way after an error. Calls run while it is waited for,
    /// and their errors end the wait, too.
    pub(super) fn note_unpublished(&self, error: &Error) {
        let is_known =
            matches!(error, Error::InHandler { .. } | Error::Borrowed { .. } | Error::PeerLost { .. } | Error::Room(_));
        self.is_late.set(self.is_late.get() || !is_known);
    }
}

impl<K, V> AsRef<Ledger<V>> for State<K, V> {
    fn as_ref(&self) -> &Ledger<V> {
        &self.ledger
    }
}

/// Returns whether a slot stays in doubt after this error.
pub(super) fn stays_open(error: &Error) -> bool {
    // In the first two cases the request was not made.
    matches!(error, Error::InHandler { .. } | Error::Borrowed { .. }) || is_deadline(error)
}

fn is_deadline(error: &Error) -> bool {
    matches!(error, Error::Deadline { .. } | Error::Fabric(FabricError::Deadline { .. }))
}

/// A pointer for each owner, or none.
type Pointers = Box<[GlobalPtr<u64>]>;

/// Makes the words of this worker by which operations are announced, where accesses are checked.
/// Returns those of all workers.
fn announced_words(me: &Worker) -> Result<(Option<Registered>, Pointers)> {
    if me.access_checks().is_none() {
        return Ok((None, Box::default()));
    }
    let words = me.allocate(16)?;
    words.fill(0);
    let all = exchange(me, me.address_of(&words)?.cast())?;
    Ok((Some(words), all.into()))
}

fn allocate(me: &Worker, slots: u64, layout: Layout) -> Result<(PartMemory, Part)> {
    let too_large = || MapError::Capacity { capacity: slots as usize, why: "a part would be too large".into() };
    let bytes = (slots as usize).checked_mul(layout.slot_bytes).filter(|bytes| *bytes < 1 << 40);
    let bytes = me.allocate(bytes.ok_or_else(too_large)?)?;
    bytes.fill(0);
    let base = me.address_of(&bytes)?.cast();
    let memory = PartMemory { bytes, losses: me.lost_processes().len() };
    Ok((memory, Part { base, slots, is_mapped: true }))
}

impl<K: Slot, V: Slot> Core<'_, K, V> {
    /// Asks the owner of a part for its current one, which may be larger than the one known here.
    /// Returns whether another try is of use.
    pub(super) fn renew(&self, owner: usize, is_crowded: bool) -> Result<bool> {
        let known = self.part(owner)?;
        let answer = if owner == self.state.mine {
            match self.renewed(known.base, is_crowded) {
                Err(Stop::Failed(error)) => return Err(error),
                answer => answer.map_err(Stop::for_caller),
            }
        } else {
            let arguments = (self.handle, known.base, is_crowded);
            let asked =
                self.me.call_return(self.state.owners[owner], arguments, |there, (handle, seen, is_crowded)| {
                    Core::on(handle, there).renewed(seen, is_crowded).map_err(Stop::for_caller)
                });
            asked?.wait()?
        };
        match answer {
            Ok(part) => {
                self.state.learn(self.me, owner, part.base, part.slots)?;
                Ok(part.base != known.base)
            }
            Err(Wait::Busy { slot, stamp }) => self.wait_for(slot, stamp).map(|()| true),
            Err(wait) => match wait.refusal() {
                Some(refusal) => Err(refusal.into()),
                None => self.me.progress().map(|_| true),
            },
        }
    }

    /// Returns the part of this worker, unless it is the one that was seen and can grow. In that
    /// case it grows first.
    pub(super) fn renewed(&self, seen: GlobalPtr<u8>, is_crowded: bool) -> Tried<Part> {
        let mine = self.state.mine;
        let mut own = self.state.own.borrow_mut();
        let now = self.part(mine)?;
        if now.base != seen {
            return Ok(now);
        }
        if own.growing.is_none() {
            let Some(slots) = self.wanted(now)?.filter(|_| is_crowded) else { return Ok(now) };
            let (memory, part) = self.memory_for(slots)?;
            own.growing = Some(Growing { memory, part, next: 0 });
        }
        if let Some(growing) = &mut own.growing {
            self.move_entries(now, growing)?;
        }
        if let Some(Growing { memory, part, .. }) = own.growing.take() {
            own.memory.push(memory);
            self.state.parts[mine].set(part);
        }
        self.part(mine).map_err(Stop::Failed)
    }

    /// Allocates a larger part for this worker.
    fn memory_for(&self, slots: u64) -> Result<(PartMemory, Part)> {
        allocate(self.me, slots, self.state.layout).map_err(|_| MapError::Memory { owner: self.me.id(), slots }.into())
    }

    /// Returns the number of slots that the part which replaces this one should have, if one
    /// should.
    fn wanted(&self, part: Part) -> Result<Option<u64>> {
        let (step, mut used, mut full) = ((part.slots / SAMPLE).max(1), 0, 0);
        for index in (0..part.slots).step_by(step as usize) {
            let stamp = Stamp(part.slot(index, self.state.layout)?.load(self.me)?);
            used += u64::from(stamp.state() != Stamp::EMPTY);
            full += u64::from(matches!(stamp.state(), Stamp::FULL | Stamp::LOCKED | Stamp::CLAIMED));
        }
        let is_full = used * 10 >= part.slots / step * 7;
        let slots = match full * 2 < used {
            // Only the slots of removed keys become free.
            _ if self.state.settings.is_fixed => (full * 10 < used * 9).then_some(part.slots),
            // Most keys were removed.
            true => Some(part.slots),
            false if part.slots < SMALL_SLOTS => Some(part.slots * 4),
            false => Some(part.slots * 2),
        };
        Ok(slots.filter(|_| is_full))
    }

    /// Moves the entries of a part into another one, which no other worker knows yet. Each slot is
    /// marked first: whoever finds the mark asks for the other part, and so waits until it is
    /// known. What can fail comes before the mark, so no entry is lost.
    fn move_entries(&self, from: Part, growing: &mut Growing) -> Tried<()> {
        // Verifies what it reads, whatever the caller has promised.
        let reader = Core { level: Level::All, ..self.clone() };
        let alone = Core { level: Level::Local, ..self.clone() };
        while growing.next < from.slots {
            let slot = from.slot(growing.next, self.state.layout)?;
            let stamp = Stamp(slot.load(self.me)?);
            if stamp.holder().is_some() {
                if self.retire_if_lost(slot, stamp)? {
                    continue;
                }
                return wait(Wait::Busy { slot, stamp });
            }
            // Fails if another worker has just changed it.
            let mark = || slot.compare_swap(self.me, stamp.0, Stamp::MOVED).map(|found| found == stamp.0);
            let is_marked = with_copy::<K, V, Result<bool>>(|copy| {
                if stamp.state() != Stamp::FULL {
                    return mark();
                }
                if reader.look(from, slot, stamp.tag(), copy)? != Some(stamp) {
                    return Ok(false);
                }
                let (key, value) = entry_of(copy)?;
                let held = alone.room_for(growing, &key, copy)?;
                let is_marked = mark()?;
                if is_marked {
                    held.publish(Stamp::FULL, &key, &value)?;
                }
                Ok(is_marked)
            })?;
            growing.next += u64::from(is_marked);
        }
        Ok(())
    }

    /// Returns a slot for a key in a part that no other worker knows, after moving what is there to
    /// a larger one if it has none for the key.
    fn room_for(&self, growing: &mut Growing, key: &K, copy: &mut [u8]) -> Result<Held<'_, '_, K, V>> {
        loop {
            match self.hold_in(growing.part, self.spot(key), key, For::Inserting, Effort::LAST, copy) {
                Ok(held) => return Ok(held.expect("an insertion makes a slot")),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Wait(_)) => {
                    let (memory, part) = self.memory_for(growing.part.slots * 2)?;
                    let mut larger = Growing { memory, part, next: 0 };
                    for index in 0..growing.part.slots {
                        let slot = growing.part.slot(index, self.state.layout)?;
                        if Stamp(slot.load(self.me)?).state() == Stamp::FULL {
                            let (key, value) = self.entry(slot)?;
                            self.room_for(&mut larger, &key, copy)?.publish(Stamp::FULL, &key, &value)?;
                        }
                    }
                    *growing = Growing { next: growing.next, ..larger };
                }
            }
        }
    }

    /// Reads an entry that no worker changes.
    pub(super) fn entry(&self, slot: GlobalPtr<u64>) -> Result<(K, V)> {
        let entry = slot.cast::<u8>().add(self.state.layout.entry)?;
        with_copy::<K, V, _>(|copy| {
            look_bytes(self.me, entry.address(), &mut copy[HEAD_BYTES..])?;
            entry_of(copy)
        })
    }

    /// Counts the entries of this worker's part.
    pub(super) fn count(&self) -> Result<u64> {
        let own = self.state.own.borrow();
        let parts = [Some(self.part(self.state.mine)?), own.growing.as_ref().map(|growing| growing.part)];
        let mut count = 0;
        for part in parts.into_iter().flatten() {
            for index in 0..part.slots {
                let stamp = Stamp(part.slot(index, self.state.layout)?.load(self.me)?);
                count += u64::from(matches!(stamp.state(), Stamp::FULL | Stamp::LOCKED));
            }
        }
        Ok(count)
    }
}
