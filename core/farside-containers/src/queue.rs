//! [`Queue`]: a bounded queue in the memory of one process, which all workers use.

mod ends;
mod losses;
mod one_sided;
mod phases;
mod ring;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use farside::bytemuck::{CheckedBitPattern, NoUninit};
use farside::global::ByteSpace;
use farside::{Error, Losses, MakeArrays, PerWorker, ProcessId, Result, Wire, Worker, WorkerId};

pub use self::ends::Ends;
use self::ring::Ring;
use crate::agreement::find_unequal;
use crate::cost::{CostModel, Load, Planner, interval_of_neighbor};
pub use crate::phase::{Kind, Local, Phase, Popping, Pops, Pushes, Pushing};
use crate::promise::{Choice, Implementation, Op, Promise};

/// Types that a queue may hold: plain ones, without padding. What is read is checked to be a value.
pub trait Item: Wire + NoUninit + CheckedBitPattern {}

impl<T: Wire + NoUninit + CheckedBitPattern> Item for T {}

/// How workers use a queue, as a promise says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Usage {
    #[default]
    All,
    PushOnly,
    PopOnly,
    Local,
}

impl Usage {
    #[inline]
    fn of(promise: Promise, op: Op) -> Result<Self, QueueError> {
        if !promise.permits(op) {
            return Err(QueueError::NotPermitted { op, promise });
        }
        Ok(match op {
            _ if promise.is_local() => Self::Local,
            _ if promise.permits(Op::Push) && promise.permits(Op::Pop) => Self::All,
            Op::Push => Self::PushOnly,
            _ => Self::PopOnly,
        })
    }

    fn promise(self) -> Promise {
        match self {
            Self::All => Promise::ALL,
            Self::PushOnly => Promise::PUSH_ONLY,
            Self::PopOnly => Promise::POP_ONLY,
            Self::Local => Promise::LOCAL,
        }
    }
}

/// The operations whose costs decide.
const OPS: [Op; 2] = [Op::Push, Op::Pop];

/// Why an operation on a queue failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// No queue has this capacity.
    #[error(
        "a queue cannot have room for {capacity} items of {item_bytes} bytes: use 1 or more, and less than 256 GiB"
    )]
    Capacity {
        /// The capacity.
        capacity: u64,
        /// The size of an item.
        item_bytes: usize,
    },
    /// The workers passed different arguments.
    #[error("{worker} makes or resizes another queue than worker 0: pass the same arguments on every worker")]
    Unequal {
        /// A worker with other arguments.
        worker: WorkerId,
    },
    /// The queue cannot become so small.
    #[error("a queue with {items} items cannot get room for {capacity} only: pop some first")]
    TooSmall {
        /// The number of items, of the fullest queue of a set.
        items: u64,
        /// The capacity.
        capacity: u64,
    },
    /// The queue was freed, or its handle is of another job or used on a thread of a pool.
    #[error(
        "this thread has no such queue: it was freed, or the handle is of another job; use a handle on the workers of its job, until `free`"
    )]
    Gone,
    /// The promise, that of a call or of the phase, does not permit the operation.
    #[error("the promise {promise} does not permit a {op:?} at a queue: end the phase first, or make another promise")]
    NotPermitted {
        /// The operation.
        op: Op,
        /// The promise.
        promise: Promise,
    },
    /// The queue was used under [`Promise::LOCAL`] elsewhere.
    #[error("the queue lies in {host}, and only workers there may use it under a local promise")]
    NotLocal {
        /// The process that has the queue.
        host: ProcessId,
    },
    /// All slots are retired, after losses and pushes that failed.
    #[error(
        "all {slots} slots of the queue are retired after losses and failed pushes: resize it, or make another queue"
    )]
    WornOut {
        /// The number of slots.
        slots: u64,
    },
    /// The place of an item is not free yet, because earlier pushes timed out when they took their
    /// places.
    #[error(
        "item {ticket} of the queue has no free slot, because earlier pushes timed out: push it again after some pops"
    )]
    NoSlot {
        /// The number of the item since the queue was made.
        ticket: u64,
    },
    /// A slot holds what is no value of the item's type.
    #[error("item {ticket} of the queue is no value of its type: a worker overwrote the memory of the queue")]
    NoValue {
        /// The number of the item since the queue was made.
        ticket: u64,
    },
}

