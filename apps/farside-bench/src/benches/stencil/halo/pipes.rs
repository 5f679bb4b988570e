//! Rows through pipes.

use farside::Worker;
use farside::bytemuck::{cast_slice, cast_slice_mut};
use farside_kit::pipe::{PipeReader, PipeWriter};
use farside_kit::prelude::*;

use super::super::grid::{Grid, Side};
use super::neighbors;

/// Rows under way at a time. A neighbor may be one step ahead and no further, because it needs our
/// row for the next.
const WIDTH: usize = 2;

/// Pipes to the neighbors and from them.
#[derive(Debug)]
pub(in super::super) struct Pipes<'w> {
    /// The pipes by side; `None` at the border.
    ends: [Option<(PipeWriter<'w>, PipeReader<'w>)>; 2],
}

impl<'w> Pipes<'w> {
    /// Opens the pipes without waiting for a neighbor.
    pub(super) fn new(me: &'w Worker, size: usize) -> farside::Result<Self> {
        let [above, below] = neighbors(me).map(|peer| {
            let open = |peer| {
                let pipe = || me.pipe(peer).width(WIDTH).message_bytes(size * size_of::<f64>());
                // The reader comes first, because the writer asks for the reader's offer.
                let reader = pipe().reader()?;
                Ok::<_, farside::Error>((pipe().writer()?, reader))
            };
            peer.map(open).transpose()
        });
        Ok(Self { ends: [above?, below?] })
    }

    pub(super) fn begin(&mut self, grid: &Grid) -> farside::Result<()> {
        for (side, ends) in Side::BOTH.into_iter().zip(&mut self.ends) {
            if let Some((writer, _)) = ends {
                writer.write(cast_slice(grid.edge(side)))?;
            }
        }
        Ok(())
    }

    pub(super) fn end(&mut self, grid: &mut Grid) -> farside::Result<()> {
        for (side, ends) in Side::BOTH.into_iter().zip(&mut self.ends) {
            if let Some((_, reader)) = ends {
                reader.read(cast_slice_mut(grid.ghost(side)))?;
            }
        }
        Ok(())
    }
}
