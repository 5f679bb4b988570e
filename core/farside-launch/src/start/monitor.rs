//! [`Monitor`]: questions of other threads of the launcher to the processes of its job.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use farside_fabric::ProcessId;
use farside_sys::net::Waker;

use crate::control::TOLD_BYTES_MAX;

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Why a process did not answer its launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The job has not begun.
    #[error("the job has not begun: ask again when all of its processes have joined")]
    NotBegun,
    /// The process has ended, or the job has no such process.
    #[error("the process has ended")]
    Ended,
    /// The answer was not in time.
    #[error("the process did not answer its launcher in time: look whether it is stopped")]
    Silent,
    /// The answer has more than 16 MiB.
    #[error("the answer of the process has more than 16 MiB: ask for less at a time")]
    TooLong,
}

/// Asks the processes of a job, from another thread than the one that [runs](super::Launch::run)
/// it. Clones are the same monitor. A process answers on its service thread, whatever its workers
/// do.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Tells those who ask of answers and ends.
    changed: Condvar,
    /// Tells the thread that runs the job of questions.
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    has_begun: bool,
    /// The processes that run, by number, with their numbers in the system.
    running: BTreeMap<ProcessId, u32>,
    /// The question of each process. It stays until the answer is there, or the process has ended:
    /// so there is one at a time.
    open: BTreeMap<ProcessId, Open>,
    /// The number of the last question.
    last: u32,
}

#[derive(Debug)]
struct Open {
    number: u32,
    /// The question, until it is passed on.
    question: Option<Vec<u8>>,
    answer: Result<Vec<u8>, AskError>,
    is_whole: bool,
    /// True if the one who asked has gone.
    is_abandoned: bool,
}

