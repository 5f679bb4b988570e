//! [`WireMap`]: a map of keys and values that are not plain bytes.

use std::cell::RefCell;
use std::collections::HashMap as StdMap;
use std::fmt;
use std::hash::Hash;
use std::rc::Rc;

use farside::{Error, Function, Losses, PerWorker, Result, Wire, Worker, WorkerId, wire};

use super::MapError;
use super::batch::{add_refused, but_for_dropped, check_refused};
use super::operations::{Inserted, caught, count_all, for_all};
use super::slot::{Spot, placement_hash};
use crate::agreement::{exchange, with_held};
use crate::collections::behind;
use crate::exchange::{Exchange, Sender};

/// The part of each worker, until the map is freed.
type Parts<K, V> = PerWorker<RefCell<Option<Part<K, V>>>>;

struct Part<K, V> {
    entries: StdMap<K, V>,
    /// The workers that made the map. Each has a part.
    owners: Rc<[WorkerId]>,
    /// The operations of batches that were refused here, and the first reason.
    refused: (u64, String),
}

/// An insertion of a batch, or a change of the value that is there.
type Item<K, V> = (K, V, Option<Function<V, V, ()>>);

/// A function that runs at the owner of a key. Returns `None` if the map is not there.
type AtOwner<K, V, A, R> = fn(&Worker, (Parts<K, V>, K, A)) -> Option<R>;

/// Entries, and the hash of the last.
type Block<K, V> = (Vec<(K, V)>, Option<u64>);

/// The bytes of entries that an owner sends at a time.
const BLOCK_BYTES: usize = 16 << 10;
/// The number of keys that `get_many` asks for at a time.
const ROUND: usize = 64;

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
/// [`HashMap`](super::HashMap) copies the bytes of its entries one-sidedly, so its types must be
/// [`Slot`](super::Slot). Rust cannot give one type methods for these types, and others of the same
/// names for all types. So this is a type of its own. Its methods have the same names, and its keys
/// are placed by the same [hash](super::placement_hash), of the bytes with which they travel.
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
    batches: Exchange<Item<K, V>>,
}

/// A [`WireMap`] on one worker.
pub struct CallMap<'w, K: 'static, V: 'static> {
    pub(super) me: &'w Worker,
    parts: Parts<K, V>,
    batches: Exchange<Item<K, V>>,
}

