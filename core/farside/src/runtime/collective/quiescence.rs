//! Quiescence: all calls have run, and so have the calls that they made.
//!
//! This is the four-counter method, by which the coordinator finds the end of a job, too
//! (`farside-launch/src/coordinator/census.rs`). In each round every worker counts the calls that
//! it has sent and executed, at a moment at which none waits to be sent or continued. If two rounds
//! in a row find the same sums, and as many calls executed as sent, then no call was under way
//! between the rounds. The calls of collectives themselves are not counted.
//!
//! The coordinator counts whole processes that make no more calls of their own, and goes on without
//! those that are lost. Here workers count each other, by a collective, so a loss is an error.

use farside_fabric::ProcessId;

use super::group::{Group, Shape};
use super::state::Kind;
use crate::error::{Error, Result};
use crate::runtime::activity::recorder::Wait;
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The counts of one worker, or of all of them together, in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(super) struct QuiesceRound {
    pub(super) sent: u64,
    pub(super) executed: u64,
    /// True if a worker has found the same sums for as long as the deadline.
    pub(super) is_late: bool,
}

impl QuiesceRound {
    fn and(self, other: Self) -> Self {
        Self {
            // Only equality matters, and that survives an overflow.
            sent: self.sent.wrapping_add(other.sent),
            executed: self.executed.wrapping_add(other.executed),
            is_late: self.is_late | other.is_late,
        }
    }
}

impl Group<'_> {
    /// Counts in rounds until two rounds in a row find the same sums, and as many calls executed as
    /// sent.
    pub(super) fn wait_until_balanced(
        self,
        kind: Kind,
        doing: &'static str,
        mut count: impl FnMut(Self) -> Result<QuiesceRound>,
    ) -> Result<()> {
        let (me, time) = (self.me, self.me.default_deadline());
        let (mut before, mut deadline) = (None, me.deadline_after(time));
        loop {
            self.may_begin(doing)?;
            let own = me.progress().and_then(|_| count(self)).map_err(|error| self.failed(error))?;
            let is_late = deadline.has_passed(me);
            let own = QuiesceRound { is_late, ..own };
            let all = self.reduce_for_all(kind, own, QuiesceRound::and, Shape::value::<QuiesceRound>)?;
            let sums = (all.sent, all.executed);
            match before.replace(sums) == Some(sums) {
                true if all.sent == all.executed => return Ok(()),
                true if all.is_late => return Err(Error::deadline(doing, time)),
                true => {}
                false => deadline = me.deadline_after(time),
            }
        }
    }

    /// Counts the calls between this worker and the members' processes, if none waits to be sent or
    /// continued, and nothing that calls wrote is on its way. The first worker of a process also
    /// counts those of the pool and the shared rings.
    fn count_if_settled(self) -> Option<QuiesceRound> {
        let (me, process) = (self.me, self.me.process_handle());
        if !me.is_settled() || !process.rooms.are_settled() {
            return None;
        }
        // Either all workers of a process are members, or it is lost.
        let are_counted = self.team.map(|_| {
            let mut are_counted = vec![false; process.shape().processes as usize];
            self.members().for_each(|member| are_counted[me.process_of(member).index()] = true);
            are_counted
        });
        let is_counted = |process: ProcessId| are_counted.as_ref().is_none_or(|all| all[process.index()]);
        let (mut sent, mut executed) = (me.counted_calls(is_counted), me.inbox().counted_calls(process, is_counted));
        if me.thread_index() == 0 {
            let (by_pool, on_pool) = process.calls.pool.idle_counts(process, is_counted)?;
            sent += by_pool + process.calls.shared_rings.counted_calls(is_counted);
            executed += on_pool;
        }
        Some(QuiesceRound { sent, executed, is_late: false })
    }
}

