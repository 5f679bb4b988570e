//! [`DistVec`]: one vector in parts, of which each worker has one as an ordinary `Vec`.

use std::cell::RefCell;
use std::fmt;

use farside::{Error, Losses, Pending, PerWorker, Result, Wire, Worker, WorkerId};

use crate::agreement::{ContainerError, agree, exchange, fail_together, find_unequal, first, held, place, with_held};

/// The size of the calls in which items move.
const CALL_BYTES: usize = 64 << 10;
/// The bytes that a worker's samples have together, at most.
const SAMPLES_BYTES: usize = 1 << 20;

/// One vector of which each worker has a part: an ordinary `Vec`, which may have any length.
///
/// The order of the whole is that of the workers, and within a part that of the `Vec`.
/// [`DistIterator`](crate::DistIterator) combines the items of all workers.
///
/// ```
/// use farside::WorkerId;
/// use farside_containers::DistVec;
///
/// # farside::simulate(3, 1, 1, |me| {
/// let words = DistVec::new(me)?;
/// if me.is_first() {
///     words.with(me, |own| own.extend(["so", "it", "goes", "on", "and"].map(String::from)));
/// }
/// words.sort(me)?;
/// words.rebalance(me)?;
/// assert!(words.with(me, |own| own.len()) <= 2);
/// let all = words.gather(me, WorkerId::FIRST)?;
/// assert_eq!(all.is_some_and(|all| all == ["and", "goes", "it", "on", "so"]), me.is_first());
/// # Ok(())
/// # }).unwrap();
/// ```
///
/// The handle is `Copy` and travels: called functions use the part of the worker on which they run.
/// [`free`](Self::free) gives the memory back. The parts are empty then.
///
/// [`rebalance`](Self::rebalance) and [`sort`](Self::sort) move items. Nothing may be pushed while
/// any worker is in one of them: the items would stay, but at the end of a part, in no order.
///
/// If a worker cannot send its items, every worker gets an error. After that and other errors, each
/// item is at one worker or still on its way there, but perhaps not where it belongs. A process
/// that is lost takes its part and what is on its way there with it. A panic in a comparison loses
/// nothing: what others had sent joins the part at the end of the next such operation.
///
/// *Cost*: none for one's own part. What moves items waits for all workers, and sends the items in
/// calls of 64 KiB.
#[derive(Wire)]
pub struct DistVec<T: 'static> {
    part: PerWorker<RefCell<Part<T>>>,
}

/// The part of one worker.
struct Part<T> {
    items: Vec<T>,
    /// The number of the next exchange, as far as this worker knows. Earlier ones have ended here.
    next: u64,
    /// True if this worker has left an exchange in which others may take part.
    is_out: bool,
    /// Items that have come here in exchanges that have not ended here.
    arrived: Vec<Block<T>>,
}

/// Items that go from one worker to another in an exchange.
#[derive(Wire)]
struct Block<T> {
    exchange: u64,
    from: WorkerId,
    /// True if the sender keeps them, too.
    are_copies: bool,
    items: Vec<T>,
}

impl<T> Part<T> {
    fn new() -> Self {
        Self { items: Vec::new(), next: 0, is_out: false, arrived: Vec::new() }
    }

    /// Ends an exchange, and returns what has come in it. What came in an earlier one, which this
    /// worker left with an error, joins the part.
    fn end(&mut self, exchange: u64) -> Vec<Block<T>> {
        self.next = exchange + 1;
        let arrived = std::mem::take(&mut self.arrived).into_iter();
        let (now, other): (Vec<_>, Vec<_>) = arrived.partition(|block| block.exchange == exchange);
        other.into_iter().for_each(|block| self.take(block));
        now
    }

    /// Takes a block. Copies that come late are of no use.
    fn take(&mut self, block: Block<T>) {
        match self.is_out || block.exchange < self.next {
            true if block.are_copies => {}
            true => self.items.extend(block.items),
            false => self.arrived.push(block),
        }
    }
}

/// The effect of an exchange on the items of its source: it moves or copies them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    Moves,
    Copies,
}

