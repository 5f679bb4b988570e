//! Waiting until no message of a search is under way.

use farside::Worker;

use super::JobError;
use super::desk::{Address, Traffic};
use super::serve::at;
use crate::game::Game;

/// Returns when every message that was sent has been received, while nobody does anything but answer.
///
/// Workers are asked one after another, so a message may be missed by one count and seen by the other; two equal counts in a row
/// cannot both be wrong (Mattern, 1987, the four counters).
pub(super) fn settle<G: Game>(me: &Worker, address: Address) -> Result<(), JobError> {
    let mut last = None;
    loop {
        me.flush();
        me.progress()?;
        let here = at::<G, _>(me, address, |seat| seat.check(me).map(|()| seat.traffic))?;
        let all = me.all_reduce(here, |one, other| Traffic {
            sent: one.sent + other.sent,
            received: one.received + other.received,
        })?;
        if all.sent == all.received && last == Some(all) {
            return Ok(());
        }
        last = Some(all);
    }
}
