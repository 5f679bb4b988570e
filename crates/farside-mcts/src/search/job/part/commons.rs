//! What the workers of one process have in common, when they share their nodes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside::WorkerId;

use super::Link;
use super::births::Births;
use crate::game::{Game, Player};
use crate::rng::Rng;
use crate::search::job::message::{BirthId, EntryId};
use crate::tree::{Kept, NodeId, Packed, Rules, SharedTree};

/// The workers of one process: so many, from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Team {
    pub(in super::super) first: WorkerId,
    pub(in super::super) count: u32,
}

impl Team {
    pub(super) fn has(self, worker: WorkerId) -> bool {
        (self.first.number()..self.first.number() + self.count).contains(&worker.number())
    }

    /// Whether the root is in its memory.
    pub(super) fn is_first(self) -> bool {
        self.first.number() == 0
    }
}

/// The nodes of a process, and what goes with them.
pub(in super::super) struct Commons<G: Game> {
    pub(super) tree: Arc<SharedTree<G::Move, Link>>,
    pub(super) births: Arc<Mutex<Births<G::State>>>,
    /// The root, if it is here.
    pub(super) root: Mutex<Option<NodeId>>,
    /// What stays, while the tree gets a new root, and what it becomes.
    pub(super) kept: Mutex<Option<Kept>>,
    pub(super) next: Mutex<Option<Arc<Self>>>,
}

impl<G: Game> Commons<G> {
    /// Of a search that begins; with a root if one is to be here.
    pub(super) fn new(rules: Rules, root: Option<(Player, &[G::Move])>, mut rng: Rng) -> Self {
        let commons = Self::of(SharedTree::new(rules));
        if let Some((to_move, moves)) = root {
            let mut moves = moves.to_vec();
            rng.shuffle(&mut moves);
            *lock(&commons.root) = commons.tree.add(to_move, &moves);
        }
        commons
    }

    pub(super) fn of(tree: SharedTree<G::Move, Link>) -> Self {
        Self {
            tree: Arc::new(tree),
            births: Arc::new(Mutex::new(Births::new())),
            root: Mutex::new(None),
            kept: Mutex::new(None),
            next: Mutex::new(None),
        }
    }
}

/// What a panicked thread left is as good as any: nothing is changed in steps that may panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Packed for Link {
    fn pack(link: Option<Self>) -> u64 {
        match link {
            None => 0,
            Some(Self::Leaf) => LEAF,
            Some(Self::Here(node)) => HERE | u64::from(node.number()),
            Some(Self::Awaited(birth)) => AWAITED | u64::from(birth.0),
            Some(Self::There(owner, entry)) => THERE | u64::from(owner.number()) << OWNER_SHIFT | u64::from(entry.0),
        }
    }

    fn unpack(word: u64) -> Option<Self> {
        let low = word as u32;
        match word & KIND {
            HERE => NodeId::of_number(low).map(Self::Here),
            AWAITED => Some(Self::Awaited(BirthId(low))),
            THERE => Some(Self::There(WorkerId::new(((word & !KIND) >> OWNER_SHIFT) as u32), EntryId(low))),
            _ => (word == LEAF).then_some(Self::Leaf),
        }
    }
}

/// The kind of a link is in the upper two bits, below it 30 for a worker (there are fewer than 2^30), then 32 for a number.
const KIND: u64 = 3 << 62;
const HERE: u64 = 1 << 62;
const AWAITED: u64 = 2 << 62;
const THERE: u64 = 3 << 62;
const OWNER_SHIFT: u32 = 32;
const LEAF: u64 = 1;

impl<G: Game> fmt::Debug for Commons<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commons").field("nodes", &self.tree.node_count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_travel_through_words() {
        for number in [0, 1, 77, u32::MAX - 1] {
            let worker = WorkerId::new(number & ((1 << 30) - 1));
            let links = [
                NodeId::of_number(number.max(1)).map(Link::Here),
                Some(Link::Awaited(BirthId(number))),
                Some(Link::There(worker, EntryId(number))),
                Some(Link::Leaf),
                None,
            ];
            for link in links {
                assert_eq!(Link::unpack(Link::pack(link)), link);
            }
        }
    }
}
