//! The loss of peers: how a process learns of it, and what an error says about it.
//!
//! A peer's end shows in two ways. Its connections end, and the coordinator says that it is lost,
//! and why. The connections often come first. Then an error waits a moment for the cause.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use farside_fabric::clock::{Clock, lock};
use farside_fabric::{FabricError, ProcessId};

use crate::error::Error;
use crate::runtime::process::Process;

/// The time that the coordinator has to say why a peer's connection ended. It also suffices to
/// notice that the link with the coordinator itself broke.
const WORD_MARGIN: Duration = Duration::from_secs(1);
/// The sleep between two checks for the coordinator's word about a lost peer.
const WORD_NAP: Duration = Duration::from_millis(1);

/// Why a peer was given up.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// The process that failed first: the peer itself, or one because of which it failed.
    pub(crate) root: ProcessId,
    /// The end of `root`, as the end of a sentence about it.
    pub(crate) why: String,
}

impl Loss {
    /// Returns the loss of a process of which only a symptom is known.
    fn of(process: ProcessId, symptom: &str) -> Self {
        Self { root: process, why: format!("was lost: {symptom}") }
    }

    pub(crate) fn into_error(self, process: ProcessId) -> Error {
        Error::PeerLost { process, root: self.root, why: self.why }
    }
}

/// The loss from which those of the last moments probably followed, with its time.
#[derive(Debug, Default)]
struct RecentLoss(Mutex<Option<(Instant, Loss)>>);

impl RecentLoss {
    /// The time in which a loss has others as its consequence.
    const SPAN: Duration = WORD_MARGIN.saturating_mul(2);

    /// Notes a loss, unless it follows another one.
    fn note(&self, now: Instant, loss: Loss) {
        let mut recent = lock(&self.0);
        if recent.as_ref().is_none_or(|(at, _)| now > *at + Self::SPAN) {
            *recent = Some((now, loss));
        }
    }

    fn at(&self, now: Instant) -> Option<Loss> {
        lock(&self.0).as_ref().filter(|(at, _)| now <= *at + Self::SPAN).map(|(_, loss)| loss.clone())
    }
}

/// The lost peers of a process.
#[derive(Debug)]
pub struct LostPeers {
    clock: Clock,
    /// Why each peer was given up, if it was.
    given_up: Box<[OnceLock<Loss>]>,
    /// True for each peer that the coordinator has reported as lost.
    confirmed: Box<[AtomicBool]>,
    /// The peers that an error has named as lost, perhaps before they were given up. Written by the
    /// thread that makes the error, and read by every check for a lost process. The flag says
    /// nothing about what the peer did before.
    named: Box<[AtomicBool]>,
    recent: RecentLoss,
    /// Peers whose connection ended, with the time by which the coordinator should have said why.
    suspects: Mutex<Vec<(ProcessId, Instant)>>,
    /// The number of losses. A peer counts when it is given up, and when an error names it.
    count: AtomicU32,
    /// The number of processes that were given up and to which no shared ring leads any more.
    unsendable: AtomicU32,
}

impl LostPeers {
    pub(super) fn new(clock: Clock, processes: usize) -> Self {
        let flags = || (0..processes).map(|_| AtomicBool::new(false)).collect();
        Self {
            clock,
            given_up: (0..processes).map(|_| OnceLock::new()).collect(),
            confirmed: flags(),
            named: flags(),
            recent: RecentLoss::default(),
            suspects: Mutex::default(),
            count: AtomicU32::new(0),
            unsendable: AtomicU32::new(0),
        }
    }

    /// Returns the error for the program if a process is lost.
    #[inline]
    pub fn lost(&self, process: ProcessId) -> Option<Error> {
        self.is_lost(process).then(|| self.gone(process))
    }

    /// Returns whether a process is lost: it was given up, or an error has named it. To the program
    /// it then stays lost.
    #[inline]
    pub fn is_lost(&self, process: ProcessId) -> bool {
        self.is_given_up(process) || self.is_named(process)
    }

    /// Returns whether the job, or this process on its own, has given up a process. Until then,
    /// what it had sent still counts.
    #[inline]
    pub(crate) fn is_given_up(&self, process: ProcessId) -> bool {
        self.given_up.get(process.index()).is_some_and(|why| why.get().is_some())
    }

