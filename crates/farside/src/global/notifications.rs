//! Numbered notifications, after GASPI.

use std::ops::Range;
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_fabric::transport::AtomicChange;

use super::error::GlobalError;
use super::objects::Symmetric;
use super::pointer::GlobalPtr;
use super::signal::Signal;
use super::slice::GlobalSlice;
use super::until::{Comparison, Until};
use crate::Wire;
use crate::error::{Error, Result};
use crate::memory::address::{GlobalAddress, SLOT_BYTES};
use crate::runtime::worker::Worker;

/// The numbered notifications of a process: each number is a word in its memory, which holds zero or the value that was notified last.
///
/// Whoever has this puts data and notifies its owner under a number ([`put_notify`](Self::put_notify)); the owner's workers wait for any number
/// of a range, and take what came. It is a plain value, to be sent to whoever is to notify.
///
/// A notification that was not taken yet is *overwritten* by the next under its number, as GASPI has it: so each number is for one sender, or
/// for one thing that can happen once until it is taken. What both have put is visible then. To count instead, add to a word by
/// [signals](Signal::Add).
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::{AllNotifications, GlobalAddress};
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let notifications = AllNotifications::new(me, me.process_count())?;
/// let there = me.process_of(me.neighbor(me.threads_per_process()));
/// // Under the number of the sender, so that nobody overwrites another's.
/// let number = me.process().number();
/// notifications.of(there)?.put_notify(me, GlobalAddress::starter(there, 8 * number), &7_u64.to_le_bytes(), number, 1)?;
/// // Whoever comes first is taken first.
/// let (from, value) = notifications.own(me).take_any(me, 0..me.process_count())?;
/// # let _ = (from, value);
/// notifications.release(me)
/// # }
/// ```
///
/// GASPI: `gaspi_write_notify`, `gaspi_notify`, `gaspi_notify_waitsome`, `gaspi_notify_reset`, with 64-bit values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Notifications {
    slots: GlobalPtr<u64>,
    count: u32,
}

/// What is wrong with a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotificationFault {
    /// There is none of this number.
    #[error("there are numbers below {count} only")]
    NoSuchNumber {
        /// How many there are.
        count: u32,
    },
    /// A wait for none of them would never end.
    #[error("no numbers were named: wait for at least one")]
    NoNumbers,
    /// They are another process's, and only that one waits for them.
    #[error("only workers of that process wait for them and take them")]
    OfAnother,
    /// Zero says that there is no notification.
    #[error("its value is 0, which says that there is none: notify with another")]
    Zero,
}

impl Notifications {
    /// Notifications in these words, under the numbers of their places. The words must be zero before the first is notified, and nothing else may
    /// change them.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more than 2<sup>29</sup>, which no region has.
    pub fn in_words(words: GlobalSlice<u64>) -> Result<Self> {
        const WORDS_MAX: usize = (SLOT_BYTES / 8) as usize;
        match u32::try_from(words.len()).ok().filter(|count| *count as usize <= WORDS_MAX) {
            Some(count) => Ok(Self { slots: words.start(), count }),
            None => {
                let bytes = words.len().saturating_mul(8);
                Err(Error::TooLarge { what: "a set of notifications", bytes, max: WORDS_MAX * 8 })
            }
        }
    }

    /// How many numbers there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whose they are; `None` when they are in no memory.
    pub const fn process(&self) -> Option<ProcessId> {
        self.slots.process()
    }

    /// Writes bytes, anywhere, and then notifies that they are there: who finds the notification sees the bytes.
    ///
    /// *Completion*, cost: those of [`Worker::put_signal`].
    ///
    /// # Errors
    /// Those of [`Worker::put_signal`]; [`GlobalError::Notification`](crate::global::GlobalError::Notification).
    pub fn put_notify(&self, me: &Worker, to: GlobalAddress, data: &[u8], number: u32, value: u64) -> Result<()> {
        let slot = self.slot_for(number, value)?;
        me.put_signal(to, data, slot, Signal::Set(value))
    }

    /// Notifies: who finds it sees what this worker has put before.
    ///
    /// # Errors
    /// Those of [`put_notify`](Self::put_notify).
    pub fn notify(&self, me: &Worker, number: u32, value: u64) -> Result<()> {
        self.slot_for(number, value)?.signal(me, Signal::Set(value))
    }

    /// The notification of this number, to be waited for [together with other words](Worker::wait_any), and with [who gives
    /// it](Until::signalled_by).
    ///
    /// # Errors
    /// [`GlobalError::Notification`](crate::global::GlobalError::Notification).
    pub fn until(&self, number: u32) -> Result<Until<u64>> {
        Ok(self.slot(number)?.until(Comparison::Ne, 0))
    }

