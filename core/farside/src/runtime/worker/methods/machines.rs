//! The machines of a job.

use farside_fabric::{MachineId, ProcessId};

use crate::runtime::worker::{Worker, extension};

extension! {
    /// The machines of a job.
    ///
    /// This is a part of [`Worker`]. The prelude brings it in.
    Machines:

    /// Returns the machine of this worker. Processes that can share memory are on one machine.
    /// Machines are numbered from 0 in the order of their first processes.
    fn machine(&self) -> MachineId;

    /// Returns the machine of a process.
    fn machine_of(&self, process: ProcessId) -> MachineId;

    /// Returns the number of machines of the job.
    fn machine_count(&self) -> u32;
}
