//! [`Exposed`]: the memory that the peer may access; [`Shares`]: the memory that it maps.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker as Task;

use super::status_of;
use crate::allocated::Allocated;
use crate::area::{Area, Refusal};
use crate::lock::lock;
use crate::path::Path;
use crate::path::shm::SHARED_MAX;
use crate::table::{Table, index};

/// The memory that the peer may access and the operations that it ends, by number.
///
/// An entry of memory has the path's mark exactly as long as it is in the table, so a peer that
/// finds the mark behind a direct read has read memory that was exposed.
#[derive(Debug, Default)]
pub(super) struct Exposed {
    table: Mutex<Table<Entry>>,
    /// The number of entries, roughly.
    count: AtomicUsize,
}

/// Memory that the peer may access, or an operation that it ends, or both.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) area: Option<Arc<Area>>,
    /// The path's mark that stands for it.
    pub(super) mark: Option<usize>,
    /// The bytes that have yet to arrive, for the target of a `Fetch`.
    pub(super) missing_bytes: u64,
    /// The waiting thread is woken when no more than this many are missing.
    pub(super) wake_bytes: u64,
    /// The end of the operation: 0 is success.
    pub(super) ended: Option<u8>,
    /// The task that waits for the operation.
    pub(super) task: Option<Task>,
    /// True if it is memory in a result, which the peer has until it releases it or the link ends.
    pub(super) is_in_result: bool,
    /// True if it is memory of an argument, which comes back when the peer releases it.
    pub(super) is_argument: bool,
}

impl Exposed {
    /// The number of entries, roughly.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds an operation.
    pub(super) fn begin(&self, entry: Entry) -> u64 {
        let mut table = self.table();
        let number = table.insert(entry);
        self.count.store(table.len(), Ordering::Relaxed);
        number
    }

    /// Adds memory. Returns its number, and whether the peer may read it directly.
    pub(super) fn add(&self, path: &dyn Path, entry: Entry) -> (u64, bool) {
        let mut table = self.table();
        let number = table.insert(entry);
        self.count.store(table.len(), Ordering::Relaxed);
        let is_marked = path.direct().is_some_and(|direct| direct.set_mark(index(number), number));
        if let Some(entry) = table.get(number) {
            entry.mark = is_marked.then_some(index(number));
        }
        (number, is_marked)
    }

    /// Removes an entry. Returns its memory.
    pub(super) fn remove(&self, path: &dyn Path, number: u64) -> Option<Arc<Area>> {
        let mut table = self.table();
        let entry = table.remove(number)?;
        self.count.store(table.len(), Ordering::Relaxed);
        clear_mark(path, &entry);
        entry.area
    }

    /// Removes all entries, and ends the access to their memory.
    pub(super) fn revoke_all(&self, path: &dyn Path) {
        for entry in self.table().drain() {
            // The memory may be free after this.
            clear_mark(path, &entry);
            if let Some(area) = entry.area {
                area.revoke();
            }
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table<Entry>> {
        lock(&self.table)
    }

    /// Looks at an entry.
    pub(super) fn with<T>(&self, number: u64, look: impl FnOnce(&mut Entry) -> Option<T>) -> Option<T> {
        self.table().get(number).and_then(look)
    }

    pub(super) fn area(&self, number: u64) -> Result<Arc<Area>, Refusal> {
        self.with(number, |entry| entry.area.clone()).ok_or(Refusal::Gone)
    }

    /// Notes that bytes for an operation have arrived, or were refused. Returns `None` if nothing
    /// has to be woken for that, and otherwise the task that waits, if one does.
    pub(super) fn arrived(&self, number: u64, bytes: u64, done: Result<(), Refusal>) -> Option<Option<Task>> {
        self.with(number, |entry| {
            match done {
                Ok(()) => {
                    entry.missing_bytes = entry.missing_bytes.saturating_sub(bytes);
                    if entry.missing_bytes == 0 {
                        entry.ended.get_or_insert(0);
                    } else if entry.missing_bytes > entry.wake_bytes {
                        return None;
                    }
                }
                Err(refusal) => entry.ended = Some(status_of(refusal)),
            }
            Some(entry.task.take())
        })
    }

    /// Notes the end of an operation. Returns the task that waits.
    pub(super) fn ended(&self, number: u64, status: u8) -> Option<Task> {
        self.with(number, |entry| {
            entry.ended = Some(status);
            entry.task.take()
        })
    }
}

fn clear_mark(path: &dyn Path, entry: &Entry) {
    if let (Some(direct), Some(mark)) = (path.direct(), entry.mark) {
        direct.clear_mark(mark);
    }
}

/// Memory of this side that the peer maps. A number is used once.
#[derive(Debug, Default)]
pub(super) struct Shares {
    known: Vec<(Weak<Allocated>, u64)>,
    last_number: u64,
}

impl Shares {
    /// The number of memory that the peer has, or gets by `share`: `None` if that is refused. The
    /// second part is true if the peer gets it now.
    pub(super) fn number(&mut self, memory: &Arc<Allocated>, share: impl FnOnce(u64) -> bool) -> Option<(u64, bool)> {
        // The address of memory that is gone is not used again while it is listed.
        if let Some((_, number)) = self.known.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(memory)) {
            return Some((*number, false));
        }
        let number = self.last_number + 1;
        if self.known.len() >= SHARED_MAX || !share(number) {
            return None;
        }
        self.last_number = number;
        self.known.push((Arc::downgrade(memory), number));
        Some((number, true))
    }

    pub(super) fn forget(&mut self, number: u64) {
        self.known.retain(|(_, known)| *known != number);
    }
}
