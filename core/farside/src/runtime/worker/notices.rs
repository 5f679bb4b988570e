//! The notices that the service thread leaves for a worker.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use farside_fabric::{ProcessId, WorkerId};

use super::Worker;
use crate::error::{Result, Source};
use crate::invoke::inbox::{Handling, handler_error, run_last};
use crate::invoke::message::RingName;
use crate::invoke::ring::rings::{own_chunk, receiver_of};
use crate::runtime::process::Notice;

/// A library's action on a worker when a process is lost.
#[derive(Clone)]
pub(crate) struct LossHook(Rc<OnLoss>);

type OnLoss = dyn Fn(&Worker, ProcessId);

impl fmt::Debug for LossHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossHook")
    }
}

impl Worker {
    pub(crate) fn when_lost(&self, hook: impl Fn(&Worker, ProcessId) + 'static) {
        self.loss_hooks.borrow_mut().push(LossHook(Rc::new(hook)));
    }

    /// Takes in the notices for this worker.
    #[cold]
    pub(crate) fn take_notices(&self) -> Result<()> {
        self.attention_seen.set(self.process.mailboxes.attention(self.local));
        while let Some(notice) = self.process.mailboxes.next_notice(self.local) {
            if let Err(error) = self.take_notice(notice) {
                // More notices may be queued. The next step must look at them in spite of this
                // error.
                self.attention_seen.set(self.attention_seen.get().wrapping_sub(1));
                return Err(error);
            }
        }
        self.answer_readers();
        self.process.orders.check_ended()
    }

    fn take_notice(&self, notice: Notice) -> Result<()> {
        match notice {
            Notice::RingOpened { ring, control, chunks } => {
                let (receiver, pieces) = receiver_of(&self.process, control, &chunks);
                let source = self.process.job.source(ring.source as usize);
                let is_alike = self.process.job.is_alike_source(source);
                self.inbox().open(ring.source as usize, source, is_alike, receiver, pieces);
            }
            Notice::RingGrown { ring, chunks } => {
                for chunk in chunks {
                    let mapped = own_chunk(&self.process, chunk);
                    if !self.inbox().grow(ring.source as usize, mapped, chunk) {
                        // The sender is lost, or the ring is corrupt.
                        self.process.calls.rings.retire(&self.process, ring, self.local, &[chunk]);
                    }
                }
            }
            Notice::RingClosing { ring } => self.close(ring)?,
            Notice::WayAnswered { to } => {
                if let Some(mut outbox) = self.outbox(to) {
                    outbox.take_granted();
                    outbox.send_staged(&self.process)?;
                }
            }
            Notice::WayWanted { to } => {
                if let Some(mut outbox) = self.outbox(to) {
                    // A receiver that cannot be reached is lost, or asks again.
                    let _ = outbox.give_up_if_idle(&self.process);
                }
            }
            Notice::Frame(frame) => {
                self.process.calls.waiting_frames.taken(&frame);
                self.inbox().take_frame(&frame);
            }
            Notice::Fetched { fetch, outcome } => {
                let mut ran = self.go_on_with(fetch, outcome);
                for ring in self.closing.take() {
                    ran = ran.and(self.close(ring));
                }
                ran?;
            }
            Notice::Lost { process } => self.lose(process)?,
        }
        Ok(())
    }

    /// Runs a call whose buffer has arrived.
    fn go_on_with(&self, fetch: u64, outcome: Result<Vec<u8>>) -> Result<()> {
        let Some(go) = self.fetches.take(fetch) else { return Ok(()) };
        let handling = Handling::begin(self.in_handler_flag());
        let ended = catch_unwind(AssertUnwindSafe(|| go(self, outcome)));
        drop(handling);
        ended.map_err(|panic| handler_error(Source::Worker(self.id), &*panic))
    }

    /// Runs what has arrived through a ring that its sender has given up, and returns the ring's
    /// memory. If calls still wait for their buffers, returns it after those have arrived.
    fn close(&self, ring: RingName) -> Result<()> {
        let source = ring.source as usize;
        let ran = run_last(self, source, false);
        if self.inbox().is_held(source) {
            self.closing.borrow_mut().push(ring);
            return ran;
        }
        let pieces = self.inbox().close(source);
        self.process.accesses.end();
        self.process.calls.rings.finish_closing(&self.process, ring, self.local, &pieces);
        ran
    }

    /// Runs what a lost process had already published here, and drops what was meant for it.
    fn lose(&self, process: ProcessId) -> Result<()> {
        let shape = self.process.shape();
        let threads = (0..shape.callable_per_process() as usize).map(|local| shape.worker_at(process, local));
        let ring = (shape.callable() + process.number()) as usize;
        let mut ran = Ok(());
        for source in threads.clone().map(WorkerId::index).chain([ring]) {
            ran = ran.and(run_last(self, source, true));
            let pieces = self.inbox().close(source);
            let ring = RingName { source: source as u32, to: self.id.number() };
            self.process.calls.rings.retire(&self.process, ring, self.local, &pieces);
        }
        // Calls whose borrowed buffer has not arrived by now fail: no call of that process may run
        // after this.
        for fetch in self.fetches.from(process) {
            ran = ran.and(self.go_on_with(fetch, Err(self.process.losses.gone(process))));
        }
        self.closing.borrow_mut().retain(|ring| self.process.job.owner_of(ring.source) != Some(process));
        for to in threads {
            if let Some(outbox) = self.outboxes[to.index()].get() {
                outbox.borrow_mut().lose();
            }
        }
        // Marked last, so that a waiter sees everything that the lost process did.
        self.lost.borrow_mut().push(process);
        self.recipients.note_loss();
        let hooks = self.loss_hooks.borrow().clone();
        hooks.iter().for_each(|hook| (hook.0)(self, process));
        ran
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::job::simulate::share_memory;

    /// The receiver has asked for its memory, and is gone when the worker hears of that.
    #[test]
    fn a_lost_receiver_may_have_asked_for_its_memory() {
        let is_well = AtomicBool::new(false);
        let verdict = share_memory(2, |me| {
            let to = WorkerId::new(1);
            if me.id() == to {
                return Ok(());
            }
            me.setup(to)?;
            me.process_handle().transport().forget(ProcessId::new(1));
            me.process_handle().mailboxes.notify(0, Notice::WayWanted { to });
            is_well.store(me.progress().is_ok(), Ordering::Relaxed);
            Ok(())
        });
        assert!(is_well.load(Ordering::Relaxed), "{verdict:?}");
    }
}
