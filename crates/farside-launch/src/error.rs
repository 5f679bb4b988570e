//! What can go wrong before a job runs, and how its processes end.

use std::fmt;
use std::time::Duration;

use farside_fabric::{FabricError, ProcessId};

/// A result of this crate.
pub type Result<T, E = LaunchError> = std::result::Result<T, E>;

/// Why a job could not be started, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The deadline passed.
    #[error("deadline passed after {after:?} while {doing}")]
    Deadline {
        /// The activity that took too long.
        doing: &'static str,
        /// The length of the deadline.
        after: Duration,
    },
    /// The settings ask for shared memory only, and the processes are on more than one machine.
    #[error(
        "{a} and {b} are on different machines (or in containers that share no network), and the job was told to use shared \
         memory only: start all on one machine, or leave out --fabric shm (and FARSIDE_FABRIC)"
    )]
    DifferentMachines {
        /// One of two processes on different machines.
        a: ProcessId,
        /// The other.
        b: ProcessId,
    },
    /// An operation of the fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The job could not begin, or ended early.
    #[error("the job was ended: {why}")]
    JobEnded {
        /// The reason.
        why: String,
    },
    /// The job's shape is impossible.
    #[error("a job of {processes} processes with {threads} threads each: {why}")]
    JobShape {
        /// Requested processes.
        processes: u32,
        /// Requested worker threads of each process.
        threads: u32,
        /// The reason why it is impossible.
        why: String,
    },
    /// A process of the job failed, and with it the job.
    #[error("{process} failed: {how}")]
    ProcessFailed {
        /// The process.
        process: ProcessId,
        /// How it ended.
        how: ProcessEnd,
    },
    /// A ring with these options is impossible, or its options can no longer change.
    #[error("the ring cannot be as asked for: {why}")]
    RingOptions {
        /// The reason.
        why: String,
    },
    /// The processes that another launcher started did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// Processes of this job would run the program and reach another job first.
    #[error(
        "a second job in one program (the first: {first}; this one: {this}): its processes would run this program from the \
         beginning and come to the first job again. Start each job from a program of its own, or give the second one an \
         entry of its own with `Job::entry`"
    )]
    SecondJob {
        /// The source position of the first job.
        first: String,
        /// The source position of this job.
        this: String,
    },
    /// A system call failed.
    #[error("{doing} failed: {cause}")]
    System {
        /// The activity that failed.
        doing: &'static str,
        /// The reason.
        cause: std::io::Error,
    },
    /// This process was started for another job of the program than the one it reached.
    #[error("this process was started for the job at {expected}, and came to the one at {reached} first: {remedy}")]
    WrongJob {
        /// The source position of the job it was started for.
        expected: String,
        /// The source position of the job it reached.
        reached: String,
        /// The remedy.
        remedy: &'static str,
    },
}

