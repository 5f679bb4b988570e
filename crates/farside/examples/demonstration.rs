//! Seriema's Listing 1: each worker sends buffers to another, handles what comes while it does, tells worker 0 that it is done, waits until
//! that has run there, and shuts down.

use std::cell::Cell;

use farside::prelude::*;

const OPERATIONS: u64 = 10_000;
const BUFFER_BYTES: usize = 4096;

/// The user's function: fills some of a buffer, and says how much.
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
        // Where there is no room this waits for some, and handles what comes meanwhile: the listing's `Retry`. (`RetryAsync` is
        // `WhenFull::Queue`, which keeps calls here as far as a cap allows.) The buffer is free again at once.
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

    // No ring is set up for this one, since it goes through the lane of the process.
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
