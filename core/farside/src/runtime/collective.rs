//! Collectives: operations in which all workers of a job take part, or all members of a [`Team`],
//! each in the same order.
//!
//! There is one mechanism. A collective is done over an ordered list of members ([`Group`]), which
//! number their collectives together. All workers are the list of themselves, which needs no memory
//! and no lookup. So every operation is written once (`operations.rs`), and is a method of
//! [`Worker`] and of [`Team`].
//!
//! Collectives are made of calls, so they need nothing else from a transport. A worker that waits
//! in one runs calls meanwhile. Values go up and down binomial trees. In a barrier, in scans and in
//! `all_gather` each member sends to the one `2^k` places away in round `k`.
//!
//! A program may break the order: one worker is at a barrier where another one broadcasts. So each
//! message names its collective by team, number, kind, type and length. A worker that receives
//! something else than it takes part in returns [`Error::CollectiveMismatch`], and never takes a
//! value of one type for one of another.

mod finish;
mod group;
mod messages;
mod operations;
mod quiescence;
mod state;
mod team;
mod waiting;

use farside_fabric::WorkerId;

pub use self::finish::Finish;
use self::group::Group;
pub(crate) use self::messages::{message_kinds, register};
pub(crate) use self::state::{Collectives, Kind};
pub use self::team::Team;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::runtime::activity::recorder::InCollective;
use crate::runtime::worker::{Sealed, Worker};
use crate::wire::Wire;

