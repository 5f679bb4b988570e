//! Numbered notifications, after GASPI.
//!
//! A method with a range of numbers is for workers of the owner. One with a single number is for
//! all.

use std::ops::Range;
use std::time::Duration;

use farside::global::{AddressFault, GlobalError};
use farside::kit::{SpaceParts as _, WorkerParts as _};
use farside::prelude::*;
use farside::{Comparison, Error, GlobalAddress, GlobalPtr, GlobalSlice, Result, Signal, Symmetric, Until};
use farside_fabric::transport::AtomicChange;

/// The numbered notifications of a process. Each number is a word in its memory, which holds zero
/// or the last value.
///
/// A worker that has this puts data and notifies the owner under a number
/// ([`put_notify`](Self::put_notify)). The owner's workers wait for any number of a range, and take
/// what arrived. It is a plain value, and can be sent to any worker that is to notify.
///
/// A notification that was not taken yet is *overwritten* by the next one under its number, as in
/// GASPI. So each number is for one sender, or for an event that can happen once until it is taken.
/// The data of both is visible then. To count instead, add to a word by [signals](Signal::Add).
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::GlobalAddress;
/// # use farside_kit::notifications::AllNotifications;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let notifications = AllNotifications::new(me, me.process_count())?;
/// let there = me.process_of(me.neighbor(me.threads_per_process()));
/// // Under the number of the sender, so that none overwrites another's.
/// let number = me.process().number();
/// let to = GlobalAddress::starter(there, 8 * number);
/// notifications.of(there)?.put_notify(me, to, &7_u64.to_le_bytes(), number, 1)?;
/// // The first one to arrive is taken first.
/// let (from, value) = notifications.own(me).take_any(me, 0..me.process_count())?;
/// # let _ = (from, value);
/// notifications.release(me)
/// # }
/// ```
///
/// GASPI: `gaspi_write_notify`, `gaspi_notify`, `gaspi_notify_waitsome`, `gaspi_notify_reset`, with
/// 64-bit values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(word = "farside::Notifications")]
pub struct Notifications {
    slots: GlobalPtr<u64>,
    count: u32,
}

/// A notification cannot be given or waited for.
///
/// It arrives as an [`Error`]; [`Error::room_error`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("notification {number} of {process}: {why}")]
pub struct NotificationError {
    /// The process whose notification it is.
    pub process: ProcessId,
    /// The number of the notification, or the first of several.
    pub number: u32,
    /// What is wrong.
    pub why: NotificationFault,
}

/// A fault of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotificationFault {
    /// There is no such number.
    #[error("it does not exist: use a number below {count}")]
    NoSuchNumber {
        /// The number of numbers.
        count: u32,
    },
    /// A wait for no numbers would never end.
    #[error("no numbers were named: wait for at least one")]
    NoNumbers,
    /// The notifications are another process's, and only that process waits for several of them.
    #[error(
        "only workers of that process can wait for several or take them: let one of them do so, or name one number"
    )]
    OfAnother,
    /// The value zero marks the absence of a notification.
    #[error("its value is 0, which marks the absence of a notification: use another value")]
    Zero,
}

impl Notifications {
    /// Returns notifications in these words, numbered by their places. The words must be zero
    /// before the first notification, and nothing else may change them.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for 2<sup>32</sup> or more, since numbers have 32 bits.
    pub fn in_words(words: GlobalSlice<u64>) -> Result<Self> {
        const WORDS_MAX: usize = u32::MAX as usize;
        match u32::try_from(words.len()) {
            Ok(count) => Ok(Self { slots: words.start(), count }),
            Err(_) => {
                let bytes = words.len().saturating_mul(8);
                Err(Error::TooLarge {
                    what: "a set of notifications",
                    bytes,
                    max: WORDS_MAX * 8,
                    remedy: "make several sets",
                })
            }
        }
    }

    /// Returns the number of numbers.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the owner, or `None` if they are in no memory.
    pub const fn process(&self) -> Option<ProcessId> {
        self.slots.process()
    }

    /// Writes bytes anywhere, and then notifies that they are there: a worker that finds the
    /// notification sees the bytes.
    ///
    /// *Completion* and *cost*: those of [`Worker::put_signal`](farside::AwaitSignals::put_signal).
    ///
    /// # Errors
    /// [`NotificationError`] if the number does not exist, or the value is 0;
    /// [`GlobalError::Address`] for a null, stale, misaligned or read-only address, one out of
    /// range, or a signal inside the data; [`Error::PeerLost`] if an owner is lost;
    /// [`Error::Deadline`] or [`Error::Fabric`] if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`] if a handler would have to wait for it.
    pub fn put_notify(&self, me: &Worker, to: GlobalAddress, data: &[u8], number: u32, value: u64) -> Result<()> {
        let slot = self.slot_for(number, value)?;
        me.put_signal(to, data, slot, Signal::Set(value))
    }

