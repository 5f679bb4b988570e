//! [`ArrayBatch`]: many changes of the values of an array, in batches.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use farside::bytemuck::Pod;
use farside::{Error, GlobalArray, Result, Wire, Worker};

use crate::agreement::{ContainerError, fail_together};
use crate::exchange::Exchange;
use crate::query::Query;

/// Changes many values of a [`GlobalArray`] by one operation, in batches.
///
/// The changes are pairs of an index and an operand: any iterator. They run at the owner of the
/// index, one at a time, so none is lost. Direct accesses to the same values meanwhile are not part
/// of that: an [atomic operation](farside::GlobalPtr::fetch_add) between may be overwritten.
///
/// If the operation panics, its value stays as it is, and the other changes are made.
///
/// | to change | pass |
/// |---|---|
/// | many indices by one operand | `indices.map(\|index\| (index, operand))` |
/// | one index by many operands | `operands.map(\|operand\| (index, operand))` |
/// | each index by its own operand | `indices.zip(operands)` |
///
/// To accumulate, pass `+` as the operation.
///
/// ```
/// use std::rc::Rc;
/// use farside::prelude::*;
/// use farside_containers::ArrayBatch;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let counts = Rc::new(me.global_array::<u64>(100)?);
/// let adding = ArrayBatch::new(me, counts.clone(), |count, by: u64| count + by)?;
/// adding.apply(me, (0..50).map(|index| (index, 2)))?;
/// me.quiesce()?;
/// assert_eq!(counts.get(me, 49)?, 2 * u64::from(me.worker_count()));
/// // Each worker reads the old values.
/// let old = adding.fetch(me, [(7, 1), (60, 1)])?;
/// assert!(old[0] >= 6 && old[1] <= 2);
/// adding.free(me)
/// # }).unwrap();
/// ```
///
/// *Cost*: for each change that of an item of an [`Exchange`], of at least 16 bytes, and of a
/// [`Query`] if the old value is wanted.
///
/// *Loss*: changes of values in the memory of a lost process are dropped. [`fetch`](Self::fetch)
/// and [`Worker::quiesce`] return [`Error::PeerLost`], and so may [`apply`](Self::apply). Changes
/// of other values are made, but [`fetch`](Self::fetch) returns no old values. Both wait for
/// the other workers again after these [go on](farside::Losses::go_on).
///
/// The three forms are those of the batches of lamellar's arrays.
pub struct ArrayBatch<T: 'static, A: 'static> {
    array: Rc<GlobalArray<T>>,
    changes: Exchange<(u64, A)>,
    fetches: Query<(u64, A), T>,
    /// The old values that have arrived, at the places of their indices.
    fetched: Rc<RefCell<Vec<Option<T>>>>,
    /// The first failure of a change of `fetch` at this worker.
    failed: Rc<RefCell<Option<String>>>,
}

