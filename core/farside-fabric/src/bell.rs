//! The notification of a worker that has something to receive, and its sleep until then.
//!
//! Two things lie in the receiver's memory: one *arrival bit* for each ring that may bring it
//! records, and one *doorbell*.
//!
//! A set bit means that the receiver will look at this ring before it sleeps. The receiver clears
//! the bit when it stops looking at the ring, and then looks once more. Thus:
//!
//! ```text
//! sender    publish record; fence; if bit clear { set bit; fence }; if asleep { ring }
//! receiver  clear bit; fence; look at ring                              (on leaving a ring)
//!           asleep := 1; clear bits; fence; look at rings and bits; sleep   (on going to sleep)
//! ```
//!
//! One of the two fences comes first. If it is the sender's, the receiver's look finds the record.
//! If it is the receiver's, the sender finds the bit clear and sets it. The same argument holds for
//! the bit and the sleep flag in place of the record and the bit. So no record stays behind while
//! its receiver sleeps. `tests/loom.rs` checks this exhaustively.
//!
//! The sender executes its first fence on every call; the receiver executes its fences only when it
//! leaves a ring or goes to sleep. A receiver that seldom sleeps therefore [fences](Fencing) for
//! its senders, too.
//!
//! A thread may also wait for a signal: a word of memory that other threads or processes change,
//! and for which there is no arrival bit. Each process counts its threads that sleep in such a
//! wait, in its [`Watchers`]. Every signaller checks that count after it has changed such a word:
//!
//! ```text
//! signaller  write data; write word (release); fence;
//!            if watchers > 0 { ring each doorbell whose owner is asleep }
//! watcher    watchers += 1; asleep := 1; fence; look at word; sleep; watchers -= 1
//! ```
//!
//! One of the two fences comes first. If it is the signaller's, the watcher's look finds the
//! changed word. If it is the watcher's, the signaller finds the watcher counted and asleep, and
//! rings. The receiver can execute the signaller's fence, as it can a sender's. If the word was
//! changed by a sequentially consistent read-modify-write, a sequentially consistent load of the
//! count needs no fence ([`Watchers::are_there_after_change`]).

#[cfg(not(loom))]
use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The side that executes the fences between a sender's publication and its load of the arrival
/// bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// Each side executes its own fence.
    Mutual,
    /// The receiver executes the fences of both sides when it goes to sleep
    /// ([`farside_sys::fence`]). It leaves no ring while it is awake. All processes that send to it
    /// have registered for these fences.
    ByReceiver,
}

impl Fencing {
    #[inline(always)]
    fn sender(self) {
        match self {
            Self::Mutual => fence(Ordering::SeqCst),
            Self::ByReceiver => light_fence(),
        }
    }

    fn receiver(self) {
        fence(Ordering::SeqCst);
        if self == Self::ByReceiver {
            #[cfg(not(loom))]
            farside_sys::fence::everywhere();
        }
    }
}

/// The part of a fence that the receiver cannot execute for the sender. (The loom model knows only
/// whole fences.)
#[inline(always)]
fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Wakes one worker. Lies in that worker's memory, alone on its cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Doorbell {
    /// Number of rings. Every ringer increments it; the owner sleeps while it is unchanged. A futex
    /// word.
    rings: AtomicU32,
    /// 1 while the owner sleeps or is about to. Written by the owner, read by its peers.
    asleep: AtomicU32,
    /// 1 if the owner fences for its senders, too. Written before any of them knows of the
    /// doorbell.
    fences: AtomicU32,
}

/// The number of rings when the owner prepared to sleep.
#[derive(Clone, Copy, Debug)]
#[must_use = "a prepared sleep is slept or cancelled"]
pub struct SleepToken {
    rings: u32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Doorbell>() == 128);

impl Default for Doorbell {
    fn default() -> Self {
        Self { rings: AtomicU32::new(0), asleep: AtomicU32::new(0), fences: AtomicU32::new(0) }
    }
}

impl Doorbell {
    /// Sets the owner's fencing. Must not be changed once a sender knows of the doorbell.
    pub fn set_fencing(&self, fencing: Fencing) {
        self.fences.store((fencing == Fencing::ByReceiver).into(), Ordering::Relaxed);
    }

