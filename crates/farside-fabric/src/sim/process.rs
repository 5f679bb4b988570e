//! What the simulated network keeps about one process.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar};

use super::parcel::Parcel;
use crate::by_message::Owner;
use crate::expected::Matcher;
use crate::ids::ProcessId;
use crate::transport::{Event, FabricError, RemoteKey};

#[derive(Debug)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) regions: Owner,
    pub(super) attached: HashSet<RemoteKey>,
    /// What peers have taken back, as long as something of this process is under way there.
    pub(super) closing: Vec<RemoteKey>,
    /// How this process sees those it had to do with.
    pub(super) peers: BTreeMap<ProcessId, Peer>,
    /// What has reached this process and waits for it to make progress.
    pub(super) arrived: VecDeque<Parcel>,
    /// How much on the network this process can move by making progress.
    pub(super) under_way: usize,
    /// How many operations it has posted that have not ended.
    pub(super) operations: usize,
    pub(super) inbox: VecDeque<Event>,
    /// What it expects.
    pub(super) matcher: Matcher,
    /// A message was refused since there was no room for it.
    pub(super) awaits_room: bool,
    /// By now there may be.
    pub(super) has_room: bool,
    /// Whoever sleeps for this process.
    pub(super) sleepers: Sleepers,
}

/// A peer, as one process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Connected,
    /// Died, or was declared dead. It stays so.
    Gone,
}

impl Process {
    pub(super) fn new(regions: Owner, matcher: Matcher) -> Self {
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
            matcher,
            awaits_room: false,
            has_room: false,
            sleepers: Sleepers::default(),
        }
    }

    /// Can a call of `progress` or `receive` bring something?
    pub(super) fn can_move(&self) -> bool {
        self.under_way > 0 || !self.arrived.is_empty() || !self.inbox.is_empty()
    }

    /// Fails when this process sees that one as gone.
    pub(super) fn check_peer(&self, process: ProcessId) -> Result<(), FabricError> {
        match self.peers.get(&process) {
            Some(Peer::Gone) => Err(FabricError::Disconnected { process }),
            Some(Peer::Connected) | None => Ok(()),
        }
    }

    /// Sees a peer as gone from now on, and says so once if it was connected. The caller stirs the process then.
    pub(super) fn lose_peer(&mut self, process: ProcessId) {
        self.matcher.lose(process);
        self.regions.lose(process);
        self.attached.retain(|key| key.process != process);
        self.closing.retain(|key| key.process != process);
        if self.peers.insert(process, Peer::Gone) == Some(Peer::Connected) {
            self.inbox.push_back(Event::Disconnected { process });
        }
    }
}

/// The threads in `wait`, and the wake-ups they have coming.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    pub(super) changed: Arc<Condvar>,
    count: usize,
    /// Wake-ups that found somebody in `wait`: all who were there return.
    wakes: u64,
    /// One came while nobody was: the next `wait` returns at once.
    wake_kept: bool,
}

/// A thread in `wait`.
#[derive(Debug)]
pub(super) struct Sleeper {
    wakes_before: u64,
}

impl Sleepers {
    /// Somebody begins to wait; `None` when it was woken already.
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

    /// The caller stirs the process then.
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