impl From<QueueError> for Error {
    fn from(error: QueueError) -> Self {
        Self::Room(Box::new(error))
    }
}

/// A bounded queue in the memory of one process, which all workers of the job use.
///
/// The handle is `Copy` and may travel. [`on`](Self::on) returns the ends of the queue for one
/// worker.
///
/// ```
/// use farside::ProcessId;
/// use farside_containers::queue::Queue;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let queue = Queue::<u64>::new(me, ProcessId::new(0), 100)?;
/// let ends = queue.on(me);
/// assert_eq!(ends.push(u64::from(me.id().number()))?, Ok(()));
/// me.barrier()?;
/// if me.is_first() {
///     let mut got = ends.pop_many(10)?;
///     got.sort_unstable();
///     assert_eq!(got, [0, 1, 2]);
///     assert_eq!(ends.pop()?, None);
/// }
/// queue.free(me)
/// # }).unwrap();
/// ```
///
/// The queue has room for `capacity` items. If several workers push at the same time into a queue
/// that is almost full, each may bring one [batch](Ends::push_all) more. The items of one worker
/// are popped in the order in which it pushed them.
///
/// The [`Implementation`] says how the queue works, and a [`Promise`] makes it cheaper:
///
/// - `OneSided`: puts, gets and atomics, with a stamp in each slot.
/// - `Checksum`: as `OneSided`, with a checksum of 64 bits (XXH3, keyed by the ticket) in place of
///   the stamp. An item then needs one put without an order, and one get. A torn item passes by
///   chance with a probability of 2⁻⁶⁴; where a network may tear an item of `n` bytes within a
///   word, of 256⁻ⁿ for short ones.
/// - `Call`: calls of the first worker of the process that has the queue.
///
/// *Cost*, with W for a put, R for a get and A for an atomic change:
///
/// | | one-sided | checksum | call |
/// |---|---|---|---|
/// | push | A + W | A + W | a call |
/// | pop, all | 2R + A | R + A | a call |
/// | pop, pop-only | A + R | A + R | a call |
/// | push and pop, local | loads and stores | the same | loads and stores |
///
/// The A of a pop is a compare-and-swap, repeated if another worker pops at the same time. A push
/// asks for the head (2R) when it knows of no more room. A pop asks for the head and the tail when
/// it finds no item. A batch of items takes the same number of operations as one item, and a pop
/// that begins inside a batch one R more.
///
/// *Memory*: a power of two of slots, less than four times the capacity or four times the number of
/// workers, whichever is more. A slot is eight bytes longer than an item, rounded up to eight
/// bytes. Up to 64 bytes it takes a power of two.
///
/// *Loss*: without the process that has the queue, everything is [`Error::PeerLost`]. If another
/// process is lost while it pushes, its item may be left out. The next pop that comes to its place
/// asks all workers whether the item is theirs. Until all have answered, which they do when they
/// make progress, pops return `None`. So do pops in called functions, which cannot ask. The slot is
/// never used again, since the lost process may yet write there: see
/// [`retired_slots`](Ends::retired_slots). An item that a lost process has popped is gone. Phases
/// fail until the others [go on](farside::Losses::go_on). Then [`resize`](Self::resize) and
/// [`free`](Self::free) still return [`Error::PeerLost`], and the memory stays until the job ends.
///
/// *Failed pushes* leave the same behind. A push whose request for a place times out does not know
/// its place. Pops ask for it when they have met it for a second, or for the job's deadline if that
/// is shorter.
///
/// *Broken promises* are found where accesses are [checked](farside::AccessConflict). If two
/// workers push and pop at the same time, and one of them has promised that this does not happen,
/// one gets a [`BrokenPromise`](crate::BrokenPromise) that names both places.
///
/// These are the queues of the Berkeley Container Library (`CircularQueue`, `FastQueue` and
/// `ChecksumQueue`), without their second counters.
#[derive(Wire)]
pub struct Queue<T: 'static> {
    state: PerWorker<State<T>>,
    index: u32,
}

