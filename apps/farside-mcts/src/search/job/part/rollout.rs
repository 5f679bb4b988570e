//! The steps of a rollout: selection, expansion, evaluation and backpropagation.

use farside::WorkerId;

use super::births::Deferred;
use super::{Link, Part, Task};
use crate::game::{Game, Outcome};
use crate::search::job::message::{BackUp, BirthId, Child, Descend, Evaluate, Expand, Expanded, Message, Post, Return};
use crate::search::job::trails::Ends;
use crate::tree::{NodeId, Sample, Step};

/// The result of an attempt to make a node.
enum Grown {
    Node(NodeId),
    Proven(Outcome),
    /// No node, because memory is used up.
    Nothing,
}

impl<G: Game> Part<G> {
    /// Selects down from a node, until the rollout moves to another worker or its sample is on its
    /// way back.
    pub(super) fn descend(
        &mut self,
        mut node: NodeId,
        mut state: G::State,
        back: Option<Return>,
        mut depth: u32,
        post: &mut impl Post<G>,
    ) {
        self.path.clear();
        let sample = loop {
            let selected = self.tree.select(node, &mut self.rng);
            self.path.push(selected.step);
            self.game.play(&mut state, selected.chosen);
            depth += 1;
            self.counters.steps += 1;
            if let Some(outcome) = selected.proof {
                break self.certain(outcome);
            }
            match selected.child {
                Some(Link::Here(child)) => {
                    node = child;
                    continue;
                }
                Some(Link::There(owner, entry)) => {
                    let back = self.leave_trail(back, Some(owner));
                    return post.send(owner, Descend { entry, back, depth });
                }
                Some(Link::Awaited(birth)) => return self.defer(birth, state, back, depth),
                Some(Link::Leaf) | None => {}
            }
            let is_due = selected.child.is_none() && selected.visit > self.params.expand_after;
            // The first visit finds out whether the game is over. A later one can overtake it, and
            // asks again only if it is to make a node.
            if (selected.visit == 1 || is_due)
                && let Some(outcome) = self.game.outcome(&state)
            {
                break self.certain(outcome);
            }
            if is_due {
                let owner = self.choose_owner(node);
                if owner != self.me {
                    return self.expand_there(owner, selected.step, state, (back, depth), post);
                }
                self.tree.link(selected.step, Link::Leaf);
                match self.grow(&state) {
                    Grown::Node(child) => {
                        self.tree.link(selected.step, Link::Here(child));
                        node = child;
                        continue;
                    }
                    Grown::Proven(outcome) => break self.certain(outcome),
                    Grown::Nothing => {}
                }
            }
            if let Some((helper, is_answer)) = self.choose_helper() {
                self.count_leaf(depth);
                self.counters.given_away += 1;
                let back = self.leave_trail(back, Some(helper));
                return post.send(helper, Evaluate { state, back, is_answer });
            }
            break self.simulate(&state);
        };
        self.count_leaf(depth);
        self.climb(back, sample, post);
    }

    pub(super) fn simulate(&mut self, state: &G::State) -> Sample {
        self.counters.evaluations += 1;
        self.counters.tally.simulations += u64::from(self.params.simulations);
        Sample::estimated(self.game.simulate(state, self.params.simulations, &mut self.rng))
    }

    fn certain(&self, outcome: Outcome) -> Sample {
        Sample::proven(outcome, self.params.simulations)
    }

    fn count_leaf(&mut self, depth: u32) {
        let tally = &mut self.counters.tally;
        tally.depth += u64::from(depth);
        tally.max_depth = tally.max_depth.max(depth);
    }

    /// Stores the steps of a rollout that moves to worker `ahead` or waits here.
    fn leave_trail(&mut self, back: Option<Return>, ahead: Option<WorkerId>) -> Return {
        if let Some(worker) = ahead {
            self.neighbours.send_to(worker);
        }
        Return { to: self.me, trail: self.trails.keep(&mut self.path, Ends { back, ahead }) }
    }

    /// Makes a node, if the outcome is unknown and there is memory.
    fn grow(&mut self, state: &G::State) -> Grown {
        if self.tree.is_full() {
            return Grown::Nothing;
        }
        self.moves.clear();
        if let Some(outcome) = self.game.study(state, &mut self.moves) {
            return Grown::Proven(outcome);
        }
        self.tree.add(self.game.to_move(state), &self.moves).map_or(Grown::Nothing, Grown::Node)
    }

