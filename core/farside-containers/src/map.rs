//! [`HashMap`]: a hash table that is spread over all workers, and [`WireMap`], one of types such as
//! `String`.

mod batch;
mod choice;
mod core;
mod entries;
mod error;
mod keeping;
mod operations;
mod put;
mod slot;
mod state;
mod wire_map;

use std::fmt;
use std::marker::PhantomData;

use farside::{PerWorker, Result, Wire, Worker};

use self::batch::Channels;
use self::core::Core;
use self::state::State;
use crate::cost::CostModel;
use crate::promise::{Choice, Implementation};

pub use self::batch::Batch;
pub use self::entries::Entries;
pub use self::error::MapError;
pub use self::operations::{Inserted, Map};
pub use self::slot::{Slot, placement_hash};
pub use self::wire_map::{CallMap, WireMap};
pub use crate::phase::{Finding, Inserting, Phase};

/// A hash table that is spread over all workers: a key belongs to one of them, and any worker reads
/// and writes it there.
///
/// The handle is `Copy` and may travel. [`on`](Self::on) returns what one works with.
///
/// ```
/// use farside_containers::map::HashMap;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let map = HashMap::<u64, u64>::new(me, 1000)?;
/// let m = map.on(me);
/// m.insert(u64::from(me.id().number()), 40)?;
/// m.upsert(100, 1, |count, by| *count += by)?;
/// me.barrier()?;
/// assert_eq!(m.get(&2)?, Some(40));
/// assert_eq!(m.get(&100)?, Some(3));
/// assert_eq!(m.get(&3)?, None);
/// # me.barrier()?;
/// map.free(me)
/// # }).unwrap();
/// ```
///
/// | [`Implementation`] | insert | find |
/// |---|---|---|
/// | `OneSided`, the default | compare-and-swap, then entry and stamp | one read, verified |
/// | `Call` | one call of the owner | one call of the owner |
///
/// [`Map::promising`] has the costs. Where memory is mapped, a find reads the stamp before and
/// after the entry. Elsewhere a checksum whose key is the stamp tells whether the pieces of an
/// entry belong together. It errs once in 2^64 such cases.
///
/// *Completion*: when an operation returns, all workers see what it did. Operations on one key are
/// linearizable. An operation that meets a slot which another worker is changing waits, at most for
/// the job's deadline, and runs calls meanwhile. In a handler that is
/// [`Error::InHandler`](farside::Error::InHandler).
///
/// *Size*: a part grows by itself when three quarters of its slots are used, unless the map is
/// [`fixed`](Builder::fixed). The owner moves its entries when it serves a call. Until it has done
/// so, operations on the part wait. A removed key keeps its slot until its part is moved: if most
/// of the used slots are those of removed keys, to one of the same size. The memory of earlier
/// parts returns when all workers meet in [`Batch::finish`], [`Map::inserting`], [`Map::finding`],
/// [`Map::retain`], [`Map::drain`], [`Map::clear`] or [`free`](Self::free). So keys that come and
/// go use more and more memory between two of them. If an operation has returned
/// [`Error::Deadline`](farside::Error::Deadline), a late request may still change that memory, so
/// it stays until the job ends.
///
/// *Losses*: operations on keys of a lost process return
/// [`Error::PeerLost`](farside::Error::PeerLost). An entry that a process was changing when it was
/// lost is removed, and its slot is not used again. What that process still had sent changes
/// nothing. An insertion that returns [`Error::Deadline`](farside::Error::Deadline), or the error
/// of a call that ran meanwhile, may take effect later, or may have removed the key. It may also
/// hold its slot until the worker's next operation on the map. Batches, phases and other
/// collectives fail until the others [go on](farside::Losses::go_on). A map that is made then has
/// parts at these workers alone.
///
/// The seed is *RDMA vs. RPC for Implementing Distributed Data Structures*, which measures the hash
/// map of BCL.
#[derive(Wire)]
pub struct HashMap<K: 'static, V: 'static> {
    state: PerWorker<State<K, V>>,
    channels: Channels<K, V>,
}

/// The settings of a map. All workers must agree.
#[derive(Clone, Copy)]
struct Settings {
    capacity: usize,
    choice: Choice,
    model: Option<CostModel>,
    is_fixed: bool,
    placement: fn(&[u8]) -> u64,
}

impl Settings {
    const DEFAULT: Self = Self {
        capacity: 1024,
        choice: Choice(Some(Implementation::OneSided)),
        model: None,
        is_fixed: false,
        placement: placement_hash,
    };

    /// Returns the slots of each part, three quarters of which hold its share of the entries.
    fn slots(&self, workers: usize) -> Result<u64> {
        let share = self.capacity.div_ceil(workers);
        let refused = |why: &str| MapError::Capacity { capacity: self.capacity, why: why.into() };
        if self.capacity == 0 {
            return Err(refused("there would be no slot").into());
        }
        let slots = share.checked_mul(4).map(|slots| slots.div_ceil(3)).and_then(usize::checked_next_power_of_two);
        slots.map(|slots| slots as u64).ok_or_else(|| refused("no address space has room for that").into())
    }
}