/// Operations on a [`WireMap`] that travel to the owners of their keys in batches.
///
/// ```
/// use farside_containers::map::WireMap;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let map = WireMap::<String, u64>::new(me)?;
/// let m = map.on(me);
/// let batch = m.batch()?;
/// for word in "so it goes and it goes on".split(' ') {
///     batch.upsert(word.into(), 1, |count, by| *count += by)?;
/// }
/// batch.finish()?;
/// assert_eq!(m.get(&"goes".into())?, Some(2 * u64::from(me.worker_count())));
/// # map.free(me)
/// # }).unwrap();
/// ```
///
/// *Order*: none between the operations of batches. *Cost*: that of an item of an [`Exchange`], and
/// of the operation at the owner.
#[must_use = "the operations are done when `finish` returns"]
pub struct CallBatch<'m, 'w, K: 'static, V: 'static> {
    map: &'m CallMap<'w, K, V>,
    sender: Sender<'w, Item<K, V>>,
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> CallBatch<'_, '_, K, V> {
    /// Inserts a value, some time before [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// Those of [`Sender::push`].
    pub fn insert(&self, key: K, value: V) -> Result<()> {
        self.sender.push(self.map.owner_of(&key), (key, value, None))
    }

    /// Inserts a value if the key is not there, and otherwise changes the value that is there, as
    /// [`CallMap::upsert`] does, some time before [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// Those of [`Sender::push`]; [`Error::ForeignFunction`].
    pub fn upsert(&self, key: K, value: V, by: fn(&mut V, V)) -> Result<()> {
        let by = Function::new(self.map.me, by)?;
        self.sender.push(self.map.owner_of(&key), (key, value, Some(by)))
    }

    /// Inserts many values.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn extend(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Waits until the operations of all workers are done, also those of other batches. All workers
    /// call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Batch`] on every worker, if any function has panicked, or if the owner of a key
    /// is lost and the workers [go on](farside::Losses::go_on) without it. Those of
    /// [`Worker::quiesce`].
    pub fn finish(self) -> Result<()> {
        let me = self.map.me;
        // A worker that fails goes on to the collectives, where the others wait.
        let sent = but_for_dropped(me, self.sender.flush()).and(me.quiesce());
        let own =
            with_held(self.map.parts, me, || None, |part| part.as_mut().map(|part| std::mem::take(&mut part.refused)));
        let mut own = own.unwrap_or_default();
        add_refused(&mut own, self.sender.take_dropped());
        let refused = exchange(me, own);
        sent?;
        check_refused(refused?)
    }
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> WireMap<K, V> {
    /// Makes a map. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`].
    pub fn new(me: &Worker) -> Result<Self> {
        let part = Part { entries: StdMap::new(), owners: me.remaining_workers().into(), refused: (0, String::new()) };
        let parts: Parts<K, V> = PerWorker::new(me, RefCell::new(Some(part)))?;
        let batches = Exchange::new(me, move |me, items| {
            items.for_each(|(key, value, by)| {
                let done = match by {
                    None => {
                        at(me, parts, |entries| entries.insert(key, value));
                        Ok(())
                    }
                    Some(by) => caught(me, || {
                        at(me, parts, |entries| upsert(me, entries, key, value, by));
                        Ok(())
                    }),
                };
                if let Err(error) = done {
                    parts.with(me, |part| part.as_mut().map(|part| part.refuse(&error)));
                }
            });
        })?;
        Ok(Self { parts, batches })
    }

    /// Returns what this worker works with.
    pub fn on(self, me: &Worker) -> CallMap<'_, K, V> {
        CallMap { me, parts: self.parts, batches: self.batches }
    }

    /// Drops all entries. All workers call this, in the same order as other collectives, after the
    /// last operation. Later operations return [`MapError::Gone`].
    ///
    /// # Errors
    /// [`MapError::Gone`]; those of [`Worker::quiesce`].
    pub fn free(self, me: &Worker) -> Result<()> {
        self.on(me).here(|_| ())?;
        // Both, so that no worker leaves the others waiting.
        self.batches.free(me).and(self.parts.free(me))
    }
}

/// Runs `work` with the part of this worker, if it has one.
fn at<K: 'static, V: 'static, R>(
    me: &Worker,
    parts: Parts<K, V>,
    work: impl FnOnce(&mut StdMap<K, V>) -> R,
) -> Option<R> {
    with_held(parts, me, || None, |part| part.as_mut().map(|part| work(&mut part.entries)))
}

impl<K, V> Part<K, V> {
    fn refuse(&mut self, error: &Error) {
        add_refused(&mut self.refused, (1, error.to_string()));
    }
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
fn upsert<K: Eq + Hash, V: Clone>(me: &Worker, entries: &mut StdMap<K, V>, key: K, new: V, by: Function<V, V, ()>) {
    match entries.get_mut(&key) {
        Some(value) => change(me, value, new, by),
        None => drop(entries.insert(key, new)),
    }
}

/// Changes a value. It stays as it was if the function panics.
fn change<V: Clone, A, R>(me: &Worker, value: &mut V, with: A, by: Function<V, A, R>) -> R {
    let mut changed = value.clone();
    let answer = by.run(me, &mut changed, with);
    *value = changed;
    answer
}

/// # Errors
/// For all methods that take a key: [`Error::PeerLost`] if its owner is lost; [`MapError::Gone`];
/// [`Error::InHandler`] in a handler; others of [`To::call_return`](farside::To::call_return).
impl<'w, K: Wire + Eq + Hash + Clone, V: Wire + Clone> CallMap<'w, K, V> {
    /// Inserts a value. A value that is there is replaced.
    ///
    /// # Errors
    /// Those of all [operations on keys](Self#errors).
    pub fn insert(&self, key: K, value: V) -> Result<Inserted> {
        self.ask(key, value, |there, (parts, key, value)| {
            at(there, parts, |entries| entries.insert(key, value).map_or(Inserted::New, |_| Inserted::Replaced))
        })
    }

