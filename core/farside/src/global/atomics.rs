//! Atomic changes of words.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use bytemuck::Pod;
use farside_fabric::transport::{AtomicChange, Operation};

use super::objects::RacySlice;
use super::pointer::GlobalPtr;
use crate::error::{Error, Result};
use crate::memory::address::GlobalAddress;
use crate::runtime::deadline::Deadline;
use crate::runtime::worker::Worker;

/// Words that can be changed atomically, wherever they lie: `u32`, `u64`, `i32`, `i64`, `f32` and
/// `f64`.
pub trait Word: Pod + PartialOrd + sealed::Changeable {}

/// [Words](Word) whose bits have a meaning of their own: those that are not floats.
pub trait Integer: Word {}

/// [Integers](Integer) whose changes are all single operations, so that they can be
/// [started](crate::MoveMemory::start_change) without waiting: `u32` and `u64`.
pub trait Unsigned: Integer + super::movement::OperationValue + sealed::Startable {}

impl Word for u32 {}
impl Word for u64 {}
impl Word for i32 {}
impl Word for i64 {}
impl Word for f32 {}
impl Word for f64 {}
impl Integer for u32 {}
impl Integer for u64 {}
impl Integer for i32 {}
impl Integer for i64 {}
impl Unsigned for u32 {}
impl Unsigned for u64 {}

/// The number of compare-and-swap attempts between looks at the clock.
const ATTEMPTS_PER_CLOCK: u32 = 64;

mod sealed {
    use super::{AtomicChange, GlobalAddress, Operation, Pod, RacySlice, Result, Worker};

    pub trait Changeable: Pod {
        #[track_caller]
        fn change(me: &Worker, address: GlobalAddress, change: AtomicChange<Self>) -> Result<Self>;

        #[track_caller]
        fn store(me: &Worker, address: GlobalAddress, value: Self) -> Result<()>;

        #[track_caller]
        fn change_own(slice: &RacySlice<'_, Self>, index: usize, change: AtomicChange<Self>) -> Self;

        #[track_caller]
        fn store_own(slice: &RacySlice<'_, Self>, index: usize, value: Self);
    }

    pub trait Startable: Changeable {
        fn operation(offset: u64, change: AtomicChange<Self>) -> Operation;

        fn widen(self) -> u64;
    }
}

use sealed::{Changeable, Startable};

impl Changeable for u64 {
    #[inline]
    #[track_caller]
    fn change(me: &Worker, address: GlobalAddress, change: AtomicChange<Self>) -> Result<Self> {
        me.change64(address, change)
    }

    #[inline]
    #[track_caller]
    fn store(me: &Worker, address: GlobalAddress, value: Self) -> Result<()> {
        me.store64(address, value)
    }

    #[inline]
    #[track_caller]
    fn change_own(slice: &RacySlice<'_, Self>, index: usize, change: AtomicChange<Self>) -> Self {
        change.apply(slice.word64(index))
    }

    #[inline]
    #[track_caller]
    fn store_own(slice: &RacySlice<'_, Self>, index: usize, value: Self) {
        slice.word64(index).store(value, Ordering::Release);
    }
}

impl Changeable for u32 {
    #[inline]
    #[track_caller]
    fn change(me: &Worker, address: GlobalAddress, change: AtomicChange<Self>) -> Result<Self> {
        me.change32(address, change)
    }

    #[inline]
    #[track_caller]
    fn store(me: &Worker, address: GlobalAddress, value: Self) -> Result<()> {
        me.store32(address, value)
    }

    #[inline]
    #[track_caller]
    fn change_own(slice: &RacySlice<'_, Self>, index: usize, change: AtomicChange<Self>) -> Self {
        change.apply(slice.word32(index))
    }

    #[inline]
    #[track_caller]
    fn store_own(slice: &RacySlice<'_, Self>, index: usize, value: Self) {
        slice.word32(index).store(value, Ordering::Release);
    }
}

impl Startable for u64 {
    fn operation(offset: u64, change: AtomicChange<Self>) -> Operation {
        Operation::Atomic64 { offset, change }
    }

    fn widen(self) -> u64 {
        self
    }
}

impl Startable for u32 {
    fn operation(offset: u64, change: AtomicChange<Self>) -> Operation {
        Operation::Atomic32 { offset, change }
    }

