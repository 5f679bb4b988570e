//! [`Inspector`]: a job, as those see it who look into it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farside_rpc::{CallError, Client, ConnectError, Credentials, Pending};

use super::area::Area;
use super::error::InspectError;
use super::info::{AreaInfo, JobInfo, areas};
use super::steering::PausedHold;
use crate::element::{Element, with_fields};
use crate::names::{self, JobId};
use crate::protocol::{About, DoorClient, Refused};

/// The time that each question has, unless another is chosen.
const DEADLINE: Duration = Duration::from_secs(5);

/// The jobs of this user on this machine that show something.
///
/// # Errors
/// [`InspectError::Doors`].
pub fn jobs() -> Result<Vec<JobInfo>, InspectError> {
    let deadline = Instant::now() + DEADLINE;
    let found = names::jobs().map_err(InspectError::Doors)?;
    let asked = found.into_iter().map(|(id, processes)| {
        let mut job = JobInfo { id, process_count: 0, processes: Vec::new(), silent: Vec::new() };
        for process in processes {
            match Guest::connect(&job.id, process, deadline) {
                Ok(guest) => job.processes.push(guest.about),
                // It has ended meanwhile.
                Err(CallError::Connect(ConnectError::Absent { .. })) => {}
                Err(_) => job.silent.push(process),
            }
        }
        job.process_count = job.processes.iter().map(|about| about.process_count).max().unwrap_or(0);
        job
    });
    Ok(asked.filter(|job| !job.processes.is_empty() || !job.silent.is_empty()).collect())
}

/// A job, as those see it who look into it. Clones share their connections.
///
/// ```no_run
/// use farside_inspect::{At, Inspector};
///
/// let job = Inspector::connect("heat")?;
/// for area in job.list()? {
///     println!("{} {} {:?}", area.name, area.element, area.shape);
/// }
/// let heat = job.open::<f64>("temperature")?;
/// let frame = heat.get(&"[10:20, ::4]".parse()?, At::Next)?;
/// println!("step {:?}: {:?} {:?}", frame.step, frame.shape, frame.values);
/// # Ok::<(), farside_inspect::InspectError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inspector {
    inner: Arc<Inner>,
    deadline: Duration,
}

/// The most processes that an error names.
const NAMED_MAX: usize = 1000;

#[derive(Debug)]
struct Inner {
    job: JobId,
    guests: Mutex<BTreeMap<u32, Guest>>,
    paused: Mutex<PausedHold>,
    /// The number of the last attendance.
    last: AtomicU64,
}

/// A connection to the door of a process.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    pub(super) about: About,
    pub(super) door: DoorClient,
}

impl Guest {
    fn connect(job: &JobId, process: u32, deadline: Instant) -> Result<Self, CallError<farside_rpc::Never>> {
        let address = job.address(process);
        let client = Client::to(&address, Credentials::own_user())
            .map_err(|error| ConnectError::Failed { address, cause: error.to_string() })?;
        // One attempt: a door that is not there belongs to a process that has ended.
        let client = client.deadline(deadline.saturating_duration_since(Instant::now())).once().connect()?;
        let door = DoorClient::at(client, 0);
        let about = door.about()?.wait()?;
        Ok(Self { about, door })
    }

    /// The calls of the door, with the time until the deadline.
    pub(super) fn until(&self, deadline: Instant) -> DoorClient {
        self.door.deadline(deadline.saturating_duration_since(Instant::now()))
    }

    /// Why a call of this process failed, if its service did not refuse it.
    pub(super) fn failure<E: std::fmt::Display>(&self, process: u32, error: &CallError<E>) -> InspectError {
        let (system_process, cause) = (self.about.system_process, error.to_string());
        match error {
            CallError::Lost { .. } | CallError::Connect(ConnectError::Absent { .. }) => {
                InspectError::Lost { process, system_process, cause }
            }
            _ => InspectError::Silent { process, system_process, cause },
        }
    }
}

impl Inspector {
    /// Finds a job of this user on this machine and connects to its doors. `job` is the job's name,
    /// its number, or both as `NAME/NUMBER`; with an empty text it is the only job that there is.
    ///
    /// # Errors
    /// [`InspectError`]: among others if no job is meant by the text, or several are.
    pub fn connect(job: &str) -> Result<Self, InspectError> {
        let jobs = names::jobs().map_err(InspectError::Doors)?;
        let is_meant = |id: &&JobId| job.is_empty() || id.is_meant_by(job);
        let mut meant: Vec<JobId> = jobs.keys().filter(is_meant).cloned().collect();
        let job = match meant.len() {
            0 => return Err(InspectError::NoJob { wanted: job.into(), found: jobs.into_keys().collect() }),
            1 => meant.remove(0),
            _ => return Err(InspectError::Ambiguous { found: meant }),
        };
        let inspector = Self::of(job);
        inspector.find_doors(Instant::now() + DEADLINE)?;
        Ok(inspector)
    }

    /// A job whose doors are not looked for yet.
    pub(super) fn of(job: JobId) -> Self {
        let inner = Inner { job, guests: Mutex::default(), paused: Mutex::default(), last: AtomicU64::new(0) };
        Self { inner: Arc::new(inner), deadline: DEADLINE }
    }

