//! Groups of processes that were launched separately, in one job.
//!
//! The processes are numbered group by group. Process 0, the first of group 0, learns each group's
//! size from the first of its processes that connects. The job's size is the sum.

use std::time::{Duration, Instant};

use farside_sys::net::wait_ready;

use super::greeting::{Answer, Claim, Seat};
use super::host::{Request, Strangers};
use crate::error::{LaunchError as Error, RendezvousError, Result};
use crate::settings::{Lookup, variable};

/// The variable with the address of process 0 of the whole job: `HOST:PORT`.
const JOIN: &str = "FARSIDE_JOIN";
/// The variable with the number of this group and the number of groups: `INDEX/COUNT`.
const GROUP: &str = "FARSIDE_GROUP";
/// The maximum number of groups in a job.
const GROUPS_MAX: u32 = 1024;

/// The place of a group in its job, from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joint {
    pub(crate) group: u32,
    pub(crate) groups: u32,
    /// The address of process 0.
    pub(crate) address: (String, u16),
}

impl Joint {
    /// Reads the variables. Returns `None` if this process's group is the whole job.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if one of the variables is invalid or missing.
    pub(crate) fn from_environment(lookup: Lookup<'_>) -> Result<Option<Self>> {
        let (join, group): (Option<String>, Option<String>) = (variable(lookup, JOIN)?, variable(lookup, GROUP)?);
        let (Some(join), Some(group)) = (&join, &group) else {
            let neither = join.is_none() && group.is_none();
            return if neither { Ok(None) } else { Err(RendezvousError::GroupVariables.into()) };
        };
        let address = join.rsplit_once(':').and_then(|(host, port)| {
            // IPv6 addresses are in brackets.
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            Some((host.to_owned(), port.parse().ok()?))
        });
        let numbers = group.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match (address, numbers) {
            (Some(address), Some((group, groups)))
                if group < groups && groups <= GROUPS_MAX && !address.0.is_empty() =>
            {
                Ok(Some(Self { group, groups, address }))
            }
            _ => Err(RendezvousError::GroupVariables.into()),
        }
    }
}

/// The known sizes of a job's groups.
#[derive(Clone, Debug)]
pub(crate) struct Groups(Vec<Option<u32>>);

impl Groups {
    /// Makes the groups of the job of which this process is the first.
    pub(crate) fn of(own: &Claim) -> Self {
        let mut groups = Self(vec![None; own.groups as usize]);
        groups.learn(own);
        groups
    }

    /// Takes a group's size from the first of its processes that connects.
    fn learn(&mut self, claim: &Claim) {
        if claim.groups as usize == self.0.len()
            && let Some(size) = self.0.get_mut(claim.group as usize)
        {
            size.get_or_insert(claim.processes);
        }
    }

    fn missing(&self) -> Vec<u32> {
        (0..).zip(&self.0).filter(|(_, size)| size.is_none()).map(|(group, _)| group).collect()
    }

    /// Returns the job's processes. `None` if a group's size is unknown, or the sum overflows.
    pub(crate) fn processes(&self) -> Option<u32> {
        self.0.iter().try_fold(0_u32, |sum, size| sum.checked_add((*size)?))
    }

    /// Returns the seat in the whole job for a claim.
    ///
    /// # Errors
    /// The answer to the process if the job has no such seat.
    pub(crate) fn seat(&self, claim: &Claim) -> Result<Seat, Answer> {
        let other_groups = Answer::OtherGroups(self.0.len() as u32);
        if claim.groups as usize != self.0.len() {
            return Err(other_groups);
        }
        let before = self.0.get(..claim.group as usize).ok_or(other_groups)?;
        let own = self.0.get(claim.group as usize).copied().flatten().ok_or(other_groups)?;
        let processes = self.processes().ok_or(other_groups)?;
        if claim.processes != own || claim.process >= own {
            return Err(Answer::OtherSize(own));
        }
        let first: u32 = before.iter().flatten().sum();
        Ok(Seat { process: first + claim.process, processes })
    }
}

/// Waits until a process of each group has connected. Returns the groups and all requests so far.
///
/// # Errors
/// - [`Error::Rendezvous`] with the groups of which no process connected in time.
/// - [`Error::JobEnded`] if a process was started for another number of groups.
pub(crate) fn assemble(own: &Claim, strangers: &mut Strangers, time: Duration) -> Result<(Groups, Vec<Request>)> {
    let deadline = Instant::now() + time;
    let mut groups = Groups::of(own);
    let mut come = Vec::new();
    while !groups.missing().is_empty() {
        if Instant::now() >= deadline {
            let missing = groups.missing();
            return Err(RendezvousError::GroupsMissing { missing, groups: own.groups, after: time }.into());
        }
        let interests: Vec<_> = strangers.interests().collect();
        let until = strangers.next_deadline().map_or(deadline, |at| at.min(deadline));
        let doing = "waiting for the groups of the job";
        wait_ready(&interests, Some(until)).map_err(|cause| Error::System { doing, cause })?;
        let (requests, _) = strangers.meet();
        for request in requests {
            if request.claim().groups != own.groups {
                let answer = Answer::OtherGroups(own.groups);
                let why = complaint(request.claim(), answer);
                request.refuse(answer);
                return Err(Error::JobEnded { why });
            }
            groups.learn(request.claim());
            let Claim { group, processes, .. } = *request.claim();
            tracing::debug!(group, processes, "process of a group connected");
            come.push(request);
        }
    }
    Ok((groups, come))
}

