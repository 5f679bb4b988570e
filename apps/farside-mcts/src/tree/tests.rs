//! Tests of each operation against the rules.

use super::*;

const SIMULATIONS: u32 = 16;
const ROOMY: usize = 1 << 24;

fn tree(memory_bytes: usize) -> Tree<u16> {
    Tree::new(Rules { exploration: 0.5, simulations: SIMULATIONS, memory_bytes })
}

/// A tree of one node.
fn node(to_move: Player, move_count: u16) -> (Tree<u16>, NodeId) {
    let mut tree = tree(ROOMY);
    let moves: Vec<u16> = (0..move_count).collect();
    let root = tree.add(to_move, &moves).unwrap();
    (tree, root)
}

fn estimate(wins: u32) -> Sample {
    Sample::estimated(Points::wins(wins))
}

fn check_visits(tree: &Tree<u16>, id: NodeId) {
    let node = &tree.nodes[id.index()];
    let edges = &tree.slots.edges[node.block.first()..][..node.tried as usize];
    assert_eq!(node.visits, edges.iter().map(|edge| edge.visits + edge.in_flight).sum::<u32>());
}

#[test]
fn every_move_is_tried_once_before_any_is_tried_again() {
    for move_count in [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 121, 256] {
        let (mut tree, root) = node(Player::First, move_count);
        let mut rng = Rng::new(u64::from(move_count));
        let mut tried: Vec<u16> = (0..move_count)
            .map(|_| {
                let selected = tree.select(root, &mut rng);
                tree.backup(selected.step, estimate(8));
                assert_eq!(selected.visit, 1);
                selected.chosen
            })
            .collect();
        let in_order = tried.is_sorted();
        tried.sort_unstable();
        assert_eq!(tried, (0..move_count).collect::<Vec<_>>());
        assert!(move_count < 7 || !in_order, "untried moves come at random");
        assert_eq!(tree.select(root, &mut rng).visit, 2);
        check_visits(&tree, root);
    }
}

#[test]
fn selection_follows_the_rule_while_the_node_widens() {
    for move_count in [1, 7, 8, 9, 16, 17, 121] {
        let (mut tree, root) = node(Player::First, move_count);
        let mut rng = Rng::new(5);
        // The oracle counts by itself, in double precision.
        let mut wins = vec![0.0; move_count.into()];
        let mut visits = vec![0.0; move_count.into()];
        for round in 0..2000_u32 {
            let selected = tree.select(root, &mut rng);
            let chosen = usize::from(selected.chosen);
            if round >= u32::from(move_count) {
                let bound =
                    |index: usize| wins[index] / visits[index] + 0.5 * (f64::from(round).ln() / visits[index]).sqrt();
                let best = (0..move_count.into()).map(bound).fold(0.0, f64::max);
                assert!(bound(chosen) > best - 1e-5, "{} is not the best bound, {best}", bound(chosen));
            }
            let won = rng.below(SIMULATIONS + 1);
            tree.backup(selected.step, estimate(won));
            wins[chosen] += f64::from(won) / f64::from(SIMULATIONS);
            visits[chosen] += 1.0;
        }
        check_visits(&tree, root);
        for edge in tree.edges(root) {
            let chosen = usize::from(edge.chosen);
            assert_eq!(f64::from(edge.visits), visits[chosen]);
            assert!((edge.win_rate - wins[chosen] / visits[chosen]).abs() < 1e-9);
        }
        assert_eq!(tree.best(root).map(|edge| f64::from(edge.visits)), visits.iter().copied().reduce(f64::max));
    }
}

#[test]
fn points_count_for_the_side_that_moves() {
    for (to_move, rate) in [(Player::First, 0.25), (Player::Second, 0.75)] {
        let (mut tree, root) = node(to_move, 1);
        let step = tree.select(root, &mut Rng::new(1)).step;
        tree.backup(step, estimate(4));
        assert_eq!(tree.best(root).unwrap().win_rate, rate);
    }
}

