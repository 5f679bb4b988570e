//! Signals: data, followed by a word that says that the data is there.

mod message;
mod remote;

pub(crate) use self::message::SignalMessage;
pub(super) use self::remote::RemoteSignal;
pub(crate) use self::remote::{SignalRequests, take_signal_message};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use farside_fabric::bell::Fencing;
use farside_fabric::transport::AtomicChange;
use farside_sys::racy;

use super::pointer::GlobalPtr;
use super::slice::GlobalSlice;
use super::space::check_alignment;
use crate::Wire;
use crate::error::Result;
use crate::global::AddressFault;
use crate::invoke::call::To;
use crate::invoke::notify::Counted;
use crate::memory::address::GlobalAddress;
use crate::runtime::home::Home;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// The change of a word that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Signal {
    /// Writes this value: for a word that only one process signals, and for flags.
    Set(u64),
    /// Adds this value, wrapping around: for a word that counts the puts of several workers.
    Add(u64),
}

impl Signal {
    fn change(self) -> AtomicChange<u64> {
        match self {
            Self::Set(value) => AtomicChange::Swap(value),
            Self::Add(value) => AtomicChange::Add(value),
        }
    }

    /// Changes a mapped word, after everything that this thread wrote before, and wakes the threads
    /// that watch memory.
    #[inline(always)]
    fn raise(self, process: &Process, home: &Home, word: &AtomicU64) {
        let watchers = home.watchers();
        let are_there = match self {
            Self::Set(value) => {
                // SYNC: release, for the acquire of the thread that loads the word: everything that
                // was put before is visible to it then. A swap would first wait for those stores to
                // leave this processor, and only then fetch the word's line.
                word.store(value, Ordering::Release);
                watchers.are_there(if process.waits.is_reached_by_fences {
                    watchers.fencing()
                } else {
                    Fencing::Mutual
                })
            }
            Self::Add(value) => {
                // SYNC: sequentially consistent, which includes that release.
                word.fetch_add(value, Ordering::SeqCst);
                watchers.are_there_after_change()
            }
        };
        if are_there {
            home.ring_all_after_fence();
        }
    }
}

/// A signal that a call gives after it was executed: [`To::signalling`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(word = "farside::CallSignal")]
pub struct CallSignal {
    word: GlobalPtr<u64>,
    what: Signal,
}

impl Counted for CallSignal {
    fn count(self, process: &Arc<Process>) {
        process.accesses.end();
        remote::signal_soon(process, self.word.address(), self.what);
    }

    #[inline]
    fn count_on(self, worker: &Worker) {
        let (process, place) = (worker.process_handle(), self.word.address());
        process.accesses.end();
        let signals = || worker.signal_mapped(place, self.what);
        if !(signals() || worker.learns_at_once(place) && signals()) {
            remote::signal_soon(process, place, self.what);
        }
    }
}

impl<'w> To<'w> {
    /// Signals a word in the memory of any process after each call was executed. Calls of
    /// different workers may share a word, and any worker can [watch](GlobalPtr::until) it. By
    /// contrast, a [`Synchronizer`](crate::Synchronizer) belongs to one worker. This replaces an
    /// earlier [`notify`](Self::notify), also one for [`On::Sent`](crate::On::Sent).
    ///
    /// A word that several calls signal needs [`Signal::Add`]: signals may take effect in another
    /// order than the calls ran, so the last [`Signal::Set`] need not be the one that stays.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::{Comparison, GlobalAddress, GlobalPtr, Signal};
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let done: GlobalPtr<u64> = GlobalAddress::starter(me.process(), 0).cast();
    /// for to in [me.neighbor(1), me.neighbor(2)] {
    ///     me.to(to)
    ///         .signalling(done, Signal::Add(1))
    ///         .call((), |there, ()| println!("{} was here", there.id()))?;
    /// }
    /// done.wait_until(me, Comparison::Ge, 2)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// *Cost*: for the receiver, an atomic change of the word where it is mapped and the region is
    /// attached, otherwise a message to the service thread of its owner. If the memory is gone, no
    /// error is reported, since there is no caller to report it to.
    pub fn signalling(self, word: GlobalPtr<u64>, what: Signal) -> To<'w, Worker, CallSignal> {
        self.count_executed(CallSignal { word, what })
    }
}

