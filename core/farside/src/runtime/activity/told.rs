//! Reports on workers for readers outside of the job: their state, their times and their events.
//!
//! The door of a process answers them, or its launcher, which asks the service thread of the
//! process by the control link.

#![expect(missing_docs, reason = "they are not for programs, and what a field is, is said at `Activity`")]

use std::time::Duration;

use super::{Activity, Counters, Event, EventKind, FunctionId, Place, Taken, Whom, WorkerActivity};
use crate::wire::Wire;
use crate::wire::check::MessageKind;

/// A question about the workers of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub enum Question {
    /// Watches the workers for some milliseconds.
    Watch(u32),
    /// Asks for the activity of the workers.
    Workers,
    /// Begins a trace, goes on with it, or ends it if the time is 0.
    Trace {
        /// The number of the trace.
        session: u32,
        /// The duration.
        time_ms: u32,
        /// True if calls are numbered that the workers make.
        sends: bool,
    },
    /// Takes the events of a trace, up to a number.
    Events {
        /// The number of the trace.
        session: u32,
        /// The most events.
        max: u32,
    },
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub enum Answer {
    /// The request was executed.
    Done,
    /// Another trace goes on.
    Traced,
    /// The activity of the workers.
    Workers(WorkersNow),
    /// Events.
    Events(Vec<EventsNow>),
}

/// A place in the program, and what happens there.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct Position {
    pub doing: String,
    pub file: String,
    pub line: u32,
}

/// Whom a worker waits for, or whose call it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub enum WhomNow {
    Unknown,
    Worker(u32),
    Process(u32),
}

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct Thread {
    pub worker: u32,
    pub is_of_pool: bool,
}

/// A function, and the number of the place of one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct CalledFunction {
    pub entry: u16,
    pub offset: u32,
    pub place: u16,
}

/// The counters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct Counted {
    pub calls: u64,
    pub bytes: u64,
    pub stalls: u64,
    pub staged: u64,
    pub executed: u64,
    pub refused: u64,
    pub replies_pending: u64,
    pub ring_bytes: u64,
}

/// The activity of a worker. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct WorkerNow {
    pub thread: Thread,
    pub at_ns: u64,
    /// The number of the place, whom, and since when.
    pub wait: Option<(u16, WhomNow, u64)>,
    /// True if it runs a call; its function and since when, if they are known.
    pub runs_call: bool,
    pub call: Option<(u16, u32, u64)>,
    pub counted_from_ns: Option<u64>,
    pub in_calls_ns: u64,
    /// The number of the place, and the time.
    pub in_waits_ns: Vec<(u16, u64)>,
    /// The counters, and when the worker published them.
    pub counters: Option<(u64, Counted)>,
}

/// The activity of the workers of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct WorkersNow {
    pub workers: Vec<WorkerNow>,
    pub places: Vec<Position>,
    pub functions: Vec<CalledFunction>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub enum EventWhat {
    Sent { to: u32, entry: u16, offset: u32, place: u16, number: u32 },
    Refused { to: u32, number: u32 },
    Ran { from: WhomNow, entry: u16, offset: u32, number: u32 },
    Waited { place: u16, whom: WhomNow },
    Collective { place: u16 },
    Put { to: u32, bytes: u64, place: u16 },
    Message { to: u32, bytes: u64 },
}

/// An event. The number of a call is 0 if it cannot be paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct EventNow {
    pub at_ns: u64,
    pub time_ns: u64,
    pub what: EventWhat,
}

/// The events of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "crate::wire")]
pub struct EventsNow {
    pub worker: u32,
    pub events: Vec<EventNow>,
    /// The number of events that found no room in this trace so far.
    pub lost: u64,
}

impl Activity {
    /// Answers a question about the workers.
    pub fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Watch(time_ms) => {
                self.watch(Duration::from_millis(time_ms.into()));
                Answer::Done
            }
            Question::Workers => Answer::Workers(WorkersNow {
                workers: self.workers().into_iter().map(worker).collect(),
                places: self.places().into_iter().map(position).collect(),
                functions: self.functions().into_iter().map(function).collect(),
            }),
            Question::Trace { session, .. } | Question::Events { session, .. }
                if self.session().is_some_and(|other| other != session) =>
            {
                Answer::Traced
            }
            Question::Trace { session, time_ms, sends } => {
                match self.session() {
                    None if time_ms == 0 => {}
                    _ if time_ms == 0 => self.end_trace(),
                    current => {
                        if current.is_none() {
                            // Events of an earlier trace that no one took.
                            drop(self.take_events(usize::MAX));
                        }
                        self.trace(session, Duration::from_millis(time_ms.into()), sends);
                    }
                }
                Answer::Done
            }
            Question::Events { max, .. } => {
                let threads = self.activities.threads.len().max(1);
                Answer::Events(self.take_events(max as usize / threads).into_iter().map(events).collect())
            }
        }
    }
}

/// Its messages, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![MessageKind::of::<Question>(), MessageKind::of::<Answer>()]
}

fn position(place: Place) -> Position {
    Position { doing: place.doing.into(), file: place.site.file().into(), line: place.site.line() }
}

fn function((FunctionId { entry, offset }, place): (FunctionId, u16)) -> CalledFunction {
    CalledFunction { entry, offset, place }
}

fn events(taken: Taken) -> EventsNow {
    EventsNow { worker: taken.worker.number(), events: taken.events.into_iter().map(event).collect(), lost: taken.lost }
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

fn event(event: Event) -> EventNow {
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
