//! The messages between a door and its clients: the service [`Door`] and its types.

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::wire::check::MessageKind;
use farside_rpc::{Call, Never, Wire};

use crate::element::{ElementType, Field};
use crate::names::JobId;
use crate::network::Token;
use crate::spans::Span;
pub use farside::__private::{
    Answer, CalledFunction, Counted, EventNow, EventWhat, EventsNow, Position, Question, WhomNow, WorkerNow, WorkersNow,
};

/// The most bytes of one change of views, and of the changes of a view that wait for its next step.
pub const CHANGE_BYTES_MAX: u64 = 8 << 20;

/// The process behind a door.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct About {
    /// Its number in the job.
    pub process: u32,
    /// The number of processes of the job.
    pub process_count: u32,
    /// Its number in the system.
    pub system_process: u32,
    /// The job.
    pub job: JobId,
    /// Where its door on the network listens, if it has one.
    pub network: Option<String>,
    /// True if it is to have one, by `FARSIDE_INSPECT`, and has opened none because it has shown
    /// nothing yet.
    pub awaits_network: bool,
    /// A number that no other process has.
    pub key: u64,
}

/// The door on the network of a process.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct NetworkDoor {
    /// Where it listens. The host may be `*`: all devices of its machine.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The addresses by which other machines may reach its machine.
    pub addresses: Vec<String>,
    /// The number of the process that no other has.
    pub key: u64,
}

/// The doors on the network of all processes of a job, as process 0 knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Neighbors {
    /// The processes that have answered: their doors, or why they opened none.
    pub doors: Vec<(u32, Result<NetworkDoor, String>)>,
    /// The processes that have not answered yet.
    pub awaited: Vec<u32>,
    /// The token that the doors ask for, for programs of the own user on the machine.
    pub token: Option<Token>,
}

/// How a process is to open its door on the network.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Listen {
    /// Where. `*` is all devices of the machine.
    pub host: String,
    /// The port. 0 is any free one.
    pub port: u16,
    /// The tokens to ask for.
    pub tokens: Vec<Token>,
}

/// The role of an area.
#[derive(Clone, Copy, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
pub enum Role {
    /// Memory that the program publishes once a step.
    View,
    /// Memory as it is now.
    Memory,
    /// A number that the program sets.
    Gauge,
    /// A number that readers may set, within bounds.
    Parameter {
        /// The lowest value.
        least: f64,
        /// The highest value.
        most: f64,
    },
    /// Something that the program does when it is asked to. It has no elements.
    Action,
    /// Something that the program computes when it is asked to. It has no elements.
    Probe,
}

impl Role {
    /// Returns whether the area has elements to read.
    #[must_use]
    pub fn has_elements(self) -> bool {
        !matches!(self, Self::Action | Self::Probe)
    }
}

/// How an area is best drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub enum Kind {
    /// As its shape suggests.
    #[default]
    Plain,
    /// A line, or several.
    Line,
    /// A picture.
    Image,
    /// A table of numbers.
    Table,
    /// A tree: a probe whose answers describe its nodes.
    Tree,
    /// A board of Hex: a probe whose answers describe it.
    HexBoard,
}

/// One worker's part of an area.
#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Part {
    /// The name of the area.
    pub name: String,
    /// The worker.
    pub worker: u32,
    /// The role of the area.
    pub role: Role,
    /// How it is best drawn.
    pub kind: Kind,
    /// True if readers may write it.
    pub is_writable: bool,
    /// The type of the elements.
    pub element: ElementType,
    /// Its fields, if it is a struct.
    pub fields: Vec<Field>,
    /// The shape of the whole area.
    pub whole: Vec<u64>,
    /// Where the part begins in it.
    pub origin: Vec<u64>,
    /// The shape of the part.
    pub shape: Vec<u64>,
    /// The units of the elements. Empty if they have none.
    pub units: String,
    /// The coordinates of the first place of the whole, by dimension. Empty if they are not given.
    pub zero: Vec<f64>,
    /// The distance of two places, by dimension. Empty if it is not given.
    pub spacing: Vec<f64>,
    /// The step that was published last.
    pub step: Option<u64>,
}

