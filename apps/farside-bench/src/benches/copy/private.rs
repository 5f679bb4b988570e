//! Memory that its owner has registered and that no other process maps.

use std::hint::black_box;

use farside::{AccessBytes, ProcessId, RegisterMemory, Worker, WorkerId};
use farside_sys::process_memory;

use super::transfers::{Transfer, TransferKind};
use super::{METRIC, count, in_turns, time};
use crate::kit::*;

const READ: &str = "process_vm_readv";
/// The limit of a put writes into its own process. Only the library writes into another.
const WRITE: &str = "process_vm_writev to oneself";
/// Bytes that take as long to copy as a system call, some hundred nanoseconds.
const CALL_BYTES: usize = 4096;

/// Measures access to a vector of process 1, compared with the system call that does the same.
/// Collective.
pub(super) fn measure(me: &Worker, way: TransferKind, bytes: usize, options: Options) -> Measured {
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
    let (mut data, mut own) = (vec![0_u8; bytes], vec![1_u8; bytes]);
    let limit = if way == TransferKind::Get { READ } else { WRITE };
    let count = count(bytes.max(CALL_BYTES), options);
    let taken = in_turns(me, options, || {
        let ns = transfer.time(count)?;
        let refused = |cause| BenchError::System { doing: "reaching", path: "another process".into(), cause };
        let call = time(count, bytes, || {
            let moved = match way {
                TransferKind::Get => process_memory::read(pid as i32, place as usize, black_box(&mut data)),
                _ => process_memory::write_here(black_box(&mut own), black_box(&data)),
            };
            moved.map(drop).map_err(refused)
        })?;
        Ok(vec![ns, call])
    })?;
    if let Some(segment) = segment {
        segment.deregister(me)?;
    }
    Ok(taken.rows([column(METRIC, "ns", 0).against(limit, 1)]))
}
