//! Tagged messages: the matching of messages and receives, and the limit on messages that arrive
//! before their receive.
//!
//! A [`Matcher`] holds what one process needs for that. It does no I/O, reads no clock and has no
//! thread. A transport keeps it under a lock, and
//!
//! - passes the arguments of its own functions to [`receive_tagged`](Matcher::receive_tagged) and
//!   [`send`](Matcher::send);
//! - sends each frame as one message that the other side can distinguish from others, in order, and
//!   passes it to [`take`](Matcher::take) there;
//! - sends [credits](Matcher::credits) after each of them;
//! - calls [`lose`](Matcher::lose) when a peer is gone, or when it sent something [`Malformed`].
//!
//! [`emulated`](crate::emulated) does so for transports that use its engine.
//!
//! # Early messages
//!
//! A message may arrive before its receive. It is kept until then, within a *window*: a process
//! with too many messages or bytes to another process that are not known to be matched gets
//! [`QueueFull`](FabricError::QueueFull). The receiver reports what was matched, as two sums that
//! only grow, whenever they have grown by a quarter of the window. So no message is lost, the kept
//! messages are bounded, and plain messages, on which the receiver may be waiting, are not delayed.
//!
//! libfabric's own tagged messages have no such window. Over `tcp;ofi_rxm` they are no faster than
//! others (8.3 µs one way, both). 2000 early ones of 8 KiB increased their receiver's memory by 33
//! MiB, without a limit. So no transport uses native ones.

mod frame;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};

use self::frame::{Frame, Volume};
use crate::ids::ProcessId;
use crate::transport::{Completion, FabricError, Outcome, Tag};

pub use self::frame::HEADER_BYTES;
pub(crate) use self::frame::{CREDIT_BYTES, message_kinds};

/// Maximum number of receives of a process: about 100 B each, so less than 512 KiB.
pub const TAGGED_RECEIVES_MAX: usize = 4096;

/// Number of longest messages in a window. With less than two, the sender would wait for a round
/// trip after each.
const LONGEST_IN_WINDOW: u64 = 4;

/// The part of the window by which the matched sum has grown when the sender is told.
const TOLD_PART: u64 = 4;

/// The limits of a matcher. The same for all processes of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a message, in bytes, without its [header](HEADER_BYTES).
    pub message_bytes_max: usize,
    /// Maximum number of unmatched messages of one process at another. Together they have at most
    /// four times [`message_bytes_max`](Self::message_bytes_max) bytes.
    pub early_messages_max: usize,
}

impl Limits {
    fn window(&self) -> Volume {
        let bytes = (self.message_bytes_max as u64).saturating_mul(LONGEST_IN_WINDOW);
        Volume { messages: self.early_messages_max as u64, bytes }
    }
}

/// A peer sent what no correct peer sends, so it cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Bytes that are not a frame.
    #[error("bytes that are not a frame of a tagged message")]
    Undecodable,
    /// A message longer than the maximum.
    #[error("a tagged message of {bytes} bytes, longer than the maximum of {max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// More unmatched messages than the window allows.
    #[error("more than {messages} messages or {bytes} bytes without a receive")]
    TooMany {
        /// Maximum number of messages.
        messages: u64,
        /// Maximum number of their bytes.
        bytes: u64,
    },
    /// A credit for messages that were not sent, or smaller than an earlier one.
    #[error("credit for messages that were not sent")]
    Unsent,
}

/// One process's tagged receives, and the messages that arrived before theirs.
///
/// ```
/// use farside_fabric::tagged::{Limits, Matcher};
/// use farside_fabric::{Outcome, ProcessId};
/// use farside_fabric::transport::Tag;
///
/// let limits = Limits { message_bytes_max: 1024, early_messages_max: 16 };
/// let [here, there] = [0, 1].map(ProcessId::new);
/// let (mut sender, mut receiver) = (Matcher::new(here, limits), Matcher::new(there, limits));
///
/// let got = receiver.receive_tagged(here, Tag(7), 100)?;
/// sender.send(there, Tag(7), b"far side", |frame| {
///     Ok(receiver.take(here, &frame).expect("a frame"))
/// })?;
/// assert!(matches!(got.try_take(), Some(Ok(Outcome::Got(message))) if message == b"far side"));
/// # Ok::<(), farside_fabric::FabricError>(())
/// ```
#[derive(Debug)]
pub struct Matcher {
    process: ProcessId,
    limits: Limits,
    /// The receives in the order in which they were posted; no queue is empty. Some may have been
    /// cancelled.
    expectations: HashMap<Label, VecDeque<Expectation>>,
    expectation_count: usize,
    /// Unmatched messages, in the order in which they arrived; no queue is empty.
    early: HashMap<Label, VecDeque<Vec<u8>>>,
    peers: HashMap<ProcessId, Peer>,
    /// Peers that must be told what was matched.
    creditors: BTreeSet<ProcessId>,
}

