//! Selection, expansion and evaluation.

use std::sync::Arc;

use farside::WorkerId;

use super::births::Deferred;
use super::commons::lock;
use super::{Link, Part, Task};
use crate::game::{Game, Outcome};
use crate::search::job::message::{BirthId, Child, Descend, Evaluate, Expand, Expanded, Post, Return};
use crate::search::job::trails::Ends;
use crate::tree::{NodeId, Sample, Step};

/// What the owner of a leaf made of it.
enum Grown {
    Node(NodeId),
    Proven(Outcome),
    /// Nothing, for want of memory.
    Nothing,
}

impl<G: Game> Part<G> {
    /// Selects down from a node, until the rollout leaves for another worker or its sample has begun its way back.
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
            self.deeds.steps += 1;
            if let Some(outcome) = selected.proof {
                break self.certain(outcome);
            }
            match selected.child {
                Some(Link::Here(child)) => {
                    node = child;
                    continue;
                }
                Some(Link::There(owner, entry)) => {
                    if let Some(copy) = self.copies.of(owner, entry) {
                        self.tree.link(selected.step, Link::Here(copy));
                        node = copy;
                        continue;
                    }
                    let back = self.leave_trail(back, Some(owner));
                    return post.descend(owner, Descend { entry, back, depth });
                }
                Some(Link::Awaited(birth)) => {
                    if self.defer((birth, selected.step), &state, back, depth) {
                        return;
                    }
                }
                Some(Link::Leaf) | None => {}
            }
            // Children are the owner's to make.
            let is_due =
                selected.child.is_none() && selected.visit > self.params.expand_after && !self.tree.is_copy(node);
            // The first visit finds out whether the game is over. Others may overtake it, and only then ask in vain.
            if (selected.visit == 1 || is_due)
                && let Some(outcome) = self.game.outcome(&state)
            {
                break self.certain(outcome);
            }
            if is_due {
                let owner = self.choose_owner(node);
                if owner != self.me {
                    if self.expand_there(owner, selected.step, &state, (back, depth), post) {
                        return;
                    }
                } else if !self.is_shared() || self.tree.claim(selected.step, Link::Leaf) {
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
            }
            if let Some((helper, is_answer)) = self.choose_helper() {
                self.count_leaf(depth);
                self.deeds.given_away += 1;
                let back = self.leave_trail(back, Some(helper));
                return post.evaluate(helper, Evaluate { state, back, is_answer });
            }
            break self.simulate(&state);
        };
        self.count_leaf(depth);
        self.climb(back, sample, post);
    }

    pub(super) fn simulate(&mut self, state: &G::State) -> Sample {
        self.deeds.evaluations += 1;
        self.deeds.tally.simulations += u64::from(self.params.simulations);
        Sample::estimated(self.game.simulate(state, self.params.simulations, &mut self.rng))
    }

    pub(super) fn certain(&self, outcome: Outcome) -> Sample {
        Sample::proven(outcome, self.params.simulations)
    }

    pub(super) fn count_leaf(&mut self, depth: u32) {
        let tally = &mut self.deeds.tally;
        tally.depth += u64::from(depth);
        tally.max_depth = tally.max_depth.max(depth);
    }

    /// The rollout leaves, or waits; its steps stay.
    fn leave_trail(&mut self, back: Option<Return>, ahead: Option<WorkerId>) -> Return {
        if let Some(worker) = ahead {
            self.neighbours.send_to(worker);
        }
        Return { to: self.me, trail: self.trails.keep(&mut self.path, Ends { back, ahead }) }
    }

    /// Makes a node, if it is needed and there is room.
    fn grow(&mut self, state: &G::State) -> Grown {
        if self.tree.is_full() {
            return Grown::Nothing;
        }
        self.moves.clear();
        if let Some(outcome) = self.game.study(state, &mut self.moves) {
            return Grown::Proven(outcome);
        }
        self.tree.add(self.game.to_move(state), &mut self.moves, &mut self.rng).map_or(Grown::Nothing, Grown::Node)
    }

    /// Has another worker make a node. False if another thread of this process was first to do something about the edge.
    fn expand_there(
        &mut self,
        owner: WorkerId,
        edge: Step,
        state: &G::State,
        (back, depth): (Option<Return>, u32),
        post: &mut impl Post<G>,
    ) -> bool {
        let birth = lock(&self.births).begin(edge, owner);
        if !self.tree.claim(edge, Link::Awaited(birth)) {
            lock(&self.births).end(birth);
            return false;
        }
        let back = self.leave_trail(back, Some(owner));
        post.expand(owner, Expand { state: state.clone(), birth, back, depth });
        true
    }

    /// Has the rollout wait for a node. False if another thread of this process has just received it.
    fn defer(&mut self, (birth, edge): (BirthId, Step), state: &G::State, back: Option<Return>, depth: u32) -> bool {
        let births = Arc::clone(&self.births);
        let mut births = lock(&births);
        let Some(birth) = births.at(birth, edge) else {
            if !self.is_shared() {
                self.mismatch = Some("an edge");
            }
            return false;
        };
        self.deeds.deferred += 1;
        let back = self.leave_trail(back, None);
        birth.deferred.push(Deferred { back, depth, state: state.clone() });
        true
    }

    // What others say.

    pub(in super::super) fn receive_descend(&mut self, message: Descend) {
        self.tasks.push_back(Task::Descend(message));
    }

    pub(in super::super) fn receive_evaluate(&mut self, message: Evaluate<G::State>) {
        self.tasks.push_back(Task::Evaluate(message));
    }

    /// Makes the node at once, for other rollouts may wait for it; the one that asked goes on in its turn.
    pub(in super::super) fn receive_expand(&mut self, message: Expand<G::State>, post: &mut impl Post<G>) {
        let Expand { state, birth, back, depth } = message;
        let has_room = self.entries.room() > 0;
        match if has_room { self.grow(&state) } else { Grown::Nothing } {
            Grown::Node(node) => {
                let entry = self.entries.add(node, state);
                post.expanded(back.to, Expanded { birth, child: Child::Node(entry) });
                self.tasks.push_back(Task::Descend(Descend { entry, back, depth }));
            }
            Grown::Proven(outcome) => {
                post.expanded(back.to, Expanded { birth, child: Child::Proven(outcome) });
                self.count_leaf(depth);
                self.send_back(back, self.certain(outcome), post);
            }
            Grown::Nothing => {
                post.expanded(back.to, Expanded { birth, child: Child::Refused });
                self.count_leaf(depth);
                self.tasks.push_back(Task::Evaluate(Evaluate { state, back, is_answer: false }));
            }
        }
    }

    /// Lets the edge lead to the new node, and sends the rollouts on that waited for it.
    pub(in super::super) fn receive_expanded(&mut self, message: Expanded, post: &mut impl Post<G>) {
        let births = Arc::clone(&self.births);
        let mut births = lock(&births);
        let Some(birth) = births.end(message.birth) else {
            self.mismatch = Some("an edge");
            return;
        };
        let link = match message.child {
            Child::Node(entry) => Link::There(birth.owner, entry),
            Child::Proven(_) => Link::Leaf,
            Child::Refused => {
                self.neighbours.refuses_nodes(birth.owner);
                Link::Leaf
            }
        };
        // Before other threads can see that the birth is over.
        self.tree.link(birth.edge, link);
        drop(births);
        for Deferred { back, depth, state } in birth.deferred {
            match message.child {
                Child::Node(entry) => {
                    if back.to == self.me && self.trails.lead_to(back.trail, birth.owner).is_some() {
                        self.neighbours.send_to(birth.owner);
                    }
                    post.descend(birth.owner, Descend { entry, back, depth });
                }
                Child::Proven(outcome) => {
                    self.count_leaf(depth);
                    self.send_back(back, self.certain(outcome), post);
                }
                Child::Refused => {
                    self.count_leaf(depth);
                    self.tasks.push_back(Task::Evaluate(Evaluate { state, back, is_answer: false }));
                }
            }
        }
    }
}
