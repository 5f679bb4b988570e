//! The part of a [`HashMap`](super::HashMap) as batches use it.

use farside::{Result, Worker, WorkerId};

use super::MapError;
use super::batch::{AHEAD, Answer, Batch, Batched, Change, Channels, Desk, get_many};
use super::core::{Core, Effort, For, Kind, Level, Stop, Wait, lacks_memory};
use super::operations::{Get, Insert, Map, Operation, Upsert, caught};
use super::slot::{Part, Slot, Spot};
use super::state::Handle;
use crate::promise::Implementation;

/// The number of tries of an insertion in a handler.
const TRIES: u32 = 64;

/// An insertion of a batch, or a change of the value that is there.
pub(super) type Put<K, V> = (K, V, Option<Change<V>>);

impl<'w, K: Slot, V: Slot> Map<'w, K, V> {
    /// Returns a batch of insertions and changes. Their owners carry them out, whatever the
    /// implementation.
    ///
    /// # Errors
    /// [`MapError::Gone`]; [`MapError::Promise`] if the promise permits no insertions.
    pub fn batch(&self) -> Result<Batch<'_, Self>> {
        self.core.check("batch", Kind::Insert)?;
        self.core.own_part()?;
        Ok(Batch::of(self))
    }

    /// Returns the values of many keys, in the order of the keys. Reads them where memory is
    /// mapped; the owners of other keys are asked in batches. By calls, all owners are.
    ///
    /// # Errors
    /// The errors of all [operations on keys](Self#errors).
    #[track_caller]
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        self.core.check("get_many", Kind::Find)?;
        self.core.own_part()?;
        // Keys that are read from here are announced once more. Not in closures, which would be the
        // places of the accesses.
        let is_announced = self.core.level != Level::Local && !self.core.announced_parts().is_empty();
        let announced = if is_announced { keys } else { &[] };
        for key in announced {
            self.core.announce(self.core.spot(key).owner)?;
        }
        let values = get_many(self, keys)?;
        for key in announced {
            self.core.note_done(self.core.spot(key).owner, Kind::Find)?;
        }
        Ok(values)
    }
}

impl<K: Slot, V: Slot> Batched for Map<'_, K, V> {
    type Key = K;
    type Value = V;

    fn desk(&self) -> Desk<'_, K, V> {
        (self.core.me, self.map.channels, &self.core.state.ledger)
    }

    #[inline]
    #[track_caller]
    fn pass(&self, key: K, push: impl FnOnce(WorkerId, K) -> Result<()>) -> Result<()> {
        let place = self.core.spot(&key).owner;
        let owner = self.core.state.owners[place];
        if self.core.level == Level::Local && owner != self.core.me.id() {
            return Err(MapError::NotLocal { owner }.into());
        }
        self.core.announce(place)?;
        push(owner, key)?;
        self.core.note_done(place, Kind::Insert)
    }

    fn meet_all(&self) -> Result<Vec<(u64, String)>> {
        let (core, ledger) = (&self.core, &self.core.state.ledger);
        let here = Core::on(core.handle, core.me);
        for (key, value, change) in core.state.pending.take() {
            let spot = here.spot(&key);
            ledger.note(match change {
                None => here.persist(spot, |effort| Insert::attempt(&here, effort, spot, &key, value)).map(drop),
                Some(change) => caught(core.me, || {
                    here.persist(spot, |effort| Upsert::attempt(&here, effort, spot, &key, (change, value)))
                }),
            });
        }
        core.meet(ledger.refused.take())
    }

    fn whom_to_ask(&self, key: &K) -> Result<Option<WorkerId>> {
        let (core, owner) = (&self.core, self.core.spot(key).owner);
        let is_by_call = core.state.implementation.get() == Implementation::Call && owner != core.state.mine;
        let is_asked = core.level != Level::Local && (!core.part(owner)?.is_mapped || is_by_call);
        Ok(is_asked.then(|| core.state.owners[owner]))
    }

    #[inline]
    fn prefetch(&self, key: &K) {
        self.core.prefetch(key, For::Reading);
    }

    #[track_caller]
    fn find_one(&self, key: &K) -> Result<Option<V>> {
        self.get(key)
    }
}

