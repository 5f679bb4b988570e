//! What this process has registered of its ordinary memory, and what it has taken back and others still hold.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_fabric::clock::lock;
use farside_fabric::transport::Completion;
use farside_fabric::{PrivateMemory, PrivateRegion, RemoteKey};

use super::super::address::GlobalAddress;
use super::super::segments::{publish, retire};
use crate::error::{Error, Result};
use crate::job::process::Process;

/// The most that one slot's addresses reach.
const BYTES_MAX: u64 = 1 << 32;

/// What a thread waits for at a time that must not go on before others are done.
const PATIENCE: Duration = Duration::from_secs(1);

/// The private regions of a process.
#[derive(Debug, Default)]
pub(crate) struct OwnSegments {
    regions: Mutex<HashMap<RemoteKey, PrivateRegion>>,
    leaving: Mutex<Vec<Leaving>>,
}

/// Memory whose registration was dropped, until nobody reaches it any more. (Workers may have it in mind for longer, and so it does not go by
/// itself then.) When the process ends before, the fabric sees to it.
#[derive(Debug)]
struct Leaving {
    over: Completion,
    memory: Arc<PrivateMemory>,
}

impl OwnSegments {
    /// The region of this key.
    pub(crate) fn find(&self, key: RemoteKey) -> Option<PrivateRegion> {
        lock(&self.regions).get(&key).cloned()
    }

    /// Keeps memory until a registration of it is over.
    fn keep(&self, over: Completion, memory: Arc<PrivateMemory>) {
        lock(&self.leaving).push(Leaving { over, memory });
        self.sweep();
    }

    /// Lets go of what nobody reaches any more.
    fn sweep(&self) {
        let over: Vec<Leaving> = lock(&self.leaving).extract_if(.., |leaving| leaving.over.has_ended()).collect();
        // Memory is given back without the lock.
        over.into_iter().for_each(|leaving| drop(leaving.memory.take_holder()));
    }
}

/// Memory of this process under a global address, until it is withdrawn.
#[derive(Debug)]
pub(super) struct Registration {
    process: Arc<Process>,
    key: RemoteKey,
    address: GlobalAddress,
    /// From when it was withdrawn.
    over: Option<Completion>,
}

impl Registration {
    /// # Errors
    /// [`Error::NoAddress`], and what the fabric says. The memory is not registered then.
    pub(super) fn new(process: &Arc<Process>, memory: Arc<PrivateMemory>) -> Result<Self> {
        process.own_segments().sweep();
        let (transport, bytes) = (process.transport(), memory.bytes());
        let region = transport.register_private(memory)?;
        let key = region.key();
        let Some(address) = GlobalAddress::in_region(key, 0).filter(|_| bytes as u64 <= BYTES_MAX) else {
            // Nobody has been told of the key, so that this is over at once.
            wait_for(&transport.deregister(key)?, process);
            return Err(Error::NoAddress { key });
        };
        lock(&process.own_segments().regions).insert(key, region);
        publish(process.home(), key);
        Ok(Self { process: process.clone(), key, address, over: None })
    }

    pub(super) fn address(&self) -> GlobalAddress {
        self.address
    }

    pub(super) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Takes the address back: who uses it from now on is told that it is stale.
    pub(super) fn withdraw(&mut self) -> &Completion {
        let Self { process, key, over, .. } = self;
        over.get_or_insert_with(|| {
            retire(process.home(), *key);
            lock(&process.own_segments().regions).remove(key);
            process.transport().deregister(*key).expect("a registration has a key until it is withdrawn")
        })
    }

    /// Whether it was withdrawn and nobody reaches the memory any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.as_ref().is_some_and(Completion::has_ended)
    }

    /// Withdraws it, and has the memory go when nobody reaches it any more.
    pub(super) fn leave(&mut self, memory: Arc<PrivateMemory>) {
        let over = self.withdraw().clone();
        self.process.own_segments().keep(over, memory);
    }
}

/// Waits, without a deadline, until nobody reaches memory any more. When a simulation is over nobody does: what others asked for is done by the
/// threads of this process, and those are unwound.
pub(super) fn wait_for(over: &Completion, process: &Process) {
    while !over.has_ended() && !process.clock().is_over() {
        over.watch(&**process.transport(), process.clock().now() + PATIENCE);
    }
}
