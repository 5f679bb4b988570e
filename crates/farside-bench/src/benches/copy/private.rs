//! Memory that its owner has registered, and that nobody maps.

use std::hint::black_box;

use farside::{ProcessId, Worker, WorkerId};
use farside_sys::process_memory;

use super::transfers::{Transfer, Way};
use super::{METRIC, count, in_turns, time};
use crate::metric::Metric;
use crate::{BenchError, Options};

const LIMIT: &str = "process_vm_readv";
/// A system call takes some hundred nanoseconds: as many operations as of so many bytes.
const CALL_BYTES: usize = 4096;

/// A vector of process 1, beside the system call. Collective.
pub(super) fn measure(me: &Worker, way: Way, bytes: usize, options: Options) -> Result<Vec<Metric>, BenchError> {
    let owner = WorkerId::new(1);
    let segment = if me.id() == owner { Some(me.register(vec![1_u8; bytes])?) } else { None };
    let own = segment.as_ref().map(|segment| {
        let address = segment.slice().start().address();
        let place = me.local_address(address).map_or(0, |place| place.addr() as u64);
        (address, std::process::id(), place)
    });
    let (address, pid, place) = me.broadcast(owner, own)?;
    debug_assert_eq!(address.process(), Some(ProcessId::new(1)), "it is the owner's");
    let mut transfer = Transfer { me, way, source: address, target: address, data: vec![1; bytes] };
    let mut data = vec![0_u8; bytes];
    let count = count(bytes.max(CALL_BYTES), options);
    let [times, calls] = in_turns(me, options, || {
        let ns = transfer.time(count)?;
        let call = time(count, bytes, || {
            let read = process_memory::read(pid as i32, place as usize, black_box(&mut data));
            let refused = |cause| BenchError::System { doing: "reading", path: "another process".into(), cause };
            read.map(drop).map_err(refused)
        })?;
        Ok([ns, call])
    })?;
    if let Some(segment) = segment {
        segment.deregister(me)?;
    }
    Ok(vec![Metric::new(METRIC, "ns", times).against(LIMIT, calls)])
}
