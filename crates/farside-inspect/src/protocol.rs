//! What travels between a door and its clients: the service [`Door`] and its types.

use farside_rpc::bulk::{Bulk, Write};
use farside_rpc::{Call, Never, Wire};

use crate::element::ElementType;
use crate::spans::Span;

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
}

/// One worker's part of an area.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Part {
    /// The name of the area.
    pub name: String,
    /// The worker.
    pub worker: u32,
    /// The type of the elements.
    pub element: ElementType,
    /// The shape of the whole area.
    pub whole: Vec<u64>,
    /// Where the part begins in it.
    pub origin: Vec<u64>,
    /// The shape of the part.
    pub shape: Vec<u64>,
    /// The units of the elements. Empty if they have none.
    pub units: String,
    /// The step that was published last.
    pub step: Option<u64>,
}

/// Elements of one worker's part.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Wanted {
    /// The name of the area.
    pub name: String,
    /// The worker.
    pub worker: u32,
    /// The step: the first that has this number or a higher one. It must not have passed, unless it
    /// is the newest and a copy of it is there.
    pub first: u64,
    /// The places in each dimension of the part.
    pub spans: Vec<Span>,
}

/// Why a door did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Wire)]
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
    #[error("too many readers use this area at once: try again later")]
    Busy,
    /// The process has no memory for a copy.
    #[error("the process has no memory for a copy of {bytes} bytes")]
    NoMemory {
        /// The size of the copy.
        bytes: u64,
    },
    /// The elements could not be moved to the reader.
    #[error("moving the elements failed: {cause}")]
    Transfer {
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
    /// All parts of the process, by name and worker.
    fn parts(&self, cx: &Call) -> Result<Vec<Part>, Never>;
    /// The step of a part that was published last.
    #[rpc(inline)]
    fn step(&self, cx: &Call, name: String, worker: u32) -> Result<Option<u64>, Refused>;
    /// Waits for a step, fills memory of the caller with elements in row-major order, and returns
    /// the number of the step.
    async fn get(&self, cx: &Call, wanted: Wanted, into: Bulk<Write>) -> Result<u64, Refused>;
}