/// Makes each collective of a [`Group`] a method of [`Worker`], on all workers, and of [`Team`].
macro_rules! collectives {
    ($(
        $(#[doc = $doc:literal])*
        fn $name:ident $([$($generics:tt)*])? ($($argument:ident: $type:ty),*) -> $result:ty;
    )*) => {
        impl Worker {
            $(
                $(#[doc = $doc])*
                #[track_caller]
                pub fn $name $(<$($generics)*>)? (&self, $($argument: $type),*) -> Result<$result> {
                    let _here = InCollective::begin(self, stringify!($name));
                    Group::among(self, self.remaining().as_ref()).$name($($argument),*)
                }
            )*
        }

        collectives!(@ team Worker: $(fn $name $([$($generics)*])? ($($argument: $type),*) -> $result;)*);
    };
    // Those of a trait.
    (
        $(#[$meta:meta])* trait $trait:ident:
        $(
            $(#[doc = $doc:literal])*
            fn $name:ident $([$($generics:tt)*])? ($($argument:ident: $type:ty),*) -> $result:ty;
        )*
    ) => {
        $(#[$meta])*
        pub trait $trait: Sealed {
            $(
                $(#[doc = $doc])*
                #[track_caller]
                fn $name $(<$($generics)*>)? (&self, $($argument: $type),*) -> Result<$result>;
            )*
        }

        impl $trait for Worker {
            $(
                fn $name $(<$($generics)*>)? (&self, $($argument: $type),*) -> Result<$result> {
                    let _here = InCollective::begin(self, stringify!($name));
                    Group::among(self, self.remaining().as_ref()).$name($($argument),*)
                }
            )*
        }

        collectives!(@ team $trait: $(fn $name $([$($generics)*])? ($($argument: $type),*) -> $result;)*);
    };
    (@ team $of:ident:
        $(fn $name:ident $([$($generics:tt)*])? ($($argument:ident: $type:ty),*) -> $result:ty;)*
    ) => {
        impl Team {
            $(
                #[doc = concat!("Does what [`", stringify!($of), "::", stringify!($name), "`] does, among the members.")]
                ///
                /// # Errors
                /// [`Error::NotInTeam`] if this worker is not a member; [`Error::PeerLost`] only if
                /// a member is lost; otherwise those of the method of [`Worker`](crate::Worker)
                /// with this name.
                ///
                /// # Panics
                #[doc = concat!("If [`", stringify!($of), "::", stringify!($name), "`] panics with these arguments.")]
                #[track_caller]
                pub fn $name $(<$($generics)*>)? (&self, me: &Worker, $($argument: $type),*) -> Result<$result> {
                    let _here = InCollective::begin(me, stringify!($name));
                    self.group(me)?.$name($($argument),*)
                }
            )*
        }
    };
}

collectives! {
    /// Waits until every worker of the job has called `barrier`. Earlier calls need not have run by
    /// then; [`quiesce`](Self::quiesce) waits for those. A worker that has left the barrier may
    /// call one that has not.
    ///
    /// ```no_run
    /// # use std::cell::Cell;
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let greeted = PerWorker::new(me, Cell::new(false))?;
    /// me.call(me.neighbor(1), greeted, |there, greeted| greeted.here(there).set(true))?;
    /// me.barrier()?;
    /// // All workers have made their calls. That to this worker may still be on its way.
    /// me.quiesce()?;
    /// assert!(greeted.here(me).get());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: one call in each of log₂(workers) rounds.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`].
    fn barrier() -> ();

    /// Sends `value` of worker `root` to all workers and returns it. The values of the other
    /// workers are ignored.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let root = WorkerId::FIRST;
    /// let seed = me.broadcast(root, (me.id() == root).then_some(42_u64))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: a tree of calls. Each worker receives the value once and passes it on to at most
    /// log₂(workers) others.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`. [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective;
    /// [`Error::Deadline`] if one does not come in time; [`Error::InHandler`] in a handler. In a
    /// job of several binaries also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and
    /// [`Error::Wire`].
    ///
    /// # Panics
    /// If the root has no value.
    fn broadcast[T: Wire + Clone](root: WorkerId, value: Option<T>) -> T;

    /// Sends the values of all workers to worker `root`. The root gets them in the order of the
    /// workers, the others get `None`.
    ///
    /// *Cost*: one call from each worker to the root.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`; [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective;
    /// [`Error::Deadline`] if one does not come in time; [`Error::InHandler`] in a handler. In a
    /// job of several binaries also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and
    /// [`Error::Wire`].
    fn gather[T: Wire](root: WorkerId, value: T) -> Option<Vec<T>>;

    /// Returns the values of all workers, in the order of the workers, on all of them.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(3, 1, 1, |me| {
    ///     let all = me.all_gather(10 * me.id().number())?;
    ///     assert_eq!(all, [0, 10, 20]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: one call in each of log₂(workers) rounds. Each carries twice as many values as the
    /// one before it.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn all_gather[T: Wire + Clone](value: T) -> Vec<T>;

    /// Combines the values of all workers, in the order of the workers, and returns the result on
    /// all of them. `combine` must be associative; it need not be commutative.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let total = me.all_reduce(me.counters().executed, |a, b| a + b)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: a tree of calls towards the root, and a broadcast.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn all_reduce[T: Wire + Clone](value: T, combine: impl FnMut(T, T) -> T) -> T;

    /// Combines the values of all workers as [`all_reduce`](Self::all_reduce) does, and returns the
    /// result on worker `root`. The others get `None`.
    ///
    /// *Cost*: a tree of calls towards worker 0, which sends the result to the root.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`; [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective;
    /// [`Error::Deadline`] if one does not come in time; [`Error::InHandler`] in a handler. In a
    /// job of several binaries also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and
    /// [`Error::Wire`].
    fn reduce[T: Wire](root: WorkerId, value: T, combine: impl FnMut(T, T) -> T) -> Option<T>;

    /// Divides the workers into teams: those that pass the same `colour` become a [`Team`], in the
    /// order of their `key`. Workers with the same key keep their order.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(3, 1, 1, |me| {
    ///     // The last two workers, in reverse order.
    ///     let team = me.split(u64::from(me.is_first()), u64::from(9 - me.id().number()))?;
    ///     assert_eq!(team.members().len(), if me.is_first() { 1 } else { 2 });
    ///     assert_eq!(team.place(), [0, 1, 0][me.id().index()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: an [`all_gather`](Self::all_gather).
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn split(colour: u64, key: u64) -> Team;

    /// Runs `work`, and then waits for the calls that all workers make through the scope, and for
    /// those that the called functions make through it. Other calls are not waited for.
    ///
    /// ```
    /// # use std::cell::Cell;
    /// # use farside::prelude::*;
    /// # use farside::Finish;
    /// type Count = PerWorker<Cell<u64>>;
    /// fn spread(scope: &Finish<'_>, (count, depth): (Count, u32)) {
    ///     let here = count.here(scope);
    ///     here.set(here.get() + 1);
    ///     for to in scope.workers().take(depth as usize) {
    ///         scope.call(to, (count, depth - 1), spread).unwrap();
    ///     }
    /// }
    /// farside::simulate(3, 1, 1, |me| {
    ///     let count = Count::new(me, Cell::new(0))?;
    ///     me.finish(|scope| Ok(scope.call(me.neighbor(1), (count, 2), spread)?))?;
    ///     let total = me.all_reduce(count.here(me).get(), |a, b| a + b)?;
    ///     assert_eq!(total, 3 * (1 + 2 + 2));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// Everything that the calls wrote is visible then. A worker that has returned may call one
    /// that has not. After a loss, call [`Team::finish`] on the team of the
    /// [survivors](crate::Losses::survivors).
    ///
    /// *Cost*: two or more times that of [`all_reduce`](Self::all_reduce), and 16 bytes with each
    /// call.
    ///
    /// # Errors
    /// The error of `work`, without waiting. [`Error::PeerLost`] if a process of the job is lost;
    /// [`Error::CollectiveMismatch`] if another worker calls another collective;
    /// [`Error::Deadline`] if one does not come in time, or calls do not end; [`Error::InHandler`]
    /// in a handler. In a job of several binaries also [`Error::CollectiveOverrun`].
    fn finish[R](work: impl FnOnce(&Finish<'_>) -> Result<R>) -> R;
}

collectives! {
    /// Collectives of slices, those that scatter or exchange values, and scans.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    trait MoreCollectives:

    /// Sends a value to each worker, and returns the values that came from each worker, both in the
    /// order of the workers. Values may be vectors of different lengths.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(3, 1, 1, |me| {
    ///     let own = me.id().number();
    ///     // To each worker as many elements as its number says.
    ///     let sent = (0..me.worker_count()).map(|to| vec![own; to as usize]).collect();
    ///     let received: Vec<Vec<u32>> = me.all_to_all(sent)?;
    ///     for (from, values) in received.into_iter().enumerate() {
    ///         assert_eq!(values, vec![from as u32; own as usize]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: one call from each worker to each other.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    ///
    /// # Panics
    /// If the number of values is not that of the workers.
    fn all_to_all[T: Wire](values: Vec<T>) -> Vec<T>;

    /// Replaces the elements of all workers by those of worker `root`, as
    /// [`broadcast`](Worker::broadcast) does with one value.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`; [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective,
    /// or passes another length; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn broadcast_slice[T: Wire + Clone](root: WorkerId, values: &mut [T]) -> ();

    /// Sends the elements of all workers to worker `root`, as [`gather`](Worker::gather) does with
    /// one value. The root gets the elements of worker 0 first, then those of worker 1, and so on.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`; [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective,
    /// or passes another length; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn gather_slice[T: Wire + Clone](root: WorkerId, values: &[T]) -> Option<Vec<T>>;

    /// Returns the elements of all workers on all of them, as [`all_gather`](Worker::all_gather)
    /// does with one value: those of worker 0 first.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective, or passes another length; [`Error::Deadline`] if
    /// one does not come in time; [`Error::InHandler`] in a handler. In a job of several binaries
    /// also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn all_gather_slice[T: Wire + Clone](values: &[T]) -> Vec<T>;

    /// Gives each worker one value of worker `root`, in the order of the workers. The values of the
    /// other workers are ignored.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(3, 1, 1, |me| {
    ///     let root = WorkerId::new(1);
    ///     let own = me.scatter(root, (me.id() == root).then(|| vec![1.5, 2.5, 3.5]))?;
    ///     assert_eq!(own, [1.5, 2.5, 3.5][me.id().index()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: one call from the root to each worker.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`; [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective;
    /// [`Error::Deadline`] if one does not come in time; [`Error::InHandler`] in a handler. In a
    /// job of several binaries also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and
    /// [`Error::Wire`].
    ///
    /// # Panics
    /// If the root does not pass a value for each worker.
    fn scatter[T: Wire](root: WorkerId, values: Option<Vec<T>>) -> T;

    /// Gives each worker its part of the slice `from` of worker `root`, as
    /// [`scatter`](Self::scatter) does with one value. The parts are as long as `into`, which is as
    /// long on all workers. `from` of the other workers is ignored.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`; [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective,
    /// or passes an `into` of another length; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    ///
    /// # Panics
    /// If `from` of the root is not as long as all parts together.
    fn scatter_slice[T: Wire + Clone](root: WorkerId, from: &[T], into: &mut [T]) -> ();

    /// Exchanges blocks, as [`all_to_all`](Self::all_to_all) exchanges values. The slice consists
    /// of a block for each worker, all of the same length. Each block is replaced by the one that
    /// came from that worker.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective, or passes another length; [`Error::Deadline`] if
    /// one does not come in time; [`Error::InHandler`] in a handler. In a job of several binaries
    /// also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    ///
    /// # Panics
    /// If the length of the slice is no multiple of the number of workers.
    fn all_to_all_slice[T: Wire + Clone](values: &mut [T]) -> ();

    /// Replaces each element by the combination of the elements at its index on all workers, as
    /// [`all_reduce`](Worker::all_reduce) does with one value.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(3, 1, 1, |me| {
    ///     let mut values = [1.5, f64::from(me.id().number())];
    ///     me.all_reduce_slice(&mut values, |a, b| a + b)?;
    ///     assert_eq!(values, [4.5, 3.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective, or passes another length; [`Error::Deadline`] if
    /// one does not come in time; [`Error::InHandler`] in a handler. In a job of several binaries
    /// also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn all_reduce_slice[T: Wire + Clone](values: &mut [T], combine: impl FnMut(T, T) -> T) -> ();

    /// Replaces each element of worker `root` by the combination of the elements at its index on
    /// all workers, as [`reduce`](Worker::reduce) does with one value. Those of the other workers
    /// stay.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no worker `root`; [`Error::PeerLost`] if a process of
    /// the job is lost; [`Error::CollectiveMismatch`] if another worker calls another collective,
    /// or passes another length; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn reduce_slice[T: Wire + Clone](root: WorkerId, values: &mut [T], combine: impl FnMut(T, T) -> T) -> ();

    /// Combines the values of the workers up to this one, in the order of the workers, with its own
    /// (an inclusive scan). `combine` must be associative; it need not be commutative.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(3, 1, 1, |me| {
    ///     let sum = me.scan(me.id().number() + 1, |a, b| a + b)?;
    ///     assert_eq!(sum, [1, 3, 6][me.id().index()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: one call and up to two combinations in each of log₂(workers) rounds.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn scan[T: Wire + Clone](value: T, combine: impl FnMut(T, T) -> T) -> T;

    /// Replaces each element by the result of a [`scan`](Self::scan) of the elements at its index.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective, or passes another length; [`Error::Deadline`] if
    /// one does not come in time; [`Error::InHandler`] in a handler. In a job of several binaries
    /// also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn scan_slice[T: Wire + Clone](values: &mut [T], combine: impl FnMut(T, T) -> T) -> ();

    /// Combines the values of the workers before this one, as [`scan`](Self::scan) does, without
    /// its own. The first worker gets `None`.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(3, 1, 1, |me| {
    ///     // The place at which each worker begins to write, if it writes `length` elements.
    ///     let length = 10 * me.id().index();
    ///     let start = me.exclusive_scan(length, |a, b| a + b)?.unwrap_or(0);
    ///     assert_eq!(start, [0, 0, 10][me.id().index()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn exclusive_scan[T: Wire + Clone](value: T, combine: impl FnMut(T, T) -> T) -> Option<T>;

    /// Replaces each element by the result of an [`exclusive_scan`](Self::exclusive_scan) of the
    /// elements at its index. Those of the first worker stay as they are.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective, or passes another length; [`Error::Deadline`] if
    /// one does not come in time; [`Error::InHandler`] in a handler. In a job of several binaries
    /// also [`Error::CollectiveOverrun`], [`Error::NotPortable`] and [`Error::Wire`].
    fn exclusive_scan_slice[T: Wire + Clone](values: &mut [T], combine: impl FnMut(T, T) -> T) -> ();
}

impl Worker {
    /// Waits until all workers make the same thing, of the same type: a [`barrier`](Self::barrier)
    /// that takes nothing else for it.
    pub(crate) fn meet<T: 'static>(&self, kind: Kind) -> Result<()> {
        Group::among(self, self.remaining().as_ref()).meet::<T>(kind)
    }
}
