//! What the workers of a process are doing, for those who ask at its door.

use std::thread;
use std::time::Duration;

use farside::{Activity, Counters, EventKind, FunctionId, Whom, WorkerActivity};

use crate::protocol::{
    CalledFunction, Counted, EventNow, EventWhat, EventsNow, Position, Refused, Thread, WhomNow, WorkerNow, WorkersNow,
};

/// The most events of a process in one answer, which then has less than 16 MiB.
const EVENTS_MAX: usize = 200_000;

/// The time in which workers that wait publish their counters.
const ANSWER_TIME: Duration = Duration::from_millis(1);

pub(super) fn workers(activity: &Activity, watch_ms: u32) -> WorkersNow {
    if watch_ms > 0 {
        activity.watch(Duration::from_millis(watch_ms.into()));
        thread::sleep(ANSWER_TIME);
    }
    let workers = activity.workers().into_iter().map(worker).collect();
    let position = |place: farside::Place| Position {
        doing: place.doing.into(),
        file: place.site.file().into(),
        line: place.site.line(),
    };
    let function = |(FunctionId { entry, offset }, place): (FunctionId, u16)| CalledFunction { entry, offset, place };
    let places = activity.places().into_iter().map(position).collect();
    WorkersNow { workers, places, functions: activity.functions().into_iter().map(function).collect() }
}

/// Begins a trace, goes on with it, or ends it.
pub(super) fn trace(activity: &Activity, session: u32, time_ms: u32, sends: bool) -> Result<(), Refused> {
    match activity.session() {
        Some(other) if other != session => return Err(Refused::Traced),
        None if time_ms == 0 => {}
        _ if time_ms == 0 => activity.end_trace(),
        current => {
            if current.is_none() {
                // Events of an earlier trace that no one took.
                drop(activity.take_events(usize::MAX));
            }
            activity.trace(session, Duration::from_millis(time_ms.into()), sends);
        }
    }
    Ok(())
}

pub(super) fn events(activity: &Activity, session: u32) -> Result<Vec<EventsNow>, Refused> {
    if activity.session().is_some_and(|other| other != session) {
        return Err(Refused::Traced);
    }
    let threads = activity.workers().len().max(1);
    let taken = activity.take_events(EVENTS_MAX / threads).into_iter();
    Ok(taken
        .map(|taken| EventsNow {
            worker: taken.worker.number(),
            events: taken.events.into_iter().map(event).collect(),
            lost: taken.lost,
        })
        .collect())
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn whom(whom: Whom) -> WhomNow {
    match whom {
        Whom::Unknown => WhomNow::Unknown,
        Whom::Worker(worker) => WhomNow::Worker(worker.number()),
        Whom::Process(process) => WhomNow::Process(process.number()),
    }
}

fn counted(counters: Counters) -> Counted {
    Counted {
        calls: counters.sent.calls,
        bytes: counters.sent.bytes,
        stalls: counters.sent.stalls,
        staged: counters.sent.staged,
        executed: counters.executed,
        refused: counters.refused,
        replies_pending: counters.replies_pending,
        ring_bytes: counters.ring_bytes_here,
    }
}

fn worker(worker: WorkerActivity) -> WorkerNow {
    let call = worker.call.and_then(|call| call.function.zip(call.since));
    WorkerNow {
        thread: Thread { worker: worker.worker.number(), is_of_pool: worker.is_of_pool },
        at_ns: ns(worker.at),
        wait: worker.wait.map(|wait| (wait.place, whom(wait.whom), ns(wait.since))),
        runs_call: worker.call.is_some(),
        call: call.map(|(FunctionId { entry, offset }, since)| (entry, offset, ns(since))),
        counted_from_ns: worker.counted_from.map(ns),
        in_calls_ns: ns(worker.in_calls),
        in_waits_ns: worker.in_waits.into_iter().map(|(place, time)| (place, ns(time))).collect(),
        counters: worker.counters.map(|(at, counters)| (ns(at), counted(counters))),
    }
}

fn event(event: farside::Event) -> EventNow {
    let number = |number: Option<u32>| number.unwrap_or(0);
    let what = match event.kind {
        EventKind::Sent { to, function: FunctionId { entry, offset }, place, number: of } => {
            EventWhat::Sent { to: to.number(), entry, offset, place, number: number(of) }
        }
        EventKind::Refused { to, number: of } => EventWhat::Refused { to: to.number(), number: number(of) },
        EventKind::Ran { from, function: FunctionId { entry, offset }, number: of } => {
            EventWhat::Ran { from: whom(from), entry, offset, number: number(of) }
        }
        EventKind::Waited { place, whom: of } => EventWhat::Waited { place, whom: whom(of) },
        EventKind::Collective { place } => EventWhat::Collective { place },
        EventKind::Put { to, bytes, place } => EventWhat::Put { to: to.number(), bytes, place },
        EventKind::Message { to, bytes } => EventWhat::Message { to: to.number(), bytes },
    };
    EventNow { at_ns: ns(event.at), time_ns: ns(event.time), what }
}
