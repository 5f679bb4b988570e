//! [`Exchange`]: many small items to many owners.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::vec::Drain;

use farside::{Batches, Error, PerWorker, Result, WhenFull, Wire, Worker, WorkerId};

use crate::route::{Hop, Route};

/// The size at which an exchange sends a batch by default. The cost of a call is then small beside
/// that of the items. Between 2 and 64 KiB the rate changes little.
pub const DEFAULT_BATCH_BYTES: usize = 8 << 10;

/// Carries many small items to many owners, which handle them in batches.
///
/// One object serves all destinations. Each worker collects items in a batch for each next hop. It
/// sends a batch that is full, and every batch when it waits and has nothing else to do. So no item
/// waits for others, and a program does not announce that it is done:
/// [`Worker::quiesce`] waits until every item has been handled, with all items that this has made.
///
/// The handle is `Copy` and may travel. [`on`](Self::on) gives what a worker works with, also in
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
/// item passes at most one worker on its way, so each worker has about `2 √P` batches.
///
/// *Order*: none between items. *Cost*: for an item of 8 bytes some nanoseconds at both sides
/// together; a worker has up to the [size of a batch](Self::with_batches_of) for each next hop.
///
/// Items for a lost process are dropped. A push that sends such a batch returns
/// [`Error::PeerLost`], and so does `quiesce`.
///
/// This is the exchange of bale (*exstack2*, *conveyors*), on calls.
#[derive(Wire)]
pub struct Exchange<T: 'static> {
    part: PerWorker<Rc<Part<T>>>,
}

/// The function of an exchange.
type Run<T> = dyn Fn(&Worker, Drain<'_, T>);

/// The part of an exchange on one worker.
struct Part<T: 'static> {
    handle: OnceCell<Exchange<T>>,
    run: Box<Run<T>>,
    route: Route,
    batch_bytes: usize,
    /// The number of items in a batch, if all have the same size.
    items_max: usize,
    /// Whether a batch holds nothing but items of the same size.
    is_plain_and_direct: bool,
    batches: Box<[RefCell<Batch<T>>]>,
    /// The number of batches that are not empty.
    open: Cell<usize>,
}

/// Items for one next hop.
struct Batch<T> {
    next: WorkerId,
    items: Vec<T>,
    /// The owner of each item, or nothing if all belong to `next`.
    owners: Vec<u32>,
    bytes: usize,
}

impl<T: Wire + 'static> Exchange<T> {
    /// Makes an exchange, whose items `run` handles at their owner. All workers call this, in the
    /// same order as other collectives.
    ///
    /// `run` is called as a handler: it must not wait. It may push items and make calls.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`].
    pub fn new(me: &Worker, run: impl Fn(&Worker, Drain<'_, T>) + 'static) -> Result<Self> {
        Self::with_batches_of(me, DEFAULT_BATCH_BYTES, run)
    }

    /// Makes an exchange like [`new`](Self::new) that sends a batch when it has `batch_bytes`
    /// bytes.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`].
    pub fn with_batches_of(
        me: &Worker,
        batch_bytes: usize,
        run: impl Fn(&Worker, Drain<'_, T>) + 'static,
    ) -> Result<Self> {
        let route = Route::new(me.id(), me.worker_count());
        let batches = (0..route.batches()).map(|_| RefCell::new(Batch::new(me.id()))).collect();
        let handle = OnceCell::new();
        let part = Rc::new(Part {
            handle,
            run: Box::new(run),
            route,
            batch_bytes,
            items_max: (batch_bytes / size_of::<T>().max(1)).max(1),
            is_plain_and_direct: T::PLAIN && route.is_direct(),
            batches,
            open: Cell::new(0),
        });
        let exchange = Self { part: PerWorker::new(me, part.clone())? };
        part.handle.get_or_init(|| exchange);
        me.look_after(&part);
        Ok(exchange)
    }

    /// Returns what this worker pushes items with.
    ///
    /// # Panics
    /// If the exchange is of another job, or on a thread of a pool.
    #[track_caller]
    pub fn on(self, me: &Worker) -> Sender<'_, T> {
        Sender { me, part: self.part.here(me) }
    }
}

/// Pushes items into an [`Exchange`] on one worker.
pub struct Sender<'w, T: 'static> {
    me: &'w Worker,
    part: &'w Part<T>,
}

impl<T: Wire + 'static> Sender<'_, T> {
    /// Sends an item to the worker `to`: now, or with others.
    ///
    /// *Completion*: the item has been handled when [`Worker::quiesce`] returns.
    ///
    /// # Errors
    /// Those of [`To::call`](farside::To::call). Items of the batch that could not be sent stay in
    /// it, unless their process is lost.
    #[inline]
    pub fn push(&self, to: WorkerId, item: T) -> Result<()> {
        let part = self.part;
        if part.is_plain_and_direct
            && let Some(batch) = part.batches.get(to.index())
            && let mut batch = batch.borrow_mut()
            && batch.items.len() + 1 < batch.items.capacity()
        {
            batch.items.push(item);
            return Ok(());
        }
        self.push_slowly(to, item)
    }

