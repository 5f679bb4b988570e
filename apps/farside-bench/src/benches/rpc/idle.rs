//! Open connections that are idle: what they cost, and how much longer a call takes while they are
//! open.

use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};
use farside_rpc::{Never, Server};
use farside_sys::process::cpu_time_used;

use super::{BLOCKED_TRIPS, Ends, Over, SPIN, SPUN_TRIPS, Wait, address, connect, connect_all, limit_of, tokens};
use crate::kit::*;
use crate::resident::Resident;

/// The connections whose cost is measured, and the time for which they are left alone.
const COUNT: usize = 1000;
const ALONE: Duration = Duration::from_secs(1);

/// A null call while other connections are open and idle.
pub(super) fn compared(me: &Worker, options: Options, over: Over, idle: usize) -> Measured {
    let mut limit = limit_of(me, over, Wait::SPIN)?;
    farside_sys::limits::raise_max_open_files();
    let mut ends = Ends::new(me, over, SPIN)?;
    let _idle = connect_all(&mut ends, idle)?;
    let count = options.operations_or(if over == Over::Tcp { BLOCKED_TRIPS } else { SPUN_TRIPS });
    let taken = in_turns(me, options, |_| {
        let limit_ns = once(me, &mut *limit)?;
        me.barrier()?;
        let latency = ends.measure(|client| {
            let echo = client.procedure::<u64, u64, Never>("bench", 0, "echo");
            time_latency(count, || {
                black_box(echo.call(&7).map_err(failed)?);
                Ok(())
            })
        })?;
        Ok([limit_ns, latency.median_ns])
    })?;
    Ok(taken.rows([column("rtt_ns", "ns", 1).against(limit.name(), 0)]))
}

/// The bytes of memory and the descriptors of this process.
fn possessions() -> Result<[f64; 2], BenchError> {
    let path = "/proc/self/fd";
    let open = fs::read_dir(path).map_err(|cause| BenchError::System { doing: "reading", path: path.into(), cause })?;
    Ok([Resident::of_this_process()?.data_bytes as f64, open.count() as f64])
}

/// The cost of a connection for each side when it has carried a call and is idle. The server has
/// threads of its own, as most have.
pub(super) fn cost(me: &Worker, options: Options, over: Over) -> Measured {
    farside_sys::limits::raise_max_open_files();
    let serves = me.id() == WorkerId::new(1);
    let start = || Server::builder().listen(address(over)).map_err(failed)?.tokens(tokens()).start().map_err(failed);
    let server = if serves { Some(start()?) } else { None };
    let address: String = me.broadcast(WorkerId::new(1), server.as_ref().map(|one| one.addresses()[0].to_string()))?;
    let connect_and_call = || {
        let client = connect(&address, None, Duration::ZERO)?;
        client.ping(7).map_err(failed)?;
        Ok::<_, BenchError>(client)
    };
    let taken = cold(options, |_| {
        // The first connection has threads start.
        let first = if serves { None } else { Some(connect_and_call()?) };
        me.barrier()?;
        let before = possessions()?;
        me.barrier()?;
        let clients = if serves { vec![] } else { (0..COUNT).map(|_| connect_and_call()).collect::<Result<_, _>>()? };
        me.barrier()?;
        let after = possessions()?;
        let (start, used_before) = (Instant::now(), cpu_time_used());
        thread::sleep(ALONE);
        let used = (cpu_time_used() - used_before).as_secs_f64() / start.elapsed().as_secs_f64();
        let each = [0, 1].map(|kind| (after[kind] - before[kind]) / COUNT as f64);
        let of_all = me.gather(WorkerId::new(0), [each[0], each[1], used])?.unwrap_or_default();
        drop((first, clients));
        me.barrier()?;
        Ok(of_all.concat())
    })?;
    Ok(taken.rows([
        column("server_bytes", "B", 3),
        column("server_descriptors", "1", 4),
        column("server_cpu_fraction", "1", 5),
        column("client_bytes", "B", 0),
        column("client_descriptors", "1", 1),
        column("client_cpu_fraction", "1", 2),
    ]))
}
