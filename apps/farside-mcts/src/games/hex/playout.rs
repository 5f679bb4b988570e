//! Random games of Hex, many at a time.
//!
//! The result of a random game depends only on the owners of the cells, not on the order of the
//! moves. So a playout is a random subset of the empty cells, with as many cells as black still
//! gets, and a flood. Random bits for all cells at once give a subset of nearly this size. Cells
//! drawn one by one correct the rest (about four on 11 × 11). All subsets of the right size are
//! equally likely, since both steps treat all cells alike.

use super::cell_set::CellSet;
use super::flood::{MAX_SIZE, Rows, top_to_bottom};
use super::{Cell, Position};
use crate::game::Player;
use crate::rng::Rng;

/// Number of boards that are flooded at once.
const LANES: usize = 16;

/// Plays random games, and returns the number of black's wins.
///
/// The players alternate from the player to move, and choose each empty cell with equal
/// probability. If the game is over, its winner wins all games.
///
/// *Cost:* about 60 ns for each game on 11 × 11, and 100 ns for each call.
#[must_use]
pub fn black_wins(position: &Position, playouts: u32, rng: &mut Rng) -> u32 {
    let fill = Fill::new(position);
    let mut wins = 0;
    let mut left = playouts as usize;
    while left > 0 {
        let count = left.min(LANES);
        let mut stones = Rows([[0; LANES]; MAX_SIZE]);
        for lane in 0..count {
            for (stones, row) in stones.0.iter_mut().zip(fill.draw(rng).rows()) {
                stones[lane] = row;
            }
        }
        // Unused lanes have no stones, so black does not win there.
        wins += top_to_bottom(&stones, position.size()).map(u32::from).iter().sum::<u32>();
        left -= count;
    }
    wins
}

/// The data common to all random completions of a position.
struct Fill {
    black: CellSet,
    empty: CellSet,
    /// Number of empty cells that black gets.
    share: u32,
    /// The empty cells, then copies of a cell that is not empty.
    cells: [Cell; 256],
    /// Number of bits of an index into the empty cells.
    index_bits: u32,
}

impl Fill {
    fn new(position: &Position) -> Self {
        let empty = position.empty_set();
        let mut cells = [Cell::from_index(0); 256];
        let mut count = 0;
        for cell in empty.iter() {
            cells[count] = cell;
            count += 1;
        }
        if let Some(taken) = (0..=u8::MAX).map(Cell::from_index).find(|&cell| !empty.contains(cell)) {
            cells[count..].fill(taken);
        }
        let count = count as u32;
        Self {
            black: position.stones_of(Player::First),
            empty,
            share: match position.to_move() {
                Player::First => count.div_ceil(2),
                Player::Second => count / 2,
            },
            cells,
            index_bits: count.next_power_of_two().ilog2().max(1),
        }
    }

    /// Returns black's stones on a random full board.
    #[inline]
    fn draw(&self, rng: &mut Rng) -> CellSet {
        let random = CellSet::random(|| rng.next_u64()).and(self.empty);
        let count = random.len();
        // The player with too many cells loses some at random. White's cells are the complement.
        let flip = if count > self.share { CellSet::EMPTY } else { self.empty };
        let right = self.thin_out(random.xor(flip), count.abs_diff(self.share), rng);
        right.xor(flip).or(self.black)
    }

    /// Removes `excess` random cells from a set of empty cells.
    #[inline]
    fn thin_out(&self, mut set: CellSet, mut excess: u32, rng: &mut Rng) -> CellSet {
        let tries_per_word = 64 / self.index_bits;
        let mask = (1 << self.index_bits) - 1;
        while excess > 0 {
            let mut word = rng.next_u64();
            for _ in 0..tries_per_word {
                // Nothing changes if the cell is not in the set.
                excess -= set.take(self.cells[usize::from((word & mask) as u8)]);
                word >>= self.index_bits;
                if excess == 0 {
                    break;
                }
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::games::hex::SIZES;

    fn random_position(size: usize, stones: u32, rng: &mut Rng) -> Position {
        let mut position = Position::new(size).unwrap();
        for _ in 0..stones {
            let empty: Vec<Cell> = position.empty_cells().collect();
            position.play(empty[rng.below(empty.len() as u32) as usize]);
            // The players need not alternate.
            if rng.below(4) == 0 {
                position.pass();
            }
        }
        position
    }

    #[test]
    fn fills_are_complete_and_exact_in_number() {
        let mut rng = Rng::new(1);
        for size in SIZES {
            let cells = (size * size) as u32;
            for stones in [0, 1, cells / 2, cells - 1, cells] {
                let position = random_position(size, stones, &mut rng);
                let (black, white) = (position.stones_of(Player::First), position.stones_of(Player::Second));
                let fill = Fill::new(&position);
                let empty = cells - stones;
                let share = if position.to_move() == Player::First { empty.div_ceil(2) } else { empty / 2 };
                for _ in 0..50 {
                    let full = fill.draw(&mut rng);
                    assert_eq!(full.len(), black.len() + share);
                    assert_eq!(full.and(black), black);
                    assert_eq!(full.and(white), CellSet::EMPTY);
                    assert_eq!(full.and(black.or(position.empty_set())), full);
                }
            }
        }
    }

    #[test]
    fn every_empty_cell_is_as_likely_as_another() {
        let mut rng = Rng::new(2);
        for (size, stones) in [(2, 0), (3, 1), (5, 3), (8, 0), (11, 0), (11, 100), (16, 0), (16, 1)] {
            let position = random_position(size, stones, &mut rng);
            let fill = Fill::new(&position);
            let draws = 20_000;
            let mut count = [0_u32; 256];
            for _ in 0..draws {
                fill.draw(&mut rng).xor(fill.black).iter().for_each(|cell| count[cell.index()] += 1);
            }
            let probability = f64::from(fill.share) / f64::from(fill.empty.len());
            let mean = f64::from(draws) * probability;
            let deviation = (mean * (1.0 - probability)).sqrt();
            for cell in fill.empty.iter() {
                let off = (f64::from(count[cell.index()]) - mean).abs();
                assert!(off < 5.0 * deviation, "{cell} on size {size}: {} of {mean}", count[cell.index()]);
            }
        }
    }

    #[test]
    fn every_set_is_as_likely_as_another() {
        // 2 x 2: six ways to give black two cells. 3 x 3 with four stones: ten ways to give it
        // three of five.
        let mut rng = Rng::new(3);
        for (size, stones, ways) in [(2, 0, 6), (3, 4, 10)] {
            let position = random_position(size, stones, &mut Rng::new(12));
            let fill = Fill::new(&position);
            let mut count = std::collections::BTreeMap::new();
            for _ in 0..1000 * ways {
                *count.entry(fill.draw(&mut rng).rows()).or_insert(0_u32) += 1;
            }
            assert_eq!(count.len(), ways);
            assert!(count.values().all(|n| n.abs_diff(1000) < 160), "{count:?}");
        }
    }

    #[test]
    fn playouts_of_a_seed_never_change() {
        let wins = |size, seed| black_wins(&Position::new(size).unwrap(), 1000, &mut Rng::new(seed));
        assert_eq!([wins(2, 1), wins(6, 2), wins(11, 3), wins(16, 4)], [482, 515, 504, 495]);
    }
}
