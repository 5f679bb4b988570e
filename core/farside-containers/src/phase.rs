//! [`Phase`]: promises that the compiler checks.

use std::fmt;
use std::marker::PhantomData;

use farside::Result;

use crate::promise::Promise;

/// The time between two collectives in which all workers keep a promise about a container. A phase
/// has only the methods that the promise permits.
///
/// `H` is the container on one worker: a [`Map`](crate::map::Map), a
/// [`CallMap`](crate::map::CallMap) or the [`Ends`](crate::queue::Ends) of a queue. `K` is the
/// kind: [`Inserting`] or [`Finding`], [`Pushing`], [`Popping`] or [`Local`].
///
/// ```
/// use farside::ProcessId;
/// use farside_containers::map::HashMap;
/// use farside_containers::queue::Queue;
///
/// # farside::simulate(2, 1, 1, |me| {
/// let m = HashMap::<u64, u64>::new(me, 100)?.on(me);
/// let phase = m.inserting()?;
/// phase.insert(u64::from(me.id().number()), 1)?;
/// phase.end()?;
/// let phase = m.finding()?;
/// assert_eq!(phase.get(&0)?, Some(1));
/// phase.end()?;
///
/// let queue = Queue::<u32>::new(me, ProcessId::new(0), 10)?;
/// let ends = queue.on(me);
/// let pushing = ends.pushing()?;
/// pushing.push(me.id().number())?.expect("there is room");
/// pushing.end()?;
/// let popping = ends.popping()?;
/// assert!(popping.pop()?.is_some());
/// popping.end()?;
/// queue.free(me)
/// # }).unwrap();
/// ```
///
/// The methods of [`Ends`](crate::queue::Ends) work as in the phase, too, until its
/// [end](Self::end). An operation that the promise forbids is
/// [`NotPermitted`](crate::queue::QueueError::NotPermitted) there.
///
/// An operation that the promise forbids does not compile:
///
/// ```compile_fail,E0599
/// # farside::simulate(1, 1, 1, |me| {
/// let map = farside_containers::map::HashMap::<u64, u64>::new(me, 10)?;
/// let m = map.on(me);
/// let phase = m.inserting()?;
/// phase.get(&1)?;
/// # phase.end()
/// # }).unwrap();
/// ```
///
/// ```compile_fail,E0599
/// # farside::simulate(1, 1, 1, |me| {
/// let map = farside_containers::map::HashMap::<u64, u64>::new(me, 10)?;
/// let m = map.on(me);
/// let phase = m.finding()?;
/// phase.insert(1, 1)?;
/// # phase.end()
/// # }).unwrap();
/// ```
///
/// ```compile_fail,E0277
/// # use farside_containers::queue::Queue;
/// # fn example(queue: Queue<u32>, me: &farside::Worker) -> farside::Result<()> {
/// let pushing = queue.on(me).pushing()?;
/// pushing.pop()?;
/// # Ok(())
/// # }
/// ```
///
/// *Cost*: a barrier at the begin and at the [end](Self::end).
#[must_use = "all workers end a phase together"]
pub struct Phase<H: HasPhases, K: Kind> {
    pub(crate) handle: H,
    kind: PhantomData<K>,
}

/// A kind of phase.
pub trait Kind {
    /// The promise of all workers.
    const PROMISE: Promise;
}

/// Kinds of phases in which workers push.
pub trait Pushes: Kind {}

/// Kinds of phases in which workers pop.
pub trait Pops: Kind {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $promise:ident $($marker:ident)*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl Kind for $name {
            const PROMISE: Promise = Promise::$promise;
        }

        $(impl $marker for $name {})*
    )*};
}

kinds! {
    /// All workers only insert into a map.
    Inserting: INSERT_ONLY;
    /// All workers only search in a map.
    Finding: FIND_ONLY;
    /// Workers only push to a queue.
    Pushing: PUSH_ONLY Pushes;
    /// Workers only pop from a queue.
    Popping: POP_ONLY Pops;
    /// One worker uses a queue, in the process that has it.
    Local: LOCAL Pushes Pops;
}

/// Containers that have phases.
pub trait HasPhases: Sized {
    /// Returns the container for a phase under a promise, when all workers have come. Collective.
    #[doc(hidden)]
    fn begin_phase(&self, promise: Promise) -> Result<Self>;

