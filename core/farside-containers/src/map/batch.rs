//! Many operations at once.

use std::fmt;

use farside::{Function, PerWorker, Result, Worker, WorkerId};

use super::MapError;
use super::core::{Core, Effort, For, Kind, Level, Stop, Wait, lacks_memory};
use super::operations::{Get, Insert, Map, Operation, Upsert, caught};
use super::slot::{Part, Slot, Spot};
use super::state::{Answer, State};
use crate::agreement::is_left_behind;
use crate::exchange::{Exchange, Sender};
use crate::query::Query;

/// The number of keys that `get_many` asks for at a time.
const ROUND: usize = 1 << 16;
/// The number of tries of an insertion in a handler.
const TRIES: u32 = 64;

/// The number of operations that lie between the prefetch of a slot and its use.
const AHEAD: usize = 8;

/// The questions of `get_many`, with the number of the round.
pub(super) type Questions<K, V> = Query<(u32, K), (u32, Answer<V>)>;

/// The function that changes a value which is there.
pub(super) type Change<V> = Function<V, V, ()>;

/// An insertion of a batch, or a change of the value that is there.
pub(super) type Put<K, V> = (K, V, Option<Change<V>>);

/// The changes of batches.
pub(super) type Changes<K, V> = Exchange<(K, V, Change<V>)>;

/// Insertions that travel to the owners of their keys in batches.
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
#[must_use = "the insertions are done when `finish` returns, or `end` of the phase"]
pub struct Batch<'m, 'w, K: Slot, V: Slot> {
    map: &'m Map<'w, K, V>,
    sender: Sender<'w, (K, V)>,
    changes: Sender<'w, (K, V, Change<V>)>,
}

impl<K: Slot, V: Slot> Batch<'_, '_, K, V> {
    /// Inserts a value, some time before [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// Those of [`Sender::push`]; [`MapError::NotLocal`].
    #[inline]
    #[track_caller]
    pub fn insert(&self, key: K, value: V) -> Result<()> {
        self.push(&key, |owner| self.sender.push(owner, (key, value)))
    }

    /// Inserts a value if the key is not there, and otherwise changes the value that is there, as
    /// [`Map::upsert`] does, some time before [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert);
    /// [`Error::ForeignFunction`](farside::Error::ForeignFunction).
    #[inline]
    #[track_caller]
    pub fn upsert(&self, key: K, value: V, change: fn(&mut V, V)) -> Result<()> {
        let change = Function::new(self.map.core.me, change)?;
        self.push(&key, |owner| self.changes.push(owner, (key, value, change)))
    }

    #[inline]
    #[track_caller]
    fn push(&self, key: &K, push: impl FnOnce(WorkerId) -> Result<()>) -> Result<()> {
        let place = self.map.core.spot(key).owner;
        let owner = self.map.core.state.owners[place];
        if self.map.core.level == Level::Local && owner != self.map.core.me.id() {
            return Err(MapError::NotLocal { owner }.into());
        }
        self.map.core.announce(place)?;
        push(owner)?;
        self.map.core.note_done(place, Kind::Insert)
    }

    /// Inserts many values.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn extend(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Waits until the insertions of all workers are done, also those of other batches. All workers
    /// call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Batch`] on every worker, if any worker could not insert an entry. That also
    /// counts the entries whose owner is lost, if the workers [go on](farside::Losses::go_on)
    /// without it. Those of [`Worker::quiesce`].
    pub fn finish(self) -> Result<()> {
        self.map.finish_batches()
    }
}

impl<'w, K: Slot, V: Slot> Map<'w, K, V> {
    /// Finishes all batches, whether they were dropped or not. Collective.
    pub(super) fn finish_batches(&self) -> Result<()> {
        let core = &self.core;
        let here = Core::on(core.handle, core.me);
        // A worker that fails goes on to the collectives, where the others wait.
        let (inserts, changes) = (self.map.batches.on(core.me), self.map.changes.on(core.me));
        let flushed = but_for_dropped(core.me, inserts.flush().and(changes.flush()));
        let sent = flushed.and(core.me.quiesce());
        for dropped in [inserts.take_dropped(), changes.take_dropped()] {
            add_refused(&mut core.state.refused.borrow_mut(), dropped);
        }
        for (key, value, change) in core.state.pending.take() {
            let spot = here.spot(&key);
            let done = match change {
                None => here.persist(spot, |effort| Insert::attempt(&here, effort, spot, &key, value)).map(drop),
                Some(change) => caught(core.me, || {
                    here.persist(spot, |effort| Upsert::attempt(&here, effort, spot, &key, (change, value)))
                }),
            };
            here.note(done);
        }
        let refused = core.meet(core.state.refused.take());
        sent?;
        check_refused(refused?)
    }

