//! The state of a game of Hex.

use super::flood::{MAX_SIZE, Rows, left_to_right, top_to_bottom};
use super::{Cell, CellError, HexError, SIZES};
use crate::game::Player;

/// Stones on a board, and who is to move.
///
/// The numbers of stones need not match: passing is allowed in the game so far, and problems begin anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The stones of each player: one word a row, bit c for column c.
    pub(super) stones: [[u16; MAX_SIZE]; 2],
    pub(super) size: u8,
    to_move: Player,
}

impl Position {
    /// The empty board, black to move.
    ///
    /// # Errors
    /// [`HexError::Size`] unless the size is one of [`SIZES`].
    pub fn new(size: usize) -> Result<Self, HexError> {
        if !SIZES.contains(&size) {
            return Err(HexError::Size { size });
        }
        Ok(Self {
            stones: [[0; MAX_SIZE]; 2],
            size: size as u8,
            to_move: Player::First,
        })
    }

    /// The position after a game's moves, black's first, separated by white space. `pass` hands over the turn.
    ///
    /// # Errors
    /// [`HexError`], which names the first move that cannot be played.
    pub fn from_moves(size: usize, moves: &str) -> Result<Self, HexError> {
        let mut position = Self::new(size)?;
        for (text, number) in moves.split_whitespace().zip(1..) {
            if let Some(winner) = position.winner() {
                return Err(HexError::GameOver {
                    number,
                    text: text.into(),
                    winner,
                });
            }
            if text.eq_ignore_ascii_case("pass") {
                position.pass();
                continue;
            }
            let cell = position.read(text, number)?;
            position.place(cell, position.to_move, number)?;
            position.pass();
        }
        Ok(position)
    }

    /// A position given by its stones.
    ///
    /// # Errors
    /// [`HexError::Size`], [`HexError::OffBoard`] or [`HexError::Occupied`]; stones are counted from 1, black's first.
    pub fn from_stones(size: usize, black: &[Cell], white: &[Cell], to_move: Player) -> Result<Self, HexError> {
        let mut position = Self::new(size)?;
        let black = black.iter().map(|&cell| (cell, Player::First));
        let white = white.iter().map(|&cell| (cell, Player::Second));
        for ((cell, player), number) in black.chain(white).zip(1..) {
            position.place(cell, player, number)?;
        }
        position.to_move = to_move;
        Ok(position)
    }

    /// The length of a side of the board.
    #[must_use]
    #[inline]
    pub const fn size(&self) -> usize {
        self.size as usize
    }

    /// Who moves next.
    #[must_use]
    #[inline]
    pub const fn to_move(&self) -> Player {
        self.to_move
    }

    /// Whose stone lies on a cell of the board.
    #[must_use]
    pub fn stone(&self, cell: Cell) -> Option<Player> {
        let has = |player: Player| self.stones[player as usize][cell.row()] >> cell.column() & 1 == 1;
        [Player::First, Player::Second].into_iter().find(|&player| has(player))
    }

    /// Whether the board has this cell.
    #[must_use]
    pub const fn contains(&self, cell: Cell) -> bool {
        cell.column() < self.size() && cell.row() < self.size()
    }

    /// The cells without a stone, row by row.
    pub fn empty_cells(&self) -> impl Iterator<Item = Cell> {
        let position = *self;
        (0..self.size()).flat_map(move |row| {
            let mut empty = position.empty_in(row);
            std::iter::from_fn(move || {
                let column = empty.trailing_zeros() as usize;
                empty &= empty.wrapping_sub(1);
                // No bit left counts as column 16, which no board has.
                Cell::new(column, row)
            })
        })
    }

    /// Puts a stone of the side to move on an empty cell, and hands over the turn.
    ///
    /// Whether the cell is on the board and empty is only checked in debug builds: a search plays millions of moves a
    /// second. [`from_moves`](Self::from_moves) checks what comes from outside.
    #[inline]
    pub fn play(&mut self, cell: Cell) {
        debug_assert!(self.contains(cell) && self.stone(cell).is_none(), "{cell} cannot be played");
        self.stones[self.to_move as usize][cell.row()] |= 1 << cell.column();
        self.pass();
    }

    /// Hands over the turn.
    #[inline]
    pub fn pass(&mut self) {
        self.to_move = self.to_move.opponent();
    }

    /// Who has joined his edges, if anybody has.
    ///
    /// *Cost:* a few nanoseconds while nobody has a stone in every row or column, some tens otherwise.
    #[must_use]
    pub fn winner(&self) -> Option<Player> {
        let size = self.size();
        let [black, white] = &self.stones;
        let in_each_row = black[..size].iter().all(|&row| row != 0);
        if in_each_row && top_to_bottom(&Rows(black.map(|row| [row])), size) == [true] {
            return Some(Player::First);
        }
        let in_each_column = white.iter().fold(0, |columns, row| columns | row) == self.full_row();
        if in_each_column && left_to_right(&Rows(white.map(|row| [row])), size) == [true] {
            return Some(Player::Second);
        }
        None
    }

    /// The empty cells of a row of the board.
    #[inline]
    pub(super) fn empty_in(&self, row: usize) -> u16 {
        self.full_row() & !(self.stones[0][row] | self.stones[1][row])
    }

    fn full_row(&self) -> u16 {
        u16::MAX >> (MAX_SIZE - self.size())
    }

    fn read(&self, text: &str, number: usize) -> Result<Cell, HexError> {
        let off_board = || HexError::OffBoard {
            number,
            text: text.into(),
            size: self.size(),
        };
        match text.parse() {
            Ok(cell) if self.contains(cell) => Ok(cell),
            Ok(_) | Err(CellError::OffBoard) => Err(off_board()),
            Err(CellError::Unreadable) => Err(HexError::Unreadable {
                number,
                text: text.into(),
            }),
        }
    }

    fn place(&mut self, cell: Cell, player: Player, number: usize) -> Result<(), HexError> {
        if !self.contains(cell) {
            return Err(HexError::OffBoard {
                number,
                text: cell.to_string(),
                size: self.size(),
            });
        }
        if self.stone(cell).is_some() {
            return Err(HexError::Occupied { number, cell });
        }
        self.stones[player as usize][cell.row()] |= 1 << cell.column();
        Ok(())
    }
}
