//! The errors of jobs and calls, with the facts.

use std::panic::Location;
use std::time::Duration;
use std::{fmt, iter};

use farside_fabric::ring::Corrupt;
use farside_fabric::{FabricError, ProcessId, WorkerId};

pub use farside_launch::{LaunchError, ProcessEnd, RendezvousError};

/// The result of an operation of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of an operation of this library.
///
/// An operation that waits runs the calls that arrive meanwhile. Besides the errors that its
/// documentation lists, it can return the failure of such a call
/// ([`HandlerPanicked`](Self::HandlerPanicked), [`HandlerFailed`](Self::HandlerFailed),
/// [`NamedCallRefused`](Self::NamedCallRefused), [`CorruptRing`](Self::CorruptRing)), and
/// [`JobEnded`](Self::JobEnded). Inside [`PerWorker::with`](crate::PerWorker::with), it returns
/// [`Borrowed`](Self::Borrowed).
///
/// Its `Debug` is the sentence of its `Display`, because a `main` that returns an error prints
/// that.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Processes of other binaries have sent more for collectives than a worker keeps until it
    /// reaches them.
    #[error(
        "processes of other binaries sent more than {values} values or {bytes} bytes for collectives that {worker} has not \
         reached, or messages for more than {teams} teams that it has not made: check that all of them call the same \
         collectives, or let them wait for each other at a barrier now and then"
    )]
    CollectiveOverrun {
        /// The worker that received the values.
        worker: WorkerId,
        /// The largest number of values that it keeps.
        values: usize,
        /// The largest number of bytes that it keeps.
        bytes: usize,
        /// The largest number of teams for which it keeps messages before it makes them.
        teams: usize,
    },
    /// A handler called an operation that waits.
    #[error(
        "{what} waits, and a handler must not wait: it would keep its worker from the very calls that it waits for; use \
         `Pending::then`, keep a `Reply`, or send with `WhenFull::Spill`, `Queue` or `Fail`"
    )]
    InHandler {
        /// The operation.
        what: &'static str,
    },
    /// An operation that waits was called inside [`PerWorker::with`](crate::PerWorker::with).
    #[error(
        "{what} waits while a value of this worker is borrowed, since {since}: called functions that run meanwhile may need the value; wait after the closure of `with`"
    )]
    Borrowed {
        /// The operation.
        what: &'static str,
        /// The call of `with`.
        since: &'static Location<'static>,
    },
    /// The contents of a ring cannot have been written by a sender of this library.
    #[error(
        "the ring from {from} is corrupt: {cause}; {from} has a bug or overwrote its memory, and its calls no longer run here"
    )]
    CorruptRing {
        /// The sender that fills the ring.
        from: Source,
        /// The defect.
        cause: CorruptRecord,
    },
    /// Two workers take part in different collectives, or pass slices of different lengths.
    /// Collectives of this job, or of this team, cannot continue.
    #[error(
        "{here} takes part in {ours} and {there} in {theirs}: all members must call the same collectives, with the \
         same types and lengths, in the same order"
    )]
    CollectiveMismatch {
        /// The worker that noticed it.
        here: WorkerId,
        /// The collective of that worker.
        ours: Box<str>,
        /// The other worker.
        there: WorkerId,
        /// The collective of the other worker.
        theirs: Box<str>,
    },
    /// The deadline passed.
    #[error(
        "deadline passed after {after:?} while {doing}{}; if it only needs more time, raise `Job::deadline` or \
         FARSIDE_TIMEOUT_S, or the time that was given for this wait",
        late(waiting_for)
    )]
    Deadline {
        /// The operation that waited.
        doing: &'static str,
        /// The time that it waited.
        after: Duration,
        /// The workers that were waited for, as far as known: in a collective, those that did not
        /// come.
        waiting_for: Vec<WorkerId>,
    },
    /// A closure or function pointer was sent to a process of another binary, in which it does not
    /// exist.
    #[error(
        "{a} and {b} run different binaries, and a closure of one does not exist in the other: register a function by name \
         (`Job::register`) and call that (`call_named`), or start one program, built once, for both"
    )]
    DifferentBinaries {
        /// The caller's process.
        a: ProcessId,
        /// The receiver's process.
        b: ProcessId,
    },
    /// The fabric reported an error.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A function to be called on another process is not part of the main program.
    #[error(
        "other processes cannot find the function at {address:#x}: it is outside the main program, perhaps in a dynamic \
         library; link it statically"
    )]
    ForeignFunction {
        /// The address of the function.
        address: usize,
    },
    /// There is currently no room for a call.
    #[error("no room for a call to {to}: {cause}")]
    Full {
        /// The receiver.
        to: WorkerId,
        /// The resource that is full.
        cause: FullCause,
    },
    /// A function that was called here returned an error, and no caller waits for its result.
    #[error("a function that {from} called here failed: {message}")]
    HandlerFailed {
        /// The caller.
        from: Source,
        /// The text of the error.
        message: String,
    },
    /// A function that was called here panicked, and no caller waits for its result.
    #[error("a function that {from} called here panicked: {message}")]
    HandlerPanicked {
        /// The caller.
        from: Source,
        /// The message of the panic.
        message: String,
    },
    /// The job could not begin, or was ended.
    #[error("the job was ended: {why}")]
    JobEnded {
        /// The reason, from the process that ended the job.
        why: String,
    },
    /// The job could not be started, or failed. Errors that running jobs return as well have
    /// variants of their own: [`Deadline`](Self::Deadline), [`Fabric`](Self::Fabric),
    /// [`JobEnded`](Self::JobEnded) and [`System`](Self::System).
    #[error(transparent)]
    Launch(LaunchError),
    /// A function that was called here by name did not run, and its caller gets no answer.
    #[error("a call of the named function {name:?} from {from} did not run: {why}")]
    NamedCallRefused {
        /// The caller.
        from: Source,
        /// The function's name, or a number if no function of that name is registered.
        name: String,
        /// The reason.
        why: NameRefusal,
    },
    /// The named function did not run.
    #[error("the named function {name:?} did not run on {on}: {why}")]
    NamedRefused {
        /// The worker on which it was called.
        on: WorkerId,
        /// The function's name.
        name: &'static str,
        /// The reason.
        why: NameRefusal,
    },
    /// A worker is not in the team where it must be, or cannot be in it.
    #[error("{worker} cannot be used in this team: {why}; name each member once, and use a team on its members only")]
    NotInTeam {
        /// The worker.
        worker: WorkerId,
        /// The reason.
        why: &'static str,
    },
    /// A type travels only among processes of one binary.
    #[error(
        "{name}: {type_name} travels only among processes of one binary: send a type with `#[derive(Wire)]` made of others that \
         travel"
    )]
    NotPortable {
        /// The use of the type: the name of a function, or a collective.
        name: &'static str,
        /// The type.
        type_name: &'static str,
    },
    /// A process of the job is lost. The text names the process that failed first.
    #[error("{root} {why}")]
    PeerLost {
        /// The lost process.
        process: ProcessId,
        /// The process that failed first, as far as known: `process` itself, or one because of
        /// which it failed.
        root: ProcessId,
        /// The end of `root`, as far as known: the end of a sentence about it.
        why: String,
    },
    /// An error of the program itself, made by [`program`](Error::program).
    #[error(transparent)]
    Program(Box<dyn std::error::Error + Send + Sync>),
    /// The called function panicked.
    #[error("the function called on {on} panicked: {message}")]
    RemotePanic {
        /// The worker on which it ran.
        on: WorkerId,
        /// The message of the panic.
        message: String,
    },
    /// The called function dropped its [`Reply`](crate::Reply) without answering.
    #[error("the function called on {on} dropped its reply without an answer")]
    ReplyDropped {
        /// The worker on which it ran.
        on: WorkerId,
    },
    /// An error of one of the modules with errors of their own, such as [`memory`](crate::memory).
    /// [`room_error`](Error::room_error) returns it by its type.
    #[error(transparent)]
    Room(Box<dyn std::error::Error + Send + Sync>),
    /// The system refused an operation.
    #[error("{doing} failed: {cause}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The reason.
        cause: std::io::Error,
    },
    /// A call or a result is too large to be sent.
    #[error("{what} of {bytes} bytes is too large: at most {max} bytes fit; {remedy}")]
    TooLarge {
        /// The kind of data.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The largest size.
        max: usize,
        /// A remedy, such as the setting that raises the limit.
        remedy: &'static str,
    },
    /// The process does not exist.
    #[error("{process} does not exist: the job has processes 0 to {}", count - 1)]
    UnknownProcess {
        /// The process that was named.
        process: ProcessId,
        /// The number of processes.
        count: u32,
    },
    /// The worker does not exist.
    #[error("{worker} does not exist: the job has workers 0 to {}", count - 1)]
    UnknownWorker {
        /// The worker that was named.
        worker: WorkerId,
        /// The number of workers.
        count: u32,
    },
    /// A received value does not match its type.
    #[error("a value from {from} is malformed: {cause}")]
    Wire {
        /// The sender.
        from: WorkerId,
        /// The defect.
        cause: crate::wire::WireError,
    },
    /// The function would write to a buffer whose memory belongs to another process.
    #[error("the memory for the buffer belongs to {memory}, but the function runs in {wanted}: allocate it there")]
    WrongProcess {
        /// The process that has the memory.
        memory: ProcessId,
        /// The process in which the function runs.
        wanted: ProcessId,
    },
}

