//! Transfers that are longer than the system moves by one call.

use std::sync::{Arc, Mutex};

use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::{Handling, Service};

use farside_testbed::deadline;

use crate::{paths, start};

/// 2.5 GiB.
const BYTES: usize = 5 << 29;
const BLOCK: usize = 1 << 16;

/// The bytes of block `index`: its number, repeated, with the seed.
fn block(index: usize, seed: usize) -> [u8; BLOCK] {
    let word = (index * 1000 + seed).to_le_bytes();
    let mut block = [0; BLOCK];
    block.as_chunks_mut().0.fill(word);
    block
}

fn fill(bytes: &mut [u8], seed: usize) {
    bytes.chunks_mut(BLOCK).enumerate().for_each(|(index, part)| part.copy_from_slice(&block(index, seed)));
}

#[track_caller]
fn check(bytes: &[u8], seed: usize) {
    assert_eq!(bytes.len(), BYTES);
    let wrong = bytes.chunks(BLOCK).enumerate().find(|(index, part)| **part != block(*index, seed));
    assert!(wrong.is_none(), "block {:?} is wrong", wrong.map(|(index, _)| index));
}

/// A handler pulls all bytes by one call, and pushes others.
fn service() -> Service {
    let room = Arc::new(Mutex::new(vec![0; BYTES]));
    let pulled = room.clone();
    Service::new("huge")
        .procedure("pull", Handling::Pooled, move |_, (memory, seed): (Bulk<Read>, u64)| {
            let mut room = pulled.lock().unwrap();
            memory.pull(0, &mut room).map_err(|error| error.to_string())?;
            check(&room, seed as usize);
            Ok::<_, String>(())
        })
        .procedure("push", Handling::Pooled, move |_, (memory, seed): (Bulk<Write>, u64)| {
            let mut room = room.lock().unwrap();
            fill(&mut room, seed as usize);
            memory.push(0, &room).map_err(|error| error.to_string())
        })
}

mod deep {
    use super::*;

    /// It takes half a minute and 5.5 GiB of memory.
    #[test]
    fn more_than_two_gib_are_moved_at_once() {
        for address in paths() {
            let (server, client) = start(address, |builder| builder.pool(1).provider(0, service()));
            let pull = client.procedure::<(Bulk<Read>, u64), (), String>("huge", 0, "pull");
            let push = client.procedure::<(Bulk<Write>, u64), (), String>("huge", 0, "push");
            let mut room = vec![0; BYTES];
            fill(&mut room, 1);
            scope(|scope| pull.call(&(scope.lend(&room), 1))).unwrap();
            scope(|scope| push.call(&(scope.lend_mut(&mut room), 2))).unwrap();
            check(&room, 2);
            drop(room);
            let mapped = Memory::new(BYTES).unwrap();
            (0..BYTES / BLOCK).for_each(|index| mapped.write(index * BLOCK, &block(index, 3)).unwrap());
            pull.call(&(mapped.to_read(0..BYTES).unwrap(), 3)).unwrap();
            push.call(&(mapped.to_write(0..BYTES).unwrap(), 4)).unwrap();
            let mut found = [0; BLOCK];
            for index in 0..BYTES / BLOCK {
                mapped.read(index * BLOCK, &mut found).unwrap();
                assert!(found == block(index, 4), "block {index} is wrong");
            }
            drop((client, pull, push));
            server.shutdown(deadline()).unwrap();
        }
    }
}