    /// Notifies: a worker that finds the notification sees what this worker has put before.
    ///
    /// # Errors
    /// [`NotificationError`] if the number does not exist, or the value is 0;
    /// [`GlobalError::Address`] for stale or read-only memory; [`Error::PeerLost`] if its owner is
    /// lost; [`Error::Deadline`] or [`Error::Fabric`] if it does not answer in time, or the
    /// transport fails; [`Error::InHandler`] if a handler would have to wait for it.
    pub fn notify(&self, me: &Worker, number: u32, value: u64) -> Result<()> {
        self.slot_for(number, value)?.signal(me, Signal::Set(value))
    }

    /// Returns the condition that there is a notification of this number, to be waited for
    /// [together with other words](farside::AwaitSignals::wait_any), and with its [signalling
    /// process](Until::signalled_by).
    ///
    /// # Errors
    /// [`NotificationError`].
    pub fn until(&self, number: u32) -> Result<Until<u64>> {
        Ok(self.slot(number)?.until(Comparison::Ne, 0))
    }

    /// Waits until there is a notification of one of these numbers, and returns the lowest such
    /// number. Runs calls of other workers meanwhile. The notification stays until it is
    /// [taken](Self::take). Waits at most for the job's deadline.
    ///
    /// *Cost*: a look at each of the numbers, and again whenever this worker is woken.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn wait_some(&self, me: &Worker, numbers: Range<u32>) -> Result<u32> {
        self.wait_some_for(me, numbers, me.default_deadline())
    }

    /// Like [`wait_some`](Self::wait_some), for at most `time`.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn wait_some_for(&self, me: &Worker, numbers: Range<u32>, time: Duration) -> Result<u32> {
        let range = self.slots_of(me, numbers)?;
        me.watch_until("waiting for a notification", time, |me| range.first(me).transpose())
    }

    /// Returns the lowest of these numbers of which there is a notification, if any.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Fabric`] if
    /// the transport fails.
    pub fn test(&self, me: &Worker, numbers: Range<u32>) -> Result<Option<u32>> {
        self.slots_of(me, numbers)?.first(me)
    }

    /// Takes a notification, and returns its value, or zero if there was none. It is gone then; if
    /// several workers take it, one gets it.
    ///
    /// # Errors
    /// [`NotificationError`] if the number does not exist; [`GlobalError::Address`] for a
    /// null, stale, misaligned or read-only address, or one out of range; [`Error::PeerLost`] if
    /// the owner is lost; [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it.
    pub fn take(&self, me: &Worker, number: u32) -> Result<u64> {
        self.slot(number)?.swap(me, 0)
    }

    /// Waits for a notification of one of these numbers, as [`wait_some`](Self::wait_some), and
    /// takes it. Returns its number and its value.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn take_any(&self, me: &Worker, numbers: Range<u32>) -> Result<(u32, u64)> {
        self.take_any_for(me, numbers, me.default_deadline())
    }

    /// Like [`take_any`](Self::take_any), for at most `time`.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn take_any_for(&self, me: &Worker, numbers: Range<u32>, time: Duration) -> Result<(u32, u64)> {
        let range = self.slots_of(me, numbers)?;
        me.watch_until("waiting for a notification", time, |me| {
            let mut taken = 0;
            let found = range.find(me, |_, value, change| {
                // Another worker may have taken it.
                taken = if value == 0 { 0 } else { change(TAKE)? };
                Ok(taken != 0)
            });
            found.map(|number| number.map(|number| (number, taken))).transpose()
        })
    }

    /// Waits until there is a notification of at least one of these numbers, and takes all that
    /// there are.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn take_some(&self, me: &Worker, numbers: Range<u32>) -> Result<Vec<(u32, u64)>> {
        self.take_some_for(me, numbers, me.default_deadline())
    }

    /// Like [`take_some`](Self::take_some), for at most `time`.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler.
    #[track_caller]
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
            // What was taken is returned before an error of another number, which occurs again.
            if some.is_empty() { looked.map(|_| None).transpose() } else { Some(Ok(some)) }
        })
    }

    /// Waits until there is a notification of each of these numbers at the same time, takes them,
    /// and returns their values in order. If other workers take some of them as well, each goes to
    /// one worker, and a worker that does not get all puts back what it took. Until then others do
    /// not see those, and may take a newer notification of a number before the older one is back.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler. The notifications are left then.
    #[track_caller]
    pub fn take_all(&self, me: &Worker, numbers: Range<u32>) -> Result<Vec<u64>> {
        self.take_all_for(me, numbers, me.default_deadline())
    }

    /// Like [`take_all`](Self::take_all), for at most `time`.
    ///
    /// # Errors
    /// [`NotificationError`] if a number does not exist, none was named, or they are
    /// another process's; [`GlobalError::Address`] if their memory is stale; [`Error::Deadline`];
    /// [`Error::InHandler`] in a handler. The notifications are left then.
    #[track_caller]
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
            Some(process) => Error::Room(Box::new(NotificationError { process, number, why })),
            None => GlobalError::Address { address: self.slots.address(), why: AddressFault::Null }.into(),
        }
    }
}

