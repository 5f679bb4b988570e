//! The game in progress: the position and the moves that led to it.

use super::framing::quoted;
use crate::game::Player;
use crate::games::hex::error::colour;
use crate::games::hex::{Cell, CellError, HexError, Position};

/// Maximum number of moves of a game. Only passes can make a game this long.
const TURNS_MAX: usize = 1000;

/// A move in the protocol's sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Stone(Cell),
    Pass,
    Swap(SwapMode),
    /// The player resigns, or forfeits by a rule of the match.
    GiveUp,
}

/// Effect of a swap on the first stone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SwapMode {
    /// The stone is reflected in the long diagonal and changes its colour.
    #[default]
    Pieces,
    /// The stone stays, and the players exchange colours.
    Sides,
    /// As [`Sides`](Self::Sides), but named `swap-pieces`, as `twogtp` does.
    Twogtp,
}

/// A game whose moves can be undone.
#[derive(Clone, Debug)]
pub(super) struct Table {
    position: Position,
    turns: Vec<Turn>,
    /// The player that resigned in this position.
    resigned: Option<Player>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The player that moved. A swap of sides gives the first turn to the other player.
    player: Player,
    done: Move,
    /// Position before the move.
    before: Position,
}

impl Move {
    /// Reads a move. `swap` is a swap in the mode of the game; the other names say which they mean,
    /// except to `twogtp`.
    pub(super) fn read(text: &str, swap: SwapMode) -> Result<Self, &'static str> {
        match text.to_ascii_lowercase().as_str() {
            "resign" | "forfeit" => Ok(Self::GiveUp),
            "pass" => Ok(Self::Pass),
            "swap-pieces" if swap != SwapMode::Twogtp => Ok(Self::Swap(SwapMode::Pieces)),
            "swap" | "swap-pieces" => Ok(Self::Swap(swap)),
            "swap-sides" => Ok(Self::Swap(SwapMode::Sides)),
            cell => match cell.parse() {
                Ok(cell) => Ok(Self::Stone(cell)),
                Err(CellError::OffBoard) => Err(OFF_BOARD),
                Err(CellError::Unreadable) => {
                    Err("not a move; write a cell such as c4, or resign, pass or swap-pieces")
                }
            },
        }
    }
}

const OFF_BOARD: &str = "off the board";

impl Table {
    pub(super) fn new(size: usize) -> Result<Self, HexError> {
        Ok(Self { position: Position::new(size)?, turns: Vec::new(), resigned: None })
    }

    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Returns the player that has won, by a chain or because the opponent resigned.
    pub(super) fn winner(&self) -> Option<Player> {
        self.position.winner().or(self.resigned.map(Player::opponent))
    }

    /// Returns the position with `player` to move.
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

    /// Returns the stone that `player` may swap: black's opening, if `player` is white.
    ///
    /// A white stone alone is no opening. It is what HexGui sets up after a swap of pieces.
    pub(super) fn to_swap(&self, player: Player) -> Option<Cell> {
        match self.turns[..] {
            [Turn { player: Player::First, done: Move::Stone(cell), .. }] if player == Player::Second => Some(cell),
            _ => None,
        }
    }

    /// Plays a move of either player, in or out of turn.
    ///
    /// Stones may be added after the end of the game too: front ends set up positions by playing
    /// their stones in any order. Resigning and a swap of sides change no stone, and HexGui sends
    /// no `undo` for them, so [`undo`](Self::undo) does not count them.
    pub(super) fn play(&mut self, player: Player, text: &str, done: Move) -> Result<(), String> {
        let after = self.after(player, done).map_err(|why| illegal(player, text, why))?;
        match done {
            Move::GiveUp => self.resigned = self.resigned.or(Some(player)),
            Move::Swap(SwapMode::Sides | SwapMode::Twogtp) => self.turns[0].player = player,
            Move::Stone(_) | Move::Pass | Move::Swap(SwapMode::Pieces) => {
                self.turns.push(Turn { player, done, before: self.position });
                (self.position, self.resigned) = (after, None);
            }
        }
        Ok(())
    }

