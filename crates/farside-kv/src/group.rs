//! [`Group`]: writers that share transactions.

use std::sync::{Arc, Mutex};

use crate::error::KvError;
use crate::index::{Change, Index};
use crate::lock;
use crate::service::Stat;

/// What was known of the key before.
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
        match index.apply(&changes, next_version()) {
            Ok(before) => waiting.iter().zip(before).for_each(|(done, before)| *lock(done) = Some(Ok(before))),
            Err(error) => waiting.iter().for_each(|done| *lock(done) = Some(Err(error.clone()))),
        }
        drop(leading);
        let lost = || Err(KvError::Io { doing: "its index".into(), cause: "the committing thread panicked".into() });
        lock(&done).take().unwrap_or_else(lost)
    }
}
