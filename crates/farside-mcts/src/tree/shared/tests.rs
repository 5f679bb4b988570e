//! The shared tree against the plain one, and under several threads.

use std::num::NonZeroU32;
use std::thread;

use super::*;
use crate::rng::Rng;
use crate::tree::{Lead, Tree};

impl Packed for NodeId {
    fn pack(link: Option<Self>) -> u64 {
        link.map_or(0, |id| u64::from(id.0.get()))
    }
    fn unpack(word: u64) -> Option<Self> {
        NonZeroU32::new(word as u32).map(NodeId)
    }
}

const RULES: Rules = Rules { exploration: 0.5, simulations: 16, memory_bytes: 1 << 24 };

fn shared() -> SharedTree<u16, NodeId> {
    SharedTree::new(RULES)
}

#[test]
fn nodes_have_places_of_their_own() {
    let mut last = (0, FIRST_CHUNK);
    for index in 0..100_000 {
        let (chunk, place) = place_of(index);
        let follows =
            if place == 0 { chunk == last.0 + usize::from(index > 0) } else { (chunk, place) == (last.0, last.1 + 1) };
        assert!(follows && place < FIRST_CHUNK << chunk, "{index}");
        last = (chunk, place);
    }
    assert_eq!(place_of(i32::MAX as usize).0, CHUNK_COUNT);
    assert_eq!(place_of(i32::MAX as usize - 2 * FIRST_CHUNK).0, CHUNK_COUNT - 1);
}

/// One thread with one visit in flight does what the plain tree does, when both try moves in the same order.
#[test]
fn one_thread_does_what_the_plain_tree_does() {
    for move_count in [1, 2, 15, 16, 17, 33, 121] {
        for to_move in [Player::First, Player::Second] {
            let mut rng = Rng::new(u64::from(move_count));
            let moves: Vec<u16> = (0..move_count).collect();
            let mut plain = Tree::<u16>::new(RULES);
            let root = plain.add(to_move, &moves).unwrap();
            // The order in which the plain tree tries them.
            let mut order = Vec::new();
            let mut rehearsal = Tree::<u16>::new(RULES);
            rehearsal.add(to_move, &moves).unwrap();
            let mut other = rng.clone();
            for _ in 0..move_count {
                let selected = rehearsal.select(root, &mut other);
                rehearsal.backup(selected.step, Sample::estimated(Points::wins(1)));
                order.push(selected.chosen);
            }
            let tree = shared();
            assert_eq!(tree.add(to_move, &order), Some(root));
            let mut samples = Rng::new(9);
            for round in 0..1500 {
                let (one, two) = (plain.select(root, &mut rng), tree.select(root));
                assert_eq!((one.chosen, one.visit, one.proof), (two.chosen, two.visit, two.proof), "round {round}");
                // Sixteenths, so that no rounding makes a difference.
                let sample = match samples.below(60) {
                    0 => Sample::proven(Outcome::Won(to_move.opponent()), 16),
                    1 => Sample::proven(Outcome::Drawn, 16),
                    wins => Sample::estimated(Points::wins(wins % 17)),
                };
                assert_eq!(plain.backup(one.step, sample), tree.backup(two.step, sample));
                assert_eq!(plain.proof(root), tree.proof(root));
                if plain.proof(root).is_some() {
                    break;
                }
            }
            let known = |view: EdgeView<u16, NodeId>| (view.chosen, view.visits, view.win_rate, view.proof);
            assert_eq!(plain.best(root).map(known), tree.best(root).map(known));
            assert!(plain.edges(root).map(known).eq(tree.edges(root).map(known)));
        }
    }
}

