//! Puts, gets and copies.

use std::hint::black_box;
use std::time::Instant;

use farside::{AccessBytes, GlobalAddress, GlobalPtr, MakeArrays, MoveMemory, Order, ProcessId, Worker};

use super::{METRIC, bytes_per_s, count, in_turns, time};
use crate::kit::*;

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferKind {
    Put,
    Get,
    ThirdParty,
    /// A put that is started and completed later.
    StartedPut,
    /// A get that is started and completed later.
    StartedGet,
}

const BELOW: &str = "copy into the mapping";
const MEMCPY: &str = "memcpy";

impl TransferKind {
    pub(super) const WAITING: [Self; 3] = [Self::Put, Self::Get, Self::ThirdParty];
    pub(super) const STARTED: [Self; 2] = [Self::StartedPut, Self::StartedGet];

    pub(super) fn name(self) -> &'static str {
        match self {
            TransferKind::Put => "local-remote",
            TransferKind::Get => "remote-local",
            TransferKind::ThirdParty => "remote-remote",
            TransferKind::StartedPut => "start-put",
            TransferKind::StartedGet => "start-get",
        }
    }

    pub(super) fn processes(self) -> u32 {
        if self == Self::ThirdParty { 3 } else { 2 }
    }

    /// Measures it against a copy into a mapping, and `memcpy`. Collective.
    pub(super) fn measure(self, me: &Worker, bytes: usize, options: Options) -> Measured {
        let values = me.symmetric::<u8>(bytes)?;
        let at = |process: u32| values.at(ProcessId::new(process)).map(|values| values.start().address());
        // The source and the target.
        let (near, far) = (at(1)?, at(self.processes() - 1)?);
        let below = Shared::new(me, bytes)?;
        let mut transfer = Transfer { me, way: self, source: near, target: far, data: vec![1; bytes] };
        let mut copies = Copies { below, source: vec![1; bytes], target: vec![2; bytes] };
        let count = count(bytes, options);
        let taken = in_turns(me, options, || {
            let (ns, below_ns) = (transfer.time(count)?, copies.time_below(self, count)?);
            let rates = [ns, copies.time_memcpy(count)?].map(|ns| bytes_per_s(bytes, ns));
            Ok(vec![ns, below_ns, rates[0], rates[1]])
        })?;
        values.free(me)?;
        Ok(taken.rows([
            column(METRIC, "ns", 0).against(BELOW, 1).if_measured(self != Self::ThirdParty),
            column("bytes_per_s", "B/s", 2).against(MEMCPY, 3),
        ]))
    }
}

/// Largest data that the call copies. The buffer of larger data moves into the call.
const COPIED_BYTES_MAX: usize = 64;

/// A transfer that is repeated.
pub(super) struct Transfer<'w> {
    pub(super) me: &'w Worker,
    pub(super) way: TransferKind,
    pub(super) source: GlobalAddress,
    pub(super) target: GlobalAddress,
    pub(super) data: Vec<u8>,
}

impl Transfer<'_> {
    /// Returns the time of one transfer.
    pub(super) fn time(&mut self, count: u64) -> Result<f64, BenchError> {
        let Self { me, way, source, target, data } = self;
        let (me, bytes) = (*me, data.len());
        match way {
            // A number is put as a number.
            TransferKind::Put if bytes == 8 => {
                let target: GlobalPtr<u64> = target.cast();
                time(count, bytes, || Ok(black_box(target).put(me, black_box(7))?))
            }
            TransferKind::Get if bytes == 8 => {
                let source: GlobalPtr<u64> = source.cast();
                time(count, bytes, || {
                    black_box(black_box(source).get(me)?);
                    Ok(())
                })
            }
            TransferKind::Put => time(count, bytes, || Ok(me.put_bytes(*target, black_box(data))?)),
            TransferKind::Get => time(count, bytes, || Ok(me.get_bytes(*source, black_box(data))?)),
            TransferKind::ThirdParty => time(count, bytes, || {
                let copied = me.copy(*target, *source, bytes as u64, Order::None)?;
                Ok(me.complete(copied)?)
            }),
            TransferKind::StartedPut if bytes <= COPIED_BYTES_MAX => time(count, bytes, || {
                let started = me.start_put(*target, black_box(data), Order::None)?;
                Ok(me.complete(started)?)
            }),
            TransferKind::StartedPut => time(count, bytes, || {
                let started = me.start_put_owned(*target, std::mem::take(data), Order::None);
                *data = started.map_err(|refused| refused.error)?.take(me)?;
                Ok(())
            }),
            TransferKind::StartedGet => time(count, bytes, || {
                let started = me.start_get(*source, std::mem::take(data), Order::None);
                *data = started.map_err(|refused| refused.error)?.take(me)?;
                Ok(())
            }),
        }
    }
}

/// The limit: copies without a look-up of an address.
struct Copies {
    below: Shared,
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Copies {
    fn time_below(&mut self, way: TransferKind, count: u64) -> Result<f64, BenchError> {
        // The deadline does not matter where memory is mapped.
        let (deadline, bytes, region) = (Instant::now(), self.source.len(), self.below.bytes());
        match way {
            TransferKind::Put if bytes == 8 => {
                time(count, bytes, || Ok(black_box(region).put(0, &black_box(7_u64).to_ne_bytes(), deadline)?))
            }
            TransferKind::Get if bytes == 8 => time(count, bytes, || {
                let mut word = [0; 8];
                black_box(region).get(0, &mut word, deadline)?;
                black_box(word);
                Ok(())
            }),
            TransferKind::Get => time(count, bytes, || Ok(region.get(0, black_box(&mut self.target), deadline)?)),
            TransferKind::Put | TransferKind::ThirdParty | TransferKind::StartedPut | TransferKind::StartedGet => {
                time(count, bytes, || Ok(region.put(0, black_box(&self.source), deadline)?))
            }
        }
    }

    fn time_memcpy(&mut self, count: u64) -> Result<f64, BenchError> {
        time(count, self.source.len(), || {
            black_box(&mut self.target[..]).copy_from_slice(black_box(&self.source));
            Ok(())
        })
    }
}

/// Measures an operation that is started and completed, compared with one that waits. Collective.
pub(super) fn started(me: &Worker, way: TransferKind, bytes: usize, options: Options) -> Measured {
    let values = me.symmetric::<u8>(bytes)?;
    let there = values.at(ProcessId::new(1))?.start().address();
    let (waiting, limit) = match way {
        TransferKind::Get | TransferKind::StartedGet => (TransferKind::Get, "a get that waits"),
        TransferKind::Put | TransferKind::StartedPut | TransferKind::ThirdParty => {
            (TransferKind::Put, "a put that waits")
        }
    };
    let new = |way| Transfer { me, way, source: there, target: there, data: vec![1; bytes] };
    let (mut starts, mut waits) = (new(way), new(waiting));
    let count = count(bytes, options);
    let taken = in_turns(me, options, || Ok(vec![starts.time(count)?, waits.time(count)?]))?;
    values.free(me)?;
    Ok(taken.rows([column(METRIC, "ns", 0).against(limit, 1)]))
}
