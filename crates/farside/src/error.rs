//! What can go wrong, with the facts.

use std::time::Duration;
use std::{fmt, iter};

use farside_fabric::ring::Corrupt;
use farside_fabric::{FabricError, ProcessId, WorkerId};

use farside_launch::LaunchError;
pub use farside_launch::{ProcessEnd, RendezvousError};

/// A result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Processes of other binaries have sent more for collectives than a worker keeps until it comes to them.
    #[error(
        "processes of other binaries sent more than {values} values or {bytes} bytes for collectives that {worker} has not come \
         to: see whether all of them call the same collectives, or have them wait for each other at a barrier now and then"
    )]
    CollectiveOverrun {
        /// The worker that keeps them.
        worker: WorkerId,
        /// How many it keeps.
        values: usize,
        /// How many bytes they may have.
        bytes: usize,
    },
    /// Something that waits was called by a handler.
    #[error(
        "{what} waits, and a handler must not: it would keep its worker from the very calls it waits for. Use \
         `Pending::then`, keep a `Reply`, or send with `WhenFull::Fail` or `Queue`"
    )]
    InHandler {
        /// What was called.
        what: &'static str,
    },
    /// What a ring holds can not have been written by a sender of this library.
    #[error(
        "the ring from {from} is corrupt: {cause}; {from} has a bug or overwrote its memory, and is not listened to any more"
    )]
    CorruptRing {
        /// Who fills the ring.
        from: Source,
        /// What is wrong.
        cause: CorruptRecord,
    },
    /// The deadline passed.
    #[error("deadline passed after {after:?} while {doing}")]
    Deadline {
        /// What was waited for.
        doing: &'static str,
        /// How long.
        after: Duration,
    },
    /// A closure or function pointer was to be called where it does not exist.
    #[error(
        "{a} and {b} run different binaries, and a closure of one is nothing to the other: register a function by name there \
         (`Job::register`) and call that (`call_named`), or start one program, built once, for both"
    )]
    DifferentBinaries {
        /// The caller's process.
        a: ProcessId,
        /// The receiver's.
        b: ProcessId,
    },
    /// The job was to keep to shared memory, and its processes are on more than one machine.
    #[error(
        "{a} and {b} are on different machines (or in containers that share no network), and the job was told to use shared \
         memory only: start all on one machine, or leave out --fabric shm (and FARSIDE_FABRIC)"
    )]
    DifferentMachines {
        /// One.
        a: ProcessId,
        /// Another.
        b: ProcessId,
    },
    /// The fabric could not do it.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A function that is to be called elsewhere is not part of the main program.
    #[error(
        "a function at {address:#x} is outside the main program (in a dynamic library?), so that other processes cannot find \
         it: link it statically"
    )]
    ForeignFunction {
        /// Where it is.
        address: usize,
    },
    /// There is no room for a call now.
    #[error("no room for a call to {to}: {cause}")]
    Full {
        /// The receiver.
        to: WorkerId,
        /// What is full.
        cause: FullCause,
    },
    /// A function that was called here panicked, and nobody waits for its result.
    #[error("a function that {from} called here panicked: {message}")]
    HandlerPanicked {
        /// The caller.
        from: Source,
        /// What the panic said.
        message: String,
    },
    /// The job could not begin, or was ended.
    #[error("the job was ended: {why}")]
    JobEnded {
        /// The reason, from whoever ended it.
        why: String,
    },
    /// The job's shape is impossible.
    #[error("a job of {processes} processes with {threads} threads each: {why}")]
    JobShape {
        /// Processes asked for.
        processes: u32,
        /// Worker threads of each.
        threads: u32,
        /// What is wrong with it.
        why: String,
    },
    /// There can be no such ring, or not any more.
    #[error("the ring cannot be as asked for: {why}")]
    RingOptions {
        /// What is wrong.
        why: String,
    },
    /// A function that others called here by its name did not run, and its caller gets no answer.
    #[error("a call of the named function {name:?} from {from} did not run: {why}")]
    NamedCallRefused {
        /// The caller.
        from: Source,
        /// The function's name, or a number where no function of that name is registered.
        name: String,
        /// Why not.
        why: NameRefusal,
    },
    /// The named function that was called did not run.
    #[error("the named function {name:?} did not run on {on}: {why}")]
    NamedRefused {
        /// Where.
        on: WorkerId,
        /// The function's name.
        name: &'static str,
        /// Why not.
        why: NameRefusal,
    },
    /// A type travels only among processes of one binary.
    #[error(
        "{name}: {type_name} travels only among processes of one binary: send a type with `#[derive(Wire)]` made of others that \
         travel"
    )]
    NotPortable {
        /// What it was to be part of: a named function, or a collective.
        name: &'static str,
        /// The type.
        type_name: &'static str,
    },
    /// A process of the job is gone.
    #[error("{process} was lost: {why}")]
    PeerLost {
        /// Which.
        process: ProcessId,
        /// How it ended, as far as known.
        why: String,
    },
    /// A process of the job failed, and with it the job.
    #[error("{process} failed: {how}")]
    ProcessFailed {
        /// Which.
        process: ProcessId,
        /// How.
        how: ProcessEnd,
    },
    /// The processes that another launcher started did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The function called panicked.
    #[error("the function called on {on} panicked: {message}")]
    RemotePanic {
        /// Where.
        on: WorkerId,
        /// What the panic said.
        message: String,
    },
    /// The function called let its [`Reply`](crate::Reply) go without answering.
    #[error("the function called on {on} dropped its reply without an answer")]
    ReplyDropped {
        /// Where.
        on: WorkerId,
    },
    /// An error of one of the modules with errors of their own, such as [`heap`](crate::heap) or
    /// [`pipe`](crate::pipe). [`room_error`](Error::room_error) returns it by its type.
    #[error(transparent)]
    Room(Box<dyn std::error::Error + Send + Sync>),
    /// Jobs are started by running the program again, and the program would come to another job first.
    #[error(
        "a second job in one program (the first: {first}; this one: {this}): its processes would run this program from the \
         beginning and come to the first job again. Start each job from a program of its own, or give the second one an \
         entry of its own with `Job::entry`"
    )]
    SecondJob {
        /// Where the first job is in the source.
        first: String,
        /// Where this one is.
        this: String,
    },
    /// The system refused.
    #[error("{doing} failed: {cause}")]
    System {
        /// What was done.
        doing: &'static str,
        /// The reason.
        cause: std::io::Error,
    },
    /// A call or its result can never fit.
    #[error("{what} of {bytes} bytes; at most {max} bytes can ever travel: send it in pieces")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// No such process.
    #[error("{process} does not exist: the job has processes 0 to {}", count - 1)]
    UnknownProcess {
        /// Which was named.
        process: ProcessId,
        /// How many there are.
        count: u32,
    },
    /// No such worker.
    #[error("{worker} does not exist: the job has workers 0 to {}", count - 1)]
    UnknownWorker {
        /// Which was named.
        worker: WorkerId,
        /// How many there are.
        count: u32,
    },
    /// What arrived does not hold what its type says.
    #[error("a value from {from} is malformed: {cause}")]
    Wire {
        /// The sender.
        from: WorkerId,
        /// What is wrong.
        cause: crate::wire::WireError,
    },
    /// This process was started for another job of the program than the one it came to.
    #[error("this process was started for the job at {expected}, and came to the one at {reached} first: {remedy}")]
    WrongJob {
        /// The job it was started for.
        expected: String,
        /// The one it came to.
        reached: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A buffer is to be written where the function runs, and the memory for it is elsewhere.
    #[error("the memory for the buffer is of {memory}, and the function runs in {wanted}: allocate it there")]
    WrongProcess {
        /// Whose memory it is.
        memory: ProcessId,
        /// Whose it should be.
        wanted: ProcessId,
    },
}

