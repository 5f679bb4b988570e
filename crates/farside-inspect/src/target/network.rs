//! [`Network`]: the door of a process on the network, and how process 0 has others open theirs.
//!
//! A client on another machine comes to process 0 first, and asks it for the doors of the others.
//! Process 0 asks those that it has not asked yet: by their own doors, where they are on its
//! machine and have one, and by a call of the job otherwise, which a worker takes at its next
//! progress. Each opens a door at any free port, and sends its addresses back. Then the client
//! connects to it. So no process listens on the network that no one has asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farside::{Caller, Worker, WorkerId};
use farside_rpc::{Address, Server};
use farside_sys::process::random_bytes;

use super::door::{Doorway, builder};
use super::error::ExposeError;
use super::handlers::Handlers;
use crate::client::Doors;
use crate::names::JobId;
use crate::network::{WRITE, address, known, reachable_addresses};
use crate::protocol::{About, DoorServer, Listen, Neighbors, NetworkDoor};
use crate::sync::lock;

/// The time that the processes of the own machine have to open their doors.
const OPENING_TIME: Duration = Duration::from_secs(1);

/// The number of a process, and that of all processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) process: u32,
    pub(super) process_count: u32,
}

/// The door of a process on the network.
#[derive(Debug)]
pub(super) struct Network {
    place: Place,
    key: u64,
    handlers: Handlers,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    opened: Option<Opened>,
    /// What other processes have answered. `None` if they were asked and have not.
    neighbors: BTreeMap<u32, Option<Result<NetworkDoor, String>>>,
}

#[derive(Debug)]
struct Opened {
    server: Server,
    door: NetworkDoor,
    listen: Listen,
}

impl Network {
    /// Returns the place for a door, which is not open, and the handlers of the process.
    pub(super) fn new(
        place: Place,
        handlers: impl FnOnce(About, Weak<Self>) -> Handlers,
    ) -> Result<(Arc<Self>, Handlers), ExposeError> {
        let key = u64::from_le_bytes(random_bytes().map_err(farside_rpc::server::StartError::System)?);
        let about = About {
            process: place.process,
            process_count: place.process_count,
            system_process: std::process::id(),
            job: JobId::own(),
            network: None,
            key,
        };
        let network = Arc::new_cyclic(|weak| {
            let handlers = handlers(about, weak.clone());
            Self { place, key, handlers, state: Mutex::default() }
        });
        let handlers = network.handlers.clone();
        Ok((network, handlers))
    }

    /// Opens the door, unless it is open.
    pub(super) fn open(&self, listen: Listen) -> Result<NetworkDoor, ExposeError> {
        let mut state = lock(&self.state);
        if let Some(opened) = &state.opened {
            return Ok(opened.door.clone());
        }
        let server = builder(&address(&listen.host, listen.port))?
            .tokens(known(&listen.tokens))
            .provider(0, DoorServer::new(self.handlers.on_network()))
            .start()?;
        let port = match server.addresses() {
            [Address::Tcp { port, .. }, ..] => *port,
            _ => listen.port,
        };
        let door = NetworkDoor { host: listen.host.clone(), port, addresses: reachable_addresses(), key: self.key };
        state.opened = Some(Opened { server, door: door.clone(), listen });
        Ok(door)
    }

    /// Shuts the door for ever.
    pub(super) fn shut(&self) {
        let opened = lock(&self.state).opened.take();
        drop(opened.map(|opened| opened.server));
    }

    /// Where the door listens, if it is open.
    pub(super) fn address(&self) -> Option<String> {
        lock(&self.state).opened.as_ref().map(|opened| address(&opened.door.host, opened.door.port))
    }

    /// Notes what another process has answered.
    fn note(&self, process: u32, answer: Result<NetworkDoor, String>) {
        lock(&self.state).neighbors.insert(process, Some(answer));
    }

    /// The doors of all processes, as far as they are known. `None` if this one has none.
    pub(super) fn neighbors(&self) -> Option<Neighbors> {
        let state = lock(&self.state);
        let Opened { door, listen, .. } = state.opened.as_ref()?;
        let mut all = Neighbors { doors: vec![(self.place.process, Ok(door.clone()))], ..Neighbors::default() };
        for (process, answer) in &state.neighbors {
            match answer {
                Some(answer) => all.doors.push((*process, answer.clone())),
                None => all.awaited.push(*process),
            }
        }
        let token = listen.tokens.iter().find(|token| token.right == WRITE).or(listen.tokens.first());
        all.token = token.cloned();
        Some(all)
    }

    /// Asks the processes for their doors that were not asked yet, and returns what is known.
    pub(super) fn ask_neighbors(&self, doors: &Doors, caller: Option<&Caller>) -> Option<Neighbors> {
        let mut state = lock(&self.state);
        let listen = Listen { port: 0, ..state.opened.as_ref()?.listen.clone() };
        let others = (0..self.place.process_count).filter(|process| *process != self.place.process);
        let unasked: Vec<u32> = others.filter(|process| !state.neighbors.contains_key(process)).collect();
        state.neighbors.extend(unasked.iter().map(|process| (*process, None)));
        drop(state);
        if unasked.is_empty() {
            return self.neighbors();
        }
        let mut here = doors.open_on_network(&unasked, &listen, OPENING_TIME);
        for process in unasked {
            if let Some(answer) = here.remove(&process) {
                self.note(process, answer);
            } else if !caller.is_some_and(|caller| ask_by_call(caller, self.place, process, &listen)) {
                // It is asked again the next time. Processes that are no job reach each other on
                // their machine only, where one may open its door later.
                lock(&self.state).neighbors.remove(&process);
            }
        }
        self.neighbors()
    }
}

/// The first worker of a process, if it has one.
fn first_worker(caller: &Caller, place: Place, process: u32) -> WorkerId {
    WorkerId::new(process * (caller.workers().len() as u32 / place.process_count))
}

/// Has a process open its door by a call of the job. Returns whether it could be called.
fn ask_by_call(caller: &Caller, place: Place, process: u32, listen: &Listen) -> bool {
    let to = first_worker(caller, place, process);
    let back_to = first_worker(caller, place, place.process).number();
    let asked = caller.call(to, (listen.clone(), back_to), |me, (listen, back_to)| {
        let answer = open_here(me, listen).map_err(|error| error.to_string());
        let own = me.process().number();
        // An error is the end of the job.
        let _ = me.call(WorkerId::new(back_to), (own, answer), |me, (process, answer)| {
            if let Some(network) = me.process_state::<Doorway>().network() {
                network.note(process, answer);
            }
        });
    });
    asked.is_ok()
}

fn open_here(me: &Worker, listen: Listen) -> Result<NetworkDoor, ExposeError> {
    let doorway = me.process_state::<Doorway>();
    doorway.open(me)?;
    let network = doorway.network().ok_or(ExposeError::Off)?;
    network.open(listen)
}
