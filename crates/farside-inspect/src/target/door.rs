//! [`Doorway`]: the door of a process, and what is behind it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::{Activity, Worker};
use farside_rpc::Server;
use farside_rpc::server::StartError;

use super::areas::Areas;
use super::error::ExposeError;
use super::functions::Questions;
use super::handlers::Handlers;
use super::holds::Holds;
use crate::names::JobId;
use crate::protocol::{About, DoorServer};
use crate::sync::lock;

/// The variable that keeps doors shut.
pub(super) const INSPECT: &str = "FARSIDE_INSPECT";

/// Connections at once, and calls of each.
const CONNECTIONS_MAX: u32 = 512;
const CALLS_MAX: u32 = 64;
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
    server: Mutex<Option<Server>>,
    areas: Arc<Areas>,
    holds: Arc<Holds>,
    questions: Arc<Questions>,
}

impl Doorway {
    /// Opens the door unless it is open, or the environment says otherwise.
    pub(super) fn open(&self, me: &Worker) -> Result<(), ExposeError> {
        if is_off()? {
            return Ok(());
        }
        let mut server = lock(&self.server);
        if server.is_none() {
            self.holds.set_caller(me.caller());
            *server = Some(self.start(me.process().number(), me.process_count(), Some(me.activity()))?);
        }
        Ok(())
    }

    /// Opens the door of a process without a job.
    pub(super) fn open_alone(&self, process: u32, process_count: u32) -> Result<(), ExposeError> {
        if !is_off()? {
            *lock(&self.server) = Some(self.start(process, process_count, None)?);
        }
        Ok(())
    }

    fn start(&self, process: u32, process_count: u32, activity: Option<Activity>) -> Result<Server, StartError> {
        let about = About { process, process_count, system_process: std::process::id() };
        let (areas, holds, questions) = (self.areas.clone(), self.holds.clone(), self.questions.clone());
        let handlers = Handlers::new(about, areas, holds, questions, activity);
        Server::builder()
            .listen(JobId::own().address(process))?
            .provider(0, DoorServer::new(handlers))
            .pool(POOL)
            .max_connections(CONNECTIONS_MAX)
            .max_calls(CALLS_MAX)
            .max_bytes(BYTES_MAX)
            .max_time(TIME_MAX)
            .start()
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

fn is_off() -> Result<bool, ExposeError> {
    match std::env::var_os(INSPECT) {
        None => Ok(false),
        Some(value) if value == "on" || value.is_empty() => Ok(false),
        Some(value) if value == "off" => Ok(true),
        Some(value) => Err(ExposeError::Setting { value: value.to_string_lossy().into_owned() }),
    }
}
