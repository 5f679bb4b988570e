//! [`Exchange`]: many small items to many owners.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::vec::Drain;

use farside::{Batches, Error, Losses, Pending, PerWorker, Reply, Result, WhenFull, Wire, Worker, WorkerId};

use crate::agreement::{ContainerError, held};
use crate::route::{Hop, Route};

/// The size at which an exchange sends a batch by default. The cost of a call is then small
/// compared with that of the items. Between 2 and 64 KiB the rate changes little.
pub const DEFAULT_BATCH_BYTES: usize = 8 << 10;

/// The largest size at which an exchange sends a batch. A longer item travels alone.
pub const BATCH_BYTES_MAX: usize = 64 << 10;

/// The number of batches that may be on their way to one next hop in a grid. A receiver is busy
/// with one while the next one travels.
const UNDER_WAY_MAX: u32 = 2;

/// Carries many small items to many owners, which handle them in batches.
///
/// One object serves all destinations. Each worker collects items in a batch for each next hop. It
/// sends a batch that is full. It also sends every batch when it waits or makes progress and has
/// nothing else to do. So a program does not announce that it is done: [`Worker::quiesce`] waits
/// until every item has been handled, and every item that handling these has pushed.
///
/// The handle is `Copy` and may travel. [`on`](Self::on) returns the sender of one worker, also in
/// called functions and in the function of the exchange itself.
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
/// use farside::WorkerId;
/// use farside_containers::Exchange;
///
/// # farside::simulate(3, 1, 1, |me| {
/// // Each worker counts words of its own part of a table, for all workers.
/// let counts = Rc::new(RefCell::new(vec![0_u64; 100]));
/// let part = counts.clone();
/// let counting = Exchange::new(me, move |_, words| {
///     let mut part = part.borrow_mut();
///     words.for_each(|word: u32| part[word as usize] += 1);
/// })?;
/// let sender = counting.on(me);
/// for x in 0..300_u32 {
///     sender.push(WorkerId::new(x % me.worker_count()), x / me.worker_count())?;
/// }
/// me.quiesce()?;
/// assert!(counts.borrow().iter().all(|count| *count == u64::from(me.worker_count())));
/// # Ok(())
/// # }).unwrap();
/// ```
///
/// Up to 64 workers send to each other directly. More stand in a grid of about `√P` columns, and an
/// item passes at most one worker on its way, so each worker has about `2 √P` batches. There a
/// worker answers for a batch when it has handled it, or passed it on and has few others to pass
/// on. At most two batches for one next hop are unanswered, so the items that a worker keeps for
/// others have a bound, too: at 1024 workers and 8 KiB some 130 batches, about 1 MiB.
///
/// *Order*: none between items. *Cost*: for an item of 8 bytes some nanoseconds at both sides
/// together. A worker has up to the [size of a batch](Self::with_batches_of) for each next hop. A
/// push that sends a batch waits while its receiver has no room, and runs calls that have arrived
/// here. In handlers a push cannot wait, and a batch without room is kept without a limit.
///
/// Items for a lost process, and items whose way leads over it, are dropped. A push that sends such
/// a batch returns [`Error::PeerLost`]. So does `quiesce`, until the others
/// [go on](farside::Losses::go_on). An exchange that is made then sends directly.
///
/// This is the exchange of bale (*exstack2*, *conveyors*), on calls.
#[derive(Wire)]
pub struct Exchange<T: 'static> {
    part: PerWorker<Rc<Part<T>>>,
}

/// The function of an exchange.
type Run<T> = dyn Fn(&Worker, Items<'_, T>);

/// The part of an exchange on one worker.
struct Part<T: 'static> {
    handle: OnceCell<Exchange<T>>,
    run: Box<Run<T>>,
    route: Route,
    batch_bytes: usize,
    /// The most items in a batch.
    items_max: usize,
    /// True if `push` may take its fast way: plain items, sent directly.
    is_fast: bool,
    /// At least one, or none if this worker has no such exchange.
    batches: Box<[RefCell<Batch<T>>]>,
    /// The number of batches that are not empty.
    open: Cell<usize>,
    /// True if a push makes progress, in which batches are not to be sent before they are full.
    in_push: Cell<bool>,
    /// In a grid, the number of batches on their way that are not answered, for each batch.
    under_way: Box<[Cell<u32>]>,
    /// The number of items that were dropped, and the first reason.
    dropped: RefCell<(u64, String)>,
    /// The answers to batches that were passed on while many of them were on their way.
    owed: RefCell<Vec<Reply<Answer>>>,
}

