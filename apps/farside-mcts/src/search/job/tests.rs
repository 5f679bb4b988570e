//! Whole searches in one thread: the parts of all workers, and a network that delivers in random
//! order.

use std::collections::VecDeque;

use farside::{Aggregation, WorkerId};

use super::finish::part_report;
use super::message::{BackUp, BirthId, Child, Descend, EntryId, Expanded, Idle, Keep, Message, Post, Return, TrailId};
use super::part::{Link, Part, Whereabouts};
use super::{Costs, Placement, Settings};
use crate::game::{Game, Outcome, Player};
use crate::rng::Rng;
use crate::search::{Budget, Params, Search, SearchError};
use crate::tree::{NodeId, Sample};

/// Take one, two or three matches. The player that takes the last one wins, except that the game is
/// drawn if the second player takes the last three at once.
#[derive(Clone, Copy, Debug)]
struct Matches {
    /// Number of matches at the beginning.
    count: u32,
    /// `study` returns the outcome of positions with fewer matches.
    known_below: u32,
}

/// Matches left, matches taken last, and whether the second player is to move.
type State = (u32, u32, bool);

impl Game for Matches {
    type State = State;
    type Move = u32;

    fn initial(&self) -> State {
        (self.count, 0, false)
    }

    fn to_move(&self, &(.., second): &State) -> Player {
        if second { Player::Second } else { Player::First }
    }

    fn moves(&self, &(left, ..): &State, moves: &mut Vec<u32>) {
        assert!(left > 0, "the game is over");
        moves.extend(1..=left.min(3));
    }

    fn play(&self, state: &mut State, taken: u32) {
        *state = (state.0 - taken, taken, !state.2);
    }

    fn outcome(&self, state: &State) -> Option<Outcome> {
        let taker = self.to_move(state).opponent();
        let ended = if taker == Player::Second && state.1 == 3 { Outcome::Drawn } else { Outcome::Won(taker) };
        (state.0 == 0).then_some(ended)
    }

    fn study(&self, state: &State, moves: &mut Vec<u32>) -> Option<Outcome> {
        if state.0 < self.known_below {
            return Some(solve(self, state));
        }
        self.moves(state, moves);
        None
    }
}

/// Returns the outcome with best play.
fn solve(game: &Matches, state: &State) -> Outcome {
    if let Some(outcome) = game.outcome(state) {
        return outcome;
    }
    let mut moves = Vec::new();
    game.moves(state, &mut moves);
    let outcomes = moves.into_iter().map(|chosen| {
        let mut next = *state;
        game.play(&mut next, chosen);
        solve(game, &next)
    });
    let mover = game.to_move(state);
    let worth = |outcome: &Outcome| match outcome {
        Outcome::Won(winner) => {
            if *winner == mover {
                2
            } else {
                0
            }
        }
        Outcome::Drawn => 1,
    };
    outcomes.max_by_key(worth).expect("there is a move")
}

/// A message under way: delivers itself to a part.
type Letter = Box<dyn FnOnce(&mut Part<Matches>, &mut TestPost<'_>)>;

/// The messages under way, by sender and receiver. As in a job, those between two workers keep
/// their order.
struct Net {
    queues: Vec<Vec<VecDeque<Letter>>>,
}

/// The net as one worker sees it: its queues to the others.
struct TestPost<'a> {
    to: &'a mut [VecDeque<Letter>],
}

impl Post<Matches> for TestPost<'_> {
    fn send<T: Message<Matches>>(&mut self, to: WorkerId, message: T) {
        self.to[to.index()].push_back(Box::new(move |part, post| message.receive(part, post)));
    }
}

/// A search and its workers.
#[derive(Clone, Copy, Debug)]
struct Setup {
    game: Matches,
    workers: u32,
    rollouts: u64,
    params: Params,
    settings: Settings,
}

impl Setup {
    fn new(workers: u32, rollouts: u64, seed: u64) -> Self {
        let placement = if seed.is_multiple_of(2) { Placement::Random } else { Placement::Inherit { visits: 20 } };
        let in_flight = 1 + (seed % 7) as u32;
        let aggregation = Aggregation::Traditional { bytes: 1 };
        let settings = Settings { costs: Costs::default(), placement, in_flight, aggregation };
        let params = Params { seed, simulations: 2, expand_after: (seed % 4) as u32, ..Params::default() };
        Self { game: Matches { count: 11, known_below: 0 }, workers, rollouts, params, settings }
    }