/// Queues of one kind, one in each process.
///
/// ```
/// use farside_containers::queue::QueueSet;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let set = QueueSet::<u32>::new(me, 100)?;
/// let next = me.process_of(me.neighbor(1));
/// set.at(next).on(me).push(me.id().number())?.expect("there is room");
/// me.barrier()?;
/// let previous = me.neighbor(me.worker_count() - 1);
/// assert_eq!(set.at(me.process()).on(me).pop()?, Some(previous.number()));
/// set.free(me)
/// # }).unwrap();
/// ```
#[derive(Wire)]
pub struct QueueSet<T: 'static> {
    state: PerWorker<State<T>>,
    count: u32,
}

/// The queues of a set as a worker knows them.
struct State<T> {
    /// The requested implementation, or a choice.
    choice: Choice,
    /// The memory of all of them.
    space: RefCell<Option<ByteSpace>>,
    parts: Box<[Rc<Part<T>>]>,
}

/// A queue as a worker knows it. Counters only grow, so the known values may be too small.
struct Part<T> {
    /// The process that has the queue, and its first worker.
    host: (ProcessId, WorkerId),
    implementation: Cell<Implementation>,
    planner: Cell<Planner>,
    ring: Cell<Ring>,
    /// The real tail, or less. At most one batch of this worker's tickets is above the real limit,
    /// because it takes tickets only if this one is below `limit`.
    tail: Cell<u64>,
    /// Items with smaller tickets find room.
    limit: Cell<u64>,
    /// The real head, or less.
    head: Cell<u64>,
    /// Items with smaller tickets are there: for pops under a promise.
    ready: Cell<u64>,
    /// The first ticket of a batch that is whole.
    whole: Cell<u64>,
    /// The promise of the present phase.
    phase: Cell<Usage>,
    /// The tickets of a push under way: the first, and the one behind the last.
    open: Cell<(u64, u64)>,
    /// The number of retirements that `retired` knows of.
    retirements: Cell<u64>,
    /// The retired slots, a bit each.
    retired: RefCell<Vec<u64>>,
    /// The number of retirements after which all workers were asked to look at them.
    agreed: Cell<u64>,
    /// A ticket at the head whose item is not there, and when it was first seen there.
    standing: Cell<Option<(u64, Instant)>>,
    /// True if operations are announced, to find those that break a promise.
    are_announced: bool,
    /// True if a push failed while it took its tickets, so that this worker may have some that it
    /// does not know.
    has_doubt: Cell<bool>,
    /// Room for a batch of slots that are read. No call runs while it is borrowed.
    buffer: RefCell<Vec<u8>>,
    /// Room for a batch of slots that are written. Calls may run while it is borrowed, but only if
    /// the memory is not mapped, and then they cannot push.
    outgoing: RefCell<Vec<u8>>,
    /// The items of a queue that works by calls, at the worker that has them.
    items: RefCell<VecDeque<T>>,
}

impl<T: Item> Part<T> {
    fn new(me: &Worker, host: ProcessId, implementation: Implementation, planner: Planner) -> Self {
        let worker = me.workers().find(|worker| me.process_of(*worker) == host);
        Self {
            host: (host, worker.unwrap_or(me.id())),
            implementation: Cell::new(implementation),
            planner: Cell::new(planner),
            ring: Cell::new(Ring::FREED),
            tail: Cell::default(),
            limit: Cell::default(),
            head: Cell::default(),
            ready: Cell::default(),
            whole: Cell::default(),
            phase: Cell::default(),
            open: Cell::default(),
            retirements: Cell::default(),
            retired: RefCell::default(),
            agreed: Cell::default(),
            standing: Cell::default(),
            are_announced: me.access_checks().is_some(),
            has_doubt: Cell::default(),
            buffer: RefCell::default(),
            outgoing: RefCell::default(),
            items: RefCell::default(),
        }
    }