    /// Inserts a value if the key is not there. Otherwise the inner result is the value that is
    /// there.
    ///
    /// # Errors
    /// Those of all [operations on keys](Self#errors).
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
    /// Those of all [operations on keys](Self#errors).
    pub fn get_or_insert(&self, key: K, value: V) -> Result<V> {
        self.ask(key, value, |there, (parts, key, value)| {
            at(there, parts, |entries| entries.entry(key).or_insert(value).clone())
        })
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Those of all [operations on keys](Self#errors).
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.ask(key.clone(), (), |there, (parts, key, ())| at(there, parts, |entries| entries.get(&key).cloned()))
    }

    /// Returns the values of many keys, in the order of the keys. Asks for 64 at a time.
    ///
    /// # Errors
    /// Those of all [operations on keys](Self#errors).
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let owners = self.owners()?;
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(ROUND) {
            let asked = keys.iter().map(|key| {
                let run = |there: &Worker, (parts, key): (Parts<K, V>, K)| {
                    at(there, parts, |entries| entries.get(&key).cloned())
                };
                self.me.call_return(Self::place(&owners, key), (self.parts, key.clone()), run).map_err(Error::from)
            });
            for asked in asked.collect::<Result<Vec<_>>>()? {
                values.push(asked.wait()?.ok_or(MapError::Gone)?);
            }
        }
        Ok(values)
    }

    /// Returns whether a key is there.
    ///
    /// # Errors
    /// Those of all [operations on keys](Self#errors).
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.ask(key.clone(), (), |there, (parts, key, ())| at(there, parts, |entries| entries.contains_key(&key)))
    }

    /// Removes a key, and returns its value.
    ///
    /// # Errors
    /// Those of all [operations on keys](Self#errors).
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        self.ask(key.clone(), (), |there, (parts, key, ())| at(there, parts, |entries| entries.remove(&key)))
    }

    /// Changes the value of a key, and returns what `by` returns. Returns `None` if the key is not
    /// there. `by` captures nothing and runs at the owner, as a handler. If it panics, the entry
    /// stays as it was.
    ///
    /// # Errors
    /// [`Error::RemotePanic`], and those of all [operations on keys](Self#errors).
    pub fn modify<A: Wire, R: Wire>(&self, key: &K, with: A, by: fn(&mut V, A) -> R) -> Result<Option<R>> {
        self.ask(key.clone(), (Function::new(self.me, by)?, with), |there, (parts, key, (by, with))| {
            at(there, parts, |entries| entries.get_mut(&key).map(|value| change(there, value, with, by)))
        })
    }

    /// Inserts a value if the key is not there. Otherwise changes the value that is there, as
    /// [`modify`](Self::modify) does.
    ///
    /// # Errors
    /// Those of [`modify`](Self::modify).
    pub fn upsert(&self, key: K, value: V, by: fn(&mut V, V)) -> Result<()> {
        self.ask(key, (Function::new(self.me, by)?, value), |there, (parts, key, (by, new))| {
            at(there, parts, |entries| upsert(there, entries, key, new, by))
        })
    }

    /// Returns a batch of insertions and changes.
    ///
    /// # Errors
    /// [`MapError::Gone`].
    pub fn batch(&self) -> Result<CallBatch<'_, '_, K, V>> {
        self.here(|_| ())?;
        Ok(CallBatch { map: self, sender: self.batches.on(self.me) })
    }

    /// Returns the number of entries.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost. [`MapError::Gone`]; those of
    /// [`To::call_return`](farside::To::call_return).
    pub fn len(&self) -> Result<u64> {
        count_all(self.me, &self.owners()?, |worker| {
            let count = |there: &Worker, parts| at(there, parts, |entries: &mut StdMap<K, V>| entries.len() as u64);
            let asked = self.me.call_return(worker, self.parts, count).map_err(Error::from)?;
            asked.wait()?.ok_or_else(|| MapError::Gone.into())
        })
    }