/// Makes a [`HashMap`] or a [`WireMap`].
///
/// ```
/// use farside_containers::Implementation;
/// use farside_containers::map::{HashMap, WireMap};
///
/// # farside::simulate(2, 1, 1, |me| {
/// let builder = HashMap::<u32, u32>::builder().capacity(100).fixed();
/// let map = builder.implementation(Implementation::Call).build(me)?;
/// assert_eq!(map.on(me).len()?, 0);
/// let words = WireMap::<String, u32>::builder().capacity(100).build(me)?;
/// assert_eq!(words.on(me).len()?, 0);
/// # me.barrier()
/// # }).unwrap();
/// ```
#[derive(Clone, Copy)]
pub struct Builder<M> {
    settings: Settings,
    map: PhantomData<fn() -> M>,
}

impl<M> Builder<M> {
    fn new() -> Self {
        Self { settings: Settings::DEFAULT, map: PhantomData }
    }

    /// The number of entries that the map has room for at first, 1024 by default. The slots of a
    /// [`HashMap`] are at most three quarters full then.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.settings.capacity = entries;
        self
    }

    /// The function that places keys, [`placement_hash`] by default. It receives the bytes of a
    /// key, for a [`WireMap`] in their portable form. All bits of its result count. All workers
    /// must pass functions with the same results: `build` compares those for the bytes 1, 2, 3 and
    /// so on.
    pub fn placement(mut self, hash: fn(&[u8]) -> u64) -> Self {
        self.settings.placement = hash;
        self
    }
}

impl<K: Slot, V: Slot> Builder<HashMap<K, V>> {
    /// How operations are carried out. With [`Implementation::Auto`] worker 0 chooses in
    /// [`build`](Self::build): the implementation whose insertion and find together cost least,
    /// while nothing is promised.
    pub fn implementation(mut self, implementation: impl Into<Choice>) -> Self {
        self.settings.choice = implementation.into();
        self
    }

    /// The costs that [`Implementation::Auto`] and [`Map::plan`] follow. All workers must pass a
    /// model, or none. Without one, `Auto` [measures](CostModel::measure) it.
    pub fn cost_model(mut self, model: CostModel) -> Self {
        self.settings.model = Some(model);
        self
    }

    /// The map never grows. Where a part has no slot for a key, an insertion returns
    /// [`MapError::Full`]. Where removed keys have used the slots up, the owner moves the others to
    /// a part of the same size.
    pub fn fixed(mut self) -> Self {
        self.settings.is_fixed = true;
        self
    }

    /// Makes the map. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`MapError::Capacity`]; [`MapError::Implementation`]; [`MapError::Unequal`] if the workers
    /// pass different settings. Otherwise a process is lost, the job's deadline has passed, or the
    /// workers call different collectives.
    pub fn build(self, me: &Worker) -> Result<HashMap<K, V>> {
        let state = PerWorker::new(me, State::new(me, self.settings)?)?;
        Ok(HashMap { state, channels: put::channels(me, state)? })
    }
}

impl<K: Slot, V: Slot> HashMap<K, V> {
    /// Makes a map with room for `capacity` entries at first. All workers call this, in the same
    /// order as other collectives.
    ///
    /// # Errors
    /// The errors of [`Builder::build`].
    pub fn new(me: &Worker, capacity: usize) -> Result<Self> {
        Self::builder().capacity(capacity).build(me)
    }

    /// Returns a builder, for a map with other settings.
    pub fn builder() -> Builder<Self> {
        Builder::new()
    }

    /// Returns the map for this worker.
    #[inline]
    pub fn on(self, me: &Worker) -> Map<'_, K, V> {
        Map { core: Core::on(self.state, me), map: self }
    }

    /// Frees the memory of the map. All workers call this, in the same order as other collectives,
    /// after the last operation. Later operations return [`MapError::Gone`].
    ///
    /// # Errors
    /// [`MapError::Gone`], or a process is lost, the job's deadline has passed, or the workers call
    /// different collectives ([`Worker::quiesce`]). After an error the memory stays until the job
    /// ends.
    ///
    /// # Panics
    /// If this worker still has a [`Batch`] of the map.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        self.on(me).core.own_part()?;
        // All of them, so that no worker leaves the others waiting.
        let channels = self.channels.free(me);
        let memory = self.on(me).core.state.free(me);
        channels.and(memory).and(self.state.free(me))
    }
}

impl<K: 'static, V: 'static> Clone for HashMap<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: 'static, V: 'static> Copy for HashMap<K, V> {}

impl<K: 'static, V: 'static> fmt::Debug for HashMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashMap").finish_non_exhaustive()
    }
}

impl<M> fmt::Debug for Builder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { capacity, choice, is_fixed, .. } = self.settings;
        let mut debug = f.debug_struct("Builder");
        debug.field("capacity", &capacity).field("choice", &choice).field("is_fixed", &is_fixed);
        debug.finish_non_exhaustive()
    }
}
