//! Phases: promises that the compiler keeps.

use farside::Result;

use super::batch::Batch;
use super::operations::{Inserted, Map};
use super::slot::Slot;
use crate::promise::Promise;

/// A phase in which all workers only insert. It has no `get`.
///
/// ```compile_fail,E0599
/// # farside::simulate(1, 1, 1, |me| {
/// let map = farside_containers::map::HashMap::<u64, u64>::new(me, 10)?;
/// let m = map.on(me);
/// let phase = m.inserting()?;
/// phase.get(&1)?;
/// # phase.end()
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Inserting<'w, K: 'static, V: 'static>(Map<'w, K, V>);

/// A phase in which all workers only find. It has no `insert`.
///
/// ```compile_fail,E0599
/// # farside::simulate(1, 1, 1, |me| {
/// let map = farside_containers::map::HashMap::<u64, u64>::new(me, 10)?;
/// let m = map.on(me);
/// let phase = m.finding()?;
/// phase.insert(1, 1)?;
/// # phase.end()
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Finding<'w, K: 'static, V: 'static>(Map<'w, K, V>);

impl<'w, K: Slot, V: Slot> Map<'w, K, V> {
    /// Begins a phase under [`Promise::INSERT_ONLY`]. All workers call this, in the same order as
    /// other collectives.
    ///
    /// ```
    /// # use farside_containers::map::HashMap;
    /// # farside::simulate(2, 1, 1, |me| {
    /// let map = HashMap::<u64, u64>::new(me, 100)?;
    /// let m = map.on(me);
    /// let phase = m.inserting()?;
    /// phase.insert(u64::from(me.id().number()), 1)?;
    /// phase.end()?;
    /// let phase = m.finding()?;
    /// assert_eq!(phase.get(&0)?, Some(1));
    /// phase.end()
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`Worker::gather`](farside::Worker::gather).
    pub fn inserting(&self) -> Result<Inserting<'w, K, V>> {
        self.core.meet(())?;
        Ok(Inserting(self.promising(Promise::INSERT_ONLY)))
    }

    /// Begins a phase under [`Promise::FIND_ONLY`]. All workers call this, in the same order as
    /// other collectives.
    ///
    /// # Errors
    /// Those of [`Worker::gather`](farside::Worker::gather).
    pub fn finding(&self) -> Result<Finding<'w, K, V>> {
        self.core.meet(())?;
        Ok(Finding(self.promising(Promise::FIND_ONLY)))
    }
}

/// The methods are those of [`Map`], with the same errors.
impl<'w, K: Slot, V: Slot> Inserting<'w, K, V> {
    /// As [`Map::insert`].
    ///
    /// # Errors
    /// Those of all [operations on keys](Map#errors).
    #[inline]
    #[track_caller]
    pub fn insert(&self, key: K, value: V) -> Result<Inserted> {
        self.0.insert(key, value)
    }

    /// As [`Map::upsert`].
    ///
    /// # Errors
    /// Those of [`Map::upsert`].
    #[track_caller]
    pub fn upsert(&self, key: K, value: V, change: fn(&mut V, V)) -> Result<()> {
        self.0.upsert(key, value, change)
    }

    /// As [`Map::batch`]. The [end](Self::end) of the phase finishes it.
    ///
    /// ```
    /// # use farside_containers::map::HashMap;
    /// # farside::simulate(2, 1, 1, |me| {
    /// # let map = HashMap::<u64, u64>::new(me, 100)?;
    /// # let m = map.on(me);
    /// let phase = m.inserting()?;
    /// phase.batch()?.extend((0..10).map(|key| (key, 2 * key)))?;
    /// phase.end()?;
    /// assert_eq!(m.get(&9)?, Some(18));
    /// # me.barrier()
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`Map::batch`].
    pub fn batch(&self) -> Result<Batch<'_, 'w, K, V>> {
        self.0.batch()
    }

    /// Ends the phase, and finishes its batches. All workers call this, in the same order as other
    /// collectives.
    ///
    /// # Errors
    /// Those of [`Batch::finish`].
    pub fn end(self) -> Result<()> {
        self.0.finish_batches()
    }
}

/// The methods are those of [`Map`], with the same errors.
impl<K: Slot, V: Slot> Finding<'_, K, V> {
    /// As [`Map::get`].
    ///
    /// # Errors
    /// Those of all [operations on keys](Map#errors).
    #[inline]
    #[track_caller]
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.0.get(key)
    }

    /// As [`Map::contains_key`].
    ///
    /// # Errors
    /// Those of all [operations on keys](Map#errors).
    #[inline]
    #[track_caller]
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.0.contains_key(key)
    }

    /// As [`Map::get_many`].
    ///
    /// # Errors
    /// Those of all [operations on keys](Map#errors).
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        self.0.get_many(keys)
    }

    /// Ends the phase. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`](farside::Worker::barrier).
    pub fn end(self) -> Result<()> {
        self.0.core.me.barrier()
    }
}
