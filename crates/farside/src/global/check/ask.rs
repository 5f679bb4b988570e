//! Asking the owner of memory before an access, and answering others.

use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, RemoteKey, WorkerId};

use super::epochs::{Life, Standing};
use super::message::CheckMessage;
use super::report::{Access, AccessConflict, AccessKind, Site};
use super::shadow::Record;
use super::{Checks, Span};
use crate::error::{Error, Result};
use crate::global::GlobalAddress;
use crate::invoke::ring::message::SetupMessage;
use crate::memory::RemoteMemory;
use crate::runtime::process::Process;
use crate::runtime::worker::Worker;

/// The longest sleep of one who waits for an answer. It is woken for that, and otherwise sees that the other is lost.
const NAP_MAX: Duration = Duration::from_millis(10);

/// What is done at an address, and where in the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) kind: AccessKind,
    pub(crate) site: &'static Location<'static>,
}

impl Touch {
    /// At the caller's place in the program.
    #[track_caller]
    #[inline]
    pub(crate) fn here(kind: AccessKind) -> Self {
        Self { kind, site: Location::caller() }
    }
}

/// Where a thread waits for an answer. It asks one thing at a time.
#[derive(Debug, Default)]
pub(super) struct Desk {
    asked: Mutex<Asked>,
    /// Counted up when the answer is here, by the thread that took it in; its thread sleeps on it.
    answers: AtomicU32,
}

#[derive(Debug, Default)]
struct Asked {
    /// How often it has asked.
    count: u32,
    /// Whom it asked last: nobody else's answer counts.
    of: Option<ProcessId>,
    answer: Option<Answer>,
}

#[derive(Debug)]
enum Answer {
    Entered,
    Met(Record),
    Told(Standing),
}

impl Worker {
    /// Refuses an access that conflicts with an open one, and otherwise opens it until this worker tells somebody something. `offset` is
    /// where in the region the bytes begin that `address` names, if they have one.
    pub(crate) fn check_access(&self, key: RemoteKey, offset: u64, bytes: usize, touch: Touch) -> Result<()> {
        let Some(checks) = self.process_handle().checks() else { return Ok(()) };
        if touch.kind == AccessKind::AtomicChange {
            // Whoever sees the change knows of what was before it.
            self.end_accesses();
        }
        let life = Life::Epoch(checks.epochs.of(self.thread_index()));
        let access = self.record_of(Span::in_region(key, offset, bytes), touch, life);
        self.open_access(checks, key, access, &[], self.now() + self.default_deadline())
    }

    /// Refuses to release memory that another has open. Otherwise says, in a checked job, who releases it: for its owner, to name that to whoever
    /// still accesses it.
    pub(crate) fn check_release(&self, memory: &RemoteMemory, touch: Touch) -> Result<Option<Record>> {
        if self.process_handle().checks().is_none() {
            return Ok(None);
        }
        let bytes = memory.bytes() as usize;
        // By a handle that is stale nothing is released: its owner says so.
        if memory.check(self).is_ok() {
            self.check_access(memory.key, memory.offset, bytes, touch)?;
        }
        Ok(Some(self.record_of(Span::in_region(memory.key, memory.offset, bytes), touch, Life::Released)))
    }

    pub(super) fn record_of(&self, span: Span, touch: Touch, life: Life) -> Record {
        Record { span, worker: self.id().number(), kind: touch.kind, life, site: Site::of(touch.site) }
    }

    /// Waits for the owner's service thread, and for that of the process whose worker made an earlier access; for nobody's worker. So it is
    /// done in handlers, too. The access is ordered `after` some operations of this worker.
    pub(super) fn open_access(
        &self,
        checks: &Checks,
        key: RemoteKey,
        access: Record,
        after: &[u64],
        deadline: Instant,
    ) -> Result<()> {
        if access.span.bytes == 0 {
            return Ok(());
        }
        let mut ended = None;
        loop {
            let epoch = checks.epochs.of(self.thread_index());
            let Some(earlier) = self.enter(checks, key.process, &access, epoch, ended, deadline)? else {
                return Ok(());
            };
            if earlier.life == Life::Released {
                return Err(self.conflict(key, access, earlier, false));
            }
            let is_own = earlier.worker == access.worker;
            match self.standing(checks, &earlier, deadline)? {
                Standing::Ended => {}
                // It is this worker's own and has completed: what the owner knows of it is old.
                Standing::Open if is_own => {}
                // It ends before this one begins.
                Standing::InUse
                    if is_own && matches!(earlier.life, Life::Operation(operation) if after.contains(&operation)) => {}
                standing => return Err(self.conflict(key, access, earlier, standing == Standing::InUse)),
            }
            ended = Some((earlier.worker, earlier.life));
            // Others may go on to make accesses that are met, and that end.
            if self.now() >= deadline {
                return Err(self.asked_too_long());
            }
        }
    }