/// Several threads grow one tree; nothing is lost.
#[test]
fn visits_and_points_add_up_under_several_threads() {
    const THREADS: u64 = 4;
    const ROLLOUTS: u64 = 20_000;
    let tree = shared();
    let moves: Vec<u16> = (0..40).collect();
    let root = tree.add(Player::First, &moves).unwrap();
    let claims: u32 = thread::scope(|scope| {
        let work = |seed| {
            let (tree, moves) = (&tree, &moves);
            move || {
                let mut rng = Rng::new(seed);
                let mut claims = 0;
                for _ in 0..ROLLOUTS {
                    let (mut path, mut node) = (Vec::new(), root);
                    loop {
                        let selected = tree.select(node);
                        path.push(selected.step);
                        match selected.child {
                            Some(child) => node = child,
                            None if selected.visit > 20 => {
                                let child = tree.add(Player::Second, moves).unwrap();
                                claims += u32::from(tree.claim(selected.step, child));
                                break;
                            }
                            None => break,
                        }
                    }
                    let sample = Sample::estimated(Points::wins(rng.below(17)));
                    path.iter().rev().fold(sample, |sample, &step| tree.backup(step, sample));
                }
                claims
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(u64::from(tree.visits(root)), THREADS * ROLLOUTS);
    let mut open = vec![root];
    let mut linked = 0;
    while let Some(id) = open.pop() {
        assert_eq!(tree.visits(id), tree.edges(id).map(|edge| edge.visits).sum::<u32>());
        for edge in tree.edges(id) {
            assert!(edge.win_rate <= 1.0);
            if let Some(child) = edge.child {
                linked += 1;
                assert!(tree.visits(child) < edge.visits);
                open.push(child);
            }
        }
    }
    assert_eq!(claims, linked, "each edge was claimed once");
    assert!(linked > 40);
}

#[test]
fn what_is_kept_stays_the_same() {
    let tree = shared();
    let moves: Vec<u16> = (0..20).collect();
    let root = tree.add(Player::First, &moves).unwrap();
    for round in 0..3000 {
        let (mut path, mut node) = (Vec::new(), root);
        loop {
            let selected = tree.select(node);
            path.push(selected.step);
            match selected.child {
                Some(child) => node = child,
                None if selected.visit > 5 => {
                    tree.claim(selected.step, tree.add(Player::Second, &moves).unwrap());
                    break;
                }
                None => break,
            }
        }
        let proof = (round % 50 == 0).then_some(Outcome::Drawn);
        let sample = proof.map_or(Sample::estimated(Points::wins(round % 17)), |outcome| Sample::proven(outcome, 16));
        path.iter().rev().fold(sample, |sample, &step| tree.backup(step, sample));
    }
    let top = tree.edges(root).find_map(|edge| edge.child).unwrap();
    let knowledge = |tree: &SharedTree<u16, NodeId>, top| {
        let (mut known, mut open) = (Vec::new(), vec![(top, Vec::new())]);
        while let Some((id, path)) = open.pop() {
            for edge in tree.edges(id) {
                let path = [&path[..], &[edge.chosen]].concat();
                open.extend(edge.child.map(|child| (child, path.clone())));
                known.push((path, edge.visits, edge.win_rate, edge.proof));
            }
        }
        known
    };
    let before = knowledge(&tree, top);
    let mut kept = tree.nothing_kept();
    tree.mark(top, &mut kept, |_| panic!("nothing is elsewhere"));
    let new = tree.kept(&mut kept);
    let top = top.renumbered(|old| kept.new_id(old)).unwrap();
    assert_eq!(knowledge(&new, top), before);
    assert!(before.len() > 20 && new.node_count() < tree.node_count() && new.bytes() < tree.bytes());
}

#[test]
fn memory_stays_below_the_limit_and_sampling_goes_on() {
    for memory_bytes in [20_000, 200_000] {
        let tree = SharedTree::<u16, NodeId>::new(Rules { memory_bytes, ..RULES });
        let moves: Vec<u16> = (0..121).collect();
        let mut nodes = Vec::new();
        while let Some(id) = tree.add(Player::First, &moves) {
            nodes.push(id);
        }
        assert!(tree.is_full() && nodes.len() > 2 && tree.bytes() <= memory_bytes / 4 * 3);
        for _ in 0..300 {
            for &id in &nodes[nodes.len() / 2..] {
                let step = tree.select(id).step;
                tree.backup(step, Sample::estimated(Points::wins(8)));
                assert!(tree.bytes() <= memory_bytes);
            }
        }
    }
}
