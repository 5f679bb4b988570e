//! Some edges of a shared node.

use std::array;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::game::{Outcome, Player};

/// Edges of one group. They are made together when the first of them is tried.
pub(super) const LANES: usize = 16;

/// So many edges. Every worker of the process reads and writes all of it.
#[derive(Debug)]
pub(super) struct Group {
    /// Complete and in flight.
    pub(super) visits: [AtomicU32; LANES],
    /// Of the side that moves, over complete visits.
    pub(super) points: [AtomicU64; LANES],
    /// Packed links. A release store by who made what it leads to; acquired by who goes there.
    children: [AtomicU64; LANES],
    /// Packed outcomes; 0 is none. Set once, by the first who knows.
    proofs: [AtomicU8; LANES],
    /// A bit for each edge that is proven, and no longer chosen.
    closed: AtomicU32,
}

impl Group {
    pub(super) fn new() -> Self {
        Self {
            visits: [const { AtomicU32::new(0) }; LANES],
            points: [const { AtomicU64::new(0) }; LANES],
            children: [const { AtomicU64::new(0) }; LANES],
            proofs: [const { AtomicU8::new(0) }; LANES],
            closed: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn child(&self, lane: usize) -> u64 {
        self.children[lane].load(Ordering::Acquire)
    }

    pub(super) fn set_child(&self, lane: usize, word: u64) {
        self.children[lane].store(word, Ordering::Release);
    }

    pub(super) fn replace_child(&self, lane: usize, old: u64, new: u64) -> bool {
        self.children[lane].compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    #[inline]
    pub(super) fn proof(&self, lane: usize) -> Option<Outcome> {
        unpack(self.proofs[lane].load(Ordering::Relaxed))
    }

    /// Notes a proof. False if it was known.
    pub(super) fn prove(&self, lane: usize, outcome: Outcome) -> bool {
        let is_news =
            self.proofs[lane].compare_exchange(0, pack(outcome), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        self.closed.fetch_or(1 << lane, Ordering::Relaxed);
        is_news
    }

    /// The largest bound of the first `tried` edges that are open, and whose it is.
    ///
    /// Everything is copied first: loads of atomics keep the compiler from computing several bounds at once.
    #[inline]
    pub(super) fn highest_bound(&self, tried: usize, weight: f32, scale: f32) -> (f32, usize) {
        let visits: [f32; LANES] = array::from_fn(|lane| self.visits[lane].load(Ordering::Relaxed).max(1) as f32);
        let points: [f32; LANES] = array::from_fn(|lane| self.points[lane].load(Ordering::Relaxed) as f32);
        let closed = self.closed.load(Ordering::Relaxed) | u32::MAX.checked_shl(tried as u32).unwrap_or(0);
        let bounds: [f32; LANES] =
            array::from_fn(|lane| points[lane] * scale / visits[lane] + weight * (1.0 / visits[lane].sqrt()));
        let mut best = (f32::NEG_INFINITY, 0);
        for (lane, bound) in bounds.into_iter().enumerate() {
            if bound > best.0 && closed >> lane & 1 == 0 {
                best = (bound, lane);
            }
        }
        best
    }
}

/// An outcome in a byte that is not 0.
pub(super) fn pack(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Won(Player::First) => 1,
        Outcome::Won(Player::Second) => 2,
        Outcome::Drawn => 3,
    }
}

pub(super) fn unpack(byte: u8) -> Option<Outcome> {
    match byte {
        1 => Some(Outcome::Won(Player::First)),
        2 => Some(Outcome::Won(Player::Second)),
        3 => Some(Outcome::Drawn),
        _ => None,
    }
}
