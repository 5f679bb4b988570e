//! Atomics: each change follows the model, and concurrent processes lose none.

use farside_testbed::scaled;

use super::Fabric;
use super::harness::{Process, Trial};
use farside_fabric::ids::ProcessId;
use farside_fabric::region::RemoteRegion;
use farside_fabric::sim::Random;
use farside_fabric::transport::AtomicChange;

const OWNER: ProcessId = ProcessId::new(0);

/// Number of changes by each process to a word that all of them change.
const CHANGES: u64 = 300;

/// Returns the value of a word after a change.
fn apply(change: AtomicChange<u64>, word: u64) -> u64 {
    match change {
        AtomicChange::Load => word,
        AtomicChange::Swap(value) => value,
        AtomicChange::CompareSwap { expected, new } => {
            if word == expected {
                new
            } else {
                word
            }
        }
        AtomicChange::Add(value) => word.wrapping_add(value),
        AtomicChange::And(value) => word & value,
        AtomicChange::Or(value) => word | value,
        AtomicChange::Xor(value) => word ^ value,
        AtomicChange::Min(value) => word.min(value),
        AtomicChange::Max(value) => word.max(value),
    }
}

/// Draws a change. Values at the edge of a width or sign are frequent. Half of the compare-swaps
/// expect the current value.
fn draw_change(random: &mut Random, word: u64) -> AtomicChange<u64> {
    let edges = [0, 1, u64::MAX, 1 << 63, 1 << 31, u64::from(u32::MAX), 1 << 32, random.next(), random.next()];
    let value = edges[random.index(edges.len())];
    match random.index(9) {
        0 => AtomicChange::Load,
        1 => AtomicChange::Swap(value),
        2 => AtomicChange::CompareSwap { expected: if random.coin() { word } else { value }, new: random.next() },
        3 => AtomicChange::Add(value),
        4 => AtomicChange::And(value),
        5 => AtomicChange::Or(value),
        6 => AtomicChange::Xor(value),
        7 => AtomicChange::Min(value),
        _ => AtomicChange::Max(value),
    }
}

fn narrow(change: AtomicChange<u64>) -> AtomicChange<u32> {
    match change {
        AtomicChange::Load => AtomicChange::Load,
        AtomicChange::Swap(value) => AtomicChange::Swap(value as u32),
        AtomicChange::CompareSwap { expected, new } => {
            AtomicChange::CompareSwap { expected: expected as u32, new: new as u32 }
        }
        AtomicChange::Add(value) => AtomicChange::Add(value as u32),
        AtomicChange::And(value) => AtomicChange::And(value as u32),
        AtomicChange::Or(value) => AtomicChange::Or(value as u32),
        AtomicChange::Xor(value) => AtomicChange::Xor(value as u32),
        AtomicChange::Min(value) => AtomicChange::Min(value as u32),
        AtomicChange::Max(value) => AtomicChange::Max(value as u32),
    }
}

fn widen(change: AtomicChange<u32>) -> AtomicChange<u64> {
    match change {
        AtomicChange::Load => AtomicChange::Load,
        AtomicChange::Swap(value) => AtomicChange::Swap(value.into()),
        AtomicChange::CompareSwap { expected, new } => {
            AtomicChange::CompareSwap { expected: expected.into(), new: new.into() }
        }
        AtomicChange::Add(value) => AtomicChange::Add(value.into()),
        AtomicChange::And(value) => AtomicChange::And(value.into()),
        AtomicChange::Or(value) => AtomicChange::Or(value.into()),
        AtomicChange::Xor(value) => AtomicChange::Xor(value.into()),
        AtomicChange::Min(value) => AtomicChange::Min(value.into()),
        AtomicChange::Max(value) => AtomicChange::Max(value.into()),
    }
}