/// Sender and tag.
type Label = (ProcessId, Tag);

#[derive(Debug)]
struct Expectation {
    room: usize,
    completion: Completion,
}

/// The traffic between this process and another.
#[derive(Debug, Default)]
struct Peer {
    sent: Volume,
    /// The part of `sent` that the peer has reported as matched.
    acknowledged: Volume,
    /// Arrived from the peer, and matched here.
    matched: Volume,
    /// The part of `matched` that the peer was told.
    told: Volume,
    /// Arrived from the peer, and not matched yet.
    early: Volume,
}

impl Expectation {
    /// Takes a message, or returns it if this receive was cancelled.
    fn take(&self, mut message: Vec<u8>) -> Option<Vec<u8>> {
        let (bytes, room) = (message.len(), self.room);
        let is_taken = self.completion.end_with(|| {
            if bytes <= room {
                Ok(Outcome::Got(std::mem::take(&mut message)))
            } else {
                Err(FabricError::RoomTooSmall { bytes, room })
            }
        });
        (!is_taken).then_some(message)
    }
}

impl Matcher {
    /// Creates a matcher without receives.
    ///
    /// # Panics
    /// If the limits allow no message, or only empty ones.
    pub fn new(process: ProcessId, limits: Limits) -> Self {
        assert!(
            limits.message_bytes_max > 0 && limits.early_messages_max > 0,
            "{limits:?}: at least one message of one byte"
        );
        Self {
            process,
            limits,
            expectations: HashMap::new(),
            expectation_count: 0,
            early: HashMap::new(),
            peers: HashMap::new(),
            creditors: BTreeSet::new(),
        }
    }

    /// Receives a message of up to `room` bytes from a process that exists and is not lost. If one
    /// has already arrived, the completion has ended when this returns.
    ///
    /// # Errors
    /// [`FabricError::QueueFull`].
    pub fn receive_tagged(&mut self, from: ProcessId, tag: Tag, room: usize) -> Result<Completion, FabricError> {
        let completion = Completion::pending();
        let expectation = Expectation { room, completion: completion.clone() };
        if let Some(message) = self.take_early((from, tag)) {
            // Only this function has the completion, so it has not been cancelled.
            expectation.take(message);
            return Ok(completion);
        }
        if self.expectation_count >= TAGGED_RECEIVES_MAX {
            self.drop_cancelled();
        }
        if self.expectation_count >= TAGGED_RECEIVES_MAX {
            return Err(FabricError::QueueFull { process: from, max: TAGGED_RECEIVES_MAX });
        }
        self.expectations.entry((from, tag)).or_default().push_back(expectation);
        self.expectation_count += 1;
        Ok(completion)
    }

    /// Passes the frame of a message to `send`, which may refuse it. A message of a process to
    /// itself needs no frame, and has arrived when this returns.
    ///
    /// # Errors
    /// [`FabricError::MessageTooLong`], [`FabricError::QueueFull`], and those of `send`; then
    /// nothing is sent.
    pub fn send(
        &mut self,
        to: ProcessId,
        tag: Tag,
        message: &[u8],
        send: impl FnOnce(Vec<u8>) -> Result<(), FabricError>,
    ) -> Result<(), FabricError> {
        let max = self.limits.message_bytes_max;
        if message.len() > max {
            return Err(FabricError::MessageTooLong { bytes: message.len(), max });
        }
        let volume = Volume::of(message);
        let peer = self.peers.entry(to).or_default();
        if !(peer.sent + volume - peer.acknowledged).fits(self.limits.window()) {
            return Err(FabricError::QueueFull { process: to, max: self.limits.early_messages_max });
        }
        if to != self.process {
            send(Frame::Message(tag).encode(message))?;
        }
        peer.sent = peer.sent + volume;
        if to == self.process {
            self.arrive(to, tag, message.to_vec()).expect("the sender has checked that it fits");
        }
        Ok(())
    }

