//! Numbered notifications, after GASPI: arrays of signals.

use std::time::Duration;

use farside::kit::{SpaceParts as _, WorkerParts as _};
use farside::prelude::*;
use farside::{GlobalSlice, Result};
use farside_fabric::transport::AtomicChange;

/// Waits for signals in an array of words. The number of a word is its place in the array. A word
/// that is not zero is a notification.
///
/// A worker puts data and notifies by a [signal](farside::Signal)
/// ([`put_signal`](farside::AwaitSignals::put_signal)). The owner's workers wait for any of the
/// words, and take what arrived. `GlobalPtr::swap` takes a single notification. The words are zero
/// at first, and nothing else changes them.
///
/// A notification that was not taken yet is *overwritten* by the next one in its word, as in GASPI.
/// So each word is for one sender, or for an event that can happen once until it is taken. The data
/// of both is visible then. To count instead, [add](farside::Signal::Add).
///
/// ```no_run
/// # use farside::prelude::*;
/// # use farside::{GlobalAddress, Signal};
/// # use farside_kit::notifications::Notifications;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let words = me.symmetric::<u64>(me.process_count() as usize)?;
/// let there = me.process_of(me.neighbor(me.threads_per_process()));
/// // Under the number of the sender, so that none overwrites another's.
/// let number = me.process().number();
/// let to = GlobalAddress::starter(there, 8 * number);
/// me.put_signal(to, &7_u64.to_le_bytes(), words.at(there)?.at(number as usize)?, Signal::Set(1))?;
/// // The first one to arrive is taken first.
/// let (from, value) = words.at(me.process())?.take_any(me)?;
/// # let _ = (from, value);
/// words.free(me)
/// # }
/// ```
///
/// GASPI: `gaspi_write_notify`, `gaspi_notify_waitsome`, `gaspi_notify_reset`, with 64-bit values.
///
/// *Cost*: a look at each word, and again whenever this worker is woken. A signal wakes the workers
/// of the words' owner. A worker of another process is not woken, and looks every 100 µs; where the
/// words are not mapped, each look at a word is a round trip. To wait for some of the words, take a
/// [part](GlobalSlice::part) of the array.
///
/// # Errors
/// [`GlobalError::Address`](farside::global::GlobalError::Address) for null, stale, misaligned or
/// read-only words, words out of range, or none; [`Error::PeerLost`](farside::Error::PeerLost) if
/// their owner is lost; [`Error::Fabric`](farside::Error::Fabric) if it does not answer, or the
/// transport fails. A method that waits also returns [`Error::Deadline`](farside::Error::Deadline),
/// and [`Error::InHandler`](farside::Error::InHandler) in a handler. It runs calls of other workers
/// meanwhile, and without a time it waits for the job's deadline at most. Where the words are not
/// mapped, a look to which the owner does not answer ends at the job's deadline, also with a time.
pub trait Notifications {
    /// Returns the lowest number of which there is a notification, if any.
    fn test(&self, me: &Worker) -> Result<Option<usize>>;

    /// Waits until there is a notification, and returns its number: the lowest, if there are
    /// several. The notification stays until it is taken.
    #[track_caller]
    fn wait_some(&self, me: &Worker) -> Result<usize> {
        self.wait_some_for(me, me.default_deadline())
    }

    /// Like [`wait_some`](Self::wait_some), for at most `time`.
    fn wait_some_for(&self, me: &Worker, time: Duration) -> Result<usize>;

    /// Waits for a notification as [`wait_some`](Self::wait_some) does, and takes it. Returns its
    /// number and its value. If several workers take notifications, each goes to one of them.
    #[track_caller]
    fn take_any(&self, me: &Worker) -> Result<(usize, u64)> {
        self.take_any_for(me, me.default_deadline())
    }

    /// Like [`take_any`](Self::take_any), for at most `time`.
    fn take_any_for(&self, me: &Worker, time: Duration) -> Result<(usize, u64)>;

    /// Waits until there is at least one notification, and takes all that there are.
    #[track_caller]
    fn take_some(&self, me: &Worker) -> Result<Vec<(usize, u64)>> {
        self.take_some_for(me, me.default_deadline())
    }

