//! What is told of connections, against brute force.

use super::*;
use crate::games::hex::Cell;
use crate::games::hex::brute_force::{BOTH, BruteForce, undecided_boards};

fn with_to_move(position: &Position, player: Player) -> Position {
    let mut position = *position;
    if position.to_move() != player {
        position.pass();
    }
    position
}

#[test]
fn promises_are_kept() {
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
    assert!(open > 100 && threats > 100 && won > 100 && joins > 100, "{open} {threats} {won} {joins}");
}
