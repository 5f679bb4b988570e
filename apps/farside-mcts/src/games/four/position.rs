//! Positions of four in a row.

use std::fmt;

use farside::Wire;

use super::Column;
use super::board::{Board, Cells};
use crate::game::{Outcome, Player};
use crate::rng::Rng;

/// Discs on a board. Their number determines the player to move.
///
/// As text, `X` is a disc of the first player and `O` one of the second:
///
/// ```
/// use farside_mcts::games::four::FourInARow;
///
/// # fn main() -> Result<(), farside_mcts::games::four::FourError> {
/// let position = FourInARow::new(4, 3)?.after("b b c a b")?;
/// let lines = [". X . .", ". O . .", "O X X .", "a b c d"];
/// assert_eq!(position.to_string().lines().collect::<Vec<_>>(), lines);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct Position {
    board: Board,
    discs: [Cells; 2],
}

impl Position {
    pub(super) const fn empty(board: Board) -> Self {
        Self { board, discs: [0; 2] }
    }

    /// Returns the player to move.
    #[must_use]
    #[inline]
    pub const fn to_move(&self) -> Player {
        if self.discs().count_ones().is_multiple_of(2) { Player::First } else { Player::Second }
    }

    /// Returns the number of discs on the board.
    #[must_use]
    pub const fn disc_count(&self) -> u32 {
        self.discs().count_ones()
    }

    #[inline]
    pub(super) const fn discs(&self) -> Cells {
        self.discs[0] | self.discs[1]
    }

    #[inline]
    pub(super) const fn discs_of(&self, player: Player) -> Cells {
        self.discs[player as usize]
    }

    /// Drops a disc of the player to move into a column that is not full.
    #[inline]
    pub(super) fn drop_disc(&mut self, column: Column) {
        let cell = self.board.drop_in(self.discs(), column);
        debug_assert!(cell != 0, "column {column} is full");
        self.discs[self.to_move() as usize] |= cell;
    }

    /// Returns the outcome of the game, if it is over. Only the player that moved last can have a
    /// line.
    #[inline]
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let last = self.to_move().opponent();
        if self.board.has_line(self.discs_of(last)) {
            Some(Outcome::Won(last))
        } else {
            (self.discs() == self.board.cells()).then_some(Outcome::Drawn)
        }
    }

    /// Plays a random game to its end, with equal probability for all open columns.
    pub(super) fn played_out(&self, rng: &mut Rng) -> Outcome {
        let mut position = *self;
        let mut player = position.to_move();
        loop {
            if let Some(outcome) = position.outcome() {
                return outcome;
            }
            let mut drops = position.board.drops(position.discs());
            for _ in 0..rng.below(drops.count_ones()) {
                drops &= drops - 1;
            }
            position.discs[player as usize] |= drops & drops.wrapping_neg();
            player = player.opponent();
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Board { width, height } = self.board;
        let symbol = |column: u8, row: u8| {
            let cell = 1 << (u32::from(column) * (u32::from(height) + 1) + u32::from(row));
            match self.discs.map(|discs| discs & cell != 0) {
                [true, _] => 'X',
                [_, true] => 'O',
                _ => '.',
            }
        };
        let line = |symbols: Vec<char>| symbols.into_iter().map(String::from).collect::<Vec<_>>().join(" ");
        for row in (0..height).rev() {
            writeln!(f, "{}", line((0..width).map(|column| symbol(column, row)).collect()))?;
        }
        writeln!(f, "{}", line((0..width).map(|column| char::from(b'a' + column)).collect()))
    }
}
