//! The path for bulk data over RDMA, in addition to TCP.
//!
//! A connection stays one of TCP: greeting, calls, sign of life and end. Where both sides ask for
//! it, a connected endpoint of libfabric goes with it, and reads and writes [`Memory`] of the peer.
//!
//! ```text
//! owner  ──── Share: number, key, base address ───────► peer   (registered memory)
//! owner  ──── Call: memory by number and offsets ─────► peer
//!        ◄─── reads and writes by the device ──────────
//!        ◄─── Settle: was it exposed until now? ───────
//!        ───► Ack ─────────────────────────────────────►
//! owner  ──── Forget: the memory is no longer used ───► peer
//!        ◄─── Forgotten: no transfer of it is left ────
//! ```
//!
//! Only memory that this library has allocated is registered. It stays registered, and mapped,
//! until the peer has no transfer of it left.
//!
//! [`Memory`]: crate::bulk::Memory

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use farside_fabric::FabricError;
use farside_fabric::ofi::connected::{self, Connection, Listener, RemoteMemory};
use farside_sys::net::Waker;
use farside_sys::process::Origin;
use farside_wire::Wire;

use super::Frames;
use super::shm::SHARED_MAX;
use crate::allocated::Allocated;
use crate::frame::{Head, Kind, Share};
use crate::lock::lock;

/// The most memories of a peer that are known. The word that one is gone may be on its way still.
const KNOWN_MAX: usize = 2 * SHARED_MAX;

/// The choice of RDMA for bulk data. Both the server and a client must ask for it, with the same
/// provider, by `Builder::rdma` and
/// `Connect::rdma`.
///
/// The connection is one of TCP and needs a token, as ever. RDMA carries transfers of 64 KiB and
/// more from and to a [`Memory`](crate::bulk::Memory). The program at the other end has no part in
/// them. All other data travels as without RDMA, and so does everything if only one side asks. The
/// processes need libfabric at run time; nothing else opens it.
///
/// *Cost.* A connection has a thread on each side, which sleeps while nothing arrives, and up to
/// ten descriptors. A side that transfers keeps 2 MiB for it. To pass such memory on for the first
/// time registers it, which locks its pages: see `ulimit -l`.
///
/// *Trust.* Each connection has keys of its own, and a client proves its token when it connects for
/// RDMA, too. The device checks what the peer accesses. Over the provider `tcp`, libfabric checks
/// less: take it for tests, between peers that trust each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rdma {
    provider: String,
    address: Option<IpAddr>,
}

impl Rdma {
    /// RDMA over a provider of libfabric: `verbs`, or `tcp` for tests.
    #[must_use]
    pub fn over(provider: impl Into<String>) -> Self {
        Self { provider: provider.into(), address: None }
    }

    /// The address of the device at which a server listens. The default is one that other machines
    /// reach. A client has no use for it.
    #[must_use]
    pub fn at(self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self }
    }

    /// Checks whether a client could use it.
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        connected::check(&self.provider)
    }
}

/// Where a server listens for RDMA.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Offer {
    provider: String,
    address: String,
}

/// How a client proves, when it connects for RDMA, that it knows the token.
type Proof = [u8; 32];

/// The clients that may come, by their proofs.
type Expected = Arc<Mutex<HashMap<Proof, Weak<RdmaPath>>>>;

/// A server that listens for RDMA on a thread of its own.
pub struct RdmaDoor {
    address: SocketAddr,
    offer: Offer,
    expected: Expected,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
    origin: Origin,
}