    fn widen(self) -> u64 {
        self.into()
    }
}

/// Implements words. Most changes are those of the bits; those named `by_cas` are made by
/// compare-and-swap.
macro_rules! by_bits {
    ($word:ty, $change:ident, $store:ident, $own:ident, $to_bits:path, $from_bits:path,
     by_cas: {$($kind:ident: $next:expr),*}) => {
        impl Changeable for $word {
            #[inline]
            #[track_caller]
            fn change(me: &Worker, address: GlobalAddress, change: AtomicChange<Self>) -> Result<Self> {
                match change {
                    $(AtomicChange::$kind(value) => change_by_cas(me, address, |found| $next(found, value)),)*
                    other => me.$change(address, in_bits(other, $to_bits)).map($from_bits),
                }
            }

            #[inline]
            #[track_caller]
            fn store(me: &Worker, address: GlobalAddress, value: Self) -> Result<()> {
                me.$store(address, $to_bits(value))
            }

            #[inline]
            #[track_caller]
            fn change_own(slice: &RacySlice<'_, Self>, index: usize, change: AtomicChange<Self>) -> Self {
                match change {
                    $(AtomicChange::$kind(value) => change_own_by_cas(slice, index, |found| $next(found, value)),)*
                    other => $from_bits(in_bits(other, $to_bits).apply(slice.$own(index))),
                }
            }

            #[inline]
            #[track_caller]
            fn store_own(slice: &RacySlice<'_, Self>, index: usize, value: Self) {
                slice.$own(index).store($to_bits(value), Ordering::Release);
            }
        }
    };
}

by_bits!(i64, change64, store64, word64, i64::cast_unsigned, u64::cast_signed, by_cas: {Min: i64::min, Max: i64::max});
by_bits!(i32, change32, store32, word32, i32::cast_unsigned, u32::cast_signed, by_cas: {Min: i32::min, Max: i32::max});
by_bits!(f64, change64, store64, word64, f64::to_bits, f64::from_bits, by_cas: {Add: std::ops::Add::add, Min: f64::min, Max: f64::max});
by_bits!(f32, change32, store32, word32, f32::to_bits, f32::from_bits, by_cas: {Add: std::ops::Add::add, Min: f32::min, Max: f32::max});

fn in_bits<W, B>(change: AtomicChange<W>, bits: impl Fn(W) -> B) -> AtomicChange<B> {
    match change {
        AtomicChange::Load => AtomicChange::Load,
        AtomicChange::Swap(value) => AtomicChange::Swap(bits(value)),
        AtomicChange::CompareSwap { expected, new } => {
            AtomicChange::CompareSwap { expected: bits(expected), new: bits(new) }
        }
        AtomicChange::Add(value) => AtomicChange::Add(bits(value)),
        AtomicChange::And(value) => AtomicChange::And(bits(value)),
        AtomicChange::Or(value) => AtomicChange::Or(bits(value)),
        AtomicChange::Xor(value) => AtomicChange::Xor(bits(value)),
        AtomicChange::Min(value) => AtomicChange::Min(bits(value)),
        AtomicChange::Max(value) => AtomicChange::Max(bits(value)),
    }
}

/// Changes a word to the result of `next`. An attempt fails only if another change came between, so
/// among several workers one always makes progress.
#[track_caller]
fn change_by_cas<W: Word>(me: &Worker, address: GlobalAddress, next: impl Fn(W) -> W) -> Result<W> {
    let (mut attempts, mut deadline) = (0_u32, None::<Deadline>);
    let failed = || {
        attempts += 1;
        if attempts.is_multiple_of(ATTEMPTS_PER_CLOCK) {
            let after = me.default_deadline();
            if deadline.get_or_insert_with(|| me.deadline_after(after)).has_passed(me) {
                return Err(Error::deadline("changing a word that others keep changing", after));
            }
        }
        Ok(())
    };
    by_cas(|change| W::change(me, address, change), next, failed)
}

/// The same for a word of this process, where an attempt takes a few nanoseconds.
#[track_caller]
fn change_own_by_cas<W: Word>(slice: &RacySlice<'_, W>, index: usize, next: impl Fn(W) -> W) -> W {
    let Ok(before) = by_cas(|change| Ok::<_, Infallible>(W::change_own(slice, index, change)), next, || Ok(()));
    before
}

/// Calls `failed` after each attempt that failed.
#[track_caller]
fn by_cas<W: Word, E>(
    change: impl Fn(AtomicChange<W>) -> Result<W, E>,
    next: impl Fn(W) -> W,
    mut failed: impl FnMut() -> Result<(), E>,
) -> Result<W, E> {
    // Floats may be equal with different bits, and differ from themselves.
    let is_same = |one: W, other: W| bytemuck::bytes_of(&one) == bytemuck::bytes_of(&other);
    let mut found = change(AtomicChange::Load)?;
    loop {
        let new = next(found);
        if is_same(new, found) {
            return Ok(found);
        }
        let before = change(AtomicChange::CompareSwap { expected: found, new })?;
        if is_same(before, found) {
            return Ok(before);
        }
        found = before;
        failed()?;
    }
}

/// Atomic changes of a word. Each returns the earlier value.
///
/// They are atomic with respect to each other and to the owner's own, whichever worker makes them.
/// The owner can make its own by a [`RacySlice`], too. All but [`store`](Self::store) are
/// sequentially consistent.
///
/// *Cost*: a read-modify-write instruction where the memory is mapped; otherwise a round trip,
/// after which the owner's processor makes the change. Changes that no processor offers are made
/// *by compare-and-swap*: signed [`fetch_min`](Self::fetch_min) and [`fetch_max`](Self::fetch_max),
/// and all arithmetic of floats. They take a load and one such change, and one more for each change
/// of another worker that comes between. One of the competing workers always makes progress, but
/// each may have to try again, until the job's deadline passes
/// ([`Error::Deadline`](crate::Error::Deadline)). [`compare_swap`](Self::compare_swap) of floats
/// compares their bits.
impl<W: Word> GlobalPtr<W> {
    /// Makes a change of any kind.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it. [`Error::Deadline`] if other
    /// workers keep changing a floating-point word.
    #[inline]
    #[track_caller]
    pub fn change(self, me: &Worker, change: AtomicChange<W>) -> Result<W>
    where
        W: Integer,
    {
        W::change(me, self.address(), change)
    }

