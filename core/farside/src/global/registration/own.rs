//! The ordinary memory that this process has registered, and what it has taken back while other
//! processes still hold it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_fabric::clock::{Clock, lock};
use farside_fabric::transport::Completion;
use farside_fabric::{RemoteKey, UserMemory, UserRegion};

use crate::error::Result;
use crate::global::room::GlobalRoom;
use crate::memory::MemoryError;
use crate::memory::address::GlobalAddress;
use crate::memory::segments::{publish, retire};
use crate::runtime::observer::Watched;
use crate::runtime::process::Process;

/// The longest sleep of a thread that must wait until all holders are done.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sleep of such a thread while it unwinds, and leaves the transport to the service thread.
const NAP: Duration = Duration::from_millis(1);

/// The number of memories that one sweep frees. Freeing a large vector takes milliseconds.
const SWEPT_AT_A_TIME: usize = 16;

/// The private regions of a process.
#[derive(Debug, Default)]
pub(crate) struct OwnSegments {
    regions: Mutex<HashMap<RemoteKey, UserRegion>>,
    leaving: Mutex<Vec<Leaving>>,
}

/// Memory whose registration was dropped, until no process can reach it any more. If the process
/// ends before, the fabric handles that.
#[derive(Debug)]
struct Leaving {
    over: Completion,
    memory: Arc<UserMemory>,
}

impl OwnSegments {
    /// Returns the region of this key.
    pub(crate) fn find(&self, key: RemoteKey) -> Option<UserRegion> {
        lock(&self.regions).get(&key).cloned()
    }

    /// Keeps memory until a registration of it is over.
    fn keep(&self, over: Completion, memory: Arc<UserMemory>) {
        lock(&self.leaving).push(Leaving { over, memory });
        self.sweep();
    }

    /// Frees some of the memory that no process can reach any more. Returns whether there may be
    /// more.
    ///
    /// *Cost*: a look at each memory that was dropped and is not over.
    pub(crate) fn sweep(&self) -> bool {
        let mut leaving = lock(&self.leaving);
        let over: Vec<Leaving> =
            leaving.extract_if(.., |leaving| leaving.over.has_ended()).take(SWEPT_AT_A_TIME).collect();
        // Memory is freed without the lock.
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
    watched: Option<Watched>,
    /// The end of the registration, once it was withdrawn.
    over: Option<Completion>,
}

impl Registration {
    /// # Errors
    /// [`MemoryError::NoAddress`](crate::memory::MemoryError::NoAddress) or an error of the
    /// transport. The memory is not registered then.
    pub(super) fn new(process: &Arc<Process>, memory: Arc<UserMemory>) -> Result<Self> {
        GlobalRoom::of(process).own_segments.sweep();
        let (transport, bytes) = (process.transport(), memory.bytes() as u64);
        let base = memory.base().as_ptr();
        let region = transport.register_user(memory)?;
        let key = region.key();
        let Some(address) = GlobalAddress::in_region(key, 0) else {
            // No other process knows the key, so this is over at once.
            wait_for(&transport.deregister(key)?, &region, process);
            return Err(MemoryError::NoAddress { process: process.id(), bytes }.into());
        };
        lock(&GlobalRoom::of(process).own_segments.regions).insert(key, region.clone());
        publish(process.home(), key);
        let watched = Watched::new(process, key, base);
        Ok(Self { process: process.clone(), region, address, watched, over: None })
    }

    /// Returns what reports this process's accesses, if they are observed.
    pub(super) fn watched(&self) -> Option<&Watched> {
        self.watched.as_ref()
    }

    pub(super) fn address(&self) -> GlobalAddress {
        self.address
    }

    /// Takes the address back: workers that use it from now on get an error.
    pub(super) fn withdraw(&mut self) -> &Completion {
        let Self { process, region, over, .. } = self;
        over.get_or_insert_with(|| {
            let key = region.key();
            retire(process.home(), key);
            lock(&GlobalRoom::of(process).own_segments.regions).remove(&key);
            GlobalRoom::of(process).own_segments.sweep();
            process.transport().deregister(key).expect("a registration has a key until it is withdrawn")
        })
    }

    /// Withdraws it, and waits until it is over.
    pub(super) fn end(&mut self) {
        let over = self.withdraw().clone();
        wait_for(&over, &self.region, &self.process);
    }

    /// Returns whether it was withdrawn and no process can reach the memory any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.as_ref().is_some_and(Completion::has_ended)
    }

    /// Withdraws it, and frees the memory when no process can reach it any more.
    pub(super) fn leave(&mut self, memory: Arc<UserMemory>) {
        let over = self.withdraw().clone();
        GlobalRoom::of(&self.process).own_segments.keep(over, memory);
    }
}

/// Waits, without a deadline, until no process can reach the memory any more. After the end of a
/// simulation no other process does: threads of this process execute their accesses, and those that
/// are at it then finish, and none begins.
fn wait_for(over: &Completion, region: &UserRegion, process: &Process) {
    let clock = process.clock();
    let _even_if_it_unwinds = Until { over, region, clock };
    while !over.has_ended() && !clock.is_over() {
        over.watch(&**process.transport(), clock.now() + PATIENCE);
    }
}

/// Its drop returns only when no process can reach the memory any more.
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
