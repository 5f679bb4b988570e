//! Seriema's Listing 1. Each worker sends buffers to another and serves calls meanwhile. Then it
//! reports to worker 0, waits until that report has run, and shuts down.

use std::cell::Cell;

use farside::prelude::*;

const OPERATIONS: u64 = 10_000;
const BUFFER_BYTES: usize = 4096;

/// The user's function: fills a part of a buffer and returns its length.
fn fill_data(operation: u64, buffer: &mut [u8]) -> usize {
    let filled = 1 + (operation as usize * 37) % buffer.len();
    buffer[..filled].fill(operation as u8);
    filled
}

fn demonstration(me: &Worker) -> farside::Result<()> {
    let bytes_received = PerWorker::new(me, Cell::new(0_u64))?;
    let destination = me.neighbor(1);
    let mut buffer = [0; BUFFER_BYTES];
    let mut bytes_sent = 0;
    let executed = me.synchronizer(OPERATIONS as u32)?;
    for operation in 0..OPERATIONS {
        let filled = fill_data(operation, &mut buffer);
        bytes_sent += filled as u64;
        // Without room, this call waits and serves others: the listing's `Retry`. (`RetryAsync` is
        // `WhenFull::Queue`, which queues calls here up to a cap.) The buffer may be reused at
        // once.
        me.to(destination).notify(&executed, On::Executed).call_buffer(
            (bytes_received, operation),
            &buffer[..filled],
            |there, (bytes_received, operation), buffer| {
                assert!(buffer.iter().all(|byte| *byte == operation as u8), "all bytes are as they were filled");
                let received = bytes_received.here(there);
                received.set(received.get() + buffer.len() as u64);
            },
        )?;
        if operation % 128 == 0 {
            me.progress()?;
        }
    }
    executed.wait()?;

    // This call needs no ring of its own: it goes through the shared ring of the process.
    let told = me.synchronizer(1)?;
    me.to(WorkerId::new(0)).send_based().notify(&told, On::Executed).call(
        (me.id(), bytes_sent),
        |_, (from, bytes)| {
            println!("{from} sent {bytes} bytes");
        },
    )?;
    told.wait()?;
    me.barrier()?;
    assert_eq!(bytes_received.here(me).get(), bytes_sent, "all workers send as much");
    me.shutdown_all()
}

fn main() -> farside::Result<()> {
    farside::job().processes(2).threads_per_process(2).run(demonstration)
}
