//! [`Team`]: some workers of a job, in an order, with collectives of their own.
//!
//! A team needs no registry: its name is a hash of its members and of what else its members agree
//! on. So each of them makes it alone, and a message that comes earlier waits under that name.

use std::collections::HashSet;
use std::rc::Rc;

use farside_fabric::{ProcessId, WorkerId};
use farside_sys::image::hash_bytes;

use super::group::Group;
use crate::error::{Error, Result};
use crate::runtime::slots::Numbers;
use crate::runtime::worker::Worker;
use crate::wire;

/// Some workers of a job, in an order: [`Worker::team`], [`Worker::split`],
/// [`Worker::survivors`](crate::Losses::survivors).
///
/// All collectives of a [`Worker`] exist on a team, too, with the worker as first argument. All
/// members of the team call them, in the same order. Other workers take no part. Teams do not
/// disturb each other: a worker may be in several, and each counts its own collectives.
///
/// A collective on a team fails with [`Error::PeerLost`] if a member is lost, and not if another
/// worker is. Teams have no `survivors` of their own: after such a loss, all workers that are left
/// call [`Worker::survivors`](crate::Losses::survivors), and [split](Self::split) that team.
/// [`Worker::go_on`](crate::Losses::go_on) makes the team of the survivors that of all collectives.
///
/// ```
/// # use farside::prelude::*;
/// farside::simulate(5, 1, 1, |me| {
///     let parity = u64::from(me.id().number() % 2);
///     let team = me.split(parity, 0)?;
///     let sum = team.all_reduce(me, me.id().number(), |a, b| a + b)?;
///     assert_eq!(sum, [6, 4][parity as usize]);
///     Ok(())
/// })?;
/// # Ok::<(), farside::Error>(())
/// ```
///
/// A clone is the same team. *Cost*: some hundred bytes and a list of the members, until the last
/// clone is dropped and another team is made.
#[derive(Clone, Debug)]
pub struct Team {
    name: u64,
    place: usize,
    members: Rc<[WorkerId]>,
}

/// The beginning of the name of a team that was not split from another one.
const LISTED: u64 = 1;
const SURVIVORS: u64 = 2;

fn name(context: [u64; 2], members: &[WorkerId]) -> u64 {
    let bytes = wire::encode(&(context, members.to_vec()), Vec::new());
    hash_bytes(0, &bytes).max(SURVIVORS + 1)
}

impl Team {
    /// Makes the team that its members name by `context` and their list.
    pub(super) fn new(me: &Worker, context: [u64; 2], members: Vec<WorkerId>) -> Result<Self> {
        let mut seen = HashSet::new();
        for worker in &members {
            if worker.number() >= me.worker_count() {
                return Err(me.unknown(*worker));
            }
            if !seen.insert(*worker) {
                return Err(Error::NotInTeam { worker: *worker, why: "it is named twice" });
            }
        }
        let place = members.iter().position(|member| *member == me.id());
        let place = place.ok_or(Error::NotInTeam { worker: me.id(), why: "it is not among the members" })?;
        let team = Self { name: name(context, &members), place, members: members.into() };
        me.collectives.borrow_mut().make(team.name, &team.members);
        Ok(team)
    }

    /// Makes a team of a list. A team that is made again of the same list is another one.
    fn of_list(me: &Worker, kind: u64, members: Vec<WorkerId>) -> Result<Self> {
        let made = me.collectives.borrow_mut().count_made(name([kind, 0], &members));
        Self::new(me, [kind, made], members)
    }

    /// Returns the members, in the order of the team.
    pub fn members(&self) -> &[WorkerId] {
        &self.members
    }

    /// Returns the index of this worker among the members.
    pub fn place(&self) -> usize {
        self.place
    }

    pub(super) fn name(&self) -> u64 {
        self.name
    }

    pub(super) fn has_process(&self, me: &Worker, process: ProcessId) -> bool {
        self.members.iter().any(|member| me.process_of(*member) == process)
    }

    /// # Errors
    /// [`Error::NotInTeam`] on a thread of a pool, which is no member.
    #[track_caller]
    pub(super) fn group<'a>(&'a self, me: &'a Worker) -> Result<Group<'a>> {
        match self.members[self.place] == me.id() {
            true => Ok(Group::of_team(me, self)),
            false => Err(Error::NotInTeam { worker: me.id(), why: "the team was made on another worker" }),
        }
    }
}

impl Worker {
    /// Makes a team of these workers, in this order. All members call this with the same list, and
    /// no other worker does. If they make several teams of the same list, each call makes another
    /// team, so they call this equally often.
    ///
    /// ```
    /// # use farside::prelude::*;
    /// farside::simulate(4, 1, 1, |me| {
    ///     if !me.is_first() {
    ///         let team = me.team((1..4).map(WorkerId::new))?;
    ///         assert_eq!(team.all_gather(me, me.id())?, team.members());
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: no message; 16 bytes for each different list, until the job ends. If the members
    /// pass different lists, their first collective ends with [`Error::Deadline`].
    ///
    /// # Errors
    /// [`Error::NotInTeam`] if this worker is not in the list, or a worker is in it twice;
    /// [`Error::UnknownWorker`].
    pub fn team(&self, members: impl IntoIterator<Item = WorkerId>) -> Result<Team> {
        Team::of_list(self, LISTED, members.into_iter().collect())
    }

    pub(crate) fn survivors(&self) -> Result<Team> {
        let time = self.default_deadline();
        loop {
            let process = self.process_handle();
            let is_confirmed = |lost: &ProcessId| process.losses.is_confirmed(*lost);
            self.wait_until("waiting until the coordinator confirms a loss", time, |worker| {
                worker.outlived_processes().iter().all(is_confirmed).then_some(Ok(()))
            })?;
            let lost = self.outlived_processes();
            let members = self.workers().filter(|worker| !lost.contains(&self.process_of(*worker)));
            let team = Team::of_list(self, SURVIVORS, members.collect())?;
            match team.barrier(self) {
                Ok(()) => return Ok(team),
                Err(Error::PeerLost { process, .. }) if team.has_process(self, process) => {
                    // An error of a call may name a loss before its notice comes.
                    self.wait_until("waiting for the notice of a loss", time, |worker| {
                        worker.outlived_processes().contains(&process).then_some(Ok(()))
                    })?;
                }
                Err(other) => return Err(other),
            }
        }
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        loop {
            let team = self.survivors()?;
            // After a loss, workers may have stopped at different collectives, and have made
            // different numbers of values.
            let numbers = [&self.shared_numbers, &self.local_numbers];
            let most = |one: [u32; 2], other: [u32; 2]| [one[0].max(other[0]), one[1].max(other[1])];
            match team.all_reduce(self, numbers.map(Numbers::used), most) {
                Ok(used) => {
                    numbers.into_iter().zip(used).for_each(|(numbers, used)| numbers.begin_at(used));
                    self.collectives.borrow_mut().go_on_among(team);
                    return Ok(());
                }
                // Those that have returned find it lost in their next collective, and come again.
                Err(Error::PeerLost { process, .. }) if team.has_process(self, process) => {}
                Err(other) => return Err(other),
            }
        }
    }

    pub(crate) fn remaining_workers(&self) -> Vec<WorkerId> {
        self.remaining().map_or_else(|| self.workers().collect(), |team| team.members().to_vec())
    }

    /// Returns the team of this worker's collectives, if that is not all workers.
    pub(super) fn remaining(&self) -> Option<Team> {
        self.collectives.borrow().remaining()
    }
}
