//! Random games of Hex, many at a time.
//!
//! A random game ends like a full board: who moves when does not matter, only which cells are whose. So a playout is a
//! random set of the empty cells, of exactly as many as black still gets, and a flood. Random bits for all cells at once
//! give a set that is nearly of that size; single cells drawn at random put right the rest (some four on 11 × 11).
//! Every set of the right size stays equally likely, since neither step tells one cell from another.

use super::Position;
use super::flood::{MAX_SIZE, Rows, top_to_bottom};
use crate::game::Player;
use crate::rng::Rng;

/// How many boards are flooded at once.
const LANES: usize = 16;

/// Cells of a board, one bit each: row r in the bits 16 (r mod 4) onwards of word r / 4.
type Board = [u64; 4];

/// In how many of `playouts` random games black joins his edges.
///
/// Both sides go on in turn, from the side to move, each empty cell equally likely. A game that is over stays won.
///
/// *Cost:* some 60 ns for each on 11 × 11, and 100 ns once.
#[must_use]
pub fn black_wins(position: &Position, playouts: u32, rng: &mut Rng) -> u32 {
    let fill = Fill::new(position);
    let mut wins = 0;
    let mut left = playouts as usize;
    while left > 0 {
        let count = left.min(LANES);
        let mut stones = Rows([[0; LANES]; MAX_SIZE]);
        for lane in 0..count {
            let black = fill.draw(rng);
            for (row, stones) in stones.0.iter_mut().enumerate() {
                stones[lane] = (black[row / 4] >> (16 * (row % 4))) as u16;
            }
        }
        // Unused lanes have no stones, and so no winner.
        wins += top_to_bottom(&stones, position.size()).map(u32::from).iter().sum::<u32>();
        left -= count;
    }
    wins
}

/// What all random completions of a position share.
struct Fill {
    black: Board,
    empty: Board,
    /// How many of the empty cells black gets.
    share: u32,
    /// The empty cells, then cells that are not empty, up to 2^`index_bits`.
    cells: [u8; 256],
    index_bits: u32,
}

impl Fill {
    fn new(position: &Position) -> Self {
        let empty = pack(|row| if row < position.size() { position.empty_in(row) } else { 0 });
        let mut cells = [0; 256];
        let mut count = 0;
        for (word, first) in empty.into_iter().zip([0, 64, 128, 192]) {
            let mut rest = word;
            while rest != 0 {
                cells[count] = first + rest.trailing_zeros() as u8;
                count += 1;
                rest &= rest - 1;
            }
        }
        if let Some(taken) = (0..=u8::MAX).find(|&cell| empty[usize::from(cell / 64)] >> (cell % 64) & 1 == 0) {
            cells[count..].fill(taken);
        }
        let count = count as u32;
        Self {
            black: pack(|row| position.stones[0][row]),
            empty,
            share: match position.to_move() {
                Player::First => count.div_ceil(2),
                Player::Second => count / 2,
            },
            cells,
            index_bits: count.next_power_of_two().ilog2().max(1),
        }
    }

    /// Black's stones on a full board.
    #[inline]
    fn draw(&self, rng: &mut Rng) -> Board {
        let random = self.empty.map(|empty| empty & rng.next_u64());
        let count = random.map(u64::count_ones).iter().sum::<u32>();
        // Whose cells are too many loses some at random; white's are those that black has not.
        let black_has_more = count > self.share;
        let excess = count.abs_diff(self.share);
        let flip = if black_has_more { [0; 4] } else { self.empty };
        let fewer = self.discard(xor(random, flip), excess, rng);
        or(xor(fewer, flip), self.black)
    }

    /// Takes `excess` cells out of `set`, all of its cells equally likely.
    #[inline]
    fn discard(&self, mut set: Board, mut excess: u32, rng: &mut Rng) -> Board {
        let tries = 64 / self.index_bits;
        while excess > 0 {
            let mut bits = rng.next_u64();
            for _ in 0..tries {
                let index = bits & ((1 << self.index_bits) - 1);
                bits >>= self.index_bits;
                let cell = self.cells[index as usize & 255];
                // Nothing happens for a cell that is not in the set: not empty, the other side's, or gone already.
                let word = &mut set[usize::from(cell >> 6)];
                let hit = *word >> (cell & 63) & 1;
                *word ^= hit << (cell & 63);
                excess -= hit as u32;
                if excess == 0 {
                    break;
                }
            }
        }
        set
    }
}

