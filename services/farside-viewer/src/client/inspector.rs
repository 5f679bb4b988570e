//! [`Inspector`]: a job, as a reader sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farside_inspect::__private::doors::{Doors, DoorsError, Guest, Origin, unreached};
use farside_inspect::__private::element::with_fields;
use farside_inspect::__private::lock;
use farside_inspect::__private::names::{self, FoundDoors};
use farside_inspect::__private::network::credentials;
use farside_inspect::__private::points::Points;
#[cfg(test)]
use farside_inspect::__private::protocol::DoorClient;
use farside_inspect::{Element, JobId, Refused};
use farside_rpc::{CallError, ConnectError, Credentials, Never, Pending, Refusal};

use super::area::Area;
use super::error::InspectError;
use super::info::{AreaInfo, JobInfo, areas};
use super::launched;
use super::steering::PausedStay;
use crate::target::Target;

/// The time that each question has, unless another is chosen.
const DEADLINE: Duration = Duration::from_secs(5);
/// The time in which processes open the doors that they are asked for.
const ANSWERS_IN: Duration = Duration::from_secs(1);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The jobs of this user on this machine that show something, and all that `farside run` has
/// started.
///
/// # Errors
/// [`InspectError::Doors`].
pub fn jobs() -> Result<Vec<JobInfo>, InspectError> {
    let deadline = Instant::now() + DEADLINE;
    let found = names::jobs().map_err(InspectError::Doors)?;
    let asked = found.into_iter().map(|(id, FoundDoors { processes, has_launcher })| {
        let mut job = JobInfo::new(id);
        let mut first = meet_here(&mut job, &processes, deadline);
        if let Some(first) = first.take_if(|_| job.processes.len() + job.silent.len() < job.process_count as usize) {
            // Those that show nothing have opened no door.
            let _ = await_others(&first, deadline);
            let now = names::jobs().ok().and_then(|mut jobs| jobs.remove(&job.id)).unwrap_or_default();
            meet_here(&mut job, &(&now.processes - &processes), deadline);
            job.processes.sort_by_key(|about| about.process);
        }
        if has_launcher {
            // A launcher that does not answer has just ended, as a rule.
            job.add_launched(launched::guests(&job.id, &Points::default(), deadline).unwrap_or_default());
        }
        job
    });
    Ok(asked.filter(JobInfo::is_there).collect())
}

/// Asks processes of this machine who they are. Returns the connection to one that answers.
fn meet_here(job: &mut JobInfo, processes: &BTreeSet<u32>, deadline: Instant) -> Option<Guest> {
    let mut first = None;
    for process in processes {
        match Guest::connect(&job.id, *process, &Points::default(), deadline) {
            Ok(guest) => {
                job.process_count = job.process_count.max(guest.about.process_count);
                job.processes.push(guest.about.clone());
                first.get_or_insert(guest);
            }
            // It has ended meanwhile, or another user has taken the name of a door.
            Err(CallError::Connect(ConnectError::Absent { .. } | ConnectError::OtherUser { .. })) => {}
            Err(_) => job.silent.push(*process),
        }
    }
    first
}

/// Has a process ask the others to open their doors, and waits until they have, for a second at
/// most.
fn await_others(guest: &Guest, deadline: Instant) -> Result<(), CallError<Never>> {
    let until = deadline.min(Instant::now() + ANSWERS_IN);
    while Instant::now() < until && !guest.until(until).open_others()?.wait()?.is_empty() {
        std::thread::sleep(ASK_AGAIN_AFTER);
    }
    Ok(())
}

/// A job, as a reader sees it. Clones share their connections.
///
/// ```no_run
/// use farside_viewer::{At, Inspector};
///
/// let job = Inspector::connect("heat")?;
/// for area in job.list()? {
///     println!("{} {} {:?}", area.name, area.element, area.shape);
/// }
/// let heat = job.open::<f64>("temperature")?;
/// let frame = heat.get(&"[10:20, ::4]".parse()?, At::Next)?;
/// println!("step {:?}: {:?} {:?}", frame.step, frame.shape, frame.values);
/// # Ok::<(), farside_viewer::InspectError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inspector {
    pub(super) inner: Arc<Inner>,
    deadline: Duration,
}

/// The most processes that an error names.
const NAMED_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) doors: Doors,
    /// Where the job is, if this program came by the network.
    pub(super) origin: Option<Origin>,
    /// The connection to the launcher, for each process.
    pub(super) launched: Mutex<BTreeMap<u32, Guest>>,
    paused: Mutex<PausedStay>,
    /// The number of the last attendance.
    last: AtomicU64,
}