/// Names the workers that were waited for.
fn late(workers: &[WorkerId]) -> String {
    let names: Vec<_> = workers.iter().map(WorkerId::to_string).collect();
    if names.is_empty() { String::new() } else { format!(": {} is late", names.join(", ")) }
}

impl Error {
    /// Returns the error of a wait, which names no worker yet.
    pub(crate) fn deadline(doing: &'static str, after: Duration) -> Self {
        Self::Deadline { doing, after, waiting_for: Vec::new() }
    }

    /// Adds the worker that was waited for, if this is the error of a deadline.
    pub(crate) fn late(mut self, worker: WorkerId) -> Self {
        if let Self::Deadline { waiting_for, .. } = &mut self {
            waiting_for.push(worker);
        }
        self
    }

    /// Returns the error for a call that is longer than `max`.
    pub(crate) fn long_call(bytes: usize, max: usize) -> Self {
        let remedy = "raise `Job::ring_cap_bytes` to twice the size, or send several smaller ones";
        Self::TooLarge { what: "a call", bytes, max, remedy }
    }

    /// Returns an error of the program, so that a worker's body can return it. An error of this
    /// library stays what it is.
    ///
    /// The usual errors of the standard library (of parsing, of conversions between numbers, of
    /// input and output) and a `Box<dyn Error + Send + Sync>` become one by `?`. Others do not: an
    /// `Error` that all errors convert into could not be an error itself.
    ///
    /// ```no_run
    /// use farside::Error;
    ///
    /// farside::job().processes(2).run(|me| {
    ///     let text = std::fs::read_to_string("numbers.txt")?;
    ///     let first: u64 = text.trim().parse()?;
    ///     if first == 0 {
    ///         return Err(Error::program("numbers.txt begins with 0"));
    ///     }
    ///     println!("{}: {first}", me.id());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn program(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::from(error.into())
    }

    /// Returns the error of a module, if this error holds one of type `E`.
    ///
    /// ```
    /// use farside::memory::MemoryError;
    ///
    /// fn is_released(error: &farside::Error) -> bool {
    ///     matches!(error.room_error(), Some(MemoryError::Released { .. }))
    /// }
    /// ```
    pub fn room_error<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Room(error) | Self::Program(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the lost process that this error, or one of its sources, names.
    pub(crate) fn lost_process(&self) -> Option<ProcessId> {
        match self {
            Self::PeerLost { process, .. } => Some(*process),
            Self::Room(error) | Self::Program(error) => {
                let first: &(dyn std::error::Error + 'static) = &**error;
                iter::successors(Some(first), |error| error.source()).find_map(|error| {
                    let boxed = || error.downcast_ref::<Box<Self>>().map(|error| &**error);
                    error.downcast_ref::<Self>().or_else(boxed)?.lost_process()
                })
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece: standard error is written piece by piece, and other processes write, too.
        f.write_str(&self.to_string())
    }
}

/// An error of this library in the box becomes itself again. Every other is an error of the
/// program.
impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        error.downcast().map_or_else(Self::Program, |error| *error)
    }
}

/// Errors of the standard library become errors of the program.
macro_rules! program_errors {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Program(Box::new(error))
            }
        })*
    };
}

