//! Joining a job without Farside's launcher: processes that another launcher started find each
//! other.
//!
//! Launchers such as `mpirun`, `srun` and `torchrun` start processes on many machines, and tell
//! each its number and the number of processes. They do so by PMIx (`pmix`), through which
//! processes can also exchange their addresses, or by variables alone (`environment`). Process 0
//! runs the coordinator on its own thread (`host`). The others connect to it over TCP (`join`) and
//! keep the stream as their control link.
//!
//! First, both ends prove to each other that they know the job's secret (`greeting`). So a stranger
//! can neither join a job nor pose as its process 0. A connection that does not speak the protocol
//! is dropped after a while. Messages after the greeting are not encrypted: the network must be
//! trusted.
//!
//! Several groups of processes that were launched separately can form one job (`groups`).
//!
//! A process whose stream ends is lost for the others. The job ends when process 0 is lost.

mod environment;
mod greeting;
mod groups;
mod host;
mod join;
mod pmix;

use std::net::TcpListener;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_sys::library::LibraryError;
use farside_sys::net::tcp;
use farside_sys::pmix::Pmix;
use farside_wire::check::MessageKind;

use self::environment::Place;
use self::greeting::{Claim, Seat, Secret};
use self::groups::{Groups, Joint};
pub use self::host::Hosting;
use self::host::{Door, Guests, Strangers};
use self::join::Joining;
use crate::control::Control;
use crate::error::{RendezvousError, Result};
use crate::kill_point::KillPlan;
use crate::member::{Member, TransportChoice};
use crate::settings::{Choices, Lookup, Settings, variable};

/// The variable that selects the launchers to recognise.
const START: &str = "FARSIDE_START";
/// The variable with the job's secret: any text, the same for all processes.
const SECRET: &str = "FARSIDE_SECRET";
/// The longest silence of the machine at the other end before a stream counts as cut.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The source from which a process learns its place in the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceSource {
    /// PMIx.
    Pmix,
    /// Environment variables of the launcher.
    Variables(Place),
    /// The user's variables for the groups of a job. The place within this group comes from its
    /// launcher, if it has one.
    Groups(Joint, Option<Box<PlaceSource>>),
}

/// The value of [`START`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Start {
    /// The first source that is available.
    #[default]
    Any,
    /// Variables only.
    Variables,
    /// Farside's own launcher only.
    Own,
}

impl FromStr for Start {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "variables" => Ok(Self::Variables),
            "own" => Ok(Self::Own),
            _ => Err("expected any, variables or own"),
        }
    }
}

impl PlaceSource {
    /// Finds the source. Returns `None` if no launcher started this process.
    ///
    /// # Errors
    /// [`Error::Rendezvous`](crate::Error::Rendezvous) or
    /// [`Error::JobEnded`](crate::Error::JobEnded) if a variable is invalid.
    pub(crate) fn from_environment(lookup: Lookup<'_>) -> Result<Option<Self>> {
        let source = match variable::<Start>(lookup, START)?.unwrap_or_default() {
            Start::Own => return Ok(None),
            Start::Any if pmix::is_offered(lookup) => Some(Self::Pmix),
            Start::Any | Start::Variables => Place::from_environment(lookup)?.map(Self::Variables),
        };
        Ok(match Joint::from_environment(lookup)? {
            Some(joint) => Some(Self::Groups(joint, source.map(Box::new))),
            None => source,
        })
    }

    /// Takes the place that a launcher gave this process. Process 0 also receives the handle on the
    /// coordinator's thread.
    ///
    /// # Errors
    /// [`Error::Rendezvous`](crate::Error::Rendezvous); the error of an invalid setting.
    pub(crate) fn take(&self, choices: &Choices, lookup: Lookup<'_>) -> Result<(Member, Option<Hosting>)> {
        match self {
            Self::Variables(place) => take_place(place, choices, lookup),
            Self::Pmix => match Pmix::open() {
                Ok(pmix) => pmix::take_place(pmix, choices, lookup),
                Err(missing) => without_pmix(missing.to_string(), choices, lookup),
            },
            Self::Groups(joint, source) => {
                let (process, processes) = match source.as_deref() {
                    Some(source) => source.own_number(choices, lookup)?,
                    None => (0, 1),
                };
                let Joint { group, groups, ref address } = *joint;
                let claim = Claim { process, processes, group, groups };
                meet_at(claim, address, choices, lookup)
            }
        }
    }

    /// Returns this process's number in its group, and the group's size.
    fn own_number(&self, choices: &Choices, lookup: Lookup<'_>) -> Result<(u32, u32)> {
        match self {
            Self::Variables(place) => Ok((place.process, place.processes)),
            Self::Pmix => {
                let missing = |missing: LibraryError| RendezvousError::Pmix { why: missing.to_string() };
                pmix::own_number(Pmix::open().map_err(missing)?, time_of(choices, lookup)?)
            }
            Self::Groups(_, source) => source.as_ref().map_or(Ok((0, 1)), |source| source.own_number(choices, lookup)),
        }
    }
}

/// Takes the place that variables give this process.
fn take_place(place: &Place, choices: &Choices, lookup: Lookup<'_>) -> Result<(Member, Option<Hosting>)> {
    let claim = Claim::ungrouped(place.process, place.processes);
    if place.processes == 1 {
        return host_job(claim, None, choices, lookup);
    }
    secret(lookup)?;
    let address = if place.process == 0 { (String::new(), place.port()?) } else { place.address()? };
    meet_at(claim, &address, choices, lookup)
}

