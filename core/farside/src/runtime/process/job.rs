//! [`JobFacts`]: the facts of a job that do not change, as one of its processes knows them.

use std::time::Duration;

use farside_fabric::{MachineId, ProcessId, WorkerId};
use farside_launch::kill_point::KillPlan;
use farside_launch::settings::Settings;

use crate::error::{Error, Result, Source};
use crate::invoke::named::NAMED;
use crate::runtime::home::Shape;

/// The facts of a job that do not change, as one of its processes knows them.
#[derive(Debug)]
pub struct JobFacts {
    pub(crate) id: ProcessId,
    pub(crate) shape: Shape,
    pub(crate) settings: Settings,
    /// True for each process that runs this binary. Empty if all do.
    pub(crate) alike: Box<[bool]>,
    /// The machine of each process. Empty if the job has one machine.
    pub(crate) machines: Box<[MachineId]>,
    /// The number that tells the job from others.
    pub(crate) job_id: u64,
    /// The point at which a test kills this process.
    pub(crate) kill_plan: Option<KillPlan>,
}

impl JobFacts {
    /// Returns the machine of a process.
    pub(crate) fn machine_of(&self, process: ProcessId) -> MachineId {
        self.machines.get(process.index()).copied().unwrap_or(MachineId::new(0))
    }

    /// Returns the number of machines.
    pub(crate) fn machine_count(&self) -> u32 {
        self.machines.iter().map(|machine| machine.number() + 1).max().unwrap_or(1)
    }

    /// Returns the process of a callable thread and its index there; `None` if there is no such
    /// thread.
    #[inline]
    pub fn place_of(&self, worker: WorkerId) -> Option<(ProcessId, usize)> {
        (worker.number() < self.shape.callable()).then(|| self.shape.place_of(worker))
    }

    /// Returns whether `worker` is a callable thread of that process.
    pub(crate) fn is_worker_of(&self, worker: u32, process: ProcessId) -> bool {
        self.place_of(WorkerId::new(worker)).is_some_and(|(of, _)| of == process)
    }

    /// Returns the source that fills the rings with this number.
    pub(crate) fn source(&self, index: usize) -> Source {
        match (index as u32).checked_sub(self.shape.callable()) {
            None => Source::Worker(WorkerId::new(index as u32)),
            Some(process) => Source::Process(ProcessId::new(process)),
        }
    }

    /// Returns the process that fills the rings with this number; `None` if there is no such
    /// source.
    pub(crate) fn owner_of(&self, source: u32) -> Option<ProcessId> {
        let exists = (source as usize) < self.shape.sources();
        let (process, _) = exists.then(|| self.process_of_source(self.source(source as usize)))??;
        Some(process)
    }

    /// Returns the process that a source belongs to; `None` if there is no such source.
    pub(crate) fn process_of(&self, source: Source) -> Option<ProcessId> {
        self.process_of_source(source).map(|(process, _)| process)
    }

    /// Returns the process of a source, and the thread's index if the source is a thread.
    pub(crate) fn process_of_source(&self, source: Source) -> Option<(ProcessId, Option<usize>)> {
        match source {
            Source::Worker(worker) => self.place_of(worker).map(|(process, local)| (process, Some(local))),
            Source::Process(process) => (process.number() < self.shape.processes).then_some((process, None)),
        }
    }

    /// Returns whether a process runs the same binary as this one.
    #[inline]
    pub fn is_alike(&self, process: ProcessId) -> bool {
        self.alike.is_empty() || self.alike.get(process.index()).copied().unwrap_or(false)
    }

    /// Returns whether the job's processes run several binaries.
    pub(crate) fn is_mixed(&self) -> bool {
        !self.alike.is_empty()
    }

    /// Returns whether a source runs the same binary as this process, so that its records may call
    /// the table's entries.
    #[inline]
    pub(crate) fn is_alike_source(&self, source: Source) -> bool {
        !self.is_mixed() || self.process_of(source).is_some_and(|process| self.is_alike(process))
    }

    /// Checks that a process understands calls of this entry.
    ///
    /// # Errors
    /// [`Error::DifferentBinaries`].
    pub(crate) fn check_callable(&self, process: ProcessId, entry: u16) -> Result<()> {
        match entry == NAMED || self.is_alike(process) {
            true => Ok(()),
            false => Err(Error::DifferentBinaries { a: self.id, b: process }),
        }
    }

    /// Returns the longest wait of a handler for a service thread. It is a small part of the job's
    /// deadline: those that wait for calls behind the handler have not given up then.
    pub(crate) fn handlers_patience(&self) -> Duration {
        self.settings.deadline / 10
    }
}
