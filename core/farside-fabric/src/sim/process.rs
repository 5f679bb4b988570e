//! The state of one process in the simulated network.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar};

use super::parcel::Parcel;
use crate::emulated::Owner;
use crate::ids::ProcessId;
use crate::transport::{Event, FabricError, RemoteKey};

#[derive(Debug)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) regions: Owner,
    pub(super) attached: HashSet<RemoteKey>,
    /// Keys that peers have withdrawn while operations of this process on them are in transit.
    pub(super) closing: Vec<RemoteKey>,
    /// The state of each peer that this process has had contact with.
    pub(super) peers: BTreeMap<ProcessId, Peer>,
    /// Parcels that have reached this process and wait for it to make progress.
    pub(super) arrived: VecDeque<Parcel>,
    /// Number of parcels in transit that this process can move by making progress.
    pub(super) under_way: usize,
    /// Number of posted operations that have not completed.
    pub(super) operations: usize,
    pub(super) inbox: VecDeque<Event>,
    /// True if a message was refused for lack of room.
    pub(super) awaits_room: bool,
    /// True if there may be room by now.
    pub(super) has_room: bool,
    /// The threads that sleep for this process.
    pub(super) sleepers: Sleepers,
}

/// A peer, from the view of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Connected,
    /// The peer died, or was declared dead. This state is final.
    Gone,
}

impl Process {
    pub(super) fn new(regions: Owner) -> Self {
        Self {
            alive: true,
            regions,
            attached: HashSet::new(),
            closing: Vec::new(),
            peers: BTreeMap::new(),
            arrived: VecDeque::new(),
            under_way: 0,
            operations: 0,
            inbox: VecDeque::new(),
            awaits_room: false,
            has_room: false,
            sleepers: Sleepers::default(),
        }
    }

    /// Returns whether a call of `progress` or `receive` can have an effect.
    pub(super) fn can_move(&self) -> bool {
        self.under_way > 0 || !self.arrived.is_empty() || !self.inbox.is_empty()
    }

    /// Fails if the peer is gone from the view of this process.
    pub(super) fn check_peer(&self, process: ProcessId) -> Result<(), FabricError> {
        match self.peers.get(&process) {
            Some(Peer::Gone) => Err(FabricError::Disconnected { process }),
            Some(Peer::Connected) | None => Ok(()),
        }
    }

    /// Marks a peer as gone, and reports that once if it was connected. The caller then stirs the
    /// process.
    pub(super) fn lose_peer(&mut self, process: ProcessId) {
        self.regions.lose(process);
        self.attached.retain(|key| key.process != process);
        self.closing.retain(|key| key.process != process);
        if self.peers.insert(process, Peer::Gone) == Some(Peer::Connected) {
            self.inbox.push_back(Event::Disconnected { process });
        }
    }
}

/// The threads in `wait`, and their pending wake-ups.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    pub(super) changed: Arc<Condvar>,
    count: usize,
    /// Number of wake-ups that found a thread in `wait`: all threads that were there return.
    wakes: u64,
    /// True if a wake-up came while no thread was in `wait`: the next `wait` returns at once.
    wake_kept: bool,
}

/// A thread in `wait`.
#[derive(Debug)]
pub(super) struct Sleeper {
    wakes_before: u64,
}

impl Sleepers {
    /// Begins a wait; `None` if a wake-up is already pending.
    pub(super) fn enter(&mut self) -> Option<Sleeper> {
        if std::mem::take(&mut self.wake_kept) {
            return None;
        }
        self.count += 1;
        Some(Sleeper { wakes_before: self.wakes })
    }

    pub(super) fn is_woken(&self, sleeper: &Sleeper) -> bool {
        self.wakes != sleeper.wakes_before
    }

    pub(super) fn leave(&mut self, _: Sleeper) {
        self.count -= 1;
    }

    /// Wakes the threads in `wait`. The caller then stirs the process.
    pub(super) fn wake(&mut self) {
        if self.count == 0 {
            self.wake_kept = true;
        } else {
            self.wakes += 1;
        }
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }
}