    /// Reads the word.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it. No worker changes a read-only
    /// word: [`get`](GlobalPtr::get) reads it.
    #[inline]
    #[track_caller]
    pub fn load(self, me: &Worker) -> Result<W> {
        W::change(me, self.address(), AtomicChange::Load)
    }

    /// Writes the word, with release ordering: a worker that loads `value` sees all that this one
    /// wrote before. A [`swap`](Self::swap) is ordered before later loads too.
    ///
    /// *Cost*: a plain store where the memory is mapped; otherwise that of a swap.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn store(self, me: &Worker, value: W) -> Result<()> {
        W::store(me, self.address(), value)
    }

    /// Writes the word and returns the earlier value.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn swap(self, me: &Worker, value: W) -> Result<W> {
        W::change(me, self.address(), AtomicChange::Swap(value))
    }

    /// Writes `new` if the word holds `expected`. It did so if the returned value is `expected`.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn compare_swap(self, me: &Worker, expected: W, new: W) -> Result<W> {
        W::change(me, self.address(), AtomicChange::CompareSwap { expected, new })
    }

    /// Adds a value: integers wrap around, floats are added by compare-and-swap.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it. [`Error::Deadline`] if other
    /// workers keep changing a floating-point word.
    #[inline]
    #[track_caller]
    pub fn fetch_add(self, me: &Worker, value: W) -> Result<W> {
        W::change(me, self.address(), AtomicChange::Add(value))
    }

    /// Stores the bitwise and.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn fetch_and(self, me: &Worker, value: W) -> Result<W>
    where
        W: Integer,
    {
        W::change(me, self.address(), AtomicChange::And(value))
    }

    /// Stores the bitwise or.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn fetch_or(self, me: &Worker, value: W) -> Result<W>
    where
        W: Integer,
    {
        W::change(me, self.address(), AtomicChange::Or(value))
    }

    /// Stores the bitwise exclusive or.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it.
    #[inline]
    #[track_caller]
    pub fn fetch_xor(self, me: &Worker, value: W) -> Result<W>
    where
        W: Integer,
    {
        W::change(me, self.address(), AtomicChange::Xor(value))
    }

    /// Stores the smaller value; signed numbers and floats by compare-and-swap. A number is stored
    /// in preference to a NaN.
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it. [`Error::Deadline`] if other
    /// workers keep changing a floating-point word.
    #[inline]
    #[track_caller]
    pub fn fetch_min(self, me: &Worker, value: W) -> Result<W> {
        W::change(me, self.address(), AtomicChange::Min(value))
    }

    /// Stores the larger value, as for [`fetch_min`](Self::fetch_min).
    ///
    /// # Errors
    /// [`GlobalError::Address`](crate::global::GlobalError::Address) for a null, stale, misaligned
    /// or read-only address, or one out of range; [`Error::PeerLost`] if the owner is lost;
    /// [`Error::Fabric`] if it does not answer in time, or the transport fails;
    /// [`Error::InHandler`] if a handler would have to wait for it. [`Error::Deadline`] if other
    /// workers keep changing a floating-point word.
    #[inline]
    #[track_caller]
    pub fn fetch_max(self, me: &Worker, value: W) -> Result<W> {
        W::change(me, self.address(), AtomicChange::Max(value))
    }
}
