//! [`InspectError`]: why a look into a job failed.

use std::fmt;
use std::time::Duration;

use farside_inspect::{ElementType, JobId, Refused, TokenError};

use crate::selection::SelectionError;

/// Why a look into a job failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The system does not say which doors there are.
    #[error("cannot read which doors this machine has: {0}")]
    Doors(std::io::Error),
    /// No job is meant by the text.
    #[error("no job {wanted:?} shows anything to this user{}", name_jobs(found))]
    NoJob {
        /// The text. Empty if any job was meant.
        wanted: String,
        /// The jobs that there are.
        found: Vec<JobId>,
    },
    /// There is no token for a job on the network.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A door on the network was not reached.
    #[error("cannot look into the job at {address}: {cause}")]
    Unreached {
        /// The address.
        address: String,
        /// The failure.
        cause: String,
    },
    /// Several jobs are meant by the text.
    #[error("several jobs could be meant{}: name one, with its number", name_jobs(found))]
    Ambiguous {
        /// Those jobs.
        found: Vec<JobId>,
    },
    /// Another client traces the job.
    #[error("another client traces process {process}: try again when that trace has ended")]
    Traced {
        /// The process.
        process: u32,
    },
    /// The job has no such area.
    #[error("the job shows no area {name:?}{}", name_areas(areas))]
    NoArea {
        /// The name.
        name: String,
        /// Some areas that there are.
        areas: Vec<String>,
    },
    /// Workers show different things under one name.
    #[error("the workers show different things as {name:?}: {kinds}; give each its own name in the program")]
    Differ {
        /// The name.
        name: String,
        /// Types and shapes.
        kinds: String,
    },
    /// Two parts of an area have elements in common.
    #[error(
        "the parts of workers {one} and {other} overlap in {name:?}; give each worker its own place with `part_of`, or its own name"
    )]
    Overlap {
        /// The name.
        name: String,
        /// A worker.
        one: u32,
        /// Another worker.
        other: u32,
    },
    /// The elements have another type.
    #[error("{name:?} consists of {is}, not of {wanted}: open it with that type")]
    Type {
        /// The name.
        name: String,
        /// The type of the elements.
        is: ElementType,
        /// The type that was expected.
        wanted: ElementType,
    },
    /// The area has another shape.
    #[error("{name:?} has the shape {is:?}, not {wanted:?}: expect that one, or select a part")]
    Shape {
        /// The name.
        name: String,
        /// The shape of the area.
        is: Vec<u64>,
        /// The shape that was expected.
        wanted: Vec<u64>,
    },
    /// The elements are other structs.
    #[error("{name:?} consists of {is}, not of {wanted}: open it with a struct of those fields")]
    Fields {
        /// The name.
        name: String,
        /// The type of the elements.
        is: String,
        /// The type that was expected.
        wanted: String,
    },
    /// The elements are structs, and numbers were wanted.
    #[error("{name:?} consists of structs with the fields {fields}, not of numbers: read them as text, JSON or .npy")]
    Structs {
        /// The name.
        name: String,
        /// The names of the fields.
        fields: String,
    },
    /// The selection is wrong.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// No process shows some of the selected elements.
    #[error(
        "no process shows {missing} of the {selected} elements selected of {name:?}{}; select others",
        name_processes(lost)
    )]
    Incomplete {
        /// The name.
        name: String,
        /// Number of elements that no process shows.
        missing: u64,
        /// Number of elements that were selected.
        selected: u64,
        /// The processes of the job that have no door: they have ended, or show nothing.
        lost: Vec<u32>,
    },
    /// The program has passed the step already.
    #[error("step {step} of {name:?} is over: the program is at step {now}; ask for a later one")]
    Passed {
        /// The name.
        name: String,
        /// The step that was asked for.
        step: u64,
        /// The step that was published last.
        now: u64,
    },
    /// The program publishes no such step.
    #[error("{name:?} has no step {step}: the program published {next} next")]
    NoStep {
        /// The name.
        name: String,
        /// The step that was asked for.
        step: u64,
        /// The next step that was published.
        next: u64,
    },
    /// The workers publish steps of different numbers.
    #[error("the workers publish {name:?} at different steps, {one} and {other}: publish the same numbers everywhere")]
    Mixed {
        /// The name.
        name: String,
        /// A step.
        one: u64,
        /// Another step.
        other: u64,
    },
    /// Workers did not publish the step in time.
    #[error("not published in {after:?}: {name:?}{}; give it more time", name_workers(late))]
    NotThere {
        /// The name.
        name: String,
        /// The time that it had.
        after: Duration,
        /// The workers that were waited for.
        late: Vec<Late>,
    },
    /// Every attempt to name a step came too late.
    #[error("the program publishes {name:?} faster than it can be asked: it was at step {now} after {after:?}")]
    TooFast {
        /// The name.
        name: String,
        /// The step that was published last.
        now: u64,
        /// The time that it had.
        after: Duration,
    },
    /// A process did not answer.
    #[error("process {process} (number {system_process} in the system) does not answer: {cause}")]
    Silent {
        /// The process.
        process: u32,
        /// Its number in the system.
        system_process: u32,
        /// The failure.
        cause: String,
    },
    /// The connection to a process ended.
    #[error("process {process} (number {system_process} in the system) is gone: {cause}")]
    Lost {
        /// The process.
        process: u32,
        /// Its number in the system.
        system_process: u32,
        /// The failure.
        cause: String,
    },
    /// A process refused what was asked of it.
    #[error("process {process} refused: {refused}")]
    Refused {
        /// The process.
        process: u32,
        /// The reason.
        refused: Refused,
    },
    /// A process said something impossible.
    #[error("process {process} describes {name:?} as nothing that can be; it may run another version")]
    Invalid {
        /// The process.
        process: u32,
        /// The name of the area.
        name: String,
    },
    /// A change of a view is too large.
    #[error("{bytes} bytes are too many for one change of a view: write at most {max} at once")]
    TooLarge {
        /// The size of the change.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The job has nothing of the name that could do this.
    #[error("nothing was changed: no process has {what}")]
    Nothing {
        /// The thing that was looked for.
        what: String,
    },
    /// No worker publishes steps, so none can stay after one.
    #[error(
        "{job} cannot be paused: none of its workers publishes steps; have the program publish a view at each step"
    )]
    NoSteps {
        /// The job.
        job: JobId,
    },
    /// The workers did not come to one step.
    #[error(
        "not all workers came to one step in {after:?}{}: they may compute for longer or have ended; give them more time",
        name_workers(late)
    )]
    NotHeld {
        /// The time that they had.
        after: Duration,
        /// The workers that were waited for. Empty if all came, and to different steps.
        late: Vec<Late>,
    },
    /// The caller's elements have another number of bytes than those that are selected.
    #[error("{given} bytes were given for {expected} bytes of {name:?}: give as many as are selected")]
    Length {
        /// The area.
        name: String,
        /// The number of bytes that were given.
        given: u64,
        /// The number of bytes that are selected.
        expected: u64,
    },
    /// The elements are no values of their type.
    #[error("{name:?} has bytes that are no {element}")]
    Value {
        /// The name.
        name: String,
        /// The type.
        element: ElementType,
    },
    /// The selected elements are not in one memory that this process can map.
    #[error("{name:?} cannot be read in place: {why}; copy it with `get`")]
    NotMapped {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// There is no memory for the elements.
    #[error("no memory for {bytes} bytes: select less")]
    NoMemory {
        /// Their size.
        bytes: u64,
    },
}