    /// The owner's fencing.
    #[inline]
    pub fn fencing(&self) -> Fencing {
        if self.fences.load(Ordering::Relaxed) == 0 { Fencing::Mutual } else { Fencing::ByReceiver }
    }

    /// Announces that this worker is about to sleep, and clears the bits of the rings that it
    /// watches by calling `clear_bits`. The worker must then look at these rings and at the bits.
    /// Anything that it does not find there will ring.
    #[inline]
    pub fn prepare(&self, fencing: Fencing, clear_bits: impl FnOnce()) -> SleepToken {
        self.asleep.store(1, Ordering::Relaxed);
        clear_bits();
        // SYNC: pairs with the fences in `announce` and `ring_if_asleep`: either the sender sees
        // `asleep` and the cleared bit, or the looks after this fence see what the sender
        // published.
        fencing.receiver();
        // SYNC: pairs with the fence before `ring_sleeper`. A ring that is already counted here
        // will not end the sleep, so the looks after this load must find what it was rung for.
        SleepToken { rings: self.rings.load(Ordering::Acquire) }
    }

    /// Cancels a prepared sleep.
    #[inline]
    pub fn cancel(&self, _: SleepToken) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Sleeps until a ring that came after [`prepare`](Self::prepare), or for `timeout`.
    #[cfg(not(loom))]
    pub fn sleep(&self, token: SleepToken, timeout: Duration) {
        self.sleep_on(token, |word, seen| farside_sys::futex::wait(word, seen, timeout));
    }

    /// Sleeps like [`sleep`](Self::sleep), but calls `wait` in place of the futex.
    pub fn sleep_on(&self, token: SleepToken, wait: impl FnOnce(&AtomicU32, u32)) {
        wait(&self.rings, token.rings);
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Shares the doorbell among any number of listening threads, none of which can tell whether
    /// the others are awake. From now on every ring goes through, whether or not a thread sleeps.
    pub fn share(&self) {
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// Begins to listen to a [shared](Self::share) doorbell. The caller must then check its
    /// condition; anything that it does not find will ring.
    pub fn listen(&self) -> SleepToken {
        // SYNC: pairs with the fence before `ring_sleeper`, as the load in `prepare` does.
        SleepToken { rings: self.rings.load(Ordering::Acquire) }
    }

    /// Sleeps until a ring of a [shared](Self::share) doorbell that came after
    /// [`listen`](Self::listen).
    pub fn sleep_among_others(&self, token: SleepToken, wait: impl FnOnce(&AtomicU32, u32)) {
        wait(&self.rings, token.rings);
    }

    /// Returns whether the owner sleeps or is about to, as far as this thread knows.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != 0
    }

    /// Wakes the owner if it sleeps. The caller has published something for the owner, and then
    /// fenced.
    #[cfg(not(loom))]
    #[inline]
    pub fn ring_after_fence(&self) {
        self.ring_with(farside_sys::futex::wake);
    }

    /// Wakes the owner if it sleeps. The caller has published something for the owner.
    #[cfg(not(loom))]
    #[inline]
    pub fn ring_if_asleep(&self) {
        // SYNC: pairs with the fence in `prepare`: either the load after this sees `asleep`, or the
        // owner's look sees what was published.
        fence(Ordering::SeqCst);
        self.ring_after_fence();
    }

    /// Wakes the owner if it sleeps. The caller has published something that the owner looks at
    /// between [`prepare`](Self::prepare) and its sleep. `fencing` is the [owner's](Self::fencing)
    /// if the owner's fences reach this process, and otherwise [`Mutual`](Fencing::Mutual).
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn ring(&self, fencing: Fencing) {
        // SYNC: pairs with the fence in `prepare`: either this sees `asleep`, or the owner's look
        // sees what was published.
        fencing.sender();
        self.ring_after_fence();
    }

    /// Wakes the owner like [`ring_after_fence`](Self::ring_after_fence), but calls `wake` in place
    /// of the futex.
    #[inline]
    pub fn ring_with(&self, wake: impl FnOnce(&AtomicU32)) {
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.ring_sleeper(wake);
        }
    }

    #[cold]
    fn ring_sleeper(&self, wake: impl FnOnce(&AtomicU32)) {
        // SYNC: together with the fence before it, a release that pairs with the acquire load in
        // `prepare`.
        self.rings.fetch_add(1, Ordering::Relaxed);
        wake(&self.rings);
    }
}

