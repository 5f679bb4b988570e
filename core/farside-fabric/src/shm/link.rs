//! One connection between two endpoints.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_sys::net::{MessageSocket, Received, is_end};
use farside_sys::shm::SharedMemory;

use super::EndOfLink;
use super::message::Message;
use crate::ids::ProcessId;
use crate::transport::FabricError;

/// Maximum number of messages that wait for a peer that does not read. A control message is shorter
/// than 64 bytes, a user's message is at most 4 KiB. The bound is therefore at most 4 MiB per peer,
/// and thousands of ring requests.
const BACKLOG_MAX: usize = 1024;

/// Pause before a retry when the system lacks a resource.
pub(super) const NAP_WHEN_SHORT: Duration = Duration::from_millis(1);

/// An object whose descriptor can be watched.
pub(super) trait Descriptor: AsFd + Send + Sync {}

impl<D: AsFd + Send + Sync> Descriptor for D {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Accepted; the other side has not identified itself.
    Unknown,
    /// Connected to this process, which has not answered yet. Messages may be sent: they wait in
    /// its socket.
    Greeted(ProcessId),
    /// Both sides have identified themselves.
    Open(ProcessId),
}

#[derive(Debug)]
pub(super) struct Link {
    id: u64,
    socket: Arc<MessageSocket>,
    state: LinkState,
    /// The time at which it was made.
    since: Instant,
    /// Messages that the socket has not accepted yet, in order.
    backlog: VecDeque<(Vec<u8>, Option<Arc<SharedMemory>>)>,
}

impl Link {
    pub(super) fn new(id: u64, socket: MessageSocket, state: LinkState) -> Self {
        Self { id, socket: Arc::new(socket), state, since: Instant::now(), backlog: VecDeque::new() }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn since(&self) -> Instant {
        self.since
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

    /// The socket, and whether it is also watched for room to write.
    pub(super) fn watch(&self) -> (Arc<dyn Descriptor>, bool) {
        (self.socket.clone(), self.has_backlog())
    }

    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Sends a message, or stores it if the peer's buffer is full.
    pub(super) fn send(&mut self, message: &Message<'_>, memory: Option<Arc<SharedMemory>>) -> Result<(), FabricError> {
        if self.backlog.len() >= BACKLOG_MAX {
            let process = self.peer().unwrap_or(ProcessId::new(u32::MAX));
            return Err(FabricError::QueueFull { process, max: BACKLOG_MAX });
        }
        self.send_anyway(message, memory);
        Ok(())
    }

    /// Sends or stores a message, however many wait. For messages that something else bounds.
    pub(super) fn send_anyway(&mut self, message: &Message<'_>, memory: Option<Arc<SharedMemory>>) {
        self.backlog.push_back((message.encode(), memory));
        self.send_backlog();
    }

    /// Sends as many stored messages as the socket accepts. The next `receive` finds out that the
    /// peer is gone.
    pub(super) fn send_backlog(&mut self) {
        while let Some((bytes, memory)) = self.backlog.front() {
            let fd = memory.as_ref().map(|memory| memory.fd());
            match self.socket.send(bytes, fd) {
                Ok(()) => drop(self.backlog.pop_front()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_end(&error) => self.backlog.clear(),
                // The system lacks memory, or too many descriptors are in flight. No message may be
                // lost, and the thread that watches the socket must not spin.
                Err(_) => {
                    std::thread::sleep(NAP_WHEN_SHORT);
                    break;
                }
            }
        }
    }

    /// The next waiting message; `None` if there is none.
    pub(super) fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<(Message<'b>, Received)>, EndOfLink> {
        match self.socket.receive(buffer) {
            Ok(Some(received)) => {
                let message = Message::decode(&buffer[..received.bytes]).ok_or(EndOfLink::Malformed)?;
                Ok(Some((message, received)))
            }
            Ok(None) => Err(EndOfLink::Closed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(EndOfLink::Malformed),
            Err(error) if is_end(&error) => Err(EndOfLink::Closed),
            // The system lacks memory for a moment: the peer is alive, and its messages are still
            // there. The thread that watches the socket must not spin.
            Err(_) => {
                std::thread::sleep(NAP_WHEN_SHORT);
                Ok(None)
            }
        }
    }
}
