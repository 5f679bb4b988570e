//! [`Doors`]: connections to the doors of a job. Readers have them, and so do processes of the job
//! that make changes in all of it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farside_rpc::{CallError, Client, ConnectError, Credentials, Never};

use crate::names::{self, FoundDoors, JobId};
use crate::network::{ADDRESSES_MAX, address, credentials};
use crate::points::Points;
use crate::protocol::{About, DoorClient, Neighbors, NetworkDoor};
use crate::sync::lock;

/// The time that one of several addresses has.
const ADDRESS_TIME: Duration = Duration::from_secs(2);

/// A connection to the door of a process.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The process.
    pub about: About,
    /// The calls of its door.
    pub door: DoorClient,
    /// Found through process 0.
    pub is_by_network: bool,
    /// The points that its calls pass.
    pub points: Points,
}

impl Guest {
    /// Connects to the door of a process on this machine.
    ///
    /// # Errors
    /// The connection, or the call, failed.
    pub fn connect(job: &JobId, process: u32, points: &Points, deadline: Instant) -> Result<Self, CallError<Never>> {
        Self::dial(&job.address(process), Credentials::own_user(), points, deadline)
    }

    /// Connects to a door at an address.
    ///
    /// # Errors
    /// The connection, or the call, failed.
    pub fn dial(
        address: &str,
        credentials: Credentials,
        points: &Points,
        deadline: Instant,
    ) -> Result<Self, CallError<Never>> {
        points.pass();
        let failed = |cause: String| ConnectError::Failed { address: address.into(), cause };
        let door = DoorClient::at(client_of(address, credentials, deadline)?, 0);
        let about = door.deadline(deadline.saturating_duration_since(Instant::now())).about()?.wait()?;
        if !about.job.is_valid() {
            return Err(failed("it has no name that a job can have".into()).into());
        }
        Ok(Self { about, door, is_by_network: false, points: points.clone() })
    }

    /// The calls of the door, with the time until the deadline.
    #[must_use]
    pub fn until(&self, deadline: Instant) -> DoorClient {
        self.points.pass();
        self.door.deadline(deadline.saturating_duration_since(Instant::now()))
    }
}

/// Why doors were not found.
#[derive(Debug, thiserror::Error)]
pub enum DoorsError {
    /// The system does not say which there are.
    #[error("cannot read which doors this machine has: {0}")]
    Names(io::Error),
    /// The job has none.
    #[error("the job shows nothing to this user")]
    NoJob {
        /// The jobs that there are.
        found: Vec<JobId>,
    },
    /// A process does not answer.
    #[error("process {process} does not answer: {cause}")]
    Silent {
        /// The process.
        process: u32,
        /// The failure.
        cause: String,
    },
    /// A door on the network was not reached.
    #[error("cannot reach the door at {address}: {cause}")]
    Unreached {
        /// The address.
        address: String,
        /// The failure.
        cause: String,
    },
}

/// The door on the network by which one came, and what proves who may look.
#[derive(Debug)]
pub struct Origin {
    /// The address of the door.
    pub address: String,
    /// The proof.
    pub credentials: Credentials,
}

/// Connections to the doors of a job, by process.
#[derive(Debug)]
pub struct Doors {
    job: JobId,
    guests: Mutex<BTreeMap<u32, Guest>>,
    points: Points,
}

impl Doors {
    /// The doors of a job, none of which is looked for yet.
    #[must_use]
    pub fn new(job: JobId, points: Points) -> Self {
        Self { job, guests: Mutex::default(), points }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// The points that calls pass.
    #[must_use]
    pub fn points(&self) -> &Points {
        &self.points
    }

    /// All connections.
    pub fn guests(&self) -> MutexGuard<'_, BTreeMap<u32, Guest>> {
        lock(&self.guests)
    }

    /// The connection to a process.
    #[must_use]
    pub fn guest(&self, process: u32) -> Option<Guest> {
        self.guests().get(&process).cloned()
    }

    /// Connects to the doors of this machine. Returns whether the launcher has one.
    ///
    /// # Errors
    /// [`DoorsError`].
    pub fn find_here(&self, deadline: Instant) -> Result<bool, DoorsError> {
        let mut jobs = names::jobs().map_err(DoorsError::Names)?;
        let FoundDoors { processes: there, has_launcher } = jobs.remove(&self.job).unwrap_or_default();
        if there.is_empty() && !has_launcher {
            return Err(DoorsError::NoJob { found: jobs.into_keys().collect() });
        }
        self.guests().retain(|process, guest| guest.is_by_network || there.contains(process));
        for process in there {
            if self.guest(process).is_some() {
                continue;
            }
            match Guest::connect(&self.job, process, &self.points, deadline) {
                Ok(guest) => drop(self.guests().insert(process, guest)),
                // It has ended meanwhile, or another user has taken the name of a door.
                Err(CallError::Connect(ConnectError::Absent { .. } | ConnectError::OtherUser { .. })) => {}
                // It may have ended in the middle of that.
                Err(error) if self.has_door_here(process) => {
                    return Err(DoorsError::Silent { process, cause: error.to_string() });
                }
                Err(_) => {}
            }
        }
        if self.guests().is_empty() && !has_launcher {
            return Err(DoorsError::NoJob { found: jobs.into_keys().collect() });
        }
        Ok(has_launcher)
    }