    /// Returns the part of a queue that this worker has not. It has no ring.
    #[cold]
    fn gone(me: &Worker) -> Self {
        Self::new(me, me.process(), Implementation::default(), Planner::by(CostModel::CORI))
    }

    /// Begins with an empty ring, whose counters are `start`.
    fn begin(&self, ring: Ring, start: u64) {
        self.ring.set(ring);
        for counter in [&self.tail, &self.head, &self.ready, &self.limit] {
            counter.set(start);
        }
        self.whole.set(u64::MAX);
        self.retirements.set(0);
        self.retired.take();
        self.agreed.set(0);
        self.standing.set(None);
        self.has_doubt.set(false);
        for buffer in [&self.buffer, &self.outgoing] {
            *buffer.borrow_mut() = vec![0; ring.batch as usize * ring.slot_bytes()];
        }
    }
}

impl<T: Item> State<T> {
    /// Makes memory for the queues. Collective.
    fn allocate(&self, me: &Worker, capacity: u64) -> Result<(Ring, ByteSpace)> {
        let ring = Ring::new::<T>(capacity, me.worker_count())?;
        let (first, count) = (self.parts[0].host.0, self.parts.len() as u32);
        Ok((ring, me.byte_space(first, count, ring.bytes())?))
    }

    /// Lets the queues begin in new memory, and returns the old one.
    fn begin(&self, me: &Worker, (ring, space): (Ring, ByteSpace), start: u64) -> Result<Option<ByteSpace>> {
        for (part, offset) in self.parts.iter().zip((0..).step_by(ring.bytes() as usize)) {
            let ring = ring.at(space.address(offset)?);
            part.begin(ring, start);
            if part.host.1 == me.id() {
                for word in [ring.tail(), ring.head()] {
                    word.store(me, start)?;
                }
            }
        }
        Ok(self.space.replace(Some(space)))
    }
}

/// Makes queues, one in each of `count` processes from `first` on.
fn make<T: Item>(
    me: &Worker,
    (first, count): (ProcessId, u32),
    capacity: u64,
    (choice, model): (Choice, Option<CostModel>),
    start: u64,
) -> Result<PerWorker<State<T>>> {
    agree_on(me, (first, capacity, choice, (model.is_some(), start)))?;
    // All use the one queue, but in a set each may use its own.
    let contenders = if count == 1 { f64::from(me.worker_count() - 1) } else { 0.0 };
    let load = Load { own_share: 1.0 / f64::from(me.process_count()), contenders, ..Load::default() };
    let (implementation, planner) = Planner::decide(me, choice, model, load, OPS)?;
    let hosts = (0..count).map(|distance| ProcessId::new(first.number().saturating_add(distance)));
    let parts = hosts.map(|host| Rc::new(Part::new(me, host, implementation, planner))).collect();
    let state = State { choice, space: RefCell::default(), parts };
    let memory = state.allocate(me, capacity)?;
    state.begin(me, memory, start)?;
    // No worker returns before all are here, with their words stored.
    PerWorker::new(me, state)
}

/// Refuses different arguments on every worker. Collective.
fn agree_on(me: &Worker, arguments: impl Wire + Clone + PartialEq) -> Result<()> {
    find_unequal(me, arguments)?.map_or(Ok(()), |worker| Err(QueueError::Unequal { worker }.into()))
}

