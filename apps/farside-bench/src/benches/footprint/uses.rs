//! Memory of registered memory, pipes and heaps, each in a job that uses nothing else.

use farside::{RegisterMemory, Worker};
use farside_kit::heap::{HeapOptions, RemoteHeap};
use farside_kit::prelude::*;

use super::{each_peer, mean};
use crate::kit::*;
use crate::limits::libfabric::exchange;
use crate::resident::Resident;

/// Bytes that each process registers.
const WORDS: usize = 512;
const HEAP_BYTES: u64 = 64 << 10;
/// Bytes of a block of the heap.
const BLOCK_BYTES: u64 = 64;

/// A facility that each process uses with each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) name: &'static str,
    pub(super) metric: &'static str,
    /// Uses it, and returns the memory of this process then.
    memory: fn(&Worker) -> Result<u64, BenchError>,
}

impl Use {
    pub(super) const ALL: [Self; 3] = [
        // The process reads 4 KiB of a vector of the other by its global address.
        Self { name: "registered", metric: "registered_bytes", memory: registered },
        // A pipe of the usual shape in each direction, through which a message has gone.
        Self { name: "pipe", metric: "pipe_bytes", memory: pipes },
        // A heap of 64 KiB at the other, with a block that was written.
        Self { name: "heap", metric: "heap_bytes", memory: heaps },
    ];

    /// Measures one job. Worker 0 returns the metrics.
    pub(super) fn measure(self, me: &Worker) -> Measured {
        let before = Resident::of_this_process()?.data_bytes;
        me.barrier()?;
        let after = (self.memory)(me)?;
        let [before, after] = [mean(me, before)?, mean(me, after)?];
        Ok(vec![Metric::new(self.metric, "B", vec![after]).against("before that", vec![before])])
    }
}

/// Returns this process's memory after every process has come here.
fn look(me: &Worker) -> Result<u64, BenchError> {
    me.barrier()?;
    let bytes = Resident::of_this_process()?.data_bytes;
    me.barrier()?;
    Ok(bytes)
}

fn registered(me: &Worker) -> Result<u64, BenchError> {
    let own = me.register(vec![u64::from(me.id().number()); WORDS])?;
    let all = exchange(me, own.slice().at(WORDS - 1)?)?;
    for peer in each_peer(me) {
        check("the registered memory of a peer", peer.number(), all[peer.index()].get(me)?)?;
    }
    let bytes = look(me)?;
    own.deregister(me)?;
    Ok(bytes)
}

fn pipes(me: &Worker) -> Result<u64, BenchError> {
    let mut readers = each_peer(me).map(|peer| me.pipe(peer).reader()).collect::<Result<Vec<_>, _>>()?;
    let mut writers = each_peer(me).map(|peer| me.pipe(peer).writer()).collect::<Result<Vec<_>, _>>()?;
    for writer in &mut writers {
        writer.write(&u64::from(me.id().number()).to_le_bytes())?;
    }
    for (peer, reader) in each_peer(me).zip(&mut readers) {
        let mut number = [0; 8];
        reader.read(&mut number)?;
        check("a message of a peer", peer.number(), u64::from_le_bytes(number))?;
    }
    look(me)
}

fn heaps(me: &Worker) -> Result<u64, BenchError> {
    let open = |peer| RemoteHeap::open(me, peer, HeapOptions::new(HEAP_BYTES));
    let heaps = each_peer(me).map(open).collect::<Result<Vec<_>, _>>()?;
    for heap in &heaps {
        let mut block = heap.alloc(BLOCK_BYTES)?;
        block.local_mut().fill(1);
        block.put()?;
    }
    let bytes = look(me)?;
    heaps.into_iter().try_for_each(RemoteHeap::close)?;
    Ok(bytes)
}

fn check(what: &'static str, expected: u32, found: u64) -> Result<(), BenchError> {
    let expected = u64::from(expected);
    if expected == found { Ok(()) } else { Err(BenchError::WrongSum { what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use farside::WorkerId;

    use super::*;

    #[test]
    fn each_use_has_its_row() {
        for what in Use::ALL {
            let result = farside::simulate(4, 1, 1, |me| {
                let metrics = what.measure(me)?;
                assert_eq!((metrics.len(), &*metrics[0].name), (1, what.metric));
                // The other processes do not know the size.
                let is_first = me.id() == WorkerId::new(0);
                assert_eq!(is_first, metrics[0].samples[0] > 0.0, "{metrics:?}");
                Ok(())
            });
            result.unwrap_or_else(|error| panic!("{what:?}: {error}"));
        }
    }
}
