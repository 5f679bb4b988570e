//! The errors of starting and supervising a job, and the ways in which its processes end.

use std::fmt;
use std::time::Duration;

use farside_fabric::{FabricError, ProcessId};

/// The result of an operation of this crate.
pub type Result<T, E = LaunchError> = std::result::Result<T, E>;

/// The reason why a job could not be started, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The deadline passed.
    #[error("deadline passed after {after:?} while {doing}")]
    Deadline {
        /// The operation that waited.
        doing: &'static str,
        /// The time that it waited.
        after: Duration,
    },
    /// The job was restricted to shared memory, but its processes are on more than one machine.
    #[error(
        "{a} and {b} are on different machines (or in containers that share no network), and the job was told to use shared \
         memory only: start all on one machine, or leave out --fabric shm (and FARSIDE_FABRIC)"
    )]
    DifferentMachines {
        /// One of the processes.
        a: ProcessId,
        /// A process on another machine.
        b: ProcessId,
    },
    /// The fabric reported an error.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The job could not begin, or was ended.
    #[error("the job was ended: {why}")]
    JobEnded {
        /// The reason, from the process that ended the job.
        why: String,
    },
    /// The job's shape is impossible.
    #[error("a job of {processes} processes with {threads} threads each: {why}")]
    JobShape {
        /// The number of processes.
        processes: u32,
        /// The number of worker threads of each.
        threads: u32,
        /// The reason.
        why: String,
    },
    /// A process of the job failed, and the job with it.
    #[error("{process} {how}")]
    ProcessFailed {
        /// The process.
        process: ProcessId,
        /// Its failure.
        how: ProcessEnd,
    },
    /// The options for a ring are invalid, or come too late.
    #[error("invalid ring options: {why}")]
    RingOptions {
        /// The reason.
        why: String,
    },
    /// The processes that another launcher started did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// A program started a second job. Jobs start by running the program again, which would reach
    /// the first job.
    #[error(
        "cannot start a second job in one program (the first: {first}; this one: {this}): its processes would run this \
         program from the beginning and join the first job instead; start each job from a program of its own, or give the \
         second an entry of its own with `Job::entry`"
    )]
    SecondJob {
        /// The place of the first job in the source.
        first: String,
        /// The place of this job in the source.
        this: String,
    },
    /// The system refused an operation.
    #[error("{doing} failed: {cause}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The reason.
        cause: std::io::Error,
    },
    /// This process was started for another job of the program than the one that it reached.
    #[error("this process was started for the job at {expected}, but reached the one at {reached} first: {remedy}")]
    WrongJob {
        /// The job for which it was started.
        expected: String,
        /// The job that it reached.
        reached: String,
        /// A remedy.
        remedy: &'static str,
    },
}