program_errors! {
    fmt::Error,
    std::array::TryFromSliceError,
    std::char::ParseCharError,
    std::env::VarError,
    std::io::Error,
    std::net::AddrParseError,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::str::ParseBoolError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::time::SystemTimeError,
}

impl From<Error> for std::io::Error {
    /// The error itself is the source.
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Deadline { .. } => std::io::ErrorKind::TimedOut,
            Error::PeerLost { .. } => std::io::ErrorKind::ConnectionAborted,
            _ => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, error)
    }
}

impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Deadline { doing, after } => Self::deadline(doing, after),
            LaunchError::Fabric(error) => Self::Fabric(error),
            LaunchError::JobEnded { why } => Self::JobEnded { why },
            LaunchError::System { doing, cause } => Self::System { doing, cause },
            error => Self::Launch(error),
        }
    }
}

/// Why a named function did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum NameRefusal {
    /// No function of this name is registered.
    #[error(
        "no function of this name is registered there: register it with `Job::register`, and check the spelling of both names"
    )]
    Unknown = 1,
    /// The caller's types differ from those of the function.
    #[error(
        "it is registered with other types: caller and function must have arguments and results of the same shape (fields, variants \
         and their names, in the same order)"
    )]
    OtherTypes = 2,
    /// The received bytes are not valid arguments of the function.
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