    /// Asks another worker to make a node.
    fn expand_there(
        &mut self,
        owner: WorkerId,
        edge: Step,
        state: G::State,
        (back, depth): (Option<Return>, u32),
        post: &mut impl Post<G>,
    ) {
        let birth = self.births.begin(edge, owner);
        self.tree.link(edge, Link::Awaited(birth));
        let back = self.leave_trail(back, Some(owner));
        post.send(owner, Expand { state, birth, back, depth });
    }

    /// Lets the rollout wait until another worker has made the next node.
    fn defer(&mut self, birth: BirthId, state: G::State, back: Option<Return>, depth: u32) {
        self.counters.deferred += 1;
        let back = self.leave_trail(back, None);
        match self.births.get_mut(birth) {
            Some(birth) => birth.deferred.push(Deferred { back, depth, state }),
            None => self.mismatch = Some("an edge"),
        }
    }

    /// Takes a sample up the steps of the path, and back to the sender of the rollout.
    fn climb(&mut self, back: Option<Return>, mut sample: Sample, post: &mut impl Post<G>) {
        while let Some(step) = self.path.pop() {
            sample = self.tree.backup(step, sample);
        }
        match back {
            Some(back) => self.send_back(back, sample, post),
            None => self.complete(),
        }
    }

    pub(super) fn send_back(&mut self, back: Return, sample: Sample, post: &mut impl Post<G>) {
        let message = BackUp { trail: back.trail, sample };
        if back.to == self.me {
            message.receive(self, post);
        } else {
            post.send(back.to, message);
        }
    }
}

impl<G: Game> Message<G> for Descend {
    #[inline]
    fn receive(self, part: &mut Part<G>, _: &mut impl Post<G>) {
        part.tasks.push_back(Task::Descend(self));
    }
}

impl<G: Game> Message<G> for Evaluate<G::State> {
    #[inline]
    fn receive(self, part: &mut Part<G>, _: &mut impl Post<G>) {
        part.tasks.push_back(Task::Evaluate(self));
    }
}

impl<G: Game> Message<G> for BackUp {
    fn receive(self, part: &mut Part<G>, post: &mut impl Post<G>) {
        let Some(Ends { back, ahead }) = part.trails.end(self.trail, &mut part.path) else {
            part.mismatch = Some("a trail");
            return;
        };
        if let Some(worker) = ahead {
            part.neighbours.receive_from(worker);
        }
        part.climb(back, self.sample, post);
    }
}

impl<G: Game> Message<G> for Expand<G::State> {
    /// Makes the node at once, since other rollouts may wait for it. The rollout itself becomes a
    /// task.
    fn receive(self, part: &mut Part<G>, post: &mut impl Post<G>) {
        let Self { state, birth, back, depth } = self;
        let has_room = part.entries.room() > 0;
        let child = match if has_room { part.grow(&state) } else { Grown::Nothing } {
            Grown::Node(node) => {
                let entry = part.entries.add(node, state);
                part.tasks.push_back(Task::Descend(Descend { entry, back, depth }));
                Child::Node(entry)
            }
            Grown::Proven(outcome) => {
                post.send(back.to, Expanded { birth, child: Child::Proven(outcome) });
                part.count_leaf(depth);
                return part.send_back(back, part.certain(outcome), post);
            }
            Grown::Nothing => {
                part.count_leaf(depth);
                part.tasks.push_back(Task::Evaluate(Evaluate { state, back, is_answer: false }));
                Child::Refused
            }
        };
        post.send(back.to, Expanded { birth, child });
    }
}

impl<G: Game> Message<G> for Expanded {
    /// Lets the edge lead to the new node, and continues the rollouts that waited for it.
    fn receive(self, part: &mut Part<G>, post: &mut impl Post<G>) {
        let Some(birth) = part.births.end(self.birth) else {
            part.mismatch = Some("an edge");
            return;
        };
        let link = match self.child {
            Child::Node(entry) => Link::There(birth.owner, entry),
            Child::Proven(_) => Link::Leaf,
            Child::Refused => {
                part.neighbours.refuses_nodes(birth.owner);
                Link::Leaf
            }
        };
        part.tree.link(birth.edge, link);
        for Deferred { back, depth, state } in birth.deferred {
            match self.child {
                Child::Node(entry) => {
                    if part.trails.lead_to(back.trail, birth.owner).is_some() {
                        part.neighbours.send_to(birth.owner);
                    }
                    post.send(birth.owner, Descend { entry, back, depth });
                }
                Child::Proven(outcome) => {
                    part.count_leaf(depth);
                    part.send_back(back, part.certain(outcome), post);
                }
                Child::Refused => {
                    part.count_leaf(depth);
                    part.tasks.push_back(Task::Evaluate(Evaluate { state, back, is_answer: false }));
                }
            }
        }
    }
}
