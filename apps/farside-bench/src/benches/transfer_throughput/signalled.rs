//! Puts from registered memory, one in a window of which is signalled: by hand, and by a
//! transmitter.

use std::time::Instant;

use farside::Worker;
use farside_fabric::memory::Growth;
use farside_fabric::{FabricError, LocalRegion, RemoteRegion};
use farside_transmit::{Circular, CircularOptions, Queue, QueueOptions, Span, Transmitter};

use super::MANUAL;
use super::ends::Ends;
use crate::kit::*;
use crate::limits::libfabric::Puts;

/// The depth of a queue for puts of `bytes` bytes. Puts under way should not fill the caches more
/// than necessary.
pub(super) fn depth(bytes: usize) -> usize {
    match bytes {
        ..=4096 => 256,
        4097..=65536 => 64,
        _ => 16,
    }
}

/// The number of puts for each signal: the window of a transmitter.
pub(super) fn window(bytes: usize) -> usize {
    depth(bytes) / 4
}

/// Number of pieces of memory to put from: three windows, so that one is filled while two are under
/// way.
pub(super) fn units(bytes: usize) -> usize {
    3 * window(bytes)
}

/// Makes puts from pieces of memory that are used in turn, one in a window of which is signalled.
pub(super) fn put_by_hand(
    queue: &Queue,
    memory: &LocalRegion,
    region: &RemoteRegion,
    puts: Puts,
    deadline: Instant,
) -> Result<(), FabricError> {
    let (window, units) = (window(puts.bytes) as u64, puts.under_way as u64);
    let own = memory.as_remote();
    for at in 0..puts.count {
        // The earlier put from the same memory must be complete.
        if at >= units && queue.completed() <= at - units {
            queue.wait((at - units + 1).next_multiple_of(window), deadline)?;
        }
        let offset = puts.offset(at) as u64;
        own.put(offset, &at.to_le_bytes(), deadline)?;
        let number = at + 1;
        let signal = (number.is_multiple_of(window) || number == puts.count).then_some(number);
        let from = Span::new(memory, offset, puts.bytes)?;
        while let Err(error) = queue.put(from, region, offset, signal) {
            let FabricError::QueueFull { .. } = error else { return Err(error) };
            queue.poll()?;
        }
    }
    queue.wait(puts.count, deadline)
}

/// Makes puts through a transmitter, which signals them.
pub(super) fn put_units(
    transmitter: &Transmitter,
    units: &mut Circular,
    region: &RemoteRegion,
    puts: Puts,
    deadline: Instant,
) -> Result<(), FabricError> {
    for at in 0..puts.count {
        let unit = units.take_by(deadline)?;
        unit.write(0, &at.to_le_bytes());
        transmitter.put_unit(&unit, 0..puts.bytes, region, puts.offset(at) as u64, deadline)?;
    }
    transmitter.flush(deadline)
}

/// Puts that are signalled by hand, from pieces of memory that are used in turn.
#[derive(Debug)]
pub(super) struct Manual {
    ends: Ends,
    memory: LocalRegion,
}

impl Manual {
    /// Connects two ends. Collective.
    pub(super) fn new(me: &Worker, fabric: Option<&OfiFabric>, puts: Puts) -> Result<Self, BenchError> {
        let ends = Ends::new(me, fabric, puts)?;
        let memory = ends.end.register(puts.area_bytes())?;
        Ok(Self { ends, memory })
    }
}

impl Yardstick for Manual {
    fn name(&self) -> &str {
        MANUAL
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        let puts = self.ends.puts;
        let region = self.ends.attach()?;
        let queue = Queue::open(&self.ends.end, self.ends.peer, QueueOptions { depth: depth(puts.bytes) })?;
        let deadline = self.ends.deadline();
        let start = Instant::now();
        put_by_hand(&queue, &self.memory, &region, puts, deadline)?;
        let elapsed = start.elapsed();
        self.ends.tell()?;
        Ok(puts.count as f64 / elapsed.as_secs_f64())
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        self.ends.attend()
    }
}

/// Puts through a transmitter, from the units of a circular allocator.
#[derive(Debug)]
pub(super) struct Auto {
    ends: Ends,
    units: Circular,
}

impl Auto {
    /// Connects two ends. Collective.
    pub(super) fn new(me: &Worker, fabric: Option<&OfiFabric>, puts: Puts) -> Result<Self, BenchError> {
        let ends = Ends::new(me, fabric, puts)?;
        let options = CircularOptions {
            unit_bytes: puts.bytes,
            units: puts.under_way,
            growth: Growth::Linear,
            units_max: puts.under_way,
        };
        let units = Circular::new(Box::new(ends.end.clone()), options);
        Ok(Self { ends, units })
    }
}

impl Yardstick for Auto {
    fn name(&self) -> &str {
        "automatic signalling"
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        let puts = self.ends.puts;
        let region = self.ends.attach()?;
        let options = QueueOptions { depth: depth(puts.bytes) };
        let transmitter = Transmitter::open(&self.ends.end, self.ends.peer, options)?;
        let deadline = self.ends.deadline();
        let start = Instant::now();
        put_units(&transmitter, &mut self.units, &region, puts, deadline)?;
        let elapsed = start.elapsed();
        self.ends.tell()?;
        Ok(puts.count as f64 / elapsed.as_secs_f64())
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        self.ends.attend()
    }
}