    /// Like [`take_some`](Self::take_some), for at most `time`.
    fn take_some_for(&self, me: &Worker, time: Duration) -> Result<Vec<(usize, u64)>>;

    /// Waits until there is a notification in every word at the same time, takes them, and returns
    /// their values in order. If other workers take some of them as well, each goes to one worker,
    /// and a worker that does not get all puts back what it took. Until then others do not see
    /// those, and may take a newer notification of a word before the older one is back. After an
    /// error all notifications are left, if the memory is mapped here. Of other memory, a value may
    /// be lost that was being taken when its owner stopped answering.
    #[track_caller]
    fn take_all(&self, me: &Worker) -> Result<Vec<u64>> {
        self.take_all_for(me, me.default_deadline())
    }

    /// Like [`take_all`](Self::take_all), for at most `time`.
    fn take_all_for(&self, me: &Worker, time: Duration) -> Result<Vec<u64>>;
}

impl Notifications for GlobalSlice<u64> {
    fn test(&self, me: &Worker) -> Result<Option<usize>> {
        find(self, me, |_, value, _| Ok(value != 0))
    }

    #[track_caller]
    fn wait_some_for(&self, me: &Worker, time: Duration) -> Result<usize> {
        self.at(0)?;
        me.watch_until("waiting for a notification", time, |me| self.test(me).transpose())
    }

    #[track_caller]
    fn take_any_for(&self, me: &Worker, time: Duration) -> Result<(usize, u64)> {
        self.at(0)?;
        me.watch_until("waiting for a notification", time, |me| {
            let mut taken = 0;
            let found = find(self, me, |_, value, change| {
                // Another worker may have taken it.
                taken = if value == 0 { 0 } else { change(TAKE)? };
                Ok(taken != 0)
            });
            found.map(|number| number.map(|number| (number, taken))).transpose()
        })
    }

    #[track_caller]
    fn take_some_for(&self, me: &Worker, time: Duration) -> Result<Vec<(usize, u64)>> {
        self.at(0)?;
        me.watch_until("waiting for notifications", time, |me| {
            let mut some = Vec::new();
            let looked = find(self, me, |number, value, change| {
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

    #[track_caller]
    fn take_all_for(&self, me: &Worker, time: Duration) -> Result<Vec<u64>> {
        self.at(0)?;
        me.watch_until("waiting for all of several notifications", time, |me| try_take_all(self, me).transpose())
    }
}

/// The change that takes a notification.
const TAKE: AtomicChange<u64> = AtomicChange::Swap(0);

/// Looks at each word until `good` accepts one, and returns its number. `good` may change the word.
fn find(
    words: &GlobalSlice<u64>,
    me: &Worker,
    mut good: impl FnMut(usize, u64, &dyn Fn(AtomicChange<u64>) -> Result<u64>) -> Result<bool>,
) -> Result<Option<usize>> {
    let look = |change: &dyn Fn(usize, AtomicChange<u64>) -> Result<u64>| {
        for number in 0..words.len() {
            // SYNC: acquire, for the release of the notifying worker: its data is visible then.
            let value = change(number, AtomicChange::Load)?;
            if good(number, value, &|new| change(number, new))? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    };
    // SAFETY: `look` uses no worker. Neither does `good`: it is a closure of this file, which
    // changes words and keeps what they held.
    unsafe { me.with_own_words(words.start().address(), words.len(), look) }
}

/// Takes all notifications, or none.
#[track_caller]
fn try_take_all(words: &GlobalSlice<u64>, me: &Worker) -> Result<Option<Vec<u64>>> {
    if find(words, me, |_, value, _| Ok(value == 0))?.is_some() {
        return Ok(None);
    }
    let mut values = Vec::with_capacity(words.len());
    let looked = find(words, me, |_, _, change| {
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
    find(words, me, |_, _, change| {
        let Some(new) = values.next() else { return Ok(true) };
        // A newer notification that arrived meanwhile has replaced the taken one.
        change(AtomicChange::CompareSwap { expected: 0, new }).map(|_| false)
    })?;
    looked.map(|_| None)
}
