//! Distribution of nodes and leaves among the workers.

use farside::WorkerId;

use super::Part;
use crate::game::Game;
use crate::search::job::Placement;
use crate::search::job::message::{Idle, Message, Post};
use crate::tree::NodeId;

impl<G: Game> Part<G> {
    /// Chooses the owner of a new child of a node.
    pub(super) fn choose_owner(&mut self, parent: NodeId) -> WorkerId {
        let inherits = match self.settings.placement {
            Placement::Random => false,
            Placement::Inherit { visits } => self.tree.visits(parent) <= visits,
        };
        if inherits || self.neighbours.count() == 1 {
            return self.me;
        }
        let owner = WorkerId::new(self.rng.below(self.neighbours.count()));
        if self.neighbours.takes_nodes(owner) { owner } else { self.me }
    }

    /// Returns an idle worker to evaluate a leaf, if there is one, and whether it has asked for
    /// work.
    pub(super) fn choose_helper(&mut self) -> Option<(WorkerId, bool)> {
        let enough = self.enough();
        if self.neighbours.count() == 1 || self.root.is_none() && self.tasks.is_empty() {
            return None;
        }
        if let Some(idle) = self.neighbours.take_idle() {
            return Some((idle, true));
        }
        // Only worker 0 always has more work: it starts the rollouts.
        self.root.as_ref()?;
        self.neighbours.find_underloaded(enough).map(|worker| (worker, false))
    }

    /// Returns the number of rollouts that keeps a worker busy until new ones arrive.
    fn enough(&self) -> u32 {
        (self.settings.in_flight / 4 * 3).max(1)
    }

    /// Asks for work, and passes on what other workers have asked this one.
    pub(super) fn ask_for_work(&mut self, post: &mut impl Post<G>) {
        if self.root.is_none() {
            while let Some(worker) = self.neighbours.take_idle() {
                post.send(WorkerId::new(0), Idle { worker });
            }
        }
        if self.neighbours.count() == 1 || self.neighbours.has_asked {
            return;
        }
        let told = match self.root {
            Some(_) => self.neighbours.find_busiest_but(self.me, self.enough()),
            // Worker 0 starts the rollouts, so it knows where they accumulate.
            None => self.neighbours.find_busiest_but(self.me, self.enough() / 4).or(Some(WorkerId::new(0))),
        };
        if let Some(told) = told {
            self.neighbours.has_asked = true;
            post.send(told, Idle { worker: self.me });
        }
    }
}

impl<G: Game> Message<G> for Idle {
    /// Notes the idle worker. Worker 0 passes the message on to the busiest worker instead.
    fn receive(self, part: &mut Part<G>, post: &mut impl Post<G>) {
        if self.worker.number() >= part.neighbours.count() {
            part.mismatch = Some("a worker");
            return;
        }
        if self.worker == part.me {
            // The message has come back: no worker had a leaf to give away.
            part.neighbours.has_asked = false;
            return;
        }
        let busiest = part.neighbours.find_busiest_but(self.worker, part.enough());
        match busiest.filter(|_| part.root.is_some()) {
            Some(busiest) => post.send(busiest, self),
            None => part.neighbours.add_idle(self.worker),
        }
    }
}
