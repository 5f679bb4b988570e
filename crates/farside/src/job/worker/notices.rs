//! What a worker's service thread has for it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use farside_fabric::{ProcessId, WorkerId};

use super::Worker;
use crate::error::{Error, Result, Source};
use crate::invoke::inbox::{Handling, panic_message, run_last};
use crate::job::process::Notice;

/// What a part of the library has to do on a worker when a process is lost.
#[derive(Clone)]
pub(super) struct LossHook(Rc<OnLoss>);

type OnLoss = dyn Fn(&Worker, ProcessId);

impl fmt::Debug for LossHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossHook")
    }
}

impl Worker {
    /// Has `hook` run on this worker for every process that is lost from now on, when the last of its calls has run here: so nothing of that
    /// process comes after it. Not as a handler, but it must not wait either.
    pub(crate) fn when_lost(&self, hook: impl Fn(&Worker, ProcessId) + 'static) {
        self.loss_hooks.borrow_mut().push(LossHook(Rc::new(hook)));
    }

    /// Takes in what the service thread has for this worker.
    #[cold]
    pub(super) fn take_notices(&self) -> Result<()> {
        self.attention_seen.set(self.process.attention(self.local));
        while let Some(notice) = self.process.next_notice(self.local) {
            if let Err(error) = self.take_notice(notice) {
                // There may be more, which must not be forgotten over this one.
                self.attention_seen.set(self.attention_seen.get().wrapping_sub(1));
                return Err(error);
            }
        }
        self.process.check_ended()
    }

    fn take_notice(&self, notice: Notice) -> Result<()> {
        match notice {
            Notice::RingOpened { ring, control, chunks } => {
                let (receiver, pieces) = self.process.receiver_of(control, &chunks)?;
                let source = self.process.source(ring.source as usize);
                self.inbox().open(ring.source as usize, source, receiver, pieces);
            }
            Notice::RingGrown { ring, chunk } => {
                let mapped = self.process.own_chunk(chunk)?;
                self.inbox().grow(ring.source as usize, mapped, chunk);
            }
            Notice::SenderOpened { .. }
            | Notice::SenderGrown { .. }
            | Notice::SenderRefused { .. }
            | Notice::FrameCredit { .. } => {
                let to = notice.receiver().expect("these name their receiver");
                if let Some(mut outbox) = self.outbox(to) {
                    self.process.update_outbox(&mut outbox, notice)?;
                    outbox.send_staged(&self.process)?;
                }
            }
            Notice::Frame { ring, position, bytes } => self.inbox().take_frame(ring, position, &bytes),
            Notice::Fetched { fetch, outcome } => self.go_on_with(fetch, outcome)?,
            Notice::Lost { process } => self.lose(process)?,
        }
        Ok(())
    }

    /// Runs a call whose buffer has come.
    fn go_on_with(&self, fetch: u64, outcome: Result<Vec<u8>>) -> Result<()> {
        let Some(go) = self.fetches.take(fetch) else { return Ok(()) };
        let handling = Handling::begin(&self.in_handler);
        let ended = catch_unwind(AssertUnwindSafe(|| go(self, outcome)));
        drop(handling);
        ended.map_err(|panic| Error::HandlerPanicked { from: Source::Worker(self.id), message: panic_message(&*panic) })
    }

    /// Runs what a lost process has still published here, and gives up what was meant for it.
    fn lose(&self, process: ProcessId) -> Result<()> {
        let shape = self.process.shape();
        let threads = (0..shape.callable_per_process() as usize).map(|local| shape.worker_at(process, local));
        let lane = (shape.callable() + process.number()) as usize;
        let mut ran = Ok(());
        for source in threads.clone().map(WorkerId::index).chain([lane]) {
            ran = ran.and(run_last(self, source));
            let pieces = self.inbox().close(source);
            self.process.retire(self.local, &pieces);
        }
        for to in threads {
            if let Some(outbox) = self.outboxes[to.index()].get() {
                outbox.borrow_mut().lose();
            }
        }
        let lost = |worker| self.process.place_of(worker).is_some_and(|(of, _)| of == process);
        self.replies().forget_lost(lost);
        // Only now, so that who waits for it finds all that it did.
        self.lost.borrow_mut().push(process);
        let hooks = self.loss_hooks.borrow().clone();
        hooks.iter().for_each(|hook| (hook.0)(self, process));
        ran
    }
}