/// Moves the items of all queues of a set into new memory, where they may work in another way.
/// Whatever can fail on one worker alone does so before the queues change.
fn renew<T: Item>(
    here: &State<T>,
    queues: &[Queue<T>],
    me: &Worker,
    capacity: u64,
    implementation: Implementation,
) -> Result<()> {
    agree_on(me, capacity)?;
    let own: Vec<_> = queues.iter().map(|queue| queue.on(me)).filter(Ends::is_host).collect();
    let contents: Result<Vec<_>> = own.iter().map(Ends::contents).collect();
    let most = match &contents {
        Ok(contents) => Ok(contents.iter().map(|items| items.len() as u64).max().unwrap_or(0)),
        Err(error) => match error.room_error() {
            Some(QueueError::NoValue { ticket }) => Err(*ticket),
            _ => return contents.map(drop),
        },
    };
    let most = me.all_reduce(most, |one, other| Ok(one?.max(other?)))?;
    let items = most.map_err(|ticket| QueueError::NoValue { ticket })?;
    if items > capacity {
        return Err(QueueError::TooSmall { items, capacity }.into());
    }
    let old = here.begin(me, here.allocate(me, capacity)?, 0)?;
    here.parts.iter().for_each(|part| part.implementation.set(implementation));
    for (ends, items) in own.iter().zip(contents?) {
        ends.refill(items)?;
    }
    old.map_or(Ok(()), |old| old.free(me))
}

/// Lets worker 0 choose again how all queues of a set work, and moves their items if that changes.
fn choose_again<T: Item>(here: &State<T>, queues: &[Queue<T>], me: &Worker) -> Result<Implementation> {
    let interval = interval_of_neighbor(me);
    // A worker that fails goes on to the collectives, where the others wait.
    let sum = me.all_reduce(interval.as_ref().copied().unwrap_or_default(), |one, other| one + other)?;
    let part = &here.parts[0];
    let planner = part.planner.get().at_interval(sum / me.remaining_workers().len() as u32);
    here.parts.iter().for_each(|part| part.planner.set(planner));
    let now = part.implementation.get();
    if here.choice == Implementation::Auto {
        let chosen = planner.choose(me, OPS, Some(now))?;
        if chosen != now {
            renew(here, queues, me, part.ring.get().capacity, chosen)?;
        }
    }
    interval.map(|_| part.implementation.get())
}

fn free<T: Item>(state: PerWorker<State<T>>, me: &Worker) -> Result<()> {
    let here = state.hold(me).ok_or(QueueError::Gone)?;
    // Other workers may use the queue until they are here, too.
    me.barrier()?;
    for part in &here.parts {
        part.begin(Ring::FREED, 0);
        part.items.take();
    }
    let freed = here.space.take().map_or(Ok(()), |space| space.free(me));
    drop(here);
    // Other workers wait in this.
    freed.and(state.free(me))
}

impl<T: Item> Queue<T> {
    /// Makes a queue with room for `capacity` items in the process `host`. All workers call this,
    /// in the same order as other collectives and with the same arguments.
    ///
    /// # Errors
    /// [`QueueError::Capacity`]; [`QueueError::Unequal`]; the memory cannot be allocated, or a
    /// process is lost ([`Worker::byte_space`](farside::MakeArrays::byte_space)).
    pub fn new(me: &Worker, host: ProcessId, capacity: u64) -> Result<Self> {
        Self::with_implementation(me, host, capacity, Implementation::default())
    }

    /// Makes a queue that works in another way. With [`Implementation::Auto`] worker 0 chooses: the
    /// implementation whose push and pop together cost least, while nothing is promised, by costs
    /// that all workers [measure](CostModel::measure) together.
    ///
    /// # Errors
    /// [`QueueError::Capacity`]; [`QueueError::Unequal`]; the memory cannot be allocated, or a
    /// process is lost, with `Auto` also while the costs are measured ([`CostModel::measure`]).
    pub fn with_implementation(
        me: &Worker,
        host: ProcessId,
        capacity: u64,
        implementation: impl Into<Choice>,
    ) -> Result<Self> {
        let state = make(me, (host, 1), capacity, (implementation.into(), None), 0)?;
        Ok(Self { state, index: 0 })
    }

