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
    /// What selection would otherwise compute for every edge at every visit, as in the plain tree: bits of
    /// the share of points, minus infinity where an edge may not be chosen, and of 1 / √visits. Stored after each change by who made
    /// it. Of two threads that do so at once the slower may be the one that knows less; the next visit makes up for that.
    value: [AtomicU32; LANES],
    rarity: [AtomicU32; LANES],
    /// Packed links. A release store by who made what it leads to; acquired by who goes there.
    children: [AtomicU64; LANES],
    /// Packed outcomes; 0 is none. Set once, by the first who knows.
    proofs: [AtomicU8; LANES],
}

impl Group {
    pub(super) fn new() -> Self {
        Self {
            visits: [const { AtomicU32::new(0) }; LANES],
            points: [const { AtomicU64::new(0) }; LANES],
            value: [const { AtomicU32::new(f32::NEG_INFINITY.to_bits()) }; LANES],
            rarity: [const { AtomicU32::new(0) }; LANES],
            children: [const { AtomicU64::new(0) }; LANES],
            proofs: [const { AtomicU8::new(0) }; LANES],
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
        self.proofs[lane].compare_exchange(0, pack(outcome), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Says what an edge is worth to selection.
    #[inline]
    pub(super) fn rate(&self, lane: usize, simulations: u32) {
        let visits = self.visits[lane].load(Ordering::Relaxed).max(1);
        let value = match self.proof(lane) {
            Some(_) => f32::NEG_INFINITY,
            None => share(self.points[lane].load(Ordering::Relaxed), visits, simulations) as f32,
        };
        self.value[lane].store(value.to_bits(), Ordering::Relaxed);
        self.rarity[lane].store((1.0 / (visits as f32).sqrt()).to_bits(), Ordering::Relaxed);
    }

    /// The largest bound of the edges, and whose it is if that is more than `least`.
    ///
    /// Everything is copied first: loads of atomics keep the compiler from computing several bounds at once.
    #[inline]
    pub(super) fn highest_bound(&self, weight: f32, least: f32) -> Option<(f32, usize)> {
        let load = |words: &[AtomicU32; LANES]| -> [f32; LANES] {
            array::from_fn(|lane| f32::from_bits(words[lane].load(Ordering::Relaxed)))
        };
        let (value, rarity) = (load(&self.value), load(&self.rarity));
        let bounds: [f32; LANES] = array::from_fn(|lane| value[lane] + weight * rarity[lane]);
        let larger = |a: f32, b: f32| if a > b { a } else { b };
        let halves: [f32; LANES / 2] = array::from_fn(|lane| larger(bounds[lane], bounds[lane + LANES / 2]));
        let maximum = halves.into_iter().fold(f32::NEG_INFINITY, larger);
        let lane = (maximum > least).then(|| bounds.into_iter().position(|bound| bound == maximum))??;
        Some((maximum, lane))
    }
}

/// The share of all points.
pub(super) fn share(points: u64, visits: u32, simulations: u32) -> f64 {
    points as f64 / (2.0 * f64::from(simulations) * f64::from(visits.max(1)))
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
