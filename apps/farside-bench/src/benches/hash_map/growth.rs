//! Many insertions into a map that grows from nothing, or has room for them.

use farside::Worker;
use farside_containers::map::{HashMap, Map};

use super::super::containers::{Operation, mix};

/// Insertions of each worker: ten million of two workers.
const INSERTIONS: u64 = 5_000_000;

#[derive(Clone, Copy)]
pub(super) struct Growth {
    pub(super) is_reserved: bool,
    pub(super) in_batches: bool,
}

/// A map of a run. Each run has a new one.
pub(super) struct Growing<'w> {
    map: HashMap<u64, u64>,
    ends: Map<'w, u64, u64>,
    count: u64,
}

impl Growth {
    fn build(self, me: &Worker, count: u64) -> farside::Result<Growing<'_>> {
        let builder = HashMap::<u64, u64>::builder();
        let capacity = count as usize * me.worker_count() as usize;
        let map = if self.is_reserved { builder.capacity(capacity) } else { builder }.build(me)?;
        Ok(Growing { map, ends: map.on(me), count })
    }
}

/// Returns a key that no other insertion of a run has.
fn key(me: &Worker, number: u64) -> u64 {
    mix(number * u64::from(me.worker_count()) + u64::from(me.id().number()))
}

impl Operation for Growth {
    type State<'w> = Growing<'w>;

    fn count(self, _: u64) -> u64 {
        INSERTIONS
    }

    fn begin(self, me: &Worker, _: usize, count: u64) -> farside::Result<Growing<'_>> {
        self.build(me, count)
    }

    fn prepare<'w>(self, me: &'w Worker, state: &mut Growing<'w>) -> farside::Result<()> {
        state.map.free(me)?;
        *state = self.build(me, state.count)?;
        Ok(())
    }

    fn perform(self, me: &Worker, state: &mut Growing<'_>, number: u64) -> farside::Result<()> {
        if !self.in_batches {
            return state.ends.insert(key(me, number), number).map(drop);
        }
        // All of them, at the first number.
        if number > 0 {
            return Ok(());
        }
        let batch = state.ends.batch()?;
        batch.extend((0..state.count).map(|number| (key(me, number), number)))?;
        batch.finish()
    }

    fn end(self, me: &Worker, state: Growing<'_>) -> farside::Result<()> {
        state.map.free(me)
    }
}