    fn part(&self, number: u32) -> Result<Part<Matches>, SearchError> {
        let me = WorkerId::new(number);
        Part::new(self.game, &self.params, self.settings, &self.game.initial(), me, self.workers)
    }

    /// Makes a whole search.
    fn run(&self) -> Vec<Part<Matches>> {
        let mut parts = self.parts();
        self.run_on(&mut parts);
        parts
    }

    fn parts(&self) -> Vec<Part<Matches>> {
        (0..self.workers).map(|number| self.part(number).unwrap()).collect()
    }

    /// Makes a run in the trees of these parts.
    fn run_on(&self, parts: &mut [Part<Matches>]) {
        parts.iter_mut().for_each(|part| part.begin(self.rollouts));
        self.exchange(parts, Net::new(self.workers));
    }

    /// Lets all parts work, and delivers their messages, until nothing is left to do.
    fn exchange(&self, parts: &mut [Part<Matches>], mut net: Net) {
        let mut rng = Rng::stream(self.params.seed, 77);
        let mut fruitless = 0;
        while fruitless < 1000 {
            let [one, other] = [0; 2].map(|_| rng.below(self.workers) as usize);
            let moved = if rng.below(2) == 0 {
                parts[one].work(&mut TestPost { to: &mut net.queues[one] })
            } else {
                net.deliver(one, other, parts)
            };
            fruitless = if moved { 0 } else { fruitless + 1 };
        }
        assert!(net.queues.iter().flatten().all(VecDeque::is_empty));
    }

    /// Makes the position after a move the root. Returns whether its node came from another worker.
    fn advance(&self, parts: &mut [Part<Matches>], chosen: u32, state: &State) -> bool {
        let mut moves = Vec::new();
        self.game.moves(state, &mut moves);
        let uprooted = match parts[0].whereabouts(chosen).unwrap() {
            Whereabouts::There(owner, entry) => Some(parts[owner.index()].uproot(entry).unwrap()),
            Whereabouts::First | Whereabouts::Nowhere => None,
        };
        parts.iter_mut().for_each(Part::begin_keeping);
        let mut net = Net::new(self.workers);
        parts[0].keep_below(chosen, uprooted.as_ref(), &mut TestPost { to: &mut net.queues[0] });
        self.exchange(parts, net);
        parts.iter_mut().for_each(|part| part.end_keeping((state, &moves), uprooted.clone()));
        uprooted.is_some()
    }
}

impl Net {
    fn new(workers: u32) -> Self {
        let queue = || (0..workers).map(|_| VecDeque::new()).collect();
        Self { queues: (0..workers).map(|_| queue()).collect() }
    }

    /// Delivers the next message from one worker to another, if there is one.
    fn deliver(&mut self, from: usize, to: usize, parts: &mut [Part<Matches>]) -> bool {
        let Some(message) = self.queues[from][to].pop_front() else { return false };
        let part = &mut parts[to];
        let mut post = TestPost { to: &mut self.queues[to] };
        message(part, &mut post);
        true
    }
}

/// Checks the visits and proofs of a node and of all nodes below it. Returns the node's visits.
fn check_node(parts: &[Part<Matches>], game: &Matches, owner: WorkerId, node: NodeId, state: State) -> u32 {
    let tree = parts[owner.index()].tree();
    let visits = tree.visits(node);
    assert_eq!(visits, tree.edges(node).map(|edge| edge.visits).sum::<u32>(), "all visits are complete");
    if let Some(outcome) = tree.proof(node) {
        assert_eq!(outcome, solve(game, &state));
    }
    for edge in tree.edges(node) {
        let mut next = state;
        game.play(&mut next, edge.chosen);
        if let Some(outcome) = edge.proof {
            assert_eq!(outcome, solve(game, &next));
        }
        let below = match edge.child {
            Some(Link::Here(child)) => check_node(parts, game, owner, child, next),
            Some(Link::There(there, entry)) => {
                assert_ne!(there, owner);
                let child = parts[there.index()].node_of(entry).expect("the entry is there");
                check_node(parts, game, there, child, next)
            }
            Some(Link::Awaited(_)) => panic!("nothing is awaited any more"),
            Some(Link::Leaf) | None => 0,
        };
        assert!(below <= edge.visits);
    }
    visits
}

