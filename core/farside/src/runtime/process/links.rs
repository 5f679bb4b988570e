//! [`Links`]: the transport of a process, and the starter memories of its peers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use farside_fabric::{ProcessId, RemoteKey, Transport};

#[cfg(doc)]
use crate::invoke::ring::pieces::mapped_piece;
use crate::runtime::extent::Extent;
use crate::runtime::home::{Home, HomeLayout};
use crate::runtime::outgoing::Outgoing;

/// The links of a process with its peers.
#[derive(Debug)]
pub struct Links {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) outgoing: Outgoing,
    pub(super) home: Home,
    /// The starter memories of connected peers.
    homes: Box<[OnceLock<Home>]>,
    /// True if some peer cannot map this process's memory.
    unmapped_peers: AtomicBool,
    /// True if waiting workers must [make the transport's progress](crate::runtime::service::poll)
    /// themselves, because they wait for messages.
    pub(crate) polls: bool,
}

impl Links {
    pub(super) fn new(transport: Arc<dyn Transport>, layout: HomeLayout) -> Self {
        let home = Home::new(layout, transport.starter().memory().clone());
        let processes = layout.shape().processes as usize;
        let homes: Box<[OnceLock<Home>]> = (0..processes).map(|_| OnceLock::new()).collect();
        let own_is_mapped = homes[transport.process().index()].set(home.clone());
        debug_assert!(own_is_mapped.is_ok());
        let polls = !transport.clock().is_simulated() && !transport.capabilities().mapped;
        let (outgoing, unmapped_peers) = (Outgoing::new(processes), AtomicBool::new(false));
        Self { transport, outgoing, home, homes, unmapped_peers, polls }
    }

    /// Returns the memory of a peer that is connected and can be mapped.
    #[inline]
    pub fn home_of(&self, process: ProcessId) -> Option<&Home> {
        let cell = self.homes.get(process.index())?;
        match cell.get() {
            Some(home) => Some(home),
            None => self.look_for_home(process),
        }
    }

    #[cold]
    fn look_for_home(&self, process: ProcessId) -> Option<&Home> {
        let region = self.transport.attached(self.starter_key(process))?;
        let memory = region.mapped()?.clone();
        Some(self.homes[process.index()].get_or_init(|| Home::new(*self.home.layout(), memory)))
    }

    pub(crate) fn starter_key(&self, process: ProcessId) -> RemoteKey {
        RemoteKey::starter(process, self.home.layout().bytes() as u64)
    }

    /// Notes that some peer sends frames.
    pub(crate) fn meet_unmapped_peer(&self) {
        self.unmapped_peers.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_unmapped_peers(&self) -> bool {
        self.unmapped_peers.load(Ordering::Relaxed)
    }

    /// Sends the memory of a piece to a peer, ahead of the message that names the piece, so that
    /// the peer finds it [mapped](mapped_piece).
    pub fn offer(&self, to: ProcessId, piece: Extent) {
        if let Err(error) = self.transport.offer(to, piece.key) {
            // The peer does without, as where it cannot map this process's memory.
            tracing::debug!(%to, %error, "memory not sent");
        }
    }

    /// Sends messages that the transport had no room for. Returns whether some are left.
    pub(crate) fn flush_outgoing(&self) -> bool {
        self.outgoing.flush(&*self.transport)
    }
}
