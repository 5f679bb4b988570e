//! The game on the board, move by move.

use super::framing::quoted;
use crate::game::Player;
use crate::games::hex::error::colour;
use crate::games::hex::{Cell, CellError, HexError, Position};

/// Moves of one game, at most. Only passing can bring it there.
const TURNS_MAX: usize = 1000;

/// What a player can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Stone(Cell),
    Pass,
    Swap(SwapMode),
    /// Resigns, or loses by a rule that has nothing to do with the board.
    GiveUp,
}

/// What becomes of the first stone when it is taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SwapMode {
    /// It is reflected in the long diagonal, and changes its colour.
    #[default]
    Pieces,
    /// It stays, and the players go on with each other's colours.
    Sides,
}

/// A game that can be taken back.
#[derive(Clone, Debug)]
pub(super) struct Table {
    position: Position,
    turns: Vec<Turn>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    player: Player,
    done: Move,
    /// The position before.
    before: Position,
}

impl Move {
    /// Reads a move; `swap` and `swap-pieces` mean what `swap` says.
    pub(super) fn read(text: &str, swap: SwapMode) -> Result<Self, &'static str> {
        match text.to_ascii_lowercase().as_str() {
            "resign" | "forfeit" => Ok(Self::GiveUp),
            "pass" => Ok(Self::Pass),
            "swap-pieces" | "swap" => Ok(Self::Swap(swap)),
            "swap-sides" => Ok(Self::Swap(SwapMode::Sides)),
            cell => match cell.parse() {
                Ok(cell) => Ok(Self::Stone(cell)),
                Err(CellError::OffBoard) => Err(OFF_BOARD),
                Err(CellError::Unreadable) => Err("not a cell such as c4, nor resign, pass or swap-pieces"),
            },
        }
    }
}

const OFF_BOARD: &str = "off the board";

impl Table {
    pub(super) fn new(size: usize) -> Result<Self, HexError> {
        Ok(Self { position: Position::new(size)?, turns: Vec::new() })
    }

    /// A game that begins with stones.
    pub(super) fn set_up(position: Position) -> Self {
        Self { position, turns: Vec::new() }
    }

    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// The position with `player` to move.
    pub(super) fn position_for(&self, player: Player) -> Position {
        let mut position = self.position;
        if position.to_move() != player {
            position.pass();
        }
        position
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The stone that `player` may take over: the only one so far, which the other player has set.
    pub(super) fn to_swap(&self, player: Player) -> Option<Cell> {
        match self.turns[..] {
            [Turn { player: other, done: Move::Stone(cell), before }] if other != player && before.is_empty() => {
                Some(cell)
            }
            _ => None,
        }
    }

    /// Plays a move of either player, whoever's turn it is.
    ///
    /// Stones may be set after the end, too: positions are set up by playing them in any order.
    pub(super) fn play(&mut self, player: Player, text: &str, done: Move) -> Result<(), String> {
        let after = self.after(player, done).map_err(|why| illegal(player, text, why))?;
        if let Some(after) = after {
            self.turns.push(Turn { player, done, before: self.position });
            self.position = after;
        }
        Ok(())
    }

    /// Takes the last move back.
    pub(super) fn undo(&mut self) -> Result<(), String> {
        let turn = self.turns.pop().ok_or("cannot undo: no move was played")?;
        self.position = turn.before;
        Ok(())
    }

    fn after(&self, player: Player, done: Move) -> Result<Option<Position>, &'static str> {
        if self.turns.len() >= TURNS_MAX {
            return Err("too many moves: start a new game");
        }
        let mut position = self.position_for(player);
        match done {
            Move::GiveUp => return Ok(None),
            Move::Pass => position.pass(),
            Move::Stone(cell) if !position.contains(cell) => return Err(OFF_BOARD),
            Move::Stone(cell) if position.stone(cell).is_some() => return Err("occupied"),
            Move::Stone(cell) => position.play(cell),
            Move::Swap(mode) => {
                let stone = self.to_swap(player).ok_or("only the other player's first stone can be swapped")?;
                if mode == SwapMode::Pieces {
                    // The position before that stone was the empty board.
                    position = self.turns[0].before;
                    position.add_stone(stone.reflected(), player);
                    if position.to_move() == player {
                        position.pass();
                    }
                }
            }
        }
        Ok(Some(position))
    }
}