#[test]
fn visits_in_flight_spread_out_and_leave_values_alone() {
    let (mut tree, root) = node(Player::First, 3);
    let mut rng = Rng::new(1);
    for _ in 0..3 {
        let step = tree.select(root, &mut rng).step;
        tree.backup(step, estimate(8));
    }
    let flights: Vec<_> = (0..3).map(|_| tree.select(root, &mut rng).step).collect();
    assert!(flights[0] != flights[1] && flights[1] != flights[2] && flights[0] != flights[2]);
    check_visits(&tree, root);
    assert!(tree.edges(root).all(|edge| edge.win_rate == 0.5 && edge.visits == 1));
    for step in flights {
        tree.backup(step, estimate(8));
    }
    assert!(tree.edges(root).all(|edge| edge.win_rate == 0.5 && edge.visits == 2));
    check_visits(&tree, root);
}

#[test]
fn a_first_visit_in_flight_is_not_repeated() {
    let (mut tree, root) = node(Player::First, 2);
    let mut rng = Rng::new(1);
    let known = tree.select(root, &mut rng);
    tree.backup(known.step, estimate(8));
    let flying = tree.select(root, &mut rng);
    assert_ne!(known.step, flying.step);
    assert_eq!(tree.select(root, &mut rng).step, known.step);
}

#[test]
fn one_winning_move_proves_a_node() {
    let (mut tree, root) = node(Player::Second, 5);
    let mut rng = Rng::new(1);
    let step = tree.select(root, &mut rng).step;
    assert_eq!(tree.backup(step, estimate(16)).proof, None);
    let winning = tree.select(root, &mut rng);
    let won = Outcome::Won(Player::Second);
    assert_eq!(tree.backup(winning.step, Sample::proven(won, SIMULATIONS)), Sample::proven(won, SIMULATIONS));
    assert_eq!(tree.proof(root), Some(won));
    // Further visits, should there be any, go to the winning move, and say so.
    let again = tree.select(root, &mut rng);
    assert_eq!((again.chosen, again.proof), (winning.chosen, Some(won)));
    assert_eq!(tree.best(root).map(|edge| (edge.chosen, edge.win_rate)), Some((winning.chosen, 1.0)));
}

#[test]
fn a_node_is_lost_when_all_moves_are() {
    for move_count in [1, 8, 9, 17] {
        let (mut tree, root) = node(Player::First, move_count);
        let mut rng = Rng::new(1);
        let lost = Outcome::Won(Player::Second);
        for left in (0..move_count).rev() {
            let selected = tree.select(root, &mut rng);
            assert_eq!(selected.proof, None, "a lost move is not chosen while there are others");
            let up = tree.backup(selected.step, Sample::proven(lost, SIMULATIONS));
            assert_eq!(up.proof, (left == 0).then_some(lost));
        }
        assert_eq!(tree.proof(root), Some(lost));
        assert_eq!(tree.best(root).unwrap().win_rate, 0.0);
    }
}

#[test]
fn lost_moves_are_never_chosen_again() {
    let (mut tree, root) = node(Player::First, 9);
    let mut rng = Rng::new(1);
    for _ in 0..500 {
        let selected = tree.select(root, &mut rng);
        assert_eq!(selected.proof, None);
        let sample = match selected.chosen {
            4 => estimate(1),
            _ => Sample::proven(Outcome::Won(Player::Second), SIMULATIONS),
        };
        tree.backup(selected.step, sample);
    }
    assert_eq!(tree.proof(root), None);
    assert_eq!(tree.best(root).map(|edge| (edge.chosen, edge.visits)), Some((4, 492)));
}

