//! Edges whose nodes other workers are making.

use farside::WorkerId;

use crate::search::job::message::{BirthId, Return};
use crate::tree::Step;

/// An edge whose node is being made, and the rollouts that wait for it.
#[derive(Debug)]
pub(super) struct Birth<S> {
    pub(super) edge: Step,
    pub(super) owner: WorkerId,
    pub(super) deferred: Vec<Deferred<S>>,
}

/// A rollout that waits at an edge (Seriema §5.3.2).
#[derive(Debug)]
pub(super) struct Deferred<S> {
    pub(super) back: Return,
    pub(super) depth: u32,
    /// Needed only if there will be no node.
    pub(super) state: S,
}

/// Births by number. Numbers are used again.
#[derive(Debug)]
pub(super) struct Births<S> {
    slots: Vec<Option<Birth<S>>>,
    free: Vec<u32>,
}

impl<S> Births<S> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn begin(&mut self, edge: Step, owner: WorkerId) -> BirthId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 rollouts under way")
        });
        self.slots[id as usize] = Some(Birth { edge, owner, deferred: Vec::new() });
        BirthId(id)
    }

    /// The birth of this number, if it is at this edge.
    pub(super) fn at(&mut self, id: BirthId, edge: Step) -> Option<&mut Birth<S>> {
        self.slots.get_mut(id.0 as usize)?.as_mut().filter(|birth| birth.edge == edge)
    }

    /// Ends a birth. `None` if there is no such birth.
    pub(super) fn end(&mut self, id: BirthId) -> Option<Birth<S>> {
        let birth = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(birth)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