    #[cold]
    fn asked_too_long(&self) -> Error {
        let doing = "asking another process whether an access conflicts with others";
        Error::Deadline { doing, after: self.default_deadline() }
    }

    /// Asks the owner to write an access down. The earlier one that it conflicts with, if the owner knows of any.
    fn enter(
        &self,
        checks: &Checks,
        owner: ProcessId,
        access: &Record,
        epoch: u64,
        ended: Option<(u32, Life)>,
        deadline: Instant,
    ) -> Result<Option<Record>> {
        if owner == self.process() {
            return Ok(checks.enter(access.clone(), epoch, ended));
        }
        let ask = |request| CheckMessage::Enter { request, epoch, ended, access: access.clone() };
        match self.ask(checks, owner, deadline, ask) {
            Ok(Answer::Met(earlier)) => Ok(Some(earlier)),
            Ok(Answer::Entered | Answer::Told(_)) => Ok(None),
            Err(error) => {
                // It may be written down yet, and is not made.
                self.end_accesses();
                Err(error)
            }
        }
    }

    /// Asks the process of a worker how it stands with an access of it.
    fn standing(&self, checks: &Checks, earlier: &Record, deadline: Instant) -> Result<Standing> {
        let process = self.process_handle();
        // An owner names workers that have asked it: any other has nothing open.
        let Some((of, local)) = process.place_of(WorkerId::new(earlier.worker)) else { return Ok(Standing::Ended) };
        if of == process.id() {
            return Ok(checks.epochs.standing(local, earlier.life));
        }
        let ask = |request| CheckMessage::Ask { request, worker: earlier.worker, life: earlier.life };
        match self.ask(checks, of, deadline, ask) {
            Ok(Answer::Told(standing)) => Ok(standing),
            // Nobody will learn any more what it did.
            Err(Error::PeerLost { process, .. }) if process == of => Ok(Standing::Ended),
            Ok(Answer::Entered | Answer::Met(_)) => Ok(Standing::Ended),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn conflict(&self, key: RemoteKey, here: Record, there: Record, in_use: bool) -> Error {
        let begin = here.span.offset.max(there.span.offset);
        let bytes = here.span.end().min(there.span.end()).saturating_sub(begin);
        // What is the program's of starter memory has addresses of its own.
        let before = if key.slot == 0 { self.process_handle().home().layout().starter() as u64 } else { 0 };
        let address = GlobalAddress::in_region(key, begin.saturating_sub(before)).unwrap_or_default();
        let access =
            |record: Record| Access { worker: WorkerId::new(record.worker), kind: record.kind, site: record.site };
        let conflict = AccessConflict { address, bytes, here: access(here), there: access(there), in_use };
        Error::AccessConflict(Box::new(conflict))
    }

    /// Asks a service thread, and waits for its answer.
    fn ask(
        &self,
        checks: &Checks,
        of: ProcessId,
        deadline: Instant,
        question: impl FnOnce(u64) -> CheckMessage,
    ) -> Result<Answer> {
        let process = self.process_handle();
        let desk = &checks.desks[self.thread_index()];
        let count = {
            let mut asked = lock(&desk.asked);
            asked.count = asked.count.wrapping_add(1);
            (asked.of, asked.answer) = (Some(of), None);
            asked.count
        };
        let request = (self.thread_index() as u64) << 32 | u64::from(count);
        if let Some(lost) = process.lost(of) {
            return Err(lost);
        }
        process.send_setup(of, &SetupMessage::Check(Box::new(question(request))))?;
        loop {
            // SYNC: acquire, for the release in `answer`; and before the look, so that what comes after it is not slept through.
            let seen = desk.answers.load(Ordering::Acquire);
            if let Some(answer) = lock(&desk.asked).answer.take() {
                return Ok(answer);
            }
            if let Some(lost) = process.lost(of) {
                return Err(lost);
            }
            process.check_ended()?;
            let left = deadline.saturating_duration_since(self.now());
            if left.is_zero() {
                return Err(self.asked_too_long());
            }
            if process.polls() {
                // The service thread takes the answer in.
                process.transport().stop_polling();
            }
            process.clock().sleep(&desk.answers, seen, left.min(NAP_MAX));
        }
    }
}

impl Checks {
    fn enter(&self, access: Record, epoch: u64, ended: Option<(u32, Life)>) -> Option<Record> {
        let mut shadow = lock(&self.shadow);
        if let Some((worker, life)) = ended {
            shadow.end(worker, life);
        }
        shadow.enter(access, epoch).cloned()
    }

    /// Notes an answer, if somebody waits for it from there.
    fn answer(&self, process: &Process, from: ProcessId, request: u64, answer: Answer) {
        let Some(desk) = self.desks.get((request >> 32) as usize) else { return };
        {
            let mut asked = lock(&desk.asked);
            if asked.count != request as u32 || asked.of != Some(from) {
                return;
            }
            asked.answer = Some(answer);
        }
        // SYNC: release, for the acquire in `ask`.
        desk.answers.fetch_add(1, Ordering::Release);
        process.clock().wake(&desk.answers);
    }
}

impl Process {
    /// Does what another process asks about accesses, or notes what it answers.
    pub(crate) fn take_check_message(&self, from: ProcessId, message: CheckMessage) {
        // Processes of one job are all checked, or none.
        let Some(checks) = self.checks() else { return };
        let is_its = |worker| self.is_worker_of(worker, from);
        let answer = match message {
            CheckMessage::Enter { request, epoch, ended, access } if is_its(access.worker) => {
                match checks.enter(access, epoch, ended) {
                    None => CheckMessage::Entered { request },
                    Some(earlier) => CheckMessage::Met { request, earlier },
                }
            }
            CheckMessage::Ask { request, worker, life } => {
                let place = self.place_of(WorkerId::new(worker)).filter(|(of, _)| *of == self.id());
                let standing = place.map_or(Standing::Ended, |(_, local)| checks.epochs.standing(local, life));
                CheckMessage::Told { request, standing }
            }
            CheckMessage::Completed { worker, operation, epoch } if is_its(worker) => {
                return lock(&checks.shadow).complete(worker, operation, epoch);
            }
            CheckMessage::Ended { worker, operation } if is_its(worker) => {
                return lock(&checks.shadow).end(worker, Life::Operation(operation));
            }
            // Of somebody else's worker: no process of this job sends that.
            CheckMessage::Enter { .. } | CheckMessage::Completed { .. } | CheckMessage::Ended { .. } => return,
            CheckMessage::Entered { request } => return checks.answer(self, from, request, Answer::Entered),
            CheckMessage::Met { request, earlier } => return checks.answer(self, from, request, Answer::Met(earlier)),
            CheckMessage::Told { request, standing } => {
                return checks.answer(self, from, request, Answer::Told(standing));
            }
        };
        // Who is gone by now needs no answer.
        let _ = self.send_setup(from, &SetupMessage::Check(Box::new(answer)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that answers what another was asked is not heard.
    #[test]
    fn only_who_was_asked_answers() {
        let body = |me: &Worker| -> Result<()> {
            let process = me.process_handle();
            let desk = &process.checks().expect("it is checked").desks[0];
            *lock(&desk.asked) = Asked { count: 7, of: Some(ProcessId::new(1)), answer: None };
            let answers = |from: u32, message| {
                process.take_check_message(ProcessId::new(from), message);
                lock(&desk.asked).answer.take().is_some()
            };
            assert!(!answers(2, CheckMessage::Entered { request: 7 }), "another's");
            assert!(!answers(0, CheckMessage::Told { request: 7, standing: Standing::Ended }), "its own");
            assert!(!answers(1, CheckMessage::Entered { request: 6 }), "to what was asked before");
            assert!(!answers(1, CheckMessage::Entered { request: 9 << 32 | 7 }), "to no thread");
            assert!(answers(1, CheckMessage::Entered { request: 7 }));
            Ok(())
        };
        crate::Simulation::new(1, 1, 1).check_accesses(true).run(body).unwrap().verdict.unwrap();
    }

    /// However many accesses are met that have ended, it is over with the deadline.
    #[test]
    fn what_is_met_again_and_again_has_a_deadline() {
        let body = |me: &Worker| -> Result<()> {
            let process = me.process_handle();
            let checks = process.checks().expect("it is checked");
            let key = RemoteKey::starter(me.process(), 4096);
            let touch = Touch::here(AccessKind::Write);
            let access = |life| me.record_of(Span::in_region(key, 0, 8), touch, life);
            // Of workers that there are not, so that nothing of them is open.
            for worker in 10..20 {
                let earlier = Record { worker, ..access(Life::Operation(0)) };
                lock(&checks.shadow).force(earlier);
            }
            let late = me.open_access(checks, key, access(Life::Epoch(0)), &[], me.now());
            assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
            me.open_access(checks, key, access(Life::Epoch(0)), &[], me.now() + Duration::from_secs(1))
        };
        crate::Simulation::new(1, 1, 1).check_accesses(true).run(body).unwrap().verdict.unwrap();
    }
}
