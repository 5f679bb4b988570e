//! [`DistVec`]: one vector in parts, of which each worker has one as an ordinary `Vec`.

use std::cell::RefCell;
use std::fmt;

use farside::{Pending, PerWorker, Result, Wire, Worker, WorkerId};

use crate::agreement::agree;

/// The size of the calls in which items move.
const CALL_BYTES: usize = 64 << 10;

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
/// The parts are kept until the job ends; `with(me, std::mem::take)` takes their memory away.
///
/// [`rebalance`](Self::rebalance) and [`sort`](Self::sort) move items. Nothing may be pushed while
/// any worker is in one of them: the items would stay, but at the end of a part, in no order.
///
/// If a worker cannot send its items, every worker gets an error. Each item is then at one worker,
/// but perhaps not at the one to which it belongs. After other errors, items that are on their way
/// are lost, and with a process its part. The other workers keep what they have not sent and what
/// has arrived.
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
    /// The number of exchanges that have ended here.
    ended: u64,
    /// Items that move here in the exchange after that, with their senders.
    arrived: Vec<(u32, Vec<T>)>,
}

impl<T: Wire + Clone> DistVec<T> {
    /// Makes an empty vector. All workers call this, in the same order as other collectives.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`].
    pub fn new(me: &Worker) -> Result<Self> {
        let part = Part { items: Vec::new(), ended: 0, arrived: Vec::new() };
        Ok(Self { part: PerWorker::new(me, RefCell::new(part))? })
    }

    /// Runs `work` with the part of this worker.
    ///
    /// # Panics
    /// Those of [`PerWorker::with`]. Whatever waits inside it returns
    /// [`Error::Borrowed`](farside::Error::Borrowed).
    #[track_caller]
    pub fn with<R>(self, me: &Worker, work: impl FnOnce(&mut Vec<T>) -> R) -> R {
        self.part.with(me, |part| work(&mut part.items))
    }