    /// Waits until there is a notification of one of these numbers, running what others call here meanwhile, and says which: the lowest, when there
    /// are several. It stays until it is [taken](Self::take). At most for the job's deadline.
    ///
    /// *Cost*: a look at each of the numbers, and again whenever this worker is woken.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`GlobalError::Notification`](crate::global::GlobalError::Notification), also where the notifications are another process's; those of
    /// [`GlobalPtr::load`]; [`Error::InHandler`].
    pub fn wait_some(&self, me: &Worker, numbers: Range<u32>) -> Result<u32> {
        self.wait_some_for(me, numbers, me.default_deadline())
    }

    /// As [`wait_some`](Self::wait_some), for at most this long.
    ///
    /// # Errors
    /// Those of [`wait_some`](Self::wait_some).
    pub fn wait_some_for(&self, me: &Worker, numbers: Range<u32>, time: Duration) -> Result<u32> {
        let range = self.slots_of(me, numbers)?;
        me.watch_until("waiting for a notification", time, |me| range.first(me).transpose())
    }

    /// Whether there is a notification of one of these numbers, and which: the lowest.
    ///
    /// # Errors
    /// Those of [`wait_some`](Self::wait_some), but for the deadline.
    pub fn test(&self, me: &Worker, numbers: Range<u32>) -> Result<Option<u32>> {
        self.slots_of(me, numbers)?.first(me)
    }

    /// Takes a notification: what it said, or zero when there was none. It is gone then; of several who take it one gets it.
    ///
    /// # Errors
    /// [`GlobalError::Notification`](crate::global::GlobalError::Notification); those of [`GlobalPtr::swap`].
    pub fn take(&self, me: &Worker, number: u32) -> Result<u64> {
        self.slot(number)?.swap(me, 0)
    }

    /// Waits for a notification of one of these numbers, as [`wait_some`](Self::wait_some), and takes it: its number and what it said.
    ///
    /// # Errors
    /// Those of [`wait_some`](Self::wait_some).
    pub fn take_any(&self, me: &Worker, numbers: Range<u32>) -> Result<(u32, u64)> {
        self.take_any_for(me, numbers, me.default_deadline())
    }

    /// As [`take_any`](Self::take_any), for at most this long.
    ///
    /// # Errors
    /// Those of [`wait_some`](Self::wait_some).
    pub fn take_any_for(&self, me: &Worker, numbers: Range<u32>, time: Duration) -> Result<(u32, u64)> {
        let range = self.slots_of(me, numbers)?;
        me.watch_until("waiting for a notification", time, |me| {
            let mut taken = 0;
            let found = range.find(me, |_, value, change| {
                // Another may have been quicker.
                taken = if value == 0 { 0 } else { change(TAKE)? };
                Ok(taken != 0)
            });
            found.map(|number| number.map(|number| (number, taken))).transpose()
        })
    }

    /// Waits until there is a notification of at least one of these numbers, and takes all that there are.
    ///
    /// # Errors
    /// Those of [`wait_some`](Self::wait_some).
    pub fn take_some(&self, me: &Worker, numbers: Range<u32>) -> Result<Vec<(u32, u64)>> {
        self.take_some_for(me, numbers, me.default_deadline())
    }

    /// As [`take_some`](Self::take_some), for at most this long.
    ///
    /// # Errors
    /// Those of [`wait_some`](Self::wait_some).
    pub fn take_some_for(&self, me: &Worker, numbers: Range<u32>, time: Duration) -> Result<Vec<(u32, u64)>> {
        let range = self.slots_of(me, numbers)?;
        me.watch_until("waiting for notifications", time, |me| {
            let mut some = Vec::new();
            let looked = range.find(me, |number, value, change| {
                let taken = if value == 0 { 0 } else { change(TAKE)? };
                if taken != 0 {
                    some.push((number, taken));
                }
                Ok(false)
            });
            // What was taken is told before an error of another, which comes again.
            if some.is_empty() { looked.map(|_| None).transpose() } else { Some(Ok(some)) }
        })
    }

    /// Waits until there is a notification of each of these numbers at the same time, and takes them: what they said, in order. Where others take
    /// some of them as well, each goes to one, and who does not get all leaves all.
    ///
    /// # Errors
    /// Those of [`wait_some`](Self::wait_some). What was there then is left.
    pub fn take_all(&self, me: &Worker, numbers: Range<u32>) -> Result<Vec<u64>> {
        self.take_all_for(me, numbers, me.default_deadline())
    }

    /// As [`take_all`](Self::take_all), for at most this long.
    ///
    /// # Errors
    /// Those of [`take_all`](Self::take_all).
    pub fn take_all_for(&self, me: &Worker, numbers: Range<u32>, time: Duration) -> Result<Vec<u64>> {
        let range = self.slots_of(me, numbers)?;
        me.watch_until("waiting for all of several notifications", time, |me| range.take_all(me).transpose())
    }

    fn slot(&self, number: u32) -> Result<GlobalPtr<u64>> {
        if number < self.count { self.slots.add(number as usize) } else { Err(self.outside(number)) }
    }

