//! [`Map`]: the operations on single keys, and on the whole map.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use farside::{Error, Function, ProcessId, Result, Wire, Worker, WorkerId};

use super::batch::{Batch, finish};
use super::core::{Core, Effort, For, Kind, Level, Stop, Tried};
use super::slot::{Slot, Spot, Stamp, value_of, with_copy};
use super::{HashMap, MapError};
use crate::phase::{HasPhases, phases_of_maps};
use crate::promise::{Implementation, Promise};

/// A [`HashMap`] on one worker.
pub struct Map<'w, K: 'static, V: 'static> {
    pub(super) core: Core<'w, K, V>,
    pub(super) map: HashMap<K, V>,
}

phases_of_maps!(Map, [Slot], [Slot]);

impl<K: Slot, V: Slot> HasPhases for Map<'_, K, V> {
    fn begin_phase(&self, promise: Promise) -> Result<Self> {
        self.core.meet(())?;
        Ok(self.promising(promise))
    }

    fn end_phase(&self, promise: Promise) -> Result<()> {
        if promise == Promise::INSERT_ONLY { finish(self) } else { self.core.me.barrier() }
    }
}

/// The effect of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Inserted {
    /// The key was not there.
    New,
    /// The key was there, with another value or the same.
    Replaced,
}

/// # Errors
/// For all methods that take a key: [`Error::PeerLost`] if its owner is lost; [`MapError::Gone`];
/// [`MapError::Promise`] and [`MapError::NotLocal`] if the operation breaks the
/// [promise](Self::promising); [`Error::Deadline`] and [`MapError::Contended`] if others keep
/// changing the slot of the key; [`Error::InHandler`] if a handler would have to wait. Insertions
/// also return [`MapError::Full`], and [`MapError::Memory`] if the part cannot grow.
impl<'w, K: Slot, V: Slot> Map<'w, K, V> {
    /// Inserts a value. A value that is there is replaced, and not read.
    ///
    /// *Cost*: that of a compare-and-swap and a put, for the first slot that is tried.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    #[inline]
    #[track_caller]
    pub fn insert(&self, key: K, value: V) -> Result<Inserted> {
        self.run::<Insert>(&key, value)
    }

    /// Inserts a value if the key is not there. Otherwise the inner result is the value that is
    /// there.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    #[inline]
    #[track_caller]
    pub fn try_insert(&self, key: K, value: V) -> Result<Result<(), V>> {
        Ok(match self.run::<TryInsert>(&key, value)? {
            Some(there) => Err(there),
            None => Ok(()),
        })
    }

    /// Returns the value of a key, after inserting `value` if the key is not there.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    #[inline]
    #[track_caller]
    pub fn get_or_insert(&self, key: K, value: V) -> Result<V> {
        Ok(self.run::<TryInsert>(&key, value)?.unwrap_or(value))
    }