fn pack(row: impl Fn(usize) -> u16) -> Board {
    std::array::from_fn(|word| (0..4).fold(0, |bits, i| bits | u64::from(row(4 * word + i)) << (16 * i)))
}

fn xor(a: Board, b: Board) -> Board {
    std::array::from_fn(|word| a[word] ^ b[word])
}

fn or(a: Board, b: Board) -> Board {
    std::array::from_fn(|word| a[word] | b[word])
}

pub fn black_wins_paired(position: &Position, playouts: u32, rng: &mut Rng) -> u32 {
    let mut used = [0u16; 16];
    let mut pairs = Vec::new();
    let me = position.to_move().opponent();
    super::virt::pairs(position, me, &mut used, &mut pairs);
    super::virt::pairs(position, me.opponent(), &mut used, &mut pairs);
    let mut p = *position;
    for r in 0..16 { p.stones[1][r] |= used[r]; }
    let fill = Fill::new(&p);
    let mut wins = 0;
    for _ in 0..playouts.div_ceil(16) {
        let mut stones = Rows([[0; LANES]; MAX_SIZE]);
        for lane in 0..16.min(playouts as usize) {
            let mut black = fill.draw(rng);
            let mut bits = 0; let mut left = 0;
            for &(a, b) in &pairs {
                if left == 0 { bits = rng.next_u64(); left = 64; }
                let c = if bits & 1 == 1 { a } else { b };
                bits >>= 1; left -= 1;
                black[usize::from(c >> 6)] |= 1 << (c & 63);
            }
            for (row, stones) in stones.0.iter_mut().enumerate() {
                stones[lane] = (black[row / 4] >> (16 * (row % 4))) as u16;
            }
        }
        wins += top_to_bottom(&stones, position.size()).map(u32::from).iter().sum::<u32>();
    }
    wins
}

pub fn amaf(position: &Position) -> [[f32; 256]; 2] {
    let mut h = 1u64; for r in position.stones.iter().flatten() { h = (h ^ *r as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15); h ^= h >> 29; }
    let rng = &mut Rng::new(h);
    let mut used = [0u16; 16];
    let mut pairs = Vec::new();
    let me = position.to_move().opponent();
    super::virt::pairs(position, me, &mut used, &mut pairs);
    super::virt::pairs(position, me.opponent(), &mut used, &mut pairs);
    let mut p = *position;
    for r in 0..16 { p.stones[1][r] |= used[r]; }
    let fill = Fill::new(&p);
    let mut wins = [0u32; 256]; let mut own = [0u32; 256]; let mut bw = 0; let games = 256;
    for _ in 0..games / 16 {
        let mut stones = Rows([[0; LANES]; MAX_SIZE]); let mut bs = [[0u64; 4]; 16];
        for lane in 0..16 {
            let mut black = fill.draw(rng);
            for &(a, b) in &pairs {
                let c = if rng.next_u64() >> 63 == 1 { a } else { b };
                black[usize::from(c >> 6)] |= 1 << (c & 63);
            }
            bs[lane] = black;
            for (row, stones) in stones.0.iter_mut().enumerate() {
                stones[lane] = (black[row / 4] >> (16 * (row % 4))) as u16;
            }
        }
        let won = top_to_bottom(&stones, position.size());
        for lane in 0..16 { bw += won[lane] as u32; for w in 0..4 { let mut x = bs[lane][w]; while x != 0 { let i = w * 64 + x.trailing_zeros() as usize; x &= x - 1; own[i] += 1; wins[i] += won[lane] as u32; } } }
    }
    let mut out = [[0.0; 256]; 2];
    for i in 0..256 {
        out[0][i] = (wins[i] as f32 + 0.5) / (own[i] as f32 + 1.0);
        // white has i: games - own; black wins among them: bw - wins
        out[1][i] = 1.0 - ((bw - wins[i]) as f32 + 0.5) / ((games - own[i]) as f32 + 1.0);
    }
    out
}
