//! Size classes of cached blocks: each number of units up to 8, then four classes per doubling.

/// Larger blocks are not cached.
const UNITS_MAX: usize = 1024;
/// Number of classes: 8, and four for each of the 7 doublings to 1024.
pub(super) const COUNT: usize = 8 + 4 * 7;

/// The class for `units` units; every block of the class has at least that many. `None` for more
/// than the maximum. 0 counts as 1.
#[inline]
pub(super) fn of(units: usize) -> Option<usize> {
    if units > UNITS_MAX {
        return None;
    }
    let last = units.saturating_sub(1);
    if last < 8 {
        return Some(last);
    }
    // The two bits below the highest select one of the four classes.
    let shift = last.ilog2() - 2;
    Some(8 + (shift as usize - 1) * 4 + (last >> shift) - 4)
}

/// Number of units in the blocks of a class.
#[inline]
pub(super) fn units(class: usize) -> u32 {
    match class.checked_sub(8) {
        None => class as u32 + 1,
        Some(above) => ((above % 4 + 5) << (above / 4 + 1)) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        assert_eq!((of(0), of(UNITS_MAX), of(UNITS_MAX + 1)), (Some(0), Some(COUNT - 1), None));
        for size in 1..=UNITS_MAX {
            let class = of(size).unwrap();
            assert!(units(class) as usize >= size, "{size}");
            assert!(class == 0 || (units(class - 1) as usize) < size, "{size}");
            assert!(units(class) as usize <= size + size.div_ceil(4), "{size} is rounded up too far");
        }
    }

    #[test]
    fn the_sizes_of_classes_are_their_own() {
        for class in 0..COUNT {
            assert_eq!(of(units(class) as usize), Some(class));
        }
    }
}
