//! [`Conductor`]: how one process of a job has all of them make changes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farside_rpc::{CallError, Pending};

use crate::doors::Doors;
use crate::names::JobId;
use crate::points::Points;
use crate::protocol::{Listen, Neighbors, NetworkDoor, Order, Refused};

/// The connections of a process to the doors of its job.
#[derive(Debug)]
pub(super) struct Conductor(Doors);

impl Conductor {
    pub(super) fn new(job: JobId) -> Self {
        Self(Doors::new(job, Points::default()))
    }

    /// Has processes of this machine open their doors on the network. Returns the answers of those
    /// that have a door on the machine.
    pub(super) fn open_on_network(
        &self,
        processes: &[u32],
        listen: &Listen,
        time: Duration,
    ) -> BTreeMap<u32, Result<NetworkDoor, String>> {
        let deadline = Instant::now() + time;
        // Those that are not found are asked in another way.
        let _ = self.0.find_here(deadline);
        let guests = processes.iter().filter_map(|process| Some((*process, self.0.guest(*process)?)));
        let asked: Vec<_> =
            guests.map(|(process, guest)| (process, guest.until(deadline).open_on_network(listen.clone()))).collect();
        let answer = |asked: Result<Pending<_, Refused>, _>| asked.and_then(Pending::wait);
        asked.into_iter().map(|(process, asked)| (process, answer(asked).map_err(|error| error.to_string()))).collect()
    }

    /// Has several processes make changes, or check them. Returns how many places they reach.
    pub(super) fn apply_all(
        &self,
        stays: &[(u32, u64)],
        orders: &[Order],
        only_check: bool,
        time: Duration,
        neighbors: Option<&Neighbors>,
    ) -> Result<u64, Refused> {
        let failed = |error: &dyn std::fmt::Display| Refused::Failed { cause: error.to_string() };
        let deadline = Instant::now() + time;
        let found = self.0.find_here(deadline);
        let found = found.and_then(|_| neighbors.map_or(Ok(()), |neighbors| self.0.meet(neighbors, None, deadline)));
        found.map_err(|error| failed(&error))?;
        let mut asked = Vec::new();
        for (process, stay) in stays {
            let guest = self.0.guest(*process).ok_or_else(|| failed(&format!("process {process} is gone")))?;
            asked.push(guest.until(deadline).apply(*stay, orders.to_vec(), only_check));
        }
        let mut reached = 0;
        for asked in asked {
            reached += asked.and_then(Pending::wait).map_err(|error| match error {
                CallError::Service(refused) => refused,
                error => failed(&error),
            })?;
        }
        Ok(reached)
    }
}