    /// A number that no other clone of this inspector gets.
    pub(super) fn next_number(&self) -> u64 {
        // Relaxed: the number publishes nothing.
        self.inner.last.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn paused_hold(&self) -> &Mutex<PausedHold> {
        &self.inner.paused
    }

    /// The same connections, with another time for each question. The default is 5 s.
    #[must_use]
    pub fn deadline(&self, time: Duration) -> Self {
        Self { deadline: time, ..self.clone() }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &JobId {
        &self.inner.job
    }

    /// Everything that the job shows, by name. Areas that are shown by processes that have ended
    /// since are not among them.
    ///
    /// # Errors
    /// [`InspectError::Silent`] if a process does not answer.
    pub fn list(&self) -> Result<Vec<AreaInfo>, InspectError> {
        let deadline = Instant::now() + self.deadline;
        let guests = self.all_guests(deadline)?;
        let asked: Vec<_> =
            guests.iter().map(|(process, guest)| (*process, guest, guest.until(deadline).parts())).collect();
        let mut parts = Vec::new();
        for (process, guest, asked) in asked {
            match asked.and_then(Pending::wait) {
                Ok(found) => parts.push((process, found)),
                Err(error) => match guest.failure(process, &error) {
                    InspectError::Lost { .. } => self.forget(process),
                    failure => return Err(failure),
                },
            }
        }
        areas(parts)
    }

    /// Opens an area that consists of `T`.
    ///
    /// # Errors
    /// Those of [`open_any`](Self::open_any); [`InspectError::Type`] if it consists of something
    /// else.
    pub fn open<T: Element>(&self, name: &str) -> Result<Area<T>, InspectError> {
        let info = self.find(name)?;
        if info.element.name() != T::TYPE.name() {
            return Err(InspectError::Type { name: info.name, is: info.element, wanted: T::TYPE });
        }
        if info.element != T::TYPE || info.fields != T::fields() {
            let (is, wanted) = (info.type_name(), with_fields(T::TYPE, &T::fields()));
            return Err(InspectError::Fields { name: info.name, is, wanted });
        }
        Ok(Area::new(self.clone(), info))
    }

    /// Opens an area of any type. It has [`Area::get_raw`] only.
    ///
    /// # Errors
    /// Those of [`list`](Self::list); [`InspectError::NoArea`] if the job shows nothing of this
    /// name; [`InspectError::Differ`] and [`InspectError::Overlap`] if the parts of the workers do
    /// not fit together.
    pub fn open_any(&self, name: &str) -> Result<Area<()>, InspectError> {
        Ok(Area::new(self.clone(), self.find(name)?))
    }

    pub(super) fn find(&self, name: &str) -> Result<AreaInfo, InspectError> {
        let areas = self.list()?;
        let found: Vec<AreaInfo> = areas.iter().filter(|area| area.name == name).cloned().collect();
        if found.is_empty() {
            let mut areas: Vec<String> = areas.into_iter().map(|area| area.name).collect();
            areas.dedup();
            return Err(InspectError::NoArea { name: name.into(), areas });
        }
        AreaInfo::only(found)
    }

    pub(super) fn time(&self) -> Duration {
        self.deadline
    }

    pub(super) fn guests(&self) -> MutexGuard<'_, BTreeMap<u32, Guest>> {
        self.inner.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a call of a process failed.
    pub(super) fn failure(&self, process: u32, guest: &Guest, error: CallError<Refused>) -> InspectError {
        let failure = match error {
            CallError::Service(refused) => return InspectError::Refused { process, refused },
            error => guest.failure(process, &error),
        };
        if matches!(failure, InspectError::Lost { .. }) {
            self.forget(process);
        }
        failure
    }

    /// The connections to all processes that have a door now.
    pub(super) fn all_guests(&self, deadline: Instant) -> Result<BTreeMap<u32, Guest>, InspectError> {
        self.find_doors(deadline)?;
        Ok(self.guests().clone())
    }

    /// The connection to a process.
    pub(super) fn guest(&self, process: u32) -> Option<Guest> {
        self.guests().get(&process).cloned()
    }

    /// Closes the connection to a process that is gone.
    pub(super) fn forget(&self, process: u32) {
        self.guests().remove(&process);
    }

    /// The processes of the job that have no door.
    pub(super) fn without_door(&self) -> Vec<u32> {
        let guests = self.guests();
        let count = guests.values().map(|guest| guest.about.process_count).max().unwrap_or(0);
        // A door may claim any number.
        (0..count).filter(|process| !guests.contains_key(process)).take(NAMED_MAX).collect()
    }

    /// Connects to the doors that were opened since the last look.
    pub(super) fn find_doors(&self, deadline: Instant) -> Result<(), InspectError> {
        let mut jobs = names::jobs().map_err(InspectError::Doors)?;
        let there: BTreeSet<u32> = jobs.remove(self.job()).unwrap_or_default();
        if there.is_empty() {
            let wanted = self.job().to_string();
            return Err(InspectError::NoJob { wanted, found: jobs.into_keys().collect() });
        }
        self.guests().retain(|process, _| there.contains(process));
        for process in there {
            if self.guest(process).is_some() {
                continue;
            }
            match Guest::connect(self.job(), process, deadline) {
                Ok(guest) => drop(self.guests().insert(process, guest)),
                // It has ended meanwhile.
                Err(CallError::Connect(ConnectError::Absent { .. })) => {}
                Err(error) => {
                    return Err(InspectError::Silent { process, system_process: 0, cause: error.to_string() });
                }
            }
        }
        Ok(())
    }
}
