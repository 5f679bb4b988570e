//! Words that are changed atomically.

use bytemuck::Pod;
use farside_fabric::transport::{AtomicChange, Operation};

use super::address::GlobalAddress;
use super::pointer::GlobalPtr;
use crate::error::Result;
use crate::job::worker::Worker;

/// Words that can be changed atomically, wherever they lie: `u32` and `u64`.
pub trait Word: Pod + PartialEq + super::movement::Brings + sealed::Changeable {}

impl Word for u32 {}
impl Word for u64 {}

mod sealed {
    use super::{AtomicChange, GlobalAddress, Operation, Result, Worker};

    pub trait Changeable: Sized {
        #[track_caller]
        fn change(me: &Worker, address: GlobalAddress, change: AtomicChange<Self>) -> Result<Self>;

        fn operation(offset: u64, change: AtomicChange<Self>) -> Operation;

        fn widen(self) -> u64;
    }

    impl Changeable for u64 {
        #[inline]
        #[track_caller]
        fn change(me: &Worker, address: GlobalAddress, change: AtomicChange<Self>) -> Result<Self> {
            me.change64(address, change)
        }

        fn operation(offset: u64, change: AtomicChange<Self>) -> Operation {
            Operation::Atomic64 { offset, change }
        }

        fn widen(self) -> u64 {
            self
        }
    }

    impl Changeable for u32 {
        #[inline]
        #[track_caller]
        fn change(me: &Worker, address: GlobalAddress, change: AtomicChange<Self>) -> Result<Self> {
            me.change32(address, change)
        }

        fn operation(offset: u64, change: AtomicChange<Self>) -> Operation {
            Operation::Atomic32 { offset, change }
        }

        fn widen(self) -> u64 {
            self.into()
        }
    }
}

/// Atomic changes of a word. Each returns what the word held before.
///
/// They are sequentially consistent, and atomic with each other and with the owner's own, whoever makes them.
///
/// *Cost*: a read-modify-write instruction where the memory is mapped; otherwise a round trip, and the owner's processor does it.
///
/// # Errors
/// Those of [`put`](GlobalPtr::put), for all.
impl<W: Word> GlobalPtr<W> {
    /// Makes any of the changes there are.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn change(self, me: &Worker, change: AtomicChange<W>) -> Result<W> {
        W::change(me, self.address(), change)
    }

    /// Reads the word.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn load(self, me: &Worker) -> Result<W> {
        self.change(me, AtomicChange::Load)
    }

    /// Writes the word.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn store(self, me: &Worker, value: W) -> Result<()> {
        self.swap(me, value).map(drop)
    }

    /// Writes the word.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn swap(self, me: &Worker, value: W) -> Result<W> {
        self.change(me, AtomicChange::Swap(value))
    }

    /// Writes `new` if the word holds `expected`, which it did if that is what is returned.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn compare_swap(self, me: &Worker, expected: W, new: W) -> Result<W> {
        self.change(me, AtomicChange::CompareSwap { expected, new })
    }

    /// Adds, wrapping around.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn fetch_add(self, me: &Worker, value: W) -> Result<W> {
        self.change(me, AtomicChange::Add(value))
    }

    /// The bitwise and.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn fetch_and(self, me: &Worker, value: W) -> Result<W> {
        self.change(me, AtomicChange::And(value))
    }

    /// The bitwise or.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn fetch_or(self, me: &Worker, value: W) -> Result<W> {
        self.change(me, AtomicChange::Or(value))
    }

    /// The bitwise exclusive or.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn fetch_xor(self, me: &Worker, value: W) -> Result<W> {
        self.change(me, AtomicChange::Xor(value))
    }

    /// The smaller of the two.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn fetch_min(self, me: &Worker, value: W) -> Result<W> {
        self.change(me, AtomicChange::Min(value))
    }

    /// The larger of the two.
    ///
    /// # Errors
    /// Those of [`put`](GlobalPtr::put).
    #[inline]
    #[track_caller]
    pub fn fetch_max(self, me: &Worker, value: W) -> Result<W> {
        self.change(me, AtomicChange::Max(value))
    }
}