/// Number of threads of a process that sleep, or are about to, until a word of its memory changes.
/// Lies in that memory, alone on its cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Watchers {
    /// Changed only by the owner's threads, read by every thread that changes a word they may
    /// watch.
    count: AtomicU32,
    /// 1 if the watchers fence for signallers, too; the same value as in their doorbells.
    fences: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Watchers>() == 128);

impl Default for Watchers {
    fn default() -> Self {
        Self { count: AtomicU32::new(0), fences: AtomicU32::new(0) }
    }
}

impl Watchers {
    /// Sets the watchers' fencing. Must not be changed once a signaller knows of it.
    pub fn set_fencing(&self, fencing: Fencing) {
        self.fences.store((fencing == Fencing::ByReceiver).into(), Ordering::Relaxed);
    }

    /// The watchers' fencing.
    #[inline]
    pub fn fencing(&self) -> Fencing {
        if self.fences.load(Ordering::Relaxed) == 0 { Fencing::Mutual } else { Fencing::ByReceiver }
    }

    /// Counts a thread that is about to [prepare](Doorbell::prepare) for sleep.
    #[inline]
    pub fn enter(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops counting a thread, which is awake again.
    #[inline]
    pub fn leave(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether a thread that has just stored a word must ring a watcher
    /// ([`Doorbell::ring_after_fence`]).
    ///
    /// *Cost*: a load, and a fence unless the watchers execute it.
    #[inline(always)]
    pub fn are_there(&self, fencing: Fencing) -> bool {
        // SYNC: pairs with the fence in `Doorbell::prepare`, before which the watcher has counted
        // itself: either this load sees the count, or the watcher's look after the fence sees the
        // word.
        fencing.sender();
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Returns the same as [`are_there`](Self::are_there), for a thread that has just changed a
    /// word by a sequentially consistent read-modify-write.
    ///
    /// *Cost*: a load.
    #[inline(always)]
    pub fn are_there_after_change(&self) -> bool {
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        // SYNC: pairs with the fence in `Doorbell::prepare`. Both the change and this load have
        // places in the single order of sequentially consistent operations, the change first. If
        // the load misses a watcher's count, it precedes that watcher's fence in this order. Then
        // the change precedes the fence too, and the look after the fence sees it. (In the loom
        // model only fences are in this order.)
        self.count.load(Ordering::SeqCst) != 0
    }
}

/// Announces a record that was just published: sets the arrival bit of its ring if necessary. The
/// caller then rings the doorbell, by [`Doorbell::ring_after_fence`].
///
/// *Cost*: one fence, unless the receiver executes it, and two loads, which hit the cache while the
/// receiver keeps up.
#[inline(always)]
pub fn announce(bits: &AtomicU64, mask: u64, fencing: Fencing) {
    // SYNC: pairs with the fences in `leave` and `Doorbell::prepare`: either this load sees the bit
    // cleared, or the receiver's look after clearing it sees the record.
    fencing.sender();
    if bits.load(Ordering::Relaxed) & mask == 0 {
        set_bit(bits, mask);
    }
}

#[cold]
fn set_bit(bits: &AtomicU64, mask: u64) {
    bits.fetch_or(mask, Ordering::Relaxed);
    // SYNC: pairs with the fence in `Doorbell::prepare`: either the sender sees `asleep`, or the
    // receiver sees the bit.
    fence(Ordering::SeqCst);
}

/// Stops watching a ring while awake. The caller must look at the ring once more after this call. A
/// receiver with [`ByReceiver`](Fencing::ByReceiver) must not call this, because its senders do not
/// fence.
#[inline]
pub fn leave(bits: &AtomicU64, mask: u64) {
    clear_bits(bits, mask);
    // SYNC: pairs with the fence in `announce`: either the sender sees the bit cleared, or the look
    // after this fence sees the record.
    fence(Ordering::SeqCst);
}

/// Clears bits on the way to sleep, in [`Doorbell::prepare`], or bits of rings that have no sender.
#[inline]
pub fn clear_bits(bits: &AtomicU64, mask: u64) {
    bits.fetch_and(!mask, Ordering::Relaxed);
}
