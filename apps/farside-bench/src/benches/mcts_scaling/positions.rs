//! Positions of Hex with all their winning moves.

use farside_mcts::Player;
use farside_mcts::games::hex::{Cell, Hex, Position};
use serde_json::Value;

const POSITIONS: &str = include_str!("../../../../farside-mcts/tests/data/hex-positions.json");

/// A position, and the moves that win.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) game: Hex,
    pub(super) position: Position,
    pub(super) winning: Vec<Cell>,
}

/// The positions of the tests of the search, on boards of 3 to 6 cells a side.
pub(super) fn known() -> Vec<Known> {
    let file: Value = serde_json::from_str(POSITIONS).expect("the file is part of the source");
    let all = file["positions"].as_array().expect("the file lists positions");
    all.iter().map(|entry| read(entry).expect("the tests of the search read every entry")).collect()
}

fn read(entry: &Value) -> Option<Known> {
    let cells = |key: &str| -> Option<Vec<Cell>> {
        entry[key].as_array()?.iter().map(|name| name.as_str()?.parse().ok()).collect()
    };
    let size = entry["n"].as_u64()? as usize;
    let to_move = if entry["to_move"] == "black" { Player::First } else { Player::Second };
    let position = Position::from_stones(size, &cells("black")?, &cells("white")?, to_move).ok()?;
    Some(Known { game: Hex::new(size).ok()?, position, winning: cells("winning_moves")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_read() {
        let known = known();
        assert!(known.len() >= 40);
        for Known { position, winning, .. } in known {
            assert!(position.winner().is_none());
            assert!(!winning.is_empty() && winning.iter().all(|cell| position.stone(*cell).is_none()));
        }
    }
}