    fn has_door_here(&self, process: u32) -> bool {
        names::jobs().is_ok_and(|jobs| jobs.get(&self.job).is_some_and(|there| there.processes.contains(&process)))
    }

    /// Connects to the doors on the network that there is no connection to.
    ///
    /// # Errors
    /// [`DoorsError::Unreached`].
    pub fn meet(&self, neighbors: &Neighbors, origin: Option<&Origin>, deadline: Instant) -> Result<(), DoorsError> {
        let proof = match (origin, &neighbors.token) {
            (Some(origin), _) => origin.credentials.clone(),
            (None, Some(token)) => credentials(token),
            (None, None) => return Ok(()),
        };
        let first = neighbors.doors.iter().find(|(process, _)| *process == 0).and_then(|(_, door)| door.as_ref().ok());
        for (process, door) in &neighbors.doors {
            let (Ok(door), None) = (door, self.guest(*process)) else { continue };
            // A process on the machine of process 0 is reached in the same way as that.
            let is_on_same_machine = first.is_some_and(|first| first.addresses == door.addresses);
            let known = origin.and_then(|origin| host_of(&origin.address)).filter(|_| is_on_same_machine);
            let dial = |address: &str, until| Guest::dial(address, proof.clone(), &self.points, until);
            if let Some(guest) = meet_one(*process, door, known, deadline, dial)? {
                self.guests().insert(*process, guest);
            }
        }
        Ok(())
    }
}

/// Connects to a server of doors.
///
/// # Errors
/// [`ConnectError`].
pub fn client_of(address: &str, credentials: Credentials, deadline: Instant) -> Result<Client, ConnectError> {
    let failed = |cause: String| ConnectError::Failed { address: address.into(), cause };
    let client = Client::to(address, credentials).map_err(|error| failed(error.to_string()))?;
    // One attempt: a door that is not there belongs to a process that has ended.
    client.deadline(deadline.saturating_duration_since(Instant::now())).once().connect()
}

/// Connects to a door on the network, by whichever of its addresses leads there. `None` if the
/// process has ended.
fn meet_one(
    process: u32,
    door: &NetworkDoor,
    known: Option<&str>,
    deadline: Instant,
    dial: impl Fn(&str, Instant) -> Result<Guest, CallError<Never>>,
) -> Result<Option<Guest>, DoorsError> {
    let listed = door.addresses.iter().map(String::as_str).filter(|text| text.parse::<IpAddr>().is_ok());
    // A door that does not listen at all devices is reached at the host where it listens.
    let hosts: Vec<&str> = match &*door.host {
        "*" | "::" | "0.0.0.0" => known.into_iter().chain(listed.take(ADDRESSES_MAX)).collect(),
        host => known.into_iter().chain([host]).collect(),
    };
    let mut failure = None;
    for host in hosts {
        let address = address(host, door.port);
        match dial(&address, deadline.min(Instant::now() + ADDRESS_TIME)) {
            Ok(guest) if guest.about.key == door.key && guest.about.process == process => {
                return Ok(Some(Guest { is_by_network: true, ..guest }));
            }
            // An address that other machines have, too.
            Ok(_) | Err(CallError::Connect(ConnectError::Absent { .. } | ConnectError::Impostor { .. })) => {}
            Err(error) => failure = Some(DoorsError::Unreached { address, cause: unreached(&error) }),
        }
    }
    failure.map_or(Ok(None), Err)
}

/// Says why a door on the network was not reached, and what to do.
#[must_use]
pub fn unreached(error: &CallError<Never>) -> String {
    let mut cause = error.to_string();
    if matches!(error, CallError::Connect(ConnectError::Absent { .. })) {
        cause += "; a job with FARSIDE_INSPECT=tcp opens its door when process 0 first shows something";
    }
    cause
}

/// The host of an address on the network.
fn host_of(address: &str) -> Option<&str> {
    let (host, _) = address.strip_prefix("tcp://")?.rsplit_once(':')?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}
