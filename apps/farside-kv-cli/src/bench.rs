//! `farside kv bench`: how fast is the store at an address?

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::Args;
use farside_command::{Seconds, at_least_one};
use farside_kv::{Client, ClientError, Part};
use farside_rpc_cli::ServerArguments;
use serde_json::json;

use super::connect;
use crate::error::KvError;

/// Keys of the bench begin with this.
const PREFIX: &str = "farside-kv-bench/";
/// Number of keys of each size.
const KEYS: usize = 100;

/// Measure the store: closed loops of puts and gets
///
/// Writes keys that begin with `farside-kv-bench/`, and removes them in the end.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Duration of each of the 10 measurements
    #[arg(long, value_name = "S", default_value = "1")]
    seconds: Seconds,
    /// Number of calls that are under way at once, in half of the measurements
    #[arg(long, value_name = "N", default_value = "16", value_parser = at_least_one::<u16>)]
    in_flight: u16,
}

/// The result of one measurement.
struct Row {
    case: String,
    in_flight: usize,
    times: Vec<Duration>,
    elapsed: Duration,
    bytes: usize,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), KvError> {
    let kv = connect(&arguments.server)?;
    let measured = measure_all(arguments, &kv);
    let entries: Vec<_> = kv.list(PREFIX).collect::<Result<_, _>>()?;
    entries.iter().try_for_each(|entry| kv.remove(&entry.key).map(drop))?;
    measured
}

fn measure_all(arguments: &Arguments, kv: &Client) -> Result<(), KvError> {
    if !arguments.server.is_json() {
        print("case          in flight        ops/s         MiB/s    median      p99\n")?;
    }
    let many = usize::from(arguments.in_flight);
    for (name, bytes, depths) in [("100B", 100, &[1, many][..]), ("4KiB", 4096, &[1, many]), ("1MiB", 1 << 20, &[1])] {
        let keys: Vec<_> = (0..KEYS).map(|number| format!("{PREFIX}{name}/{number}")).collect();
        let value = vec![7; bytes];
        // A get finds a value under each key.
        keys.iter().try_for_each(|key| kv.put(key, &value).map(drop))?;
        for operation in ["put", "get"] {
            for &in_flight in depths {
                let begun = Instant::now();
                let until = begun + arguments.seconds.0;
                let times = match (operation, in_flight) {
                    ("put", 1) => one_by_one(&keys, until, |key| kv.put(key, &value).map(drop)),
                    ("put", _) => together(&keys, until, in_flight, |key| {
                        let pending = kv.calls().put(key.into(), Part::whole(&value), value.clone().into())?;
                        Ok(|| Ok(pending.wait().map(drop)?))
                    }),
                    (_, 1) => one_by_one(&keys, until, |key| kv.get(key).map(drop)),
                    _ => together(&keys, until, in_flight, |key| {
                        let pending = kv.calls().get(key.into())?;
                        Ok(|| Ok(pending.wait().map(drop)?))
                    }),
                }?;
                let (case, elapsed) = (format!("{operation}/{name}"), begun.elapsed());
                report(arguments.server.is_json(), Row { case, in_flight, times, elapsed, bytes })?;
            }
        }
    }
    Ok(())
}

fn one_by_one(
    keys: &[String],
    until: Instant,
    call: impl Fn(&str) -> Result<(), ClientError>,
) -> Result<Vec<Duration>, ClientError> {
    let mut times = Vec::new();
    for key in keys.iter().cycle() {
        let begun = Instant::now();
        call(key)?;
        times.push(begun.elapsed());
        if Instant::now() >= until {
            break;
        }
    }
    Ok(times)
}

/// Keeps calls under way. `start` begins one and returns what waits for it.
fn together<W: FnOnce() -> Result<(), ClientError>>(
    keys: &[String],
    until: Instant,
    in_flight: usize,
    start: impl Fn(&str) -> Result<W, ClientError>,
) -> Result<Vec<Duration>, ClientError> {
    let (mut times, mut started) = (Vec::new(), VecDeque::new());
    let mut keys = keys.iter().cycle();
    loop {
        let is_over = Instant::now() >= until;
        while !is_over && started.len() < in_flight {
            let Some(key) = keys.next() else { break };
            started.push_back((Instant::now(), start(key)?));
        }
        let Some((begun, wait)) = started.pop_front() else { return Ok(times) };
        wait()?;
        times.push(begun.elapsed());
    }
}

fn report(as_json: bool, row: Row) -> Result<(), KvError> {
    let Row { case, in_flight, mut times, elapsed, bytes } = row;
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    let (median, p99) = (at(50), at(99));
    let ops_per_s = times.len() as f64 / elapsed.as_secs_f64();
    let bytes_per_s = ops_per_s * bytes as f64;
    if as_json {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        return print(&format!(
            "{}\n",
            json!({
                "case": case,
                "in_flight": in_flight,
                "ops_per_s": ops_per_s,
                "bytes_per_s": bytes_per_s,
                "median_ns": ns(median),
                "p99_ns": ns(p99),
            })
        ));
    }
    let mib_per_s = bytes_per_s / f64::from(1 << 20);
    print(&format!("{case:<10} {in_flight:>12} {ops_per_s:>12.0} {mib_per_s:>13.1} {median:>9.1?} {p99:>8.1?}\n"))
}

fn print(text: &str) -> Result<(), KvError> {
    io::stdout().write_all(text.as_bytes()).map_err(KvError::Output)
}
