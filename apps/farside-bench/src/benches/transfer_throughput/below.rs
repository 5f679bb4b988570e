//! The layer below a put where memory is mapped: a copy.

use std::time::Instant;

use farside::Worker;

use super::COPIES;
use crate::kit::*;
use crate::limits::libfabric::Puts;

/// Copies from private memory into memory that both processes map.
#[derive(Debug)]
pub(super) struct Copies {
    puts: Puts,
    there: Shared,
    here: Vec<u8>,
}

impl Copies {
    /// Allocates the memory. Collective.
    pub(super) fn new(me: &Worker, puts: Puts) -> Result<Self, BenchError> {
        let there = Shared::new(me, puts.area_bytes())?;
        Ok(Self { puts, there, here: vec![1; puts.area_bytes()] })
    }
}

impl Yardstick for Copies {
    fn name(&self) -> &str {
        COPIES
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        let deadline = Instant::now();
        let start = Instant::now();
        for at in 0..self.puts.count {
            let offset = self.puts.offset(at);
            let bytes = &mut self.here[offset..offset + self.puts.bytes];
            bytes[..8].copy_from_slice(&at.to_le_bytes());
            self.there.bytes().put(offset as u64, bytes, deadline)?;
        }
        Ok(self.puts.count as f64 / start.elapsed().as_secs_f64())
    }
}
