//! [`CountingSet`]: how often each key was inserted, by all workers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use farside::{Error, Losses, Pending, PerWorker, Result, Wire, Worker, WorkerId};

use crate::agreement::{ContainerError, agree, with_held};
use crate::dist_iterator::DistIterator;
use crate::exchange::Exchange;

/// The most keys that a worker combines before it sends them. Their entries stay in the caches of
/// a core.
const CACHED_KEYS: usize = 4096;

/// Counts how often each key is inserted by all workers.
///
/// Each key belongs to a worker, by its hash. Every worker first adds up the keys that it inserts,
/// 4096 at a time, and sends the sums by an [`Exchange`]. So a frequent key costs its owner little.
///
/// ```
/// use farside_containers::CountingSet;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let words = CountingSet::new(me)?;
/// for word in "the more the better the rest".split(' ') {
///     words.insert(me, word.to_owned())?;
/// }
/// words.settle(me)?;
/// assert_eq!(words.count(me, "more".to_owned())?.wait()?, u64::from(me.worker_count()));
/// let (count, word) = words.top_k(me, 1)?.remove(0);
/// assert_eq!((count, &*word), (3 * u64::from(me.worker_count()), "the"));
/// words.free(me)
/// # }).unwrap();
/// ```
///
/// The handle is `Copy` and travels; called functions may insert, too.
///
/// *Cost*: that of a local hash table for each insertion, and of an item of the exchange for each
/// key that was not in the cache.
///
/// *Loss*: the counts of a lost process are gone, and so are keys that were on their way to it or
/// in its cache. [`count`](Self::count) of its keys returns [`Error::PeerLost`]. So do
/// [`settle`](Self::settle) and [`top_k`](Self::top_k), until the others
/// [go on](farside::Losses::go_on). Its keys are dropped then. [`iter`](Self::iter) still has the
/// own part.
#[derive(Wire)]
pub struct CountingSet<K: 'static> {
    exchange: Exchange<(K, u64)>,
    part: PerWorker<RefCell<Part<K>>>,
}

/// The part of one worker.
struct Part<K> {
    /// The counts of the worker's own keys.
    counts: Counts<K>,
    /// Keys that this worker has inserted and not sent.
    cache: Counts<K>,
    is_gone: bool,
    /// The workers that made the set, which share the keys.
    owners: Rc<[WorkerId]>,
}

type Counts<K> = HashMap<K, u64, Salted>;

/// Hashes alike in every run, so that simulations repeat, and unlike `owner`: the keys of one
/// worker would share parts of their hashes.
#[derive(Clone, Copy, Default)]
struct Salted;

impl BuildHasher for Salted {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(1);
        hasher
    }
}

impl<K> Part<K> {
    fn new(owners: Rc<[WorkerId]>) -> Self {
        Self { counts: Counts::default(), cache: Counts::default(), is_gone: false, owners }
    }

    /// Returns the part of a set that this worker has not.
    fn gone() -> Self {
        Self { is_gone: true, ..Self::new(Rc::default()) }
    }
}

impl<K: Wire + Clone + Hash + Eq> CountingSet<K> {
    /// Makes an empty set. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`PerWorker::new`]).
    pub fn new(me: &Worker) -> Result<Self> {
        let part: PerWorker<RefCell<Part<K>>> =
            PerWorker::new(me, RefCell::new(Part::new(me.remaining_workers().into())))?;
        let exchange = Exchange::new(me, move |me, items| {
            part.with(me, |part| items.for_each(|(key, count)| *part.counts.entry(key).or_default() += count));
        })?;
        Ok(Self { exchange, part })
    }

    /// Inserts a key.
    ///
    /// *Completion*: it is counted when [`settle`](Self::settle) returns.
    ///
    /// # Errors
    /// [`ContainerError::Gone`]. Those of [`Sender::push`](crate::Sender::push), if this sends the
    /// keys of the cache; the key was inserted nevertheless.
    pub fn insert(self, me: &Worker, key: K) -> Result<()> {
        let is_full = self.with(me, |part| {
            if part.is_gone {
                return Err(ContainerError::Gone);
            }
            *part.cache.entry(key).or_default() += 1;
            Ok(part.cache.len() >= CACHED_KEYS)
        })?;
        if is_full { self.flush(me) } else { Ok(()) }
    }