/// Every change of a 64-bit word follows the model and does not touch its neighbours.
pub fn changes_of_64_bits_follow_the_model(fabric: &dyn Fabric) {
    Trial::new("changes_of_64_bits_follow_the_model", 2).starter_bytes(64).run(fabric, |process| {
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let mut random = Random::new(64);
            let mut model = [0_u64; 8];
            for _ in 0..scaled(150) {
                let index = random.index(model.len());
                let change = draw_change(&mut random, model[index]);
                let previous = process.atomic64(&region, index as u64 * 8, change);
                assert_eq!(previous, model[index], "what {change:?} found");
                model[index] = apply(change, model[index]);
                assert_eq!(words(process, &region), model, "after {change:?} of word {index}");
            }
        }
    });
}

/// Every change of a 32-bit word follows the model and does not touch its neighbours, including the
/// other half of 64 bits.
pub fn changes_of_32_bits_follow_the_model(fabric: &dyn Fabric) {
    Trial::new("changes_of_32_bits_follow_the_model", 2).starter_bytes(64).run(fabric, |process| {
        if process.id() != OWNER {
            let region = process.attach_starter(OWNER);
            let mut random = Random::new(32);
            let mut model = [0_u32; 16];
            for _ in 0..scaled(150) {
                let index = random.index(model.len());
                let change = narrow(draw_change(&mut random, model[index].into()));
                let previous = process.atomic32(&region, index as u64 * 4, change);
                assert_eq!(previous, model[index], "what {change:?} found");
                model[index] = apply(widen(change), model[index].into()) as u32;
                let halves = words(process, &region).into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]);
                assert_eq!(halves.collect::<Vec<_>>(), model, "after {change:?} of word {index}");
            }
        }
    });
}

fn words(process: &Process, region: &RemoteRegion) -> Vec<u64> {
    let bytes = process.get(region, 0, 64);
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("a chunk of eight"))).collect()
}

/// Several processes add to one word. The sum is right, and each intermediate value is found
/// exactly once.
pub fn sums_lose_nothing(fabric: &dyn Fabric) {
    Trial::new("sums_lose_nothing", 4).run(fabric, |process| {
        let region = process.attach_starter(OWNER);
        process.meet();
        let found: Vec<u64> = (0..CHANGES).map(|_| process.atomic64(&region, 0, AtomicChange::Add(1))).collect();
        expect_each_once(process.gather(&found), 4 * CHANGES);
        let found = (0..CHANGES).map(|_| u64::from(process.atomic32(&region, 12, AtomicChange::Add(1))));
        expect_each_once(process.gather(&found.collect::<Vec<_>>()), 4 * CHANGES);
        let sums = (
            process.atomic64(&region, 0, AtomicChange::Load),
            process.atomic32(&region, 8, AtomicChange::Load),
            process.atomic32(&region, 12, AtomicChange::Load),
        );
        assert_eq!(sums, (4 * CHANGES, 0, 4 * CHANGES as u32));
    });
}

/// Asserts that the values are the numbers from 0 to `count - 1`, in any order.
#[track_caller]
fn expect_each_once(mut found: Vec<u64>, count: u64) {
    found.sort_unstable();
    let first_wrong = (0..count).zip(&found).find(|(wanted, found)| wanted != *found);
    assert_eq!(first_wrong, None, "a value was found twice or never");
    assert_eq!(found.len() as u64, count, "as many values as changes");
}

/// Several processes swap values of their own into one word. Exactly one swap finds each value, or
/// the value stays.
pub fn swaps_pass_on_each_value_once(fabric: &dyn Fabric) {
    Trial::new("swaps_pass_on_each_value_once", 4).run(fabric, |process| {
        let region = process.attach_starter(OWNER);
        process.meet();
        // The word holds 0 at first, so the tokens start at 1.
        let first = 1 + u64::from(process.number()) * CHANGES;
        let tokens = first..first + CHANGES;
        let mut found: Vec<u64> =
            tokens.map(|token| process.atomic64(&region, 16, AtomicChange::Swap(token))).collect();
        process.meet();
        if process.id() == OWNER {
            found.push(process.atomic64(&region, 16, AtomicChange::Load));
        }
        expect_each_once(process.gather(&found), 4 * CHANGES + 1);
    });
}