    /// Returns an iterator over the part of this worker. It clones the items one by one, so called
    /// functions may change the part between two of them.
    ///
    /// # Panics
    /// Those of [`PerWorker::here`].
    #[track_caller]
    pub fn iter<'w>(self, me: &'w Worker) -> impl Iterator<Item = T> + use<'w, T> {
        let part = self.part.here(me);
        (0..).map_while(move |index| part.borrow().items.get::<usize>(index).cloned())
    }

    /// Reads the part of another worker in blocks of `block_items`. The next block is on its way
    /// while this worker uses one. Ends after an error.
    ///
    /// # Panics
    /// If `block_items` is 0.
    #[track_caller]
    pub fn stream<'w>(
        self,
        me: &'w Worker,
        of: WorkerId,
        block_items: usize,
    ) -> impl Iterator<Item = Result<T>> + use<'w, T> {
        assert!(block_items > 0, "a stream reads blocks of at least one item");
        let ask = move |start: usize| {
            me.call_return(of, (self, start, block_items), |there, (this, start, count)| {
                this.with(there, |items| items.iter().skip(start).take(count).cloned().collect::<Vec<T>>())
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
    /// Those of [`To::call`](farside::To::call).
    pub fn push_to(self, me: &Worker, to: WorkerId, item: T) -> Result<()> {
        Ok(me.call(to, (self, item), |there, (this, item)| this.with(there, |items| items.push(item)))?)
    }

    /// Returns the length of the whole. All workers call this.
    ///
    /// # Errors
    /// Those of [`Worker::all_reduce`].
    pub fn len(self, me: &Worker) -> Result<u64> {
        me.all_reduce(self.with(me, |items| items.len() as u64), |one, other| one + other)
    }

    /// Returns whether all parts are empty. All workers call this.
    ///
    /// # Errors
    /// Those of [`Worker::all_reduce`].
    pub fn is_empty(self, me: &Worker) -> Result<bool> {
        Ok(self.len(me)? == 0)
    }

    /// Copies the whole to one worker, of any size. The others get `None`. All workers call this.
    ///
    /// # Errors
    /// Those of [`Worker::quiesce`] and [`To::call`](farside::To::call).
    /// [`ContainerError::Failed`](crate::ContainerError::Failed) if another worker could not send.
    pub fn gather(self, me: &Worker, root: WorkerId) -> Result<Option<Vec<T>>> {
        let (copied, outcome) = self.exchange(me, vec![(root, self.with(me, |items| items.clone()))]);
        outcome.map(|()| (me.id() == root).then_some(copied))
    }

    /// Moves items so that the lengths of any two parts differ by one at most. Their order stays.
    /// First waits for all calls, as [`Worker::quiesce`] does. All workers call this.
    ///
    /// # Errors
    /// Those of [`gather`](Self::gather).
    pub fn rebalance(self, me: &Worker) -> Result<()> {
        me.quiesce()?;
        let lengths = me.gather(WorkerId::FIRST, self.with(me, |items| items.len()))?;
        let lengths = me.broadcast(WorkerId::FIRST, lengths)?;
        let begin: usize = lengths[..me.id().index()].iter().sum();
        let total: usize = lengths.iter().sum();
        let mut rest = self.with(me, std::mem::take);
        let mut pieces = Vec::new();
        // From the last worker down, so that each piece is the end of what is left.
        for to in (0..me.worker_count()).rev().map(WorkerId::new) {
            let first = (total as u128 * u128::from(to.number()) / u128::from(me.worker_count())) as usize;
            let kept = first.saturating_sub(begin).min(rest.len());
            pieces.push((to, rest.split_off(kept)));
        }
        let (items, outcome) = self.exchange(me, pieces);
        self.put_in_front(me, items);
        outcome
    }

    /// Sorts the whole. First waits for all calls, as [`Worker::quiesce`] does. All workers call
    /// this. Items that are equal come to one worker, so parts may differ in length:
    /// [`rebalance`](Self::rebalance) evens them out.
    ///
    /// This is a sample sort: each worker sorts its part, and `P` samples of each of the `P`
    /// workers tell which items come to which.
    ///
    /// # Errors
    /// Those of [`gather`](Self::gather).
    pub fn sort(self, me: &Worker) -> Result<()>
    where
        T: Ord,
    {
        me.quiesce()?;
        let workers = me.worker_count() as usize;
        let samples = self.with(me, |items| {
            items.sort();
            let step = items.len().div_ceil(workers).max(1);
            items.iter().step_by(step).cloned().collect::<Vec<T>>()
        });
        // The first worker chooses, because all samples together may be longer than a call.
        let splitters = me.gather(WorkerId::FIRST, samples)?.map(|samples| {
            let mut samples = samples.concat();
            samples.sort();
            (1..workers).filter_map(|to| samples.get(samples.len() * to / workers).cloned()).collect::<Vec<T>>()
        });
        let splitters = me.broadcast(WorkerId::FIRST, splitters)?;
        let mut rest = self.with(me, std::mem::take);
        // Called functions may have changed it since.
        rest.sort();
        let mut pieces = Vec::new();
        for to in (0..me.worker_count()).rev().map(WorkerId::new) {
            let least = to.index().checked_sub(1).and_then(|before| splitters.get(before));
            let first = least.map_or(0, |least| rest.partition_point(|item| item < least));
            pieces.push((to, rest.split_off(first)));
        }
        let (mut items, outcome) = self.exchange(me, pieces);
        // Finds the sorted runs of the workers.
        items.sort();
        self.put_in_front(me, items);
        outcome
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
    fn exchange(self, me: &Worker, pieces: Vec<(WorkerId, Vec<T>)>) -> (Vec<T>, Result<()>) {
        let number = self.part.with(me, |part| part.ended);
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
                let block: Vec<T> = std::iter::from_fn(|| items.next_if(&mut fits)).collect();
                let arrive = |there: &Worker, (this, number, from, items): (Self, u64, u32, Vec<T>)| {
                    this.part.with(there, |part| {
                        // What comes after an exchange has failed here is late.
                        if number == part.ended {
                            part.arrived.push((from, items));
                        }
                    });
                };
                if let Err(refused) = me.call(to, (self, number, me.id().number(), block), arrive) {
                    kept.extend(refused.arguments.3);
                    sent = Err(refused.error);
                }
            }
            kept.extend(items);
        }
        // Also after an error: the others wait here.
        let quiesced = me.quiesce();
        let mut arrived = self.part.with(me, |part| {
            part.ended += 1;
            std::mem::take(&mut part.arrived)
        });
        arrived.push((me.id().number(), kept));
        // Stable: the calls of one worker have run in their order.
        arrived.sort_by_key(|(from, _)| *from);
        let items = arrived.into_iter().flat_map(|(_, items)| items).collect();
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