    /// Returns the value of a key.
    ///
    /// *Cost*: one get, for the first slot that is tried.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    #[inline]
    #[track_caller]
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.run::<Get>(key, ())
    }

    /// Returns whether a key is there.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    #[inline]
    #[track_caller]
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// Removes a key, and returns its value.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    #[inline]
    #[track_caller]
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        self.run::<Remove>(key, ())
    }

    /// Changes the value of a key, and returns what `change` returns. Returns `None` if the key is
    /// not there. No other operation on the key comes in between.
    ///
    /// `change` captures nothing and runs at the owner: as a handler, or here if this worker is the
    /// owner. It must not use the map or wait. If it panics, the entry stays as it was.
    ///
    /// # Errors
    /// [`Error::RemotePanic`]; the key's owner is lost, or the map was freed: see [operations on
    /// keys](Self#errors).
    #[track_caller]
    pub fn modify<A: Wire + Clone + 'static, R: Wire + 'static>(
        &self,
        key: &K,
        with: A,
        change: fn(&mut V, A) -> R,
    ) -> Result<Option<R>> {
        self.run::<Modify<A, R>>(key, (Function::new(self.core.me, change)?, with))
    }

    /// Inserts a value if the key is not there. Otherwise changes the value that is there, as
    /// [`modify`](Self::modify) does.
    ///
    /// # Errors
    /// The function has panicked ([`Error::RemotePanic`]), the key's owner is lost, or the map was
    /// freed: see [operations on keys](Self#errors).
    #[track_caller]
    pub fn upsert(&self, key: K, value: V, change: fn(&mut V, V)) -> Result<()> {
        self.run::<Upsert>(&key, (Function::new(self.core.me, change)?, value))
    }

    /// Returns the number of entries. Of entries that are inserted or removed meanwhile, any may be
    /// counted.
    ///
    /// *Cost*: one call for each worker, which looks at all slots of its part.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost. [`MapError::Gone`]; a call of an
    /// owner fails ([`To::call_return`](farside::To::call_return)).
    #[track_caller]
    pub fn len(&self) -> Result<u64> {
        let core = &self.core;
        core.check("len", Kind::Find)?;
        core.own_part()?;
        // Not in a closure, which would be the place of the access.
        for owner in core.announced_parts() {
            core.announce(owner)?;
        }
        let counted = count_all(core.me, &core.state.owners, |worker| {
            let asked = core.me.call_return(worker, core.handle, |there, handle| {
                Core::on(handle, there).count().map_err(|error| Stop::Failed(error).for_caller())
            });
            let count = asked.map_err(Error::from)?.wait()?;
            count.map_err(|wait| wait.refusal().unwrap_or(MapError::Damaged).into())
        })?;
        for owner in core.announced_parts() {
            core.note_done(owner, Kind::Find)?;
        }
        Ok(counted)
    }

    /// Returns whether there is no entry.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost; [`MapError::Gone`].
    #[track_caller]
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|entries| entries == 0)
    }

    /// Removes all entries. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; a process is lost, or the job's deadline has passed
    /// ([`Worker::barrier`](farside::Worker::barrier)).
    pub fn clear(&self) -> Result<()> {
        self.core.check("clear", Kind::Change)?;
        self.core.state.clear(self.core.me)
    }

    /// Returns the worker to which a key belongs.
    #[inline]
    pub fn owner_of(&self, key: &K) -> WorkerId {
        self.core.state.owners[self.core.spot(key).owner]
    }

    /// Returns the same map under another promise, which the program makes for all workers. They
    /// must be separated by a collective when the promise changes. Operations outside of the
    /// promise return [`MapError::Promise`]. If other workers break the promise, operations may
    /// read half-written entries.
    ///
    /// | promise | permitted | one-sided |
    /// |---|---|---|
    /// | `ALL` | insertions, changes | `A_CAS + W` |
    /// | `ALL` | finds | `R` |
    /// | `INSERT_ONLY` | insertions, `upsert`, batches | `A_CAS + W` |
    /// | `FIND_ONLY` | finds, `stream`, `len` | `R`, not verified |
    /// | `LOCAL` | all, of keys that the worker [owns](Self::owner_of) | no atomics |
    ///
    /// The costs are those of a key in the first slot that is tried: W a put, R a get, A an atomic.
    /// Where memory is not mapped, an insertion finds by its failed CAS that a slot is taken. Where
    /// it is mapped, a second CAS publishes the entry. It fails if a survivor of a loss has taken
    /// the slot. A miss costs an R for each slot up to the first one that was never used.
    ///
    /// The levels are those of Brock et al., *RDMA vs. RPC for Implementing Distributed Data
    /// Structures*, Table II. Its algorithms take one atomic more for an insertion, and two more
    /// for a find, where nothing is promised.
    #[must_use]
    pub fn promising(&self, promise: Promise) -> Map<'w, K, V> {
        Map { core: Core { promise, level: Level::of(promise), ..self.core.clone() }, map: self.map }
    }

    /// Runs an operation, and announces it where accesses are checked.
    #[inline]
    #[track_caller]
    fn run<O: Operation<K, V>>(&self, key: &K, arguments: O::Arguments) -> Result<O::Answer> {
        let core = &self.core;
        core.check(O::NAME, O::KIND)?;
        let spot = core.spot(key);
        core.announce(spot.owner)?;
        let answer = self.run_at::<O>(spot, key, arguments)?;
        core.note_done(spot.owner, O::KIND)?;
        Ok(answer)
    }

    /// Runs an operation here or at the owner of its key.
    #[inline]
    fn run_at<O: Operation<K, V>>(&self, spot: Spot, key: &K, arguments: O::Arguments) -> Result<O::Answer> {
        let core = &self.core;
        if core.state.is_doubtful() {
            core.settle();
        }
        let (is_own, is_local) = (spot.owner == core.state.mine, core.level == Level::Local);
        if is_local && !is_own {
            return Err(MapError::NotLocal { owner: core.state.owners[spot.owner] }.into());
        }
        // A worker needs no call for what it owns.
        if !is_own && (O::IS_CALL || core.state.implementation.get() == Implementation::Call) {
            let all = || (*key, arguments.clone());
            return core.at_owner(spot, all, |there, (handle, effort, (key, arguments))| {
                let core = Core::on(handle, there);
                O::attempt(&core, effort, core.spot(&key), &key, arguments).map_err(Stop::for_caller)
            });
        }
        let run = || core.persist(spot, |effort| O::attempt(core, effort, spot, key, arguments.clone()));
        if O::IS_CALL { caught(core.me, run) } else { run() }
    }
}

