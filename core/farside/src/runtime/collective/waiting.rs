//! The wait of a worker in a collective, and its search for the missing member.
//!
//! The worker for which it waits may itself wait for another one in the same collective. So a
//! worker that waits for long asks along this chain, whose end is the worker that did not come.

use std::time::Duration;

use farside_fabric::WorkerId;

use super::group::Group;
use super::state::{Collectives, Content, Mismatch, Sequence};
use crate::error::{Error, Result};
use crate::invoke::call::WhenFull;
use crate::invoke::pending::Pending;
use crate::runtime::activity::Whom;
use crate::runtime::activity::recorder::Wait;
use crate::runtime::deadline::Deadline;
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The time after which a worker asks, and asks again.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// The largest number of workers asked one after the other. A barrier has 32 rounds at most.
const CHAIN_MAX: u32 = 32;

/// The progress of a worker in a collective of another one.
#[derive(Clone, Debug, Wire)]
enum Standing {
    /// The worker has not begun the collective.
    Before,
    /// The worker never will begin it, because its body has returned.
    Returned,
    /// The worker waits for another one, in the collective or in an earlier one.
    Waits {
        whom: WorkerId,
        /// The number of the collective in which it waits.
        number: u64,
        /// The number of looks in this wait that found nothing.
        looks: u64,
        content: Content,
    },
    /// The worker has begun the collective, and waits for no other one.
    Begun,
}

impl Collectives {
    /// Returns where this worker stands with a collective of a team.
    fn standing(&mut self, team: u64, number: u64) -> Standing {
        let has_returned = self.has_returned();
        // A dropped team has passed all its collectives here.
        let Some(sequence) = self.of_message(team, false) else { return Standing::Begun };
        let &mut Sequence { begun, awaited, looks, ref current, .. } = sequence;
        match awaited {
            _ if begun > number => Standing::Begun,
            _ if begun < number && has_returned => Standing::Returned,
            Some(whom) => Standing::Waits { whom, number: begun, looks, content: current.clone() },
            None if begun == number => Standing::Begun,
            None => Standing::Before,
        }
    }
}

impl Sequence {
    /// Notes that a worker will never come to the current collective.
    fn note_returned(&mut self, there: WorkerId) {
        let theirs = "none, because its body has returned".into();
        let mismatch = Mismatch { theirs, ..self.differs(there, &Content::default()) };
        self.note(mismatch);
    }

    /// Returns whether the current collective is another one than that with this number.
    fn is_other(&self, number: u64, content: &Content) -> bool {
        number == self.begun && !content.is_like(&self.current)
    }

    /// Notes that a worker takes part in another collective than this one.
    fn note_other(&mut self, there: WorkerId, content: &Content) {
        let mismatch = self.differs(there, content);
        self.note(mismatch);
    }

    /// Begins a wait for a worker in the current collective.
    fn begin_waiting(&mut self, whom: WorkerId) {
        (self.awaited, self.looks) = (Some(whom), 0);
    }

    /// Notes that a worker waits for this one in an earlier collective, inside which this one has
    /// begun the current collective.
    fn note_inside(&mut self, there: WorkerId, number: u64) {
        let current = self.differs(there, &Content::default());
        let ours = format!("{}, which it began inside an earlier one", current.ours);
        self.note(Mismatch { number, ours, theirs: "the earlier one".into(), ..current });
    }
}

/// The end of a turn of waiting.
enum Seen {
    Found,
    Heard(Standing),
}