/// Why a call of a process failed, if its service did not refuse it.
pub(super) fn failure_of<E: fmt::Display>(guest: &Guest, process: u32, error: &CallError<E>) -> InspectError {
    let (system_process, cause) = (guest.about.system_process, error.to_string());
    match error {
        // A process closes its door at its end.
        CallError::Lost { .. }
        | CallError::ShuttingDown
        | CallError::Connect(
            ConnectError::Absent { .. } | ConnectError::Refused { refusal: Refusal::ShuttingDown, .. },
        ) => InspectError::Lost { process, system_process, cause },
        _ => InspectError::Silent { process, system_process, cause },
    }
}

impl Inspector {
    /// Finds a job of this user on this machine and connects to its doors. `job` is the job's name,
    /// its number, or both as `NAME/NUMBER`; with an empty text it is the only job that there is.
    /// `tcp://HOST:PORT` is a job on any machine: see [`Target`].
    ///
    /// # Errors
    /// [`InspectError`]: among others if no job is meant by the text, or several are.
    pub fn connect(job: impl Into<Target>) -> Result<Self, InspectError> {
        let target = job.into();
        if let Some(address) = target.network() {
            return Self::connect_by_network(address, credentials(&target.token()?));
        }
        let job = target.text();
        let jobs = names::jobs().map_err(InspectError::Doors)?;
        let is_meant = |id: &&JobId| job.is_empty() || id.is_meant_by(job);
        let mut meant: Vec<JobId> = jobs.keys().filter(is_meant).cloned().collect();
        if meant.len() > 1 {
            let found: Vec<JobId> = self::jobs()?.into_iter().map(|job| job.id).collect();
            meant.retain(|job| found.contains(job));
        }
        let job = match meant.len() {
            0 => return Err(InspectError::NoJob { wanted: job.into(), found: jobs.into_keys().collect() }),
            1 => meant.remove(0),
            _ => return Err(InspectError::Ambiguous { found: meant }),
        };
        let inspector = Self::new(job, None);
        inspector.find_doors(Instant::now() + DEADLINE)?;
        Ok(inspector)
    }

    fn connect_by_network(address: &str, credentials: Credentials) -> Result<Self, InspectError> {
        let deadline = Instant::now() + DEADLINE;
        let guest = Guest::dial(address, credentials.clone(), &Points::default(), deadline);
        let guest = guest.map_err(|error| not_reached(address, &error))?;
        let origin = Origin { address: address.into(), credentials };
        let inspector = Self::new(guest.about.job.clone(), Some(origin));
        inspector.guests().insert(guest.about.process, guest);
        inspector.find_doors(deadline)?;
        Ok(inspector)
    }

    /// A job whose doors are these. It must have a process 0, and looks for no others.
    #[cfg(test)]
    pub(crate) fn of_doors(doors: Vec<(crate::About, DoorClient)>) -> Self {
        let origin = Origin { address: "simulated".into(), credentials: Credentials::own_user() };
        let inspector = Self::new(doors[0].0.job.clone(), Some(origin));
        for (about, door) in doors {
            let guest = Guest { about, door, is_by_network: true, points: Points::default() };
            inspector.guests().insert(guest.about.process, guest);
        }
        inspector
    }

    fn new(job: JobId, origin: Option<Origin>) -> Self {
        let (doors, (launched, paused, last)) = (Doors::new(job, Points::of("client")), Default::default());
        Self { inner: Arc::new(Inner { doors, origin, launched, paused, last }), deadline: DEADLINE }
    }

