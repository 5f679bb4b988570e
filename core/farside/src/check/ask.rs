//! Asking the owner of memory before an access, and answering other processes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside_fabric::clock::lock;
use farside_fabric::{ProcessId, WorkerId};

use super::Checks;
use super::epochs::{AccessState, Lifetime, Standing};
use super::message::{self, CheckMessage};
use super::report::{Access, AccessConflict};
use super::shadow::Record;
use crate::error::{Error, Result};
use crate::memory::GlobalAddress;
use crate::runtime::observer::{AccessKind, Accessor, Part};
use crate::runtime::process::Process;

/// The longest sleep of a thread that waits for an answer. An answer wakes it; a loss does not.
const NAP_MAX: Duration = Duration::from_millis(10);

/// The place at which a thread waits for an answer. A thread asks one question at a time.
#[derive(Debug, Default)]
pub(super) struct Desk {
    asked: Mutex<Asked>,
    /// Incremented by the thread that takes the answer in; the asking thread sleeps on it.
    answers: AtomicU32,
}

#[derive(Debug, Default)]
struct Asked {
    /// The number of questions so far.
    count: u32,
    /// The process that was asked last. Answers of others are dropped.
    of: Option<ProcessId>,
    answer: Option<Answer>,
}

#[derive(Debug)]
enum Answer {
    Entered,
    Met(Record),
    State(AccessState),
}

impl Checks {
    /// Refuses an access that conflicts with an open one. Otherwise opens it until the worker ends
    /// its accesses.
    pub(super) fn check_access(&self, me: Accessor<'_>, part: Part) -> Result<()> {
        if part.touch.kind == AccessKind::AtomicChange {
            // A thread that sees the change knows of everything before it.
            me.end_accesses();
        }
        let lifetime = Lifetime::Epoch(self.epochs.of(me.thread_index()));
        self.open_access(me, Record::new(me, part, lifetime), &[], me.now() + me.default_deadline())
    }

    /// Opens an access that is ordered `after` some operations of this worker. Waits for the
    /// owner's service thread and for that of the process that made an earlier access, but for no
    /// worker, so handlers may call it, too.
    pub(super) fn open_access(&self, me: Accessor<'_>, access: Record, after: &[u64], deadline: Instant) -> Result<()> {
        if access.memory.bytes == 0 {
            return Ok(());
        }
        let mut ended = None;
        loop {
            let standing = self.epochs.standing(me.thread_index());
            let Some(earlier) = self.enter_at_owner(me, &access, standing, ended, deadline)? else {
                return Ok(());
            };
            if earlier.lifetime == Lifetime::Released {
                return Err(conflict(me, access, earlier, false));
            }
            let is_own = earlier.worker == access.worker;
            match self.state_of(me, &earlier, deadline)? {
                AccessState::Ended => {}
                // It is this worker's own and has completed: the owner does not know that yet.
                AccessState::Open | AccessState::Told { .. } if is_own => {}
                AccessState::Told { epoch } if self.may_be_known(me, earlier.worker, epoch, deadline)? => {}
                // It ends before this one begins.
                AccessState::InUse
                    if is_own
                        && matches!(earlier.lifetime, Lifetime::Operation(operation) if after.contains(&operation)) => {
                }
                state => return Err(conflict(me, access, earlier, state == AccessState::InUse)),
            }
            ended = Some((earlier.worker, earlier.lifetime));
            // Other workers may keep making accesses that this one meets, and that end.
            if me.now() >= deadline {
                return Err(asked_too_long(me));
            }
        }
    }

    /// Asks the owner to record an access. Returns the earlier access that it conflicts with, if
    /// the owner knows of any.
    fn enter_at_owner(
        &self,
        me: Accessor<'_>,
        access: &Record,
        standing: Standing,
        ended: Option<(u32, Lifetime)>,
        deadline: Instant,
    ) -> Result<Option<Record>> {
        let owner = access.memory.process();
        if owner == me.process() {
            return Ok(self.enter(access.clone(), &standing, ended));
        }
        let ask = |request| CheckMessage::Enter { request, standing, ended, access: access.clone() };
        match self.ask(me, owner, deadline, ask) {
            Ok(Answer::Met(earlier)) => Ok(Some(earlier)),
            Ok(Answer::Entered | Answer::State(_)) => Ok(None),
            Err(error) => {
                // The owner may have recorded the access, which is not made.
                me.end_accesses();
                Err(error)
            }
        }
    }

    /// Asks the process of a worker for the state of an access of that worker.
    fn state_of(&self, me: Accessor<'_>, earlier: &Record, deadline: Instant) -> Result<AccessState> {
        // An owner names workers that have asked it. A worker that does not exist has nothing open.
        match me.process_handle().job.place_of(WorkerId::new(earlier.worker)) {
            Some((of, _)) => self.state_at(me, of, earlier.worker, earlier.lifetime, deadline),
            None => Ok(AccessState::Ended),
        }
    }

