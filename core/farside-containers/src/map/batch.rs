//! Many operations at once, which travel to the owners of their keys: the same way for all maps.

use std::cell::{Cell, RefCell};
use std::fmt;

use farside::{Function, PerWorker, Result, Wire, Worker, WorkerId};

use super::MapError;
use crate::agreement::is_left_behind;
use crate::exchange::{Exchange, Items, Sender};
use crate::query::Query;

/// The number of keys that `get_many` asks for at a time.
const ROUND: usize = 1 << 16;
/// The number of operations that lie between the prefetch of a slot and its use.
pub(super) const AHEAD: usize = 8;

/// The answer of an owner: nothing if it could not answer in a handler.
pub(super) type Answer<V> = Option<Option<V>>;

/// The function that changes a value which is there.
pub(super) type Change<V> = Function<V, V, ()>;

/// A value for a key, or a change of the value that is there.
pub(super) type Changed<K, V> = (K, V, Change<V>);

/// A worker, the ways to the owners of keys, and the refusals and answers that came back.
pub(super) type Desk<'m, K, V> = (&'m Worker, Channels<K, V>, &'m Ledger<V>);

/// The ways to the owners of keys.
#[derive(Wire)]
pub struct Channels<K: 'static, V: 'static> {
    inserts: Exchange<(K, V)>,
    changes: Exchange<Changed<K, V>>,
    /// The questions of `get_many`, with the number of the round.
    questions: Query<(u32, K), (u32, Answer<V>)>,
}

/// The refusals and answers that come back to a worker.
#[derive(Debug)]
pub struct Ledger<V> {
    /// The operations of batches that were refused here, and the first reason.
    pub(super) refused: RefCell<(u64, String)>,
    /// The number of the round of `get_many`, and its answers.
    answers: RefCell<(u32, Vec<Option<Answer<V>>>)>,
    unanswered: Cell<usize>,
}

impl<V> Default for Ledger<V> {
    fn default() -> Self {
        Self { refused: RefCell::default(), answers: RefCell::default(), unanswered: Cell::default() }
    }
}

impl<V> Ledger<V> {
    /// Counts an operation that was refused, if this is its outcome.
    pub(super) fn note(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.add((1, error.to_string()));
        }
    }

    fn add(&self, (count, why): (u64, String)) {
        let mut refused = self.refused.borrow_mut();
        if refused.0 == 0 {
            refused.1 = why;
        }
        refused.0 += count;
    }
}

impl<K: Wire, V: Wire> Channels<K, V> {
    /// Makes the channels. `insert`, `change` and `find` run at the owners of keys, as handlers.
    /// Collective.
    pub(super) fn new<P: AsRef<Ledger<V>> + 'static>(
        me: &Worker,
        parts: PerWorker<P>,
        insert: impl Fn(&Worker, Items<'_, (K, V)>) + 'static,
        change: impl Fn(&Worker, Changed<K, V>) + 'static,
        find: impl Fn(&Worker, &K) -> Answer<V> + 'static,
    ) -> Result<Self> {
        let inserts = Exchange::new(me, insert)?;
        let changes = Exchange::new(me, move |me, items| items.for_each(|item| change(me, item)))?;
        let answer = move |me: &Worker, (round, key): (u32, K)| (round, find(me, &key));
        let questions = Query::new(me, answer, move |me, tag, (round, answer)| {
            let Some(part) = parts.hold(me) else { return };
            let ledger = (*part).as_ref();
            let mut answers = ledger.answers.borrow_mut();
            if answers.0 == round
                && let Some(place) = answers.1.get_mut(tag as usize)
            {
                *place = Some(answer);
                ledger.unanswered.set(ledger.unanswered.get().saturating_sub(1));
            }
        })?;
        Ok(Self { inserts, changes, questions })
    }

    /// Frees the channels. Collective.
    #[track_caller]
    pub(super) fn free(self, me: &Worker) -> Result<()> {
        // All of them, so that no worker leaves the others waiting.
        self.inserts.free(me).and(self.changes.free(me)).and(self.questions.free(me))
    }
}

impl<K: 'static, V: 'static> Clone for Channels<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: 'static, V: 'static> Copy for Channels<K, V> {}