impl<T: Wire + Clone> DistVec<T> {
    /// Makes an empty vector. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// A process is lost, the job's deadline has passed, or the workers call different collectives
    /// ([`PerWorker::new`]).
    pub fn new(me: &Worker) -> Result<Self> {
        Ok(Self { part: PerWorker::new(me, RefCell::new(Part::new()))? })
    }

    /// Runs `work` with the part of this worker.
    ///
    /// # Panics
    /// If the vector was freed, or is of another job; those of [`PerWorker::with`]. Whatever waits
    /// inside it returns [`Error::Borrowed`](farside::Error::Borrowed).
    #[track_caller]
    pub fn with<R>(self, me: &Worker, work: impl FnOnce(&mut Vec<T>) -> R) -> R {
        self.require(me);
        self.with_part(me, work)
    }

    /// Runs `work` with the part of this worker. Calls that arrive after `free` get an empty one.
    #[track_caller]
    fn with_part<R>(self, me: &Worker, work: impl FnOnce(&mut Vec<T>) -> R) -> R {
        with_held(self.part, me, Part::new, |part| work(&mut part.items))
    }

    #[track_caller]
    fn require(self, me: &Worker) {
        if let Err(error) = self.check(me) {
            panic!("{error}");
        }
    }

    /// Returns an iterator over the part of this worker. It clones the items one by one, so called
    /// functions may change the part between two of them.
    ///
    /// # Panics
    /// If the vector was freed, or is of another job; those of [`PerWorker::here`].
    #[track_caller]
    pub fn iter<'w>(self, me: &'w Worker) -> impl Iterator<Item = T> + use<'w, T> {
        self.require(me);
        let part = held(self.part, me, || RefCell::new(Part::new()));
        (0..).map_while(move |index| part.borrow().items.get::<usize>(index).cloned())
    }

    /// Reads the part of another worker in blocks of `block_items`. The next block is on its way
    /// while this worker uses one. Ends after an error.
    ///
    /// # Panics
    /// If `block_items` is 0, or the vector was freed or is of another job.
    #[track_caller]
    pub fn stream<'w>(
        self,
        me: &'w Worker,
        of: WorkerId,
        block_items: usize,
    ) -> impl Iterator<Item = Result<T>> + use<'w, T> {
        assert!(block_items > 0, "a stream reads blocks of at least one item");
        self.require(me);
        let ask = move |start: usize| {
            me.call_return(of, (self, start, block_items), |there, (this, start, count)| {
                this.with_part(there, |items| items.iter().skip(start).take(count).cloned().collect::<Vec<T>>())
            })
        };
        let (mut start, mut next) = (0, Some(ask(0)));
        let blocks = std::iter::from_fn(move || {
            let block = next.take()?.map_err(Into::into).and_then(Pending::wait);
            if block.as_ref().is_ok_and(|items| items.len() == block_items) {
                start += block_items;
                next = Some(ask(start));
            }
            Some(match block {
                Ok(items) => items.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        });
        blocks.flatten()
    }

    /// Appends an item to the part of another worker. It is there when [`Worker::quiesce`] returns.
    /// For many items use an [`Exchange`](crate::Exchange).
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`To::call`](farside::To::call).
    pub fn push_to(self, me: &Worker, to: WorkerId, item: T) -> Result<()> {
        self.check(me)?;
        Ok(me.call(to, (self, item), |there, (this, item)| this.with_part(there, |items| items.push(item)))?)
    }

    /// Returns the length of the whole. All workers call this.
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`Worker::all_reduce`].
    pub fn len(self, me: &Worker) -> Result<u64> {
        self.check(me)?;
        me.all_reduce(self.with(me, |items| items.len() as u64), |one, other| one + other)
    }

    /// Returns whether all parts are empty. All workers call this.
    ///
    /// # Errors
    /// The vector was freed, a process is lost, or the job's deadline has passed
    /// ([`len`](Self::len)).
    pub fn is_empty(self, me: &Worker) -> Result<bool> {
        Ok(self.len(me)? == 0)
    }

    /// Copies the whole to one worker, of any size. The others get `None`. All workers call this.
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`Worker::quiesce`] and [`To::call`](farside::To::call).
    /// [`ContainerError::Failed`] if another worker could not send, or the workers name different
    /// roots.
    pub fn gather(self, me: &Worker, root: WorkerId) -> Result<Option<Vec<T>>> {
        self.check(me)?;
        let unequal = find_unequal(me, root)?;
        fail_together(me, unequal.map(|worker| format!("{worker} names another worker to gather at")))?;
        let own = self.with(me, |items| items.clone());
        let (copied, outcome) = self.exchange(me, Sending::Copies, vec![(root, own)]);
        outcome.map(|()| (me.id() == root).then_some(copied))
    }

    /// Moves items so that the lengths of any two parts differ by one at most. Their order stays.
    /// First waits for all calls, as [`Worker::quiesce`] does. All workers call this.
    ///
    /// # Errors
    /// The vector was freed, a process is lost, or the job's deadline has passed
    /// ([`gather`](Self::gather)).
    pub fn rebalance(self, me: &Worker) -> Result<()> {
        self.check(me)?;
        let lengths = self.lengths(me).inspect_err(|error| self.leave(me, error))?;
        let begin: usize = lengths[..place(me).0].iter().sum();
        let total: usize = lengths.iter().sum();
        let mut rest = self.with(me, std::mem::take);
        let mut pieces = Vec::new();
        // From the last worker down, so that each piece is the end of what is left.
        for (place, to) in me.remaining_workers().into_iter().enumerate().rev() {
            let first = (total as u128 * place as u128 / lengths.len() as u128) as usize;
            let kept = first.saturating_sub(begin).min(rest.len());
            pieces.push((to, rest.split_off(kept)));
        }
        let (items, outcome) = self.exchange(me, Sending::Moves, pieces);
        self.put_in_front(me, items);
        outcome
    }

    /// Waits for all calls, as [`Worker::quiesce`] does, and frees the memory. All workers call
    /// this, in the same order as other collectives.
    ///
    /// # Errors
    /// [`ContainerError::Gone`]; those of [`Worker::quiesce`]. The memory is freed nevertheless.
    pub fn free(self, me: &Worker) -> Result<()> {
        self.check(me)?;
        self.part.free(me)
    }

    /// Refuses the use of a vector that is not here.
    #[track_caller]
    fn check(self, me: &Worker) -> Result<(), ContainerError> {
        if self.part.is_here(me) { Ok(()) } else { Err(ContainerError::Gone) }
    }

    fn lengths(self, me: &Worker) -> Result<Vec<usize>> {
        me.quiesce()?;
        exchange(me, self.with(me, |items| items.len()))
    }

    /// Sorts the whole. First waits for all calls, as [`Worker::quiesce`] does. All workers call
    /// this. Items that are equal come to one worker, so parts may differ in length:
    /// [`rebalance`](Self::rebalance) evens them out.
    ///
    /// This is a sample sort: each worker sorts its part, and `P` samples of each of the `P`
    /// workers tell which items come to which. Items of more than 1 MiB / `P` are no samples. If
    /// most items are that long, parts differ in length.
    ///
    /// # Errors
    /// The vector was freed, a process is lost, or the job's deadline has passed
    /// ([`gather`](Self::gather)).
    pub fn sort(self, me: &Worker) -> Result<()>
    where
        T: Ord,
    {
        self.check(me)?;
        let (_, workers) = place(me);
        let splitters = self.splitters(me).inspect_err(|error| self.leave(me, error))?;
        // All comparisons are made while the items are in the part.
        let (mut rest, firsts) = self.with(me, |items| {
            // Called functions may have changed it since.
            items.sort();
            let least = |to: usize| to.checked_sub(1).and_then(|before| splitters.get(before));
            let first = |to| least(to).map_or(0, |least| items.partition_point(|item| item < least));
            let firsts: Vec<_> = (0..workers).map(first).collect();
            (std::mem::take(items), firsts)
        });
        let mut pieces = Vec::new();
        for (to, first) in me.remaining_workers().into_iter().zip(firsts).rev() {
            pieces.push((to, rest.split_off(first.min(rest.len()))));
        }
        let (items, outcome) = self.exchange(me, Sending::Moves, pieces);
        let count = items.len();
        self.put_in_front(me, items);
        // Finds the sorted runs of the workers.
        self.with(me, |own| own[..count].sort());
        outcome
    }

    /// Returns the least items of all parts of the sorted whole but the first.
    fn splitters(self, me: &Worker) -> Result<Vec<T>>
    where
        T: Ord,
    {
        me.quiesce()?;
        let (_, workers) = place(me);
        let samples = self.with(me, |items| {
            items.sort();
            let step = items.len().div_ceil(workers).max(1);
            let samples = items.iter().step_by(step).filter(|item| item.wire_bytes() <= SAMPLES_BYTES / workers);
            samples.cloned().collect::<Vec<T>>()
        });
        // The first worker chooses, because all samples together may be longer than a call.
        let splitters = me.gather(first(me), samples)?.map(|samples| {
            let mut samples = samples.concat();
            samples.sort();
            (1..workers).filter_map(|to| samples.get(samples.len() * to / workers).cloned()).collect::<Vec<T>>()
        });
        me.broadcast(first(me), splitters)
    }

    /// Leaves an exchange in which others may take part. What they send joins the part at once.
    fn leave(self, me: &Worker, error: &Error) {
        // Nothing was begun, and this worker may be in an exchange that goes on.
        if !matches!(error, Error::InHandler { .. } | Error::Borrowed { .. }) {
            self.part.with(me, |part| {
                part.is_out = true;
                let arrived = std::mem::take(&mut part.arrived);
                arrived.into_iter().for_each(|block| part.take(block));
            });
        }
    }

    /// Gives a worker its items back, before those that were pushed meanwhile.
    fn put_in_front(self, me: &Worker, items: Vec<T>) {
        self.with(me, |own| {
            let pushed = std::mem::replace(own, items);
            own.extend(pushed);
        });
    }

    /// Sends pieces to their workers. Returns those that come here, in the order of their senders,
    /// or after an error all items that this worker has.
    fn exchange(self, me: &Worker, sending: Sending, pieces: Vec<(WorkerId, Vec<T>)>) -> (Vec<T>, Result<()>) {
        // Before anything is sent, because this refuses a worker that cannot take part. The numbers
        // differ if some workers have left an exchange with an error.
        let (was_out, next) = self.part.with(me, |part| (std::mem::take(&mut part.is_out), part.next));
        let exchange = match me.all_reduce(next, u64::max) {
            Ok(exchange) => exchange,
            Err(error) => {
                self.part.with(me, |part| part.is_out = was_out);
                self.leave(me, &error);
                return (pieces.into_iter().rev().flat_map(|(_, items)| items).collect(), Err(error));
            }
        };
        let (mut kept, mut sent) = (Vec::new(), Ok(()));
        for (to, items) in pieces {
            let mut items = items.into_iter().peekable();
            while to != me.id() && sent.is_ok() && items.peek().is_some() {
                let mut bytes = 0;
                let mut fits = |item: &T| {
                    let fits = bytes < CALL_BYTES;
                    bytes += item.wire_bytes().max(1);
                    fits
                };
                let items: Vec<T> = std::iter::from_fn(|| items.next_if(&mut fits)).collect();
                let block = Block { exchange, from: me.id(), are_copies: sending == Sending::Copies, items };
                let arrive = |there: &Worker, (this, block): (Self, Block<T>)| {
                    this.part.with(there, |part| part.take(block));
                };
                if let Err(refused) = me.call(to, (self, block), arrive) {
                    kept.extend(refused.arguments.1.items);
                    sent = Err(refused.error);
                }
            }
            kept.extend(items);
        }
        // Also after an error: the others wait here.
        let quiesced = me.quiesce();
        let mut arrived = self.part.with(me, |part| part.end(exchange));
        arrived.push(Block { exchange, from: me.id(), are_copies: false, items: kept });
        // Stable: the calls of one worker have run in their order.
        arrived.sort_by_key(|block| block.from);
        let items = arrived.into_iter().flat_map(|block| block.items).collect();
        // No worker begins the next exchange before all have taken the items of this one.
        let outcome = match quiesced {
            Ok(()) => agree(me, sent),
            Err(error) => sent.and(Err(error)),
        };
        (items, outcome)
    }
}

impl<T: 'static> Clone for DistVec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: 'static> Copy for DistVec<T> {}

impl<T: 'static> fmt::Debug for DistVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistVec").finish_non_exhaustive()
    }
}