#[test]
fn a_draw_in_hand_is_better_than_a_loss() {
    let (mut tree, root) = node(Player::First, 3);
    let mut rng = Rng::new(2);
    let mut drawn = None;
    for round in 0..3 {
        let selected = tree.select(root, &mut rng);
        let outcome = if round == 1 { Outcome::Drawn } else { Outcome::Won(Player::Second) };
        if round == 1 {
            drawn = Some(selected.chosen);
        }
        tree.backup(selected.step, Sample::proven(outcome, SIMULATIONS));
    }
    assert_eq!(tree.proof(root), Some(Outcome::Drawn));
    assert_eq!(tree.best(root).map(|edge| edge.chosen), drawn);
    assert_eq!(tree.best(root).unwrap().win_rate, 0.5);
}

#[test]
fn proven_moves_are_not_chosen_again() {
    for (to_move, other) in [(Player::First, 4), (Player::Second, 28)] {
        let (mut tree, root) = node(to_move, 9);
        let mut rng = Rng::new(3);
        for round in 0..300 {
            let selected = tree.select(root, &mut rng);
            assert_eq!(selected.proof, None);
            let up = match selected.chosen {
                7 => tree.backup(selected.step, Sample::proven(Outcome::Drawn, SIMULATIONS)),
                3 => tree.backup(selected.step, Sample::proven(Outcome::Won(to_move.opponent()), SIMULATIONS)),
                _ => tree.backup(selected.step, Sample::estimated(Points::draws(other))),
            };
            // The draw is in hand now: the nodes above receive no less.
            assert!(round < 9 || up == Sample::estimated(Points::draws(SIMULATIONS)), "{up:?}");
        }
        assert!(tree.edges(root).filter(|edge| edge.proof.is_some()).all(|edge| edge.visits == 1));
        assert_eq!(tree.proof(root), None);
        assert_eq!(tree.best(root).map(|edge| edge.chosen), Some(7), "what is open promises less");
        let (edge, _) =
            tree.edges(root).zip(0..).map(|(edge, index)| (index, edge)).find(|(_, edge)| edge.chosen == 5).unwrap();
        let good = if to_move == Player::First { Points::wins(SIMULATIONS) } else { Points::wins(0) };
        for _ in 0..2000 {
            tree.depart(Step { node: root, edge });
            tree.backup(Step { node: root, edge }, Sample::estimated(good));
        }
        assert_eq!(tree.best(root).map(|edge| edge.chosen), Some(5), "what is open promises more");
    }
}

#[test]
fn links_lead_to_children() {
    let (mut tree, root) = node(Player::First, 2);
    let mut rng = Rng::new(1);
    let step = tree.select(root, &mut rng).step;
    let child = tree.add(Player::Second, &[7]).unwrap();
    tree.link(step, child);
    tree.backup(step, estimate(16));
    let other = tree.select(root, &mut rng);
    assert_eq!(other.child, None);
    tree.backup(other.step, estimate(0));
    assert_eq!(tree.select(root, &mut rng).child, Some(child));
    assert_eq!(tree.node_count(), 2);
}

#[test]
fn memory_stays_below_the_limit_and_sampling_goes_on() {
    for limit in [10_000, 100_000] {
        let mut tree = tree(limit);
        let mut rng = Rng::new(9);
        let moves: Vec<u16> = (0..121).collect();
        let mut nodes = Vec::new();
        while let Some(id) = tree.add(Player::First, &moves) {
            nodes.push(id);
        }
        assert!(tree.is_full() && nodes.len() > 2);
        assert!(tree.bytes() <= limit / 4 * 3);
        let mut widest = 0;
        for _ in 0..500 {
            for &id in &nodes {
                let step = tree.select(id, &mut rng).step;
                tree.backup(step, estimate(8));
                widest = widest.max(step.edge);
                assert!(tree.bytes() <= limit);
            }
        }
        assert!(widest >= 16, "the reserve lets some nodes widen");
        assert!(nodes.iter().any(|&id| tree.nodes[id.index()].tried == 16), "and then it is used up");
        nodes.iter().for_each(|&id| check_visits(&tree, id));
    }
}
