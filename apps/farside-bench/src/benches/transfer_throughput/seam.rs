//! Puts through the seam of all transports. Each has a buffer of its own, which returns when the
//! put has ended.

use std::collections::VecDeque;
use std::time::Instant;

use farside::Worker;
use farside_fabric::{Completion, Operation, Outcome};

use super::ends::Ends;
use crate::kit::*;
use crate::limits::libfabric::Puts;

/// A stream of such puts.
#[derive(Debug)]
pub(super) struct Seam {
    ends: Ends,
    buffers: Vec<Vec<u8>>,
}

impl Seam {
    /// Connects two ends. Collective.
    pub(super) fn new(me: &Worker, fabric: &OfiFabric, puts: Puts) -> Result<Self, BenchError> {
        let ends = Ends::new(me, Some(fabric), puts)?;
        Ok(Self { ends, buffers: vec![vec![1; puts.bytes]; puts.under_way] })
    }

    /// Waits for the oldest put, and takes its buffer back.
    fn take_back(&self, posted: &mut VecDeque<Completion>) -> Result<Vec<u8>, BenchError> {
        let oldest = posted.pop_front().expect("every buffer is here or under way");
        let outcome = self.ends.patience.wait_for(|| {
            let outcome = oldest.try_take();
            if outcome.is_none() {
                self.ends.end.progress();
            }
            outcome
        })?;
        match outcome? {
            Outcome::Put(data) => Ok(data),
            Outcome::Got(_) | Outcome::Previous(_) => unreachable!("a put ends as a put"),
        }
    }
}

impl Yardstick for Seam {
    fn name(&self) -> &str {
        "puts through the seam"
    }

    fn measure(&mut self) -> Result<f64, BenchError> {
        let Puts { count, under_way, .. } = self.ends.puts;
        let key = self.ends.attach()?.key();
        let mut posted: VecDeque<Completion> = VecDeque::with_capacity(under_way);
        let start = Instant::now();
        for at in 0..count {
            let mut data = match self.buffers.pop() {
                Some(data) => data,
                None => self.take_back(&mut posted)?,
            };
            data[..8].copy_from_slice(&at.to_le_bytes());
            let offset = self.ends.puts.offset(at) as u64;
            posted.push_back(self.ends.end.post(key, Operation::Put { offset, data })?);
        }
        while !posted.is_empty() {
            let data = self.take_back(&mut posted)?;
            self.buffers.push(data);
        }
        let elapsed = start.elapsed();
        self.ends.tell()?;
        Ok(count as f64 / elapsed.as_secs_f64())
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        self.ends.attend()
    }
}