    /// Notes that the coordinator has reported a process as lost.
    pub(crate) fn confirm(&self, process: ProcessId) {
        if let Some(confirmed) = self.confirmed.get(process.index()) {
            confirmed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the coordinator has reported a process as lost.
    pub(crate) fn is_confirmed(&self, process: ProcessId) -> bool {
        self.confirmed[process.index()].load(Ordering::Relaxed)
    }

    /// Returns the number of processes that were given up and to which no shared ring leads any
    /// more.
    pub(crate) fn unsendable(&self) -> u32 {
        self.unsendable.load(Ordering::Acquire)
    }

    /// Returns the processes that were given up.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let peers = if self.count() == 0 { 0 } else { self.given_up.len() as u32 };
        (0..peers).map(ProcessId::new).filter(|peer| self.is_given_up(*peer))
    }

    /// Returns whether an error has named a process as lost to the program.
    #[inline]
    pub(crate) fn is_named(&self, process: ProcessId) -> bool {
        self.named.get(process.index()).is_some_and(|named| named.load(Ordering::Relaxed))
    }

    /// Returns the number of losses so far. Compare it with a saved value to detect a new loss with
    /// one load.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the error for a lost process, with the reason if it is known, and marks the process
    /// as named lost.
    #[cold]
    pub(crate) fn gone(&self, process: ProcessId) -> Error {
        if let Some(named) = self.named.get(process.index())
            && !named.load(Ordering::Relaxed)
        {
            named.store(true, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Release);
        }
        // A peer that no longer answers has probably failed because of a loss just before.
        let known = self.given_up.get(process.index()).and_then(OnceLock::get).cloned();
        let known = known.or_else(|| self.recent.at(self.clock.now()));
        known.unwrap_or_else(|| Loss::of(process, "it no longer answers")).into_error(process)
    }

    /// Gives up a process. Returns whether it was not given up before.
    fn give_up(&self, process: ProcessId, loss: Loss) -> bool {
        let recent = loss.clone();
        let is_new = self.given_up.get(process.index()).is_some_and(|lost| lost.set(loss).is_ok());
        if is_new {
            self.recent.note(self.clock.now(), recent);
            self.count.fetch_add(1, Ordering::Release);
        }
        is_new
    }

    /// Takes out the suspects that were given up meanwhile, of which the coordinator has said
    /// nothing in time, or can say nothing any more because the job `is_over`.
    fn take_due(&self, is_over: bool) -> Vec<ProcessId> {
        let now = self.clock.now();
        let is_due = |(process, until): &mut (_, _)| is_over || now >= *until || self.is_given_up(*process);
        lock(&self.suspects).extract_if(.., is_due).map(|(process, _)| process).collect()
    }
}

impl Process {
    /// Converts a transport error. Reports a disconnected peer as a lost process, unless the job
    /// has ended.
    pub fn explain(&self, error: FabricError) -> Error {
        match error {
            FabricError::Disconnected { process } => match self.orders.check_ended() {
                Ok(()) => self.losses.gone(process),
                Err(ended) => ended,
            },
            other => other.into(),
        }
    }

    /// Notes that the connection with a peer ended. The coordinator should soon say that the peer
    /// is lost, and why. Otherwise [`give_up_suspects`](Self::give_up_suspects) gives it up.
    pub(crate) fn suspect(&self, process: ProcessId) {
        lock(&self.losses.suspects).push((process, self.clock().now() + WORD_MARGIN));
        // The service thread must see the new deadline, and this may be another thread.
        self.transport().wake();
    }

    /// Gives up the suspects of which the coordinator has said nothing in time, or can say nothing
    /// any more. Returns when to call this again.
    pub(crate) fn give_up_suspects(&self) -> Option<Instant> {
        for process in self.losses.take_due(self.orders.is_finished() || self.orders.has_ended()) {
            self.lose(process, Loss::of(process, "its connection ended"));
        }
        lock(&self.losses.suspects).iter().map(|(_, until)| *until).min()
    }

    /// Returns what was heard about a loss: why the peer was given up, or that this process was cut
    /// off from the coordinator.
    fn heard_of(&self, process: ProcessId) -> Option<Error> {
        let cut_off = self.orders.check_ended().err().filter(|_| !self.orders.control.is_heard());
        cut_off.or_else(|| self.losses.is_given_up(process).then(|| self.losses.gone(process)))
    }

    /// Returns the error that counts: with the cause of the loss that it names. The coordinator
    /// says the cause, so this thread waits for it, for `patience` and [`WORD_MARGIN`] at most. The
    /// caller holds no lock.
    #[cold]
    pub(crate) fn with_its_root(&self, error: Error, patience: Duration) -> Error {
        with_its_root(self.clock(), WORD_MARGIN.min(patience), |lost| self.heard_of(lost), error)
    }

