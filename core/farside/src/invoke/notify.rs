//! Notice that calls were sent or executed, without a result.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_fabric::ProcessId;

use super::caller::Waiter;
use crate::error::{Error, Result};
use crate::invoke::message::CallMessage;
use crate::runtime::home::LATCH_COUNT;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The moment at which a call counts its [`Synchronizer`] down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// When the call is published to the receiver, which has not run it yet. Its arguments were
    /// copied before the call returned.
    Sent,
    /// When the receiver has run the call.
    Executed,
}

/// The counter that a call counts down, and the time when it does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notify<N> {
    Nothing,
    /// A latch, when the call is published.
    Sent(LatchAddress),
    /// When the receiver has run the call.
    Executed(N),
}

impl<N> Notify<N> {
    /// Returns what the receiver counts down.
    pub(crate) fn executed(self) -> Option<N> {
        match self {
            Self::Executed(counted) => Some(counted),
            Self::Nothing | Self::Sent(_) => None,
        }
    }
}

/// A counter or word that the receiver of a call changes after it has run the call: a latch, or a
/// signalled word.
pub trait Counted: Wire + Copy + Send + 'static {
    #[doc(hidden)]
    fn count(self, process: &Arc<Process>);

    /// Counts as [`count`](Self::count) does, on a worker, which may know where the word is mapped.
    #[doc(hidden)]
    #[inline]
    fn count_on(self, worker: &Worker) {
        self.count(worker.process_handle());
    }
}

impl Counted for LatchAddress {
    #[inline]
    fn count(self, process: &Arc<Process>) {
        process.accesses.end_for(self.worker);
        count_down(process, self);
    }
}

impl<N: Counted> Counted for Option<N> {
    #[inline]
    fn count(self, process: &Arc<Process>) {
        if let Some(counted) = self {
            counted.count(process);
        }
    }

    #[inline]
    fn count_on(self, worker: &Worker) {
        if let Some(counted) = self {
            counted.count_on(worker);
        }
    }
}

/// The address of a latch: an index into the owner's table, and the generation that distinguishes
/// it from earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farside_macros::Wire)]
#[repr(C)]
pub struct LatchAddress {
    pub(crate) worker: u32,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The free latches of one process, and the generations of all.
#[derive(Debug)]
pub(crate) struct Latches {
    free: Vec<u16>,
    generations: Vec<u32>,
}

impl Latches {
    pub(crate) fn new() -> Self {
        Self { free: (0..LATCH_COUNT as u16).rev().collect(), generations: vec![0; LATCH_COUNT] }
    }

    fn take(&mut self) -> Option<(u32, u32)> {
        let index = self.free.pop()?;
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        Some((index.into(), *generation))
    }

    fn give_back(&mut self, index: u32) {
        self.free.push(index as u16);
    }
}

/// Counts calls down as they are sent or executed, so that their caller can wait until none is left
/// (Seriema §3.1).
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let all = me.synchronizer(me.worker_count())?;
/// for worker in me.workers() {
///     me.to(worker)
///         .notify(&all, On::Executed)
///         .call((), |there, ()| println!("{} was here", there.id()))?;
/// }
/// all.wait()?;
/// # Ok(())
/// # }
/// ```
///
/// It is a handle to a counter that the process owns, not a borrow of the caller's stack. A call
/// executed after the synchronizer was dropped finds another generation and counts nothing.
#[derive(Debug)]
pub struct Synchronizer<'w> {
    owner: Waiter<'w>,
    address: LatchAddress,
    /// Processes that were asked to count down. The loss of one may mean that the count never
    /// reaches 0.
    asked: RefCell<BTreeSet<ProcessId>>,
}

impl<'w> Synchronizer<'w> {
    pub(crate) fn new(owner: Waiter<'w>, count: u32) -> Result<Self> {
        let process = owner.process();
        let (index, generation) = process.calls.latches().take().ok_or(Error::TooLarge {
            what: "a table of synchronizers in use",
            bytes: LATCH_COUNT + 1,
            max: LATCH_COUNT,
            remedy: "drop some first",
        })?;
        let word = process.home().latch(index as usize);
        word.store(pack(generation, count), Ordering::Relaxed);
        let address = LatchAddress { worker: owner.number(), index, generation };
        Ok(Self { owner, address, asked: RefCell::default() })
    }

    fn word(&self) -> &AtomicU64 {
        self.owner.process().home().latch(self.address.index as usize)
    }

    pub(crate) fn address(&self) -> LatchAddress {
        self.address
    }

    pub(crate) fn asks(&self, process: ProcessId) {
        self.asked.borrow_mut().insert(process);
    }

    /// The number of calls left.
    pub fn left(&self) -> u32 {
        // SYNC: pairs with the release in `count_down`: the call's one-sided writes to this
        // process's memory become visible, too.
        self.word().load(Ordering::Acquire) as u32
    }

    /// Adds `calls` to the count.
    ///
    /// # Panics
    /// If the count would exceed `u32::MAX`.
    pub fn add(&self, calls: u32) {
        // The upper half of the word is the generation: a carry would make this a counter that no
        // call counts down.
        let added = self.word().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            (word as u32).checked_add(calls).map(|_| word + u64::from(calls))
        });
        assert!(added.is_ok(), "a synchronizer counts at most {} calls", u32::MAX);
    }

    /// Waits until no call is left, and meanwhile runs calls that arrive here. Waits for the job's
    /// deadline at most.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if calls are left and a process that must count down is lost;
    /// [`Error::Deadline`] if calls are left in the end; [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn wait(&self) -> Result<()> {
        self.wait_for(self.owner.process().settings().deadline)
    }

    /// Waits for at most this long.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if calls are left and a process that must count down is lost;
    /// [`Error::Deadline`] if calls are left in the end; [`Error::InHandler`] in a handler.
    #[track_caller]
    pub fn wait_for(&self, time: Duration) -> Result<()> {
        self.owner.wait_until("waiting for calls to be executed", time, || {
            if self.left() == 0 {
                return Some(Ok(()));
            }
            let asked = self.asked.borrow();
            let lost = asked.iter().find_map(|process| self.owner.lost(*process));
            lost.map(Err)
        })
    }
}

impl Drop for Synchronizer<'_> {
    fn drop(&mut self) {
        // A new generation, so that late calls count nothing.
        self.word().store(pack(self.address.generation.wrapping_add(1), 0), Ordering::Relaxed);
        self.owner.process().calls.latches().give_back(self.address.index);
    }
}

fn pack(generation: u32, count: u32) -> u64 {
    (generation as u64) << 32 | count as u64
}

/// Counts down a latch of any process, and wakes its owner when nothing is left.
pub(crate) fn count_down(process: &Process, latch: LatchAddress) {
    let Some((owner, local)) = process.shape().answer_place(latch.worker) else { return };
    let Some(home) = process.links.home_of(owner) else {
        // An owner that cannot be reached is gone.
        let _ = process.send_call(owner, &CallMessage::CountDown { latch });
        return;
    };
    if latch.index as usize >= LATCH_COUNT {
        return;
    }
    let word = home.latch(latch.index as usize);
    // SYNC: release, pairs with the acquire load in `Synchronizer::left`.
    let counted = word.fetch_update(Ordering::Release, Ordering::Relaxed, |value| {
        (value >> 32 == latch.generation as u64 && value as u32 > 0).then(|| value - 1)
    });
    if counted.is_ok_and(|before| before as u32 == 1) {
        home.doorbell(local).ring_if_asleep();
    }
}
