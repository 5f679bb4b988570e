//! Processes without a door, for which the launcher of their job answers.

use std::collections::BTreeMap;
use std::time::Instant;

use farside_inspect::__private::doors::{Guest, client_of};
use farside_inspect::__private::points::Points;
use farside_inspect::__private::protocol::DoorClient;
use farside_inspect::JobId;
use farside_rpc::{CallError, Credentials, Never, Pending};

use super::error::InspectError;
use super::inspector::Inspector;

/// Connects to the launcher of a job, and returns its answering for each process that runs.
pub(super) fn guests(
    job: &JobId,
    points: &Points,
    deadline: Instant,
) -> Result<BTreeMap<u32, Guest>, CallError<Never>> {
    let client = client_of(&job.launcher_address(), Credentials::own_user(), deadline)?;
    let door = |process: u16| {
        DoorClient::at(client.clone(), process).deadline(deadline.saturating_duration_since(Instant::now()))
    };
    let count = door(0).about()?.wait()?.process_count;
    let asked: Vec<_> = (0..=u16::MAX).take(count as usize).map(|process| (process, door(process).about())).collect();
    let mut found = BTreeMap::new();
    for (process, asked) in asked {
        let about = asked.and_then(Pending::wait)?;
        if about.system_process != 0 {
            let (door, points) = (door(process), points.clone());
            found.insert(u32::from(process), Guest { about, door, is_by_network: false, points });
        }
    }
    Ok(found)
}

impl Inspector {
    /// The launcher's answering for each process. Empty if there is no launcher with a door on this
    /// machine.
    pub(super) fn launched(&self, deadline: Instant) -> BTreeMap<u32, Guest> {
        if self.inner.origin.is_some() {
            return BTreeMap::new();
        }
        let mut launched = farside_inspect::__private::lock(&self.inner.launched);
        if launched.is_empty() {
            *launched = guests(self.job(), self.inner.doors.points(), deadline).unwrap_or_default();
        }
        launched.clone()
    }

    /// The connections to all processes whose workers can be seen: those to their doors, or else to
    /// the launcher.
    pub(super) fn all_seen(&self, deadline: Instant) -> Result<BTreeMap<u32, Guest>, InspectError> {
        let guests = self.all_guests(deadline)?;
        let count = guests.values().map(|guest| guest.about.process_count).max().unwrap_or(0);
        if count > 0 && guests.len() == count as usize {
            return Ok(guests);
        }
        let mut all = self.launched(deadline);
        all.extend(guests);
        Ok(all)
    }
}
