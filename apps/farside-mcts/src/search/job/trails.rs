//! The steps of rollouts that have moved on to another worker.

use farside::WorkerId;

use super::message::{Return, TrailId};
use crate::tree::Step;

/// Trails by number. Numbers and memory are reused.
#[derive(Debug, Default)]
pub(super) struct Trails {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// The two ends of a trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// Destination of the sample after this trail; `None` at the root.
    pub(super) back: Option<Return>,
    /// Worker that has the rollout now; `None` while the rollout waits for a node.
    pub(super) ahead: Option<WorkerId>,
}

#[derive(Debug)]
struct Slot {
    /// Consecutive steps of one rollout. Empty, but with capacity, while there is no trail.
    steps: Vec<Step>,
    trail: Option<Ends>,
}

impl Trails {
    /// Adds a trail, and moves its steps out of `path`.
    pub(super) fn keep(&mut self, path: &mut Vec<Step>, ends: Ends) -> TrailId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { steps: Vec::new(), trail: None });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 rollouts under way")
        });
        let slot = &mut self.slots[id as usize];
        slot.trail = Some(ends);
        std::mem::swap(&mut slot.steps, path);
        TrailId(id)
    }

    /// Notes the worker that has the rollout now. Returns `None` if there is no such trail.
    pub(super) fn lead_to(&mut self, id: TrailId, worker: WorkerId) -> Option<()> {
        self.slots.get_mut(id.0 as usize)?.trail.as_mut()?.ahead = Some(worker);
        Some(())
    }

    /// Removes a trail, and moves its steps into `path`. Returns `None` if there is no such trail.
    pub(super) fn end(&mut self, id: TrailId, path: &mut Vec<Step>) -> Option<Ends> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        let ends = slot.trail.take()?;
        self.free.push(id.0);
        path.clear();
        std::mem::swap(&mut slot.steps, path);
        Some(ends)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends = Ends { back: None, ahead: None };

    #[test]
    fn a_trail_ends_once() {
        let mut trails = Trails::default();
        let mut path = Vec::new();
        let ids = [0, 1, 2].map(|_| trails.keep(&mut path, ENDS));
        assert_eq!(ids, [TrailId(0), TrailId(1), TrailId(2)]);
        assert_eq!(trails.end(ids[1], &mut path), Some(ENDS));
        assert_eq!(trails.end(ids[1], &mut path), None);
        assert_eq!(trails.lead_to(ids[1], WorkerId::new(0)), None);
        assert_eq!(trails.len(), 2);
        let again = trails.keep(&mut path, Ends { ahead: Some(WorkerId::new(3)), ..ENDS });
        assert_eq!(again, ids[1]);
        assert_eq!(trails.lead_to(again, WorkerId::new(1)), Some(()));
        assert_eq!(trails.end(again, &mut path).and_then(|ends| ends.ahead), Some(WorkerId::new(1)));
    }

    #[test]
    fn unknown_trails_are_refused() {
        let mut trails = Trails::default();
        assert_eq!(trails.end(TrailId(0), &mut Vec::new()), None);
        assert_eq!(trails.lead_to(TrailId(u32::MAX), WorkerId::new(0)), None);
    }
}
