//! A node of a shared tree.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use super::group::{self, Group, LANES};
use crate::game::{Outcome, Player};
use crate::tree::math;

#[derive(Debug)]
pub(super) struct SharedNode<M> {
    pub(super) to_move: Player,
    /// In the order in which they are tried.
    pub(super) moves: Box<[M]>,
    /// Edges, made as moves are tried. Whoever finds a group there finds it whole.
    groups: Box<[OnceLock<Box<Group>>]>,
    /// How many moves have been tried. Added to by who tries one, once its group is there.
    tried: AtomicU32,
    /// Complete and in flight.
    pub(super) visits: AtomicU32,
    /// How many edges are proven. The last to add to it sees all that the others did before.
    proven: AtomicU32,
    /// Whether one of them is drawn. Set before `proven` is added to.
    has_draw: AtomicBool,
    /// How the game ends from here; 0 while that is not known. Never changes then.
    proof: AtomicU8,
}

impl<M: Copy> SharedNode<M> {
    pub(super) fn new(to_move: Player, moves: &[M]) -> Self {
        let groups: Box<[OnceLock<_>]> = (0..moves.len().div_ceil(LANES)).map(|_| OnceLock::new()).collect();
        // So that there is an edge to choose, however short memory is.
        if let Some(first) = groups.first() {
            first.get_or_init(|| Box::new(Group::new()));
        }
        Self {
            to_move,
            moves: moves.into(),
            groups,
            tried: AtomicU32::new(0),
            visits: AtomicU32::new(0),
            proven: AtomicU32::new(0),
            has_draw: AtomicBool::new(false),
            proof: AtomicU8::new(0),
        }
    }

    /// What a node with so many moves takes before any is tried.
    pub(super) fn first_bytes(moves: usize) -> usize {
        let groups = moves.div_ceil(LANES) * size_of::<OnceLock<Box<Group>>>();
        size_of::<OnceLock<Self>>() + moves * size_of::<M>() + groups + size_of::<Group>()
    }

    /// What a node takes.
    pub(super) fn bytes(&self) -> usize {
        let more = self.groups.iter().skip(1).filter(|group| group.get().is_some()).count();
        Self::first_bytes(self.moves.len()) + more * size_of::<Group>()
    }

    pub(super) fn tried(&self) -> u32 {
        self.tried.load(Ordering::Acquire)
    }

    /// The group of an edge that was tried, and its lane there.
    #[inline]
    pub(super) fn edge(&self, edge: u32) -> (&Group, usize) {
        let group = self.groups[edge as usize / LANES].get();
        (group.expect("an edge that was tried has its group"), edge as usize % LANES)
    }

    /// Tries the next move, if there is one, and memory for it when `take` is asked for that.
    #[inline]
    pub(super) fn try_next(&self, take: impl Fn(usize) -> bool) -> Option<u32> {
        let mut edge = self.tried.load(Ordering::Acquire);
        while (edge as usize) < self.moves.len() {
            let group = &self.groups[edge as usize / LANES];
            if group.get().is_none() {
                if !take(size_of::<Group>()) {
                    return None;
                }
                // Another thread may be first, and has then taken memory, too: a little is counted twice.
                let _ = group.set(Box::new(Group::new()));
            }
            match self.tried.compare_exchange_weak(edge, edge + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(edge),
                Err(now) => edge = now,
            }
        }
        None
    }

    /// Makes the edges of the first moves, as if they had been tried.
    pub(super) fn widen(&self, tried: u32) {
        for group in &self.groups[..(tried as usize).div_ceil(LANES)] {
            group.get_or_init(|| Box::new(Group::new()));
        }
        self.tried.store(tried, Ordering::Release);
    }

    /// The open edge that maximises the UCB rule. `None` if there is none.
    #[inline]
    pub(super) fn highest_bound(&self, exploration: f32) -> Option<u32> {
        let weight = exploration * math::ln(self.visits.load(Ordering::Relaxed).max(1)).sqrt();
        let (mut best, mut chosen) = (f32::NEG_INFINITY, None);
        for (index, group) in self.groups.iter().enumerate() {
            let Some(group) = group.get() else { break };
            if let Some((bound, lane)) = group.highest_bound(weight, best) {
                (best, chosen) = (bound, Some((index * LANES + lane) as u32));
            }
        }
        chosen
    }

    #[inline]
    pub(super) fn proof(&self) -> Option<Outcome> {
        group::unpack(self.proof.load(Ordering::Relaxed))
    }

    pub(super) fn has_draw(&self) -> bool {
        self.has_draw.load(Ordering::Relaxed)
    }

    /// One more edge is proven; told once for each.
    pub(super) fn learn(&self, outcome: Outcome) {
        if outcome == Outcome::Drawn {
            self.has_draw.store(true, Ordering::Relaxed);
        }
        let proven = self.proven.fetch_add(1, Ordering::AcqRel) + 1;
        let known = if outcome == Outcome::Won(self.to_move) {
            outcome
        } else if proven as usize != self.moves.len() {
            return;
        } else if self.has_draw() {
            Outcome::Drawn
        } else {
            Outcome::Won(self.to_move.opponent())
        };
        // A win stays one when the last of the other edges is proven later.
        let _ = self.proof.compare_exchange(0, group::pack(known), Ordering::Relaxed, Ordering::Relaxed);
    }
}