impl Error {
    /// Returns the error of a module, if this error holds one of type `E`.
    ///
    /// ```
    /// use farside::heap::HeapError;
    ///
    /// fn is_exhausted(error: &farside::Error) -> bool {
    ///     matches!(error.room_error(), Some(HeapError::Exhausted { .. }))
    /// }
    /// ```
    pub fn room_error<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Room(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the lost process that this error, or one of its sources, names.
    pub(crate) fn lost_process(&self) -> Option<ProcessId> {
        match self {
            Self::PeerLost { process, .. } => Some(*process),
            Self::Room(error) => iter::successors(error.source(), |error| error.source()).find_map(|error| {
                let boxed = || error.downcast_ref::<Box<Self>>().map(|error| &**error);
                error.downcast_ref::<Self>().or_else(boxed)?.lost_process()
            }),
            _ => None,
        }
    }
}

impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Deadline { doing, after } => Self::Deadline { doing, after },
            LaunchError::DifferentMachines { a, b } => Self::DifferentMachines { a, b },
            LaunchError::Fabric(error) => Self::Fabric(error),
            LaunchError::JobEnded { why } => Self::JobEnded { why },
            LaunchError::JobShape { processes, threads, why } => Self::JobShape { processes, threads, why },
            LaunchError::ProcessFailed { process, how } => Self::ProcessFailed { process, how },
            LaunchError::RingOptions { why } => Self::RingOptions { why },
            LaunchError::Rendezvous(error) => Self::Rendezvous(error),
            LaunchError::SecondJob { first, this } => Self::SecondJob { first, this },
            LaunchError::System { doing, cause } => Self::System { doing, cause },
            LaunchError::WrongJob { expected, reached, remedy } => Self::WrongJob { expected, reached, remedy },
            // The enum may grow; its texts say what happened.
            other => Self::JobEnded { why: other.to_string() },
        }
    }
}

