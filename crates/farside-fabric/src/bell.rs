//! How a worker learns that something came for it, and how it sleeps until then.
//!
//! Two things lie in the receiver's memory: one *arrival bit* for each ring that may bring it records, and one *doorbell*.
//!
//! A set bit means: the receiver will look at this ring before it sleeps. The receiver clears the bit when it stops looking
//! at the ring, and then looks once more. Thus
//!
//! ```text
//! sender    publish record; fence; if bit clear { set bit; fence }; if asleep { ring }
//! receiver  clear bit; fence; look at ring                              (on leaving a ring)
//!           asleep := 1; clear bits; fence; look at rings and bits; sleep   (on going to sleep)
//! ```
//!
//! Between the sender's fence and the receiver's one comes first. Is it the sender's, then the receiver's look finds the
//! record. Is it the receiver's, then the sender finds the bit clear and sets it; and again with bit and sleep flag in the
//! place of record and bit. So no record is left while its receiver sleeps. `tests/loom.rs` checks it exhaustively.
//!
//! The sender's first fence is on the way of every call, and the receiver's are not. So where a receiver seldom sleeps, it
//! [fences](Fencing) for its senders, too.
//!
//! Some wait for a word of memory that others change and of which no bit tells: a signal. How many of a process's threads do so asleep
//! is counted in one place, its [`Watchers`], at which whoever has changed such a word looks:
//!
//! ```text
//! signaller  write data; write word (release); fence; if watchers > 0 { ring each doorbell whose owner is asleep }
//! watcher    watchers += 1; asleep := 1; fence; look at word; sleep; watchers -= 1
//! ```
//!
//! Between the two fences one comes first. Is it the signaller's, then the watcher's look finds the word. Is it the watcher's, then the
//! signaller finds it counted and asleep, and rings. The signaller's fence can be the receiver's, as above; and where the word was changed by a
//! sequentially consistent read-modify-write, a sequentially consistent load of the count does without
//! ([`Watchers::are_there_after_change`]).

#[cfg(not(loom))]
use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Which side executes the fences between a sender's publication and its look at the arrival bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// Each side one.
    Mutual,
    /// The receiver for both, when it goes to sleep ([`farside_sys::fence`]). It leaves no ring while it is awake. All processes
    /// that send to it have registered for that.
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

/// The part of a fence that the receiver cannot execute for the sender. (The model knows only whole fences.)
#[inline(always)]
fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Wakes one worker. Lies in its memory, alone on its cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Doorbell {
    /// Counted up by each who rings; the owner sleeps while it has not changed. A futex word.
    rings: AtomicU32,
    /// 1 while the owner sleeps or is about to. Written by the owner, read by its peers.
    asleep: AtomicU32,
    /// 1 if the owner fences for its senders, too. Written before any of them knows of it.
    fences: AtomicU32,
}

/// What the doorbell said when its owner prepared to sleep.
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
    /// What the owner does for its senders. Not to be changed when one of them knows of it.
    pub fn set_fencing(&self, fencing: Fencing) {
        self.fences.store((fencing == Fencing::ByReceiver).into(), Ordering::Relaxed);
    }

    /// What the owner does for its senders.
    pub fn fencing(&self) -> Fencing {
        if self.fences.load(Ordering::Relaxed) == 0 { Fencing::Mutual } else { Fencing::ByReceiver }
    }

    /// Announces that this worker is about to sleep, and clears the bits of the rings that it watches with `clear_bits`. What it
    /// does not find when it looks after this, at these rings and at the bits, will ring.
    #[inline]
    pub fn prepare(&self, fencing: Fencing, clear_bits: impl FnOnce()) -> SleepToken {
        self.asleep.store(1, Ordering::Relaxed);
        clear_bits();
        // SYNC: pairs with the fences in `announce` and `ring_if_asleep`: either they see `asleep` and the cleared bit, or the looks
        // after this see what they published.
        fencing.receiver();
        // SYNC: pairs with the fence before `ring_sleeper`. A ring that is counted here will not end the sleep, so the looks
        // after this must find what it was rung for.
        SleepToken { rings: self.rings.load(Ordering::Acquire) }
    }

    /// Does not sleep after all.
    #[inline]
    pub fn cancel(&self, _: SleepToken) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Sleeps until somebody rings who did not before [`prepare`](Self::prepare), or for `timeout`.
    #[cfg(not(loom))]
    pub fn sleep(&self, token: SleepToken, timeout: Duration) {
        self.sleep_on(token, |word, seen| farside_sys::futex::wait(word, seen, timeout));
    }

    /// As [`sleep`](Self::sleep), on something like a futex.
    pub fn sleep_on(&self, token: SleepToken, wait: impl FnOnce(&AtomicU32, u32)) {
        wait(&self.rings, token.rings);
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// For a doorbell that any number of threads listen to, of whom none can say that the others are awake: from now on every
    /// ring goes through, whether anybody sleeps or not.
    pub fn share(&self) {
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// Begins to listen to a [shared](Self::share) doorbell. What is not found when one looks after this will ring.
    pub fn listen(&self) -> SleepToken {
        // SYNC: as in `prepare`.
        SleepToken { rings: self.rings.load(Ordering::Acquire) }
    }

    /// Sleeps until somebody rings a [shared](Self::share) doorbell who did not before [`listen`](Self::listen).
    pub fn sleep_among_others(&self, token: SleepToken, wait: impl FnOnce(&AtomicU32, u32)) {
        wait(&self.rings, token.rings);
    }

    /// Whether the owner sleeps or is about to, as far as is known here.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != 0
    }

    /// Wakes the owner if it sleeps, after something was published for it with a fence in between.
    #[cfg(not(loom))]
    #[inline]
    pub fn ring_after_fence(&self) {
        self.ring_with(farside_sys::futex::wake);
    }

    /// Wakes the owner if it sleeps, after something was published for it.
    #[cfg(not(loom))]
    #[inline]
    pub fn ring_if_asleep(&self) {
        // SYNC: pairs with the fence in `prepare`.
        fence(Ordering::SeqCst);
        self.ring_after_fence();
    }

    /// Wakes the owner if it sleeps, after something was published for it that it looks at between [`prepare`](Self::prepare) and its sleep.
    /// `fencing` is the [owner's](Self::fencing), if this process is reached by its fences, and otherwise [`Mutual`](Fencing::Mutual).
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn ring(&self, fencing: Fencing) {
        // SYNC: pairs with the fence in `prepare`: either this sees `asleep`, or the owner's look sees what was published.
        fencing.sender();
        self.ring_after_fence();
    }

    /// As [`ring_after_fence`](Self::ring_after_fence), on something like a futex.
    #[inline]
    pub fn ring_with(&self, wake: impl FnOnce(&AtomicU32)) {
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.ring_sleeper(wake);
        }
    }

    #[cold]
    fn ring_sleeper(&self, wake: impl FnOnce(&AtomicU32)) {
        // SYNC: with the fence before it a release, which pairs with the acquire in `prepare`.
        self.rings.fetch_add(1, Ordering::Relaxed);
        wake(&self.rings);
    }
}

