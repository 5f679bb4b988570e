//! Both directions at once.

use super::reader::PipeReader;
use super::writer::PipeWriter;

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