impl Worker {
    /// Waits until every call that any worker has made so far has run, and every call that these
    /// calls made. All workers call this, in the same order as other collectives.
    ///
    /// This covers all forms of calls, to workers and to [pools](Self::pool_of), with their
    /// buffers and [continuations](crate::Pending::then). Open batches of this worker are published
    /// first. Calls of a [`Caller`](crate::Caller) count if it had made them before the last worker
    /// came; a thread that goes on calling delays the return.
    ///
    /// ```no_run
    /// # use std::cell::Cell;
    /// # use farside::prelude::*;
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// fn spread(there: &Worker, (count, depth): (PerWorker<Cell<u64>>, u32)) {
    ///     count.here(there).set(count.here(there).get() + 1);
    ///     for distance in 0..depth {
    ///         there.call(there.neighbor(distance), (count, depth - 1), spread).unwrap();
    ///     }
    /// }
    /// let count = PerWorker::new(me, Cell::new(0))?;
    /// me.call(me.neighbor(1), (count, 2), spread)?;
    /// me.quiesce()?;
    /// let total = me.all_reduce(count.here(me).get(), |a, b| a + b)?;
    /// assert_eq!(total, 5 * u64::from(me.worker_count()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Everything that the calls wrote is visible then. A worker that has returned may call one
    /// that has not: [`superstep`](Self::superstep) keeps phases apart.
    ///
    /// The counts include calls to and from every worker, so `quiesce` is one of all workers, and
    /// returns [`Error::PeerLost`] after a loss. Workers that [go on](crate::Losses::go_on) with
    /// the survivors count the calls among these.
    ///
    /// *Cost*: two or more times that of [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::PeerLost`] if a process of the job is lost; [`Error::CollectiveMismatch`] if
    /// another worker calls another collective; [`Error::Deadline`] if one does not come in time,
    /// or calls do not end; [`Error::InHandler`] in a handler. In a job of several binaries also
    /// [`Error::CollectiveOverrun`]. Calls do not end if no call has run for the job's deadline and
    /// some have not: a called function takes that long, or a continuation waits for a result that
    /// does not come.
    #[track_caller]
    pub fn quiesce(&self) -> Result<()> {
        const DOING: &str = "waiting until all calls have run";
        let remaining = self.remaining();
        Group::among(self, remaining.as_ref()).wait_until_balanced(Kind::Quiesce, DOING, |all| {
            let wait = Wait::at(DOING, all.site);
            self.watch_at(wait, self.default_deadline(), |_| match all.count_if_settled() {
                Some(counted) => Some(Ok(counted)),
                None => all.lost_member().or_else(|| all.failure()).map(Err),
            })
        })
    }

    /// Runs one phase of a program in phases: `call` makes the calls of this phase, and `take`
    /// takes what they have left here. All workers call this, in the same order as other
    /// collectives.
    ///
    /// When `take` runs on a worker, all calls of this phase have run everywhere, with the calls
    /// that they made, and no call of the next phase has run anywhere. What `take` returns is
    /// returned here. Afterwards calls of the next phase may run at any time, also inside this
    /// phase's collectives, such as an [`all_reduce`](Self::all_reduce) behind it. So what they
    /// change is taken by `take`, and not later.
    ///
    /// ```no_run
    /// # use std::cell::RefCell;
    /// # use std::collections::HashSet;
    /// # use farside::prelude::*;
    /// # fn neighbors(_: u64) -> Vec<u64> { Vec::new() }
    /// # fn owner(_: &Worker, vertex: u64) -> WorkerId { WorkerId::new((vertex % 2) as u32) }
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// // Breadth-first search: the vertices that were seen, and those of the next level.
    /// type Part = PerWorker<RefCell<(HashSet<u64>, Vec<u64>)>>;
    /// fn visit(there: &Worker, (part, vertex): (Part, u64)) {
    ///     let (seen, next) = &mut *part.here(there).borrow_mut();
    ///     if seen.insert(vertex) {
    ///         next.push(vertex);
    ///     }
    /// }
    /// let part = Part::new(me, RefCell::default())?;
    /// let mut level = if me.id() == owner(me, 0) { vec![0] } else { Vec::new() };
    /// while me.all_reduce(level.len(), |a, b| a + b)? > 0 {
    ///     let call = || {
    ///         for vertex in level.iter().flat_map(|vertex| neighbors(*vertex)) {
    ///             me.call(owner(me, vertex), (part, vertex), visit)?;
    ///         }
    ///         Ok(())
    ///     };
    ///     level = me.superstep(call, || std::mem::take(&mut part.here(me).borrow_mut().1))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// This is [`quiesce`](Self::quiesce), then `take`, then [`barrier`](Self::barrier), and costs
    /// as much. `take` should make no calls: they would belong to no phase.
    ///
    /// # Errors
    /// The error of `call`, without waiting. [`Error::PeerLost`] if a process of the job is lost;
    /// [`Error::CollectiveMismatch`] if another worker calls another collective;
    /// [`Error::Deadline`] if one does not come in time, or calls do not end; [`Error::InHandler`]
    /// in a handler. In a job of several binaries also [`Error::CollectiveOverrun`].
    #[track_caller]
    pub fn superstep<T>(&self, call: impl FnOnce() -> Result<()>, take: impl FnOnce() -> T) -> Result<T> {
        call()?;
        self.quiesce()?;
        let taken = take();
        self.barrier()?;
        Ok(taken)
    }
}
