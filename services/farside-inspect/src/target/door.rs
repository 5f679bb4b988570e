//! [`Doorway`]: the door of a process, and what is behind it.

use std::sync::{Arc, Mutex};

use farside::{Background, Caller, ProcessId};
use farside_rpc::{Server, Wire, wire};

use super::activity::Lookout;
use super::areas::Areas;
use super::error::ExposeError;
use super::handlers::{Handlers, Neighborhood};
use super::network::{Network, Place};
use super::questions::Questions;
use super::setting::{Setting, builder, listen, setting};
use super::stays::Stays;
use crate::names::JobId;
use crate::network::{TOKEN_FILE, TokenError};
use crate::protocol::{DoorServer, Listen, NetworkDoor};
use crate::sync::lock;

/// The door of a process, opened with its first area, and the areas behind it.
///
/// The process's state holds it, so it is shut when the process leaves its job.
#[derive(Debug, Default)]
pub(super) struct Doorway {
    opened: Mutex<Option<Opened>>,
    areas: Arc<Areas>,
    stays: Arc<Stays>,
}

#[derive(Debug)]
struct Opened {
    /// Ends with the doorway.
    _server: Server,
    network: Arc<Network>,
}

impl Doorway {
    /// Opens the door unless it is open, or the environment says otherwise. Process 0 opens one on
    /// the network, too, if the environment says so. `caller` makes a caller of this process.
    pub(super) fn open(&self, place: Place, caller: impl FnOnce() -> Caller) -> Result<(), ExposeError> {
        self.open_as(place, || {
            let caller = caller();
            let (lookout, questions) = (Lookout::Own(caller.activity()), caller.process_state());
            self.stays.set_caller(caller);
            (lookout, questions)
        })
    }

    /// Opens the door for another process of the job that asks for it.
    ///
    /// # Errors
    /// [`ExposeError::Off`] if the environment keeps it shut.
    pub(super) fn open_when_asked(&self, caller: &Caller) -> Result<Arc<Network>, ExposeError> {
        let place = Place { process: caller.process().number(), process_count: caller.process_count() };
        self.open(place, || caller.clone())?;
        self.network().ok_or(ExposeError::Off)
    }

    /// Opens the door of a process without a job.
    pub(super) fn open_alone(&self, process: u32, process_count: u32) -> Result<(), ExposeError> {
        self.open_as(Place { process, process_count }, || (Lookout::None, Arc::default()))
    }

    fn open_as(&self, place: Place, workers: impl FnOnce() -> (Lookout, Arc<Questions>)) -> Result<(), ExposeError> {
        let setting = setting()?;
        let mut opened = lock(&self.opened);
        if opened.is_some() || matches!(setting, Setting::Off) {
            return Ok(());
        }
        let (areas, stays) = (self.areas.clone(), self.stays.clone());
        let (network, handlers) = Network::new(place, ask, |about, network| {
            let (lookout, questions) = workers();
            Handlers::new(about, areas, stays, questions, lookout, Some(network))
        })?;
        if let (0, Setting::Network(address)) = (place.process, setting) {
            let path = std::env::var_os(TOKEN_FILE).filter(|path| !path.is_empty()).ok_or(TokenError::None)?;
            network.open(listen(&address, path.as_ref())?)?;
        }
        let server = builder(&JobId::own().address(place.process))?.provider(0, DoorServer::new(handlers)).start()?;
        *opened = Some(Opened { _server: server, network });
        Ok(())
    }

    /// The door on the network, for clients that ask for it. `None` if no door is open.
    pub(super) fn network(&self) -> Option<Arc<Network>> {
        lock(&self.opened).as_ref().map(|opened| opened.network.clone())
    }

    pub(super) fn areas(&self) -> &Arc<Areas> {
        &self.areas
    }

    pub(super) fn stays(&self) -> &Arc<Stays> {
        &self.stays
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        // Its handlers may hold it for a moment longer, and must not end their own server.
        if let Some(network) = self.network() {
            network.shut();
        }
    }
}

/// The question to a process.
#[derive(Wire)]
#[wire(crate = "farside_rpc")]
struct Ask {
    /// The process that asks.
    back_to: u32,
    /// How to open the door on the network, if that is meant.
    network: Option<Listen>,
}

/// The answer of a process.
#[derive(Wire)]
#[wire(crate = "farside_rpc")]
struct Report {
    process: u32,
    answer: Result<Option<NetworkDoor>, String>,
}

/// Has a process open a door. Returns whether it could be asked.
fn ask(caller: &Caller, process: u32, network: Option<&Listen>) -> bool {
    let ask = Ask { back_to: caller.process().number(), network: network.cloned() };
    caller.run_in_background::<Ask>(ProcessId::new(process), &wire::encode(&ask, Vec::new())).is_ok()
}

impl Background for Ask {
    /// Opens the door that another process asks for, and answers.
    fn run(here: &Caller, bytes: &[u8]) {
        let Ok(Self { back_to, network: listen }) = decode(bytes) else { return };
        let opened = here.process_state::<Doorway>().open_when_asked(here);
        let answer = opened.and_then(|network| listen.map(|listen| network.open(listen)).transpose());
        let report = Report { process: here.process().number(), answer: answer.map_err(|error| error.to_string()) };
        // An error is the end of the job.
        let _ = here.run_in_background::<Report>(ProcessId::new(back_to), &wire::encode(&report, Vec::new()));
    }
}

impl Background for Report {
    fn run(here: &Caller, bytes: &[u8]) {
        if let (Ok(report), Some(network)) = (decode::<Report>(bytes), here.process_state::<Doorway>().network()) {
            network.note(report.process, report.answer);
        }
    }
}

fn decode<T: Wire>(bytes: &[u8]) -> Result<T, wire::WireError> {
    wire::decode(wire::Decoder::new(bytes), 0)
}