/// The reason why a process could not join a job that another launcher started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The variables for several groups are incomplete or invalid.
    #[error(
        "FARSIDE_JOIN and FARSIDE_GROUP are incomplete or invalid: all processes of all groups need both, FARSIDE_JOIN=HOST:PORT \
         (where the first process of group 0 listens) and FARSIDE_GROUP=INDEX/COUNT (such as 0/2 and 1/2); correct or unset them"
    )]
    GroupVariables,
    /// Some groups did not connect in time.
    #[error(
        "of {groups} groups, no process of {} connected within {after:?}: check that they were started with the same \
         FARSIDE_JOIN and FARSIDE_SECRET, or raise the deadline (FARSIDE_TIMEOUT_S)",
        missing.iter().map(|group| format!("group {group}")).collect::<Vec<_>>().join(", ")
    )]
    GroupsMissing {
        /// The numbers of the missing groups.
        missing: Vec<u32>,
        /// The number of groups.
        groups: u32,
        /// The time limit.
        after: Duration,
    },
    /// The address of process 0 is unknown.
    #[error("the launcher's environment does not say where process 0 listens: set {what} for all processes")]
    NoAddress {
        /// The missing variables.
        what: &'static str,
    },
    /// The launcher's numbers contradict each other.
    #[error(
        "rank {rank} does not exist: the launcher started {processes} processes, whose ranks begin at 0; correct RANK or \
         WORLD_SIZE"
    )]
    NoSuchRank {
        /// The number of this process.
        rank: u32,
        /// The number of processes.
        processes: u32,
    },
    /// The launcher offers PMIx, but its library is missing, and the variables do not suffice.
    #[error(
        "libpmix cannot be opened ({missing}): install it (Debian: libpmix2) on all machines; without it, {otherwise}"
    )]
    NoPmix {
        /// The loader's message.
        missing: String,
        /// The defect of the variables.
        otherwise: String,
    },
    /// The secret is not set.
    #[error(
        "FARSIDE_SECRET is not set: processes that find each other over the network must know a secret; set it to the same \
         text for all of them, such as the output of `openssl rand -hex 16`"
    )]
    NoSecret,
    /// A call of PMIx failed.
    #[error("PMIx, which the launcher offers, failed: {why}; set FARSIDE_START=variables to start without it")]
    Pmix {
        /// The reason.
        why: String,
    },
    /// Process 0 cannot listen at its port.
    #[error(
        "process 0 cannot listen at port {port}: {cause}; another program or job may use it: set FARSIDE_PORT (or \
         MASTER_PORT) to a free port for all processes"
    )]
    Port {
        /// The port.
        port: u16,
        /// The system's reason.
        cause: String,
    },
    /// Another process with the same number joined before.
    #[error("rank {rank} has already joined the job at {address}: give each process a RANK of its own")]
    RankTaken {
        /// The number.
        rank: u32,
        /// The address of process 0.
        address: String,
    },
    /// Process 0 was started for another number of groups.
    #[error(
        "group {group} was started as one of {groups} groups, and the process at {address} as one of {host_groups}: give all \
         the same count in FARSIDE_GROUP"
    )]
    OtherGroups {
        /// The group of this process.
        group: u32,
        /// The number of groups given to this process.
        groups: u32,
        /// The number of groups given to process 0.
        host_groups: u32,
        /// The address of process 0.
        address: String,
    },
    /// Process 0 was started for a job of another size.
    #[error(
        "rank {rank} was started for a job of {processes} processes, and process 0 at {address} for one of {host_processes}: \
         give all the same WORLD_SIZE, and each job its own MASTER_PORT"
    )]
    OtherSize {
        /// The number of this process.
        rank: u32,
        /// The number of processes given to this process.
        processes: u32,
        /// The number of processes given to process 0.
        host_processes: u32,
        /// The address of process 0.
        address: String,
    },
    /// Process 0 was not reached in time.
    #[error(
        "rank {rank} did not reach process 0 at {address} within {after:?} ({cause}): check that process 0 has started, that \
         MASTER_ADDR names its machine, and that no firewall closes the port; or raise the deadline (FARSIDE_TIMEOUT_S)"
    )]
    Unreachable {
        /// The number of this process.
        rank: u32,
        /// The address at which it looked for process 0.
        address: String,
        /// The time limit.
        after: Duration,
        /// The failure of the last attempt.
        cause: String,
    },
    /// The two ends have different secrets.
    #[error(
        "rank {rank} and the process at {address} have different secrets: set FARSIDE_SECRET to the same text for all"
    )]
    WrongSecret {
        /// The number of this process.
        rank: u32,
        /// The address of the other end.
        address: String,
    },
}

/// The end of a process. Its text is the end of a sentence about the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessEnd {
    /// The process exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// The process could not be started, for this reason.
    NotStarted(String),
    /// The process reported this error before it exited.
    Reported(String),
    /// The process was stopped because the job took too long.
    TimedOut,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessEnd::Exited(status) => write!(f, "exited with status {status}"),
            ProcessEnd::Killed(signal) => write!(f, "was killed by signal {signal}"),
            ProcessEnd::NotStarted(why) => write!(f, "could not be started: {why}"),
            ProcessEnd::Reported(why) => write!(f, "failed: {why}"),
            ProcessEnd::TimedOut => f.write_str("was stopped because the job ran longer than its time limit"),
        }
    }
}

impl ProcessEnd {
    /// Returns the exit status that a shell would report for it.
    pub fn exit_status(&self) -> i32 {
        match self {
            ProcessEnd::Exited(status) => *status,
            ProcessEnd::Killed(signal) => 128 + signal,
            ProcessEnd::NotStarted(_) => 127,
            ProcessEnd::Reported(_) => 1,
            ProcessEnd::TimedOut => 124,
        }
    }
}
