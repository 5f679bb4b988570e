//! [`Doorway`]: the door of a process, and what is behind it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::Caller;
use farside_rpc::Server;
use farside_rpc::server::{Builder, StartError};

use super::activity::Lookout;
use super::areas::Areas;
use super::error::ExposeError;
use super::functions::Questions;
use super::handlers::Handlers;
use super::holds::Holds;
use super::network::{Network, Place};
use crate::names::JobId;
use crate::network::{TOKEN_FILE, TokenError, listening, read_tokens};
use crate::protocol::{DoorServer, Listen};
use crate::sync::lock;

/// The variable that keeps doors shut, or opens them on the network.
pub(super) const INSPECT: &str = "FARSIDE_INSPECT";

/// Connections at once, and calls of each. The server of a page has one connection, and a call
/// under way for each area that is watched.
const CONNECTIONS_MAX: u32 = 512;
pub(super) const CALLS_MAX: u32 = 256;
/// The most bytes of a call's arguments and of its result: a list of all areas.
const BYTES_MAX: u64 = 16 << 20;
/// The longest time of a call. A reader that has stopped keeps a copy for as long.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Threads that move elements to readers.
const POOL: usize = 2;

/// The door of a process, opened with its first area, and the areas behind it.
///
/// The process's state holds it, so it is shut when the process leaves its job.
#[derive(Debug, Default)]
pub(super) struct Doorway {
    opened: Mutex<Option<Opened>>,
    areas: Arc<Areas>,
    holds: Arc<Holds>,
    questions: Arc<Questions>,
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
            let activity = caller.activity();
            self.holds.set_caller(caller);
            Lookout::Own(activity)
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
        self.open_as(Place { process, process_count }, || Lookout::None)
    }

    fn open_as(&self, place: Place, lookout: impl FnOnce() -> Lookout) -> Result<(), ExposeError> {
        let setting = setting()?;
        let mut opened = lock(&self.opened);
        if opened.is_some() || matches!(setting, Setting::Off) {
            return Ok(());
        }
        let (areas, holds, questions) = (self.areas.clone(), self.holds.clone(), self.questions.clone());
        let (network, handlers) =
            Network::new(place, |about, network| Handlers::new(about, areas, holds, questions, lookout(), network))?;
        if let (0, Setting::Network(address)) = (place.process, setting) {
            let path = std::env::var_os(TOKEN_FILE).filter(|path| !path.is_empty()).ok_or(TokenError::None)?;
            network.open(listen(&address, path.as_ref())?)?;
        }
        let server = builder(&JobId::own().address(place.process))?.provider(0, DoorServer::new(handlers)).start()?;
        *opened = Some(Opened { _server: server, network });
        Ok(())
    }

    /// The door on the network, for those who ask for it. `None` if no door is open.
    pub(super) fn network(&self) -> Option<Arc<Network>> {
        lock(&self.opened).as_ref().map(|opened| opened.network.clone())
    }

    pub(super) fn areas(&self) -> &Arc<Areas> {
        &self.areas
    }

    pub(super) fn holds(&self) -> &Arc<Holds> {
        &self.holds
    }

    pub(super) fn questions(&self) -> &Questions {
        &self.questions
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

/// A server at an address, with the limits of a door.
pub(super) fn builder(address: &str) -> Result<Builder, StartError> {
    Ok(Server::builder()
        .listen(address)?
        .pool(POOL)
        .max_connections(CONNECTIONS_MAX)
        .max_calls(CALLS_MAX)
        .max_bytes(BYTES_MAX)
        .max_time(TIME_MAX))
}

/// What the environment says of doors.
pub(super) enum Setting {
    Off,
    Machine,
    /// Process 0 listens at this address, too.
    Network(String),
}

pub(super) fn setting() -> Result<Setting, ExposeError> {
    let Some(value) = std::env::var_os(INSPECT) else { return Ok(Setting::Machine) };
    let value = value.to_string_lossy();
    match &*value {
        "on" | "" => Ok(Setting::Machine),
        "off" => Ok(Setting::Off),
        text if listening(text).is_some() => Ok(Setting::Network(text.into())),
        text => Err(ExposeError::Setting { value: text.into() }),
    }
}

/// What a door on the network is to do.
pub(super) fn listen(address: &str, token_file: &Path) -> Result<Listen, ExposeError> {
    let (host, port) = listening(address).ok_or_else(|| ExposeError::Setting { value: address.into() })?;
    Ok(Listen { host, port, tokens: read_tokens(token_file)? })
}
