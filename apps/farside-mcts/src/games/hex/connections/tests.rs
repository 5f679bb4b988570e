//! Tests of connections against brute force.

use super::*;
use crate::games::hex::Cell;
use crate::games::hex::brute_force::{BOTH, BruteForce, boards_of_a_kind, random_board, undecided_boards};
use crate::rng::Rng;

fn with_to_move(position: &Position, player: Player) -> Position {
    let mut position = *position;
    if position.to_move() != player {
        position.pass();
    }
    position
}

#[test]
fn connections_hold() {
    let [mut open, mut threats, mut won, mut joins] = [0; 4];
    for position in undecided_boards(1) {
        let mut brute_force = BruteForce::default();
        for player in BOTH {
            let attacked = with_to_move(&position, player.opponent());
            let stops: Vec<Cell> =
                attacked.empty_cells().filter(|&cell| brute_force.wins_by(&attacked, cell)).collect();
            match prospect(&position, player) {
                Prospect::Open => open += 1,
                Prospect::Threat(cells) => {
                    threats += 1;
                    assert!(
                        stops.iter().all(|&cell| cells.contains(cell)),
                        "{stops:?} stop {player:?} in {attacked:?}"
                    );
                }
                Prospect::Won => {
                    won += 1;
                    assert!(stops.is_empty(), "{stops:?} stop {player:?} in {attacked:?}");
                }
            }
            if can_join(&position, player) {
                joins += 1;
                let attacking = with_to_move(&position, player);
                assert_eq!(brute_force.winner(&attacking), player, "{attacking:?}");
            }
        }
    }
    let least = boards_of_a_kind();
    assert!([open, threats, won, joins].iter().all(|found| *found > least), "{open} {threats} {won} {joins}");
}

#[test]
fn the_width_of_carriers_does_not_matter() {
    let mut rng = Rng::new(3);
    let mut told = 0;
    // Around 64 empty cells, the capacity of the narrowest carriers.
    for round in 0..60 {
        let empty = 63 + round % 3;
        let board = loop {
            let position = random_board(11, empty, &mut rng);
            if position.winner().is_none() {
                break Board::new(11, position.stones_of(Player::First), position.empty_set());
            }
        };
        let prospect = Search::<2>::new(&board).run(Until::Full);
        told += usize::from(prospect != Prospect::Open);
        assert_eq!(prospect, Search::<4>::new(&board).run(Until::Full));
        if board.cells.len() <= 64 {
            assert_eq!(prospect, Search::<1>::new(&board).run(Until::Full));
        }
    }
    assert!(told > 10, "{told}");
}