    /// Pushes an item that begins or ends a batch, needs an owner beside it, or varies in size.
    #[inline(never)]
    fn push_slowly(&self, to: WorkerId, item: T) -> Result<()> {
        let (part, count) = (self.part, self.me.worker_count());
        if to.number() >= count {
            return Err(Error::UnknownWorker { worker: to, count });
        }
        let Hop { batch, next } = part.route.hop(to);
        let mut batch = part.batches[batch].borrow_mut();
        if batch.items.is_empty() {
            part.begin(&mut batch, next);
        }
        if !part.route.is_direct() {
            batch.owners.push(to.number());
        }
        batch.bytes += item.wire_bytes();
        batch.items.push(item);
        let is_full = if T::PLAIN { batch.items.len() >= part.items_max } else { batch.bytes >= part.batch_bytes };
        if !is_full {
            return Ok(());
        }
        let full = part.take(&mut batch);
        drop(batch);
        part.send(self.me, full, None)
    }

    /// Sends all items that wait for others.
    ///
    /// # Errors
    /// Those of [`push`](Self::push).
    pub fn flush(&self) -> Result<()> {
        self.part.send_all(self.me, None)
    }
}

impl<T> Batch<T> {
    fn new(next: WorkerId) -> Self {
        Self { next, items: Vec::new(), owners: Vec::new(), bytes: 0 }
    }
}

impl<T: Wire + 'static> Part<T> {
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

    /// Sends a batch. No batch is borrowed meanwhile: a send that waits runs calls, which push.
    #[inline(never)]
    fn send(&self, me: &Worker, batch: Batch<T>, when_full: Option<WhenFull>) -> Result<()> {
        let Batch { next, items, owners, bytes } = batch;
        let to = me.to(next);
        let to = when_full.map_or(to, |when_full| to.when_full(when_full));
        let handle = *self.handle.get().expect("an exchange is used after it was made");
        let Err(refused) = to.call((handle, owners, items), deliver) else { return Ok(()) };
        if !matches!(refused.error, Error::PeerLost { .. }) {
            let (_, owners, items) = refused.arguments;
            self.put_back(Batch { next, items, owners, bytes });
        }
        Err(refused.error)
    }

    /// Puts items back that were not sent.
    fn put_back(&self, mut batch: Batch<T>) {
        // The owner of any item tells which batch it was.
        let owner = batch.owners.first().map_or(batch.next, |owner| WorkerId::new(*owner));
        let mut now = self.batches[self.route.hop(owner).batch].borrow_mut();
        if now.items.is_empty() {
            self.begin(&mut now, batch.next);
        }
        now.items.append(&mut batch.items);
        now.owners.append(&mut batch.owners);
        now.bytes += batch.bytes;
    }

    fn send_all(&self, me: &Worker, when_full: Option<WhenFull>) -> Result<()> {
        for batch in &self.batches {
            if self.open.get() == 0 {
                break;
            }
            let mut batch = batch.borrow_mut();
            if !batch.items.is_empty() {
                let taken = self.take(&mut batch);
                drop(batch);
                self.send(me, taken, when_full)?;
            }
        }
        Ok(())
    }

    /// Handles items that have arrived, and passes on those of others.
    fn receive(&self, me: &Worker, owners: Vec<u32>, mut items: Vec<T>) -> Result<()> {
        if owners.is_empty() {
            (self.run)(me, items.drain(..));
            return Ok(());
        }
        let sender = Sender { me, part: self };
        let mut own = Vec::new();
        for (owner, item) in owners.into_iter().zip(items) {
            match WorkerId::new(owner) {
                owner if owner == me.id() => own.push(item),
                owner => sender.push(owner, item)?,
            }
        }
        (self.run)(me, own.drain(..));
        Ok(())
    }
}

/// Takes a batch at its next hop.
fn deliver<T: Wire + 'static>(
    there: &Worker,
    (exchange, owners, items): (Exchange<T>, Vec<u32>, Vec<T>),
) -> Result<()> {
    let part = exchange.part.here(there);
    // Another worker may be the first to leave the barrier in `PerWorker::new`, and this one still
    // be in it.
    part.handle.get_or_init(|| exchange);
    part.receive(there, owners, items)
}

impl<T: Wire + 'static> Batches for Part<T> {
    fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    fn send(&self, me: &Worker) -> Result<()> {
        loop {
            match self.send_all(me, Some(WhenFull::Spill)) {
                // These items are dropped. This wait may have nothing to do with them.
                Err(Error::PeerLost { .. }) => {}
                other => return other,
            }
        }
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