impl InspectError {
    /// Returns whether what was looked at is gone: the job, one of its processes, or the area,
    /// which the program has dropped.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let is_dropped = matches!(self, Self::Refused { refused: Refused::Unknown { .. }, .. });
        is_dropped || matches!(self, Self::Lost { .. } | Self::NoJob { .. })
    }
}

/// A worker that was waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// The worker.
    pub worker: u32,
    /// Its process.
    pub process: u32,
    /// The step that it had published when it was asked.
    pub at: Option<u64>,
    /// The step that was wanted of it, or a later one.
    pub wanted: u64,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, process, at, wanted } = self;
        write!(f, "worker {worker} of process {process}")?;
        match at {
            Some(at) => write!(f, " was at step {at}")?,
            None => f.write_str(" had published nothing")?,
        }
        write!(f, " and did not come to {wanted}")
    }
}

fn joined<T: fmt::Display>(before: &str, all: &[T]) -> String {
    /// The most that are named.
    const NAMED_MAX: usize = 8;
    let named: Vec<String> = all.iter().take(NAMED_MAX).map(T::to_string).collect();
    let more = match all.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if all.is_empty() { String::new() } else { format!("{before}{}{more}", named.join(", ")) }
}

fn name_jobs(jobs: &[JobId]) -> String {
    if jobs.is_empty() { "; a program does with `Expose`".into() } else { joined(": there is ", jobs) }
}

fn name_areas(areas: &[String]) -> String {
    if areas.is_empty() { ", and no other".into() } else { joined(": it shows ", areas) }
}

fn name_processes(processes: &[u32]) -> String {
    joined(": no door have the processes ", processes)
}

fn name_workers(workers: &[Late]) -> String {
    joined("; ", workers)
}
