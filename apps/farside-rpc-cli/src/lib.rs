//! `farside rpc`: looks at a server from outside, and calls it. Other programs of the command take
//! [`ServerArguments`].

#![forbid(unsafe_code)]

mod call;
mod error;
mod json;
mod server;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use farside_rpc::server::Dump;
use serde_json::json;

pub use self::error::RpcError;
use self::error::failed;
pub use self::server::{ServerArguments, secret};

/// Look at a server of remote procedures, and call it
#[derive(Debug, Parser)]
#[command(name = "farside-rpc", bin_name = "farside rpc")]
pub struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Call the server several times and print how long it takes to answer
    Ping {
        #[command(flatten)]
        server: ServerArguments,
        /// Number of calls
        #[arg(short = 'n', long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
    /// Print the services of the server, with the types of their procedures
    Describe {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Print how often each procedure has run, failed and been refused, and how long it took
    ///
    /// The times are from the arrival of a call to its answer, in percentiles, and the average time
    /// in the queue and in the handler.
    Stats {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Print the connections of the server, and the calls that are under way
    ///
    /// At most 1,000 of each are listed, the oldest first. A token needs the right `farside.dump`.
    Dump {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Call a procedure and print its result as JSON
    ///
    /// The items of a stream are printed as they arrive, each on a line of its own.
    ///
    /// An error of the service goes to the standard error, as one line `{"error": ...}`; the exit
    /// status is 1 then, and 2 if the arguments do not fit.
    Call {
        #[command(flatten)]
        server: ServerArguments,
        /// SERVICE/PROCEDURE of provider 0, or SERVICE/PROVIDER/PROCEDURE; `describe` lists them
        procedure: String,
        /// The arguments: an array where `describe` prints a tuple, an object for a struct,
        /// {"Name": fields} for a variant; "@FILE" or a string for Bulk<Read>, {"bytes": N,
        /// "file": PATH} for Bulk<Write>
        #[arg(default_value = "null", allow_negative_numbers = true)]
        arguments: String,
    },
}

/// Runs `farside rpc`.
///
/// # Errors
/// The server cannot be asked, or refuses the question.
pub fn run(arguments: Arguments) -> Result<(), RpcError> {
    let text = match &arguments.question {
        Question::Ping { server, count } => ping(server, *count)?,
        Question::Describe { server } => describe(server)?,
        Question::Stats { server } => stats(server)?,
        Question::Dump { server } => dump(server)?,
        Question::Call { server, procedure, arguments } => return call::call(server, procedure, arguments),
    };
    io::stdout().write_all(text.as_bytes()).map_err(RpcError::Output)
}

fn ping(server: &ServerArguments, count: u32) -> Result<String, RpcError> {
    let client = server.connect()?;
    let mut times = Vec::new();
    for number in 0..count {
        let start = Instant::now();
        client.ping(number.into()).map_err(failed)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let (least, median) = (times[0], times[times.len() / 2]);
    if server.is_json() {
        let incarnation = client.incarnation().map(|number| format!("{number:016x}"));
        return Ok(format!(
            "{}\n",
            json!({
                "address": server.address(),
                "incarnation": incarnation,
                "calls": count,
                "min_ns": ns(least),
                "median_ns": ns(median),
            })
        ));
    }
    Ok(format!("{} answered {count} calls: least {least:.1?}, median {median:.1?}\n", server.address()))
}

fn describe(server: &ServerArguments) -> Result<String, RpcError> {
    let services = server.connect()?.describe().map_err(failed)?;
    let mut text = String::new();
    if server.is_json() {
        let services: Vec<_> = services
            .iter()
            .map(|service| {
                let procedures: Vec<_> =
                    service.procedures.iter().map(|(name, types)| json!({ "name": name, "types": types })).collect();
                json!({ "service": service.service, "provider": service.provider, "procedures": procedures })
            })
            .collect();
        return Ok(format!("{}\n", json!({ "address": server.address(), "services": services })));
    }
    for service in services {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} (provider {})", service.service, service.provider);
        for (name, types) in service.procedures {
            let _ = writeln!(text, "  {name}: {types}");
        }
    }
    Ok(text)
}

fn stats(server: &ServerArguments) -> Result<String, RpcError> {
    let stats = server.connect()?.stats().map_err(failed)?;
    if server.is_json() {
        let stats: Vec<_> = stats
            .iter()
            .map(|stats| {
                json!({
                    "procedure": stats.name,
                    "done": stats.done,
                    "failed": stats.failed,
                    "refused": stats.refused,
                    "timed": stats.timed,
                    "p50_ns": ns(stats.p50),
                    "p99_ns": ns(stats.p99),
                    "max_ns": ns(stats.max),
                    "queued_ns": ns(stats.queued),
                    "running_ns": ns(stats.running),
                    "buckets_ns": stats.buckets.iter().map(|(to, count)| (ns(*to), count)).collect::<Vec<_>>(),
                })
            })
            .collect();
        return Ok(format!("{}\n", json!({ "address": server.address(), "procedures": stats })));
    }
    let heads = ["done", "failed", "refused", "p50", "p99", "max", "queued", "running", "procedure"].map(String::from);
    let rows = stats.into_iter().map(|stats| {
        let timed = u32::try_from(stats.timed).unwrap_or(u32::MAX);
        let times = [stats.p50, stats.p99, stats.max, stats.queued / timed.max(1), stats.running / timed.max(1)];
        let [p50, p99, max, queued, running] = times.map(|time| if timed == 0 { "-".into() } else { short(time) });
        let [done, failed, refused] = [stats.done, stats.failed, stats.refused].map(|count| count.to_string());
        [done, failed, refused, p50, p99, max, queued, running, stats.name]
    });
    Ok(table(std::iter::once(heads).chain(rows)))
}

fn dump(server: &ServerArguments) -> Result<String, RpcError> {
    let Dump { connections, more_connections, calls, more_calls } = server.connect()?.dump().map_err(failed)?;
    if server.is_json() {
        let connections: Vec<_> = connections
            .iter()
            .map(|one| {
                json!({
                    "connection": one.number,
                    "peer": one.peer,
                    "path": one.path,
                    "age_ns": ns(one.age),
                    "calls": one.calls,
                    "exposed": one.exposed,
                    "held_bytes": one.held_bytes,
                    "backlog_bytes": one.backlog_bytes,
                    "rdma_bytes": one.rdma_bytes,
                })
            })
            .collect();
        let calls: Vec<_> = calls
            .iter()
            .map(|call| {
                json!({
                    "connection": call.connection,
                    "peer": call.peer,
                    "procedure": call.procedure,
                    "queued_ns": ns(call.queued),
                    "running_ns": call.running.map(ns),
                    "time_left_ns": ns(call.time_left),
                    "is_cancelled": call.is_cancelled,
                })
            })
            .collect();
        let dump = json!({
            "address": server.address(),
            "connections": connections,
            "more_connections": more_connections,
            "calls": calls,
            "more_calls": more_calls,
        });
        return Ok(format!("{dump}\n"));
    }
    let heads = ["connection", "path", "age", "calls", "exposed", "held B", "backlog B", "peer"].map(String::from);
    let rows = connections.into_iter().map(|one| {
        let [number, calls, exposed, held, backlog] =
            [one.number, one.calls, one.exposed, one.held_bytes, one.backlog_bytes].map(|count| count.to_string());
        [number, one.path, short(one.age), calls, exposed, held, backlog, one.peer]
    });
    let mut text = table(std::iter::once(heads).chain(rows));
    // Writing to a string does not fail.
    if more_connections > 0 {
        let _ = writeln!(text, "and {more_connections} more");
    }
    let heads = ["connection", "state", "queued", "running", "time left", "procedure"].map(String::from);
    let rows = calls.into_iter().map(|call| {
        let state = match (call.is_cancelled, call.running) {
            (true, _) => "cancelled",
            (false, None) => "queued",
            (false, Some(_)) => "running",
        };
        let running = call.running.map_or("-".into(), short);
        let (queued, left) = (short(call.queued), short(call.time_left));
        [call.connection.to_string(), state.into(), queued, running, left, call.procedure]
    });
    let _ = write!(text, "\n{}", table(std::iter::once(heads).chain(rows)));
    if more_calls > 0 {
        let _ = writeln!(text, "and {more_calls} more");
    }
    Ok(text)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn short(time: Duration) -> String {
    format!("{time:.1?}")
}

/// Lines of columns. All but the last are as wide as their widest text.
fn table<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = rows.collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (column, width) in row.iter().zip(widths).take(N - 1) {
            let _ = write!(text, "{column:>width$}  ");
        }
        let _ = writeln!(text, "{}", row[N - 1]);
    }
    text
}
