//! One connection between two endpoints.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use farside_sys::net::{MessageSocket, is_end};
use farside_sys::shm::SharedMemory;

use super::EndOfLink;
use super::message::Message;
use crate::ids::ProcessId;
use crate::transport::FabricError;

/// Messages that may wait for a peer that does not read. A control message is under 64 bytes, a user's at most 4 KiB: so at
/// most 4 MiB a peer, and thousands of ring requests.
const BACKLOG_MAX: usize = 1024;

/// Before something is tried again for which the system is short of something.
pub(super) const NAP_WHEN_SHORT: Duration = Duration::from_millis(1);

/// What can be watched.
pub(super) trait Descriptor: AsFd + Send + Sync {}

impl<D: AsFd + Send + Sync> Descriptor for D {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Accepted; the other side has not said who it is.
    Unknown,
    /// Connected to this process, which has not answered yet. Messages may be sent: they wait in its socket.
    Greeted(ProcessId),
    /// Both know each other.
    Open(ProcessId),
}

#[derive(Debug)]
pub(super) struct Link {
    id: u64,
    socket: Arc<MessageSocket>,
    state: LinkState,
    /// What the socket did not take yet, in order.
    backlog: VecDeque<(Vec<u8>, Option<Arc<SharedMemory>>)>,
}

impl Link {
    pub(super) fn new(id: u64, socket: MessageSocket, state: LinkState) -> Self {
        Self { id, socket: Arc::new(socket), state, backlog: VecDeque::new() }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn state(&self) -> LinkState {
        self.state
    }

    pub(super) fn socket(&self) -> &Arc<MessageSocket> {
        &self.socket
    }

    pub(super) fn peer(&self) -> Option<ProcessId> {
        match self.state {
            LinkState::Unknown => None,
            LinkState::Greeted(process) | LinkState::Open(process) => Some(process),
        }
    }

    pub(super) fn open(&mut self, process: ProcessId) {
        self.state = LinkState::Open(process);
    }

    /// The socket, and whether it is also waited for to take more.
    pub(super) fn watch(&self) -> (Arc<dyn Descriptor>, bool) {
        (self.socket.clone(), self.has_backlog())
    }

    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Sends, or keeps for later if the peer's buffer is full.
    pub(super) fn send(&mut self, message: &Message<'_>, memory: Option<Arc<SharedMemory>>) -> Result<(), FabricError> {
        if self.backlog.len() >= BACKLOG_MAX {
            let process = self.peer().unwrap_or(ProcessId::new(u32::MAX));
            return Err(FabricError::QueueFull { process, max: BACKLOG_MAX });
        }
        self.backlog.push_back((message.encode(), memory));
        self.send_backlog();
        Ok(())
    }

    /// Sends what the socket takes. That the peer is gone is found out by the next `receive`.
    pub(super) fn send_backlog(&mut self) {
        while let Some((bytes, memory)) = self.backlog.front() {
            let fd = memory.as_ref().map(|memory| memory.fd());
            match self.socket.send(bytes, fd) {
                Ok(()) => drop(self.backlog.pop_front()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_end(&error) => self.backlog.clear(),
                // Out of memory, or of descriptors under way, for a moment: nothing may be lost, and who watches the socket must not spin.
                Err(_) => {
                    std::thread::sleep(NAP_WHEN_SHORT);
                    break;
                }
            }
        }
    }

    /// The next message that waits here, `None` when none does.
    pub(super) fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
    ) -> Result<Option<(Message<'b>, Option<OwnedFd>)>, EndOfLink> {
        match self.socket.receive(buffer) {
            Ok(Some(received)) => {
                let message = Message::decode(&buffer[..received.bytes]).ok_or(EndOfLink::Malformed)?;
                Ok(Some((message, received.fd)))
            }
            Ok(None) => Err(EndOfLink::Closed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(EndOfLink::Malformed),
            Err(error) if is_end(&error) => Err(EndOfLink::Closed),
            // Out of memory for a moment: the peer lives, and what it sent is still there. Who watches the socket must not spin.
            Err(_) => {
                std::thread::sleep(NAP_WHEN_SHORT);
                Ok(None)
            }
        }
    }
}