/// Why a process could not join a job under another launcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The variables for several groups do not go together.
    #[error(
        "a group that joins others needs FARSIDE_JOIN=HOST:PORT, where the first process of group 0 listens, and \
         FARSIDE_GROUP=INDEX/COUNT, such as 0/2 and 1/2, both in all processes of all groups: correct or unset them"
    )]
    GroupVariables,
    /// Groups did not come in time.
    #[error(
        "of {groups} groups, no process of {} came within {after:?}: see that they were started with the same FARSIDE_JOIN and \
         FARSIDE_SECRET, or raise the deadline (FARSIDE_TIMEOUT_S)",
        missing.iter().map(|group| format!("group {group}")).collect::<Vec<_>>().join(", ")
    )]
    GroupsMissing {
        /// Which.
        missing: Vec<u32>,
        /// How many there are.
        groups: u32,
        /// How long.
        after: Duration,
    },
    /// Nothing says where process 0 is.
    #[error("the launcher's environment does not say where process 0 listens: set {what} for all processes")]
    NoAddress {
        /// What is missing.
        what: &'static str,
    },
    /// The launcher's numbers do not fit.
    #[error(
        "the launcher says that this is rank {rank} of {processes} processes, which count from 0: correct RANK or WORLD_SIZE"
    )]
    NoSuchRank {
        /// The process's own number.
        rank: u32,
        /// How many there are.
        processes: u32,
    },
    /// PMIx, which the launcher offers, is not there, and variables do not do either.
    #[error(
        "libpmix cannot be opened ({missing}): install it (Debian: libpmix2) on all machines; without it, {otherwise}"
    )]
    NoPmix {
        /// What the loader said.
        missing: String,
        /// What the variables lack.
        otherwise: String,
    },
    /// There is no secret.
    #[error(
        "FARSIDE_SECRET is not set: processes that find each other over the network must know a secret; set it to the same \
         text for all of them, such as the output of `openssl rand -hex 16`"
    )]
    NoSecret,
    /// PMIx could not do its part.
    #[error("the launcher offers PMIx, and it does not work: {why}; set FARSIDE_START=variables to do without it")]
    Pmix {
        /// The reason.
        why: String,
    },
    /// Process 0 cannot listen.
    #[error(
        "process 0 cannot listen at port {port}: {cause}; another program uses it, or another job: set FARSIDE_PORT (or \
         MASTER_PORT) to a free one for all processes"
    )]
    Port {
        /// The port.
        port: u16,
        /// The system's reason.
        cause: String,
    },
    /// There was somebody else, of the same number, before.
    #[error("there is a rank {rank} at {address} already: give each process a RANK of its own")]
    RankTaken {
        /// The number.
        rank: u32,
        /// Where process 0 listens.
        address: String,
    },
    /// Process 0 takes it for a job of more or fewer groups.
    #[error(
        "group {group} was started as one of {groups}, and the process at {address} as one of {host_groups}: give all the same \
         count in FARSIDE_GROUP"
    )]
    OtherGroups {
        /// This process's group.
        group: u32,
        /// How many it takes there to be.
        groups: u32,
        /// How many process 0 takes there to be.
        host_groups: u32,
        /// Where process 0 listens.
        address: String,
    },
    /// Process 0 takes it for a job of another size.
    #[error(
        "rank {rank} was started for a job of {processes} processes, and process 0 at {address} for one of {host_processes}: \
         give all the same WORLD_SIZE, and each job its own MASTER_PORT"
    )]
    OtherSize {
        /// This process.
        rank: u32,
        /// How many it takes there to be.
        processes: u32,
        /// How many process 0 takes there to be.
        host_processes: u32,
        /// Where process 0 listens.
        address: String,
    },
    /// Process 0 was not found in time.
    #[error(
        "rank {rank} did not reach process 0 at {address} within {after:?} ({cause}): see that process 0 has started, that \
         MASTER_ADDR names its machine, and that no firewall keeps the port closed; or raise the deadline (FARSIDE_TIMEOUT_S)"
    )]
    Unreachable {
        /// This process.
        rank: u32,
        /// Where process 0 was looked for.
        address: String,
        /// How long.
        after: Duration,
        /// What happened at the last attempt.
        cause: String,
    },
    /// The two ends do not have the same secret.
    #[error(
        "rank {rank} and the process at {address} do not have the same secret: set FARSIDE_SECRET to the same text for all"
    )]
    WrongSecret {
        /// This process.
        rank: u32,
        /// Where process 0 was looked for.
        address: String,
    },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessEnd {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It could not be started.
    NotStarted(String),
    /// It said so itself before it exited.
    Reported(String),
    /// It was stopped because the job took too long.
    TimedOut,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessEnd::Exited(status) => write!(f, "it exited with status {status}"),
            ProcessEnd::Killed(signal) => write!(f, "signal {signal} killed it"),
            ProcessEnd::NotStarted(why) => write!(f, "it could not be started: {why}"),
            ProcessEnd::Reported(why) => f.write_str(why),
            ProcessEnd::TimedOut => f.write_str("it was stopped because the job ran longer than its time limit"),
        }
    }
}

impl ProcessEnd {
    /// The exit status that a shell would report for it.
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
