//! The entries of one part, and what each worker does with its own.

use std::fmt;

use farside::global::GlobalError;
use farside::{AddressFault, Error, Losses, Result, WorkerId};

use super::MapError;
use super::core::{Core, Effort, For, Kind, Level, Stop, Wait, look_bytes, wait};
use super::operations::{Map, for_all};
use super::slot::{HEAD_BYTES, Part, Slot, Spot, Stamp, entry_of, verified, with_copy};
use crate::promise::Promise;

/// The bytes that are read at a time where memory is not mapped.
const BLOCK_BYTES: usize = 16 << 10;

/// The entries of one worker's part, in no order: an iterator.
pub struct Entries<'m, 'w, K: 'static, V: 'static> {
    core: &'m Core<'w, K, V>,
    owner: usize,
    part: Part,
    next: u64,
    /// Copies of slots, the last of which is the one before `block_end`.
    block: Vec<u8>,
    block_end: u64,
}

impl<'w, K: Slot, V: Slot> Map<'w, K, V> {
    /// Returns the entries of this worker's part. It is an error if the part grows meanwhile.
    ///
    /// # Errors
    /// [`MapError::Gone`]. The iterator returns [`MapError::Grown`], and the errors of [operations
    /// on keys](Self#errors).
    #[track_caller]
    pub fn local(&self) -> Result<Entries<'_, 'w, K, V>> {
        self.stream(self.core.me.id())
    }

    /// Returns the entries of any worker's part, which this worker reads by itself. Entries that
    /// are inserted or removed meanwhile may be among them.
    ///
    /// *Cost*: where the memory is not mapped, a get for each 16 KiB of slots.
    ///
    /// # Errors
    /// [`MapError::Gone`]; [`MapError::NotLocal`]; [`Error::UnknownWorker`] if that worker has no
    /// part. The iterator returns the errors of [`local`](Self::local).
    #[track_caller]
    pub fn stream(&self, of: WorkerId) -> Result<Entries<'_, 'w, K, V>> {
        let count = self.core.me.worker_count();
        let owner = self.core.state.owner(of).ok_or(Error::UnknownWorker { worker: of, count })?;
        self.core.check("stream", Kind::Find)?;
        if self.core.level == Level::Local && of != self.core.me.id() {
            return Err(MapError::NotLocal { owner: of }.into());
        }
        self.core.announce(owner)?;
        // Until the part is not growing.
        while self.core.renew(owner, false)? {}
        // Now and not at the end, which a program may leave out.
        self.core.note_done(owner, Kind::Find)?;
        let part = self.core.part(owner)?;
        Ok(Entries { core: &self.core, owner, part, next: 0, block: Vec::new(), block_end: 0 })
    }

    /// Returns an iterator over copies of the entries of this worker's part, as they are now. For
    /// those of all workers use it with [`DistIterator`](crate::DistIterator).
    ///
    /// ```
    /// use farside_containers::DistIterator;
    /// use farside_containers::map::HashMap;
    ///
    /// # farside::simulate(3, 1, 1, |me| {
    /// let map = HashMap::<u64, u64>::new(me, 100)?;
    /// let m = map.on(me);
    /// me.share(0..100).try_for_each(|key| m.insert(key as u64, 2 * key as u64).map(drop))?;
    /// me.barrier()?;
    /// assert_eq!(m.iter()?.map(|(_, value)| value).all_sum::<u64>(me)?, 9900);
    /// assert_eq!(m.iter()?.filter(|(key, _)| key % 2 == 1).all_count(me)?, 50);
    /// # map.free(me)
    /// # }).unwrap();
    /// ```
    ///
    /// *Cost*: a copy of the part.
    ///
    /// # Errors
    /// [`MapError::Gone`]; [`MapError::Grown`]; [`MapError::Damaged`].
    #[track_caller]
    pub fn iter(&self) -> Result<impl Iterator<Item = (K, V)> + use<K, V>> {
        Ok(self.local()?.collect::<Result<Vec<_>>>()?.into_iter())
    }

    /// Runs `work` with each entry of the map, at this worker, and returns their number. Not a
    /// collective. The entries of lost processes are left out, and named.
    ///
    /// *Cost*: that of [`stream`](Self::stream), for all parts in turn.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost, after all other entries.
    /// [`MapError::Gone`]; [`MapError::NotLocal`]; [`MapError::Grown`]; [`MapError::Damaged`].
    #[track_caller]
    pub fn for_all(&self, work: impl FnMut(K, V)) -> Result<u64> {
        for_all(self.core.me, &self.core.state.owners, |owner| self.stream(owner), work)
    }

    /// Keeps the entries for which `keep` returns true. Each worker passes a function for its own
    /// part. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; [`MapError::Damaged`]; a process is lost, or the job's deadline has
    /// passed ([`Worker::barrier`](farside::Worker::barrier)).
    pub fn retain(&self, keep: impl FnMut(&K, &mut V) -> bool) -> Result<()> {
        self.core.check("retain", Kind::Change)?;
        self.core.meet(())?;
        let kept = self.promising(Promise::LOCAL).retain_here(keep);
        // A worker that fails goes on to the collective, where the others wait.
        kept.and(self.core.meet(()).map(drop))
    }