impl Worker {
    #[inline]
    #[track_caller]
    pub(crate) fn put_signal(
        &self,
        address: GlobalAddress,
        data: &[u8],
        signal: GlobalPtr<u64>,
        what: Signal,
    ) -> Result<()> {
        let place = signal.address();
        check_places(address, data.len(), place)?;
        if self.put_signal_mapped(address, data, place, what) {
            return Ok(());
        }
        self.put_signal_slowly(address, data, place, what)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn put_compare_swap(
        &self,
        address: GlobalAddress,
        data: &[u8],
        word: GlobalPtr<u64>,
        expected: u64,
        new: u64,
    ) -> Result<u64> {
        check_places(address, data.len(), word.address())?;
        self.put_compare_swap_slowly(address, data, word.address(), (expected, new))
    }

    /// Writes bytes and signals, if both places are mapped here. They must be
    /// [apart](check_places). Returns whether it did so.
    #[inline(always)]
    pub(super) fn put_signal_mapped(
        &self,
        address: GlobalAddress,
        data: &[u8],
        place: GlobalAddress,
        what: Signal,
    ) -> bool {
        let process = self.process_handle();
        let Some(home) = place.process().and_then(|owner| process.links.home_of(owner)) else { return false };
        let Some(word) = self.mapped(place, 8) else { return false };
        let Some(target) = self.mapped(address, data.len()) else { return false };
        // SAFETY: `data` is readable; `mapped` found the target range inside memory that is mapped
        // here.
        unsafe { racy::copy_out(data.as_ptr(), target, data.len()) };
        // SAFETY: aligned, as the caller has checked, and inside memory that is mapped here, as
        // `mapped` found; no region was attached or dropped since.
        what.raise(process, home, unsafe { racy::atomic_u64(word) });
        true
    }

    /// Signals, if the word is mapped here and aligned. Returns whether it did so.
    #[inline(always)]
    fn signal_mapped(&self, place: GlobalAddress, what: Signal) -> bool {
        let process = self.process_handle();
        let Some(home) = place.process().and_then(|owner| process.links.home_of(owner)) else { return false };
        let Some(word) = self.mapped(place, 8) else { return false };
        if check_alignment::<u64>(place).is_err() {
            return false;
        }
        // SAFETY: aligned, as `check_alignment` has checked, and inside memory that is mapped here,
        // as `mapped` found.
        what.raise(process, home, unsafe { racy::atomic_u64(word) });
        true
    }

    #[track_caller]
    fn put_signal_of<T: Pod>(
        &self,
        address: GlobalAddress,
        values: &[T],
        signal: GlobalPtr<u64>,
        what: Signal,
    ) -> Result<()> {
        check_alignment::<T>(address)?;
        self.put_signal(address, bytemuck::cast_slice(values), signal, what)
    }
}

/// Refuses a signal that is no aligned word, or that the data would overwrite.
#[inline]
pub(super) fn check_places(address: GlobalAddress, bytes: usize, signal: GlobalAddress) -> Result<()> {
    check_alignment::<u64>(signal)?;
    match address.overlaps(bytes as u64, signal, 8) {
        true => Err(signal.refused(AddressFault::InsideOfData { bytes: bytes as u64 })),
        false => Ok(()),
    }
}

impl GlobalPtr<u64> {
    /// Signals without data: a worker that finds the signal in the word sees what this worker has
    /// put before. A worker that [waits](Self::wait_until) for it in memory of its own process is
    /// woken at once if it sleeps, which atomic changes do not do.
    ///
    /// *Completion* and *cost*: those of [`Worker::put_signal`](crate::AwaitSignals::put_signal),
    /// without data.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`](crate::Error::PeerLost) if
    /// the owner is lost; [`Error::Deadline`](crate::Error::Deadline) or
    /// [`Error::Fabric`](crate::Error::Fabric) if it does not answer in time, or the transport
    /// fails; [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn signal(self, me: &Worker, what: Signal) -> Result<()> {
        let place = self.address();
        check_alignment::<u64>(place)?;
        if me.signal_mapped(place, what) {
            return Ok(());
        }
        me.put_signal_slowly(place, &[], place, what)
    }
}

impl<T: Pod> GlobalPtr<T> {
    /// Writes a value and then signals that it is there:
    /// [`Worker::put_signal`](crate::AwaitSignals::put_signal).
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, one out of range, or a signal inside the data;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if an owner is lost;
    /// [`Error::Deadline`](crate::Error::Deadline) or [`Error::Fabric`](crate::Error::Fabric) if it
    /// does not answer in time, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn put_signal(self, me: &Worker, value: T, signal: GlobalPtr<u64>, what: Signal) -> Result<()> {
        me.put_signal_of(self.address(), &[value], signal, what)
    }
}

impl<T: Pod> GlobalSlice<T> {
    /// Writes values at `index` and then signals that they are there:
    /// [`Worker::put_signal`](crate::AwaitSignals::put_signal).
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, one out of range, values that do not all fit, or a signal inside the
    /// data; [`Error::PeerLost`](crate::Error::PeerLost) if an owner is lost;
    /// [`Error::Deadline`](crate::Error::Deadline) or [`Error::Fabric`](crate::Error::Fabric) if it
    /// does not answer in time, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it.
    #[track_caller]
    pub fn put_signal(
        &self,
        me: &Worker,
        index: usize,
        values: &[T],
        signal: GlobalPtr<u64>,
        what: Signal,
    ) -> Result<()> {
        me.put_signal_of(self.part(index..index.saturating_add(values.len()))?.start().address(), values, signal, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_signal_are_apart_or_are_refused() {
        let owner = farside_fabric::ProcessId::new(3);
        let at = |offset| GlobalAddress::starter(owner, offset);
        let is_apart = |data, bytes| check_places(at(data), bytes, at(64)).is_ok();
        assert!(is_apart(56, 8) && is_apart(72, 8) && is_apart(0, 64));
        for (data, bytes) in [(64, 8), (57, 8), (71, 1), (0, 65), (60, 1000), (0, usize::MAX)] {
            assert!(!is_apart(data, bytes), "{bytes} bytes from {data} on");
        }
        // Without data, nothing is overwritten.
        for data in [0, 63, 64, 67, 71, 72, u32::MAX] {
            assert!(is_apart(data, 0), "from {data} on");
        }
        assert!(check_places(GlobalAddress::default(), 0, at(64)).is_ok());
        let elsewhere = GlobalAddress::starter(farside_fabric::ProcessId::new(4), 64);
        assert!(check_places(elsewhere, 8, at(64)).is_ok());
    }
}
