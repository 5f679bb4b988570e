//! Finds out whether stones join two edges, by a flood over rows of bits, for several boards at
//! once.

/// The size of the largest board.
pub(super) const MAX_SIZE: usize = 16;

/// `L` boards side by side: `rows[r][lane]` has bit c set where that board has a stone in row r,
/// column c.
///
/// The flood processes all lanes in lockstep. Lanes of 16 bits fill the vector registers, and the
/// alignment keeps each vector within a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Rows<const L: usize>(pub(super) [[u16; L]; MAX_SIZE]);

/// Returns for each lane whether the stones join the first row with the last.
#[inline]
pub(super) fn top_to_bottom<const L: usize>(stones: &Rows<L>, size: usize) -> [bool; L] {
    let mut reached = Rows([[0; L]; MAX_SIZE]);
    reached.0[0] = stones.0[0];
    // A sweep completes its own direction. So the flood ends with a sweep that changes nothing.
    sweep_down(stones, size, &mut reached);
    loop {
        let changed = sweep_up(stones, size, &mut reached);
        if settled(changed, reached.0[size - 1]) {
            break;
        }
        let changed = sweep_down(stones, size, &mut reached);
        if settled(changed, reached.0[size - 1]) {
            break;
        }
    }
    reached.0[size - 1].map(|row| row != 0)
}

/// Exchanges rows and columns. Neighbours stay neighbours, and left to right becomes top to bottom.
///
/// Swaps smaller and smaller squares on both sides of the diagonal.
pub(super) fn transposed(mut rows: [u16; MAX_SIZE]) -> [u16; MAX_SIZE] {
    for (side, mask) in [(8, 0x00FF), (4, 0x0F0F), (2, 0x3333), (1, 0x5555)] {
        for row in (0..MAX_SIZE).filter(|row| row & side == 0) {
            let swap = (rows[row] >> side ^ rows[row + side]) & mask;
            rows[row] ^= swap << side;
            rows[row + side] ^= swap;
        }
    }
    rows
}

/// Returns whether each lane has reached the last row or did not change.
#[inline]
fn settled<const L: usize>(changed: [u16; L], last_row: [u16; L]) -> bool {
    (0..L).all(|lane| changed[lane] == 0 || last_row[lane] != 0)
}

/// Spreads along each row and to the row below. Returns the bits that changed in any row.
#[inline]
fn sweep_down<const L: usize>(stones: &Rows<L>, size: usize, reached: &mut Rows<L>) -> [u16; L] {
    let mut above = [0; L];
    let mut changed = [0; L];
    for (stones, reached) in stones.0.iter().zip(&mut reached.0).take(size) {
        for lane in 0..L {
            let entered = (reached[lane] | above[lane] | above[lane] >> 1) & stones[lane];
            above[lane] = spread(entered, stones[lane]);
            changed[lane] |= above[lane] ^ reached[lane];
            reached[lane] = above[lane];
        }
    }
    changed
}

/// Spreads along each row and to the row above. Returns the bits that changed in any row.
#[inline]
fn sweep_up<const L: usize>(stones: &Rows<L>, size: usize, reached: &mut Rows<L>) -> [u16; L] {
    let mut below = [0; L];
    let mut changed = [0; L];
    for (stones, reached) in stones.0.iter().zip(&mut reached.0).take(size).rev() {
        for lane in 0..L {
            let entered = (reached[lane] | below[lane] | below[lane] << 1) & stones[lane];
            below[lane] = spread(entered, stones[lane]);
            changed[lane] |= below[lane] ^ reached[lane];
            reached[lane] = below[lane];
        }
    }
    changed
}

/// Returns the whole runs of `stones` that contain a bit of `entered`, a subset of `stones`.
#[inline]
fn spread(entered: u16, stones: u16) -> u16 {
    // Towards higher columns: the carry of an addition runs up from the lowest bit added to a run.
    let mut filled = ((stones.wrapping_add(entered) ^ stones) | entered) & stones;
    // Towards lower columns: strides of 1, 2, 4 and 8, through stones without gaps.
    let mut gapless = stones;
    for stride in [1, 2, 4, 8] {
        filled |= gapless & filled >> stride;
        gapless &= gapless >> stride;
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn spread_fills_whole_runs() {
        // Every pattern of 10 stones at both ends of the word; each bit alone and with the highest.
        for stones in 0..1_u16 << 10 {
            for stones in [stones, stones << 6] {
                for first in (0..16).filter(|bit| stones >> bit & 1 == 1) {
                    for second in [first, 15 - stones.leading_zeros()] {
                        let entered = 1 << first | 1 << second;
                        assert_eq!(spread(entered, stones), walk(entered, stones), "{entered:b} in {stones:b}");
                    }
                }
            }
        }
        assert_eq!(spread(0, u16::MAX), 0);
    }

    fn walk(mut filled: u16, stones: u16) -> u16 {
        for _ in 0..16 {
            filled |= (filled << 1 | filled >> 1) & stones;
        }
        filled
    }

    #[test]
    fn transposing_exchanges_rows_and_columns() {
        let mut rng = Rng::new(1);
        for _ in 0..100 {
            let rows: [u16; MAX_SIZE] = std::array::from_fn(|_| rng.next_u64() as u16);
            let columns = transposed(rows);
            for (row, bits) in rows.iter().enumerate() {
                for (column, other) in columns.iter().enumerate() {
                    assert_eq!(bits >> column & 1, other >> row & 1);
                }
            }
        }
    }
}
