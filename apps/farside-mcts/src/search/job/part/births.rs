//! Edges whose nodes other workers are making.

use farside::WorkerId;

use crate::search::job::message::{BirthId, Return};
use crate::tree::Step;

/// An edge whose node another worker is making, with the rollouts that wait for it.
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

/// Births by number. Numbers are reused.
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

    pub(super) fn get_mut(&mut self, id: BirthId) -> Option<&mut Birth<S>> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Removes a birth. Returns `None` if there is no such birth.
    pub(super) fn end(&mut self, id: BirthId) -> Option<Birth<S>> {
        let birth = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(birth)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