    /// Keeps some entries of this worker's part, which no other worker accesses.
    fn retain_here(&self, mut keep: impl FnMut(&K, &mut V) -> bool) -> Result<()> {
        let core = &self.core;
        for entry in self.local()? {
            let (key, mut value) = entry?;
            let state = if keep(&key, &mut value) { Stamp::FULL } else { Stamp::DEAD };
            with_copy::<K, V, _>(|copy| {
                let held = core.hold(core.spot(&key), &key, For::Changing, Effort::LAST, copy);
                match held {
                    Ok(Some(held)) => held.publish(state, &key, &value),
                    Ok(None) | Err(Stop::Wait(_)) => Err(MapError::Damaged.into()),
                    Err(Stop::Failed(error)) => Err(error),
                }
            })?;
        }
        Ok(())
    }

    /// Removes all entries, and returns those of this worker's part. All workers call this, in the
    /// same order as other collectives. If any worker cannot read its part, nothing is removed.
    ///
    /// # Errors
    /// [`MapError::Undrained`]; [`MapError::Gone`]; [`MapError::Damaged`]; a process is lost, or
    /// the job's deadline has passed.
    pub fn drain(&self) -> Result<Vec<(K, V)>> {
        self.core.check("drain", Kind::Change)?;
        self.core.meet(())?;
        let entries = self.local().and_then(|entries| entries.collect::<Result<Vec<_>>>());
        let are_read = self.core.meet(entries.is_ok());
        let entries = entries?;
        if let Some(place) = are_read?.iter().position(|is_read| !is_read) {
            return Err(MapError::Undrained { worker: self.core.me.remaining_workers()[place] }.into());
        }
        self.clear()?;
        Ok(entries)
    }
}

impl<K: Slot, V: Slot> Entries<'_, '_, K, V> {
    /// Refuses to read a part that the owner has left: its memory may have another use by now.
    fn is_current(&self) -> Result<()> {
        let now = self.core.part(self.owner)?;
        if now.base == self.part.base { Ok(()) } else { Err(MapError::Grown.into()) }
    }

    /// Returns the entry of a slot, if there is one.
    fn read(&mut self, index: u64) -> Result<Option<(K, V)>> {
        let (core, part, layout) = (self.core, self.part, self.core.state.layout);
        if !part.is_mapped
            && let copy = self.copy(index)?
            && let Some(stamp) = verified(copy, |stamp| stamp.state() == Stamp::FULL)
            && !matches!(stamp.state(), Stamp::LOCKED | Stamp::MOVED)
        {
            return (stamp.state() == Stamp::FULL).then(|| entry_of(copy)).transpose();
        }
        let slot = part.slot(index, layout)?;
        core.persist(Spot::in_part(self.owner), |_| {
            let stamp = Stamp(slot.load(core.me)?);
            match stamp.state() {
                Stamp::MOVED => Err(Stop::Failed(MapError::Grown.into())),
                Stamp::LOCKED => wait(Wait::Busy { slot, stamp }),
                Stamp::FULL => with_copy::<K, V, _>(|copy| match core.look(part, slot, stamp.tag(), copy)? {
                    Some(seen) if seen.state() == Stamp::FULL => Ok(Some(entry_of(copy)?)),
                    _ => wait(Wait::Again),
                }),
                _ => Ok(None),
            }
        })
    }

    /// Returns the copy of a slot, from a block of them.
    fn copy(&mut self, index: u64) -> Result<&[u8]> {
        let slot_bytes = self.core.state.layout.slot_bytes;
        if index == self.block_end {
            let slots = (BLOCK_BYTES / slot_bytes).max(1).min((self.part.slots - index) as usize);
            self.block.resize(slots * slot_bytes, 0);
            let start = self.part.slot(index, self.core.state.layout)?;
            look_bytes(self.core.me, start.address(), &mut self.block)?;
            self.block_end += slots as u64;
        }
        let behind = (self.block_end - index) as usize * slot_bytes;
        let start = self.block.len() - behind;
        Ok(&self.block[start..][..HEAD_BYTES + size_of::<K>() + size_of::<V>()])
    }
}

impl<K: Slot, V: Slot> Iterator for Entries<'_, '_, K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next < self.part.slots {
            self.next += 1;
            match self.is_current().and_then(|()| self.read(self.next - 1)).transpose() {
                // The entries behind an error are not read.
                Some(Err(error)) => {
                    self.next = self.part.slots;
                    return Some(Err(if is_stale(&error) { MapError::Grown.into() } else { error }));
                }
                Some(entry) => return Some(entry),
                None => {}
            }
        }
        None
    }
}

/// Returns whether the memory is gone: the map has freed an earlier part.
fn is_stale(error: &Error) -> bool {
    matches!(error.room_error(), Some(GlobalError::Address { why: AddressFault::Stale, .. }))
}

impl<K: 'static, V: 'static> fmt::Debug for Entries<'_, '_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("part", &self.part).field("next", &self.next).finish_non_exhaustive()
    }
}
