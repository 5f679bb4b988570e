//! Messages on a stream of bytes: each is a header with its length, and then its bytes.
//!
//! The two directions are separate types, so that one thread can read while others write. Neither
//! ever blocks.

use std::io::{ErrorKind, Read, Write};

use farside_sys::net::MESSAGE_BYTES_MAX;
use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

/// The bytes before each message.
#[derive(Wire)]
#[wire(crate = "farside_wire")]
struct Header {
    message_bytes: u16,
}

/// Reassembles messages. Holds one message and the bytes received with its last part.
#[derive(Debug)]
pub(crate) struct FrameReader {
    /// The longest message that is accepted.
    message_bytes_max: usize,
    received: Vec<u8>,
}

impl FrameReader {
    /// Makes a reader that refuses messages of more than `message_bytes_max` bytes.
    pub(crate) fn new(message_bytes_max: usize) -> Self {
        debug_assert!(message_bytes_max <= MESSAGE_BYTES_MAX, "no message is longer");
        Self { message_bytes_max, received: Vec::new() }
    }

    /// Accepts messages of up to [`MESSAGE_BYTES_MAX`] from now on.
    pub(crate) fn accept_all(&mut self) {
        self.message_bytes_max = MESSAGE_BYTES_MAX;
    }

    /// Returns the next message; `None` at the end of the stream.
    ///
    /// # Errors
    /// - `WouldBlock` if the message has not arrived in full.
    /// - `InvalidData` if the message is too long.
    /// - `UnexpectedEof` if the stream ends within the message.
    /// - Any other error of the stream.
    pub(crate) fn receive(&mut self, mut stream: impl Read) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            match stream.read(&mut buffer) {
                Ok(0) if self.received.is_empty() => return Ok(None),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.received.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a message that has arrived in full.
    fn take(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut input = Decoder::new(&self.received);
        let Ok(header) = Header::decode(&mut input) else { return Ok(None) };
        let length = usize::from(header.message_bytes);
        if length > self.message_bytes_max {
            let why = format!("message refused: it has {length} bytes, more than {}", self.message_bytes_max);
            return Err(std::io::Error::new(ErrorKind::InvalidData, why));
        }
        let Ok(message) = input.take::<Header>(length) else { return Ok(None) };
        let message = message.to_vec();
        let used = self.received.len() - input.remaining();
        self.received.drain(..used);
        Ok(Some(message))
    }
}

/// Keeps the bytes for which the stream has no room.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    unsent: Vec<u8>,
}

impl FrameWriter {
    /// Appends a message, to be sent by [`flush`](Self::flush).
    pub(crate) fn push(&mut self, message: &[u8]) {
        debug_assert!(message.len() <= MESSAGE_BYTES_MAX, "encoders keep to the limit");
        let message_bytes = u16::try_from(message.len()).expect("a message is shorter than 64 KiB");
        self.unsent = farside_wire::encode(&Header { message_bytes }, std::mem::take(&mut self.unsent));
        self.unsent.extend_from_slice(message);
    }

    /// Writes as much as the stream has room for.
    ///
    /// # Errors
    /// The errors of the stream, except `WouldBlock`.
    pub(crate) fn flush(&mut self, mut stream: impl Write) -> std::io::Result<()> {
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(());
            }
            match stream.write(&self.unsent[sent..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.unsent.drain(..sent);
        result
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }
}

/// A stream of messages, for tests of its decoder.
pub(super) fn message_kind() -> MessageKind {
    MessageKind::by_hand("control::frames", |mut bytes| {
        let (mut reader, mut writer) = (FrameReader::new(MESSAGE_BYTES_MAX), FrameWriter::default());
        while let Some(message) = reader.receive(&mut bytes).ok()? {
            writer.push(&message);
        }
        Some(writer.unsent)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A stream that passes at most `at_once` bytes at a time, and is full or empty in between.
    #[derive(Debug, Default)]
    struct Narrow {
        bytes: Vec<u8>,
        at_once: usize,
        rests: bool,
    }

    impl Narrow {
        fn rest(&mut self) -> std::io::Result<()> {
            self.rests = !self.rests;
            if self.rests { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }
    }

    impl Write for &mut Narrow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.rest()?;
            let count = bytes.len().min(self.at_once);
            self.bytes.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Read for &mut Narrow {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.rest()?;
            let count = buffer.len().min(self.at_once).min(self.bytes.len());
            buffer[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes.drain(..count);
            Ok(count)
        }
    }

    fn read_all(stream: &mut Narrow, message_bytes_max: usize) -> std::io::Result<Vec<Vec<u8>>> {
        let mut reader = FrameReader::new(message_bytes_max);
        let mut messages = Vec::new();
        loop {
            match reader.receive(&mut *stream) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return Ok(messages),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            at_once in 1..400_usize,
        ) {
            let mut stream = Narrow { at_once, ..Narrow::default() };
            let mut writer = FrameWriter::default();
            for message in &messages {
                writer.push(message);
                writer.flush(&mut stream).unwrap();
            }
            while !writer.is_empty() {
                writer.flush(&mut stream).unwrap();
            }
            prop_assert_eq!(read_all(&mut stream, MESSAGE_BYTES_MAX).unwrap(), messages);
        }

        #[test]
        fn no_message_is_longer_than_the_limit(bytes in prop::collection::vec(any::<u8>(), 0..200), max in 0..64_usize) {
            let mut stream = Narrow { bytes, at_once: 7, rests: false };
            if let Ok(messages) = read_all(&mut stream, max) {
                prop_assert!(messages.iter().all(|message| message.len() <= max));
            }
        }
    }

    #[test]
    fn a_message_too_long_or_cut_off_is_refused() {
        let read = |bytes: &[u8], max| {
            let mut stream = Narrow { bytes: bytes.to_vec(), at_once: 100, rests: false };
            read_all(&mut stream, max).map_err(|error| error.kind())
        };
        assert_eq!(read(&[3, 0, 1, 2, 3], 3), Ok(vec![vec![1, 2, 3]]));
        assert_eq!(read(&[3, 0, 1, 2, 3], 2), Err(ErrorKind::InvalidData));
        assert_eq!(read(&[3, 0, 1, 2], 3), Err(ErrorKind::UnexpectedEof));
        assert_eq!(read(&[255, 255], MESSAGE_BYTES_MAX), Err(ErrorKind::InvalidData));
    }
}