/// How many threads of a process sleep, or are about to, until a word of its memory changes. Lies in that memory, alone on its cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Watchers {
    /// Changed by threads of the owner only, read by whoever changes words that they may watch.
    count: AtomicU32,
    /// As in their doorbells.
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
    /// What the watchers do for those who signal. Not to be changed when one of them knows of it.
    pub fn set_fencing(&self, fencing: Fencing) {
        self.fences.store((fencing == Fencing::ByReceiver).into(), Ordering::Relaxed);
    }

    /// What the watchers do for those who signal.
    #[inline]
    pub fn fencing(&self) -> Fencing {
        if self.fences.load(Ordering::Relaxed) == 0 { Fencing::Mutual } else { Fencing::ByReceiver }
    }

    /// Counts a thread that is about to [prepare](Doorbell::prepare) for sleep.
    #[inline]
    pub fn enter(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// It is awake again.
    #[inline]
    pub fn leave(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether somebody is to be rung ([`Doorbell::ring_after_fence`]) by one who has just stored a word.
    ///
    /// *Cost*: a load, and a fence if it is not the watchers'.
    #[inline(always)]
    pub fn are_there(&self, fencing: Fencing) -> bool {
        // SYNC: pairs with the fence in `Doorbell::prepare`, before which the watcher has counted itself: either this load sees it, or its
        // look after the fence sees the word.
        fencing.sender();
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The same for one who has just changed a word by a sequentially consistent read-modify-write.
    ///
    /// *Cost*: a load.
    #[inline(always)]
    pub fn are_there_after_change(&self) -> bool {
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        // SYNC: pairs with the fence in `Doorbell::prepare`. Both the change and this load have places in the one order of all that is
        // sequentially consistent, the change first. If the load misses a watcher's count, it comes before that watcher's fence; so does
        // the change, then, and the look after the fence sees it. (The model knows only fences to be in that order.)
        self.count.load(Ordering::SeqCst) != 0
    }
}

/// Announces a record that was just published: sets the arrival bit of its ring if need be. The doorbell comes next, by
/// [`Doorbell::ring_after_fence`].
///
/// *Cost*: one fence, if it is not the receiver's, and two loads, which hit the cache while the receiver keeps up.
#[inline(always)]
pub fn announce(bits: &AtomicU64, mask: u64, fencing: Fencing) {
    // SYNC: pairs with the fences in `leave` and `Doorbell::prepare`: either this load sees the bit cleared, or the receiver's
    // look after clearing it sees the record.
    fencing.sender();
    if bits.load(Ordering::Relaxed) & mask == 0 {
        set_bit(bits, mask);
    }
}

#[cold]
fn set_bit(bits: &AtomicU64, mask: u64) {
    bits.fetch_or(mask, Ordering::Relaxed);
    // SYNC: pairs with the fence in `Doorbell::prepare`: either the sender sees `asleep`, or the receiver sees the bit.
    fence(Ordering::SeqCst);
}

/// Stops watching a ring while awake. The caller must look at it once more after this. Not for one who is
/// [`ByReceiver`](Fencing::ByReceiver): its senders do not fence.
#[inline]
pub fn leave(bits: &AtomicU64, mask: u64) {
    clear_bits(bits, mask);
    // SYNC: pairs with the fence in `announce`.
    fence(Ordering::SeqCst);
}

/// Clears bits on the way to sleep, in [`Doorbell::prepare`], or those of rings that nobody writes to.
#[inline]
pub fn clear_bits(bits: &AtomicU64, mask: u64) {
    bits.fetch_and(!mask, Ordering::Relaxed);
}
