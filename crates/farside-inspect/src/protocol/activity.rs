//! What travels of workers: their state, their times and their events.

use farside_rpc::Wire;

/// A place in the program, and what happens there.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Position {
    pub doing: String,
    pub file: String,
    pub line: u32,
}

/// Whom a worker waits for, or whose call it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub enum WhomNow {
    Unknown,
    Worker(u32),
    Process(u32),
}

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Thread {
    pub worker: u32,
    pub is_of_pool: bool,
}

/// A function, and the number of the place of one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct CalledFunction {
    pub entry: u16,
    pub offset: u32,
    pub place: u16,
}

/// The counters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
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

/// What a worker is doing. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct WorkerNow {
    pub thread: Thread,
    pub at_ns: u64,
    /// The number of the place, whom, and since when.
    pub wait: Option<(u16, WhomNow, u64)>,
    /// Whether it runs a call; its function and since when, if they are known.
    pub runs_call: bool,
    pub call: Option<(u16, u32, u64)>,
    pub counted_from_ns: Option<u64>,
    pub in_calls_ns: u64,
    /// The number of the place, and the time.
    pub in_waits_ns: Vec<(u16, u64)>,
    /// The counters, and when the worker published them.
    pub counters: Option<(u64, Counted)>,
}

/// What the workers of a process are doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct WorkersNow {
    pub workers: Vec<WorkerNow>,
    pub places: Vec<Position>,
    pub functions: Vec<CalledFunction>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
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
#[wire(crate = "farside_rpc")]
pub struct EventNow {
    pub at_ns: u64,
    pub time_ns: u64,
    pub what: EventWhat,
}

/// The events of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct EventsNow {
    pub worker: u32,
    pub events: Vec<EventNow>,
    /// The number of events that found no room in this trace so far.
    pub lost: u64,
}