/// The change that takes a notification.
const TAKE: AtomicChange<u64> = AtomicChange::Swap(0);

/// The words of some consecutive numbers, in memory of this process.
struct Slots {
    first: GlobalPtr<u64>,
    start: u32,
    count: u32,
}

impl Slots {
    /// Looks at each word until `good` accepts one, and returns its index. `good` may change the
    /// word.
    fn find(
        &self,
        me: &Worker,
        mut good: impl FnMut(u32, u64, &dyn Fn(AtomicChange<u64>) -> Result<u64>) -> Result<bool>,
    ) -> Result<Option<u32>> {
        let look = |change: &dyn Fn(usize, AtomicChange<u64>) -> Result<u64>| {
            for index in 0..self.count {
                // SYNC: acquire, for the release of the notifying worker: its data is visible then.
                let value = change(index as usize, AtomicChange::Load)?;
                if good(self.start + index, value, &|new| change(index as usize, new))? {
                    return Ok(Some(self.start + index));
                }
            }
            Ok(None)
        };
        // SAFETY: `look` uses no worker. Neither does `good`: it is a closure of this file, which
        // changes words and keeps what they held.
        unsafe { me.with_own_words(self.first.address(), self.count as usize, look) }
    }

    /// Takes all of them, or none.
    #[track_caller]
    fn take_all(&self, me: &Worker) -> Result<Option<Vec<u64>>> {
        if self.find(me, |_, value, _| Ok(value == 0))?.is_some() {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(self.count as usize);
        let looked = self.find(me, |_, _, change| {
            // Another worker may have taken it.
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
            // A newer one that arrived meanwhile has replaced it.
            change(AtomicChange::CompareSwap { expected: 0, new }).map(|_| false)
        })?;
        looked.map(|_| None)
    }

    /// Returns the first number of which there is a notification.
    fn first(&self, me: &Worker) -> Result<Option<u32>> {
        self.find(me, |_, value, _| Ok(value != 0))
    }
}

/// Notifications of all processes of the job, the same number of them in each.
///
/// If it is dropped without [`release`](Self::release), or after the loss of a process, its memory
/// is kept until the job ends.
#[derive(Debug)]
pub struct AllNotifications {
    words: Symmetric<u64>,
}

impl AllNotifications {
    /// Makes `count` numbers for each process. All workers of the job call this, in the same order
    /// as other collectives and with the same count.
    ///
    /// *Cost*: that of [`Worker::symmetric`](farside::MakeArrays::symmetric): 8 bytes per number in
    /// each process, until it is [released](Self::release).
    ///
    /// # Errors
    /// The same at all workers: [`MemoryError::Refused`](farside::memory::MemoryError::Refused) if
    /// a process has no memory left,
    /// [`MemoryError::NoAddress`](farside::memory::MemoryError::NoAddress),
    /// [`ObjectError::TooLong`](farside::global::ObjectError::TooLong),
    /// [`ObjectError::Unequal`](farside::global::ObjectError::Unequal). Memory that other processes
    /// got is freed then. After an error of the collective the memory is kept until the job ends:
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`].
    pub fn new(me: &Worker, count: u32) -> Result<Self> {
        Ok(Self { words: me.symmetric(count as usize)? })
    }

    /// Returns the notifications of a process.
    ///
    /// # Errors
    /// [`Error::UnknownProcess`].
    pub fn of(&self, process: ProcessId) -> Result<Notifications> {
        Notifications::in_words(self.words.at(process)?)
    }

    /// Returns the notifications of this worker's process.
    ///
    /// # Panics
    /// If the worker is of another job, which has more processes.
    #[track_caller]
    pub fn own(&self, me: &Worker) -> Notifications {
        self.of(me.process()).expect("they are this job's: every process of it has some")
    }

    /// Frees the memory when all workers have called this. No worker may notify any more.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time;
    /// [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. The memory is then kept until the job ends.
    #[track_caller]
    pub fn release(self, me: &Worker) -> Result<()> {
        self.words.free(me)
    }
}
