//! [`WireMap`]: a map of keys and values that are not plain bytes.

use std::cell::RefCell;
use std::collections::HashMap as StdMap;
use std::fmt;
use std::hash::Hash;
use std::rc::Rc;

use farside::{Error, Function, Losses, PerWorker, Result, Wire, Worker, WorkerId, wire};

use super::batch::{Answer, Batch, Batched, Change, Channels, Desk, Ledger, finish, get_many};
use super::operations::{Inserted, caught, count_all, for_all};
use super::slot::Spot;
use super::{Builder, MapError, Settings};
use crate::agreement::{exchange, find_unequal, held};
use crate::collections::behind;
use crate::phase::{HasPhases, phases_of_maps};
use crate::promise::Promise;

/// The parts of all workers.
type Parts<K, V> = PerWorker<Part<K, V>>;

/// The part of one worker.
struct Part<K, V> {
    /// `None` after the map was freed.
    entries: RefCell<Option<StdMap<K, V>>>,
    /// The workers that made the map. Each has a part.
    owners: Box<[WorkerId]>,
    placement: fn(&[u8]) -> u64,
    ledger: Ledger<V>,
    /// Room for the bytes of a key, which name its owner.
    key_bytes: RefCell<Vec<u8>>,
}

/// A function that runs at the owner of a key. Returns `None` if the map is not there.
type AtOwner<K, V, A, R> = fn(&Worker, (Parts<K, V>, K, A)) -> Option<R>;

/// Entries, and the hash of the last.
type Block<K, V> = (Vec<(K, V)>, Option<u64>);

/// The bytes of entries that an owner sends at a time. A longer value is no answer of `get_many`:
/// thousands of answers may be on their way.
const BLOCK_BYTES: usize = 16 << 10;

/// A hash table that is spread over all workers, of types such as `String` and `Vec`. An entry
/// lives at the worker that owns its key, and all operations are calls of it.
///
/// ```
/// use farside_containers::map::WireMap;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let map = WireMap::<String, Vec<u32>>::new(me)?;
/// let m = map.on(me);
/// m.upsert("workers".into(), vec![me.id().number()], |all, mut new| all.append(&mut new))?;
/// me.barrier()?;
/// assert_eq!(m.get(&"workers".into())?.map(|all| all.len()), Some(3));
/// # me.barrier()?;
/// map.free(me)
/// # }).unwrap();
/// ```
///
/// [`builder`](Self::builder) makes a map with room for more entries at first, or with another
/// placement. [`HashMap`](super::HashMap) copies the bytes of its entries one-sidedly, so its types
/// must be [`Slot`](super::Slot). Rust cannot give one type methods for these types, and others of
/// the same names for all types. So this is a type of its own. Its methods have the same names, and
/// its keys are placed by the same [hash](super::placement_hash), of the bytes with which they
/// travel.
///
/// *Completion*: when an operation returns, all workers see what it did. Operations on one key are
/// linearizable. *Cost*: a call and its answer.
///
/// *Losses*: operations on keys of a lost process return [`Error::PeerLost`]. Others go on.
/// Collectives fail until the others [go on](farside::Losses::go_on). A map that is made then has
/// parts at these workers alone.
#[derive(Wire)]
pub struct WireMap<K: 'static, V: 'static> {
    parts: Parts<K, V>,
    channels: Channels<K, V>,
}