/// Meets the others at the address of process 0. Process 0 itself uses only the port.
fn meet_at(
    claim: Claim,
    address: &(String, u16),
    choices: &Choices,
    lookup: Lookup<'_>,
) -> Result<(Member, Option<Hosting>)> {
    let secret = secret(lookup)?;
    if (claim.process, claim.group) == (0, 0) {
        let door = Door { listener: listen(address.1)?, secret, pmix: None };
        return host_job(claim, Some(door), choices, lookup);
    }
    let time = time_of(choices, lookup)?;
    join_job(&Joining { claim, targets: std::slice::from_ref(address), secret: &secret, time }, choices, lookup)
}

fn secret(lookup: Lookup<'_>) -> Result<Secret> {
    let text = lookup(SECRET).filter(|text| !text.is_empty()).ok_or(RendezvousError::NoSecret)?;
    Ok(Secret::new(text.as_encoded_bytes()))
}

/// Uses the variables because libpmix is missing.
fn without_pmix(missing: String, choices: &Choices, lookup: Lookup<'_>) -> Result<(Member, Option<Hosting>)> {
    let taken = match Place::from_environment(lookup)? {
        Some(place) => take_place(&place, choices, lookup),
        None => Err(RendezvousError::NoAddress { what: "RANK and WORLD_SIZE" }.into()),
    };
    taken.map_err(|error| match error {
        crate::Error::Rendezvous(cause @ (RendezvousError::NoSecret | RendezvousError::NoAddress { .. })) => {
            RendezvousError::NoPmix { missing, otherwise: cause.to_string() }.into()
        }
        other => other,
    })
}

/// Resolves the settings with the launcher's number of processes, which overrides the program's.
fn settings_for(processes: u32, choices: &Choices, lookup: Lookup<'_>) -> Result<Settings> {
    Choices { processes: Some(processes), ..choices.clone() }.resolve(lookup)
}

/// Returns the deadline for each step of the start.
fn time_of(choices: &Choices, lookup: Lookup<'_>) -> Result<Duration> {
    Ok(choices.clone().resolve(lookup)?.deadline)
}

/// Takes the place of process 0, to which the others connect at the door.
fn host_job(
    claim: Claim,
    door: Option<Door>,
    choices: &Choices,
    lookup: Lookup<'_>,
) -> Result<(Member, Option<Hosting>)> {
    let mut strangers = door.map(Strangers::new);
    let (groups, requests) = match &mut strangers {
        Some(strangers) => groups::assemble(&claim, strangers, time_of(choices, lookup)?)?,
        None => (Groups::of(&claim), Vec::new()),
    };
    // A sum that overflows exceeds every limit.
    let settings = settings_for(groups.processes().unwrap_or(u32::MAX), choices, lookup)?;
    let (control, hosting) = host::start(Guests { strangers, groups, requests }, &settings)?;
    Ok((member(0, settings, control, lookup)?, Some(hosting)))
}

/// Takes the place of a process that connects to process 0.
fn join_job(joining: &Joining<'_>, choices: &Choices, lookup: Lookup<'_>) -> Result<(Member, Option<Hosting>)> {
    let (control, Seat { process, processes }) = joining.join()?;
    let settings = settings_for(processes, choices, lookup)?;
    Ok((member(process, settings, Arc::new(control), lookup)?, None))
}

fn member(process: u32, settings: Settings, control: Arc<dyn Control>, lookup: Lookup<'_>) -> Result<Member> {
    let process = ProcessId::new(process);
    let kill_plan = KillPlan::from_environment(lookup, process)?;
    Ok(Member { process, settings, control, transport: TransportChoice::ByRoute, kill_plan, build: 0 })
}

fn listen(port: u16) -> Result<TcpListener, RendezvousError> {
    tcp::listen_everywhere(port).map_err(|cause| RendezvousError::Port { port, cause: cause.to_string() })
}

/// The messages of the rendezvous, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    [greeting::message_kinds(), vec![pmix::message_kind()]].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn source(variables: &[(&str, &str)]) -> Result<Option<PlaceSource>> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        PlaceSource::from_environment(&|name| variables.get(name).map(Into::into))
    }

    #[test]
    fn pmix_is_preferred_to_variables_by_default() {
        let variables = [("RANK", "0"), ("WORLD_SIZE", "2")];
        let both = [&variables[..], &[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "1.2")]].concat();
        let with = |start| [&both[..], &[(START, start)]].concat();
        assert_eq!(source(&[]).unwrap(), None);
        assert!(matches!(source(&variables).unwrap(), Some(PlaceSource::Variables(_))));
        assert_eq!(source(&both).unwrap(), Some(PlaceSource::Pmix));
        assert_eq!(source(&with("any")).unwrap(), Some(PlaceSource::Pmix));
        assert!(matches!(source(&with("variables")).unwrap(), Some(PlaceSource::Variables(_))));
        assert_eq!(source(&with("own")).unwrap(), None);
        let joint = [("FARSIDE_JOIN", "n1:7"), ("FARSIDE_GROUP", "0/2")];
        assert!(matches!(source(&joint).unwrap(), Some(PlaceSource::Groups(_, None))));
        let group = [&both[..], &joint].concat();
        assert!(
            matches!(source(&group).unwrap(), Some(PlaceSource::Groups(_, Some(source))) if *source == PlaceSource::Pmix)
        );
        let error = source(&with("somehow")).unwrap_err().to_string();
        assert!(
            error.contains("invalid value \"somehow\" for FARSIDE_START") && error.contains("variables"),
            "{error}"
        );
    }
}
