//! Both directions at once.

use super::error::Result;
use super::reader::PipeReader;
use super::writer::{Delivery, PipeWriter};

/// A pipe that is written and read at both ends: one in each direction, of the same number and shape.
///
/// Made by [`Pipe::duplex`](super::Pipe::duplex), at both workers.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let mut pipe = me.pipe(me.neighbor(1)).duplex()?;
/// pipe.writer.write(b"to you")?;
/// assert_eq!(*pipe.reader.recv()?, *b"to you");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Duplex<'w> {
    /// What is written here is read there.
    pub writer: PipeWriter<'w>,
    /// What is written there is read here.
    pub reader: PipeReader<'w>,
}

impl Duplex<'_> {
    /// Closes both, and says what has become of what was written here: [`PipeWriter::close`], then [`PipeReader::close`].
    ///
    /// # Errors
    /// Those of both, the writer's first. Both are closed all the same.
    pub fn close(self) -> Result<Delivery> {
        let (delivery, told) = (self.writer.close(), self.reader.close());
        let delivery = delivery?;
        told.map(|()| delivery)
    }
}