    /// Ends a phase. Collective.
    #[doc(hidden)]
    fn end_phase(&self, promise: Promise) -> Result<()>;

    /// Takes the promise back.
    #[doc(hidden)]
    fn leave_phase(&self) {}
}

impl<H: HasPhases, K: Kind> Phase<H, K> {
    /// Begins a phase. Collective.
    pub(crate) fn begin(handle: &H) -> Result<Self> {
        Ok(Self { handle: handle.begin_phase(K::PROMISE)?, kind: PhantomData })
    }

    /// Ends the phase. All workers call this, in the same order as other collectives. The end of an
    /// inserting phase also finishes its batches.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`Worker::barrier`](farside::Worker::barrier)). Of an inserting phase also
    /// [`MapError::Batch`](crate::map::MapError::Batch).
    pub fn end(self) -> Result<()> {
        self.handle.end_phase(K::PROMISE)
    }
}

impl<H: HasPhases, K: Kind> Drop for Phase<H, K> {
    fn drop(&mut self) {
        self.handle.leave_phase();
    }
}

impl<H: HasPhases + fmt::Debug, K: Kind> fmt::Debug for Phase<H, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phase").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// The phases of a map, whose keys and values have these bounds.
macro_rules! phases_of_maps {
    ($map:ident, [$($key:tt)+], [$($value:tt)+]) => {
        impl<'w, K: $($key)+, V: $($value)+> $map<'w, K, V> {
            /// Begins a phase in which all workers only insert. All workers call this, in the same
            /// order as other collectives.
            ///
            /// # Errors
            /// A process is lost, the job's deadline has passed, or the workers call different
            /// collectives ([`Worker::gather`](farside::Worker::gather)).
            pub fn inserting(&self) -> Result<$crate::Phase<Self, $crate::map::Inserting>> {
                $crate::Phase::begin(self)
            }

            /// Begins a phase in which all workers only search. All workers call this, in the same
            /// order as other collectives.
            ///
            /// # Errors
            /// A process is lost, the job's deadline has passed, or the workers call different
            /// collectives ([`Worker::gather`](farside::Worker::gather)).
            pub fn finding(&self) -> Result<$crate::Phase<Self, $crate::map::Finding>> {
                $crate::Phase::begin(self)
            }
        }

        /// The methods are those of the map, with the same errors.
        impl<'w, K: $($key)+, V: $($value)+> $crate::Phase<$map<'w, K, V>, $crate::map::Inserting> {
            /// Inserts a value. A value that is there is replaced.
            ///
            /// # Errors
            /// The errors of `insert` of the map.
            #[inline]
            #[track_caller]
            pub fn insert(&self, key: K, value: V) -> Result<Inserted> {
                self.handle.insert(key, value)
            }

            /// Inserts a value if the key is not there. Otherwise changes the value that is there.
            ///
            /// # Errors
            /// The errors of `upsert` of the map.
            #[track_caller]
            pub fn upsert(&self, key: K, value: V, change: fn(&mut V, V)) -> Result<()> {
                self.handle.upsert(key, value, change)
            }

            /// Returns a batch, which the [end](Self::end) of the phase finishes.
            ///
            /// # Errors
            /// The errors of `batch` of the map.
            pub fn batch(&self) -> Result<Batch<'_, $map<'w, K, V>>> {
                self.handle.batch()
            }
        }

        /// The methods are those of the map, with the same errors.
        impl<K: $($key)+, V: $($value)+> $crate::Phase<$map<'_, K, V>, $crate::map::Finding> {
            /// Returns the value of a key.
            ///
            /// # Errors
            /// The errors of `get` of the map.
            #[inline]
            #[track_caller]
            pub fn get(&self, key: &K) -> Result<Option<V>> {
                self.handle.get(key)
            }

            /// Returns true if a key is there.
            ///
            /// # Errors
            /// The errors of `contains_key` of the map.
            #[inline]
            #[track_caller]
            pub fn contains_key(&self, key: &K) -> Result<bool> {
                self.handle.contains_key(key)
            }

            /// Returns the values of many keys, in the order of the keys.
            ///
            /// # Errors
            /// The errors of `get_many` of the map.
            #[track_caller]
            pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
                self.handle.get_many(keys)
            }
        }
    };
}

pub(crate) use phases_of_maps;