fn check(setup: &Setup, parts: &[Part<Matches>]) {
    for part in parts {
        assert_eq!(part.mismatch(), None);
        assert!(part.is_quiet());
    }
    let root = parts[0].root().unwrap();
    assert_eq!(root.started, root.completed);
    let is_proven = parts[0].tree().proof(root.node).is_some();
    assert!(root.completed == setup.rollouts || is_proven && root.completed < setup.rollouts);
    assert!(root.in_flight_max() <= setup.settings.in_flight * setup.workers);
    let visits = check_node(parts, &setup.game, WorkerId::new(0), root.node, setup.game.initial());
    assert_eq!(u64::from(visits), root.kept + root.completed);
}

/// The moves to an edge, and its visits, win rate and proof.
type Known = (Vec<u32>, u32, f64, Option<Outcome>);

fn knowledge(parts: &[Part<Matches>], owner: WorkerId, node: NodeId, path: &[u32], known: &mut Vec<Known>) {
    for edge in parts[owner.index()].tree().edges(node) {
        let path = [path, &[edge.chosen]].concat();
        known.push((path.clone(), edge.visits, edge.win_rate, edge.proof));
        match edge.child {
            Some(Link::Here(child)) => knowledge(parts, owner, child, &path, known),
            Some(Link::There(there, entry)) => {
                let child = parts[there.index()].node_of(entry).unwrap();
                knowledge(parts, there, child, &path, known);
            }
            Some(Link::Awaited(_) | Link::Leaf) | None => {}
        }
    }
}

/// Returns the statistics of all edges below the root, or below its move `chosen`.
fn knowledge_after(parts: &[Part<Matches>], chosen: Option<u32>) -> Vec<Known> {
    let mut known = Vec::new();
    knowledge(parts, WorkerId::new(0), parts[0].root().unwrap().node, &[], &mut known);
    let Some(chosen) = chosen else { return known };
    let below = known.into_iter().filter(|(path, ..)| path.len() > 1 && path[0] == chosen);
    below.map(|(path, visits, rate, proof)| (path[1..].to_vec(), visits, rate, proof)).collect()
}

fn bytes(parts: &[Part<Matches>]) -> usize {
    parts.iter().map(Part::tree_bytes).sum()
}

#[test]
fn a_new_root_keeps_all_nodes_below_it() {
    let (mut brought, mut anew) = (0, 0);
    for seed in 0..60 {
        let mut setup =
            Setup { game: Matches { count: 24, known_below: 0 }, ..Setup::new(1 + seed as u32 % 5, 400, seed) };
        if seed.is_multiple_of(7) {
            setup.rollouts = 2;
        }
        let mut parts = setup.run();
        let mut state = setup.game.initial();
        for ply in 0..4 {
            // Any move: often visited, rarely visited, or never tried.
            let chosen = 1 + (seed as u32 / 5 + ply) % 3;
            setup.game.play(&mut state, chosen);
            let expected = knowledge_after(&parts, Some(chosen));
            let bytes_before = bytes(&parts);
            brought += u32::from(setup.advance(&mut parts, chosen, &state));
            anew += u32::from(expected.is_empty());
            assert_eq!(knowledge_after(&parts, None), expected);
            assert!(bytes(&parts) <= bytes_before + 600, "memory is given back");
            let sum =
                |known: &[Known]| known.iter().filter(|(path, ..)| path.len() == 1).map(|known| known.1).sum::<u32>();
            assert_eq!(parts[0].root_visits(), u64::from(sum(&expected)));
            setup.run_on(&mut parts);
            setup.game.count = state.0;
            for part in &parts {
                assert_eq!(part.mismatch(), None);
                assert!(part.is_quiet());
            }
            let root = parts[0].root().unwrap();
            let visits = check_node(&parts, &setup.game, WorkerId::new(0), root.node, state);
            assert_eq!(u64::from(visits), root.kept + root.completed);
        }
    }
    assert!(brought > 0 && anew > 0, "{brought} {anew}");
}