    /// As [`with_implementation`](Self::with_implementation), with the costs that
    /// [`Implementation::Auto`] and [`Ends::plan`] follow.
    ///
    /// ```
    /// use farside::ProcessId;
    /// use farside_containers::queue::Queue;
    /// use farside_containers::{CostModel, Implementation, Op, Promise};
    ///
    /// # farside::simulate(2, 1, 1, |me| {
    /// let (host, model) = (ProcessId::new(0), CostModel::CORI);
    /// let queue = Queue::<u64>::with_cost_model(me, host, 100, Implementation::Auto, model)?;
    /// let ends = queue.on(me);
    /// println!("{}", ends.plan(Op::Push, Promise::PUSH_ONLY));
    /// assert_eq!(ends.plan(Op::Pop, Promise::ALL).choice, Implementation::Call);
    /// assert_eq!(ends.implementation(), Implementation::Call);
    /// # me.barrier()
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`QueueError::Capacity`]; [`QueueError::Unequal`]; the memory cannot be allocated, or a
    /// process is lost.
    pub fn with_cost_model(
        me: &Worker,
        host: ProcessId,
        capacity: u64,
        implementation: impl Into<Choice>,
        model: CostModel,
    ) -> Result<Self> {
        let state = make(me, (host, 1), capacity, (implementation.into(), Some(model)), 0)?;
        Ok(Self { state, index: 0 })
    }

    /// Makes a queue whose counters begin at `start`, for tests.
    #[doc(hidden)]
    pub fn starting_at(
        me: &Worker,
        host: ProcessId,
        capacity: u64,
        implementation: Implementation,
        start: u64,
    ) -> Result<Self> {
        Ok(Self { state: make(me, (host, 1), capacity, (implementation.into(), None), start)?, index: 0 })
    }

    /// Returns the ends of the queue for this worker.
    pub fn on(self, me: &Worker) -> Ends<'_, T> {
        let part = self.state.hold(me).and_then(|state| state.parts.get(self.index as usize).cloned());
        Ends { me, queue: self, part: part.unwrap_or_else(|| Rc::new(Part::gone(me))) }
    }

    /// Gives the queue another capacity, and moves its items. If it is one of a set, all of the set
    /// get it. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`QueueError::TooSmall`] if the items do not fit, and [`QueueError::Unequal`]: nothing has
    /// changed then. [`QueueError::Gone`]; [`QueueError::Capacity`]; the memory cannot be
    /// allocated, or a process is lost.
    pub fn resize(self, me: &Worker, capacity: u64) -> Result<()> {
        self.set(me)?.resize(me, capacity)
    }

    /// Chooses the implementation again if the queue was made with [`Implementation::Auto`], moves
    /// its items if that changes, and returns it. If the queue is one of a set, all of the set
    /// change. All workers call this, in the same order as other collectives. No operation on the
    /// queue may run meanwhile, also none in called functions.
    ///
    /// Each worker first measures how often the next one looks at its calls, by
    /// [`Worker::progress_interval`]. With the mean of that, worker 0 predicts the costs. The queue
    /// changes its implementation if another one costs less than four fifths.
    ///
    /// *Cost*: that of [`Worker::progress_interval`], and of [`resize`](Self::resize) if the
    /// implementation changes.
    ///
    /// # Errors
    /// [`QueueError::Gone`]; a process is lost, or the job's deadline has passed
    /// ([`Worker::progress_interval`], [`resize`](Self::resize)).
    pub fn choose_again(self, me: &Worker) -> Result<Implementation> {
        self.set(me)?.choose_again(me)
    }

    /// Returns the set that the queue is one of, or a set of this queue alone.
    fn set(self, me: &Worker) -> Result<QueueSet<T>> {
        let count = self.state.hold(me).ok_or(QueueError::Gone)?.parts.len() as u32;
        Ok(QueueSet { state: self.state, count })
    }

    /// Frees the memory of the queue, and of its set if it is one of a set. Items in it are
    /// dropped. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`QueueError::Gone`]; a process is lost, or the job's deadline has passed
    /// ([`Worker::barrier`]). The memory is then kept until the job
    /// ends.
    pub fn free(self, me: &Worker) -> Result<()> {
        free(self.state, me)
    }
}