impl Part {
    /// A single number without a step.
    #[must_use]
    pub fn new(name: impl Into<String>, worker: u32, role: Role) -> Self {
        Self {
            name: name.into(),
            worker,
            role,
            kind: Kind::Plain,
            is_writable: false,
            element: ElementType::F64,
            fields: Vec::new(),
            whole: Vec::new(),
            origin: Vec::new(),
            shape: Vec::new(),
            units: String::new(),
            zero: Vec::new(),
            spacing: Vec::new(),
            step: None,
        }
    }
}

/// The step of a view that a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub enum Wish {
    /// The newest, if a copy of it is there; otherwise the next.
    Newest,
    /// The next.
    Next,
    /// The first that has this number or a higher one. It must not have passed, unless it is the
    /// newest and a copy of it is there.
    From(u64),
}

/// Elements of one worker's part.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Wanted {
    /// The name of the area.
    pub name: String,
    /// The worker.
    pub worker: u32,
    /// The step, if the area is a view.
    pub wish: Wish,
    /// The places in each dimension of the part.
    pub spans: Vec<Span>,
    /// True if the reader copies memory itself, and asks afterwards whether it was
    /// [unchanged](Door::is_unchanged).
    pub is_direct: bool,
}

/// Elements that a reader gets. It holds them as long as it has `elements`, but loses those of a
/// view when others need the memory.
#[derive(Debug, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Got {
    /// The step. `None` if the area has none.
    pub step: Option<u64>,
    /// The version of the memory, if the reader copies it itself.
    pub version: Option<u64>,
    /// The elements, in row-major order.
    pub elements: Bulk<Read>,
}

/// Places of one worker's part.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Places {
    /// The name of the area.
    pub name: String,
    /// The worker.
    pub worker: u32,
    /// The places in each dimension of the part.
    pub spans: Vec<Span>,
}

/// A change that all workers make at one step.
#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
pub enum Order {
    /// Sets a parameter, or runs an action, at all workers that have it.
    Set {
        /// Its name.
        name: String,
        /// The new value of a parameter. `None` for an action.
        value: Option<f64>,
    },
    /// Writes elements of a view.
    Write {
        /// Where.
        places: Places,
        /// The elements, in row-major order.
        bytes: Vec<u8>,
    },
}

/// The workers of a process stay at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Stayed {
    /// The number of the stay in its process.
    pub stay: u64,
    /// The lowest and the highest of the steps that the workers have completed. `None` if no worker
    /// of the process publishes steps.
    pub steps: Option<(u64, u64)>,
}

/// A stay of the workers of a process, or a lock of memory, for a reader.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct HeldItem {
    /// Its number.
    pub number: u64,
    /// Its kind.
    pub kind: HeldKind,
    /// The step that the workers have completed.
    pub step: Option<u64>,
}

/// The kind of a [`HeldItem`].
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub enum HeldKind {
    /// The workers stay until the reader lets them go on.
    Pause,
    /// The workers stay until the reader has made one change.
    Change,
    /// Memory is locked.
    Memory {
        /// Its name.
        name: String,
        /// Its worker.
        worker: u32,
    },
}