/// A [`WireMap`] on one worker.
pub struct CallMap<'w, K: 'static, V: 'static> {
    pub(super) me: &'w Worker,
    part: Rc<Part<K, V>>,
    map: WireMap<K, V>,
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> WireMap<K, V> {
    /// Makes a map. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// The errors of [`Builder::build`].
    pub fn new(me: &Worker) -> Result<Self> {
        Self::builder().build(me)
    }

    /// Returns a builder, for a map with other settings.
    pub fn builder() -> Builder<Self> {
        Builder::new()
    }

    /// Returns the map for this worker.
    pub fn on(self, me: &Worker) -> CallMap<'_, K, V> {
        CallMap { me, part: held(self.parts, me, || Part::gone(me)), map: self }
    }

    /// Drops all entries. All workers call this, in the same order as other collectives, after the
    /// last operation. Later operations return [`MapError::Gone`].
    ///
    /// # Errors
    /// [`MapError::Gone`], or a process is lost, the job's deadline has passed, or the workers call
    /// different collectives ([`Worker::quiesce`]).
    ///
    /// # Panics
    /// If this worker still has a [`Batch`] of the map.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        let part = self.on(me).part;
        part.with(|_| ())?;
        // Both, so that no worker leaves the others waiting.
        let freed = self.channels.free(me).and(self.parts.free(me));
        if !self.parts.is_here(me) {
            part.entries.take();
        }
        freed
    }
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> Builder<WireMap<K, V>> {
    /// Makes the map. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Capacity`] if there is no memory for the entries; [`MapError::Unequal`] if the
    /// workers pass different settings; a process is lost, the job's deadline has passed, or the
    /// workers call different collectives ([`Worker::gather`]).
    pub fn build(self, me: &Worker) -> Result<WireMap<K, V>> {
        let Settings { capacity, placement, .. } = self.settings;
        if let Some(worker) = find_unequal(me, (capacity, placement(&[1, 2, 3, 4, 5, 6, 7, 8])))? {
            return Err(MapError::Unequal { worker }.into());
        }
        let mut entries = StdMap::new();
        let reserved = entries.try_reserve(capacity.div_ceil(me.remaining_workers().len()));
        if exchange(me, reserved.is_ok())?.contains(&false) {
            let why = "a worker has no memory for its part".into();
            return Err(MapError::Capacity { capacity, why }.into());
        }
        let entries = RefCell::new(Some(entries));
        let owners = me.remaining_workers().into();
        let parts: Parts<K, V> = PerWorker::new(me, Part { entries, owners, placement, ..Part::gone(me) })?;
        let insert = move |me: &Worker, items: crate::exchange::Items<'_, (K, V)>| {
            at(me, parts, |entries| entries.extend(items));
        };
        let change = move |me: &Worker, (key, value, by)| {
            let Some(part) = parts.hold(me) else { return };
            let done = caught(me, || part.with(|entries| upsert(me, entries, key, value, by)));
            part.ledger.note(done);
        };
        let find = move |me: &Worker, key: &K| -> Answer<V> {
            let value = at(me, parts, |entries| entries.get(key).cloned())?;
            Some(value).filter(|value| value.as_ref().is_none_or(|value| value.wire_bytes() <= BLOCK_BYTES))
        };
        Ok(WireMap { parts, channels: Channels::new(me, parts, insert, change, find)? })
    }
}

impl<K, V> Part<K, V> {
    /// Returns the part of a map that this worker has not.
    fn gone(me: &Worker) -> Self {
        Self {
            entries: RefCell::new(None),
            owners: me.workers().collect(),
            placement: Settings::DEFAULT.placement,
            ledger: Ledger::default(),
            key_bytes: RefCell::default(),
        }
    }

    /// Uses the entries of this worker. Fails once this worker has freed the map, even if others
    /// have not yet done so.
    fn with<R>(&self, work: impl FnOnce(&mut StdMap<K, V>) -> R) -> Result<R> {
        self.entries.borrow_mut().as_mut().map(work).ok_or_else(|| MapError::Gone.into())
    }
}

impl<K, V> AsRef<Ledger<V>> for Part<K, V> {
    fn as_ref(&self) -> &Ledger<V> {
        &self.ledger
    }
}

/// Runs `work` with the part of this worker, if it has one.
fn at<K: 'static, V: 'static, R>(
    me: &Worker,
    parts: Parts<K, V>,
    work: impl FnOnce(&mut StdMap<K, V>) -> R,
) -> Option<R> {
    parts.hold(me)?.with(work).ok()
}

/// Returns entries behind a hash, and the hash of the last.
fn block<K: Wire + Clone + Hash, V: Wire + Clone>(entries: &StdMap<K, V>, last: Option<u64>) -> Block<K, V> {
    let mut behind = behind(entries, last, BLOCK_BYTES).into_iter().peekable();
    let (mut block, mut bytes, mut end) = (Vec::new(), 0, None);
    // Entries of one hash are not divided.
    while let Some((hash, key, value)) = behind.next_if(|(hash, ..)| bytes < BLOCK_BYTES || end == Some(*hash)) {
        bytes += key.wire_bytes() + value.wire_bytes();
        end = Some(hash);
        block.push((key.clone(), value.clone()));
    }
    (block, end)
}