impl<K: 'static, V: 'static> fmt::Debug for Channels<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
    }
}

/// A map on one worker, whose operations can travel in batches.
pub trait Batched {
    /// The type of keys.
    type Key: Wire + Clone;
    /// The type of values.
    type Value: Wire;

    /// Returns this worker, the ways to the owners of keys, and what came back from there.
    fn desk(&self) -> Desk<'_, Self::Key, Self::Value>;

    /// Passes an operation of a batch on to the owner of its key, if the promise permits it.
    ///
    /// # Errors
    /// The error of `push`, and that of an operation that is not permitted.
    fn pass(&self, key: Self::Key, push: impl FnOnce(WorkerId, Self::Key) -> Result<()>) -> Result<()>;

    /// Carries out what could not be done in handlers, and meets all workers. Collective. Returns
    /// the `refused` of all.
    ///
    /// # Errors
    /// The errors of collectives.
    fn meet_all(&self) -> Result<Vec<(u64, String)>>;

    /// Returns the worker to ask for a key, or `None` if this worker finds it itself.
    ///
    /// # Errors
    /// The map is not there.
    fn whom_to_ask(&self, key: &Self::Key) -> Result<Option<WorkerId>>;

    /// Begins to load what the search for a key needs.
    fn prefetch(&self, _key: &Self::Key) {}

    /// Returns the value of a key.
    ///
    /// # Errors
    /// The errors of operations on keys.
    fn find_one(&self, key: &Self::Key) -> Result<Option<Self::Value>>;
}

/// Operations on a map that travel to the owners of their keys in batches.
///
/// ```
/// use farside_containers::map::HashMap;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let map = HashMap::<u64, u64>::new(me, 1000)?;
/// let m = map.on(me);
/// let first = 100 * u64::from(me.id().number());
/// let batch = m.batch()?;
/// batch.extend((first..first + 100).map(|key| (key, 2 * key)))?;
/// batch.finish()?;
/// assert_eq!(m.get_many(&[7, 299, 300])?, [Some(14), Some(598), None]);
/// me.barrier()?;
/// let batch = m.batch()?;
/// [7, 299, 300].into_iter().try_for_each(|key| batch.upsert(key, 1, |count, by| *count += by))?;
/// batch.finish()?;
/// assert_eq!(m.get_many(&[7, 299, 300])?, [Some(17), Some(601), Some(3)]);
/// # me.barrier()
/// # }).unwrap();
/// ```
///
/// *Order*: none between the operations of batches. *Cost*: that of an item of an [`Exchange`], and
/// of the operation at the owner.
#[must_use = "the operations are done when `finish` returns, or `end` of the phase"]
pub struct Batch<'m, M: Batched> {
    map: &'m M,
    inserts: Sender<'m, (M::Key, M::Value)>,
    changes: Sender<'m, Changed<M::Key, M::Value>>,
}

impl<'m, M: Batched> Batch<'m, M> {
    pub(super) fn of(map: &'m M) -> Self {
        let (me, Channels { inserts, changes, .. }, _) = map.desk();
        Self { map, inserts: inserts.on(me), changes: changes.on(me) }
    }

    /// Inserts a value, some time before [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// The key belongs to another worker and the promise is local ([`MapError::NotLocal`]), or the
    /// item cannot be sent ([`Sender::push`]).
    #[inline]
    #[track_caller]
    pub fn insert(&self, key: M::Key, value: M::Value) -> Result<()> {
        self.map.pass(key, |owner, key| self.inserts.push(owner, (key, value)))
    }

    /// Inserts a value if the key is not there, and otherwise changes the value that is there, as
    /// `upsert` of the map does, some time before [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// The function is of another binary
    /// ([`Error::ForeignFunction`](farside::Error::ForeignFunction)), the key belongs to another
    /// worker and the promise is local, or the item cannot be sent.
    #[inline]
    #[track_caller]
    pub fn upsert(&self, key: M::Key, value: M::Value, change: fn(&mut M::Value, M::Value)) -> Result<()> {
        let change = Function::new(self.map.desk().0, change)?;
        self.map.pass(key, |owner, key| self.changes.push(owner, (key, value, change)))
    }

