//! The messages of collectives: calls that leave what they bring in the state of the receiver.

use farside_fabric::WorkerId;

use super::group::Group;
use super::state::{Mismatch, Parcel};
use crate::error::{Error, Result};
use crate::invoke::named::{Named, Names};
use crate::runtime::worker::Worker;
use crate::wire::Wire;
use crate::wire::check::MessageKind;

/// Announces a round of a barrier of all workers: the number of the barrier, and the round.
pub(super) const ARRIVED: Named<(u64, u32)> = Named::of_the_library("farside/arrived");
/// Announces a round of a barrier of a team.
pub(super) const ARRIVED_IN_TEAM: Named<Arrival> = Named::of_the_library("farside/arrived-in-team");
/// Carries a value.
pub(super) const VALUE: Named<Parcel> = Named::of_the_library("farside/value");
/// Tells of a mismatch.
pub(super) const MISMATCH: Named<Mismatch> = Named::of_the_library("farside/mismatch");

/// The announcement of a round of a barrier. It names its sender, as the receiver may not have made
/// the team yet.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Arrival {
    /// The name of the team.
    pub(super) team: u64,
    /// The number of the barrier.
    pub(super) number: u64,
    pub(super) round: u32,
    pub(super) from: WorkerId,
}

/// The arguments of those functions, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![
        MessageKind::of::<(u64, u32)>(),
        MessageKind::of::<Arrival>(),
        MessageKind::of::<Parcel>(),
        MessageKind::of::<Mismatch>(),
    ]
}

/// Registers the functions that collectives call in processes of other binaries.
pub(crate) fn register(names: &mut Names) {
    names.add(ARRIVED, announce_foreign_arrival);
    names.add(ARRIVED_IN_TEAM, announce_foreign_in_team);
    names.add(VALUE, keep_foreign_value);
    names.add(MISMATCH, keep_foreign_mismatch);
}

pub(super) fn announce_arrival(there: &Worker, (number, round): (u64, u32)) {
    there.collectives.borrow_mut().executed += 1;
    // Another binary may send any number.
    if round < u32::BITS {
        let all = Group::all(there);
        let from = all.behind(1 << round);
        all.sequence().announce(number, round as usize, from);
    }
}

pub(super) fn announce_in_team(there: &Worker, arrival: Arrival) {
    let Arrival { team, number, round, from } = arrival;
    let mut collectives = there.collectives.borrow_mut();
    collectives.executed += 1;
    if let Some(sequence) = collectives.of_message(team, false) {
        sequence.announce(number, round as usize, from);
    }
}

pub(super) fn keep_value(there: &Worker, parcel: Parcel) {
    let mut collectives = there.collectives.borrow_mut();
    collectives.executed += 1;
    if let Some(sequence) = collectives.of_message(parcel.team, false) {
        sequence.keep(parcel, false);
    }
}

pub(super) fn keep_mismatch(there: &Worker, mismatch: Mismatch) {
    let mut collectives = there.collectives.borrow_mut();
    if let Some(sequence) = collectives.of_message(mismatch.team, false) {
        sequence.is_told |= sequence.note(mismatch);
    }
}

// In a job of one binary, nothing is called by these names.

fn announce_foreign_arrival(there: &Worker, arrival: (u64, u32)) {
    if there.process_handle().job.is_mixed() {
        announce_arrival(there, arrival);
    }
}

fn announce_foreign_in_team(there: &Worker, arrival: Arrival) {
    let has_room = || there.collectives.borrow_mut().of_message(arrival.team, true).is_some();
    if there.process_handle().job.is_mixed() {
        match arrival.round < u32::BITS && has_room() {
            true => announce_in_team(there, arrival),
            false => there.collectives.borrow_mut().leave_out_executed(),
        }
    }
}

fn keep_foreign_mismatch(there: &Worker, mismatch: Mismatch) {
    let has_room = || there.collectives.borrow_mut().of_message(mismatch.team, true).is_some();
    if there.process_handle().job.is_mixed() && has_room() {
        keep_mismatch(there, mismatch);
    }
}

fn keep_foreign_value(there: &Worker, parcel: Parcel) {
    if there.process_handle().job.is_mixed() {
        let mut collectives = there.collectives.borrow_mut();
        collectives.executed += 1;
        if let Some(sequence) = collectives.of_message(parcel.team, true) {
            sequence.keep(parcel, true);
        }
    }
}

impl Worker {
    /// Calls a function of this file on another worker; by its name if that worker runs another
    /// binary.
    pub(super) fn tell<A: Wire>(
        &self,
        to: WorkerId,
        name: Named<A>,
        arguments: A,
        function: fn(&Self, A),
    ) -> Result<()> {
        let told = match self.runs_same_binary(to) {
            true => self.internal(to).call(arguments, function),
            false => self.internal(to).call_named(name, arguments),
        };
        told.map_err(|refused| match refused.error {
            Error::TooLarge { bytes, max, remedy, .. } => {
                Error::TooLarge { what: "a value of a collective", bytes, max, remedy }
            }
            other => other,
        })?;
        if let Some(mut outbox) = self.outbox(to) {
            outbox.leave_out_call();
        }
        Ok(())
    }
}