/// Why a door did not give what was asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Wire)]
#[wire(crate = "farside_rpc")]
pub enum Refused {
    /// There is no such part, or no longer.
    #[error("worker {worker} has no area {name:?}: `farside inspect list` prints what there is")]
    Unknown {
        /// The name of the area.
        name: String,
        /// The worker.
        worker: u32,
    },
    /// The step is over.
    #[error("the program is already at step {step}: ask for a later one")]
    Passed {
        /// The step that was published last.
        step: u64,
    },
    /// The places are not inside the part, or do not fit the memory for them.
    #[error("the places asked for do not fit the part, which has the shape {shape:?}")]
    Places {
        /// The shape of the part.
        shape: Vec<u64>,
    },
    /// All copies are in use, or as many readers wait as are allowed.
    #[error("too many readers use this area at once, or too many changes wait: try again later")]
    Busy,
    /// The process has no memory for a copy.
    #[error("the process has no memory for a copy of {bytes} bytes")]
    NoMemory {
        /// The size of the copy.
        bytes: u64,
    },
    /// Another client traces the process.
    #[error("another client traces this process: try again when that trace has ended")]
    Traced,
    /// The elements could not be moved between the process and the reader.
    #[error("moving the elements failed: {cause}")]
    Transfer {
        /// The reason.
        cause: String,
    },
    /// The area is no such thing.
    #[error("{name:?} is not {wanted}: `farside inspect list` prints what it is")]
    Role {
        /// The name of the area.
        name: String,
        /// The role that it would need.
        wanted: String,
    },
    /// The program lets no one write the area.
    #[error("{name:?} cannot be written: the program must declare it writable")]
    ReadOnly {
        /// The name of the area.
        name: String,
    },
    /// The value is outside the parameter's bounds.
    #[error("{value} is outside the bounds of {name:?}: give {least} to {most}")]
    Range {
        /// The name of the parameter.
        name: String,
        /// The value.
        value: f64,
        /// The lowest value.
        least: f64,
        /// The highest value.
        most: f64,
    },
    /// Another reader holds the job or has locked the area.
    #[error("another reader holds {what}: try again when it has ended")]
    Held {
        /// The job or the area.
        what: String,
    },
    /// The stay or lock has ended.
    #[error("the pause or lock has ended, because its time was over or nothing kept it: take a new one")]
    Over,
    /// A step-by-step change is too large.
    #[error("{bytes} bytes are too many for one change of a view: write at most {max}")]
    TooLarge {
        /// The size of the change.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// An element is no value of its type.
    #[error("the elements for {name:?} are no values of {element}")]
    Value {
        /// The name of the area.
        name: String,
        /// The type.
        element: ElementType,
    },
    /// The token lets its owner look only.
    #[error("this token is only for looking: use one of the kind `write`")]
    NoRight,
    /// The job has no doors on the network.
    #[error("the job has no doors on the network: start it with FARSIDE_INSPECT=tcp")]
    NoNetwork,
    /// The process has no workers.
    #[error("the process belongs to no job, so it has no workers that could be traced")]
    NoJob,
    /// The program failed to answer.
    #[error("the program failed to answer: {cause}")]
    Failed {
        /// The reason.
        cause: String,
    },
}

/// The calls of a door.
#[farside_rpc::service(name = "farside.inspect")]
pub trait Door {
    /// The process behind the door.
    #[rpc(inline)]
    fn about(&self, cx: &Call) -> Result<About, Never>;
    /// Has all other processes open their doors on their machines, if they were not asked yet.
    /// Returns those whose answers may still come.
    #[rpc(inline)]
    fn open_others(&self, cx: &Call) -> Result<Vec<u32>, Never>;
    /// The doors on the network of all processes. Asks those for one that have none. For process 0.
    fn neighbors(&self, cx: &Call) -> Result<Neighbors, Refused>;
    /// Has the process open its door on the network, for another process of its user.
    fn open_on_network(&self, cx: &Call, listen: Listen) -> Result<NetworkDoor, Refused>;
    /// All parts of the process, by name and worker.
    fn parts(&self, cx: &Call) -> Result<Vec<Part>, Never>;
    /// The step of a part that was published last.
    #[rpc(inline)]
    fn step(&self, cx: &Call, name: String, worker: u32) -> Result<Option<u64>, Refused>;
    /// Waits for a step, and gives its elements. An area without steps is read as it is now.
    async fn get(&self, cx: &Call, wanted: Wanted) -> Result<Got, Refused>;
    /// Returns whether memory is still what it was at a version.
    #[rpc(inline)]
    fn is_unchanged(&self, cx: &Call, name: String, worker: u32, version: u64) -> Result<bool, Refused>;
    /// Writes elements of memory, all at once. `lock` is the caller's lock of the area, if it has
    /// one. Returns the step that the worker had published last.
    async fn put(&self, cx: &Call, places: Places, lock: Option<u64>, from: Bulk<Read>)
    -> Result<Option<u64>, Refused>;
    /// Locks memory, so that neither the program nor others change it. Returns the number of the
    /// lock. It ends when the reader [attends](Door::attend) no longer.
    async fn lock(&self, cx: &Call, name: String, worker: u32, reader: u64) -> Result<u64, Refused>;
    /// Has the workers of the process stay after the first step from `after` on, and waits until
    /// they do: until the end of a pause, or for one change. `hold` is the number of a stay to
    /// continue. The stay ends when the reader [attends](Door::attend) no longer.
    async fn stay(
        &self,
        cx: &Call,
        after: u64,
        stay: Option<u64>,
        is_pause: bool,
        reader: u64,
    ) -> Result<Stayed, Refused>;
    /// The workers that did not stay for this reader's last call of `stay`, or do not yet. Each
    /// comes with the step that it has published last.
    #[rpc(inline)]
    fn awaited(&self, cx: &Call, reader: u64) -> Result<Vec<(u32, u64)>, Never>;
    /// Says that a reader is there, as long as this call is open. The number is the client's own.
    async fn attend(&self, cx: &Call, reader: u64) -> Result<(), Never>;
    /// Ends a stay or a lock.
    #[rpc(inline, oneway)]
    fn release(&self, cx: &Call, number: u64);
    /// The stay and the locks of this process.
    fn held(&self, cx: &Call) -> Result<Vec<HeldItem>, Never>;
    /// Makes changes in this process, whose workers stay, or only checks them. Returns how many
    /// places they reach.
    fn apply(&self, cx: &Call, stay: u64, orders: Vec<Order>, only_check: bool) -> Result<u64, Refused>;
    /// Makes changes in several processes, all or none. `holds` are those processes, with the
    /// numbers of their stays. Returns how many places the changes reach.
    fn conduct(&self, cx: &Call, stays: Vec<(u32, u64)>, orders: Vec<Order>) -> Result<u64, Refused>;
    /// The step that the process's workers have published last.
    #[rpc(inline)]
    fn newest(&self, cx: &Call) -> Result<Option<u64>, Never>;
    /// Asks a probe.
    async fn ask(&self, cx: &Call, name: String, worker: u32, question: String) -> Result<Vec<u8>, Refused>;
    /// Asks what the workers do. The answer to [`Question::Watch`] is their activity a moment
    /// later.
    fn look(&self, cx: &Call, question: Question) -> Result<Answer, Refused>;
    /// The time of the process's monotonic clock, in nanoseconds.
    #[rpc(inline)]
    fn clock(&self, cx: &Call) -> Result<u64, Never>;
}

/// The arguments and results of the calls, for tests of their decoders.
pub fn message_kinds() -> Vec<MessageKind> {
    vec![
        MessageKind::of::<About>(),
        MessageKind::of::<Neighbors>(),
        MessageKind::of::<NetworkDoor>(),
        MessageKind::of::<Listen>(),
        MessageKind::of::<Vec<Part>>(),
        MessageKind::of::<Wanted>(),
        MessageKind::of::<Places>(),
        MessageKind::of::<Order>(),
        MessageKind::of::<Stayed>(),
        MessageKind::of::<Vec<HeldItem>>(),
        MessageKind::of::<Question>(),
        MessageKind::of::<Answer>(),
        MessageKind::of::<Refused>(),
    ]
}
