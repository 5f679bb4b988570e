//! The state of a game of Hex.

use farside::Wire;

use super::cell_set::CellSet;
use super::flood::{MAX_SIZE, Rows, top_to_bottom, transposed};
use super::{Cell, CellError, HexError, SIZES};
use crate::game::Player;

/// Stones on a board, and the player to move.
///
/// Any numbers of stones are allowed, since players may pass and positions may be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct Position {
    /// Stones of each player: one word for each row, bit c for column c.
    stones: [[u16; MAX_SIZE]; 2],
    stone_count: u16,
    size: u8,
    to_move: Player,
}

impl Position {
    /// Returns the empty board, with black to move.
    ///
    /// # Errors
    /// [`HexError::Size`] unless the size is one of [`SIZES`].
    pub fn new(size: usize) -> Result<Self, HexError> {
        if !SIZES.contains(&size) {
            return Err(HexError::Size { size });
        }
        Ok(Self { stones: [[0; MAX_SIZE]; 2], stone_count: 0, size: size as u8, to_move: Player::First })
    }

    /// Returns the position after moves separated by white space, black's first. `pass` passes.
    ///
    /// # Errors
    /// [`HexError`], which names the first illegal move.
    pub fn from_moves(size: usize, moves: &str) -> Result<Self, HexError> {
        let mut position = Self::new(size)?;
        for (text, number) in moves.split_whitespace().zip(1..) {
            if let Some(winner) = position.winner() {
                return Err(HexError::GameOver { number, text: text.into(), winner });
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

    /// Returns the position with these stones.
    ///
    /// # Errors
    /// [`HexError::Size`], [`HexError::OffBoard`] or [`HexError::Occupied`]. The number of a stone
    /// counts from 1, black's first.
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

    /// Returns the number of cells of a side.
    #[must_use]
    #[inline]
    pub const fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns the player to move.
    #[must_use]
    #[inline]
    pub const fn to_move(&self) -> Player {
        self.to_move
    }

    /// Returns the owner of the stone on a cell, if there is one.
    #[must_use]
    pub fn stone(&self, cell: Cell) -> Option<Player> {
        let has = |player: Player| self.stones[player as usize][cell.row()] >> cell.column() & 1 == 1;
        [Player::First, Player::Second].into_iter().find(|&player| has(player))
    }

    /// Returns whether the board has this cell.
    #[must_use]
    pub const fn contains(&self, cell: Cell) -> bool {
        cell.column() < self.size() && cell.row() < self.size()
    }

    /// Returns the cells without a stone, row by row.
    pub fn empty_cells(&self) -> impl Iterator<Item = Cell> + use<> {
        self.empty_set().iter()
    }

    /// Adds a stone of the player to move on an empty cell; then the opponent is to move.
    ///
    /// Only builds with debug assertions check that the cell is on the board and empty, as a search
    /// plays millions of moves a second. [`from_moves`](Self::from_moves) checks its input.
    #[inline]
    pub fn play(&mut self, cell: Cell) {
        debug_assert!(self.contains(cell) && self.stone(cell).is_none(), "{cell} cannot be played");
        self.add_stone(cell, self.to_move);
        self.pass();
    }

    /// Passes: the opponent is to move.
    #[inline]
    pub fn pass(&mut self) {
        self.to_move = self.to_move.opponent();
    }

    /// Returns the player that has joined its edges, if there is one.
    ///
    /// *Cost:* none with too few stones for a chain. A few nanoseconds if no player has a stone in
    /// every row or column. Otherwise some tens of nanoseconds.
    #[must_use]
    #[inline]
    pub fn winner(&self) -> Option<Player> {
        if usize::from(self.stone_count) < self.size() { None } else { self.joined_ranks() }
    }

    /// Returns moves that lead to a later position, if alternating moves can lead there. The order
    /// of the stones of a colour is unknown, so they come row by row.
    #[must_use]
    pub fn moves_to(&self, later: &Self) -> Option<Vec<Cell>> {
        let [new, next] = [self.to_move, self.to_move.opponent()].map(|player| {
            let (before, after) = (self.stones_of(player), later.stones_of(player));
            (before.and(after) == before).then(|| before.xor(after))
        });
        let (new, next) = (new?, next?);
        let moves = new.len() + next.len();
        let is_in_turn = self.size == later.size
            && new.len() == moves.div_ceil(2)
            && (later.to_move == self.to_move) == moves.is_multiple_of(2);
        let mut stones = [new.iter(), next.iter()];
        is_in_turn.then(|| (0..moves as usize).filter_map(|number| stones[number % 2].next()).collect())
    }

    fn joined_ranks(&self) -> Option<Player> {
        let [black, white] = self.stones;
        let in_each_row = black[..self.size()].iter().all(|&row| row != 0);
        if in_each_row && self.joins_top_to_bottom(black) {
            return Some(Player::First);
        }
        let in_each_column = white.iter().fold(0, |columns, row| columns | row) == self.full_row();
        if in_each_column && self.joins_top_to_bottom(transposed(white)) {
            return Some(Player::Second);
        }
        None
    }

    #[inline]
    pub(super) fn stones_of(&self, player: Player) -> CellSet {
        CellSet::from_rows(|row| self.stones[player as usize][row])
    }

    #[inline]
    pub(super) fn empty_set(&self) -> CellSet {
        let [black, white] = &self.stones;
        let on_board = |row| if row < self.size() { self.full_row() } else { 0 };
        CellSet::from_rows(|row| on_board(row) & !(black[row] | white[row]))
    }

    /// Adds a stone of either player on an empty cell.
    #[inline]
    pub(super) fn add_stone(&mut self, cell: Cell, player: Player) {
        self.stones[player as usize][cell.row()] |= 1 << cell.column();
        self.stone_count += 1;
    }

    /// Returns whether there is no stone.
    pub(super) const fn is_empty(&self) -> bool {
        self.stone_count == 0
    }

    fn joins_top_to_bottom(&self, rows: [u16; MAX_SIZE]) -> bool {
        top_to_bottom(&Rows(rows.map(|row| [row])), self.size()) == [true]
    }

    fn full_row(&self) -> u16 {
        u16::MAX >> (MAX_SIZE - self.size())
    }

    fn read(&self, text: &str, number: usize) -> Result<Cell, HexError> {
        let off_board = || HexError::OffBoard { number, text: text.into(), size: self.size() };
        match text.parse() {
            Ok(cell) if self.contains(cell) => Ok(cell),
            Ok(_) | Err(CellError::OffBoard) => Err(off_board()),
            Err(CellError::Unreadable) => Err(HexError::Unreadable { number, text: text.into() }),
        }
    }

    fn place(&mut self, cell: Cell, player: Player, number: usize) -> Result<(), HexError> {
        if !self.contains(cell) {
            return Err(HexError::OffBoard { number, text: cell.to_string(), size: self.size() });
        }
        if self.stone(cell).is_some() {
            return Err(HexError::Occupied { number, cell });
        }
        self.add_stone(cell, player);
        Ok(())
    }
}
