//! The path over TCP: frames one after the other, each behind the length of its body.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use farside_wire::check::MessageKind;

use super::rdma::RdmaPath;
use super::{LinkEnd, Path};
use crate::frame::{BODY_BYTES_MAX, HEAD_BYTES, Head};
use crate::lock::lock;

/// The length of the body and the header.
const PREFIX_BYTES: usize = 4 + HEAD_BYTES;
/// The most bytes that one system call reads.
const READ_BYTES: usize = 256 * 1024;

/// One end of the path.
#[derive(Debug)]
pub(crate) struct TcpPath {
    stream: TcpStream,
    /// Bytes that found no room in the system's buffer.
    backlog: Mutex<VecDeque<u8>>,
    /// Their number. Changed under the lock of `backlog`.
    backlog_bytes: AtomicUsize,
    /// The beginning of a frame whose rest has not arrived.
    partial: Mutex<Vec<u8>>,
    is_closed_here: AtomicBool,
    /// The carrier of bulk data, if it does not go through the stream.
    rdma: Option<Arc<RdmaPath>>,
}

impl TcpPath {
    /// Begins the path after the greeting, on a stream that does not block.
    pub(crate) fn new(stream: TcpStream, rdma: Option<Arc<RdmaPath>>) -> Self {
        Self {
            stream,
            backlog: Mutex::default(),
            backlog_bytes: AtomicUsize::new(0),
            partial: Mutex::default(),
            is_closed_here: AtomicBool::new(false),
            rdma,
        }
    }

    fn end_of(&self, error: &Error) -> LinkEnd {
        if self.is_closed_here.load(Ordering::Relaxed) { LinkEnd::Here } else { LinkEnd::failed(error) }
    }

    /// Writes as much as the system takes now. Returns the number of bytes.
    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, LinkEnd> {
        loop {
            let written = (&self.stream).write_vectored(parts);
            crate::kills::point();
            match written {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.end_of(&error)),
            }
        }
    }

    /// Writes from the backlog until it is empty or the system takes nothing.
    fn flush(&self, backlog: &mut VecDeque<u8>) -> Result<(), LinkEnd> {
        while !backlog.is_empty() {
            let (front, back) = backlog.as_slices();
            match self.write(&[IoSlice::new(front), IoSlice::new(back)])? {
                0 => return Ok(()),
                bytes => drop(backlog.drain(..bytes)),
            }
            self.backlog_bytes.store(backlog.len(), Ordering::Relaxed);
        }
        // An idle connection keeps no memory.
        *backlog = VecDeque::new();
        Ok(())
    }

    fn read(&self, into: &mut [u8]) -> Result<Option<usize>, LinkEnd> {
        loop {
            match (&self.stream).read(into) {
                Ok(0) if self.is_closed_here.load(Ordering::Relaxed) => return Err(LinkEnd::Here),
                Ok(0) => return Err(LinkEnd::ByPeer),
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.end_of(&error)),
            }
        }
    }
}

/// A frame's header and body, and the bytes behind it.
type Split<'a> = (Head, &'a [u8], &'a [u8]);

