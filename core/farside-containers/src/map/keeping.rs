//! Snapshots of maps.

use std::hash::Hash;
use std::path::Path;

use farside::{Result, Wire, Worker};

use super::operations::Map;
use super::slot::Slot;
use super::wire_map::CallMap;
use crate::keep;

/// Saves entries. An error goes the way of an entry, so that all workers learn of it.
fn save_entries<T: Wire>(
    me: &Worker,
    path: &Path,
    entries: Result<impl IntoIterator<Item = Result<T>>>,
) -> Result<u64> {
    let (entries, error) = match entries {
        Ok(entries) => (Some(entries), None),
        Err(error) => (None, Some(Err(error))),
    };
    keep::save(me, path, error.into_iter().chain(entries.into_iter().flatten()))
}

impl<K: Wire + Eq + Hash + Clone, V: Wire + Clone> CallMap<'_, K, V> {
    /// Writes all entries to files at `path`: [`Map::snapshot`].
    ///
    /// # Errors
    /// [`MapError::Gone`](super::MapError::Gone), or the files cannot be written ([`keep::save`]).
    pub fn snapshot(&self, path: &Path) -> Result<u64> {
        self.me.barrier()?;
        save_entries(self.me, path, self.local())
    }

    /// Inserts the entries that [`snapshot`](Self::snapshot) has written: [`Map::restore`].
    ///
    /// *Cost*: a call and its answer for each entry.
    ///
    /// # Errors
    /// The files cannot be read ([`keep::restore`]), or an entry cannot be inserted
    /// ([`insert`](Self::insert)). After an error, some of the entries
    /// may be inserted.
    pub fn restore(&self, path: &Path) -> Result<u64> {
        let restored = keep::restore(self.me, path, |(key, value)| self.insert(key, value).map(drop))?;
        self.me.all_reduce(restored, |one, other| one + other)
    }
}

impl<K: Slot, V: Slot> Map<'_, K, V> {
    /// Writes all entries to files at `path`, and returns their number. All workers call this, in
    /// the same order as other collectives, and change nothing meanwhile.
    ///
    /// # Errors
    /// The entries cannot be read ([`local`](Self::local)), or the files cannot be written
    /// ([`keep::save`]).
    pub fn snapshot(&self, path: &Path) -> Result<u64> {
        self.core.me.barrier()?;
        save_entries(self.core.me, path, self.local())
    }

    /// Inserts the entries that [`snapshot`](Self::snapshot) has written, in a job with any number
    /// of workers, and returns their number. All workers call this, in the same order as other
    /// collectives.
    ///
    /// # Errors
    /// The files cannot be read ([`keep::restore`]), or entries cannot be inserted
    /// ([`Batch::finish`](super::Batch::finish)). After an error, some of the entries may be
    /// inserted.
    pub fn restore(&self, path: &Path) -> Result<u64> {
        let me = self.core.me;
        let batch = self.batch()?;
        let restored = keep::restore(me, path, |(key, value)| batch.insert(key, value))?;
        batch.finish()?;
        me.all_reduce(restored, |one, other| one + other)
    }
}