    /// Returns whether there is no entry.
    ///
    /// # Errors
    /// Those of [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|entries| entries == 0)
    }

    /// Returns copies of the entries of this worker's part.
    ///
    /// # Errors
    /// [`MapError::Gone`].
    pub fn local(&self) -> Result<impl Iterator<Item = Result<(K, V)>> + use<K, V>> {
        Ok(self.here(|entries| entries.clone())?.into_iter().map(Ok))
    }

    /// Returns an iterator over copies of the entries of this worker's part, as they are now. For
    /// those of all workers use it with [`DistIterator`](crate::DistIterator).
    ///
    /// *Cost*: a copy of the part.
    ///
    /// # Errors
    /// [`MapError::Gone`].
    pub fn iter(&self) -> Result<impl Iterator<Item = (K, V)> + use<K, V>> {
        Ok(self.here(|entries| entries.clone())?.into_iter())
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
        let (me, parts) = (self.me, self.parts);
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
    /// [`MapError::Partial`] names the processes that are lost, after all other entries. Those of
    /// [`stream`](Self::stream) and of its iterator.
    pub fn for_all(&self, work: impl FnMut(K, V)) -> Result<u64> {
        for_all(self.me, &self.owners()?, |owner| self.stream(owner), work)
    }

    /// Keeps the entries for which `keep` returns true. Each worker passes a function for its own
    /// part. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; those of [`Worker::barrier`].
    ///
    /// # Panics
    /// If `keep` uses the map.
    pub fn retain(&self, keep: impl FnMut(&K, &mut V) -> bool) -> Result<()> {
        self.between_barriers(|entries| entries.retain(keep))
    }

    /// Removes all entries. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; those of [`Worker::barrier`].
    pub fn clear(&self) -> Result<()> {
        self.between_barriers(StdMap::clear)
    }

    /// Removes all entries, and returns those of this worker's part. All workers call this, in the
    /// same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Gone`]; those of [`Worker::barrier`].
    pub fn drain(&self) -> Result<Vec<(K, V)>> {
        self.between_barriers(|entries| entries.drain().collect())
    }

    /// Returns the worker to which a key belongs.
    pub fn owner_of(&self, key: &K) -> WorkerId {
        let owners = self.owners().unwrap_or_else(|_| self.me.workers().collect());
        Self::place(&owners, key)
    }

    fn place(owners: &[WorkerId], key: &K) -> WorkerId {
        let hash = placement_hash(&wire::encode(key, Vec::new()));
        owners[Spot::new(hash, owners.len()).owner]
    }

    /// Returns the workers that have parts. Fails if this worker has none.
    fn owners(&self) -> Result<Rc<[WorkerId]>> {
        let owners = |part: &mut Option<Part<K, V>>| part.as_ref().map(|part| part.owners.clone());
        with_held(self.parts, self.me, || None, owners).ok_or_else(|| MapError::Gone.into())
    }

    /// Runs a function at the owner of a key.
    fn ask<A: Wire, R: Wire>(&self, key: K, arguments: A, run: AtOwner<K, V, A, R>) -> Result<R> {
        let owner = Self::place(&self.owners()?, &key);
        let asked = self.me.call_return(owner, (self.parts, key, arguments), run);
        asked.map_err(Error::from)?.wait()?.ok_or_else(|| MapError::Gone.into())
    }

    /// Uses the part of this worker. Fails once this worker has freed the map, even if others have
    /// not yet done so.
    fn here<R>(&self, work: impl FnOnce(&mut StdMap<K, V>) -> R) -> Result<R> {
        at(self.me, self.parts, work).ok_or_else(|| MapError::Gone.into())
    }

    fn between_barriers<R>(&self, work: impl FnOnce(&mut StdMap<K, V>) -> R) -> Result<R> {
        self.me.barrier()?;
        let result = self.here(work)?;
        self.me.barrier()?;
        Ok(result)
    }
}

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

impl<K: 'static, V: 'static> fmt::Debug for CallBatch<'_, '_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBatch").field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl<K: 'static, V: 'static> fmt::Debug for CallMap<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMap").finish_non_exhaustive()
    }
}
