//! Snapshots of maps.

use std::path::Path;

use farside::Result;

use super::operations::Map;
use super::slot::Slot;
use crate::keep;

impl<K: Slot, V: Slot> Map<'_, K, V> {
    /// Writes all entries to files at `path`, and returns their number. All workers call this, in
    /// the same order as other collectives, and change nothing meanwhile.
    ///
    /// # Errors
    /// Those of [`local`](Self::local) and [`keep::save`].
    pub fn snapshot(&self, path: &Path) -> Result<u64> {
        self.core.me.barrier()?;
        // An error goes the way of an entry, so that all workers learn of it.
        let (entries, error) = match self.local() {
            Ok(entries) => (Some(entries), None),
            Err(error) => (None, Some(Err(error))),
        };
        keep::save(self.core.me, path, error.into_iter().chain(entries.into_iter().flatten()))
    }

    /// Inserts the entries that [`snapshot`](Self::snapshot) has written, in a job with any number
    /// of workers, and returns their number. All workers call this, in the same order as other
    /// collectives.
    ///
    /// # Errors
    /// Those of [`keep::restore`], [`batch`](Self::batch) and
    /// [`Batch::finish`](super::Batch::finish). After an error, some of the entries may be
    /// inserted.
    pub fn restore(&self, path: &Path) -> Result<u64> {
        let me = self.core.me;
        let batch = self.batch()?;
        let restored = keep::restore(me, path, |(key, value)| batch.insert(key, value))?;
        batch.finish()?;
        me.all_reduce(restored, |one, other| one + other)
    }
}
