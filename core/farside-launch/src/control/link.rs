//! The coordinator's end of a control link, over a socket or a stream.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use farside_fabric::ProcessId;
use farside_sys::net::{MESSAGE_BYTES_MAX, MessageSocket};

use super::frames::{FrameReader, FrameWriter};
use super::tcp::{Pad, encode_concealed};
use super::{ToCoordinator, ToProcess};
use crate::error::ProcessEnd;

/// The news of one process.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) process: ProcessId,
    /// Its messages, in order.
    pub(crate) messages: Vec<ToCoordinator>,
    /// The end of the process, after all its messages.
    pub(crate) end: Option<ProcessEnd>,
}

impl News {
    /// Returns whether it ended without a reason.
    pub(crate) fn is_sudden_end(&self) -> bool {
        let explained = self.messages.iter().any(|message| matches!(message, ToCoordinator::Failed { .. }));
        self.end.is_some() && !explained
    }
}

/// The link with one process. Keeps the messages for which the process has no room: at most a few
/// for each process of the job.
#[derive(Debug)]
pub(crate) enum Link {
    /// The link with a child of this process, or with this process itself.
    Socket { socket: MessageSocket, unsent: VecDeque<Vec<u8>> },
    /// The link with a process that another launcher started.
    Stream { stream: TcpStream, reader: FrameReader, writer: FrameWriter, pad: Pad },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Open,
    Closed,
}

impl Link {
    pub(crate) fn over_socket(socket: MessageSocket) -> Self {
        Self::Socket { socket, unsent: VecDeque::new() }
    }

    /// Makes a link over a non-blocking stream, of which `reader` may already hold some bytes.
    pub(crate) fn over_stream(stream: TcpStream, reader: FrameReader, pad: Pad) -> Self {
        Self::Stream { stream, reader, writer: FrameWriter::default(), pad }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket { socket, .. } => socket.as_fd(),
            Self::Stream { stream, .. } => stream.as_fd(),
        }
    }

    /// Returns whether messages wait until the process has room for them.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Socket { unsent, .. } => !unsent.is_empty(),
            Self::Stream { writer, .. } => !writer.is_empty(),
        }
    }

    /// Sends a message, now or when the process has room for it.
    pub(crate) fn tell(&mut self, message: &ToProcess) {
        match self {
            Self::Socket { unsent, .. } => unsent.push_back(message.encode()),
            Self::Stream { writer, pad, .. } => writer.push(&encode_concealed(message, pad)),
        }
        self.flush();
    }

    /// Sends as much as there is room for.
    pub(crate) fn flush(&mut self) {
        match self {
            Self::Socket { socket, unsent } => flush_socket(socket, unsent),
            Self::Stream { stream, writer, .. } => {
                if writer.flush(&*stream).is_err() {
                    // The process is gone; `receive` will report it.
                    *writer = FrameWriter::default();
                }
            }
        }
    }

    /// Takes all messages that have arrived from the process.
    pub(crate) fn receive(&mut self, messages: &mut Vec<ToCoordinator>) -> LinkState {
        loop {
            match self.receive_one() {
                Ok(Some(message)) => messages.push(message.unwrap_or_else(|| {
                    let message = "it sent an unknown message: build both from one version".into();
                    ToCoordinator::Failed { message, because_of: None }
                })),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return LinkState::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => return LinkState::Closed,
            }
        }
    }

    /// Receives one message: `Some(None)` if the bytes are no message, `None` at the end of the
    /// link.
    fn receive_one(&mut self) -> std::io::Result<Option<Option<ToCoordinator>>> {
        match self {
            Self::Socket { socket, .. } => {
                let mut buffer = [0; MESSAGE_BYTES_MAX];
                let received = socket.receive(&mut buffer)?;
                Ok(received.map(|received| ToCoordinator::decode(&buffer[..received.bytes])))
            }
            Self::Stream { stream, reader, .. } => {
                Ok(reader.receive(&*stream)?.map(|message| ToCoordinator::decode(&message)))
            }
        }
    }
}

fn flush_socket(socket: &MessageSocket, unsent: &mut VecDeque<Vec<u8>>) {
    while let Some(message) = unsent.front() {
        match socket.send(message, None) {
            Ok(()) => {
                unsent.pop_front();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // The process is gone; `receive` will report it.
            Err(_) => unsent.clear(),
        }
    }
}
