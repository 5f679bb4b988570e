//! Whether stones join two edges: a flood over rows of bits, several boards at a time.

/// The largest board.
pub(super) const MAX_SIZE: usize = 16;

/// `L` boards side by side: `rows[r][lane]` has bit c set where that board has a stone in row r, column c.
///
/// The boards of all lanes are flooded in lockstep; lanes of 16 bits fill the vector registers, and the alignment keeps
/// each vector within a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Rows<const L: usize>(pub(super) [[u16; L]; MAX_SIZE]);

/// In which lanes the stones join the first row with the last.
#[inline]
pub(super) fn top_to_bottom<const L: usize>(stones: &Rows<L>, size: usize) -> [bool; L] {
    let mut top = Rows([[0; L]; MAX_SIZE]);
    top.0[0] = stones.0[0];
    flood(stones, size, top, |Rows(reached)| reached[size - 1].map(|row| row != 0))
}

/// In which lanes the stones join the first column with the last.
#[inline]
pub(super) fn left_to_right<const L: usize>(stones: &Rows<L>, size: usize) -> [bool; L] {
    let left = Rows(stones.0.map(|row| row.map(|lane| lane & 1)));
    flood(stones, size, left, |Rows(reached)| {
        let either = |a: [u16; L], b: &[u16; L]| std::array::from_fn(|lane| a[lane] | b[lane]);
        reached.iter().fold([0; L], either).map(|columns| columns >> (size - 1) != 0)
    })
}

/// Spreads `reached` through `stones` until each lane has arrived or can spread no further; says which have arrived.
#[inline]
fn flood<const L: usize>(
    stones: &Rows<L>,
    size: usize,
    mut reached: Rows<L>,
    arrived: impl Fn(&Rows<L>) -> [bool; L],
) -> [bool; L] {
    let settled = |changed: [u16; L], arrived: [bool; L]| (0..L).all(|lane| changed[lane] == 0 || arrived[lane]);
    // A sweep leaves nothing to do in its own direction: one that changes nothing after one in the other ends it.
    sweep_down(stones, size, &mut reached);
    loop {
        let changed = sweep_up(stones, size, &mut reached);
        if settled(changed, arrived(&reached)) {
            return arrived(&reached);
        }
        let changed = sweep_down(stones, size, &mut reached);
        if settled(changed, arrived(&reached)) {
            return arrived(&reached);
        }
    }
}

/// Spreads along each row and to the row below; returns which bits of any row changed.
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

/// Spreads along each row and to the row above.
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

/// The runs of `stones` that hold a bit of `entered`, whole; `entered` lies within `stones`.
#[inline]
fn spread(entered: u16, stones: u16) -> u16 {
    // Towards higher columns by carry: adding to a run ripples up from the lowest bit added.
    let mut filled = ((stones.wrapping_add(entered) ^ stones) | entered) & stones;
    // Towards lower columns by strides of 1, 2, 4 and 8, through stones without a gap.
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

    #[test]
    fn spread_fills_whole_runs() {
        // The oracle walks. Every row of 10 stones with every single bit entered, then all pairs at the ends.
        for stones in 0..1_u16 << 10 {
            for shift in [0, 6] {
                let stones = stones << shift;
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
}