impl Group<'_> {
    /// Waits for a condition that depends on every member, and on `whom` first.
    ///
    /// # Errors
    /// [`Error::Deadline`] with the worker that did not come; [`Error::PeerLost`];
    /// [`Error::CollectiveMismatch`], also if a worker can never come.
    pub(super) fn wait_for_all<T>(
        self,
        doing: &'static str,
        whom: WorkerId,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let mut found = None;
        self.wait_for_all_untyped(doing, whom, &mut || {
            found = look();
            found.is_some()
        })?;
        Ok(found.expect("the wait ended well, because something was found"))
    }

    /// Waits until `look` returns true. Compiled once for all types.
    fn wait_for_all_untyped(self, doing: &'static str, whom: WorkerId, look: &mut dyn FnMut() -> bool) -> Result<()> {
        self.sequence().begin_waiting(whom);
        let total = self.me.default_deadline();
        let pace = ASK_AFTER.min(total / 4);
        let (mut time, mut end) = (pace, None::<Deadline>);
        let (mut missing, mut asked, mut chain) = (whom, None::<(WorkerId, Pending<'_, Standing>)>, 0);
        let mut waits_for_this = None::<(WorkerId, u64, u64)>;
        let result = loop {
            let mut checked = None;
            let wait = Wait::at(doing, self.site).on(Whom::Worker(missing));
            let seen = self.me.wait_at(wait, time, |_| {
                if look() {
                    return Some(Ok(Seen::Found));
                }
                self.sequence().looks += 1;
                // What fails a collective comes as a call or as a notice.
                let news = self.me.news();
                if checked.replace(news) != Some(news)
                    && let Some(failure) = self.lost_member().or_else(|| self.failure())
                {
                    return Some(Err(failure));
                }
                let (_, answer) = asked.as_mut()?;
                Some(answer.poll()?.map(Seen::Heard))
            });
            match (seen, asked.take()) {
                (Ok(Seen::Found), _) => break Ok(()),
                // Both may wait for a value, so that none comes which would show it.
                (Ok(Seen::Heard(Standing::Waits { number, content, .. })), Some((there, _)))
                    if self.sequence().is_other(number, &content) =>
                {
                    self.sequence().note_other(there, &content);
                }
                (Ok(Seen::Heard(Standing::Waits { whom, number, looks, .. })), Some((there, _)))
                    if whom == self.me.id() =>
                {
                    // It has all that this worker sent before when it first answers. It looks for
                    // that before the second answer, unless a called function has kept it busy.
                    let is_earlier = number < self.sequence().begun;
                    let before = waits_for_this.replace((there, number, looks));
                    let has_looked = |(of, at, before)| (of, at) == (there, number) && looks > before;
                    if is_earlier && before.is_some_and(has_looked) {
                        self.sequence().note_inside(there, number);
                    }
                }
                (Ok(Seen::Heard(Standing::Waits { whom, .. })), Some(_)) if chain < CHAIN_MAX => {
                    asked = self.ask(whom);
                    chain += 1;
                }
                (Ok(Seen::Heard(Standing::Returned)), Some((there, _))) => {
                    self.sequence().note_returned(there);
                }
                (Ok(Seen::Heard(_)), Some((there, _))) => missing = there,
                (Err(Error::Deadline { .. }), unanswered) => {
                    let end = end.get_or_insert_with(|| self.me.deadline_after(total.saturating_sub(time)));
                    if end.has_passed(self.me) {
                        break Err(Error::Deadline { doing, after: total, waiting_for: vec![missing] });
                    }
                    if let Some((there, _)) = &unanswered {
                        missing = *there;
                    }
                    asked = unanswered.or_else(|| self.ask(whom));
                    chain = 0;
                }
                (Err(error), _) => break Err(error),
                (Ok(Seen::Heard(_)), None) => {}
            }
            time = pace.min(end.as_mut().map_or(pace, |end| end.left(self.me)));
        };
        // Also after an error: this worker does something else now.
        self.sequence().awaited = None;
        result.map_err(|error| self.failed(error))
    }

    /// Asks a worker where it stands with the current collective. Returns `None` if it cannot be
    /// asked.
    fn ask(&self, whom: WorkerId) -> Option<(WorkerId, Pending<'_, Standing>)> {
        let (team, number) = (self.name(), self.sequence().begun);
        let can_answer = whom != self.me.id() && self.me.runs_same_binary(whom);
        let to = self.me.to(whom).when_full(WhenFull::Queue);
        let answer = |there: &Worker, (team, number)| there.collectives.borrow_mut().standing(team, number);
        Some((whom, can_answer.then(|| to.call_return((team, number), answer).ok())??))
    }
}