    /// Sends the keys of the cache. After an error the keys that were not sent stay in it.
    fn flush(self, me: &Worker) -> Result<()> {
        let (cached, owners) = self.part.with(me, |part| (std::mem::take(&mut part.cache), part.owners.clone()));
        let sender = self.exchange.on(me);
        let mut cached = cached.into_iter();
        let mut outcome = Ok(());
        for (key, count) in cached.by_ref() {
            outcome = outcome.and(sender.push(owner(&owners, &key), (key, count)));
            // Keys of a lost owner go nowhere, and those of other owners go on. Any other error
            // would meet each key, and each could wait for a deadline.
            if !matches!(outcome, Ok(()) | Err(Error::PeerLost { .. })) {
                break;
            }
        }
        self.part.with(me, |part| cached.for_each(|(key, count)| *part.cache.entry(key).or_default() += count));
        outcome
    }

    /// Waits until all keys that were inserted before this are counted, also those that called
    /// functions insert meanwhile. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`Worker::quiesce`] and
    /// [`Sender::push`](crate::Sender::push). [`ContainerError::Failed`] if another worker could
    /// not send. The next `settle` sends what this one did not, except keys that no call can hold.
    pub fn settle(self, me: &Worker) -> Result<()> {
        self.check(me)?;
        loop {
            let flushed = self.flush(me);
            // Also after an error: the others wait here.
            me.quiesce()?;
            agree(me, flushed)?;
            let is_settled = self.part.with(me, |part| part.cache.is_empty());
            if me.all_reduce(is_settled, |one, other| one && other)? {
                return Ok(());
            }
        }
    }

    /// Asks the owner of a key how often it was inserted.
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`To::call_return`](farside::To::call_return).
    pub fn count(self, me: &Worker, key: K) -> Result<Pending<'_, u64>> {
        self.check(me)?;
        let owner = self.with(me, |part| owner(&part.owners, &key));
        Ok(me.call_return(owner, (self.part, key), |there, (part, key)| {
            with_held(part, there, Part::gone, |part| part.counts.get(&key).copied().unwrap_or_default())
        })?)
    }

    /// Returns an iterator over the keys of this worker and their counts, as they are now. For
    /// those of all workers use it with [`DistIterator`].
    ///
    /// *Cost*: a copy of the part.
    ///
    /// # Panics
    /// If the set was freed, or is of another job.
    #[track_caller]
    pub fn iter(self, me: &Worker) -> impl Iterator<Item = (K, u64)> + use<K> {
        let counts = |part: &mut Part<K>| part.counts.iter().map(|(key, count)| (key.clone(), *count)).collect();
        if let Err(error) = self.check(me) {
            panic!("{error}");
        }
        let counts: Vec<_> = self.with(me, counts);
        counts.into_iter()
    }

    /// Returns the `k` most frequent keys with their counts, the most frequent first. Of equal
    /// counts the greater key comes first. All workers call this, after [`settle`](Self::settle).
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`Worker::all_reduce`].
    pub fn top_k(self, me: &Worker, k: usize) -> Result<Vec<(u64, K)>>
    where
        K: Ord,
    {
        self.check(me)?;
        self.iter(me).map(|(key, count)| (count, key)).all_top_k(me, k)
    }

    /// Frees the memory. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// The set was freed before, a process is lost, or the job's deadline has passed
    /// ([`Exchange::free`]). The memory is freed nevertheless.
    pub fn free(self, me: &Worker) -> Result<()> {
        self.check(me)?;
        // Both, so that no worker leaves the others waiting.
        self.exchange.free(me).and(self.part.free(me))
    }

    /// Runs `work` with the part of this worker, or with an empty one if it has none.
    #[inline]
    fn with<R>(self, me: &Worker, work: impl FnOnce(&mut Part<K>) -> R) -> R {
        with_held(self.part, me, Part::gone, work)
    }

    /// Refuses the use of a set that is not here.
    fn check(self, me: &Worker) -> Result<(), ContainerError> {
        if self.part.is_here(me) { Ok(()) } else { Err(ContainerError::Gone) }
    }
}

/// Returns the worker that counts a key. All processes run one binary, so they agree.
fn owner<K: Hash>(owners: &[WorkerId], key: &K) -> WorkerId {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
    owners[(hash % owners.len() as u64) as usize]
}

impl<K: 'static> Clone for CountingSet<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: 'static> Copy for CountingSet<K> {}

impl<K: 'static> fmt::Debug for CountingSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingSet").finish_non_exhaustive()
    }
}