impl<T: Pod + Wire, A: Wire> ArrayBatch<T, A> {
    /// Makes a batch with an operation, which makes the new value of the old one and an operand.
    /// All workers call this, in the same order as other collectives and with the same operation.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`Exchange::new`]).
    pub fn new(me: &Worker, array: Rc<GlobalArray<T>>, operation: impl Fn(T, A) -> T + 'static) -> Result<Self> {
        let own = array.clone();
        let change = Rc::new(move |me: &Worker, index: u64, operand: A| -> Result<T, String> {
            let change = || {
                let old = own.get(me, index as usize)?;
                own.put(me, index as usize, operation(old, operand))?;
                Ok::<T, Error>(old)
            };
            // An operation that panics has put nothing.
            match catch_unwind(AssertUnwindSafe(change)) {
                Ok(changed) => changed.map_err(|error| error.to_string()),
                Err(panic) => Err(message_of(&*panic)),
            }
        });
        let changing = change.clone();
        let changes = Exchange::new(me, move |me, items| {
            let mut failed = None;
            for (index, operand) in items {
                failed = failed.or(changing(me, index, operand).err());
            }
            // After all changes of the batch, of which most are of other callers.
            if let Some(why) = failed {
                resume_unwind(Box::new(why));
            }
        })?;
        let (fetched, failed) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(None)));
        let (arrived, first) = (fetched.clone(), failed.clone());
        let answer = move |me: &Worker, (index, operand)| {
            change(me, index, operand).unwrap_or_else(|why| {
                first.borrow_mut().get_or_insert(why);
                // `fetch` fails on all workers, so this is not seen.
                T::zeroed()
            })
        };
        let fetches = Query::new(me, answer, move |_, tag, old| {
            // What arrives after a failed `fetch` has no place.
            if let Some(place) = arrived.borrow_mut().get_mut(tag as usize) {
                *place = Some(old);
            }
        })?;
        Ok(Self { array, changes, fetches, fetched, failed })
    }

    /// Changes values.
    ///
    /// *Completion*: the changes are made when [`Worker::quiesce`] returns.
    ///
    /// # Errors
    /// [`ObjectError::Outside`](farside::global::ObjectError) for an index beyond the end: earlier
    /// changes are made, later ones are not. [`PeerLost`](farside::Error::PeerLost) if an owner is
    /// lost: the changes for others are made. Those of [`Sender::push`](crate::Sender::push).
    pub fn apply(&self, me: &Worker, changes: impl IntoIterator<Item = (usize, A)>) -> Result<()> {
        let sender = self.changes.on(me);
        let mut lost = Ok(());
        for (index, operand) in changes {
            let owner = self.array.worker_of(me, index)?;
            past_losses(&mut lost, sender.push(owner, (index as u64, operand)))?;
        }
        lost
    }

    /// Changes values, and returns the old ones in the order of the changes. All workers call this,
    /// in the same order as other collectives; each may have any changes, or none.
    ///
    /// # Errors
    /// A change cannot be sent ([`apply`](Self::apply)), a process is lost, or the job's deadline
    /// has passed ([`Worker::quiesce`]). If a change fails at its owner, all workers get
    /// [`ContainerError::Failed`]; the other changes are made.
    pub fn fetch(&self, me: &Worker, changes: impl IntoIterator<Item = (usize, A)>) -> Result<Vec<T>> {
        let asker = self.fetches.on(me);
        self.fetched.borrow_mut().clear();
        let mut lost = Ok(());
        let asked = (0..).zip(changes).try_for_each(|(tag, (index, operand))| {
            let owner = self.array.worker_of(me, index)?;
            self.fetched.borrow_mut().push(None);
            past_losses(&mut lost, asker.ask(owner, tag, (index as u64, operand)))
        });
        // Also after an error: the others wait here.
        me.quiesce()?;
        fail_together(me, self.failed.take())?;
        asked.and(lost)?;
        let fetched = self.fetched.take();
        let (missing, count) = (fetched.iter().filter(|old| old.is_none()).count(), fetched.len());
        let fetched: Option<Vec<T>> = fetched.into_iter().collect();
        fetched.ok_or_else(|| ContainerError::Unanswered { missing, count }.into())
    }

    /// Waits until all changes are made, and frees the memory of the batch. The array stays. All
    /// workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// The batch was freed before, a process is lost, or the job's deadline has passed
    /// ([`Exchange::free`]). The memory is freed nevertheless.
    pub fn free(self, me: &Worker) -> Result<()> {
        self.changes.free(me).and(self.fetches.free(me))
    }
}

impl<T: Pod, A> fmt::Debug for ArrayBatch<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayBatch").field("len", &self.array.len()).finish_non_exhaustive()
    }
}

/// Notes in `lost` that a change was for a lost worker, so that the changes for others go on.
fn past_losses(lost: &mut Result<()>, sent: Result<()>) -> Result<()> {
    if let Err(Error::PeerLost { .. }) = sent {
        *lost = sent;
        return Ok(());
    }
    sent
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}
