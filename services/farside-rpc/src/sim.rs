//! [`Simulation`]: a server and its clients in one thread, over a simulated network.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use crate::client::{Client, Receiver};
use crate::server::{Builder, StartError, Turns};
pub use farside_connect::simulated::Profile;
use farside_connect::simulated::{Network, Run};
use farside_connect::{Peer, Welcome, lock};

/// A server and its clients in one thread, over a network that is simulated.
///
/// Frames take the time that a [`Profile`] says, on a clock that passes only while a call is waited
/// for. Computing takes no time on that clock. What happens, and in which order, depends on the
/// program and the seed alone. Thousands of clients need no sockets, ports or threads.
///
/// ```
/// use farside_rpc::sim::{Profile, Simulation};
/// use farside_rpc::{Handling, Never, Server, Service};
/// use std::time::Duration;
///
/// let double = |_: &_, number: u64| Ok::<_, Never>(2 * number);
/// let double = Service::new("double").procedure("it", Handling::Pooled, double);
/// let server = Server::builder().provider(0, double);
/// let mut profile = Profile::default();
/// profile.latency = Duration::from_millis(40);
/// profile.jitter = Duration::ZERO;
/// let simulation = Simulation::new(server, profile, 7)?;
///
/// let client = simulation.connect()?;
/// let double = client.procedure::<u64, u64, Never>("double", 0, "it");
/// assert_eq!(double.call(&4)?, 8);
/// let before = simulation.now();
/// assert_eq!(double.call(&5)?, 10);
/// assert_eq!((simulation.now() - before).as_millis(), 80);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Limits
/// The thread that made the simulation makes all calls; those of another thread would wait for it.
/// Handlers run in it one after the other. One that blocks holds up the others, as in a server in
/// [`Turns`]; `async` ones do not. Deadlines are those of real time. A long result that is awaited,
/// or has a function, takes a thread, and is not repeatable.
#[derive(Debug)]
pub struct Simulation {
    inner: Arc<Inner>,
}

struct Inner {
    network: Arc<Network>,
    server: Mutex<Turns>,
    clients: Mutex<HashMap<u64, Receiver>>,
}

impl Simulation {
    /// Starts a server. It needs no address, and its [pool](Builder::pool) does not count.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(server: Builder, profile: Profile, seed: u64) -> Result<Self, StartError> {
        let server = Mutex::new(server.spin(Duration::ZERO).build_anywhere(0)?);
        let network = Network::new(profile, seed)?;
        let inner = Arc::new(Inner { network, server, clients: Mutex::default() });
        let runner: Arc<dyn Run> = inner.clone();
        inner.network.set_runner(Arc::downgrade(&runner));
        Ok(Self { inner })
    }

    /// Connects a client. It counts as one of the server's own user, and does not connect again.
    ///
    /// # Errors
    /// The system's error: each connection takes three descriptors.
    pub fn connect(&self) -> io::Result<Client> {
        let [near, far] = self.inner.network.connect()?;
        let end = near.number();
        let peer = Peer::own_user();
        let mut server = lock(&self.inner.server);
        let connection = server.adopt(Box::new(far), peer)?;
        let policy = server.policy();
        let welcome = Welcome {
            proof: [0; 32],
            secret: None,
            incarnation: policy.incarnation,
            connection,
            calls_max: policy.calls_max,
            bytes_max: policy.bytes_max,
            rdma: None,
            nearby: None,
        };
        drop(server);
        let client = Client::of(Box::new(near), welcome);
        let mut clients = lock(&self.inner.clients);
        clients.retain(|_, receiver| receiver.is_there());
        clients.insert(end, client.receiver());
        drop(clients);
        Ok(client)
    }

    /// Cuts a connection off, now: both sides find that it has ended, and what is under way is
    /// lost. `number` is that of the connection, in the order in which they were made, from 0.
    /// Nothing happens if it has ended.
    pub fn cut(&self, number: u64) {
        self.inner.network.cut(2 * number);
    }

    /// Lets time pass until something arrives, and has it worked on. Waiting for a call does the
    /// same. Returns false if nothing is under way.
    pub fn step(&self) -> bool {
        self.inner.network.pass_time()
    }

    /// The simulated time since the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.network.now()
    }
}

impl Run for Inner {
    fn run(&self, end: u64) {
        let receiver = lock(&self.clients).get(&end).cloned();
        if let Some(receiver) = receiver {
            // What it wakes may make further calls.
            receiver.receive(&mut Vec::new());
            return;
        }
        let mut server = match self.server.try_lock() {
            Ok(server) => server,
            Err(TryLockError::Poisoned(server)) => server.into_inner(),
            // A handler that waits lets time pass.
            Err(TryLockError::WouldBlock) => return,
        };
        // One turn sees a part of many connections.
        while server.turn(Duration::ZERO) > 0 || server.may_have_more() {}
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("network", &self.network).finish_non_exhaustive()
    }
}
