//! The drain: what a worker does between the end of its body and the end of the job.

use super::Worker;
use crate::error::Result;
use crate::runtime::pool::Role;
use farside_launch::settings::FOREVER;

impl Worker {
    /// Serves other workers after the end of the body, until the whole job is quiet.
    pub(crate) fn drain(&self) -> Result<()> {
        self.collectives.borrow_mut().end();
        if self.process.calls.callers.one_more_rests(self.process.shape().callable_per_process()) {
            // This may have been the last caller that the other threads waited for.
            self.process.mailboxes.call_attention_of_all();
        }
        let mut answered = None;
        self.wait_until("waiting for the other processes to finish", FOREVER, |worker| {
            if worker.role == Role::Member
                && let Err(error) = worker.run_handed_over()
            {
                return Some(Err(error));
            }
            if worker.process.orders.is_finished() {
                return Some(Ok(()));
            }
            let round = worker.process.orders.round();
            match worker.process.rooms.are_over(worker) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
            if answered == Some(round) || !worker.is_quiet() {
                return None;
            }
            // Calls that arrived before the round began must run before they are counted. Otherwise
            // two rounds could count the same while a call is under way all the time.
            if let Err(error) = worker.step() {
                return Some(Err(error));
            }
            match worker.process.rooms.are_over(worker) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
            // Checked after the rooms: a room may leave a notice before it says that it is done.
            if worker.is_quiet() {
                answered = Some(round);
                worker.process.report_quiet(worker.local, round, worker.calls_sent(), worker.executed());
            }
            None
        })
    }

    /// Returns whether this worker is [settled](Self::is_settled), and nothing can change that but
    /// another process.
    fn is_quiet(&self) -> bool {
        self.is_settled()
            && !self.has_notices()
            && self.process.calls.callers.may_rest(self.process.shape().callable_per_process())
    }

    /// Returns whether no call waits to be sent or continued, on this worker or on what the threads
    /// of its process share.
    pub(crate) fn is_settled(&self) -> bool {
        self.unfinished.borrow().is_empty()
            && self.continuation_count() == 0
            && self.put_off.borrow().is_empty()
            && !self.process.calls.shared_rings.are_queued()
            && self.process.calls.pool.is_idle()
            && self.fetches.is_empty()
            && !self.keeps_batches()
    }
}