/// Several processes count by compare-swap, which tells each whether it succeeded.
pub fn compare_swaps_count(fabric: &dyn Fabric) {
    const COUNTS: u64 = 100;
    Trial::new("compare_swaps_count", 4).run(fabric, |process| {
        let region = process.attach_starter(OWNER);
        process.meet();
        let mut won = Vec::new();
        let mut lost = 0;
        let mut expected = 0;
        while won.len() < COUNTS as usize {
            let change = AtomicChange::CompareSwap { expected, new: expected + 1 };
            let previous = process.atomic64(&region, 24, change);
            if previous == expected {
                won.push(expected);
                expected += 1;
            } else {
                expected = previous;
                lost += 1;
                assert!(lost <= 3 * COUNTS, "a compare-swap was lost more often than others won");
            }
        }
        expect_each_once(process.gather(&won), 4 * COUNTS);
        assert_eq!(process.atomic64(&region, 24, AtomicChange::Load), 4 * COUNTS);
    });
}

/// The owner's own CPU atomics and its peers' changes of the same words are atomic with each other.
pub fn atomics_of_the_owner_take_effect_too(fabric: &dyn Fabric) {
    Trial::new("atomics_of_the_owner_take_effect_too", 3).run(fabric, |process| {
        let region =
            if process.id() == OWNER { process.end().starter().as_remote() } else { process.attach_starter(OWNER) };
        process.meet();
        let narrow = (0..CHANGES).map(|_| u64::from(process.atomic32(&region, 52, AtomicChange::Add(1))));
        expect_each_once(process.gather(&narrow.collect::<Vec<_>>()), 3 * CHANGES);
        // The owner is much faster than its peers, which post. So it continues until they are done.
        const DONE: u64 = 40;
        let mut found = Vec::new();
        let mut add = || found.push(process.atomic64(&region, 32, AtomicChange::Add(1)));
        if process.id() == OWNER {
            process.until("the peers", || {
                add();
                (process.atomic64(&region, DONE, AtomicChange::Load) == 2).then_some(())
            });
        } else {
            (0..CHANGES).for_each(|_| add());
            process.atomic64(&region, DONE, AtomicChange::Add(1));
        }
        let all = process.gather(&found);
        let count = all.len() as u64;
        expect_each_once(all, count);
        assert_eq!(process.atomic64(&region, 32, AtomicChange::Load), count, "the sum of all changes");
    });
}

/// Several processes apply or, and, xor, min and max at once. All changes take effect, in whatever
/// order.
pub fn commuting_changes_all_take_effect(fabric: &dyn Fabric) {
    Trial::new("commuting_changes_all_take_effect", 4).run(fabric, |process| {
        let region = process.attach_starter(OWNER);
        if process.id() == OWNER {
            process.atomic64(&region, 64, AtomicChange::Swap(u64::MAX));
            process.atomic64(&region, 88, AtomicChange::Swap(u64::MAX));
        }
        process.meet();
        let number = u64::from(process.number());
        for bit in (0..64).filter(|bit| bit % 4 == number) {
            process.atomic64(&region, 56, AtomicChange::Or(1 << bit));
            process.atomic64(&region, 64, AtomicChange::And(!(1 << bit)));
            process.atomic64(&region, 72, AtomicChange::Xor(1 << bit));
            process.atomic64(&region, 80, AtomicChange::Max(1000 + bit));
            process.atomic64(&region, 88, AtomicChange::Min(1000 + bit));
        }
        process.meet();
        let left = [56, 64, 72, 80, 88].map(|offset| process.atomic64(&region, offset, AtomicChange::Load));
        assert_eq!(left, [u64::MAX, 0, u64::MAX, 1063, 1000]);
    });
}
