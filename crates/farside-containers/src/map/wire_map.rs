//! [`WireMap`]: a map of keys and values that are not plain bytes.

use std::cell::RefCell;
use std::collections::HashMap as StdMap;
use std::fmt;
use std::hash::Hash;

use farside::{Error, Function, PerWorker, Result, Wire, Worker, WorkerId, wire};

use super::MapError;
use super::operations::{Inserted, count_all};
use super::slot::{Spot, placement_hash};
use crate::agreement::{held, with_held};

/// The part of each worker, until the map is freed.
type Parts<K, V> = PerWorker<RefCell<Option<StdMap<K, V>>>>;

/// A function that runs at the owner of a key. Returns `None` if the map was freed.
type AtOwner<K, V, A, R> = fn(&Worker, (Parts<K, V>, K, A)) -> Option<R>;

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
#[derive(Wire)]
pub struct WireMap<K: 'static, V: 'static> {
    parts: Parts<K, V>,
}

/// A [`WireMap`] on one worker.
pub struct CallMap<'w, K: 'static, V: 'static> {
    pub(super) me: &'w Worker,
    parts: Parts<K, V>,
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> WireMap<K, V> {
    /// Makes a map. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`].
    pub fn new(me: &Worker) -> Result<Self> {
        Ok(Self { parts: PerWorker::new(me, RefCell::new(Some(StdMap::new())))? })
    }

    /// Returns what this worker works with.
    ///
    /// # Panics
    /// If the map is of another job.
    #[track_caller]
    pub fn on(self, me: &Worker) -> CallMap<'_, K, V> {
        held(self.parts, me, RefCell::default);
        CallMap { me, parts: self.parts }
    }

    /// Drops all entries. All workers call this, in the same order as other collectives, after the
    /// last operation. Later operations return [`MapError::Freed`].
    ///
    /// # Errors
    /// [`MapError::Freed`]; those of [`Worker::quiesce`].
    pub fn free(self, me: &Worker) -> Result<()> {
        self.on(me).here(|_| ())?;
        self.parts.free(me)
    }
}

/// Runs `work` with the part of this worker, unless it was freed.
fn at<K: 'static, V: 'static, R>(
    me: &Worker,
    parts: Parts<K, V>,
    work: impl FnOnce(&mut StdMap<K, V>) -> R,
) -> Option<R> {
    with_held(parts, me, || None, |entries| entries.as_mut().map(work))
}

/// Changes a value. It stays as it was if the function panics.
fn change<V: Clone, A, R>(me: &Worker, value: &mut V, with: A, by: Function<V, A, R>) -> R {
    let mut changed = value.clone();
    let answer = by.run(me, &mut changed, with);
    *value = changed;
    answer
}

/// # Errors
/// For all methods that take a key: [`Error::PeerLost`] if its owner is lost; [`MapError::Freed`];
/// [`Error::InHandler`] in a handler; others of [`To::call_return`](farside::To::call_return).
impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> CallMap<'_, K, V> {
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
        self.here(|_| ())?;
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(ROUND) {
            let asked = keys.iter().map(|key| {
                let run = |there: &Worker, (parts, key): (Parts<K, V>, K)| {
                    at(there, parts, |entries| entries.get(&key).cloned())
                };
                self.me.call_return(self.owner_of(key), (self.parts, key.clone()), run).map_err(Error::from)
            });
            for asked in asked.collect::<Result<Vec<_>>>()? {
                values.push(asked.wait()?.ok_or(MapError::Freed)?);
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
            at(there, parts, |entries| match entries.get_mut(&key) {
                Some(value) => change(there, value, new, by),
                None => drop(entries.insert(key, new)),
            })
        })
    }

    /// Returns the number of entries.
    ///
    /// # Errors
    /// [`MapError::Partial`] names the processes that are lost. [`MapError::Freed`]; those of
    /// [`To::call_return`](farside::To::call_return).
    pub fn len(&self) -> Result<u64> {
        self.here(|_| ())?;
        count_all(self.me, |worker| {
            let count = |there: &Worker, parts| at(there, parts, |entries: &mut StdMap<K, V>| entries.len() as u64);
            let asked = self.me.call_return(worker, self.parts, count).map_err(Error::from)?;
            asked.wait()?.ok_or_else(|| MapError::Freed.into())
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
    /// [`MapError::Freed`].
    pub fn local(&self) -> Result<impl Iterator<Item = Result<(K, V)>> + use<K, V>> {
        Ok(self.here(|entries| entries.clone())?.into_iter().map(Ok))
    }

    /// Keeps the entries for which `keep` returns true. Each worker passes a function for its own
    /// part. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Freed`]; those of [`Worker::barrier`].
    ///
    /// # Panics
    /// If `keep` uses the map.
    pub fn retain(&self, keep: impl FnMut(&K, &mut V) -> bool) -> Result<()> {
        self.between_barriers(|entries| entries.retain(keep))
    }

    /// Removes all entries. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Freed`]; those of [`Worker::barrier`].
    pub fn clear(&self) -> Result<()> {
        self.between_barriers(StdMap::clear)
    }

    /// Removes all entries, and returns those of this worker's part. All workers call this, in the
    /// same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Freed`]; those of [`Worker::barrier`].
    pub fn drain(&self) -> Result<Vec<(K, V)>> {
        self.between_barriers(|entries| entries.drain().collect())
    }

    /// Returns the worker to which a key belongs.
    pub fn owner_of(&self, key: &K) -> WorkerId {
        let hash = placement_hash(&wire::encode(key, Vec::new()));
        WorkerId::new(Spot::new(hash, self.me.worker_count() as usize).owner as u32)
    }

    /// Runs a function at the owner of a key.
    fn ask<A: Wire, R: Wire>(&self, key: K, arguments: A, run: AtOwner<K, V, A, R>) -> Result<R> {
        self.here(|_| ())?;
        let asked = self.me.call_return(self.owner_of(&key), (self.parts, key, arguments), run);
        asked.map_err(Error::from)?.wait()?.ok_or_else(|| MapError::Freed.into())
    }

    /// Uses the part of this worker. Fails once this worker has freed the map, even if others have
    /// not yet done so.
    fn here<R>(&self, work: impl FnOnce(&mut StdMap<K, V>) -> R) -> Result<R> {
        at(self.me, self.parts, work).ok_or_else(|| MapError::Freed.into())
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

impl<K: 'static, V: 'static> fmt::Debug for CallMap<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMap").finish_non_exhaustive()
    }
}
