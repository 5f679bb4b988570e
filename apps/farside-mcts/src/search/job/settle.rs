//! Waits for quiescence: no message of a search is under way.

use farside::Worker;

use super::JobError;
use super::desk::{Address, Traffic};
use super::serve::at;
use crate::game::Game;

/// Returns once every message has been received. Meanwhile workers only answer messages.
///
/// Workers report their counts one after another. So a message may be absent from the count of sent
/// messages and present in that of received ones. Two equal results in a row cannot both be wrong
/// (Mattern, 1987, four-counter method).
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
