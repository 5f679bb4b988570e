//! Tests of searches and of `study` against perfect play.

use farside_mcts::games::hex::{Cell, Hex, Position};
use farside_mcts::{Budget, Game, Outcome, Params, Player, Rng, Search};
use farside_testbed::scaled;

use crate::hex::oracle::{Minimax, after, random_stones};

fn eager() -> Params {
    Params { expand_after: 1, ..Params::default() }
}

/// Returns every position that moves from the empty board reach, unless the game is over.
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
fn connections_are_sound() {
    // Random boards that need not come from a game, with few enough empty cells to search them all.
    let kinds = [(3, 30, 9), (4, 45, 11), (5, 60, 11), (4, 25, 12), (6, 70, 12), (4, 12, 14)];
    let mut rng = Rng::new(7);
    let [mut proofs, mut undecided] = [0, 0];
    let rounds = scaled(240) as usize;
    for round in 0..rounds {
        // The last kind takes longest, and is the only one with many open positions.
        let (size, percent_full, empty_max) = kinds[if round < rounds / 24 * 23 { round % 5 } else { 5 }];
        let [black, white] = random_stones(size, percent_full, &mut rng);
        let to_move = [Player::First, Player::Second][rng.below(2) as usize];
        let position = Position::from_stones(size, &black, &white, to_move).unwrap();
        if position.winner().is_some() || position.empty_cells().count() > empty_max {
            continue;
        }
        let mut minimax = Minimax::default();
        let mut candidates = Vec::new();
        match Hex::new(size).unwrap().with_connections().study(&position, &mut candidates) {
            Some(outcome) => {
                proofs += 1;
                assert_eq!(outcome, Outcome::Won(minimax.winner(&position)), "{position:?}");
            }
            None => {
                undecided += 1;
                assert!(!candidates.is_empty());
                let winning = minimax.winning_moves(&position);
                assert!(winning.is_empty() || winning.iter().any(|cell| candidates.contains(cell)), "{position:?}");
            }
        }
    }
    assert!(
        proofs > rounds / 3 && undecided > rounds / 480,
        "{proofs} proofs and {undecided} selections were put to the test"
    );
}

#[test]
fn well_known_connections_are_seen() {
    let cells = |names: &str| -> Vec<Cell> { names.split_whitespace().map(|name| name.parse().unwrap()).collect() };
    let study = |size, black: &str, white: &str, to_move| {
        let position = Position::from_stones(size, &cells(black), &cells(white), to_move).unwrap();
        let mut candidates = Vec::new();
        let outcome = Hex::new(size).unwrap().with_connections().study(&position, &mut candidates);
        (outcome, candidates)
    };
    let black_wins = Some(Outcome::Won(Player::First));
    // Black's bridges from edge to edge hold although white moves, and so do white's on the
    // transposed board.
    assert_eq!(study(5, "c2 b4", "", Player::Second).0, black_wins);
    assert_eq!(study(5, "", "b3 d2", Player::First).0, Some(Outcome::Won(Player::Second)));
    // The ziggurat joins a stone in the third row to the edge.
    assert_eq!(study(5, "c3 b5", "", Player::Second).0, black_wins);
    assert_eq!(study(5, "c3", "", Player::Second).0, black_wins);
    // One stone is missing: black wins if it is to move. White can break a bridge or a link to an
    // edge. But black has enough answers that only one cell is worth a try.
    assert_eq!(study(7, "e2 d4", "", Player::First).0, black_wins);
    assert_eq!(study(7, "e2 d4", "", Player::Second), (None, cells("d5")));
    // A stone in the middle decides both boards.
    assert_eq!(study(7, "d4", "", Player::First).0, black_wins);
    assert_eq!(study(6, "c4", "", Player::Second), (None, cells("c3 b5")));
    // With few stones on a large board, `study` only skips most moves near the edges.
    assert_eq!(study(11, "f6", "e7", Player::First).1.len(), 93);
}