/// Inserts a value, or changes the one that is there.
fn upsert<K: Eq + Hash, V: Wire>(me: &Worker, entries: &mut StdMap<K, V>, key: K, new: V, by: Change<V>) {
    match entries.get_mut(&key) {
        Some(value) => by.run(me, value, new),
        None => drop(entries.insert(key, new)),
    }
}

/// # Errors
/// For all methods that take a key: [`Error::PeerLost`] if its owner is lost; [`MapError::Gone`];
/// [`Error::InHandler`] in a handler; others of [`To::call_return`](farside::To::call_return).
impl<'w, K: Wire + Eq + Hash + Clone, V: Wire + Clone> CallMap<'w, K, V> {
    /// Inserts a value. A value that is there is replaced.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    pub fn insert(&self, key: K, value: V) -> Result<Inserted> {
        self.ask(key, value, |there, (parts, key, value)| {
            at(there, parts, |entries| entries.insert(key, value).map_or(Inserted::New, |_| Inserted::Replaced))
        })
    }

    /// Inserts a value if the key is not there. Otherwise the inner result is the value that is
    /// there.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    pub fn try_insert(&self, key: K, value: V) -> Result<Result<(), V>> {
        let there = self.ask(key, value, |there, (parts, key, value)| {
            at(there, parts, |entries| match entries.get(&key) {
                Some(there) => Some(there.clone()),
                None => entries.insert(key, value),
            })
        });
        Ok(there?.map_or(Ok(()), Err))
    }

    /// Returns the value of a key, after inserting `value` if the key is not there.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    pub fn get_or_insert(&self, key: K, value: V) -> Result<V> {
        self.ask(key, value, |there, (parts, key, value)| {
            at(there, parts, |entries| entries.entry(key).or_insert(value).clone())
        })
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.ask(key.clone(), (), |there, (parts, key, ())| at(there, parts, |entries| entries.get(&key).cloned()))
    }

    /// Returns the values of many keys, in the order of the keys. Their owners are asked in
    /// batches. Values of more than 16 KiB are then asked for one by one.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        self.part.with(|_| ())?;
        get_many(self, keys)
    }

    /// Returns whether a key is there.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.ask(key.clone(), (), |there, (parts, key, ())| at(there, parts, |entries| entries.contains_key(&key)))
    }

    /// Removes a key, and returns its value.
    ///
    /// # Errors
    /// The key's owner is lost, the map was freed, or the call is in a handler: see [operations on
    /// keys](Self#errors).
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        self.ask(key.clone(), (), |there, (parts, key, ())| at(there, parts, |entries| entries.remove(&key)))
    }

    /// Changes the value of a key, and returns what `by` returns. Returns `None` if the key is not
    /// there. `by` captures nothing and runs at the owner, as a handler. If it panics, the value
    /// stays as `by` has left it, as in a map of std.
    ///
    /// # Errors
    /// [`Error::RemotePanic`]; the key's owner is lost, or the map was freed: see [operations on
    /// keys](Self#errors).
    pub fn modify<A: Wire, R: Wire>(&self, key: &K, with: A, by: fn(&mut V, A) -> R) -> Result<Option<R>> {
        self.ask(key.clone(), (Function::new(self.me, by)?, with), |there, (parts, key, (by, with))| {
            at(there, parts, |entries| entries.get_mut(&key).map(|value| by.run(there, value, with)))
        })
    }

    /// Inserts a value if the key is not there. Otherwise changes the value that is there, as
    /// [`modify`](Self::modify) does.
    ///
    /// # Errors
    /// The function has panicked ([`Error::RemotePanic`]), the key's owner is lost, or the map was
    /// freed: see [operations on keys](Self#errors).
    pub fn upsert(&self, key: K, value: V, by: fn(&mut V, V)) -> Result<()> {
        self.ask(key, (Function::new(self.me, by)?, value), |there, (parts, key, (by, new))| {
            at(there, parts, |entries| upsert(there, entries, key, new, by))
        })
    }

    /// Returns a batch of insertions and changes.
    ///
    /// # Errors
    /// [`MapError::Gone`].
    pub fn batch(&self) -> Result<Batch<'_, Self>> {
        self.part.with(|_| ())?;
        Ok(Batch::of(self))
    }

    /// Returns the number of entries.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost. [`MapError::Gone`]; a call of an
    /// owner fails ([`To::call_return`](farside::To::call_return)).
    pub fn len(&self) -> Result<u64> {
        count_all(self.me, self.owners()?, |worker| {
            let count = |there: &Worker, parts| at(there, parts, |entries: &mut StdMap<K, V>| entries.len() as u64);
            let asked = self.me.call_return(worker, self.map.parts, count).map_err(Error::from)?;
            asked.wait()?.ok_or_else(|| MapError::Gone.into())
        })
    }

    /// Returns whether there is no entry.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost; [`MapError::Gone`].
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|entries| entries == 0)
    }

    /// Returns copies of the entries of this worker's part.
    ///
    /// # Errors
    /// [`MapError::Gone`].
    pub fn local(&self) -> Result<impl Iterator<Item = Result<(K, V)>> + use<K, V>> {
        Ok(self.part.with(|entries| entries.clone())?.into_iter().map(Ok))
    }

    /// Returns an iterator over copies of the entries of this worker's part, as they are now. For
    /// those of all workers use it with [`DistIterator`](crate::DistIterator).
    ///
    /// *Cost*: a copy of the part.
    ///
    /// # Errors
    /// [`MapError::Gone`].
    pub fn iter(&self) -> Result<impl Iterator<Item = (K, V)> + use<K, V>> {
        Ok(self.part.with(|entries| entries.clone())?.into_iter())
    }

    /// Returns the entries of any worker's part, in blocks that its owner sends, as
    /// [`Map::stream`](super::Map::stream) does. Every entry that stays is seen once. Entries that
    /// are inserted, changed or removed meanwhile may be among them. The next block is on its way
    /// while this worker uses one.
    ///
    /// *Cost*: a call and its answer for each 16 KiB. The owner looks at all its keys for each.
    ///
    /// # Errors
    /// [`MapError::Gone`]; [`Error::UnknownWorker`] if that worker has no part. The iterator ends
    /// after an error, which is one of all [operations on keys](Self#errors).
    pub fn stream(&self, of: WorkerId) -> Result<impl Iterator<Item = Result<(K, V)>> + use<'w, K, V>> {
        let (me, parts) = (self.me, self.map.parts);
        if !self.owners()?.contains(&of) {
            return Err(Error::UnknownWorker { worker: of, count: me.worker_count() });
        }
        let ask = move |last: Option<u64>| {
            let block =
                |there: &Worker, (parts, last)| at(there, parts, |entries: &mut StdMap<K, V>| block(entries, last));
            me.call_return(of, (parts, last), block).map_err(Error::from)
        };
        let (mut items, mut next) = (Vec::new().into_iter(), Some(ask(None)));
        Ok(std::iter::from_fn(move || {
            if let Some(item) = items.next() {
                return Some(Ok(item));
            }
            let arrived = next.take()?.and_then(farside::Pending::wait);
            match arrived.and_then(|block| block.ok_or_else(|| MapError::Gone.into())) {
                Err(error) => Some(Err(error)),
                Ok((block, last)) => {
                    next = last.map(|last| ask(Some(last)));
                    items = block.into_iter();
                    items.next().map(Ok)
                }
            }
        }))
    }

    /// Runs `work` with each entry of the map, at this worker, and returns their number, as
    /// [`Map::for_all`](super::Map::for_all) does. Not a collective. The entries of lost processes
    /// are left out, and named.
    ///
    /// ```
    /// # use farside_containers::map::WireMap;
    /// # farside::simulate(3, 1, 1, |me| {
    /// let map = WireMap::<String, u64>::new(me)?;
    /// let m = map.on(me);
    /// m.upsert("visits".into(), 1, |all, one| *all += one)?;
    /// me.barrier()?;
    /// assert_eq!(m.for_all(|name, visits| assert_eq!((&*name, visits), ("visits", 3)))?, 1);
    /// # me.barrier()?;
    /// # map.free(me)
    /// # }).unwrap();
    /// ```
    ///
    /// *Cost*: that of [`stream`](Self::stream), for all parts in turn.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost, after all other entries.
    /// [`MapError::Gone`]; a call of an owner fails.
    pub fn for_all(&self, work: impl FnMut(K, V)) -> Result<u64> {
        for_all(self.me, self.owners()?, |owner| self.stream(owner), work)
    }

    /// Keeps the entries for which `keep` returns true. Each worker passes a function for its own
    /// part. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; a process is lost, or the job's deadline has passed
    /// ([`Worker::barrier`]).
    ///
    /// # Panics
    /// If `keep` uses the map.
    pub fn retain(&self, keep: impl FnMut(&K, &mut V) -> bool) -> Result<()> {
        self.between_barriers(|entries| entries.retain(keep))
    }

    /// Removes all entries. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; a process is lost, or the job's deadline has passed
    /// ([`Worker::barrier`]).
    pub fn clear(&self) -> Result<()> {
        self.between_barriers(StdMap::clear)
    }

    /// Removes all entries, and returns those of this worker's part. All workers call this, in the
    /// same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; a process is lost, or the job's deadline has passed
    /// ([`Worker::barrier`]).
    pub fn drain(&self) -> Result<Vec<(K, V)>> {
        self.between_barriers(|entries| entries.drain().collect())
    }

    /// Returns the worker to which a key belongs.
    pub fn owner_of(&self, key: &K) -> WorkerId {
        let mut bytes = std::mem::take(&mut *self.part.key_bytes.borrow_mut());
        bytes.clear();
        let bytes = wire::encode(key, bytes);
        let hash = (self.part.placement)(&bytes);
        *self.part.key_bytes.borrow_mut() = bytes;
        self.part.owners[Spot::new(hash, self.part.owners.len()).owner]
    }

    /// Returns the workers that have parts. Fails if this worker has none.
    fn owners(&self) -> Result<&[WorkerId]> {
        self.part.with(|_| &*self.part.owners)
    }

    /// Runs a function at the owner of a key.
    fn ask<A: Wire, R: Wire>(&self, key: K, arguments: A, run: AtOwner<K, V, A, R>) -> Result<R> {
        self.part.with(|_| ())?;
        let asked = self.me.call_return(self.owner_of(&key), (self.map.parts, key, arguments), run);
        asked.map_err(Error::from)?.wait()?.ok_or_else(|| MapError::Gone.into())
    }

    fn between_barriers<R>(&self, work: impl FnOnce(&mut StdMap<K, V>) -> R) -> Result<R> {
        self.me.barrier()?;
        let result = self.part.with(work)?;
        self.me.barrier()?;
        Ok(result)
    }
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> Batched for CallMap<'_, K, V> {
    type Key = K;
    type Value = V;

    fn desk(&self) -> Desk<'_, K, V> {
        (self.me, self.map.channels, &self.part.ledger)
    }

    fn pass(&self, key: K, push: impl FnOnce(WorkerId, K) -> Result<()>) -> Result<()> {
        push(self.owner_of(&key), key)
    }

    fn meet_all(&self) -> Result<Vec<(u64, String)>> {
        exchange(self.me, self.part.ledger.refused.take())
    }

    fn whom_to_ask(&self, key: &K) -> Result<Option<WorkerId>> {
        Ok(Some(self.owner_of(key)))
    }

    fn find_one(&self, key: &K) -> Result<Option<V>> {
        self.get(key)
    }
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> HasPhases for CallMap<'_, K, V> {
    fn begin_phase(&self, _: Promise) -> Result<Self> {
        self.me.barrier()?;
        Ok(Self { part: self.part.clone(), ..*self })
    }

    fn end_phase(&self, promise: Promise) -> Result<()> {
        if promise == Promise::INSERT_ONLY { finish(self) } else { self.me.barrier() }
    }
}

phases_of_maps!(CallMap, [Wire + Eq + Hash + Clone], [Wire + Clone]);

impl<K: 'static, V: 'static> Clone for WireMap<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: 'static, V: 'static> Copy for WireMap<K, V> {}

impl<K: 'static, V: 'static> fmt::Debug for WireMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireMap").finish_non_exhaustive()
    }
}

impl<K: 'static, V: 'static> fmt::Debug for CallMap<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMap").finish_non_exhaustive()
    }
}
