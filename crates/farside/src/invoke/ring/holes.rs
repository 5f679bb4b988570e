//! Which parts of registered regions are free.

use farside_fabric::RemoteKey;

/// Free parts. Neighbours are joined, so that what was cut small can be given out large again.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// By region and offset.
    holes: Vec<Hole>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    key: RemoteKey,
    offset: u64,
    bytes: u64,
}

impl Holes {
    /// Cuts so many bytes from the smallest hole that has them. Returns where.
    pub(crate) fn cut(&mut self, bytes: u64) -> Option<(RemoteKey, u64)> {
        let fitting = self.holes.iter().enumerate().filter(|(_, hole)| hole.bytes >= bytes);
        let (index, _) = fitting.min_by_key(|(_, hole)| hole.bytes)?;
        let hole = &mut self.holes[index];
        let found = (hole.key, hole.offset);
        hole.offset += bytes;
        hole.bytes -= bytes;
        if hole.bytes == 0 {
            self.holes.swap_remove(index);
        }
        Some(found)
    }

    /// Adds a part that nobody uses.
    pub(crate) fn add(&mut self, key: RemoteKey, offset: u64, bytes: u64) {
        let mut new = Hole { key, offset, bytes };
        self.holes.retain(|hole| {
            let joins = |a: &Hole, b: &Hole| a.key == b.key && a.offset + a.bytes == b.offset;
            let is_before = joins(hole, &new);
            let is_neighbour = is_before || joins(&new, hole);
            if is_neighbour {
                new.bytes += hole.bytes;
                new.offset = if is_before { hole.offset } else { new.offset };
            }
            !is_neighbour
        });
        self.holes.push(new);
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::ProcessId;
    use proptest::prelude::*;

    use super::*;

    const REGION: u64 = 4096;
    const UNIT: u64 = 128;

    fn key(slot: u32) -> RemoteKey {
        RemoteKey { process: ProcessId::new(0), slot, generation: 1, reserved: 0, bytes: REGION }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Cut(u64),
        GiveBack(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..REGION / UNIT).prop_map(|units| Step::Cut(units * UNIT)),
            any::<prop::sample::Index>().prop_map(Step::GiveBack)
        ]
    }

    proptest! {
        /// Against a map of every unit of two regions.
        #[test]
        fn nothing_is_given_out_twice_or_lost(steps in prop::collection::vec(step(), 0..100)) {
            let mut holes = Holes::default();
            (0..2).for_each(|slot| holes.add(key(slot), 0, REGION));
            let mut used = [[false; (REGION / UNIT) as usize]; 2];
            let mut given: Vec<(u32, u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Cut(bytes) => {
                        let units = (bytes / UNIT) as usize;
                        let fits = used.iter().any(|region| region.windows(units).any(|run| run.iter().all(|used| !used)));
                        let found = holes.cut(bytes);
                        prop_assert_eq!(found.is_some(), fits);
                        let Some((key, offset)) = found else { continue };
                        for unit in &mut used[key.slot as usize][(offset / UNIT) as usize..][..units] {
                            prop_assert!(!std::mem::replace(unit, true));
                        }
                        given.push((key.slot, offset, bytes));
                    }
                    Step::GiveBack(which) if !given.is_empty() => {
                        let (slot, offset, bytes) = given.swap_remove(which.index(given.len()));
                        holes.add(key(slot), offset, bytes);
                        used[slot as usize][(offset / UNIT) as usize..][..(bytes / UNIT) as usize].fill(false);
                    }
                    Step::GiveBack(_) => {}
                }
            }
            given.into_iter().for_each(|(slot, offset, bytes)| holes.add(key(slot), offset, bytes));
            prop_assert_eq!(holes.holes.len(), 2);
            prop_assert!(holes.holes.iter().all(|hole| (hole.offset, hole.bytes) == (0, REGION)));
        }
    }
}
