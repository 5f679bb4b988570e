//! The coordinator's end of a control link, whatever it runs over.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use farside_fabric::ProcessId;
use farside_sys::net::{MESSAGE_BYTES_MAX, MessageSocket};

use super::frames::{FrameReader, FrameWriter};
use super::tcp::{Pad, concealed};
use super::{ToCoordinator, ToProcess};
use crate::error::ProcessEnd;

/// What came to light about a process.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) process: ProcessId,
    /// What it said, in order.
    pub(crate) messages: Vec<ToCoordinator>,
    /// How it ended, after all that it said.
    pub(crate) end: Option<ProcessEnd>,
}

impl News {
    /// It ended and did not say why.
    pub(crate) fn is_sudden_end(&self) -> bool {
        let explained = self.messages.iter().any(|message| matches!(message, ToCoordinator::Failed { .. }));
        self.end.is_some() && !explained
    }
}

/// The link with one process. What that has no room for is kept: at most a few messages for each process of the job.
#[derive(Debug)]
pub(crate) enum Link {
    /// With a process that was started from here, or is this one.
    Socket { socket: MessageSocket, unsent: VecDeque<Vec<u8>> },
    /// With a process that came by itself.
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

    /// Over a stream that does not block, and what has been read of it.
    pub(crate) fn over_stream(stream: TcpStream, reader: FrameReader, pad: Pad) -> Self {
        Self::Stream { stream, reader, writer: FrameWriter::default(), pad }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket { socket, .. } => socket.as_fd(),
            Self::Stream { stream, .. } => stream.as_fd(),
        }
    }

    /// Whether something waits for the process to have room for it.
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
            Self::Stream { writer, pad, .. } => writer.push(&concealed(message.clone(), pad).encode()),
        }
        self.flush();
    }

    /// Sends what there is room for.
    pub(crate) fn flush(&mut self) {
        match self {
            Self::Socket { socket, unsent } => flush_socket(socket, unsent),
            Self::Stream { stream, writer, .. } => {
                if writer.flush(&*stream).is_err() {
                    // The process is gone, as receiving will tell.
                    *writer = FrameWriter::default();
                }
            }
        }
    }

    /// Takes everything that the process has said.
    pub(crate) fn receive(&mut self, messages: &mut Vec<ToCoordinator>) -> LinkState {
        loop {
            match self.receive_one() {
                Ok(Some(message)) => messages.push(message.unwrap_or_else(|| {
                    let message = "it said what the coordinator does not understand: build both at once".into();
                    ToCoordinator::Failed { message, because_of: None }
                })),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return LinkState::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => return LinkState::Closed,
            }
        }
    }

    /// One message, if it is one; `None` at the end of the link.
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
            // The process is gone, as receiving will tell.
            Err(_) => unsent.clear(),
        }
    }
}