impl RdmaDoor {
    /// Listens.
    ///
    /// # Errors
    /// [`FabricError`]: libfabric, the provider or the device is missing, or the system's error.
    pub fn open(rdma: &Rdma) -> Result<Self, FabricError> {
        let listener = Listener::open(&rdma.provider, rdma.address)?;
        let address = listener.address();
        let offer = Offer { provider: rdma.provider.clone(), address: address.to_string() };
        let system = |cause| FabricError::System { doing: "listening for RDMA", cause };
        let (expected, waker) = (Expected::default(), Arc::new(Waker::new().map_err(system)?));
        let thread = std::thread::Builder::new().name("farside rpc rdma".into()).spawn({
            let (expected, waker) = (expected.clone(), waker.clone());
            move || serve(listener, &expected, &waker)
        });
        let thread = Some(thread.map_err(system)?);
        Ok(Self { address, offer, expected, waker, thread, origin: Origin::here() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn offer(&self) -> Offer {
        self.offer.clone()
    }

    /// Prepares for a client that may come with this proof.
    pub(crate) fn expect(&self, proof: Proof) -> Arc<RdmaPath> {
        let path = Arc::new(RdmaPath::default());
        let mut expected = lock(&self.expected);
        expected.retain(|_, path| path.strong_count() > 0);
        expected.insert(proof, Arc::downgrade(&path));
        path
    }
}

/// Accepts the clients that are expected, each once.
fn serve(mut listener: Listener, expected: &Mutex<HashMap<Proof, Weak<RdmaPath>>>, waker: &Waker) {
    while let Some(request) = listener.next(waker) {
        let found = request.proof().and_then(|proof| lock(expected).remove(proof)?.upgrade());
        let Some(path) = found else {
            listener.reject(request);
            continue;
        };
        // The client may share memory as soon as it is accepted, so all is ready before.
        let accepted = request.open().and_then(|connection| path.connection.get_or_init(|| connection).accept());
        if let Err(error) = accepted {
            tracing::warn!(%error, "a client is not connected by RDMA");
        }
    }
}

impl fmt::Debug for RdmaDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaDoor").field("offer", &self.offer).finish_non_exhaustive()
    }
}

impl Drop for RdmaDoor {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.origin.is_here() {
            // A forked child has no such thread.
            std::mem::forget(thread);
            return;
        }
        self.waker.wake();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// One end of the path.
#[derive(Debug, Default)]
pub struct RdmaPath {
    /// A server has one when the client has come.
    connection: OnceLock<Connection>,
    /// The memory that the peer has registered.
    known: Mutex<HashMap<u64, Arc<PeerMemory>>>,
    /// The memory that this side has registered, with its numbers at the connection.
    own: Mutex<HashMap<u64, usize>>,
    /// The program has heard that memory could not be registered.
    has_warned: AtomicBool,
}

/// Memory that the peer has registered.
#[derive(Debug)]
pub(crate) struct PeerMemory {
    number: u64,
    pub(crate) remote: RemoteMemory,
    pub(crate) bytes: u64,
    pub(crate) may_write: bool,
    link: Weak<dyn Frames>,
    is_forgotten: AtomicBool,
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        // Transfers hold the memory, also those that were given up. So none is left.
        if self.is_forgotten.load(Ordering::Acquire)
            && let Some(link) = self.link.upgrade()
        {
            // A peer that is gone needs no word.
            let _ = link.send_frame(Head::new(Kind::Forgotten, self.number), &[]);
        }
    }
}

impl RdmaPath {
    /// Connects to a server that offers it.
    pub(crate) fn connect(
        rdma: &Rdma,
        offer: &Offer,
        server: IpAddr,
        proof: &Proof,
        deadline: Instant,
    ) -> Result<Self, FabricError> {
        let refused = |why: String, remedy| FabricError::Unavailable { what: "RDMA to the server".into(), why, remedy };
        if offer.provider != rdma.provider {
            let why =
                format!("it offers the provider {:?}, and this side asks for {:?}", offer.provider, rdma.provider);
            return Err(refused(why, "name one provider on both sides"));
        }
        let address: Result<SocketAddr, _> = offer.address.parse();
        let mut address = address.map_err(|_| refused("its address is malformed".into(), "compare the versions"))?;
        if address.ip().is_unspecified() {
            address.set_ip(server);
        }
        let connection = Connection::connect(&rdma.provider, address, proof, deadline)?;
        Ok(Self { connection: connection.into(), ..Self::default() })
    }

    pub fn connection(&self) -> Option<&Connection> {
        self.connection.get()
    }

    /// The number of bytes that this side has read and written.
    pub fn moved_bytes(&self) -> u64 {
        self.connection().map_or(0, Connection::moved_bytes)
    }

    /// Lets the peer access memory, under a number of this side. Returns false if that cannot be.
    pub(crate) fn share(&self, link: &dyn Frames, number: u64, memory: &Allocated) -> bool {
        let Some(connection) = self.connection() else { return false };
        let may_write = memory.peers_may_write;
        let registered = match connection.register(memory.mapping.clone(), may_write) {
            Ok(registered) => registered,
            Err(error) => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "memory is not registered, and travels as messages");
                }
                None
            }
        };
        let Some(registered) = registered else { return false };
        lock(&self.own).insert(number, registered.number);
        let RemoteMemory { key, base } = registered.remote;
        let share = Share { key, base, bytes: memory.mapping.bytes() as u64, may_write };
        link.send_frame(Head::new(Kind::Share, number), &[&farside_wire::encode(&share, Vec::new())]).is_ok()
    }

    /// Notes memory that the peer has registered.
    pub(crate) fn learn(&self, link: Weak<dyn Frames>, number: u64, share: &Share) {
        let Share { key, base, bytes, may_write } = *share;
        let memory = PeerMemory {
            number,
            remote: RemoteMemory { key, base },
            bytes,
            may_write,
            link,
            is_forgotten: AtomicBool::new(false),
        };
        let mut known = lock(&self.known);
        // What is not known travels as messages.
        if known.len() < KNOWN_MAX {
            known.entry(number).or_insert_with(|| Arc::new(memory));
        }
    }

    /// Memory that the peer has registered under this number.
    pub(crate) fn known(&self, number: u64) -> Option<Arc<PeerMemory>> {
        lock(&self.known).get(&number).cloned()
    }

    /// Begins no more transfers of memory of the peer, which hears when none is left.
    pub(crate) fn forget(&self, number: u64) {
        let memory = lock(&self.known).remove(&number);
        if let Some(memory) = memory {
            memory.is_forgotten.store(true, Ordering::Release);
        }
    }

    /// The peer has no transfer of memory of this side left.
    pub(crate) fn forgotten(&self, number: u64) {
        let registered = lock(&self.own).remove(&number);
        if let (Some(registered), Some(connection)) = (registered, self.connection()) {
            connection.deregister(registered);
        }
    }
}