/// Items for one next hop.
struct Batch<T> {
    next: WorkerId,
    items: Vec<T>,
    /// The owner of each item, or nothing if all belong to `next`.
    owners: Vec<u32>,
    /// The bytes of the items, without those that were pushed in the fast way.
    bytes: usize,
}

impl<T: Wire + 'static> Exchange<T> {
    /// Makes an exchange, whose items `run` handles at their owner. All workers call this, in the
    /// same order as other collectives.
    ///
    /// `run` is called as a handler: it must not wait. It may push items and make calls.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`PerWorker::new`]).
    pub fn new(me: &Worker, run: impl Fn(&Worker, Items<'_, T>) + 'static) -> Result<Self> {
        Self::with_batches_of(me, DEFAULT_BATCH_BYTES, run)
    }

    /// Makes an exchange like [`new`](Self::new) that sends a batch when it has `batch_bytes`
    /// bytes, at most [`BATCH_BYTES_MAX`]. The first item of a batch reserves all of them if the
    /// items are plain.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`PerWorker::new`]).
    pub fn with_batches_of(
        me: &Worker,
        batch_bytes: usize,
        run: impl Fn(&Worker, Items<'_, T>) + 'static,
    ) -> Result<Self> {
        let batch_bytes = batch_bytes.min(BATCH_BYTES_MAX);
        let workers = me.worker_count();
        let are_all_left = me.remaining_workers().len() == workers as usize;
        let route = if are_all_left { Route::new(me.id(), workers) } else { Route::direct(workers) };
        let batches = (0..route.batches()).map(|_| RefCell::new(Batch::new(me.id()))).collect();
        let part = Rc::new(Part {
            run: Box::new(run),
            route,
            batch_bytes,
            items_max: (batch_bytes / size_of::<T>().max(1)).max(1),
            // A vector of items without a size has room for any number.
            is_fast: T::PLAIN && size_of::<T>() > 0 && route.is_direct(),
            batches,
            under_way: (0..route.batches()).map(|_| Cell::new(0)).collect(),
            ..Part::gone(me)
        });
        // Before items can arrive, which is in the collective.
        me.look_after(&(part.clone() as Rc<dyn Batches>));
        let exchange = Self { part: PerWorker::new(me, part.clone())? };
        part.handle.get_or_init(|| exchange);
        Ok(exchange)
    }

    /// Returns what this worker pushes items with.
    pub fn on(self, me: &Worker) -> Sender<'_, T> {
        Sender { me, part: self.part_of(me) }
    }

    /// Waits until every item has been handled, as [`Worker::quiesce`] does, and frees the memory
    /// of the exchange. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`Worker::quiesce`]. The memory is freed nevertheless,
    /// except in a handler.
    ///
    /// # Panics
    /// If this worker still has a [`Sender`] of the exchange.
    #[track_caller]
    pub fn free(self, me: &Worker) -> Result<()> {
        let part = self.part_of(me);
        part.check()?;
        let freed = self.part.free(me);
        if matches!(freed, Err(Error::InHandler { .. } | Error::Borrowed { .. })) {
            return freed;
        }
        let is_last = Rc::strong_count(&part) == 1;
        assert!(is_last, "an exchange is freed after its senders are dropped");
        freed
    }

    fn part_of(self, me: &Worker) -> Rc<Part<T>> {
        (*held(self.part, me, || Rc::new(Part::gone(me)))).clone()
    }
}

/// Pushes items into an [`Exchange`] on one worker.
pub struct Sender<'w, T: 'static> {
    me: &'w Worker,
    part: Rc<Part<T>>,
}

