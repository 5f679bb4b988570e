//! The rest of a job after processes are lost.

use farside_fabric::{ProcessId, WorkerId};

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::runtime::collective::Team;
use crate::runtime::worker::{Worker, extension};

extension! {
    /// The rest of a job after processes are lost.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    Losses:

    /// Waits until all workers that are not lost have called this, and returns the team of these
    /// workers, in their order. After a loss, a program goes on with the collectives of this team.
    ///
    /// The survivors agree: all of them return with the same team, or with an error. If another
    /// process is lost meanwhile, they agree on the rest. A process may be lost at the very end,
    /// when some workers have returned and others have not. Then the team that some have got is of
    /// no more use: its collectives return [`Error::PeerLost`], and these workers call this again.
    /// The others wait for them here. So call this in the loop that handles [`Error::PeerLost`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farside::prelude::*;
    /// # use farside::{Error, Simulation};
    /// let (victim, after) = (ProcessId::new(2), Duration::from_micros(300));
    /// let simulation = Simulation::new(4, 1, 7).kill(victim, after);
    /// let simulated = simulation.run(|me| {
    ///     let mut team = me.survivors()?;
    ///     let mut steps = 0_u64;
    ///     while steps < 100 {
    ///         me.charge(Duration::from_micros(10)); // the work of a step
    ///         // All members go on from the same step: the earliest that one of them has reached.
    ///         match team.all_reduce(me, steps, u64::min) {
    ///             Ok(earliest) => steps = earliest + 1,
    ///             Err(Error::PeerLost { .. }) => team = me.survivors()?,
    ///             Err(other) => return Err(other),
    ///         }
    ///     }
    ///     assert_eq!(team.members().len(), 3);
    ///     Ok(())
    /// })?;
    /// assert_eq!(simulated.verdict.unwrap_err().to_string(), "process 2 was killed by signal 9");
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// *Cost*: a [`barrier`](Worker::barrier) among the survivors, and another one for each loss.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] if a worker never comes, because its body has returned. That
    /// also happens if a process is lost during the last collective of a program.
    /// [`Error::Deadline`] if a worker does not come, or if the job's coordinator does not confirm
    /// a loss: a network that is cut in two must not make two teams. That error is final: the
    /// worker must not call this again, because others may have returned with a team that includes
    /// it. [`Error::InHandler`]; [`Error::JobEnded`].
    fn survivors(&self) -> Result<Team>;

    /// Goes on among the [survivors](Self::survivors) of a loss: from now on, the collectives of
    /// this worker are those of their team. So is everything that is made of collectives:
    /// [`quiesce`](Worker::quiesce), which counts the calls among these workers;
    /// [`PerWorker`](crate::PerWorker) and [`Dist`](crate::Dist); containers. Where a collective
    /// speaks of all workers, it then means these. All workers that are left call this. Calls,
    /// pointers and handles stay as they were.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farside::prelude::*;
    /// # use farside::{Error, Simulation};
    /// # let (victim, after) = (ProcessId::new(0), Duration::from_micros(300));
    /// # let simulation = Simulation::new(3, 1, 7).kill(victim, after);
    /// # let simulated = simulation.run(|me| {
    /// # me.charge(Duration::from_micros(500));
    /// let sum = loop {
    ///     match me.all_reduce(me.id().number(), |a, b| a + b) {
    ///         Err(Error::PeerLost { .. }) => me.go_on()?,
    ///         other => break other?,
    ///     }
    /// };
    /// assert_eq!(sum, 1 + 2);
    /// assert_eq!(me.remaining_workers().len(), 2);
    /// # Ok(())
    /// # })?;
    /// # assert!(simulated.verdict.is_err());
    /// # Ok::<(), farside::Error>(())
    /// ```
    ///
    /// Errors of other operations may name a process that was left behind before, on one worker
    /// alone: none of the [`remaining_workers`](Self::remaining_workers) belongs to it then, and
    /// there is nothing to agree on.
    ///
    /// After another loss, collectives return [`Error::PeerLost`] until the workers that are left
    /// call this again. Roots must be among them. Arrays and other memory that is spread over all
    /// processes can be used, as far as they are not lost, but neither made nor freed.
    ///
    /// *Cost*: that of [`survivors`](Self::survivors), and an [`all_reduce`](Worker::all_reduce).
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] if a worker never comes, because its body has returned.
    /// [`Error::Deadline`] if a worker does not come in time, or the coordinator does not confirm a
    /// loss; this worker must not call it again then. [`Error::InHandler`] in a handler;
    /// [`Error::JobEnded`]; [`Error::PeerLost`] after another loss. This worker's collectives then
    /// stay as they were.
    fn go_on(&self) -> Result<()>;

    /// Returns the workers that take part in this worker's collectives, in their order: all, or
    /// those with which it [goes on](Self::go_on) after a loss. Whatever a collective returns
    /// by worker has this order.
    fn remaining_workers(&self) -> Vec<WorkerId>;

    /// Registers `hook` to run on this worker for every process that is lost from now on.
    ///
    /// It runs after the last call of that process has run here, so that nothing of that process
    /// follows it. It runs inside waits and [`progress`](Worker::progress), and must not wait
    /// itself. It stays registered until the job ends: a library registers one for all its objects.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// use farside::prelude::*;
    ///
    /// # farside::simulate(2, 1, 1, |me| {
    /// let losses = Rc::new(Cell::new(0));
    /// let counted = losses.clone();
    /// me.when_lost(move |_, _| counted.set(counted.get() + 1));
    /// # me.barrier()
    /// # }).unwrap();
    /// ```
    fn when_lost(&self, hook: impl Fn(&Worker, ProcessId) + 'static);
}
