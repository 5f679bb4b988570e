//! [`Doorway`]: the door of a process, and its areas.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside::Worker;
use farside_rpc::bulk::{Bulk, Write};
use farside_rpc::server::StartError;
use farside_rpc::{Call, Never, Server};

use super::error::ExposeError;
use super::shared::{Shared, Slot};
use crate::names::JobId;
use crate::protocol::{About, Door, DoorServer, Part, Refused, Wanted};
use crate::spans::{Span, elements, runs};

/// The variable that keeps doors shut.
pub(super) const INSPECT: &str = "FARSIDE_INSPECT";

/// The number of areas of a process.
const AREAS_MAX: usize = 16_384;
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
}

/// The areas of a process, by name and worker.
#[derive(Debug, Default)]
pub(super) struct Areas(Mutex<BTreeMap<(String, u32), Arc<Shared>>>);

impl Doorway {
    /// Opens the door unless it is open, or the environment says otherwise.
    pub(super) fn open(&self, me: &Worker) -> Result<(), ExposeError> {
        if is_off()? {
            return Ok(());
        }
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if server.is_none() {
            *server = Some(self.start(me)?);
        }
        Ok(())
    }

    fn start(&self, me: &Worker) -> Result<Server, StartError> {
        let process = me.process().number();
        let about = About { process, process_count: me.process_count(), system_process: std::process::id() };
        let handlers = Handlers { about, areas: self.areas.clone() };
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
}

fn is_off() -> Result<bool, ExposeError> {
    match std::env::var_os(INSPECT) {
        None => Ok(false),
        Some(value) if value == "on" || value.is_empty() => Ok(false),
        Some(value) if value == "off" => Ok(true),
        Some(value) => Err(ExposeError::Setting { value: value.to_string_lossy().into_owned() }),
    }
}

impl Areas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, u32), Arc<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part.
    pub(super) fn add(&self, part: Part) -> Result<Arc<Shared>, ExposeError> {
        let mut areas = self.lock();
        if areas.len() >= AREAS_MAX {
            return Err(ExposeError::TooMany { max: AREAS_MAX });
        }
        let key = (part.name.clone(), part.worker);
        if areas.contains_key(&key) {
            return Err(ExposeError::Taken { name: part.name, worker: part.worker });
        }
        let shared = Arc::new(Shared::new(part));
        areas.insert(key, shared.clone());
        Ok(shared)
    }

    /// Removes a part, and refuses those who wait for it.
    pub(super) fn remove(&self, shared: &Shared) {
        let part = shared.part();
        self.lock().remove(&(part.name, part.worker));
        shared.close();
    }

    fn find(&self, name: &str, worker: u32) -> Option<Arc<Shared>> {
        self.lock().get(&(name.to_owned(), worker)).cloned()
    }
}

/// What the door does for its clients.
#[derive(Debug)]
struct Handlers {
    about: About,
    areas: Arc<Areas>,
}

impl Door for Handlers {
    fn about(&self, _: &Call) -> Result<About, Never> {
        Ok(self.about.clone())
    }

    fn parts(&self, _: &Call) -> Result<Vec<Part>, Never> {
        Ok(self.areas.lock().values().map(|shared| shared.part()).collect())
    }

    fn step(&self, _: &Call, name: String, worker: u32) -> Result<Option<u64>, Refused> {
        let shared = self.areas.find(&name, worker).ok_or(Refused::Unknown { name, worker })?;
        Ok(shared.step())
    }

    async fn get(&self, _: &Call, wanted: Wanted, into: Bulk<Write>) -> Result<u64, Refused> {
        let Wanted { name, worker, first, spans } = wanted;
        let shared = self.areas.find(&name, worker).ok_or(Refused::Unknown { name, worker })?;
        check(&shared, &spans, into.bytes())?;
        let slot = shared.clone().wait(first).await?;
        push(&shared, &slot, &spans, &into)?;
        Ok(slot.step)
    }
}

/// Checks that the places are inside the part and fill the reader's memory.
fn check(shared: &Shared, spans: &[Span], bytes: u64) -> Result<(), Refused> {
    let shape = shared.shape();
    let is_inside = spans.len() == shape.len() && spans.iter().zip(shape).all(|(span, length)| span.is_inside(*length));
    let counts: Vec<u64> = spans.iter().map(|span| span.count).collect();
    let fill = || elements(&counts, shared.element_bytes()).map(|count| (count * shared.element_bytes()) as u64);
    if is_inside && fill() == Some(bytes) { Ok(()) } else { Err(Refused::Places { shape: shape.to_vec() }) }
}

/// Moves the elements to the reader: from where they are if they follow each other.
fn push(shared: &Shared, slot: &Slot, spans: &[Span], into: &Bulk<Write>) -> Result<(), Refused> {
    let (mut packed, mut pushed) = (Vec::new(), None);
    runs(shared.shape(), spans, shared.element_bytes(), |offset, length| {
        let run = &slot.bytes[offset..offset + length];
        match length as u64 == into.bytes() {
            true => pushed = Some(into.push(0, run)),
            false => packed.extend_from_slice(run),
        }
    });
    let pushed = pushed.unwrap_or_else(|| into.push(0, &packed));
    pushed.map_err(|error| Refused::Transfer { cause: error.to_string() })
}