    /// A number that no other clone of this inspector gets.
    pub(super) fn next_number(&self) -> u64 {
        // Relaxed: the number publishes nothing.
        self.inner.last.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn paused_stay(&self) -> &Mutex<PausedStay> {
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
        self.inner.doors.job()
    }

    /// The job, with its processes that have a door and answer now.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn found(&self) -> Result<JobInfo, InspectError> {
        let deadline = Instant::now() + self.deadline;
        let guests = self.all_guests(deadline)?;
        let asked: Vec<_> = guests.iter().map(|(process, guest)| (*process, guest.until(deadline).about())).collect();
        let mut job = JobInfo::new(self.job().clone());
        for (process, asked) in asked {
            match asked.and_then(Pending::wait) {
                Ok(about) => job.processes.push(about),
                Err(error) => match failure_of(&guests[&process], process, &error) {
                    InspectError::Lost { .. } => self.forget(process),
                    _ => job.silent.push(process),
                },
            }
        }
        job.process_count = job.processes.iter().map(|about| about.process_count).max().unwrap_or(0);
        job.add_launched(self.launched(deadline));
        if !job.is_there() {
            return Err(InspectError::NoJob { wanted: self.job().to_string(), found: Vec::new() });
        }
        Ok(job)
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
                Err(error) => match failure_of(guest, process, &error) {
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
    /// [`InspectError`], as for [`open_any`](Self::open_any); `Type` if it consists of something
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
    /// [`InspectError`], as for [`list`](Self::list); `NoArea` if the job shows nothing of this
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
        self.inner.doors.guests()
    }

    /// Why a call of a process failed.
    pub(super) fn failure(&self, process: u32, guest: &Guest, error: CallError<Refused>) -> InspectError {
        let failure = match error {
            CallError::Service(refused) => return InspectError::Refused { process, refused },
            error => failure_of(guest, process, &error),
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
        self.inner.doors.guest(process)
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
        match &self.inner.origin {
            None => {
                self.find_doors_here(deadline)?;
                self.find_others_here(deadline)?;
            }
            Some(origin) => self.find_first_door(origin, deadline)?,
        }
        // Process 0 knows the doors on the network.
        let Some(first) = self.guest(0).filter(|first| first.about.network.is_some()) else { return Ok(()) };
        if self.without_door().is_empty() {
            return Ok(());
        }
        let until = deadline.min(Instant::now() + ANSWERS_IN);
        loop {
            let asked = first.until(deadline).neighbors().and_then(Pending::wait);
            let neighbors = asked.map_err(|error| self.failure(0, &first, error))?;
            let are_all = neighbors.awaited.is_empty() || Instant::now() >= until;
            let met = self.inner.doors.meet(&neighbors, self.inner.origin.as_ref(), deadline);
            met.map_err(|error| self.not_found(error))?;
            if are_all {
                return Ok(());
            }
            std::thread::sleep(ASK_AGAIN_AFTER);
        }
    }

    /// Connects to process 0 again, if that connection has ended.
    fn find_first_door(&self, origin: &Origin, deadline: Instant) -> Result<(), InspectError> {
        if self.guest(0).is_none() {
            let found =
                match Guest::dial(&origin.address, origin.credentials.clone(), self.inner.doors.points(), deadline) {
                    Ok(found) => found,
                    Err(CallError::Connect(ConnectError::Absent { .. })) => {
                        return Err(InspectError::NoJob { wanted: origin.address.clone(), found: Vec::new() });
                    }
                    Err(error) => return Err(not_reached(&origin.address, &error)),
                };
            // Another job may listen there now.
            if found.about.process != 0 || found.about.job != *self.job() {
                return Err(InspectError::NoJob { wanted: self.job().to_string(), found: vec![found.about.job] });
            }
            self.guests().insert(0, found);
        }
        Ok(())
    }

    /// Connects to the doors of this machine.
    fn find_doors_here(&self, deadline: Instant) -> Result<(), InspectError> {
        let found = self.inner.doors.find_here(deadline);
        if !matches!(found, Ok(true)) {
            lock(&self.inner.launched).clear();
        }
        found.map(drop).map_err(|error| self.not_found(error))
    }

    /// Why doors of the job were not found.
    fn not_found(&self, error: DoorsError) -> InspectError {
        match error {
            DoorsError::Names(error) => InspectError::Doors(error),
            DoorsError::NoJob { found } => InspectError::NoJob { wanted: self.job().to_string(), found },
            DoorsError::Silent { process, cause } => InspectError::Silent { process, system_process: 0, cause },
            DoorsError::Unreached { address, cause } => InspectError::Unreached { address, cause },
        }
    }

    /// Connects to the doors of this machine that processes open when they are asked to.
    fn find_others_here(&self, deadline: Instant) -> Result<(), InspectError> {
        if self.without_door().is_empty() {
            return Ok(());
        }
        let first = self.guests().first_key_value().map(|(_, guest)| guest.clone());
        // A process that does not answer is named when it is asked for more.
        if first.is_some_and(|first| await_others(&first, deadline).is_ok()) {
            self.find_doors_here(deadline)?;
        }
        Ok(())
    }
}

fn not_reached(address: &str, error: &CallError<Never>) -> InspectError {
    InspectError::Unreached { address: address.into(), cause: unreached(error) }
}
