//! Messages through pipes.

use farside::Worker;
use farside::pipe::{PipeReader, PipeWriter};

use super::Exchange;
use crate::BenchError;

/// A pipe there and one back.
#[derive(Debug)]
pub(super) struct Piped<'w> {
    writer: PipeWriter<'w>,
    reader: PipeReader<'w>,
    data: Vec<u8>,
}

impl<'w> Piped<'w> {
    pub(super) fn new(me: &'w Worker, bytes: usize) -> Result<Self, BenchError> {
        let pipe = || me.pipe(me.neighbor(1)).width(2).message_bytes(bytes);
        let reader = pipe().reader()?;
        Ok(Self { writer: pipe().writer()?, reader, data: vec![0; bytes] })
    }
}

impl Exchange for Piped<'_> {
    #[inline]
    fn send(&mut self, number: u64) -> farside::Result<()> {
        stamp(&mut self.data, number);
        self.writer.write(&self.data)
    }

    #[inline]
    fn receive(&mut self, number: u64) -> farside::Result<()> {
        let message = self.reader.recv()?;
        check([message[0], message[message.len() - 1]], number)
    }
}

/// Messages carry their number in their first and their last byte.
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