impl<T: Wire + 'static> Sender<'_, T> {
    /// Adds an item to the batch for the worker `to`, and sends the batch if it is full. Runs calls
    /// that have arrived, if it sends.
    ///
    /// *Completion*: the item has been handled when [`Worker::quiesce`] returns.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] and [`ContainerError::Gone`]; the item is dropped. Those of
    /// [`To::call`](farside::To::call) if the batch cannot be sent. The exchange then keeps the
    /// batch with this item, and sends it later: do not push the item again. It drops the batch if
    /// no later attempt could succeed, as with [`Error::PeerLost`] and [`Error::TooLarge`]. Those
    /// of [`Worker::progress`] for calls that have run.
    #[inline]
    pub fn push(&self, to: WorkerId, item: T) -> Result<()> {
        let part = &*self.part;
        if part.is_fast
            && let Some(batch) = part.batches.get(to.index())
            && let mut batch = batch.borrow_mut()
            && batch.items.len() + 1 < batch.items.capacity()
        {
            batch.items.push(item);
            return Ok(());
        }
        self.push_slowly(to, item)
    }

    /// Pushes an item that begins or ends a batch, travels with its owner, or varies in size.
    #[inline(never)]
    fn push_slowly(&self, to: WorkerId, item: T) -> Result<()> {
        let (part, count) = (&*self.part, self.me.worker_count());
        part.check()?;
        if to.number() >= count {
            return Err(Error::UnknownWorker { worker: to, count });
        }
        let (Hop { batch: number, next }, bytes) = (part.route.hop(to), item.wire_bytes());
        let mut batch = part.batches[number].borrow_mut();
        let mut sent = Ok(());
        if !batch.items.is_empty() && batch.bytes + bytes > BATCH_BYTES_MAX {
            drop(batch);
            sent = part.send_one(self.me, number);
            batch = part.batches[number].borrow_mut();
        }
        if batch.items.is_empty() {
            part.begin(&mut batch, next);
        }
        if !part.route.is_direct() {
            batch.owners.push(to.number());
        }
        batch.bytes += bytes;
        batch.items.push(item);
        if batch.bytes < part.batch_bytes && batch.items.len() < part.items_max {
            return sent;
        }
        drop(batch);
        sent.and(part.send_one(self.me, number)).and(part.make_progress(self.me))
    }

    /// Sends all batches, full or not.
    ///
    /// # Errors
    /// A batch cannot be sent: [`push`](Self::push) lists the reasons.
    pub fn flush(&self) -> Result<()> {
        self.part.check()?;
        self.part.send_all(|number| self.part.send_one(self.me, number))
    }
}

impl<T> Sender<'_, T> {
    /// Returns whether items pass no other worker.
    pub(crate) fn is_direct(&self) -> bool {
        self.part.route.is_direct()
    }

    /// Returns the number of items that this worker has dropped since the last time, and the first
    /// reason.
    pub(crate) fn take_dropped(&self) -> (u64, String) {
        self.part.dropped.take()
    }
}

impl<T> Batch<T> {
    fn new(next: WorkerId) -> Self {
        Self { next, items: Vec::new(), owners: Vec::new(), bytes: 0 }
    }
}

