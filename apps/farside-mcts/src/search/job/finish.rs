//! Ends a run and makes the report.

use std::time::Duration;

use farside::{SendCounters, WhenFull, Worker, WorkerId};

use super::desk::{Address, Seat};
use super::message::EntryId;
use super::part::Part;
use super::serve::{WAIT_MAX, at};
use super::{JobError, JobReport, WorkerReport};
use crate::game::Game;
use crate::search::Report;
use crate::search::report::Tally;

/// The owner of the root.
pub(super) const FIRST: WorkerId = WorkerId::new(0);

/// At worker 0: collects the expected line of play from the owners of its nodes.
pub(super) fn find_line<G: Game>(me: &Worker, address: Address) -> Result<(), JobError> {
    at::<G, _>(me, address, |seat| extend_line(seat, me, address, None, Vec::new()));
    me.wait_together(WAIT_MAX, || at::<G, _>(me, address, |seat| seat.line.is_some() || seat.failure.is_some()))?;
    at::<G, _>(me, address, |seat| seat.check(me))
}

/// At worker 0: ends the run at the other workers.
pub(super) fn tell_end<G: Game>(me: &Worker, address: Address) -> Result<(), JobError> {
    for other in me.workers().skip(1) {
        let end = farside::remote!(|there, address: Address| {
            address.at::<G, _>(there, |seat| seat.is_over = true);
        });
        me.to(other).when_full(WhenFull::Queue).call_remote(address, end).map_err(farside::Error::from)?;
    }
    Ok(())
}

/// Extends the expected line from a node of this worker, or from the root. Then sends it to the
/// owner of the next node or, at its end, to worker 0.
fn extend_line<G: Game>(
    seat: &mut Seat<G>,
    me: &Worker,
    address: Address,
    entry: Option<EntryId>,
    mut line: Vec<G::Move>,
) {
    let sent = match seat.part.follow(entry, &mut line) {
        Some((owner, entry)) => {
            let go_on = farside::remote!(|there, (address, entry, line): (Address, EntryId, Vec<G::Move>)| {
                address.at::<G, _>(there, |seat| extend_line(seat, there, address, Some(entry), line));
            });
            me.to(owner)
                .when_full(WhenFull::Queue)
                .call_remote((address, entry, line), go_on)
                .map_err(farside::Error::from)
        }
        None if me.id() == FIRST => {
            seat.line = Some(line);
            Ok(())
        }
        None => {
            let keep = farside::remote!(|there, (address, line): (Address, Vec<G::Move>)| {
                address.at::<G, _>(there, |seat| seat.line = Some(line));
            });
            me.to(FIRST).when_full(WhenFull::Queue).call_remote((address, line), keep).map_err(farside::Error::from)
        }
    };
    if let Err(error) = sent {
        seat.failure.get_or_insert(error);
    }
}

/// Gathers the statistics of all workers, and returns the same report to each.
pub(super) fn report<G: Game>(
    me: &Worker,
    address: Address,
    sent_before: &SendCounters,
    elapsed: Duration,
) -> Result<Option<Report<G::Move>>, JobError> {
    let sent = me.counters().sent;
    let own = at::<G, _>(me, address, |seat| WorkerReport {
        messages: sent.calls - sent_before.calls,
        bytes: sent.bytes - sent_before.bytes,
        ..own_report(&seat.part)
    });
    let gathered = me.gather(FIRST, own)?;
    let report = gathered.map(|workers| at::<G, _>(me, address, |seat| whole_report(seat, workers, elapsed)));
    Ok(me.broadcast(FIRST, report)?)
}

fn own_report<G: Game>(part: &Part<G>) -> WorkerReport {
    let counters = part.counters();
    WorkerReport {
        simulations: counters.tally.simulations,
        steps: counters.steps,
        nodes: part.tree().node_count(),
        tree_bytes: part.tree_bytes(),
        deferred: counters.deferred,
        given_away: counters.given_away,
        depth: counters.tally.depth,
        max_depth: counters.tally.max_depth,
        ..WorkerReport::default()
    }
}

fn whole_report<G: Game>(seat: &mut Seat<G>, workers: Vec<WorkerReport>, elapsed: Duration) -> Option<Report<G::Move>> {
    let mut report = part_report(&seat.part, elapsed)?;
    let root = seat.part.root()?;
    let job = JobReport { workers, started: root.started, in_flight_max: root.in_flight_max() };
    report.line = seat.line.take().unwrap_or_default();
    report.simulations = job.sum(|worker| worker.simulations);
    report.max_depth = job.workers.iter().map(|worker| worker.max_depth).max().unwrap_or_default();
    report.mean_depth = job.sum(|worker| worker.depth) as f64 / report.rollouts.max(1) as f64;
    report.nodes = job.workers.iter().map(|worker| worker.nodes).sum();
    report.tree_bytes = job.workers.iter().map(|worker| worker.tree_bytes).sum();
    report.job = Some(job);
    Some(report)
}

/// Returns a report from the root and this worker's statistics alone, or `None` before the first
/// rollout.
pub(super) fn part_report<G: Game>(part: &Part<G>, elapsed: Duration) -> Option<Report<G::Move>> {
    let root = part.root()?;
    let tally = Tally { rollouts: root.completed, kept: root.kept, ..part.counters().tally };
    Report::of(part.tree(), root.node, tally, elapsed)
}
