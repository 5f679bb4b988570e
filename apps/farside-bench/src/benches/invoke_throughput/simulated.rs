//! The same calls on a simulated network, compared with the measurements of the authors of Seriema
//! on a real one (Table 2).
//!
//! The simulation models the network: the number and size of messages, and their cost in the model.
//! The calls themselves take no virtual time, so these rows show the share of the network. Calls at
//! once (`write`) and bare transfers (`raw`) are messages here, and one-sided writes in the paper.

use std::thread;
use std::time::Duration;

use farside::{SimOptions, Simulation};
use farside_fabric::sim::SimFabric;
use farside_fabric::{Event, FabricError, ProcessId, Transport};

use super::{MODES, Mode, sum_below};
use crate::benches::{against_seriema, size_name};
use crate::kit::*;

/// Calls of one run by default.
const CALLS: u64 = 20_000;
/// Number of runs. Each has a seed of its own.
const RUNS: u64 = 3;
/// The limit: the arguments alone, as fast as a port takes them.
const LIMIT: &str = "simulated port";
/// Factor for the number of aggregated calls, which need few messages.
const AGGREGATED: u64 = 10;
/// Bytes of a message, with room for a batch.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// A deadline much longer than any wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Seriema, Table 2, in millions of bytes a second.
const PUBLISHED: &[(&str, [(usize, f64); 3])] = &[
    ("send", [(8, 12.07), (64, 112.95), (256, 367.08)]),
    ("write", [(8, 38.39), (64, 301.47), (256, 1129.82)]),
    ("trad", [(8, 2116.78), (64, 4256.14), (256, 5318.89)]),
    ("ovfl", [(8, 36.52), (64, 283.15), (256, 1061.37)]),
    ("raw", [(8, 35.84), (64, 291.93), (256, 1135.74)]),
];
/// The network of those measurements.
const PUBLISHED_ON: &str = "fdr";

pub(crate) fn cases(network: SimNetwork) -> Vec<Case> {
    let mut cases = Vec::new();
    for (mode, figures) in PUBLISHED {
        for (bytes, published) in figures {
            let measure = move |options| measure(mode, *bytes, *published, network, options);
            cases.push(Case::here(format!("{mode}/{}", size_name(*bytes)), measure));
        }
    }
    cases
}

fn measure(mode: &str, bytes: usize, published: f64, network: SimNetwork, options: Options) -> Measured {
    let rates = (0..RUNS).map(|run| rate(mode, bytes, network, options, options.seed.wrapping_add(run)));
    let rates: Vec<f64> = rates.collect::<Result<_, _>>()?;
    let limit = 1e12 / (network.model().gap_per_byte_ps as f64 * bytes as f64);
    let megabytes = |rate: f64| rate * bytes as f64 / 1e6;
    let published = (network.preset() == PUBLISHED_ON).then_some(published);
    let payload = Metric::new("payload_mb_per_s", "MB/s", rates.iter().copied().map(megabytes).collect());
    let calls = Metric::new("calls_per_s", "1/s", rates).against(LIMIT, vec![limit]);
    let mut metrics = against_seriema(calls, published.map(|megabytes| megabytes * 1e6 / bytes as f64));
    metrics.extend(against_seriema(payload.against(LIMIT, vec![megabytes(limit)]), published));
    Ok(metrics)
}

/// Returns the rate per second.
fn rate(mode: &str, bytes: usize, network: SimNetwork, options: Options, seed: u64) -> Result<f64, BenchError> {
    let count = options.operations_or(CALLS) * if mode == "trad" { AGGREGATED } else { 1 };
    let by_words = MODES.into_iter().find(|(name, _)| *name == mode).map(|(_, by_words)| by_words);
    let found = by_words.into_iter().flatten().find(|(words, _)| words * 8 == bytes);
    let time = match found {
        Some((words, mode)) => calls(mode, words as u64, count, network, seed),
        None => messages(bytes, count, network, seed),
    }?;
    Ok(count as f64 / time.as_secs_f64())
}

fn options(network: SimNetwork) -> SimOptions {
    SimOptions { message_bytes_max: MESSAGE_BYTES_MAX, ..network.settings() }
}

/// Returns the time of `count` calls with `words` words each.
fn calls(mode: Mode, words: u64, count: u64, network: SimNetwork, seed: u64) -> Result<Duration, BenchError> {
    on_simulation(Simulation::new(2, 1, seed).options(options(network)), |me| {
        let is_sender = me.is_first();
        if is_sender {
            // The first contact is not measured.
            mode(me, me.neighbor(1), 1)?;
        }
        me.barrier()?;
        let mut taken = Duration::ZERO;
        if is_sender {
            let start = me.now();
            let found = mode(me, me.neighbor(1), count)?;
            taken = me.now() - start;
            let expected = sum_below(count).wrapping_mul(words);
            if found != expected {
                return Err(BenchError::WrongSum { what: "the arguments of all calls", expected, found });
            }
        }
        me.barrier()?;
        Ok(taken)
    })
}

/// Returns the time of `count` messages of `bytes` bytes without calls: Seriema's max-raw.
fn messages(bytes: usize, count: u64, network: SimNetwork, seed: u64) -> Result<Duration, BenchError> {
    let fabric = SimFabric::in_turns(2, 4096, seed, options(network)).map_err(farside::Error::from)?;
    let [sender, receiver] = [0, 1].map(|process| fabric.endpoint(ProcessId::new(process)));
    let to = receiver.process();
    let seat = fabric.clock().seat();
    let sent = thread::scope(|scope| {
        seat.take(|| {
            let [sending, receiving] = [&sender, &receiver].map(|end| end.clock().seat());
            let ends = [sending.end(), receiving.end()];
            let sending = scope.spawn(|| sending.take(|| send_all(&*sender, to, bytes, count)));
            let receiving = scope.spawn(|| receiving.take(|| receive_all(&*receiver, count)));
            ends.iter().for_each(|end| end.wait());
            let time = Duration::from_nanos(fabric.now_ns());
            let sent = sending.join().expect("sending does not panic");
            receiving.join().expect("receiving does not panic");
            fabric.end();
            sent.map(|()| time)
        })
    });
    Ok(sent.map_err(farside::Error::from)?)
}

fn send_all(end: &dyn Transport, to: ProcessId, bytes: usize, count: u64) -> Result<(), FabricError> {
    let message = vec![7; bytes];
    for _ in 0..count {
        while let Err(error) = end.send(to, &message) {
            let FabricError::QueueFull { .. } = error else { return Err(error) };
            end.wait(&[], Some(end.clock().now() + PATIENCE));
        }
    }
    Ok(())
}

fn receive_all(end: &dyn Transport, count: u64) {
    let mut received = 0;
    while received < count {
        end.progress();
        match end.receive() {
            Some(Event::Message { .. }) => received += 1,
            Some(Event::Disconnected { .. }) => return,
            None => end.wait(&[], Some(end.clock().now() + PATIENCE)),
        }
    }
}