/// Why a named function did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum NameRefusal {
    /// It is not there.
    #[error(
        "no function of this name is registered there: register it with `Job::register`, and see that both spell it alike"
    )]
    Unknown = 1,
    /// The caller's types are not its types.
    #[error(
        "it is registered with other types: caller and function must have arguments and results of the same shape (fields, variants \
         and their names, in the same order)"
    )]
    OtherTypes = 2,
    /// What came is none of its arguments.
    #[error("its arguments are malformed: the caller has a bug or overwrote its memory")]
    Malformed = 3,
}

impl NameRefusal {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Unknown, Self::OtherTypes, Self::Malformed].into_iter().find(|refusal| *refusal as u8 == byte)
    }
}

impl From<crate::wire::WireError> for NameRefusal {
    fn from(_: crate::wire::WireError) -> Self {
        Self::Malformed
    }
}

/// Who fills a ring: one worker, or all threads of a process together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A worker's own ring.
    Worker(WorkerId),
    /// A process's mailbox lane.
    Process(ProcessId),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Worker(worker) => worker.fmt(f),
            Source::Process(process) => process.fmt(f),
        }
    }
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CorruptRecord {
    /// The ring's own bookkeeping does not hold.
    #[error(transparent)]
    Ring(#[from] Corrupt),
    /// A part of a stream of records is missing, or came twice.
    #[error("a frame of a stream's bytes from {position} on, where those from {expected} on come next")]
    Gap {
        /// What came.
        position: u64,
        /// What comes next.
        expected: u64,
    },
    /// No function has this number.
    #[error("a call of function {entry}, of which this program has {count}")]
    Entry {
        /// The number.
        entry: u16,
        /// How many there are.
        count: usize,
    },
    /// The arguments do not hold what their types say.
    #[error("arguments of function {entry} that do not hold what their types say")]
    Malformed {
        /// The function.
        entry: u16,
    },
    /// An address that is no function's beginning.
    #[error("a call of offset {offset:#x}, where no function begins")]
    NoFunction {
        /// The offset in the program's text.
        offset: u32,
    },
}

/// What has no room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FullCause {
    /// The receiver has not consumed what was sent before.
    #[error("its ring holds {ring_bytes} bytes that it has not consumed; wait, or use `WhenFull::Retry` or `Queue`")]
    Credit {
        /// The ring's size.
        ring_bytes: usize,
    },
    /// The receiver grants no more ring memory.
    #[error("it grants no more ring memory (its cap is {cap_bytes} bytes); raise `Job::ring_cap_bytes`")]
    RingCap {
        /// The receiver's cap for all its rings.
        cap_bytes: usize,
    },
    /// The sender's own queue is at its cap.
    #[error("{queued_bytes} bytes are queued for it already; raise `Job::queue_cap_bytes` or send less")]
    Queue {
        /// How much is queued.
        queued_bytes: usize,
    },
    /// Too many calls wait for their results.
    #[error("{pending} calls of this worker wait for their results; take some first")]
    Replies {
        /// How many.
        pending: usize,
    },
}

/// A call that was not sent, with its arguments.
///
/// Converts into its error with `?`, dropping the arguments.
#[derive(Debug)]
pub struct Refused<A, E = Error> {
    /// Why.
    pub error: E,
    /// The arguments, unharmed.
    pub arguments: A,
}

impl<A, E: Into<Error>> From<Refused<A, E>> for Error {
    fn from(refused: Refused<A, E>) -> Self {
        refused.error.into()
    }
}

impl<A, E: fmt::Display> fmt::Display for Refused<A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<A: fmt::Debug, E: fmt::Debug + fmt::Display> std::error::Error for Refused<A, E> {}

/// Implements the conversions of a room's error, which has a variant `Job` for an [`Error`].
///
/// The error converts into [`Error`]: the error inside `Job` becomes itself again, and all others
/// become [`Error::Room`]. Errors of the fabric and refused calls convert into the room's error.
macro_rules! room_error {
    ($room:ident) => {
        impl From<$room> for $crate::error::Error {
            fn from(error: $room) -> Self {
                match error {
                    $room::Job(error) => error,
                    error => Self::Room(Box::new(error)),
                }
            }
        }

        impl From<farside_fabric::FabricError> for $room {
            fn from(error: farside_fabric::FabricError) -> Self {
                Self::Job(error.into())
            }
        }

        impl<A, E: Into<$room>> From<$crate::error::Refused<A, E>> for $room {
            fn from(refused: $crate::error::Refused<A, E>) -> Self {
                refused.error.into()
            }
        }
    };
}
pub(crate) use room_error;
