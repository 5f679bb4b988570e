//! Coming to a job without Farside's launcher: processes that somebody else started find each other.
//!
//! Launchers such as `mpirun`, `srun` and `torchrun` start processes on many machines and tell each, in its environment, which of
//! how many it is ([`environment`]). Process 0 runs the coordinator on a thread of its own ([`host`]) and is otherwise a process like
//! the others. Those connect to it over TCP ([`join`]) and keep the stream as their control link.
//!
//! Before it is one, both ends prove to each other that they know the job's secret ([`greeting`]). So a stranger can neither come to
//! a job nor pose as its process 0, and what does not even speak the protocol is dropped after a while. What is said after the
//! greeting is not encrypted: the network of a cluster is taken to be its users' own.
//!
//! A process whose stream ends is lost for the others. When process 0 is gone, so is the job.

pub(super) mod environment;
mod greeting;
mod host;
mod join;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_sys::net::tcp;

use self::environment::Place;
use self::greeting::Secret;
pub(crate) use self::host::Hosting;
use self::join::Joining;
use crate::error::{RendezvousError, Result};
use crate::job::child::{Member, TransportChoice};
use crate::job::control::Control;
use crate::job::kill_point::KillPlan;
use crate::job::settings::{Choices, Lookup};

/// The job's secret: any text, the same for all processes.
const SECRET: &str = "FARSIDE_SECRET";
/// How long the machine at the other end of a stream may be silent before the stream counts as cut.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Takes the place that a launcher gave this process. Process 0 also gets the thread that runs the job.
///
/// # Errors
/// [`Error::Rendezvous`](crate::Error::Rendezvous); those of bad settings.
pub(crate) fn take(place: &Place, choices: Choices, lookup: Lookup<'_>) -> Result<(Member, Option<Hosting>)> {
    // The launcher has started so many processes, whatever the program says.
    let settings = Choices { processes: Some(place.processes), ..choices }.resolve(lookup)?;
    let process = ProcessId::new(place.process);
    let kill_plan = KillPlan::from_environment(lookup, process)?;
    let (control, hosting): (Arc<dyn Control>, _) = if place.processes == 1 {
        let (control, hosting) = host::start(None, &settings)?;
        (control, Some(hosting))
    } else {
        let secret = lookup(SECRET).filter(|text| !text.is_empty()).ok_or(RendezvousError::NoSecret)?;
        let secret = Secret::new(secret.as_encoded_bytes());
        if place.process == 0 {
            let (control, hosting) = host::start(Some((listen(place.port()?)?, secret)), &settings)?;
            (control, Some(hosting))
        } else {
            let Place { process, processes, .. } = *place;
            let targets = &[place.address()?];
            let joining = Joining { process, processes, targets, secret: &secret, time: settings.deadline };
            (Arc::new(joining.join()?), None)
        }
    };
    Ok((Member { process, settings, control, transport: TransportChoice::ByRoute, kill_plan }, hosting))
}

fn listen(port: u16) -> Result<TcpListener, RendezvousError> {
    tcp::listen_everywhere(port).map_err(|cause| RendezvousError::Port { port, cause: cause.to_string() })
}