    /// Returns a batch of insertions. Their owners carry them out, whatever the implementation.
    ///
    /// # Errors
    /// [`MapError::Gone`]; [`MapError::Promise`] if the promise permits no insertions.
    pub fn batch(&self) -> Result<Batch<'_, 'w, K, V>> {
        self.core.check("batch", Kind::Insert)?;
        self.core.own_part()?;
        let me = self.core.me;
        Ok(Batch { map: self, sender: self.map.batches.on(me), changes: self.map.changes.on(me) })
    }

    /// Returns the values of many keys, in the order of the keys. Where memory is mapped, it reads
    /// them; the owners of other keys are asked in batches.
    ///
    /// # Errors
    /// Those of all [operations on keys](Self#errors).
    #[track_caller]
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let (core, mut values) = (&self.core, Vec::with_capacity(keys.len()));
        core.check("get_many", Kind::Find)?;
        core.own_part()?;
        for keys in keys.chunks(ROUND) {
            let mut answers = self.ask(keys)?;
            for (index, key) in keys.iter().enumerate() {
                if let Some(later) = keys.get(index + AHEAD) {
                    core.prefetch(later, For::Reading);
                }
                // What was not asked for, or not answered, is read.
                values.push(match answers.get_mut(index).and_then(Option::take).flatten() {
                    Some(value) => value,
                    None => self.get(key)?,
                });
            }
        }
        Ok(values)
    }

    /// Asks the owners of keys whose memory is not mapped here, and returns their answers.
    #[track_caller]
    fn ask(&self, keys: &[K]) -> Result<Vec<Option<Answer<V>>>> {
        let (core, state) = (&self.core, &self.core.state);
        let is_any_lost = || !core.me.lost_processes().is_empty();
        let is_asked = |key: &K| core.part(core.spot(key).owner).map(|part| !part.is_mapped);
        // Questions that pass a lost process are dropped.
        if core.level == Level::Local || is_any_lost() {
            return Ok(Vec::new());
        }
        let mut round = None;
        let asker = self.map.questions.on(core.me);
        for (tag, key) in keys.iter().enumerate() {
            if !is_asked(key)? {
                continue;
            }
            let round = *round.get_or_insert_with(|| {
                let mut answers = state.answers.borrow_mut();
                let round = answers.0.wrapping_add(1);
                *answers = (round, vec![None; keys.len()]);
                state.unanswered.set(0);
                round
            });
            core.announce(core.spot(key).owner)?;
            state.unanswered.set(state.unanswered.get() + 1);
            asker.ask(self.owner_of(key), tag as u32, (round, *key))?;
        }
        asker.flush()?;
        // A handler that runs meanwhile may begin a round of its own.
        let is_mine = || Some(state.answers.borrow().0) == round;
        if round.is_some() {
            core.me.wait_while_serving(|| !is_mine() || state.unanswered.get() == 0 || is_any_lost())?;
        }
        for key in keys.iter().filter(|_| !core.announced_parts().is_empty()) {
            core.note_done(core.spot(key).owner, Kind::Find)?;
        }
        Ok(if is_mine() { std::mem::take(&mut state.answers.borrow_mut().1) } else { Vec::new() })
    }
}

/// Leaves out that items were dropped for a process which the workers go on without: all of them
/// learn of that by the number of dropped items.
pub(super) fn but_for_dropped(me: &Worker, sent: Result<()>) -> Result<()> {
    sent.or_else(|error| if is_left_behind(me, &error) { Ok(()) } else { Err(error) })
}

/// Adds to a number of operations that were refused, and their first reason.
pub(super) fn add_refused(refused: &mut (u64, String), (count, why): (u64, String)) {
    if refused.0 == 0 {
        refused.1 = why;
    }
    refused.0 += count;
}

/// Fails if operations were refused at any worker.
pub(super) fn check_refused(refused: Vec<(u64, String)>) -> Result<()> {
    let count = refused.iter().map(|(count, _)| count).sum();
    match refused.into_iter().find(|(count, _)| *count > 0) {
        Some((_, first)) => Err(MapError::Batch { count, first }.into()),
        None => Ok(()),
    }
}