/// The sender that fills a ring: one worker, or all threads of a process together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A worker, with its own ring.
    Worker(WorkerId),
    /// A process, with the ring that its threads share.
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

/// A defect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CorruptRecord {
    /// The ring's bookkeeping is inconsistent.
    #[error(transparent)]
    Ring(#[from] Corrupt),
    /// A part of a stream of records is missing, or arrived twice.
    #[error("a frame of a stream begins at byte {position}, where byte {expected} comes next")]
    Gap {
        /// The position that arrived.
        position: u64,
        /// The position that was expected.
        expected: u64,
    },
    /// The sender of a stream of records has sent more than it had credit for.
    #[error(
        "a frame at byte {position} of a stream is beyond what its sender may send: credit was given up to byte {credited}"
    )]
    Overrun {
        /// The position of the frame.
        position: u64,
        /// The position up to which the receiver had reported the stream as run.
        credited: u64,
    },
    /// There is no function with this number.
    #[error("a call of function {entry}; this program has functions 0 to {}", count.saturating_sub(1))]
    Entry {
        /// The number of the function.
        entry: u16,
        /// The number of functions.
        count: usize,
    },
    /// The arguments do not match their types.
    #[error("arguments of function {entry} do not match their types")]
    Malformed {
        /// The number of the function.
        entry: u16,
    },
    /// The address is not the beginning of a function.
    #[error("a call of offset {offset:#x}, where no function begins")]
    NoFunction {
        /// The offset in the program's text.
        offset: u32,
    },
}

/// The resource that has no room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FullCause {
    /// The receiver has not consumed what was sent before.
    #[error("its ring holds {ring_bytes} bytes that it has not consumed; wait, or use `WhenFull::Retry` or `Queue`")]
    Credit {
        /// The size of the ring.
        ring_bytes: usize,
    },
    /// The receiver grants no more ring memory.
    #[error("it grants no more ring memory (its cap is {cap_bytes} bytes); raise `Job::ring_cap_bytes`")]
    RingCap {
        /// The receiver's cap for all its rings.
        cap_bytes: usize,
    },
    /// No memory or file descriptor is left for a larger ring.
    #[error(
        "there is no memory or no file descriptor for a larger ring: free some in the sender's or the receiver's process, or \
         raise their limits (`ulimit -n`, `-v`, `-f`)"
    )]
    RingMemory,
    /// The sender's own queue has reached its cap.
    #[error("{queued_bytes} bytes are queued for it already; raise `Job::queue_cap_bytes` or send less")]
    Queue {
        /// The number of bytes queued.
        queued_bytes: usize,
    },
    /// Not all workers have received earlier calls to everyone.
    #[error(
        "with this one, {unreceived_bytes} bytes of calls to everyone are on their way; wait for earlier ones \
         (`Everyone::notify`), call outside of handlers, or raise `Job::queue_cap_bytes`"
    )]
    Everyone {
        /// The number of bytes that some workers may not have received, with this call.
        unreceived_bytes: usize,
    },
}

/// A call that was not sent, with its arguments.
///
/// `?` converts it into its error and drops the arguments.
#[derive(Debug)]
pub struct Refused<A, E = Error> {
    /// The reason.
    pub error: E,
    /// The unchanged arguments.
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
