//! [`Finish`]: a part of the calls, which its members wait for.
//!
//! The calls are counted by the four-counter method, as in `quiescence.rs`, but by the trampoline
//! that runs them, and in the collectives of the team. So the count knows no other calls, and a
//! worker that is not a member has no part in it.

use std::ops::Deref;

use farside_fabric::WorkerId;

use super::group::Group;
use super::quiescence::QuiesceRound;
use super::state::Kind;
use crate::error::{Error, Refused, Result};
use crate::invoke::remote::{ByPointer, Callee};
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The calls that [`Worker::finish`] waits for are made through this. It is also the worker on
/// which it is used.
#[derive(Debug)]
pub struct Finish<'a> {
    me: &'a Worker,
    team: u64,
}

impl Deref for Finish<'_> {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        self.me
    }
}

impl Finish<'_> {
    /// Runs a function on another worker, as [`Worker::call`] does. The function gets the scope, so
    /// that it can make calls that are waited for, too. The calls of its
    /// [continuations](crate::Pending::then) are not.
    ///
    /// # Errors
    /// [`Error::NotInTeam`] if the receiver is not a member; [`Error::Full`], or
    /// [`Error::Deadline`] after a wait, if the receiver has no room; [`Error::TooLarge`];
    /// [`Error::UnknownWorker`]; [`Error::PeerLost`] if the receiver is lost;
    /// [`Error::DifferentBinaries`] or [`Error::ForeignFunction`] if it cannot find the function;
    /// [`Error::InHandler`] if a handler would have to wait.
    pub fn call<A: Wire>(&self, to: WorkerId, arguments: A, function: fn(&Finish<'_>, A)) -> Result<(), Refused<A>> {
        let operand = self.may_call(to).and_then(|()| self.me.table().offset_of(function as usize));
        let operand = match operand {
            Ok(operand) => operand,
            Err(error) => return Err(Refused { error, arguments }),
        };
        let called = self.me.call(to, (self.team, operand, arguments), run::<A>);
        called.map_err(|Refused { error, arguments: (.., arguments) }| Refused { error, arguments })?;
        if let Some(sequence) = self.me.collectives.borrow_mut().of_message(self.team, false) {
            sequence.scope_sent += 1;
        }
        Ok(())
    }

    /// Refuses a call to a worker whose count is not asked for.
    fn may_call(&self, to: WorkerId) -> Result<()> {
        let mut collectives = self.me.collectives.borrow_mut();
        let is_member = match collectives.of_message(self.team, false).and_then(|sequence| sequence.members.as_ref()) {
            Some(members) => members.contains(&to),
            // All workers, or a team that this worker is about to make or has dropped.
            None => to.number() < self.me.worker_count(),
        };
        let why = "a call of a finish scope goes to members only";
        if is_member { Ok(()) } else { Err(Error::NotInTeam { worker: to, why }) }
    }
}

fn run<A: Wire>(there: &Worker, (team, operand, arguments): (u64, u32, A)) {
    let _executed = Executed { there, team };
    // The trampoline is generic over `A`, as the function that the sender named is.
    let function: Option<fn(&Finish<'_>, A)> = ByPointer::find(there, operand);
    if let Some(function) = function {
        function(&Finish { me: there, team }, arguments);
    }
}

/// Counts a call as executed when it is dropped, also if the function panics.
struct Executed<'a> {
    there: &'a Worker,
    team: u64,
}

impl Drop for Executed<'_> {
    fn drop(&mut self) {
        if let Some(sequence) = self.there.collectives.borrow_mut().of_message(self.team, false) {
            sequence.scope_executed += 1;
        }
    }
}

impl Group<'_> {
    pub(super) fn finish<R>(self, work: impl FnOnce(&Finish<'_>) -> Result<R>) -> Result<R> {
        const DOING: &str = "waiting until the calls of a finish scope have run";
        self.may_begin(DOING)?;
        let done = work(&Finish { me: self.me, team: self.name() })?;
        self.wait_until_balanced(Kind::Finish, DOING, |group| {
            let sequence = group.sequence();
            Ok(QuiesceRound { sent: sequence.scope_sent, executed: sequence.scope_executed, is_late: false })
        })?;
        Ok(done)
    }
}
