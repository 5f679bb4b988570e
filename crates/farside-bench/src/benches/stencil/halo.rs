//! How neighbors exchange the rows at their edges.

use farside::bytemuck::{cast_slice, cast_slice_mut};
use farside::pipe::{PipeReader, PipeWriter};
use farside::{Worker, WorkerId};

use super::grid::{Grid, Side};

/// Rows under way at a time: a neighbor may be one step ahead, and no further, since it needs our row for the next.
const WIDTH: usize = 2;

/// Pipes to the neighbors and from them: rows go into the neighbor's memory with a flag behind, which says that they are there. No
/// step waits for anybody else.
#[derive(Debug)]
pub(super) struct Halo<'w> {
    /// By side. `None` at the border.
    ends: [Option<(PipeWriter<'w>, PipeReader<'w>)>; 2],
}

impl<'w> Halo<'w> {
    /// Between workers that have the rows in the order of their numbers. Waits for nobody.
    pub(super) fn new(me: &'w Worker, size: usize) -> farside::Result<Self> {
        let open = |peer: u32| {
            let pipe = || me.pipe(WorkerId::new(peer)).width(WIDTH).message_bytes(size * size_of::<f64>());
            // The reader first: what it offers is what the other end asks for.
            let reader = pipe().reader()?;
            Ok::<_, farside::Error>((pipe().writer()?, reader))
        };
        let number = me.id().number();
        let above = number.checked_sub(1).map(open).transpose()?;
        let below = Some(number + 1).filter(|below| *below < me.worker_count()).map(open).transpose()?;
        Ok(Self { ends: [above, below] })
    }

    /// Sends the rows at the edges.
    pub(super) fn begin(&mut self, grid: &Grid) -> farside::Result<()> {
        for (side, ends) in Side::BOTH.into_iter().zip(&mut self.ends) {
            if let Some((writer, _)) = ends {
                writer.write(cast_slice(grid.edge(side)))?;
            }
        }
        Ok(())
    }

    /// Waits for the rows of the neighbors.
    pub(super) fn end(&mut self, grid: &mut Grid) -> farside::Result<()> {
        for (side, ends) in Side::BOTH.into_iter().zip(&mut self.ends) {
            if let Some((_, reader)) = ends {
                reader.read(cast_slice_mut(grid.ghost(side)))?;
            }
        }
        Ok(())
    }

    /// How many neighbors there are.
    pub(super) fn neighbors(&self) -> usize {
        self.ends.iter().flatten().count()
    }
}
