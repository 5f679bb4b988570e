//! What a worker does between the end of its body and the end of the job.

use super::Worker;
use crate::error::Result;
use crate::runtime::consumers::Role;
use farside_launch::settings::FOREVER;

impl Worker {
    /// After the body: serves until the whole job is quiet.
    pub(crate) fn drain(&self) -> Result<()> {
        if self.process.callers().one_more_rests(self.process.shape().callable_per_process()) {
            // What the others waited for may have ended since they looked.
            self.process.call_attention_of_all();
        }
        let mut answered = None;
        self.wait_until("waiting for the other processes to finish", FOREVER, |worker| {
            if let Role::Member(kind) = worker.role
                && let Err(error) = worker.run_handed_over(kind)
            {
                return Some(Err(error));
            }
            if worker.process.is_finished() {
                return Some(Ok(()));
            }
            let round = worker.process.round();
            match worker.process.rooms().are_over(worker) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
            if answered == Some(round) || !worker.is_quiet() {
                return None;
            }
            // What was called before the round began runs before it is counted. Two rounds that count the same, with a call under
            // way all the time, would say that there is none.
            if let Err(error) = worker.step() {
                return Some(Err(error));
            }
            match worker.process.rooms().are_over(worker) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
            // After the look at the rooms, of which one may leave a notice before it says that it is done.
            if worker.is_quiet() {
                answered = Some(round);
                let counters = worker.counters();
                worker.process.report_quiet(worker.local, round, counters.sent.calls, counters.executed);
            }
            None
        })
    }

    /// Whether nothing waits here to be sent or gone on with.
    fn is_quiet(&self) -> bool {
        self.unfinished.borrow().is_empty()
            && self.continuations.borrow().is_empty()
            && self.put_off.borrow().is_empty()
            && !self.process.lanes_are_queued()
            && self.process.pools_are_idle()
            && self.fetches.is_empty()
            && !self.has_notices()
            && self.process.callers().may_rest(self.process.shape().callable_per_process())
    }
}
