//! The members of a collective, as one of them sees them: their order, their tree, and the values
//! that travel between them.

use std::any::type_name;
use std::cell::RefMut;
use std::marker::PhantomData;
use std::panic::Location;

use farside_fabric::WorkerId;

use super::messages::{
    ARRIVED, ARRIVED_IN_TEAM, Arrival, MISMATCH, VALUE, announce_arrival, announce_in_team, keep_mismatch, keep_value,
};
use super::state::{
    ALL, Content, FOREIGN_BYTES_MAX, FOREIGN_TEAMS_MAX, FOREIGN_VALUES_MAX, Kind, Mismatch, Parcel, Sequence,
};
use super::team::Team;
use crate::error::{Error, Result};
use crate::invoke::call::WhenFull;
use crate::runtime::worker::Worker;
use crate::wire::{self, Decoder, Schema, Wire, WireError, from_bytes_in, to_bytes, type_hash};

/// A worker among the members of a team, or among all workers. The place of a member is its index
/// in the list of members; all workers are their own list.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) me: &'a Worker,
    pub(super) team: Option<&'a Team>,
    /// The place of the collective in the program.
    pub(super) site: &'static Location<'static>,
}

/// The arguments of a collective, as far as all members must agree on them.
pub(super) struct Shape {
    type_name: &'static str,
    /// The number of elements of a slice.
    length: Option<u64>,
}

impl Shape {
    pub(super) fn value<T>() -> Self {
        Self { type_name: type_name::<T>(), length: None }
    }

    pub(super) fn slice<T>(values: &[T]) -> Self {
        Self { type_name: type_name::<T>(), length: Some(values.len() as u64) }
    }
}

/// A collective that this worker takes part in, whose messages carry values of type `T`.
pub(super) struct Parts<T> {
    number: u64,
    content: Content,
    carries: PhantomData<fn(T) -> T>,
}

impl<'a> Group<'a> {
    #[track_caller]
    pub(super) fn all(me: &'a Worker) -> Self {
        Self { me, team: None, site: Location::caller() }
    }

    #[track_caller]
    pub(super) fn of_team(me: &'a Worker, team: &'a Team) -> Self {
        Self::among(me, Some(team))
    }

    /// The group of a team, or that of all workers.
    #[track_caller]
    pub(super) fn among(me: &'a Worker, team: Option<&'a Team>) -> Self {
        Self { me, team, site: Location::caller() }
    }

    // Members and places.

    /// Returns whether the members are all workers.
    pub(super) fn is_all(self) -> bool {
        self.team.is_none()
    }

    /// Returns the name of the team.
    pub(super) fn name(self) -> u64 {
        self.team.map_or(ALL, Team::name)
    }