    /// Undoes the last move.
    pub(super) fn undo(&mut self) -> Result<(), String> {
        let turn = self.turns.pop().ok_or("cannot undo: no move was played")?;
        (self.position, self.resigned) = (turn.before, None);
        Ok(())
    }

    fn after(&self, player: Player, done: Move) -> Result<Position, &'static str> {
        if self.turns.len() >= TURNS_MAX {
            return Err("too many moves; start a new game");
        }
        let mut position = self.position_for(player);
        match done {
            Move::GiveUp => {}
            Move::Pass => position.pass(),
            Move::Stone(cell) if !position.contains(cell) => return Err(OFF_BOARD),
            Move::Stone(cell) if position.stone(cell).is_some() => return Err("occupied"),
            Move::Stone(cell) => position.play(cell),
            Move::Swap(mode) => {
                let stone = self.to_swap(player).ok_or("white can swap black's first stone, and nothing else")?;
                if mode == SwapMode::Pieces {
                    // The board was empty before the stone that is swapped.
                    position = self.turns[0].before;
                    position.add_stone(stone.reflected(), player);
                    if position.to_move() == player {
                        position.pass();
                    }
                }
            }
        }
        Ok(position)
    }
}

/// Returns the error message for a move that cannot be played.
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
    fn either_player_may_play_out_of_turn_and_undo_it() {
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
    fn resigning_changes_the_winner_and_nothing_else() {
        let mut table = Table::new(3).unwrap();
        play(&mut table, BLACK, "a1").unwrap();
        let before = *table.position();
        for player in [WHITE, BLACK] {
            assert_eq!(play(&mut table, player, "resign"), Ok(()));
            assert_eq!((*table.position(), table.turns.len(), table.winner()), (before, 1, Some(BLACK)));
        }
        play(&mut table, WHITE, "b2").unwrap();
        assert_eq!(table.winner(), None);
        play(&mut table, BLACK, "resign").unwrap();
        table.undo().unwrap();
        assert_eq!(table.winner(), None);
        // A chain wins, although its owner resigns.
        play(&mut table, BLACK, "a2").unwrap();
        play(&mut table, BLACK, "a3").unwrap();
        play(&mut table, BLACK, "resign").unwrap();
        assert_eq!(table.winner(), Some(BLACK));
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
            ("11", "illegal move: white 11 (not a move; write a cell such as c4, or resign, pass or swap-pieces)"),
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
        assert_eq!([BLACK, WHITE].map(|player| table.to_swap(player)), [None; 2]);
        table.undo().unwrap();
        assert!(table.position().is_empty());
        play(&mut table, BLACK, "c1").unwrap();
        assert_eq!(table.to_swap(WHITE), Some(cell("c1")));
    }

    #[test]
    fn names_of_swaps_say_which_they_mean() {
        use SwapMode::{Pieces, Sides, Twogtp};
        for (mode, expected) in
            [(Pieces, [Pieces, Pieces, Sides]), (Sides, [Sides, Pieces, Sides]), (Twogtp, [Twogtp, Twogtp, Sides])]
        {
            let read = ["swap", "Swap-Pieces", "swap-sides"].map(|name| Move::read(name, mode).unwrap());
            assert_eq!(read, expected.map(Move::Swap));
        }
    }

    #[test]
    fn only_an_opening_of_black_is_swapped() {
        let mut table = Table::new(3).unwrap();
        play(&mut table, WHITE, "b2").unwrap();
        assert!(play(&mut table, BLACK, "swap-pieces").is_err());
        table.undo().unwrap();
        assert!(play(&mut table, WHITE, "swap-pieces").unwrap_err().contains("first stone"));
        play(&mut table, BLACK, "c1").unwrap();
        assert!(play(&mut table, BLACK, "swap-pieces").is_err());
        play(&mut table, WHITE, "a1").unwrap();
        assert!(play(&mut table, BLACK, "swap-pieces").is_err());
        assert!(play(&mut table, WHITE, "swap-pieces").is_err());
    }

    #[test]
    fn the_number_of_passes_is_limited() {
        let mut table = Table::new(2).unwrap();
        for _ in 0..TURNS_MAX {
            play(&mut table, BLACK, "pass").unwrap();
        }
        assert!(play(&mut table, BLACK, "pass").unwrap_err().contains("too many"));
    }
}