    /// Notes that a process is lost, and tells the transport, the rooms and all threads.
    pub(crate) fn lose(&self, process: ProcessId, loss: Loss) {
        if process == self.id() || !self.losses.give_up(process, loss) {
            return;
        }
        self.transport().forget(process);
        self.calls.shared_rings.lose(process);
        // Only now: a thread that is not a worker has sent nothing to the lost process since.
        self.losses.unsendable.fetch_add(1, Ordering::Release);
        self.rooms.lose(self, process);
        self.mailboxes.notify_of_loss(process);
    }
}

/// Returns the error that counts after a worker failed with `error`.
///
/// An error may name a peer whose connection ended before the coordinator said why. So this waits
/// up to `margin` for what `heard` returns: the error with the cause. If the process was cut off
/// from its coordinator as well, that is the error that counts; the broken link may show a moment
/// later than the fabric's loss.
fn with_its_root(clock: &Clock, margin: Duration, heard: impl Fn(ProcessId) -> Option<Error>, error: Error) -> Error {
    let Some(lost) = error.lost_process() else { return error };
    let deadline = clock.now() + margin;
    loop {
        match heard(lost) {
            // An error of a room says more than the loss that it names.
            Some(Error::PeerLost { .. }) if !matches!(error, Error::PeerLost { .. }) => return error,
            Some(heard) => return heard,
            None if clock.now() >= deadline => return error,
            None => clock.sleep_for(WORD_NAP),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn lost(root: u32, why: &str) -> Error {
        Loss { root: ProcessId::new(root), why: why.into() }.into_error(ProcessId::new(1))
    }

    /// More than any delay of a busy machine.
    const LONG: Duration = Duration::from_secs(60);

    /// Returns the error that counts if something is heard at check number `heard_at`, and the
    /// number of checks.
    fn what_counts(margin: Duration, heard_at: u32, heard: impl Fn() -> Error, error: Error) -> (Error, u32) {
        let looks = Cell::new(0);
        let look = |_| {
            looks.set(looks.get() + 1);
            (looks.get() >= heard_at).then(&heard)
        };
        let error = with_its_root(&Clock::real(), margin, look, error);
        (error, looks.get())
    }

    #[test]
    fn a_loss_gets_its_root_from_the_coordinator() {
        let symptom = || lost(1, "was lost: its connection ended");
        for heard_at in [1, 5] {
            let (error, looks) = what_counts(LONG, heard_at, || lost(7, "was killed by signal 9"), symptom());
            assert_eq!((error.to_string().as_str(), looks), ("process 7 was killed by signal 9", heard_at));
        }
        let (error, _) = what_counts(WORD_NAP * 3, u32::MAX, || unreachable!(), symptom());
        assert_eq!(error.to_string(), "process 1 was lost: its connection ended");
    }

    #[test]
    fn a_thread_without_patience_checks_once() {
        let symptom = || lost(1, "was lost: its connection ended");
        for (heard_at, why) in
            [(1, "process 7 was killed by signal 9"), (2, "process 1 was lost: its connection ended")]
        {
            let (error, looks) = what_counts(Duration::ZERO, heard_at, || lost(7, "was killed by signal 9"), symptom());
            assert_eq!((error.to_string().as_str(), looks), (why, 1));
        }
    }

    #[test]
    fn a_link_that_breaks_after_a_loss_is_the_error() {
        let ended = || Error::JobEnded { why: "gone".into() };
        let (error, looks) = what_counts(LONG, 5, ended, lost(1, "was lost: it no longer answers"));
        assert!(matches!(error, Error::JobEnded { .. }) && looks == 5, "{error} after {looks} looks");
    }

    #[test]
    fn nothing_is_waited_for_if_no_process_is_lost() {
        assert_eq!(what_counts(LONG, 1, || unreachable!(), Error::InHandler { what: "a barrier" }).1, 0);
    }

    #[test]
    fn a_loss_explains_those_that_follow_at_once() {
        let (recent, begin) = (RecentLoss::default(), farside_testbed::deadline());
        let loss = |process| Loss::of(ProcessId::new(process), "as planned");
        let root = |time| recent.at(begin + time).map(|loss| loss.root.number());
        assert_eq!(root(Duration::ZERO), None);
        recent.note(begin, loss(3));
        recent.note(begin + RecentLoss::SPAN, loss(1));
        assert_eq!(root(RecentLoss::SPAN), Some(3));
        let later = RecentLoss::SPAN * 2;
        assert_eq!(root(later), None);
        recent.note(begin + later, loss(2));
        assert_eq!(root(later), Some(2));
    }
}