impl<T: Item> QueueSet<T> {
    /// Makes a queue with room for `capacity` items in each process. All workers call this, in the
    /// same order as other collectives and with the same arguments.
    ///
    /// # Errors
    /// [`QueueError::Capacity`]; [`QueueError::Unequal`]; the memory cannot be allocated, or a
    /// process is lost.
    pub fn new(me: &Worker, capacity: u64) -> Result<Self> {
        Self::with_implementation(me, capacity, Implementation::default())
    }

    /// Makes queues that work in another way: [`Queue::with_implementation`].
    ///
    /// # Errors
    /// [`QueueError::Capacity`]; [`QueueError::Unequal`]; the memory cannot be allocated, or a
    /// process is lost, with `Auto` also while the costs are measured ([`CostModel::measure`]).
    pub fn with_implementation(me: &Worker, capacity: u64, implementation: impl Into<Choice>) -> Result<Self> {
        Self::make(me, capacity, (implementation.into(), None))
    }

    /// Makes queues with the costs that a choice follows: [`Queue::with_cost_model`].
    ///
    /// # Errors
    /// [`QueueError::Capacity`]; [`QueueError::Unequal`]; the memory cannot be allocated, or a
    /// process is lost.
    pub fn with_cost_model(
        me: &Worker,
        capacity: u64,
        implementation: impl Into<Choice>,
        model: CostModel,
    ) -> Result<Self> {
        Self::make(me, capacity, (implementation.into(), Some(model)))
    }

    fn make(me: &Worker, capacity: u64, how: (Choice, Option<CostModel>)) -> Result<Self> {
        let count = me.process_count();
        Ok(Self { state: make(me, (ProcessId::new(0), count), capacity, how, 0)?, count })
    }

    /// Returns the queue in a process.
    ///
    /// # Panics
    /// If there is no such process.
    #[track_caller]
    pub fn at(self, process: ProcessId) -> Queue<T> {
        assert!(process.number() < self.count, "{process} does not exist: the set has {} queues", self.count);
        Queue { state: self.state, index: process.number() }
    }

    /// Gives all queues another capacity: [`Queue::resize`].
    ///
    /// # Errors
    /// [`QueueError::TooSmall`], [`QueueError::Unequal`] and [`QueueError::Capacity`], after which
    /// nothing has changed; [`QueueError::Gone`]; a process is lost.
    pub fn resize(self, me: &Worker, capacity: u64) -> Result<()> {
        let here = self.state.hold(me).ok_or(QueueError::Gone)?;
        renew(&here, &self.queues(), me, capacity, here.parts[0].implementation.get())
    }

    /// Chooses the implementation of all queues again: [`Queue::choose_again`].
    ///
    /// # Errors
    /// [`QueueError::Gone`]; a process is lost, or the job's deadline has passed.
    pub fn choose_again(self, me: &Worker) -> Result<Implementation> {
        let here = self.state.hold(me).ok_or(QueueError::Gone)?;
        choose_again(&here, &self.queues(), me)
    }

    fn queues(self) -> Vec<Queue<T>> {
        (0..self.count).map(|index| Queue { state: self.state, index }).collect()
    }

    /// Frees the memory of all queues: [`Queue::free`].
    ///
    /// # Errors
    /// [`QueueError::Gone`]; a process is lost, or the job's deadline has passed.
    pub fn free(self, me: &Worker) -> Result<()> {
        free(self.state, me)
    }
}

macro_rules! handle {
    ($name:ident) => {
        impl<T: 'static> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T: 'static> Copy for $name<T> {}

        impl<T: 'static> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

handle!(Queue);
handle!(QueueSet);
