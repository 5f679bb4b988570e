//! Search and study against perfect play.

use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, Game, Outcome, Params, Player, Rng, Search};

use crate::oracle::{Minimax, after, random_stones};

fn eager() -> Params {
    Params { expand_after: 1, ..Params::default() }
}

/// Every position that play from the empty board leads to, the game not over.
fn all_positions(size: usize) -> Vec<Position> {
    let mut positions = vec![Position::new(size).unwrap()];
    let mut known = std::collections::HashSet::new();
    let mut next = 0;
    while next < positions.len() {
        let position = positions[next];
        next += 1;
        for cell in position.empty_cells() {
            let after = after(&position, cell);
            if after.winner().is_none() && known.insert(after) {
                positions.push(after);
            }
        }
    }
    positions
}

#[test]
fn boards_of_two_and_three_are_solved_from_everywhere() {
    let mut minimax = Minimax::default();
    for (size, stride, hex) in
        [(2, 1, Hex::new(2).unwrap()), (3, 13, Hex::new(3).unwrap()), (3, 13, Hex::new(3).unwrap().with_connections())]
    {
        for position in all_positions(size).iter().step_by(stride) {
            let report = Search::new(hex).params(eager()).run(position, Budget::Rollouts(4000)).unwrap();
            let winner = minimax.winner(position);
            assert_eq!(report.solved, Some(Outcome::Won(winner)), "{position:?}");
            if winner == position.to_move() {
                assert!(minimax.winning_moves(position).contains(&report.best.chosen), "{position:?}");
            }
        }
    }
}

#[test]
fn what_connections_tell_is_true() {
    let mut rng = Rng::new(7);
    let mut minimax = Minimax::default();
    for (size, percent_full, most) in [
        (3, 30, 9),
        (4, 45, 11),
        (4, 25, 12),
        (4, 20, 13),
        (4, 10, 14),
        (5, 60, 11),
        (5, 50, 12),
        (5, 50, 13),
        (5, 45, 14),
        (6, 65, 13),
    ] {
        let t = std::time::Instant::now();
        let [mut proofs, mut threats, mut open] = [0, 0, 0];
        for _ in 0..300 {
            let [black, white] = random_stones(size, percent_full, &mut rng);
            let to_move = [Player::First, Player::Second][rng.below(2) as usize];
            let position = Position::from_stones(size, &black, &white, to_move).unwrap();
            if position.winner().is_some() || position.empty_cells().count() > most {
                continue;
            }
            let mut candidates = Vec::new();
            match Hex::new(size).unwrap().with_connections().study(&position, &mut candidates) {
                Some(outcome) => {
                    proofs += 1;
                    assert_eq!(outcome, Outcome::Won(minimax.winner(&position)), "{position:?}");
                }
                None => {
                    if candidates.len() < position.empty_cells().count() {
                        threats += 1
                    } else {
                        open += 1
                    }
                    let winning = minimax.winning_moves(&position);
                    let kept = |cell: &Cell| candidates.contains(cell);
                    assert!(winning.is_empty() || winning.iter().any(kept), "{position:?}");
                }
            }
        }
        println!("{size} {percent_full} {most}: {proofs} {threats} {open} {:.2}", t.elapsed().as_secs_f64());
    }
    panic!();
}

#[test]
fn well_known_connections_are_seen() {
    let study = |size, black: &str, white: &str, to_move| {
        let cells = |names: &str| -> Vec<Cell> { names.split_whitespace().map(|name| name.parse().unwrap()).collect() };
        let position = Position::from_stones(size, &cells(black), &cells(white), to_move).unwrap();
        let mut candidates = Vec::new();
        let outcome = Hex::new(size).unwrap().with_connections().study(&position, &mut candidates);
        (outcome, candidates)
    };
    let black_wins = Some(Outcome::Won(Player::First));
    // Bridges from edge to edge hold although white moves; so do white's when turned over.
    assert_eq!(study(5, "c2 b4", "", Player::Second).0, black_wins);
    assert_eq!(study(5, "", "b3 d2", Player::First).0, Some(Outcome::Won(Player::Second)));
    // The ziggurat: a stone of the third row is joined to the edge.
    assert_eq!(study(5, "c3 b5", "", Player::Second).0, black_wins);
    assert_eq!(study(5, "c3", "", Player::Second).0, black_wins);
    // One stone is missing: black wins if he is to move, and white must stop him on one of few cells.
    assert_eq!(study(7, "e2 d4", "", Player::First).0, black_wins);
    let (outcome, candidates) = study(7, "e2 d4", "", Player::Second);
    let names: Vec<String> = candidates.iter().map(Cell::to_string).collect();
    assert_eq!((outcome, names.join(" ").as_str()), (None, "e1 f1 d3 e3 d5 c7"));
    // Few stones on a large board: nothing is known, and every move is worth searching.
    assert_eq!(study(11, "f6", "e7", Player::First).1.len(), 119);
}