/// Splits the first frame off. `None` if it is not whole.
fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, LinkEnd> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > BODY_BYTES_MAX {
        return Err(LinkEnd::protocol(format_args!("a frame of {length} bytes; {BODY_BYTES_MAX} are allowed")));
    }
    let Some((head, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let head = Head::from_bytes(head).ok_or_else(|| LinkEnd::protocol("a frame of an unknown kind"))?;
    Ok(rest.split_at_checked(length).map(|(body, rest)| (head, body, rest)))
}

/// Frames as they follow each other, for tests of their decoder. What follows the first frame is a
/// payload.
pub(crate) fn message_kind() -> MessageKind {
    MessageKind::by_hand("tcp::split", |bytes| {
        let (head, body, rest) = split(bytes).ok()??;
        let length = u32::try_from(body.len()).expect("a body is short").to_le_bytes();
        Some([&length, &head.to_bytes()[..], body, rest].concat())
    })
}

impl Path for TcpPath {
    fn name(&self) -> &'static str {
        let has_rdma = self.rdma.as_ref().is_some_and(|rdma| rdma.connection().is_some());
        if has_rdma { "tcp+rdma" } else { "tcp" }
    }

    fn send(&self, head: Head, body: &[&[u8]]) -> Result<(), LinkEnd> {
        let body_bytes = body.iter().map(|part| part.len()).sum::<usize>();
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..4].copy_from_slice(&u32::try_from(body_bytes).expect("a body is short").to_le_bytes());
        prefix[4..].copy_from_slice(&head.to_bytes());
        let parts = || [&prefix[..]].into_iter().chain(body.iter().copied());
        let mut backlog = lock(&self.backlog);
        let mut written = match backlog.is_empty() {
            true => self.write(&parts().map(IoSlice::new).collect::<Vec<_>>())?,
            false => 0,
        };
        for part in parts() {
            let skipped = written.min(part.len());
            backlog.extend(&part[skipped..]);
            written -= skipped;
        }
        self.backlog_bytes.store(backlog.len(), Ordering::Relaxed);
        Ok(())
    }

    fn receive(&self, scratch: &mut Vec<u8>, max: usize, take: &mut dyn FnMut(Head, &[u8])) -> Result<usize, LinkEnd> {
        // A sender that found no room may hold the lock. The descriptor reports the room once.
        let mut backlog = lock(&self.backlog);
        let flushed = if backlog.is_empty() { Ok(()) } else { self.flush(&mut backlog).map(drop) };
        drop(backlog);
        let mut partial = lock(&self.partial);
        let before = partial.len();
        if scratch.len() < before + READ_BYTES {
            scratch.resize(before + READ_BYTES, 0);
        }
        scratch[..before].copy_from_slice(&partial);
        // The last call may have left whole frames behind.
        let read = match split(&partial)? {
            Some(_) => 0,
            None => match self.read(&mut scratch[before..])? {
                Some(bytes) => bytes,
                // What arrived before the end of the connection came first.
                None => return flushed.map(|()| 0),
            },
        };
        let mut left = &scratch[..before + read];
        let mut count = 0;
        while count < max {
            let Some((head, body, rest)) = split(left)? else { break };
            crate::kills::point();
            take(head, body);
            left = rest;
            count += 1;
        }
        // An idle connection keeps no memory.
        *partial = left.to_vec();
        // A read without a whole frame is progress, too: the caller must come back before it waits.
        Ok(count.max(usize::from(read > 0)))
    }

    fn prepare_sleep(&self) -> bool {
        // The descriptor reports what arrives from now on, and what has arrived.
        matches!(split(&lock(&self.partial)), Ok(None))
    }

    fn end_sleep(&self) {}

    fn descriptors(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.stream.as_fd(), None)
    }

    fn backlog_bytes(&self) -> usize {
        self.backlog_bytes.load(Ordering::Relaxed)
    }

    fn note_end(&self) {
        // The next read reports it, after what arrived before.
    }

    fn close(&self) {
        self.is_closed_here.store(true, Ordering::Relaxed);
        // The only failure is that the connection has ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn rdma(&self) -> Option<&RdmaPath> {
        self.rdma.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Kind;

    #[test]
    fn frames_are_split_wherever_the_bytes_were_cut() {
        let mut bytes = Vec::new();
        for length in [0, 1, 100_u32] {
            bytes.extend(length.to_le_bytes());
            bytes.extend(Head::new(Kind::Data, length.into()).to_bytes());
            bytes.extend(vec![7; length as usize]);
        }
        for cut in 0..=bytes.len() {
            let mut left = &bytes[..cut];
            let mut found = Vec::new();
            while let Some((head, body, rest)) = split(left).unwrap() {
                assert_eq!(head.id, body.len() as u64);
                found.push(body.len());
                left = rest;
            }
            let expected: Vec<_> = [(0, 28), (1, 57), (100, 185)].iter().filter(|(_, end)| *end <= cut).collect();
            assert_eq!(found.len(), expected.len());
        }
    }

    #[test]
    fn frames_that_are_too_long_or_unknown_are_refused() {
        let mut bytes = (BODY_BYTES_MAX as u32 + 1).to_le_bytes().to_vec();
        assert!(matches!(split(&bytes), Err(LinkEnd::Protocol(why)) if why.contains("66561")));
        bytes[..4].fill(0);
        bytes.extend([0xff; HEAD_BYTES]);
        assert!(matches!(split(&bytes), Err(LinkEnd::Protocol(why)) if why.contains("unknown")));
    }
}
