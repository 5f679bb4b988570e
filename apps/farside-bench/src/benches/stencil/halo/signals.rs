//! Rows put into the memory of the neighbors, with ready flags.

use std::collections::VecDeque;

use farside::bytemuck::cast_slice;
use farside::global::Symmetric;
use farside::{
    AccessBytes, Comparison, GlobalPtr, GlobalSlice, Incoming, MakeArrays, MoveMemory, Order, Signal, Until, Worker,
};

use super::super::grid::{Grid, Side};
use super::neighbors;

/// Bytes of a flag, with the next line: lines are fetched in pairs.
const FLAG_DISTANCE: usize = 32;
/// Rows from each neighbor. It may be one step ahead and no further, because it needs our row for
/// the next.
const ROWS: usize = 2;

/// Memory that the neighbors put their rows into. Each row has a flag: the number of the step whose
/// row is ready.
pub(in super::super) struct Signals<'w> {
    me: &'w Worker,
    size: usize,
    rows: Symmetric<f64>,
    flags: Symmetric<u64>,
    /// The neighbors by side; `None` at the border.
    neighbors: [Option<Neighbor>; 2],
    /// Number of steps so far.
    step: u64,
}

struct Neighbor {
    /// The place of our rows, and the flag that announces them.
    rows: [GlobalSlice<f64>; ROWS],
    flag: GlobalPtr<u64>,
    /// The flag that the neighbor raises here.
    ready: GlobalPtr<u64>,
    /// True if puts and signals are plain stores.
    is_mapped: bool,
    /// The last rows sent, each with its flag.
    under_way: VecDeque<Incoming<Vec<u8>>>,
}

impl<'w> Signals<'w> {
    /// Allocates the memory. Collective.
    pub(super) fn new(me: &'w Worker, size: usize) -> farside::Result<Self> {
        let rows = me.symmetric::<f64>(Side::BOTH.len() * ROWS * size)?;
        let flags = me.symmetric::<u64>(Side::BOTH.len() * FLAG_DISTANCE)?;
        let [above, below] = neighbors(me);
        let neighbor = |side: Side, peer: Option<_>| {
            let of = |peer| {
                let process = me.process_of(peer);
                // At the neighbor this process is on the opposite side.
                let row = |number| {
                    let first = first_of(side.opposite(), number, size);
                    rows.at(process)?.part(first..first + size)
                };
                let rows = [row(0)?, row(1)?];
                let flag = flags.at(process)?.at(side.opposite().index() * FLAG_DISTANCE)?;
                let ready = flags.at(me.process())?.at(side.index() * FLAG_DISTANCE)?;
                let is_mapped = me.is_mapped(flag.address())? && me.is_mapped(rows[0].start().address())?;
                Ok::<_, farside::Error>(Neighbor { rows, flag, ready, is_mapped, under_way: VecDeque::new() })
            };
            peer.map(of).transpose()
        };
        let neighbors = [neighbor(Side::Above, above)?, neighbor(Side::Below, below)?];
        Ok(Self { me, size, rows, flags, neighbors, step: 0 })
    }

    pub(super) fn begin(&mut self, grid: &Grid) -> farside::Result<()> {
        self.step += 1;
        for (side, neighbor) in Side::BOTH.into_iter().zip(&mut self.neighbors) {
            if let Some(neighbor) = neighbor {
                neighbor.send(self.me, grid.edge(side), self.step)?;
            }
        }
        Ok(())
    }

    pub(super) fn end(&mut self, grid: &mut Grid) -> farside::Result<()> {
        for (side, neighbor) in Side::BOTH.into_iter().zip(&self.neighbors) {
            if let Some(neighbor) = neighbor {
                neighbor.until(self.step).wait(self.me)?;
                let first = first_of(side, self.step as usize % ROWS, self.size);
                self.rows.here().read(first, grid.ghost(side));
            }
        }
        Ok(())
    }

    /// Allocates the memory. Collective.
    pub(super) fn free(mut self) -> farside::Result<()> {
        for neighbor in self.neighbors.iter_mut().flatten() {
            while neighbor.take_back(self.me)?.is_some() {}
        }
        self.rows.free(self.me)?;
        self.flags.free(self.me)
    }
}

impl Neighbor {
    /// Sends a row and raises the flag. Operations that do not complete at once go on while this
    /// worker computes.
    fn send(&mut self, me: &Worker, row: &[f64], step: u64) -> farside::Result<()> {
        let there = self.rows[step as usize % ROWS];
        if self.is_mapped {
            return there.put_signal(me, 0, row, self.flag, Signal::Set(step));
        }
        // The earlier row in this place has arrived, because the neighbor has answered it.
        let mut buffer = if self.under_way.len() < ROWS { Vec::new() } else { self.take_back(me)?.unwrap_or_default() };
        buffer.clear();
        buffer.extend_from_slice(cast_slice(row));
        // A flag must not overtake the one before.
        let order = self.under_way.back().map_or(Order::None, |last| Order::After(last.handle()));
        let sent = me.start_put_signal(there.start().address(), buffer, self.flag, Signal::Set(step), order);
        self.under_way.push_back(sent.map_err(|refused| refused.error)?);
        Ok(())
    }

    /// Returns the buffer of the row that was sent first.
    fn take_back(&mut self, me: &Worker) -> farside::Result<Option<Vec<u8>>> {
        self.under_way.pop_front().map(|sent| sent.take(me)).transpose()
    }

    /// Returns the flag of the row of a step.
    fn until(&self, step: u64) -> Until<u64> {
        let until = self.ready.until(Comparison::Ge, step);
        self.flag.process().map_or(until, |process| until.signalled_by(process))
    }
}

/// Returns the offset of the row from a neighbor.
fn first_of(side: Side, number: usize, size: usize) -> usize {
    (side.index() * ROWS + number) * size
}