/// Makes the channels of a map.
pub(super) fn channels<K: Slot, V: Slot>(me: &Worker, parts: Handle<K, V>) -> Result<Channels<K, V>> {
    let find = move |me: &Worker, key: &K| -> Answer<V> {
        let core = Core::on(parts, me);
        Get::attempt(&core, Effort::FIRST, core.spot(key), key, ()).ok()
    };
    let change = move |me: &Worker, (key, value, change)| {
        let core = Core::on(parts, me);
        let is_done = caught(me, || core.do_here::<Upsert>(core.spot(&key), &key, (change, value)));
        core.keep_rest(is_done, (key, value, Some(change)));
    };
    let insert = move |me: &Worker, mut items: crate::exchange::Items<'_, (K, V)>| {
        let core = Core::on(parts, me);
        let prefetch = |(key, _): &(K, V)| core.prefetch(key, For::Inserting);
        let mut spots = [Spot::in_part(0); AHEAD];
        spots.iter_mut().zip(items.as_slice()).for_each(|(spot, item)| *spot = prefetch(item));
        let mut next = (0..AHEAD).cycle();
        while let (Some((key, value)), Some(place)) = (items.next(), next.next()) {
            let spot = spots[place];
            if let Some(later) = items.as_slice().get(AHEAD - 1) {
                spots[place] = prefetch(later);
            }
            let is_done = core.do_here::<Insert>(spot, &key, value);
            core.keep_rest(is_done, (key, value, None));
        }
    };
    Channels::new(me, parts, insert, change, find)
}

impl<K: Slot, V: Slot> Core<'_, K, V> {
    /// Keeps an operation that was not done in its handler, or its error, for `finish`.
    fn keep_rest(&self, is_done: Result<bool>, operation: Put<K, V>) {
        match is_done {
            Ok(true) => {}
            // Another worker is changing the slot.
            Ok(false) => self.state.pending.borrow_mut().push(operation),
            Err(error) => self.state.ledger.note(Err(error)),
        }
    }

    /// Carries out an operation in the part of this worker, in a handler. Returns whether it did
    /// so.
    fn do_here<O: Operation<K, V>>(&self, spot: Spot, key: &K, arguments: O::Arguments) -> Result<bool> {
        let mut effort = Effort::FIRST;
        for _ in 0..TRIES {
            match O::attempt(self, effort, spot, key, arguments.clone()) {
                Ok(_) => return Ok(true),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Wait(reason @ (Wait::Crowded | Wait::Moved))) => {
                    let (now, is_crowded) = (self.part(spot.owner)?, matches!(reason, Wait::Crowded));
                    let is_last = is_crowded && effort.probes == Effort::LAST.probes;
                    match self.renewed(now.base, is_crowded) {
                        Ok(part) if part.base != now.base => {}
                        Ok(Part { slots, .. }) if is_last => {
                            return Err(MapError::Full { owner: self.state.owners[spot.owner], slots }.into());
                        }
                        Err(Stop::Failed(error)) if is_last || !is_crowded || !lacks_memory(&error) => {
                            return Err(error);
                        }
                        Ok(_) | Err(Stop::Failed(_)) => effort = Effort::LAST,
                        Err(Stop::Wait(_)) => return Ok(false),
                    }
                }
                Err(Stop::Wait(Wait::Again)) => {}
                Err(Stop::Wait(Wait::Busy { slot, stamp })) if self.retire_if_lost(slot, stamp)? => {}
                Err(Stop::Wait(_)) => return Ok(false),
            }
        }
        Ok(false)
    }
}
