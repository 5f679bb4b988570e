//! [`Group`]: writers that share transactions.

use std::sync::{Arc, Mutex};

use crate::error::KvError;
use crate::index::{Change, Index};
use crate::lock;
use crate::service::Stat;

/// The facts about the key's earlier value.
type Done = Result<Option<Stat>, KvError>;
/// Where a writer finds it.
type Slot = Arc<Mutex<Option<Done>>>;

/// The changes that wait for a transaction.
///
/// A transaction costs a `fsync`. While one runs, the changes of further writers gather. The next
/// writer that may lead commits all of them at once. So N writers at once wait for two
/// transactions, not for N.
#[derive(Debug, Default)]
pub(crate) struct Group {
    waiting: Mutex<Vec<(Change, Slot)>>,
    /// Held by the writer that commits.
    leading: Mutex<()>,
    /// Number of transactions.
    #[cfg(test)]
    transactions: std::sync::atomic::AtomicU32,
}

impl Group {
    /// Makes a change, with those of other writers. Returns what was known of the key before.
    pub(crate) fn commit(&self, index: &Index, change: Change, next_version: impl Fn() -> u64) -> Done {
        let done = Slot::default();
        lock(&self.waiting).push((change, done.clone()));
        let leading = lock(&self.leading);
        // Another writer may have led while this one waited.
        if let Some(done) = lock(&done).take() {
            return done;
        }
        let (changes, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut *lock(&self.waiting)).into_iter().unzip();
        #[cfg(test)]
        self.transactions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match index.apply(&changes, next_version()) {
            Ok(before) => waiting.iter().zip(before).for_each(|(done, before)| *lock(done) = Some(Ok(before))),
            Err(error) => waiting.iter().for_each(|done| *lock(done) = Some(Err(error.clone()))),
        }
        drop(leading);
        let lost = || Err(KvError::Io { doing: "its index".into(), cause: "the committing thread panicked".into() });
        lock(&done).take().unwrap_or_else(lost)
    }
}

#[cfg(test)]
mod tests {
    use farside_testbed::wait_until;

    use super::*;

    #[test]
    fn writers_that_wait_share_a_transaction() {
        let (group, index) = (Group::default(), Index::memory());
        let stat = |version| Stat { version, bytes: 0, modified_us: 0, crc32: 0 };
        let put = |version: u64| Change::Put { key: "key".into(), stat: stat(version), body: Vec::new() };
        assert_eq!(group.commit(&index, put(0), || 10), Ok(None));
        let mut before = std::thread::scope(|threads| {
            let leading = lock(&group.leading);
            let (group, index) = (&group, &index);
            let writers: Vec<_> =
                (1..6).map(|version| threads.spawn(move || group.commit(index, put(version), || 10))).collect();
            wait_until("the writers wait", || lock(&group.waiting).len() >= 5);
            drop(leading);
            writers.into_iter().map(|writer| writer.join().unwrap().unwrap().unwrap().version).collect::<Vec<_>>()
        });
        assert_eq!(group.transactions.into_inner(), 2);
        // Each writer replaced another value, and the last one stays.
        before.push(index.stat("key").unwrap().version);
        before.sort_unstable();
        assert_eq!(before, [0, 1, 2, 3, 4, 5]);
    }
}
