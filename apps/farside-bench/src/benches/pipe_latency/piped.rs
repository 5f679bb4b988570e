//! Messages through pipes.

use farside::{Registered, Worker};
use farside_kit::pipe::{PipeReader, PipeWriter};
use farside_kit::prelude::*;

use super::Exchange;
use crate::kit::*;

/// Number of messages that may be under way in a pipe.
const WIDTH: usize = 2;

/// A pipe in each direction.
#[derive(Debug)]
pub(super) struct Piped<'w> {
    writer: PipeWriter<'w>,
    reader: PipeReader<'w>,
    data: Vec<u8>,
}

impl<'w> Piped<'w> {
    pub(super) fn new(me: &'w Worker, bytes: usize) -> Result<Self, BenchError> {
        let pipe = || me.pipe(me.neighbor(1)).width(WIDTH).message_bytes(bytes);
        let reader = pipe().reader()?;
        Ok(Self { writer: pipe().writer()?, reader, data: vec![0; bytes] })
    }
}

impl Exchange for Piped<'_> {
    #[inline]
    fn send(&mut self, number: u64) -> farside::Result<()> {
        stamp(&mut self.data, number);
        Ok(self.writer.write(&self.data)?)
    }

    #[inline]
    fn receive(&mut self, number: u64) -> farside::Result<()> {
        let message = self.reader.recv()?;
        check([message[0], message[message.len() - 1]], number)
    }
}

/// Pipes whose messages the reader fetches from the writer's buffer.
pub(super) struct Offered<'w> {
    writer: PipeWriter<'w>,
    reader: PipeReader<'w>,
    /// The buffers that are not under way.
    buffers: Vec<Registered>,
    data: Vec<u8>,
}

impl<'w> Offered<'w> {
    pub(super) fn new(me: &'w Worker, bytes: usize) -> Result<Self, BenchError> {
        // A message longer than the messages of the pipe is fetched, however short it is.
        let pipe = || me.pipe(me.neighbor(1)).width(WIDTH).message_bytes(0);
        let reader = pipe().reader()?;
        let buffers = (0..=WIDTH).map(|_| me.allocate(bytes)).collect::<Result<_, _>>()?;
        Ok(Self { writer: pipe().writer()?, reader, buffers, data: vec![0; bytes] })
    }
}

impl Exchange for Offered<'_> {
    #[inline]
    fn send(&mut self, number: u64) -> farside::Result<()> {
        while let Some(buffer) = self.writer.try_take_back()? {
            self.buffers.push(buffer);
        }
        let buffer = match self.buffers.pop() {
            None => self.writer.take_back()?,
            buffer => buffer,
        };
        let buffer = buffer.expect("what is not here is under way");
        let ends = [number as u8];
        buffer.write_at(0, &ends)?;
        buffer.write_at(self.data.len() - 1, &ends)?;
        Ok(self.writer.offer(buffer)?)
    }

    #[inline]
    fn receive(&mut self, number: u64) -> farside::Result<()> {
        self.reader.read(&mut self.data)?;
        check([self.data[0], self.data[self.data.len() - 1]], number)
    }
}

/// Writes the number of a message into its first and last byte.
pub(in crate::benches) fn stamp(data: &mut [u8], number: u64) {
    let last = data.len() - 1;
    data[0] = number as u8;
    data[last] = number as u8;
}

pub(in crate::benches) fn check(ends: [u8; 2], number: u64) -> farside::Result<()> {
    if ends == [number as u8; 2] {
        return Ok(());
    }
    let found = u64::from(u16::from_le_bytes(ends));
    Err(BenchError::WrongSum { what: "the ends of a message", expected: number & 0xff, found }.into())
}