impl Monitor {
    /// Makes a monitor for one job.
    ///
    /// # Errors
    /// The system's error if there are too many open files.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), waker: Waker::new()? })))
    }

    /// Returns the number of a process in the system. `None` if it does not run.
    #[must_use]
    pub fn system_process(&self, process: ProcessId) -> Option<u32> {
        self.lock().running.get(&process).copied()
    }

    /// Asks a process, and waits for the answer until the deadline. The question and its answer are
    /// those of the crate `farside`. A question that the process does not know has an empty answer.
    ///
    /// *Cost*: two messages on the control link, and what the service thread of the process needs.
    ///
    /// # Errors
    /// [`AskError`].
    ///
    /// # Panics
    /// If the question has more than 4000 bytes.
    pub fn ask(&self, process: ProcessId, question: Vec<u8>, deadline: Instant) -> Result<Vec<u8>, AskError> {
        assert!(question.len() <= TOLD_BYTES_MAX, "a question fits into one message");
        let mut state = self.lock();
        let number = loop {
            if !state.has_begun {
                return Err(AskError::NotBegun);
            }
            if !state.running.contains_key(&process) {
                return Err(AskError::Ended);
            }
            if !state.open.contains_key(&process) {
                break state.last.wrapping_add(1);
            }
            state = self.wait(state, deadline).ok_or(AskError::Silent)?;
        };
        state.last = number;
        let (question, answer) = (Some(question), Ok(Vec::new()));
        state.open.insert(process, Open { number, question, answer, is_whole: false, is_abandoned: false });
        self.0.waker.wake();
        loop {
            match state.open.get(&process) {
                Some(open) if open.number == number && !open.is_whole => {}
                // The process has ended.
                _ => break,
            }
            match self.wait(state, deadline) {
                Some(now) => state = now,
                None => {
                    if let Some(open) = self.lock().open.get_mut(&process).filter(|open| open.number == number) {
                        open.is_abandoned = true;
                    }
                    return Err(AskError::Silent);
                }
            }
        }
        let is_own = state.open.get(&process).is_some_and(|open| open.number == number);
        let answer = if is_own { state.open.remove(&process) } else { None };
        // Others wait for their turn.
        self.0.changed.notify_all();
        answer.map_or(Err(AskError::Ended), |open| open.answer)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, deadline: Instant) -> Option<MutexGuard<'a, State>> {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        Some(self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The descriptor that becomes readable with a question.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.waker.as_fd()
    }

    /// The processes run.
    pub(super) fn started(&self, processes: impl Iterator<Item = (ProcessId, u32)>) {
        self.lock().running = processes.collect();
    }

    /// The processes have joined the job.
    pub(super) fn begun(&self) {
        self.lock().has_begun = true;
    }

    /// Takes the questions that were not passed on yet.
    pub(super) fn questions(&self) -> Vec<(ProcessId, u32, Vec<u8>)> {
        self.0.waker.reset();
        let mut state = self.lock();
        let taken =
            state.open.iter_mut().filter_map(|(process, open)| Some((*process, open.number, open.question.take()?)));
        taken.collect()
    }

    /// Takes a part of an answer.
    pub(super) fn told(&self, process: ProcessId, number: u32, bytes: &[u8], is_last: bool) {
        let mut state = self.lock();
        // Another number is none that was asked.
        let Some(open) = state.open.get_mut(&process).filter(|open| open.number == number) else { return };
        match &mut open.answer {
            Ok(answer) if answer.len() + bytes.len() <= ANSWER_BYTES_MAX => answer.extend_from_slice(bytes),
            answer => *answer = Err(AskError::TooLong),
        }
        open.is_whole = is_last;
        if is_last && open.is_abandoned {
            state.open.remove(&process);
        }
        if is_last {
            self.0.changed.notify_all();
        }
    }

    /// A process has ended.
    pub(super) fn ended(&self, process: ProcessId) {
        let mut state = self.lock();
        state.running.remove(&process);
        state.open.remove(&process);
        self.0.changed.notify_all();
    }

    /// The job is over.
    pub(super) fn over(&self) {
        let mut state = self.lock();
        state.running.clear();
        state.open.clear();
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use farside_testbed::deadline;
    use std::thread;

    use super::*;

    const ONE: ProcessId = ProcessId::new(1);

    fn question(monitor: &Monitor) -> (ProcessId, u32, Vec<u8>) {
        loop {
            if let Some(question) = monitor.questions().pop() {
                return question;
            }
            assert!(
                farside_sys::net::wait_ready(
                    &[farside_sys::net::Interest { fd: monitor.fd(), writable: false }],
                    Some(deadline())
                )
                .unwrap()[0]
            );
        }
    }

    #[test]
    fn a_process_is_asked_one_thing_at_a_time() {
        let monitor = Monitor::new().unwrap();
        let ask = |byte: u8| monitor.ask(ONE, vec![byte], deadline());
        assert_eq!(ask(0), Err(AskError::NotBegun));
        monitor.begun();
        assert_eq!(ask(0), Err(AskError::Ended));
        monitor.started([(ONE, 7)].into_iter());
        assert_eq!(monitor.system_process(ONE), Some(7));
        thread::scope(|scope| {
            let asked: Vec<_> = [1, 2].map(|byte| scope.spawn(move || (byte, ask(byte)))).into();
            for _ in 0..2 {
                let (process, number, question) = question(&monitor);
                assert!(monitor.questions().is_empty());
                monitor.told(process, number + 1, &[9], true);
                monitor.told(process, number, &question, false);
                monitor.told(process, number, &[5], true);
            }
            for asked in asked {
                let (byte, answer) = asked.join().unwrap();
                assert_eq!(answer, Ok(vec![byte, 5]));
            }
            let asked = scope.spawn(|| ask(3));
            question(&monitor);
            monitor.ended(ONE);
            assert_eq!(asked.join().unwrap(), Err(AskError::Ended));
        });
    }

    #[test]
    fn an_answer_that_is_too_long_is_refused_as_a_whole() {
        let monitor = Monitor::new().unwrap();
        monitor.begun();
        monitor.started([(ONE, 7)].into_iter());
        thread::scope(|scope| {
            let asked = scope.spawn(|| monitor.ask(ONE, vec![1], deadline()));
            let (_, number, _) = question(&monitor);
            monitor.told(ONE, number, &vec![0; ANSWER_BYTES_MAX], false);
            monitor.told(ONE, number, &[1], false);
            monitor.told(ONE, number, &[], true);
            assert_eq!(asked.join().unwrap(), Err(AskError::TooLong));
        });
    }

    #[test]
    fn a_late_answer_is_no_answer_to_the_next_question() {
        let monitor = Monitor::new().unwrap();
        monitor.begun();
        monitor.started([(ONE, 7)].into_iter());
        assert_eq!(monitor.ask(ONE, vec![1], farside_testbed::now()), Err(AskError::Silent));
        let (_, late, _) = question(&monitor);
        // It is not asked more while it has not answered.
        assert_eq!(monitor.ask(ONE, vec![2], farside_testbed::now()), Err(AskError::Silent));
        assert!(monitor.questions().is_empty());
        monitor.told(ONE, late, &[1], true);
        thread::scope(|scope| {
            let asked = scope.spawn(|| monitor.ask(ONE, vec![3], deadline()));
            let (_, number, _) = question(&monitor);
            monitor.told(ONE, number, &[3], true);
            assert_eq!(asked.join().unwrap(), Ok(vec![3]));
            let asked = scope.spawn(|| monitor.ask(ONE, vec![4], deadline()));
            question(&monitor);
            monitor.over();
            assert_eq!(asked.join().unwrap(), Err(AskError::Ended));
        });
    }
}
