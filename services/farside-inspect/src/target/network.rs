//! [`Network`]: the door of a process on the network, and how process 0 has others open theirs.
//!
//! A process opens its door on the machine when it first shows something, or when another one asks
//! it to. A client asks any process that has a door to ask the others. A client on another machine
//! comes to process 0 first, and asks it for the doors of the others on the network, which then
//! open these at any free port. So no process listens on the network that no one has asked for.
//!
//! A process that is asked opens its door on a thread of its own, because workers may compute for
//! long, and answers in the same way ([`Caller::run_in_background`]). See [`Doorway`](super::door).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use farside::Caller;
use farside_rpc::{Address, Server};
use farside_sys::process::random_bytes;

use super::conductor::Conductor;
use super::error::ExposeError;
use super::handlers::{Handlers, Neighborhood};
use super::setting::builder;
use crate::names::JobId;
use crate::network::{WRITE, address, known, reachable_addresses};
use crate::protocol::{About, DoorServer, Listen, Neighbors, NetworkDoor};
use crate::sync::lock;

/// The time that processes have to open their doors.
const OPENING_TIME: Duration = Duration::from_secs(1);
/// The time after which a process is asked again. It drops a question, or its asker the answer,
/// while it runs as many functions outside of its workers as it may.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The number of a process, and that of all processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) process: u32,
    pub(super) process_count: u32,
}

impl Place {
    /// The other processes.
    fn others(self) -> impl Iterator<Item = u32> {
        (0..self.process_count).filter(move |process| *process != self.process)
    }
}

/// The door of a process on the network.
#[derive(Debug)]
pub(super) struct Network {
    place: Place,
    key: u64,
    handlers: Handlers,
    ask: AskFor,
    state: Mutex<State>,
}

/// Has a process open a door: on the network, or on its machine. Returns whether it could be asked.
pub(super) type AskFor = fn(&Caller, u32, Option<&Listen>) -> bool;

#[derive(Debug, Default)]
struct State {
    opened: Option<Opened>,
    /// The answers of other processes that were asked for their doors on the network.
    neighbors: BTreeMap<u32, Asked<NetworkDoor>>,
    /// The answers of those that were asked for their doors on their machine.
    others: BTreeMap<u32, Asked<()>>,
}

/// The answer of another process.
#[derive(Debug)]
enum Asked<T> {
    /// Nothing yet.
    At {
        /// When it was asked first.
        first: Instant,
        /// When it was asked last.
        last: Instant,
    },
    Answered(Result<T, String>),
}

impl<T> Asked<T> {
    /// Returns whether an answer may still come soon. The process may have ended, or be stopped.
    fn is_awaited(&self) -> bool {
        matches!(self, Self::At { first, .. } if first.elapsed() < OPENING_TIME)
    }

    /// Asks those of the processes that have not answered and were not asked just now.
    fn ask(all: &mut BTreeMap<u32, Self>, processes: impl Iterator<Item = u32>, ask: impl Fn(u32) -> bool) {
        let now = Instant::now();
        for process in processes {
            let first = match all.get(&process) {
                None => now,
                Some(Self::At { first, last }) if now - *last >= AGAIN_AFTER => *first,
                Some(_) => continue,
            };
            if ask(process) {
                all.insert(process, Self::At { first, last: now });
            }
        }
    }
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
        ask: AskFor,
        handlers: impl FnOnce(About, Weak<dyn Neighborhood>) -> Handlers,
    ) -> Result<(Arc<Self>, Handlers), ExposeError> {
        let key = u64::from_le_bytes(random_bytes().map_err(farside_rpc::server::StartError::System)?);
        let about = About {
            process: place.process,
            process_count: place.process_count,
            system_process: std::process::id(),
            job: JobId::own(),
            network: None,
            awaits_network: false,
            key,
        };
        let network = Arc::new_cyclic(|weak: &Weak<Self>| {
            let handlers = handlers(about, weak.clone());
            Self { place, key, handlers, ask, state: Mutex::default() }
        });
        let handlers = network.handlers.clone();
        Ok((network, handlers))
    }

    /// Shuts the door for ever.
    pub(super) fn shut(&self) {
        let opened = lock(&self.state).opened.take();
        drop(opened.map(|opened| opened.server));
    }

    /// Notes what another process has answered.
    pub(super) fn note(&self, process: u32, answer: Result<Option<NetworkDoor>, String>) {
        let mut state = lock(&self.state);
        match answer {
            Ok(Some(door)) => drop(state.neighbors.insert(process, Asked::Answered(Ok(door)))),
            Ok(None) => drop(state.others.insert(process, Asked::Answered(Ok(())))),
            Err(why) => {
                // It is the answer to whatever the process was asked for.
                if matches!(state.neighbors.get(&process), Some(Asked::At { .. })) {
                    state.neighbors.insert(process, Asked::Answered(Err(why.clone())));
                }
                state.others.insert(process, Asked::Answered(Err(why)));
            }
        }
    }
}

impl Neighborhood for Network {
    fn address(&self) -> Option<String> {
        lock(&self.state).opened.as_ref().map(|opened| address(&opened.door.host, opened.door.port))
    }

    fn open(&self, listen: Listen) -> Result<NetworkDoor, ExposeError> {
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

    fn open_others(&self, caller: Option<&Caller>) -> Vec<u32> {
        let Some(caller) = caller else { return Vec::new() };
        let mut state = lock(&self.state);
        Asked::ask(&mut state.others, self.place.others(), |process| (self.ask)(caller, process, None));
        state.others.iter().filter(|(_, asked)| asked.is_awaited()).map(|(process, _)| *process).collect()
    }

    fn neighbors(&self) -> Option<Neighbors> {
        let state = lock(&self.state);
        let Opened { door, listen, .. } = state.opened.as_ref()?;
        let mut all = Neighbors { doors: vec![(self.place.process, Ok(door.clone()))], ..Neighbors::default() };
        for (process, asked) in &state.neighbors {
            match asked {
                Asked::Answered(answer) => all.doors.push((*process, answer.clone())),
                asked if asked.is_awaited() => all.awaited.push(*process),
                Asked::At { .. } => {}
            }
        }
        let token = listen.tokens.iter().find(|token| token.right == WRITE).or(listen.tokens.first());
        all.token = token.cloned();
        Some(all)
    }

    fn ask_neighbors(&self, conductor: &Conductor, caller: Option<&Caller>) -> Option<Neighbors> {
        let mut state = lock(&self.state);
        let listen = Listen { port: 0, ..state.opened.as_ref()?.listen.clone() };
        if let Some(caller) = caller {
            Asked::ask(&mut state.neighbors, self.place.others(), |process| (self.ask)(caller, process, Some(&listen)));
            drop(state);
            return self.neighbors();
        }
        let unasked: Vec<u32> = self.place.others().filter(|process| !state.neighbors.contains_key(process)).collect();
        drop(state);
        if !unasked.is_empty() {
            // Processes that are no job reach each other on their machine only. Those that have no
            // door yet are asked again the next time.
            let here = conductor.open_on_network(&unasked, &listen, OPENING_TIME);
            let answered = here.into_iter().map(|(process, answer)| (process, Asked::Answered(answer)));
            lock(&self.state).neighbors.extend(answered);
        }
        self.neighbors()
    }
}
