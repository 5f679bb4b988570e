//! What this process has registered of its ordinary memory, and what it has taken back and others still hold.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_fabric::clock::{Clock, lock};
use farside_fabric::transport::Completion;
use farside_fabric::{RemoteKey, UserMemory, UserRegion};

use crate::error::{Error, Result};
use crate::memory::address::{GlobalAddress, SLOT_BYTES};
use crate::memory::segments::{publish, retire};
use crate::runtime::process::Process;

/// What a thread waits for at a time that must not go on before others are done.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same when it unwinds, and leaves the transport to the service thread.
const NAP: Duration = Duration::from_millis(1);

/// So much memory is given back at one go. A large vector goes back to the system in milliseconds.
const SWEPT_AT_A_TIME: usize = 16;

/// The private regions of a process.
#[derive(Debug, Default)]
pub(crate) struct OwnSegments {
    regions: Mutex<HashMap<RemoteKey, UserRegion>>,
    leaving: Mutex<Vec<Leaving>>,
}

/// Memory whose registration was dropped, until nobody reaches it any more. (Workers may have it in mind for longer, and so it does not go by
/// itself then.) When the process ends before, the fabric sees to it.
#[derive(Debug)]
struct Leaving {
    over: Completion,
    memory: Arc<UserMemory>,
}

impl OwnSegments {
    /// The region of this key.
    pub(crate) fn find(&self, key: RemoteKey) -> Option<UserRegion> {
        lock(&self.regions).get(&key).cloned()
    }

    /// Keeps memory until a registration of it is over.
    fn keep(&self, over: Completion, memory: Arc<UserMemory>) {
        lock(&self.leaving).push(Leaving { over, memory });
        self.sweep();
    }

    /// Lets go of what nobody reaches any more: of some. Says whether there may be more of it.
    ///
    /// *Cost*: all that was dropped and is not over is looked at.
    pub(crate) fn sweep(&self) -> bool {
        let mut leaving = lock(&self.leaving);
        let over: Vec<Leaving> =
            leaving.extract_if(.., |leaving| leaving.over.has_ended()).take(SWEPT_AT_A_TIME).collect();
        // Memory is given back without the lock.
        drop(leaving);
        let may_be_more = over.len() == SWEPT_AT_A_TIME;
        over.into_iter().for_each(|leaving| drop(leaving.memory.take_holder()));
        may_be_more
    }
}

/// Memory of this process under a global address, until it is withdrawn.
#[derive(Debug)]
pub(super) struct Registration {
    process: Arc<Process>,
    region: UserRegion,
    address: GlobalAddress,
    /// From when it was withdrawn.
    over: Option<Completion>,
}

impl Registration {
    /// # Errors
    /// [`Error::NoAddress`], and what the fabric says. The memory is not registered then.
    pub(super) fn new(process: &Arc<Process>, memory: Arc<UserMemory>) -> Result<Self> {
        process.own_segments().sweep();
        let (transport, bytes) = (process.transport(), memory.bytes() as u64);
        // Before libfabric pins all of it.
        if bytes > SLOT_BYTES {
            return Err(Error::NoAddress { process: process.id(), bytes });
        }
        let region = transport.register_user(memory)?;
        let key = region.key();
        let Some(address) = GlobalAddress::in_region(key, 0) else {
            // Nobody has been told of the key, so that this is over at once.
            wait_for(&transport.deregister(key)?, &region, process);
            return Err(Error::NoAddress { process: process.id(), bytes });
        };
        lock(&process.own_segments().regions).insert(key, region.clone());
        publish(process.home(), key);
        Ok(Self { process: process.clone(), region, address, over: None })
    }

    pub(super) fn address(&self) -> GlobalAddress {
        self.address
    }

    /// Takes the address back: who uses it from now on is told that it is stale.
    pub(super) fn withdraw(&mut self) -> &Completion {
        let Self { process, region, over, .. } = self;
        over.get_or_insert_with(|| {
            let key = region.key();
            retire(process.home(), key);
            lock(&process.own_segments().regions).remove(&key);
            process.own_segments().sweep();
            process.transport().deregister(key).expect("a registration has a key until it is withdrawn")
        })
    }

    /// Withdraws it, and waits until it is over.
    pub(super) fn end(&mut self) {
        let over = self.withdraw().clone();
        wait_for(&over, &self.region, &self.process);
    }

    /// Whether it was withdrawn and nobody reaches the memory any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.as_ref().is_some_and(Completion::has_ended)
    }

    /// Withdraws it, and has the memory go when nobody reaches it any more.
    pub(super) fn leave(&mut self, memory: Arc<UserMemory>) {
        let over = self.withdraw().clone();
        self.process.own_segments().keep(over, memory);
    }
}

/// Waits, without a deadline, until nobody reaches memory any more. When a simulation is over nobody of another process does: what others asked
/// for is done by threads of this process. Those that are at it then come out of it, and no more go in.
fn wait_for(over: &Completion, region: &UserRegion, process: &Process) {
    let clock = process.clock();
    let _even_if_it_unwinds = Until { over, region, clock };
    while !over.has_ended() && !clock.is_over() {
        over.watch(&**process.transport(), clock.now() + PATIENCE);
    }
}

/// Does not end before nobody reaches the memory.
struct Until<'a> {
    over: &'a Completion,
    region: &'a UserRegion,
    clock: &'a Clock,
}

impl Drop for Until<'_> {
    fn drop(&mut self) {
        while !(self.over.has_ended() || self.clock.is_over() && self.region.is_idle()) {
            std::thread::sleep(NAP);
        }
    }
}
