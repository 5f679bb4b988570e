//! Null calls while another client moves 1 GiB. The server has threads, and all sides block.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};
use farside_rpc::bulk::{Bulk, Read, scope};
use farside_rpc::{Handling, Never, Server, Service, TransferError};

use super::{Over, address, connect, tokens};
use crate::kit::*;

const BYTES: usize = 1 << 30;
/// The bytes that the handler pulls at a time, and the number of such pieces under way.
const PIECE: usize = 1 << 20;
const WINDOW: usize = 4;
/// The calls that are timed while the other client is idle.
const ALONE_CALLS: u64 = 4000;

fn service() -> Service {
    Service::new("mover").procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number)).procedure(
        "drain",
        Handling::Pooled,
        |_, memory: Bulk<Read>| {
            let take = |_, piece: &[u8]| {
                black_box(piece);
                Ok::<_, TransferError>(())
            };
            memory.pipeline(PIECE, WINDOW, take).map_err(|error| error.to_string())
        },
    )
}

/// The time that 99 % of the calls do not exceed, compared with the same while the other client is
/// idle.
pub(super) fn compared(me: &Worker, options: Options, over: Over) -> Measured {
    let serving = WorkerId::new(1);
    let server = match me.id() == serving {
        true => {
            let builder = Server::builder().listen(address(over)).map_err(failed)?.tokens(tokens());
            Some(builder.provider(0, service()).pool(2).start().map_err(failed)?)
        }
        false => None,
    };
    let address: String = me.broadcast(serving, server.as_ref().map(|server| server.addresses()[0].to_string()))?;
    let mut clients = None;
    if me.is_first() {
        let [calling, moving] = [connect(&address, None, Duration::ZERO)?, connect(&address, None, Duration::ZERO)?];
        clients = Some((calling, moving.deadline(Duration::from_secs(120)), vec![3_u8; BYTES]));
    }
    let taken = in_turns(me, options, |_| {
        me.barrier()?;
        let mut found = Vec::new();
        if let Some((calling, moving, memory)) = &clients {
            let echo = calling.procedure::<u64, u64, Never>("mover", 0, "echo");
            let drain = moving.procedure::<Bulk<Read>, (), String>("mover", 0, "drain");
            let mut call = || {
                black_box(echo.call(&7).map_err(failed)?);
                Ok(())
            };
            let alone = time_batches(options.operations_or(ALONE_CALLS), ALONE, &mut call)?;
            let is_over = AtomicBool::new(false);
            let (moved, beside) = std::thread::scope(|threads| {
                let moved = threads.spawn(|| {
                    let start = Instant::now();
                    let moved = scope(|scope| drain.call(&scope.lend(memory))).map_err(failed);
                    is_over.store(true, Ordering::Relaxed);
                    moved.map(|()| BYTES as f64 / start.elapsed().as_secs_f64())
                });
                let mut times = Vec::new();
                let mut result: Result<(), BenchError> = Ok(());
                while !is_over.load(Ordering::Relaxed) && result.is_ok() {
                    result = time_batches(1, ALONE, &mut call).map(|time| times.extend(time));
                }
                (moved.join().expect("a transfer does not panic"), result.map(|()| times))
            });
            found = vec![quantile(&alone, 0.99), quantile(&beside?, 0.99), moved?];
        }
        me.barrier()?;
        Ok(found)
    })?;
    drop(server);
    Ok(taken.rows([
        column("rtt_p99_ns", "ns", 1).against("while the other client is idle", 0),
        column("bytes_per_s", "B/s", 2),
    ]))
}
