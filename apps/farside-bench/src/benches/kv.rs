//! The key-value store, in memory: worker 0 gets and puts, worker 1 serves.
//!
//! The peer is Redis in memory, without persistence, on a Unix socket, where it is installed. It is
//! measured in turns with the store, with as many requests under way. Both sides of both block; in
//! cases with `spin`, both sides of the store look for a moment before they sleep. Worker 1 starts
//! Redis, so that it runs on the CPU that serves the store, too. Long files are put into a store on
//! disk, and got from it.

mod files;
mod redis;

use std::hint::black_box;
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};
use farside_kv::{Client, KvServer, Store};
use farside_rpc::{Credentials, Server};

use self::redis::{Connection, Redis};
use super::size_name;
use crate::kit::*;

pub(crate) const ABOUT: &str = "a key-value store in memory that another process serves, beside Redis";

/// The bytes that one turn moves, and the most operations of it.
const BYTES: u64 = 64 << 20;
const OPERATIONS_MAX: u64 = 20_000;
const KEY: &str = "key";
/// Longer than a turn of either side takes.
const SPIN: Duration = Duration::from_micros(50);

/// A case.
#[derive(Clone, Copy)]
struct What {
    is_put: bool,
    bytes: usize,
    in_flight: usize,
    /// For how long both sides look before they sleep.
    spin: Duration,
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in [100, 4 << 10, 1 << 20] {
        for (name, is_put) in [("get", false), ("put", true)] {
            for in_flight in [1, 16].into_iter().filter(|in_flight| bytes < 1 << 20 || *in_flight == 1) {
                let suffix = if in_flight == 1 { String::new() } else { format!("/{in_flight}-in-flight") };
                for (spins, spin) in [("", Duration::ZERO), ("/spin", SPIN)] {
                    let what = What { is_put, bytes, in_flight, spin };
                    let name = format!("{name}/{}{suffix}{spins}", size_name(bytes));
                    let is_shown = spin.is_zero() || (!is_put && bytes < 1 << 20);
                    cases.extend(is_shown.then(|| Case::job(name, 2, move |me, options| measure(me, options, what))));
                }
            }
        }
    }
    cases.extend(files::cases());
    cases
}

fn measure(me: &Worker, options: Options, what: What) -> Measured {
    let server = WorkerId::new(1);
    let address = format!("shm:farside-bench-kv-{}", me.broadcast(server, (me.id() == server).then(std::process::id))?);
    let serving = match me.id() == server {
        true => {
            let builder = Server::builder().listen(&address).map_err(failed)?;
            let builder = builder.provider(0, KvServer::new(Store::memory())).pool(2).spin(what.spin);
            Some(builder.start().map_err(failed)?)
        }
        false => None,
    };
    let redis = if me.id() == server && options.peers { Redis::start()? } else { None };
    let socket = me.broadcast(server, (me.id() == server).then(|| redis.as_ref().map(Redis::socket)))?;
    let value = vec![7_u8; what.bytes];
    let mut ends = None;
    if me.is_first() {
        let connect = farside_rpc::Client::to(&address, Credentials::own_user()).map_err(failed)?;
        let kv = Client::new(connect.spin(what.spin).connect().map_err(failed)?);
        kv.put(KEY, &value).map_err(failed)?;
        ends = Some((kv, socket.map(|socket| Connection::to(&socket)).transpose()?));
    }
    let count = options.operations_or((BYTES / what.bytes as u64).min(OPERATIONS_MAX));
    let taken = in_turns(me, options, |_| {
        let found = on_first(me, || {
            let Some((kv, redis)) = &mut ends else { return Ok([0.0; 2]) };
            let rate = |start: Instant| count as f64 / start.elapsed().as_secs_f64();
            let mut of_redis = 0.0;
            if let Some(redis) = redis {
                redis.set(KEY, &value)?;
                let start = Instant::now();
                redis.repeat(KEY, what.is_put.then_some(&value[..]), count, what.in_flight)?;
                of_redis = rate(start);
            }
            let start = Instant::now();
            repeat(kv, what, &value, count).map_err(failed)?;
            Ok([rate(start), of_redis])
        })?;
        let [own, of_redis] = found;
        Ok([own, of_redis, own * what.bytes as f64, of_redis * what.bytes as f64])
    })?;
    drop((serving, redis));
    let has_peer = taken.samples_of(1).iter().any(|rate| *rate > 0.0);
    let columns = [column("ops_per_s", "1/s", 0).against(PEER, 1), column("bytes_per_s", "B/s", 2).against(PEER, 3)];
    Ok(taken.rows(columns.map(|each| each.if_measured(has_peer))))
}

const PEER: &str = "Redis on a Unix socket";

/// Gets or puts a value again and again.
fn repeat(kv: &Client, what: What, value: &[u8], count: u64) -> Result<(), farside_kv::ClientError> {
    if what.in_flight == 1 {
        return (0..count).try_for_each(|_| match what.is_put {
            true => kv.put(KEY, value).map(drop),
            false => kv.get(KEY).map(|value| drop(black_box(value))),
        });
    }
    let calls = kv.calls();
    match what.is_put {
        true => {
            let whole = farside_kv::Part::whole(value);
            let start = |_| Ok(calls.put(KEY.into(), whole, value.into())?);
            pipelined(count, what.in_flight, start, |call| Ok(call.wait().map(drop)?))
        }
        false => {
            let start = |_| Ok(calls.get(KEY.into())?);
            pipelined(count, what.in_flight, start, |call| Ok(call.wait().map(|value| drop(black_box(value)))?))
        }
    }
}
