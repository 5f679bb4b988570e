//! Backpropagation.

use super::Part;
use crate::game::Game;
use crate::search::job::message::{BackUp, Post, Return};
use crate::search::job::trails::Ends;
use crate::tree::Sample;

impl<G: Game> Part<G> {
    /// Takes a sample up the steps of the path, and on to where the rollout came from.
    pub(super) fn climb(&mut self, back: Option<Return>, mut sample: Sample, post: &mut impl Post<G::State>) {
        for &step in self.path.iter().rev() {
            sample = self.tree.backup(step, sample);
        }
        match (back, &mut self.root) {
            (Some(back), _) => self.send_back(back, sample, post),
            (None, Some(root)) => {
                root.completed += 1;
                if self.tree.proof(root.node).is_some() {
                    root.stop();
                }
            }
            (None, None) => self.mismatch = Some("a root"),
        }
    }

    pub(super) fn send_back(&mut self, back: Return, sample: Sample, post: &mut impl Post<G::State>) {
        let message = BackUp { trail: back.trail, sample };
        if back.to == self.me {
            self.receive_back_up(message, post);
        } else {
            post.back_up(back.to, message);
        }
    }

    /// A sample comes back to a trail of this worker.
    pub(in super::super) fn receive_back_up(&mut self, message: BackUp, post: &mut impl Post<G::State>) {
        let Some(Ends { back, ahead }) = self.trails.end(message.trail, &mut self.path) else {
            self.mismatch = Some("a trail");
            return;
        };
        if let Some(worker) = ahead {
            self.neighbours.receive_from(worker);
        }
        self.climb(back, message.sample, post);
    }
}