fn sum(parts: &[Part<Matches>], of: impl Fn(&Part<Matches>) -> u64) -> u64 {
    parts.iter().map(of).sum()
}

#[test]
fn every_rollout_comes_back_in_any_order() {
    let (mut deferred, mut given_away, mut spread) = (0, 0, 0);
    for seed in 0..60 {
        let setup = Setup::new(1 + seed as u32 % 5, 300, seed);
        let parts = setup.run();
        check(&setup, &parts);
        deferred += sum(&parts, |part| part.counters().deferred);
        given_away += sum(&parts[1..], |part| part.counters().given_away);
        spread += sum(&parts[1..], |part| part.tree().node_count() as u64);
    }
    // Each of these has happened.
    assert!(deferred > 0 && given_away > 0 && spread > 0, "{deferred} {given_away} {spread}");
}

#[test]
fn a_small_game_is_solved() {
    let drawn = Outcome::Drawn;
    let won = Outcome::Won(Player::First);
    for (seed, (count, known_below, outcome)) in
        [(4, 0, drawn), (9, 0, won), (11, 4, won), (8, 6, drawn)].iter().enumerate()
    {
        let mut setup = Setup::new(3, 4000, seed as u64);
        setup.game = Matches { count: *count, known_below: *known_below };
        let parts = setup.run();
        check(&setup, &parts);
        let root = parts[0].root().unwrap().node;
        assert_eq!(parts[0].tree().proof(root), Some(*outcome), "{count} matches");
    }
}

#[test]
fn one_worker_does_what_a_loop_does() {
    for seed in 0..10 {
        let setup = Setup { game: Matches { count: 14, known_below: seed as u32 % 4 }, ..Setup::new(1, 500, seed) };
        let parts = setup.run();
        let report = part_report(&parts[0], Default::default()).unwrap();
        let mut local = Search::new(setup.game).params(setup.params);
        let local = local.run(&setup.game.initial(), Budget::Rollouts(500)).unwrap();
        assert_eq!(report, crate::Report { elapsed: report.elapsed, tree_bytes: report.tree_bytes, ..local });
    }
}

#[test]
fn rollouts_continue_without_memory() {
    let mut refused = 0;
    for seed in 0..30 {
        let mut setup = Setup::new(3, 400, seed);
        setup.params.memory_bytes = 3 * (4000 + 300 * seed as usize);
        let parts = setup.run();
        check(&setup, &parts);
        let bytes = parts.iter().map(Part::tree_bytes).sum::<usize>();
        assert!(bytes <= setup.params.memory_bytes, "{bytes}");
        refused += usize::from(parts.iter().any(|part| part.tree().is_full()));
    }
    assert!(refused > 0);
    let nothing = Params { memory_bytes: 1500, ..Params::default() };
    for number in 0..3 {
        let refused = Setup { params: nothing, ..Setup::new(3, 1, 0) }.part(number).err();
        assert_eq!(refused, Some(SearchError::Memory { bytes: 1500 }));
    }
}

/// Sends a message to worker 1 of 2, and returns what it names that the worker does not have.
fn mismatch_of(message: impl Message<Matches>) -> Option<&'static str> {
    let setup = Setup::new(2, 1, 0);
    let mut parts = [0, 1].map(|number| setup.part(number).unwrap());
    let mut net = Net::new(2);
    TestPost { to: &mut net.queues[0] }.send(WorkerId::new(1), message);
    net.deliver(0, 1, &mut parts);
    parts[1].work(&mut TestPost { to: &mut net.queues[1] });
    parts[1].mismatch()
}

#[test]
fn unknown_names_are_noted() {
    let back = Return { to: WorkerId::new(0), trail: TrailId(0) };
    let sample = Sample::proven(Outcome::Drawn, 2);
    assert_eq!(mismatch_of(Descend { entry: EntryId(3), back, depth: 1 }), Some("a node"));
    assert_eq!(mismatch_of(Keep { entry: EntryId(3) }), Some("a node"));
    assert_eq!(mismatch_of(Expanded { birth: BirthId(5), child: Child::Refused }), Some("an edge"));
    assert_eq!(mismatch_of(BackUp { trail: TrailId(9), sample }), Some("a trail"));
    assert_eq!(mismatch_of(Idle { worker: WorkerId::new(2) }), Some("a worker"));
}