/// Runs a function of the program at the owner of an entry. A panic is an error of its caller.
pub(super) fn caught<R>(me: &Worker, run: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let texts = (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>());
        let message = texts.0.cloned().or(texts.1.map(|text| (*text).into())).unwrap_or_default();
        Err(Error::RemotePanic { on: me.id(), message })
    })
}

/// Adds up the entries of all owners. Names the processes that are lost.
pub(super) fn count_all(
    me: &Worker,
    owners: &[WorkerId],
    mut count_at: impl FnMut(WorkerId) -> Result<u64>,
) -> Result<u64> {
    let (mut counted, mut missing) = (0, Vec::<ProcessId>::new());
    for owner in owners {
        match count_at(*owner) {
            Ok(count) => counted += count,
            Err(Error::PeerLost { .. }) => missing.push(me.process_of(*owner)),
            Err(error) => return Err(error),
        }
    }
    missing.dedup();
    if missing.is_empty() { Ok(counted) } else { Err(MapError::Partial { missing, counted }.into()) }
}

/// Runs `work` with the entries of all owners, and returns their number. Names the processes that
/// are lost.
pub(super) fn for_all<K, V, S: IntoIterator<Item = Result<(K, V)>>>(
    me: &Worker,
    owners: &[WorkerId],
    stream: impl Fn(WorkerId) -> Result<S>,
    mut work: impl FnMut(K, V),
) -> Result<u64> {
    count_all(me, owners, |owner| {
        let mut count = 0;
        for entry in stream(owner)? {
            let (key, value) = entry?;
            work(key, value);
            count += 1;
        }
        Ok(count)
    })
}

/// An operation on one key.
pub(super) trait Operation<K: Slot, V: Slot> {
    const NAME: &'static str;
    /// The kind that a promise must permit.
    const KIND: Kind;
    /// True if only the owner can do it.
    const IS_CALL: bool = false;
    type Arguments: Wire + Clone;
    type Answer: Wire;

    fn attempt(
        core: &Core<'_, K, V>,
        effort: Effort,
        spot: Spot,
        key: &K,
        arguments: Self::Arguments,
    ) -> Tried<Self::Answer>;
}

pub(super) struct Insert;
struct TryInsert;
pub(super) struct Get;
struct Remove;
struct Modify<A, R>(std::marker::PhantomData<(A, R)>);
pub(super) struct Upsert;

impl<K: Slot, V: Slot> Operation<K, V> for Insert {
    const NAME: &'static str = "insert";
    const KIND: Kind = Kind::Insert;
    type Arguments = V;
    type Answer = Inserted;

    #[inline]
    fn attempt(core: &Core<'_, K, V>, effort: Effort, spot: Spot, key: &K, value: V) -> Tried<Inserted> {
        with_copy::<K, V, _>(|copy| {
            let held = core.hold(spot, key, For::Inserting, effort, copy)?.expect("an insertion makes a slot");
            let inserted = if held.is_full() { Inserted::Replaced } else { Inserted::New };
            held.publish(Stamp::FULL, key, &value)?;
            Ok(inserted)
        })
    }
}