    /// Inserts many values.
    ///
    /// # Errors
    /// The first error of [`insert`](Self::insert).
    pub fn extend(&self, pairs: impl IntoIterator<Item = (M::Key, M::Value)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Waits until the operations of all workers are done, also those of other batches. All workers
    /// call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Batch`] on every worker, if an owner could not carry an operation out or its
    /// function has panicked. It also counts the operations whose owner is lost, if the workers
    /// [go on](farside::Losses::go_on) without it. Otherwise a process is lost, the job's deadline
    /// has passed, or the workers call different collectives ([`Worker::quiesce`]).
    pub fn finish(self) -> Result<()> {
        finish(self.map)
    }
}

/// Finishes all batches of a map, whether they were dropped or not. Collective.
pub(super) fn finish<M: Batched>(map: &M) -> Result<()> {
    let (me, Channels { inserts, changes, .. }, ledger) = map.desk();
    let (inserts, changes) = (inserts.on(me), changes.on(me));
    // A worker that fails goes on to the collectives, where the others wait.
    let flushed = inserts.flush().and(changes.flush());
    // All workers learn by the number of dropped items that items were dropped for a process which
    // they go on without.
    let flushed = flushed.or_else(|error| if is_left_behind(me, &error) { Ok(()) } else { Err(error) });
    let sent = flushed.and(me.quiesce());
    [inserts.take_dropped(), changes.take_dropped()].into_iter().for_each(|dropped| ledger.add(dropped));
    let refused = map.meet_all();
    sent?;
    let refused = refused?;
    let count = refused.iter().map(|(count, _)| count).sum();
    match refused.into_iter().find(|(count, _)| *count > 0) {
        Some((_, first)) => Err(MapError::Batch { count, first }.into()),
        None => Ok(()),
    }
}

/// Returns the values of many keys, in the order of the keys.
#[track_caller]
pub(super) fn get_many<M: Batched>(map: &M, keys: &[M::Key]) -> Result<Vec<Option<M::Value>>> {
    let mut values = Vec::with_capacity(keys.len());
    for keys in keys.chunks(ROUND) {
        let mut answers = ask(map, keys)?;
        for (index, key) in keys.iter().enumerate() {
            if let Some(later) = keys.get(index + AHEAD) {
                map.prefetch(later);
            }
            // What was not asked for, or not answered, is searched from here.
            values.push(match answers.get_mut(index).and_then(Option::take).flatten() {
                Some(value) => value,
                None => map.find_one(key)?,
            });
        }
    }
    Ok(values)
}

/// Asks the owners of keys, and returns their answers.
#[track_caller]
fn ask<M: Batched>(map: &M, keys: &[M::Key]) -> Result<Vec<Option<Answer<M::Value>>>> {
    let (me, Channels { questions, .. }, ledger) = map.desk();
    let is_any_lost = || !me.lost_processes().is_empty();
    // Questions that pass a lost process are dropped.
    if is_any_lost() {
        return Ok(Vec::new());
    }
    let mut round = None;
    let asker = questions.on(me);
    for (tag, key) in keys.iter().enumerate() {
        let Some(owner) = map.whom_to_ask(key)? else { continue };
        let round = *round.get_or_insert_with(|| {
            let mut answers = ledger.answers.borrow_mut();
            let round = answers.0.wrapping_add(1);
            *answers = (round, keys.iter().map(|_| None).collect());
            ledger.unanswered.set(0);
            round
        });
        ledger.unanswered.set(ledger.unanswered.get() + 1);
        asker.ask(owner, tag as u32, (round, key.clone()))?;
    }
    asker.flush()?;
    // A handler that runs meanwhile may begin a round of its own.
    let is_mine = || Some(ledger.answers.borrow().0) == round;
    if round.is_some() {
        me.wait_while_serving(|| !is_mine() || ledger.unanswered.get() == 0 || is_any_lost())?;
    }
    Ok(if is_mine() { std::mem::take(&mut ledger.answers.borrow_mut().1) } else { Vec::new() })
}

impl<M: Batched> fmt::Debug for Batch<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("inserts", &self.inserts).finish_non_exhaustive()
    }
}