/// Describes what is wrong with a claim that received `answer`, with the remedy.
pub(crate) fn complaint(claim: &Claim, answer: Answer) -> String {
    let Claim { process, processes, group, groups } = claim;
    let who = if *groups == 1 { format!("process {process}") } else { format!("process {process} of group {group}") };
    match answer {
        Answer::OtherSize(own) => format!(
            "{who} was started for a job of {processes} processes, and process 0 for one of {own}: give all the same WORLD_SIZE, \
             and each job its own MASTER_PORT"
        ),
        Answer::OtherGroups(own) => format!(
            "{who} was started as one of {groups} groups, and process 0 as one of {own}: give all the same count in FARSIDE_GROUP"
        ),
        _ => format!("two processes joined as {who}: give each process a RANK of its own"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joint(join: Option<&str>, group: Option<&str>) -> Result<Option<Joint>> {
        let lookup = |name: &str| if name == JOIN { join } else { group.filter(|_| name == GROUP) }.map(Into::into);
        Joint::from_environment(&lookup)
    }

    #[test]
    fn both_variables_are_needed_and_must_make_sense() {
        assert_eq!(joint(None, None).unwrap(), None);
        let found = joint(Some("n1:7000"), Some("1/3")).unwrap().unwrap();
        assert_eq!(found, Joint { group: 1, groups: 3, address: ("n1".into(), 7000) });
        let found = joint(Some("[::1]:7000"), Some("0/1")).unwrap().unwrap();
        assert_eq!(found.address, ("::1".into(), 7000));
        for (join, group) in [
            (Some("n1:7000"), None),
            (None, Some("0/2")),
            (Some("n1"), Some("0/2")),
            (Some(":7000"), Some("0/2")),
            (Some("n1:70000"), Some("0/2")),
            (Some("n1:7000"), Some("2/2")),
            (Some("n1:7000"), Some("0/0")),
            (Some("n1:7000"), Some("0/1025")),
            (Some("n1:7000"), Some("first")),
        ] {
            let error = joint(join, group).unwrap_err();
            assert!(matches!(error, Error::Rendezvous(RendezvousError::GroupVariables)), "{error}");
        }
    }

    #[test]
    fn processes_are_numbered_group_by_group() {
        let claim = |process, processes, group| Claim { process, processes, group, groups: 3 };
        let mut groups = Groups::of(&claim(0, 2, 0));
        groups.learn(&claim(3, 4, 2));
        assert_eq!((groups.missing(), groups.processes()), (vec![1], None));
        groups.learn(&claim(0, 1, 1));
        // The first claim counts.
        groups.learn(&claim(0, 9, 1));
        assert_eq!((groups.missing(), groups.processes()), (vec![], Some(7)));
        let seat = |process| Ok(Seat { process, processes: 7 });
        assert_eq!(groups.seat(&claim(0, 2, 0)), seat(0));
        assert_eq!(groups.seat(&claim(1, 2, 0)), seat(1));
        assert_eq!(groups.seat(&claim(0, 1, 1)), seat(2));
        assert_eq!(groups.seat(&claim(3, 4, 2)), seat(6));
        assert_eq!(groups.seat(&claim(4, 4, 2)), Err(Answer::OtherSize(4)));
        assert_eq!(groups.seat(&claim(0, 5, 2)), Err(Answer::OtherSize(4)));
        assert_eq!(groups.seat(&claim(0, 5, 3)), Err(Answer::OtherGroups(3)));
        assert_eq!(groups.seat(&Claim { groups: 2, ..claim(0, 2, 0) }), Err(Answer::OtherGroups(3)));
    }

    proptest! {
        #[test]
        fn every_seat_is_given_once(sizes in prop::collection::vec(1..5_u32, 1..6)) {
            let count = sizes.len() as u32;
            let claim = |process, group: u32| Claim { process, processes: sizes[group as usize], group, groups: count };
            let mut groups = Groups::of(&claim(0, 0));
            (0..count).for_each(|group| groups.learn(&claim(0, group)));
            let claims = (0..count).flat_map(|group| (0..sizes[group as usize]).map(move |process| claim(process, group)));
            let seats: Vec<_> = claims.map(|claim| groups.seat(&claim).unwrap().process).collect();
            prop_assert_eq!(seats, (0..sizes.iter().sum()).collect::<Vec<_>>());
        }
    }
}