impl<K: Slot, V: Slot> Operation<K, V> for TryInsert {
    const NAME: &'static str = "try_insert";
    const KIND: Kind = Kind::Insert;
    type Arguments = V;
    type Answer = Option<V>;

    #[inline]
    fn attempt(core: &Core<'_, K, V>, effort: Effort, spot: Spot, key: &K, value: V) -> Tried<Option<V>> {
        with_copy::<K, V, _>(|copy| {
            if core.find(spot, key, copy)? {
                return Ok(Some(value_of::<K, V>(copy)?));
            }
            let held = core.hold(spot, key, For::Inserting, effort, copy)?.expect("an insertion makes a slot");
            if held.is_full() {
                // Another worker was faster.
                return Ok(Some(value_of::<K, V>(copy)?));
            }
            held.publish(Stamp::FULL, key, &value)?;
            Ok(None)
        })
    }
}

impl<K: Slot, V: Slot> Operation<K, V> for Get {
    const NAME: &'static str = "get";
    const KIND: Kind = Kind::Find;
    type Arguments = ();
    type Answer = Option<V>;

    #[inline]
    fn attempt(core: &Core<'_, K, V>, _: Effort, spot: Spot, key: &K, (): ()) -> Tried<Option<V>> {
        with_copy::<K, V, _>(|copy| match core.find(spot, key, copy)? {
            true => value_of::<K, V>(copy).map(Some).map_err(Stop::Failed),
            false => Ok(None),
        })
    }
}

impl<K: Slot, V: Slot> Operation<K, V> for Remove {
    const NAME: &'static str = "remove";
    const KIND: Kind = Kind::Change;
    type Arguments = ();
    type Answer = Option<V>;

    #[inline]
    fn attempt(core: &Core<'_, K, V>, effort: Effort, spot: Spot, key: &K, (): ()) -> Tried<Option<V>> {
        with_copy::<K, V, _>(|copy| {
            let held = core.hold(spot, key, For::Changing, effort, copy)?;
            let Some(held) = held.filter(|held| held.is_full()) else { return Ok(None) };
            let value = value_of::<K, V>(copy)?;
            held.publish(Stamp::DEAD, key, &value)?;
            Ok(Some(value))
        })
    }
}

impl<K: Slot, V: Slot, A: Wire + Clone + 'static, R: Wire + 'static> Operation<K, V> for Modify<A, R> {
    const NAME: &'static str = "modify";
    const KIND: Kind = Kind::Change;
    const IS_CALL: bool = true;
    type Arguments = (Function<V, A, R>, A);
    type Answer = Option<R>;

    fn attempt(
        core: &Core<'_, K, V>,
        effort: Effort,
        spot: Spot,
        key: &K,
        (change, with): Self::Arguments,
    ) -> Tried<Option<R>> {
        with_copy::<K, V, _>(|copy| {
            let held = core.hold(spot, key, For::Changing, effort, copy)?;
            let Some(held) = held.filter(|held| held.is_full()) else { return Ok(None) };
            let mut value = value_of::<K, V>(copy)?;
            let answer = change.run(core.me, &mut value, with);
            held.publish(Stamp::FULL, key, &value)?;
            Ok(Some(answer))
        })
    }
}

impl<K: Slot, V: Slot> Operation<K, V> for Upsert {
    const NAME: &'static str = "upsert";
    const KIND: Kind = Kind::Insert;
    const IS_CALL: bool = true;
    type Arguments = (Function<V, V, ()>, V);
    type Answer = ();

    fn attempt(
        core: &Core<'_, K, V>,
        effort: Effort,
        spot: Spot,
        key: &K,
        (change, value): Self::Arguments,
    ) -> Tried<()> {
        with_copy::<K, V, _>(|copy| {
            let held = core.hold(spot, key, For::Inserting, effort, copy)?.expect("an insertion makes a slot");
            let mut value = value;
            if held.is_full() {
                let by = std::mem::replace(&mut value, value_of::<K, V>(copy)?);
                change.run(core.me, &mut value, by);
            }
            held.publish(Stamp::FULL, key, &value).map_err(Stop::Failed)
        })
    }
}

impl<K: 'static, V: 'static> fmt::Debug for Map<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("promise", &self.core.promise).finish_non_exhaustive()
    }
}