/// Why a move cannot be played.
pub(super) fn illegal(player: Player, text: &str, why: &str) -> String {
    format!("illegal move: {} {} ({why})", colour(player), quoted(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLACK: Player = Player::First;
    const WHITE: Player = Player::Second;

    fn play(table: &mut Table, player: Player, text: &str) -> Result<(), String> {
        let done = Move::read(text, SwapMode::Pieces).map_err(|why| illegal(player, text, why))?;
        table.play(player, text, done)
    }

    fn cell(name: &str) -> Cell {
        name.parse().unwrap()
    }

    #[test]
    fn either_player_may_play_at_any_time_and_take_it_back() {
        let mut table = Table::new(3).unwrap();
        let empty = *table.position();
        for (player, text) in [(WHITE, "a1"), (WHITE, "B2"), (BLACK, "c3"), (BLACK, "pass"), (BLACK, "c1")] {
            assert_eq!(play(&mut table, player, text), Ok(()));
        }
        assert_eq!(table.position().to_move(), WHITE);
        assert_eq!(table.position().stone(cell("b2")), Some(WHITE));
        (0..5).for_each(|_| table.undo().unwrap());
        assert_eq!(*table.position(), empty);
        assert!(table.undo().unwrap_err().contains("no move"));
    }

    #[test]
    fn giving_up_changes_nothing() {
        let mut table = Table::new(3).unwrap();
        play(&mut table, BLACK, "a1").unwrap();
        let before = *table.position();
        assert_eq!(play(&mut table, WHITE, "resign"), Ok(()));
        assert_eq!((*table.position(), table.turns.len()), (before, 1));
    }

    #[test]
    fn illegal_moves_are_named_and_change_nothing() {
        let mut table = Table::new(3).unwrap();
        play(&mut table, BLACK, "a1").unwrap();
        let before = *table.position();
        for (text, why) in [
            ("a1", "illegal move: white a1 (occupied)"),
            ("d1", "illegal move: white d1 (off the board)"),
            ("z99", "illegal move: white z99 (off the board)"),
            ("11", "illegal move: white 11 (not a cell such as c4, nor resign, pass or swap-pieces)"),
        ] {
            assert_eq!(play(&mut table, WHITE, text), Err(why.into()));
            assert_eq!(*table.position(), before);
        }
    }

    #[test]
    fn a_swap_of_pieces_reflects_the_stone() {
        let mut table = Table::new(3).unwrap();
        play(&mut table, BLACK, "c1").unwrap();
        assert_eq!(table.to_swap(WHITE), Some(cell("c1")));
        play(&mut table, WHITE, "swap-pieces").unwrap();
        let position = table.position();
        assert_eq!((position.stone(cell("c1")), position.stone(cell("a3"))), (None, Some(WHITE)));
        assert_eq!((position.to_move(), position.empty_cells().count()), (BLACK, 8));
        assert!(play(&mut table, BLACK, "swap-pieces").is_err());
        table.undo().unwrap();
        assert_eq!(table.position().stone(cell("c1")), Some(BLACK));
    }

    #[test]
    fn a_swap_of_sides_leaves_the_stone() {
        let mut table = Table::new(3).unwrap();
        play(&mut table, BLACK, "c1").unwrap();
        let before = *table.position();
        play(&mut table, WHITE, "swap-sides").unwrap();
        assert_eq!(*table.position(), before);
        assert_eq!(table.to_swap(BLACK), None);
    }

    #[test]
    fn nothing_but_the_first_stone_of_the_other_is_swapped() {
        let mut table = Table::new(3).unwrap();
        assert!(play(&mut table, WHITE, "swap-pieces").unwrap_err().contains("first stone"));
        play(&mut table, BLACK, "c1").unwrap();
        assert!(play(&mut table, BLACK, "swap-pieces").is_err());
        play(&mut table, WHITE, "a1").unwrap();
        assert!(play(&mut table, BLACK, "swap-pieces").is_err());
        assert!(play(&mut table, WHITE, "swap-pieces").is_err());
    }

    #[test]
    fn passing_ends() {
        let mut table = Table::new(2).unwrap();
        for _ in 0..TURNS_MAX {
            play(&mut table, BLACK, "pass").unwrap();
        }
        assert!(play(&mut table, BLACK, "pass").unwrap_err().contains("too many"));
    }
}