    /// Returns whether the checker must assume that this worker knows of an access: either it does,
    /// or another worker knows of it and has since sent a message that does not carry what its
    /// sender knows.
    fn may_be_known(&self, me: Accessor<'_>, worker: u32, epoch: u64, deadline: Instant) -> Result<bool> {
        if self.epochs.standing(me.thread_index()).known.has(worker, epoch) {
            // The owner has not learned yet that an operation has completed in this epoch.
            return Ok(true);
        }
        for of in (0..me.process_handle().shape().processes).map(ProcessId::new) {
            let state = self.state_at(me, of, worker, Lifetime::Epoch(epoch), deadline)?;
            if state == AccessState::Ended {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks a process for the state of an access of any worker.
    fn state_at(
        &self,
        me: Accessor<'_>,
        of: ProcessId,
        worker: u32,
        lifetime: Lifetime,
        deadline: Instant,
    ) -> Result<AccessState> {
        if of == me.process() {
            return Ok(self.state_here(me.process_handle(), worker, lifetime));
        }
        let ask = |request| CheckMessage::Ask { request, worker, lifetime };
        match self.ask(me, of, deadline, ask) {
            Ok(Answer::State(state)) => Ok(state),
            // No other process can learn what a lost worker did, or whom it notified.
            Err(Error::PeerLost { process, .. }) if process == of => Ok(AccessState::Ended),
            Ok(Answer::Entered | Answer::Met(_)) => Ok(AccessState::Ended),
            Err(error) => Err(error),
        }
    }

    /// Asks a service thread, and waits for its answer.
    fn ask(
        &self,
        me: Accessor<'_>,
        of: ProcessId,
        deadline: Instant,
        question: impl FnOnce(u64) -> CheckMessage,
    ) -> Result<Answer> {
        let process = me.process_handle();
        let desk = &self.desks[me.thread_index()];
        let count = {
            let mut asked = lock(&desk.asked);
            asked.count = asked.count.wrapping_add(1);
            (asked.of, asked.answer) = (Some(of), None);
            asked.count
        };
        let request = (me.thread_index() as u64) << 32 | u64::from(count);
        if let Some(lost) = process.losses.lost(of) {
            return Err(lost);
        }
        message::send(process, of, &question(request))?;
        loop {
            // SYNC: acquire, for the release in `answer`. Loaded before the answer is looked for,
            // so that an answer that comes later ends the sleep.
            let seen = desk.answers.load(Ordering::Acquire);
            if let Some(answer) = lock(&desk.asked).answer.take() {
                return Ok(answer);
            }
            if let Some(lost) = process.losses.lost(of) {
                return Err(lost);
            }
            process.orders.check_ended()?;
            let left = deadline.saturating_duration_since(me.now());
            if left.is_zero() {
                return Err(asked_too_long(me));
            }
            if process.links.polls {
                // The service thread takes the answer in.
                process.transport().stop_polling();
            }
            process.clock().sleep(&desk.answers, seen, left.min(NAP_MAX));
        }
    }

    /// Returns the state of an access of any worker, as far as this process knows.
    fn state_here(&self, process: &Process, worker: u32, lifetime: Lifetime) -> AccessState {
        let state = match process.job.place_of(WorkerId::new(worker)) {
            Some((of, local)) if of == process.id() => self.epochs.state_of(local, lifetime),
            _ => match lifetime {
                Lifetime::Epoch(epoch) => AccessState::Told { epoch },
                Lifetime::Operation(_) | Lifetime::Released => AccessState::Ended,
            },
        };
        match state {
            AccessState::Told { epoch } if self.epochs.is_published(worker, epoch) => AccessState::Ended,
            state => state,
        }
    }

    fn enter(&self, access: Record, standing: &Standing, ended: Option<(u32, Lifetime)>) -> Option<Record> {
        let mut shadow = lock(&self.shadow);
        if let Some((worker, lifetime)) = ended {
            shadow.end(worker, lifetime);
        }
        shadow.enter(access, standing).cloned()
    }

    /// Notes an answer, if a thread waits for it from that process.
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

    /// Answers a question of another process, or notes its answer.
    pub(super) fn take_message(&self, process: &Process, from: ProcessId, message: CheckMessage) {
        let is_its = |worker| process.job.is_worker_of(worker, from);
        let answer = match message {
            CheckMessage::Enter { request, standing, ended, access } if is_its(access.worker) && access.is_valid() => {
                match self.enter(access, &standing, ended) {
                    None => CheckMessage::Entered { request },
                    Some(earlier) => CheckMessage::Met { request, earlier },
                }
            }
            CheckMessage::Ask { request, worker, lifetime } => {
                CheckMessage::State { request, state: self.state_here(process, worker, lifetime) }
            }
            CheckMessage::Completed { worker, operation, epoch } if is_its(worker) => {
                return lock(&self.shadow).complete(worker, operation, epoch);
            }
            CheckMessage::Ended { worker, operation } if is_its(worker) => {
                return lock(&self.shadow).end(worker, Lifetime::Operation(operation));
            }
            // About a worker of a third process, or malformed: no process of this job sends that.
            CheckMessage::Enter { .. } | CheckMessage::Completed { .. } | CheckMessage::Ended { .. } => return,
            CheckMessage::Entered { request } => return self.answer(process, from, request, Answer::Entered),
            CheckMessage::Met { request, earlier } => {
                return self.answer(process, from, request, Answer::Met(earlier));
            }
            CheckMessage::State { request, state } => {
                return self.answer(process, from, request, Answer::State(state));
            }
        };
        // A process that is lost by now needs no answer.
        let _ = message::send(process, from, &answer);
    }
}

#[cold]
fn asked_too_long(me: Accessor<'_>) -> Error {
    let doing = "asking another process whether an access conflicts with others";
    Error::deadline(doing, me.default_deadline())
}

#[cold]
fn conflict(me: Accessor<'_>, here: Record, there: Record, in_use: bool) -> Error {
    let key = here.memory.key;
    let begin = here.memory.offset.max(there.memory.offset);
    let bytes = here.memory.end().min(there.memory.end()).saturating_sub(begin);
    // The addresses of starter memory begin at the program's part of it.
    let before = if key.slot == 0 { me.process_handle().home().layout().starter() as u64 } else { 0 };
    let address = GlobalAddress::in_region(key, begin.saturating_sub(before)).unwrap_or_default();
    let access = |record: Record| Access { worker: WorkerId::new(record.worker), kind: record.kind, site: record.site };
    AccessConflict { address, bytes, here: access(here), there: access(there), in_use }.into()
}

#[cfg(test)]
mod tests {
    use farside_fabric::RemoteKey;

    use super::super::checks_of;
    use super::*;
    use crate::Worker;
    use crate::runtime::extent::Extent;
    use crate::runtime::observer::Touch;

    #[test]
    fn only_the_process_that_was_asked_answers() {
        let body = |me: &Worker| -> Result<()> {
            let process = me.process_handle();
            let checks = checks_of(process).expect("accesses are checked");
            let desk = &checks.desks[0];
            *lock(&desk.asked) = Asked { count: 7, of: Some(ProcessId::new(1)), answer: None };
            let answers = |from: u32, message| {
                checks.take_message(process, ProcessId::new(from), message);
                lock(&desk.asked).answer.take().is_some()
            };
            assert!(!answers(2, CheckMessage::Entered { request: 7 }), "from a third process");
            assert!(!answers(0, CheckMessage::State { request: 7, state: AccessState::Ended }), "from itself");
            assert!(!answers(1, CheckMessage::Entered { request: 6 }), "to an earlier question");
            assert!(!answers(1, CheckMessage::Entered { request: 9 << 32 | 7 }), "to a thread that does not exist");
            assert!(answers(1, CheckMessage::Entered { request: 7 }));
            Ok(())
        };
        crate::Simulation::new(1, 1, 1).check_accesses(true).run(body).unwrap().verdict.unwrap();
    }

    /// An access that keeps meeting others that have ended stops at its deadline.
    #[test]
    fn repeated_meetings_end_at_the_deadline() {
        let body = |me: &Worker| -> Result<()> {
            let checks = checks_of(me.process_handle()).expect("accesses are checked");
            let memory = Extent { key: RemoteKey::starter(me.process(), 4096), offset: 0, bytes: 8 };
            let part = Part { memory, touch: Touch::here(AccessKind::Write) };
            let here = Accessor::of(me);
            let access = |lifetime| Record::new(here, part, lifetime);
            // Of workers that do not exist, so that none of them is open.
            for worker in 10..20 {
                let earlier = Record { worker, ..access(Lifetime::Operation(0)) };
                lock(&checks.shadow).force(earlier);
            }
            let late = checks.open_access(here, access(Lifetime::Epoch(0)), &[], me.now());
            assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
            checks.open_access(here, access(Lifetime::Epoch(0)), &[], me.now() + Duration::from_secs(1))
        };
        crate::Simulation::new(1, 1, 1).check_accesses(true).run(body).unwrap().verdict.unwrap();
    }
}