impl<T: Wire + 'static> Part<T> {
    /// Refuses the use of an exchange that is not here.
    fn check(&self) -> Result<(), ContainerError> {
        if self.batches.is_empty() { Err(ContainerError::Gone) } else { Ok(()) }
    }

    /// Returns the part of an exchange that this worker has not.
    fn gone(me: &Worker) -> Self {
        Self {
            handle: OnceCell::new(),
            run: Box::new(|_, _| ()),
            route: Route::new(me.id(), me.worker_count()),
            batch_bytes: 0,
            items_max: 1,
            is_fast: false,
            batches: Box::default(),
            open: Cell::new(0),
            in_push: Cell::new(false),
            under_way: Box::default(),
            dropped: RefCell::default(),
            owed: RefCell::default(),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(&self, batch: &mut Batch<T>, next: WorkerId) {
        batch.next = next;
        if T::PLAIN {
            batch.items.reserve_exact(self.items_max);
        }
        self.open.set(self.open.get() + 1);
    }

    fn take(&self, batch: &mut Batch<T>) -> Batch<T> {
        self.open.set(self.open.get() - 1);
        let next = batch.next;
        std::mem::replace(batch, Batch::new(next))
    }

    /// Sends a batch if it has items, after its next hop has answered for earlier ones. In a
    /// handler it does not wait for that.
    fn send_one(&self, me: &Worker, number: usize) -> Result<()> {
        if !self.is_free(number) {
            match me.wait_while_serving(|| self.is_free(number)) {
                Ok(()) | Err(Error::InHandler { .. } | Error::Borrowed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.send_now(me, number, None)
    }

    /// Returns whether a next hop has answered for enough batches to get another one.
    fn is_free(&self, number: usize) -> bool {
        self.under_way[number].get() < UNDER_WAY_MAX
    }

    /// Sends a batch if it has items.
    fn send_now(&self, me: &Worker, number: usize, when_full: Option<WhenFull>) -> Result<()> {
        let mut batch = self.batches[number].borrow_mut();
        if batch.items.is_empty() {
            return Ok(());
        }
        let taken = self.take(&mut batch);
        drop(batch);
        self.send(me, number, taken, when_full)
    }

    /// Sends items. No batch is borrowed meanwhile: a send that waits runs calls, which push.
    #[inline(never)]
    fn send(&self, me: &Worker, number: usize, batch: Batch<T>, when_full: Option<WhenFull>) -> Result<()> {
        let Batch { next, items, owners, bytes } = batch;
        let to = me.to(next);
        let to = when_full.map_or(to, |when_full| to.when_full(when_full));
        let handle = *self.handle.get().expect("an exchange is used after it was made");
        let arguments = (handle, owners, items);
        let refused = if self.route.is_direct() {
            to.call(arguments, deliver).err()
        } else {
            let sent = to.call_with_reply(arguments, deliver_and_answer);
            sent.map(|answer| self.expect_answer(answer, handle, number)).err()
        };
        let Some(refused) = refused else { return Ok(()) };
        // All others may pass. A send that waits also returns errors of calls that run meanwhile,
        // which have nothing to do with this batch.
        let is_final = matches!(
            refused.error,
            Error::PeerLost { .. }
                | Error::UnknownWorker { .. }
                | Error::TooLarge { .. }
                | Error::DifferentBinaries { .. }
                | Error::ForeignFunction { .. }
                | Error::JobEnded { .. }
        );
        let (_, owners, items) = refused.arguments;
        if is_final {
            let mut dropped = self.dropped.borrow_mut();
            if dropped.0 == 0 {
                dropped.1 = refused.error.to_string();
            }
            dropped.0 += items.len() as u64;
        } else {
            self.put_back(number, Batch { next, items, owners, bytes });
        }
        Err(refused.error)
    }

    /// Counts a batch that is on its way, until it is answered or its next hop is lost.
    fn expect_answer(&self, answer: Pending<'_, Answer>, handle: Exchange<T>, number: usize) {
        self.under_way[number].set(self.under_way[number].get() + 1);
        answer.then(move |me, answer| {
            let Some(part) = handle.part.hold(me) else { return };
            part.under_way[number].set(part.under_way[number].get() - 1);
            part.pay();
            // As without a grid, a function that fails ends the job.
            match answer {
                Ok(Ok(())) | Err(Error::PeerLost { .. } | Error::JobEnded { .. }) => {}
                Ok(Err(failure)) => panic!("{failure}"),
                Err(error) => panic!("a batch of an exchange failed: {error}"),
            }
        });
    }

    /// Answers for batches whose items were passed on, if few items are on their way from here to
    /// their owners. Owners answer at once, so no two workers wait for each other's answers.
    fn pay(&self) {
        let along_the_column = &self.under_way[self.route.columns()..];
        let unanswered: u32 = along_the_column.iter().map(Cell::get).sum();
        if unanswered <= UNDER_WAY_MAX * along_the_column.len() as u32 {
            self.owed.take().into_iter().for_each(|answer| answer.send(Ok(())));
        }
    }

    /// Puts items back that were not sent.
    fn put_back(&self, number: usize, mut batch: Batch<T>) {
        let mut now = self.batches[number].borrow_mut();
        if now.items.is_empty() {
            self.begin(&mut now, batch.next);
        }
        now.items.append(&mut batch.items);
        now.owners.append(&mut batch.owners);
        now.bytes += batch.bytes;
    }

    /// Runs calls that have arrived. A worker that only pushes would otherwise leave them waiting,
    /// with what they bring.
    fn make_progress(&self, me: &Worker) -> Result<()> {
        self.in_push.set(true);
        let outcome = me.progress();
        self.in_push.set(false);
        match outcome {
            Ok(_) | Err(Error::InHandler { .. } | Error::Borrowed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends all batches that are there now. Returns the first error.
    fn send_all(&self, send: impl Fn(usize) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        for number in 0..self.batches.len() {
            if self.open.get() == 0 {
                break;
            }
            outcome = outcome.and(send(number));
        }
        outcome
    }

    /// Handles items that have arrived, and passes on those of others.
    fn receive(self: Rc<Self>, me: &Worker, owners: Vec<u32>, mut items: Vec<T>) -> Result<()> {
        if owners.iter().all(|owner| *owner == me.id().number()) {
            (self.run)(me, Items(items.drain(..)));
            return Ok(());
        }
        let sender = Sender { me, part: self.clone() };
        let mut own = Vec::new();
        let mut outcome = Ok(());
        for (owner, item) in owners.into_iter().zip(items) {
            match WorkerId::new(owner) {
                owner if owner == me.id() => own.push(item),
                owner => outcome = outcome.and(but_for_losses(sender.push(owner, item))),
            }
        }
        if !own.is_empty() {
            (self.run)(me, Items(own.drain(..)));
        }
        outcome
    }
}

/// Leaves out the error of items that are dropped because a process is lost. What ran into it may
/// have nothing to do with that process.
fn but_for_losses(outcome: Result<()>) -> Result<()> {
    if matches!(outcome, Err(Error::PeerLost { .. })) { Ok(()) } else { outcome }
}

/// Takes a batch at its next hop.
fn deliver<T: Wire + 'static>(
    there: &Worker,
    (exchange, owners, items): (Exchange<T>, Vec<u32>, Vec<T>),
) -> Result<()> {
    let part = exchange.part_of(there);
    part.check()?;
    // Another worker may be the first to leave the barrier in `PerWorker::new`, and this one still
    // be in it.
    part.handle.get_or_init(|| exchange);
    part.receive(there, owners, items)
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// The answer for a batch: whether its items were handled or passed on, and why not.
type Answer = std::result::Result<(), String>;

/// Takes a batch at its next hop in a grid, and answers for it: at once if all its items are those
/// of this worker.
fn deliver_and_answer<T: Wire + 'static>(
    there: &Worker,
    (exchange, owners, items): (Exchange<T>, Vec<u32>, Vec<T>),
    answer: Reply<Answer>,
) {
    let are_own = owners.iter().all(|owner| *owner == there.id().number());
    let delivered = catch_unwind(AssertUnwindSafe(|| deliver(there, (exchange, owners, items))));
    let failure = match delivered {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(format!("its function panicked: {}", message_of(&*panic))),
    };
    if let Some(failure) = failure {
        return answer.send(Err(format!("a batch of an exchange failed at {}: {failure}", there.id())));
    }
    match exchange.part.hold(there) {
        Some(part) if !are_own => {
            part.owed.borrow_mut().push(answer);
            part.pay();
        }
        _ => answer.send(Ok(())),
    }
}

impl<T: Wire + 'static> Batches for Part<T> {
    /// Batches that wait for an answer are sent after it. Until then the call that is answered is
    /// counted.
    fn is_empty(&self) -> bool {
        let may_send = |number: usize| self.is_free(number) && !self.batches[number].borrow().items.is_empty();
        self.open.get() == 0 || self.in_push.get() || !(self.route.is_direct() || (0..self.batches.len()).any(may_send))
    }

    fn send(&self, me: &Worker) -> Result<()> {
        let spill =
            |number| if self.is_free(number) { self.send_now(me, number, Some(WhenFull::Spill)) } else { Ok(()) };
        but_for_losses(self.send_all(spill))
    }
}

/// Items that have arrived at their owner: an iterator.
pub struct Items<'a, T>(Drain<'a, T>);

impl<T> Items<'_, T> {
    /// Returns the items that are left.
    pub fn as_slice(&self) -> &[T] {
        self.0.as_slice()
    }
}

impl<T> Iterator for Items<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> ExactSizeIterator for Items<'_, T> {}

impl<T: fmt::Debug> fmt::Debug for Items<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl<T: 'static> Clone for Exchange<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: 'static> Copy for Exchange<T> {}

impl<T: 'static> fmt::Debug for Exchange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl<T: 'static> fmt::Debug for Sender<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("open", &self.part.open).finish_non_exhaustive()
    }
}