    /// Processes a frame from a peer that is not lost.
    ///
    /// # Errors
    /// [`Malformed`]: the transport should lose the peer.
    pub fn take(&mut self, from: ProcessId, frame: &[u8]) -> Result<(), Malformed> {
        let (frame, message) = Frame::decode(frame).ok_or(Malformed::Undecodable)?;
        match frame {
            Frame::Message(tag) => {
                let max = self.limits.message_bytes_max;
                if message.len() > max {
                    return Err(Malformed::TooLong { bytes: message.len(), max });
                }
                self.arrive(from, tag, message.to_vec())
            }
            Frame::Credit(matched) => {
                let peer = self.peers.entry(from).or_default();
                if !(peer.acknowledged.fits(matched) && matched.fits(peer.sent)) {
                    return Err(Malformed::Unsent);
                }
                peer.acknowledged = matched;
                Ok(())
            }
        }
    }

    /// Passes frames to `send` that tell other processes what was matched. `send` returns whether
    /// there was room for one; if not, it is passed again later.
    pub fn credits(&mut self, mut send: impl FnMut(ProcessId, Vec<u8>) -> bool) {
        let Self { creditors, peers, .. } = self;
        creditors.retain(|to| {
            let Some(peer) = peers.get_mut(to) else { return false };
            let is_told = send(*to, Frame::Credit(peer.matched).encode(&[]));
            if is_told {
                peer.told = peer.matched;
            }
            !is_told
        });
    }

    /// Records that a peer is gone for ever: receives from it end with
    /// [`FabricError::Disconnected`], and its unmatched messages are dropped.
    pub fn lose(&mut self, peer: ProcessId) {
        for (_, expectations) in self.expectations.extract_if(|(from, _), _| *from == peer) {
            self.expectation_count -= expectations.len();
            for expectation in expectations {
                expectation.completion.end(Err(FabricError::Disconnected { process: peer }));
            }
        }
        self.early.retain(|(from, _), _| *from != peer);
        self.peers.remove(&peer);
        self.creditors.remove(&peer);
    }

    /// Ends all receives, because this process is `gone`.
    pub fn end(&mut self, gone: ProcessId) {
        for expectation in std::mem::take(&mut self.expectations).into_values().flatten() {
            expectation.completion.end(Err(FabricError::Disconnected { process: gone }));
        }
        *self = Self::new(self.process, self.limits);
    }

    fn take_early(&mut self, label: Label) -> Option<Vec<u8>> {
        let Entry::Occupied(mut early) = self.early.entry(label) else { return None };
        let message = early.get_mut().pop_front();
        if early.get().is_empty() {
            early.remove();
        }
        let message = message?;
        let peer = self.peers.entry(label.0).or_default();
        peer.early = peer.early - Volume::of(&message);
        self.note_matched(label.0, Volume::of(&message));
        Some(message)
    }

    fn arrive(&mut self, from: ProcessId, tag: Tag, message: Vec<u8>) -> Result<(), Malformed> {
        let volume = Volume::of(&message);
        let Some(message) = self.offer((from, tag), message) else {
            self.note_matched(from, volume);
            return Ok(());
        };
        let window = self.limits.window();
        let peer = self.peers.entry(from).or_default();
        let early = peer.early + volume;
        if !early.fits(window) {
            return Err(Malformed::TooMany { messages: window.messages, bytes: window.bytes });
        }
        peer.early = early;
        self.early.entry((from, tag)).or_default().push_back(message);
        Ok(())
    }

    /// Gives a message to the first matching receive, or returns it.
    fn offer(&mut self, label: Label, message: Vec<u8>) -> Option<Vec<u8>> {
        let Entry::Occupied(mut expectations) = self.expectations.entry(label) else { return Some(message) };
        let mut left = Some(message);
        while let Some(message) = left.take() {
            let Some(first) = expectations.get_mut().pop_front() else {
                left = Some(message);
                break;
            };
            self.expectation_count -= 1;
            left = first.take(message);
        }
        if expectations.get().is_empty() {
            expectations.remove();
        }
        left
    }

    fn note_matched(&mut self, from: ProcessId, volume: Volume) {
        let peer = self.peers.entry(from).or_default();
        peer.matched = peer.matched + volume;
        if from == self.process {
            peer.acknowledged = peer.matched;
        } else if (peer.matched - peer.told).is_part(TOLD_PART, self.limits.window()) {
            self.creditors.insert(from);
        }
    }

    fn drop_cancelled(&mut self) {
        self.expectations.retain(|_, expectations| {
            expectations.retain(|expectation| !expectation.completion.has_ended());
            !expectations.is_empty()
        });
        self.expectation_count = self.expectations.values().map(VecDeque::len).sum();
    }
}