    /// Returns what this worker knows of the team's collectives.
    pub(super) fn sequence(self) -> RefMut<'a, Sequence> {
        let name = self.name();
        RefMut::map(self.me.collectives.borrow_mut(), |collectives| collectives.sequence(name))
    }

    pub(super) fn count(self) -> usize {
        self.team.map_or(self.me.worker_count() as usize, |team| team.members().len())
    }

    pub(super) fn place(self) -> usize {
        self.team.map_or(self.me.id().index(), Team::place)
    }

    pub(super) fn at(self, place: usize) -> WorkerId {
        self.team.map_or(WorkerId::new(place as u32), |team| team.members()[place])
    }

    pub(super) fn members(self) -> impl Iterator<Item = WorkerId> + Clone + use<'a> {
        (0..self.count()).map(move |place| self.at(place))
    }

    /// Returns the member `distance` places after this one, wrapping around at the end.
    pub(super) fn ahead(self, distance: usize) -> WorkerId {
        self.at((self.place() + distance) % self.count())
    }

    /// Returns the member `distance` places before this one.
    pub(super) fn behind(self, distance: usize) -> WorkerId {
        let count = self.count();
        self.at((self.place() + count - distance % count) % count)
    }

    /// Returns the number of rounds after which a distance that doubles reaches every member.
    pub(super) fn rounds(self) -> u32 {
        self.count().next_power_of_two().trailing_zeros()
    }

    /// # Errors
    /// [`Error::UnknownWorker`]; [`Error::NotInTeam`].
    pub(super) fn place_of(self, worker: WorkerId) -> Result<usize> {
        let Some(team) = self.team else {
            return if worker.index() < self.count() { Ok(worker.index()) } else { Err(self.me.unknown(worker)) };
        };
        let place = team.members().iter().position(|member| *member == worker);
        place.ok_or(Error::NotInTeam { worker, why: "it is not among the members" })
    }

    /// Returns the parent in the binomial tree whose root is at place `root`: the distance from the
    /// root without its lowest bit. The root has none.
    pub(super) fn parent(self, root: usize) -> Option<WorkerId> {
        let distance = self.distance_from(root);
        (distance > 0).then(|| self.beyond(root, distance & (distance - 1)))
    }

    /// Returns the children: the distance from the root with one bit added below its lowest bit.
    pub(super) fn children(self, root: usize) -> Vec<WorkerId> {
        let (distance, count) = (self.distance_from(root), self.count());
        let bits = if distance == 0 { u32::BITS - 1 } else { distance.trailing_zeros() };
        let distances = (0..bits).map(|bit| distance + (1 << bit)).take_while(|child| *child < count);
        distances.map(|child| self.beyond(root, child)).collect()
    }

    fn distance_from(self, root: usize) -> usize {
        (self.place() + self.count() - root) % self.count()
    }

    fn beyond(self, root: usize, distance: usize) -> WorkerId {
        self.at((root + distance) % self.count())
    }

    // Begin and failure.

    /// Refuses a collective where none can be waited for.
    pub(super) fn may_begin(self, what: &'static str) -> Result<()> {
        self.me.not_in_handler(what)?;
        if self.me.id().number() >= self.me.worker_count() {
            return Err(self.me.unknown(self.me.id()));
        }
        self.me.flush();
        // After a loss the members of a team may stop at different collectives, which is no
        // mismatch.
        let lost = self.team.and_then(|_| self.lost_member());
        lost.or_else(|| self.failure()).map_or(Ok(()), Err)
    }

    /// Begins a collective in which values of type `T` travel. Returns it with the root's place.
    pub(super) fn begin<T: Wire>(self, kind: Kind, root: WorkerId, shape: Shape) -> Result<(Parts<T>, usize)> {
        self.may_begin(kind.name())?;
        let place = self.place_of(root)?;
        let type_hash = match self.me.process_handle().job.is_mixed() {
            false => type_hash::<T>(),
            true => {
                let schema = Schema::of::<T>();
                if let Some(type_name) = schema.unportable() {
                    let name = "a collective in a job of several binaries";
                    return Err(Error::NotPortable { name, type_name });
                }
                schema.hash()
            }
        };
        let Shape { type_name, length } = shape;
        let content = Content { kind, root: root.number(), type_hash, type_name: type_name.to_owned(), length };
        let number = self.sequence().begin(content.clone());
        self.failure().map_or(Ok((Parts { number, content, carries: PhantomData }, place)), Err)
    }

    /// Notes that a collective ends here in this error: its values may come late, and none begins
    /// after the loss of a member.
    pub(super) fn failed(self, error: Error) -> Error {
        let is_of_member = |process: &_| self.team.is_some_and(|team| team.has_process(self.me, *process));
        let lost = error.lost_process().filter(is_of_member);
        let mut sequence = self.sequence();
        sequence.has_failed = true;
        sequence.lost = sequence.lost.or(lost);
        error
    }

    /// Returns the error for the first member that is lost.
    pub(super) fn lost_member(self) -> Option<Error> {
        let Some(team) = self.team else { return self.me.any_lost() };
        let mut sequence = self.sequence();
        let losses = self.me.outlived_count();
        if sequence.lost.is_none() && sequence.losses_seen < losses {
            let lost = self.me.outlived_processes();
            sequence.lost =
                lost.into_iter().skip(sequence.losses_seen).find(|process| team.has_process(self.me, *process));
            sequence.losses_seen = losses;
        }
        sequence.lost.map(|process| self.me.process_handle().losses.gone(process))
    }

    /// Returns the reason for which collectives cannot continue, if there is one.
    pub(super) fn failure(self) -> Option<Error> {
        let (mismatch, is_told, is_overrun) = {
            let sequence = &mut *self.sequence();
            let mismatch = sequence.mismatch.clone().filter(|mismatch| mismatch.number <= sequence.begun);
            let is_told = sequence.is_told;
            sequence.is_told |= mismatch.is_some();
            (mismatch, is_told, sequence.is_overrun)
        };
        let me = self.me;
        if let Some(mismatch) = mismatch {
            // The others may wait for workers that have noticed it.
            for other in self.members().filter(|other| !is_told && *other != me.id()) {
                // A worker that cannot be reached is lost, or learns of this one's end.
                let to = me.internal(other).when_full(WhenFull::Queue);
                let _ = match me.runs_same_binary(other) {
                    true => to.call(mismatch.clone(), keep_mismatch).map_err(Error::from),
                    false => to.call_named(MISMATCH, mismatch.clone()).map_err(Error::from),
                };
            }
            let Mismatch { here, ours, there, theirs, .. } = mismatch;
            let (ours, theirs) = (ours.into(), theirs.into());
            return Some(Error::CollectiveMismatch { here, ours, there, theirs });
        }
        is_overrun.then(|| Error::CollectiveOverrun {
            worker: me.id(),
            values: FOREIGN_VALUES_MAX,
            bytes: FOREIGN_BYTES_MAX,
            teams: FOREIGN_TEAMS_MAX,
        })
    }

    // Messages.

    /// Announces a round of a barrier to the member that waits for this one.
    pub(super) fn announce(self, number: u64, round: u32) -> Result<()> {
        let (me, to) = (self.me, self.ahead(1 << round));
        let told = match self.team {
            None => me.tell(to, ARRIVED, (number, round), announce_arrival),
            Some(team) => {
                let arrival = Arrival { team: team.name(), number, round, from: me.id() };
                me.tell(to, ARRIVED_IN_TEAM, arrival, announce_in_team)
            }
        };
        told.map_err(|error| self.failed(error))
    }

    pub(super) fn send_value<T: Wire>(self, parts: &Parts<T>, to: WorkerId, value: T) -> Result<()> {
        let bytes = match self.me.process_handle().job.is_mixed() {
            false => to_bytes(value),
            true => wire::encode(&value, Vec::new()),
        };
        let Parts { number, content, .. } = parts;
        let (team, from) = (self.name(), self.me.id());
        let parcel = Parcel { team, number: *number, from, content: content.clone(), bytes };
        self.me.tell(to, VALUE, parcel, keep_value).map_err(|error| self.failed(error))
    }

    /// Waits for the value of another member.
    pub(super) fn receive<T: Wire>(self, parts: &Parts<T>, from: WorkerId) -> Result<T> {
        let doing = "waiting for the value of another worker";
        let value = self.wait_for_all(doing, from, || self.sequence().take(parts.number, &parts.content, from))?;
        let process = self.me.process_handle();
        let read = match process.job.is_mixed() {
            // The shapes are the same, as `take` has compared them.
            true => wire::decode(Decoder::new(&value.bytes).within(self.me), 0),
            // SAFETY: this job is of one binary, and `keep_value` alone lets values in. `take`
            // hands out only values whose type hash is that of `parts`. `begin` put the hash of `T`
            // there, and `send_value` wrote the bytes as a value of the type that the hash names.
            // They are read once, because `take` removed them.
            false => unsafe { from_bytes_in(&value.bytes, process) },
        };
        read.map_err(|cause: WireError| self.failed(Error::Wire { from, cause }))
    }

    /// Waits until nothing is staged for these receivers.
    ///
    /// A call stays staged here while its ring is not set up. If this worker then made no progress
    /// after the collective, the receivers would wait in it for as long.
    pub(super) fn wait_until_sent(self, receivers: impl Iterator<Item = WorkerId> + Clone) -> Result<()> {
        let waits = |to| self.me.outbox(to).is_some_and(|outbox| outbox.has_staged());
        let Some(whom) = receivers.clone().find(|to| waits(*to)) else { return Ok(()) };
        let doing = "waiting for the ring to another worker";
        self.wait_for_all(doing, whom, || (!receivers.clone().any(waits)).then_some(()))
    }
}