    fn slot_for(&self, number: u32, value: u64) -> Result<GlobalPtr<u64>> {
        let slot = self.slot(number)?;
        if value == 0 { Err(self.refused(number, NotificationFault::Zero)) } else { Ok(slot) }
    }

    fn slots_of(&self, me: &Worker, numbers: Range<u32>) -> Result<Slots> {
        if numbers.is_empty() {
            return Err(self.refused(numbers.start, NotificationFault::NoNumbers));
        }
        if numbers.end > self.count {
            return Err(self.outside(numbers.end - 1));
        }
        let first = self.slots.add(numbers.start as usize)?;
        match first.process() {
            Some(process) if process != me.process() => Err(self.refused(numbers.start, NotificationFault::OfAnother)),
            _ => Ok(Slots { first, start: numbers.start, count: numbers.end - numbers.start }),
        }
    }

    #[cold]
    fn outside(&self, number: u32) -> Error {
        self.refused(number, NotificationFault::NoSuchNumber { count: self.count })
    }

    #[cold]
    fn refused(&self, number: u32, why: NotificationFault) -> Error {
        match self.process() {
            Some(process) => GlobalError::Notification { process, number, why }.into(),
            None => self.slots.address().beyond(0, 0),
        }
    }
}

/// Takes a notification.
const TAKE: AtomicChange<u64> = AtomicChange::Swap(0);

/// The words of some numbers that follow each other, in the own process's memory.
struct Slots {
    first: GlobalPtr<u64>,
    start: u32,
    count: u32,
}

impl Slots {
    /// Looks at each, until `good` is content with what one holds: its number. `good` can change it, too.
    fn find(
        &self,
        me: &Worker,
        mut good: impl FnMut(u32, u64, &dyn Fn(AtomicChange<u64>) -> Result<u64>) -> Result<bool>,
    ) -> Result<Option<u32>> {
        me.with_own_words(self.first.address(), self.count as usize, |change| {
            for index in 0..self.count {
                // SYNC: acquire, for the release of who notified: the data is visible then.
                let value = change(index as usize, AtomicChange::Load)?;
                if good(self.start + index, value, &|new| change(index as usize, new))? {
                    return Ok(Some(self.start + index));
                }
            }
            Ok(None)
        })
    }

    /// Takes all of them, or none.
    fn take_all(&self, me: &Worker) -> Result<Option<Vec<u64>>> {
        if self.find(me, |_, value, _| Ok(value == 0))?.is_some() {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(self.count as usize);
        let looked = self.find(me, |_, _, change| {
            // Another may have been quicker.
            let taken = change(TAKE)?;
            if taken != 0 {
                values.push(taken);
            }
            Ok(taken == 0)
        });
        if matches!(looked, Ok(None)) {
            return Ok(Some(values));
        }
        let mut values = values.into_iter();
        self.find(me, |_, _, change| {
            let Some(new) = values.next() else { return Ok(true) };
            // Unless there is a newer one by now, which would have taken its place.
            change(AtomicChange::CompareSwap { expected: 0, new }).map(|_| false)
        })?;
        looked.map(|_| None)
    }

    /// The first number of which there is a notification.
    fn first(&self, me: &Worker) -> Result<Option<u32>> {
        self.find(me, |_, value, _| Ok(value != 0))
    }
}

/// Notifications of all processes of the job, as many of each.
///
/// Dropped without [`release`](Self::release), or after a process was lost, their memory is kept until the job ends.
#[derive(Debug)]
pub struct AllNotifications {
    words: Symmetric<u64>,
}

impl AllNotifications {
    /// Makes `count` numbers for each process. All workers of the job call this, in the same order as other collectives and with the same count.
    ///
    /// *Cost*: that of [`Worker::symmetric`]: 8 bytes a number in each process, until it is [released](Self::release).
    ///
    /// # Errors
    /// Those of [`Worker::symmetric`], the same at all workers: nobody waits for a process that has been refused its memory.
    pub fn new(me: &Worker, count: u32) -> Result<Self> {
        Ok(Self { words: me.symmetric(count as usize)? })
    }

    /// Those of a process.
    ///
    /// # Errors
    /// [`Error::UnknownProcess`].
    pub fn of(&self, process: ProcessId) -> Result<Notifications> {
        Notifications::in_words(self.words.at(process)?)
    }

    /// Those of this worker's process.
    ///
    /// # Panics
    /// For a worker of another job, which has more processes.
    #[track_caller]
    pub fn own(&self, me: &Worker) -> Notifications {
        self.of(me.process()).expect("they are this job's: every process of it has some")
    }

    /// Gives the memory back, when all workers have called this. Nobody may notify any more.
    ///
    /// # Errors
    /// Those of [`Worker::barrier`]; the memory is kept until the job ends then.
    #[track_caller]
    pub fn release(self, me: &Worker) -> Result<()> {
        self.words.free(me)
    }
}
