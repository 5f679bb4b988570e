//! Backpropagation.

use super::Part;
use crate::game::Game;
use crate::search::job::message::{BackUp, Post, Return};
use crate::search::job::trails::Ends;
use crate::tree::Sample;

impl<G: Game> Part<G> {
    /// Takes a sample up the steps of the path, and on to where the rollout came from.
    pub(super) fn climb(&mut self, back: Option<Return>, mut sample: Sample, post: &mut impl Post<G>) {
        for index in (0..self.path.len()).rev() {
            let (step, below) = (self.path[index], sample);
            sample = self.tree.backup(step, below);
            if self.tree.is_copy(step.node()) {
                self.note_fresh(step, below, post);
            }
        }
        match back {
            Some(back) => self.send_back(back, sample, post),
            None => self.complete(post),
        }
    }

    pub(super) fn send_back(&mut self, back: Return, sample: Sample, post: &mut impl Post<G>) {
        let message = BackUp { trail: back.trail, sample };
        if back.to == self.me {
            self.receive_back_up(message, post);
        } else {
            post.back_up(back.to, message);
        }
    }

    /// A sample comes back to a trail of this worker.
    pub(in super::super) fn receive_back_up(&mut self, message: BackUp, post: &mut impl Post<G>) {
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