/// Makes the exchange that carries the insertions of batches.
pub(super) fn exchange<K: Slot, V: Slot>(me: &Worker, state: PerWorker<State<K, V>>) -> Result<Exchange<(K, V)>> {
    Exchange::new(me, move |me, mut items| {
        let core = Core::on(state, me);
        let prefetch = |(key, _): &(K, V)| core.prefetch(key, For::Inserting);
        let mut spots = [Spot::in_part(0); AHEAD];
        spots.iter_mut().zip(items.as_slice()).for_each(|(spot, item)| *spot = prefetch(item));
        let mut next = (0..AHEAD).cycle();
        while let (Some((key, value)), Some(place)) = (items.next(), next.next()) {
            let spot = spots[place];
            if let Some(later) = items.as_slice().get(AHEAD - 1) {
                spots[place] = prefetch(later);
            }
            let is_done = core.do_here::<Insert>(spot, &key, value);
            core.keep_rest(is_done, (key, value, None));
        }
    })
}

/// Makes the exchange that carries the changes of batches.
pub(super) fn changes<K: Slot, V: Slot>(me: &Worker, state: PerWorker<State<K, V>>) -> Result<Changes<K, V>> {
    Exchange::new(me, move |me, items| {
        let core = Core::on(state, me);
        for (key, value, change) in items {
            let is_done = caught(me, || core.do_here::<Upsert>(core.spot(&key), &key, (change, value)));
            core.keep_rest(is_done, (key, value, Some(change)));
        }
    })
}

/// Makes the query that carries the questions of `get_many`.
pub(super) fn query<K: Slot, V: Slot>(me: &Worker, state: PerWorker<State<K, V>>) -> Result<Questions<K, V>> {
    let answer = move |me: &Worker, (round, key): (u32, K)| {
        let core = Core::on(state, me);
        (round, Get::attempt(&core, Effort::FIRST, core.spot(&key), &key, ()).ok())
    };
    Query::new(me, answer, move |me, tag, (round, answer)| {
        let Some(state) = state.hold(me) else { return };
        let mut answers = state.answers.borrow_mut();
        if answers.0 == round
            && let Some(place) = answers.1.get_mut(tag as usize)
        {
            *place = Some(answer);
            state.unanswered.set(state.unanswered.get().saturating_sub(1));
        }
    })
}

impl<K: Slot, V: Slot> Core<'_, K, V> {
    /// Keeps an operation that was not done in its handler, or its error, for `finish`.
    fn keep_rest(&self, is_done: Result<bool>, operation: Put<K, V>) {
        match is_done {
            Ok(true) => {}
            // Another worker is changing the slot.
            Ok(false) => self.state.pending.borrow_mut().push(operation),
            Err(error) => self.note(Err(error)),
        }
    }

    /// Carries out an operation in the part of this worker, in a handler. Returns whether it did
    /// so.
    fn do_here<O: Operation<K, V>>(&self, spot: Spot, key: &K, arguments: O::Arguments) -> Result<bool> {
        let mut effort = Effort::FIRST;
        for _ in 0..TRIES {
            match O::attempt(self, effort, spot, key, arguments.clone()) {
                Ok(_) => return Ok(true),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Wait(reason @ (Wait::Crowded | Wait::Moved))) => {
                    let (now, is_crowded) = (self.part(spot.owner)?, matches!(reason, Wait::Crowded));
                    let is_last = is_crowded && effort.probes == Effort::LAST.probes;
                    match self.renewed(now.base, is_crowded) {
                        Ok(part) if part.base != now.base => {}
                        Ok(Part { slots, .. }) if is_last => {
                            return Err(MapError::Full { owner: self.state.owners[spot.owner], slots }.into());
                        }
                        Err(Stop::Failed(error)) if is_last || !is_crowded || !lacks_memory(&error) => {
                            return Err(error);
                        }
                        Ok(_) | Err(Stop::Failed(_)) => effort = Effort::LAST,
                        Err(Stop::Wait(_)) => return Ok(false),
                    }
                }
                Err(Stop::Wait(Wait::Again)) => {}
                Err(Stop::Wait(Wait::Busy { slot, stamp })) if self.retire_if_lost(slot, stamp)? => {}
                Err(Stop::Wait(_)) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Keeps a failure for [`Batch::finish`].
    fn note(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            add_refused(&mut self.state.refused.borrow_mut(), (1, error.to_string()));
        }
    }
}

impl<K: Slot, V: Slot> fmt::Debug for Batch<'_, '_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("sender", &self.sender).finish_non_exhaustive()
    }
}
