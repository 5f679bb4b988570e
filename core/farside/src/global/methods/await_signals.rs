//! Puts with a signal, and waits for several signals.

use std::time::Duration;

use crate::error::Result;
#[cfg(doc)]
use crate::global::AddressFault;
use crate::global::{GlobalPtr, Signal, Until, Word};
use crate::memory::GlobalAddress;
use crate::runtime::worker::{Worker, extension};

extension! {
    /// Puts with a signal, and waits for several signals.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    AwaitSignals:

    /// Writes bytes and then signals that they are there: a worker that finds the signal in its
    /// word sees the bytes.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::{Comparison, GlobalAddress, GlobalPtr, Signal};
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let peer = me.process_of(me.neighbor(1));
    /// let count = |of| -> GlobalPtr<u64> { GlobalAddress::starter(of, 0).cast() };
    /// me.put_signal(GlobalAddress::starter(peer, 64), b"across", count(peer), Signal::Add(1))?;
    /// // Another worker does the same for this process.
    /// count(me.process()).wait_until(me, Comparison::Ge, 1)?;
    /// let mut data = [0; 6];
    /// me.get_bytes(GlobalAddress::starter(me.process(), 64), &mut data)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Data and signal may be anywhere, also in different processes. If both are in one line of 64
    /// bytes, up to 56 bytes arrive as fast as the signal alone. A worker that
    /// [waits](crate::Until) for the signal in memory of its own process is woken at once if it
    /// sleeps.
    ///
    /// *Completion*: when it returns, data and signal are visible to all.
    ///
    /// *Cost*: where the memory is mapped, a copy, a store or a read-modify-write, and two loads; a
    /// system call only if a thread that watches memory sleeps at the signal's process. Otherwise a
    /// round trip to the service thread of that process. Up to 12 KiB of data for the same process
    /// travel with it (4 KiB in the simulator, whose messages are not longer); more data is put
    /// first, by a round trip of its own. Calls of other workers are served meanwhile.
    ///
    /// Sources: `put_signal` of OpenSHMEM; the notified flags of rpipe.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, one out of range, or a signal inside the data;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if an owner is lost;
    /// [`Error::Deadline`](crate::Error::Deadline) or [`Error::Fabric`](crate::Error::Fabric) if it
    /// does not answer in time, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it. No
    /// signal is given then. If the signal's address is at fault, nothing is written, with one
    /// exception: [registered](crate::RegisterMemory::register) memory that cannot take a signal,
    /// since it is read-only or begins where no word is aligned.
    fn put_signal(&self, address: GlobalAddress, data: &[u8], signal: GlobalPtr<u64>, what: Signal) -> Result<()>;

    /// Writes bytes and then `new` into a word, unless the word holds another value than
    /// `expected`. It did so if the returned value is `expected`. A worker that others have given
    /// up meanwhile does not overwrite what they did since.
    ///
    /// ```no_run
    /// # use farside::prelude::*;
    /// # use farside::{GlobalAddress, GlobalPtr, Result};
    /// # fn example(me: &Worker, slot: GlobalPtr<u64>, entry: GlobalAddress) -> Result<()> {
    /// let (held, full) = (1, 2);
    /// if me.put_compare_swap(entry, b"an entry", slot, held, full)? != held {
    ///     println!("another worker has taken the slot away");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the word holds another value, the bytes may have been written: only those that travel in
    /// one message with the change are not. The word must differ from `expected` as long as another
    /// worker uses the bytes.
    ///
    /// *Completion* and *cost*: those of [`put_signal`](Self::put_signal). Waits for the word wake
    /// in the same way.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, one out of range, or a word inside the data;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if an owner is lost;
    /// [`Error::Deadline`](crate::Error::Deadline) or [`Error::Fabric`](crate::Error::Fabric) if it
    /// does not answer in time, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) if a handler would have to wait for it. After
    /// a deadline the word may still be changed later.
    fn put_compare_swap(
        &self,
        address: GlobalAddress,
        data: &[u8],
        word: GlobalPtr<u64>,
        expected: u64,
        new: u64,
    ) -> Result<u64>;

    /// Waits until each of them has held once, and returns the values of their words at that time.
    /// Waits at most for the job's deadline.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the conditions do not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a word's owner or a signalling process is
    /// lost; [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::Fabric`](crate::Error::Fabric) if an owner does not answer, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    fn wait_all [W: Word](&self, conditions: &[Until<W>]) -> Result<Vec<W>>;

    /// Like [`wait_all`](Self::wait_all), for at most this long.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the conditions do not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a word's owner or a signalling process is
    /// lost; [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::Fabric`](crate::Error::Fabric) if an owner does not answer, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    fn wait_all_for [W: Word](&self, conditions: &[Until<W>], time: Duration) -> Result<Vec<W>>;

    /// Waits until one of them holds. Returns its index (the first one, if several hold) and the
    /// value of its word, or `None` if the list is empty. Waits at most for the job's deadline.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the conditions do not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a word's owner or a signalling process is
    /// lost; [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::Fabric`](crate::Error::Fabric) if an owner does not answer, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    fn wait_any [W: Word](&self, conditions: &[Until<W>]) -> Result<Option<(usize, W)>>;

    /// Like [`wait_any`](Self::wait_any), for at most this long.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the conditions do not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a word's owner or a signalling process is
    /// lost; [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::Fabric`](crate::Error::Fabric) if an owner does not answer, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    fn wait_any_for [W: Word](&self, conditions: &[Until<W>], time: Duration) -> Result<Option<(usize, W)>>;

    /// Waits until at least one of them holds. Returns the indices of all that hold, with the
    /// values of their words. Waits at most for the job's deadline.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the conditions do not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a word's owner or a signalling process is
    /// lost; [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::Fabric`](crate::Error::Fabric) if an owner does not answer, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    fn wait_some [W: Word](&self, conditions: &[Until<W>]) -> Result<Vec<(usize, W)>>;

    /// Like [`wait_some`](Self::wait_some), for at most this long.
    ///
    /// # Errors
    /// [`Error::Deadline`](crate::Error::Deadline) if the conditions do not hold in time;
    /// [`Error::PeerLost`](crate::Error::PeerLost) if a word's owner or a signalling process is
    /// lost; [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale,
    /// misaligned or read-only address, or one out of range;
    /// [`Error::Fabric`](crate::Error::Fabric) if an owner does not answer, or the transport fails;
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    fn wait_some_for [W: Word](&self, conditions: &[Until<W>], time: Duration) -> Result<Vec<(usize, W)>>;
}
