//! The same puts on a simulated network, compared with the one figure that the authors of Seriema
//! state.
//!
//! The simulation models the network, whose queues are finite like real ones. A completion costs it
//! nothing, so these rows show whether signalling keeps the line busy.

use std::thread;
use std::time::Duration;

use farside::SimOptions;
use farside_fabric::memory::Growth;
use farside_fabric::sim::SimFabric;
use farside_fabric::{
    Completion, FabricError, LocalRegion, Operation, Outcome, ProcessId, RemoteKey, RemoteRegion, Transport,
};
use farside_transmit::{Circular, CircularOptions, Queue, QueueOptions, Transmitter};
use std::collections::VecDeque;
use std::sync::Arc;

use super::signalled::{self, put_by_hand, put_units};
use super::{METRIC, SIZES};
use crate::benches::{against_seriema, size_name};
use crate::kit::*;
use crate::limits::libfabric::Puts;

/// Puts of one run by default.
const PUTS: u64 = 2000;
/// Number of runs. Each has a seed of its own.
const RUNS: u64 = 3;
const LIMIT: &str = "simulated port";
/// A deadline much longer than any wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// "5464 MB/s for 4KB transfers in DTutils" (Section 5.2).
const PUBLISHED: (&str, usize, f64) = ("auto", 4096, 5464e6);
/// The network of that measurement.
const PUBLISHED_ON: &str = "fdr";

pub(crate) fn cases(network: SimNetwork) -> Vec<Case> {
    let modes: [(&str, Mode); 3] = [("raw", raw), ("manual", manual), ("auto", auto)];
    let mut cases = Vec::new();
    for (name, mode) in modes {
        for bytes in SIZES {
            let is_published = (name, bytes) == (PUBLISHED.0, PUBLISHED.1) && network.preset() == PUBLISHED_ON;
            let published = is_published.then(|| PUBLISHED.2 / bytes as f64);
            let measure = move |options| measure(mode, bytes, published, network, options);
            cases.push(Case::here(format!("{name}/{}", size_name(bytes)), measure));
        }
    }
    cases
}

fn measure(mode: Mode, bytes: usize, published: Option<f64>, network: SimNetwork, options: Options) -> Measured {
    let rates = (0..RUNS).map(|run| rate(mode, bytes, network, options, options.seed.wrapping_add(run)));
    let rates: Vec<f64> = rates.collect::<Result<_, _>>()?;
    let model = network.model();
    // A put leaves when the thread has posted it and the port is free.
    let each_ns = (model.wire_ns(bytes) as f64).max(model.gap_ns as f64).max(model.overhead_ns as f64);
    Ok(against_seriema(Metric::new(METRIC, "1/s", rates).against(LIMIT, vec![1e9 / each_ns]), published))
}

/// Makes this number of puts.
type Mode = fn(&Sender<'_>, u64) -> Result<(), FabricError>;

/// The process that puts.
struct Sender<'s> {
    end: &'s Arc<dyn Transport>,
    to: ProcessId,
    region: RemoteRegion,
    bytes: usize,
}

impl Sender<'_> {
    fn puts(&self, count: u64) -> Puts {
        puts_of(self.bytes, count)
    }
}

fn puts_of(bytes: usize, count: u64) -> Puts {
    Puts { bytes, under_way: signalled::units(bytes), count }
}

/// Returns the rate per second.
fn rate(mode: Mode, bytes: usize, network: SimNetwork, options: Options, seed: u64) -> Result<f64, BenchError> {
    let count = options.operations_or(PUTS);
    let starter_bytes = signalled::units(bytes) * bytes;
    let depth = signalled::depth(bytes);
    let network = network.model();
    let options =
        SimOptions { network, delay_max_ns: 0, queue_depth: depth, operations_max: depth, ..SimOptions::default() };
    let fabric = SimFabric::in_turns(2, starter_bytes, seed, options).map_err(farside::Error::from)?;
    let [end, target] = [0, 1].map(|process| fabric.endpoint(ProcessId::new(process)));
    let to = target.process();
    let seat = fabric.clock().seat();
    let taken = thread::scope(|scope| {
        seat.take(|| {
            let putting = end.clock().seat();
            let ended = putting.end();
            let putting = scope.spawn(|| {
                putting.take(|| {
                    let deadline = end.clock().now() + PATIENCE;
                    let region = end.attach(RemoteKey::starter(to, starter_bytes as u64), deadline)?;
                    let before = end.clock().now();
                    mode(&Sender { end: &end, to, region, bytes }, count)?;
                    Ok(end.clock().now() - before)
                })
            });
            ended.wait();
            let taken: Result<Duration, FabricError> = putting.join().expect("putting does not panic");
            fabric.end();
            taken
        })
    });
    let taken = taken.map_err(farside::Error::from)?;
    let last = u64::from_le_bytes(last_number(&target.starter(), puts_of(bytes, count)).map_err(farside::Error::from)?);
    if last != count - 1 {
        return Err(BenchError::WrongSum { what: "the number in the last put", expected: count - 1, found: last });
    }
    Ok(count as f64 / taken.as_secs_f64())
}

fn last_number(memory: &LocalRegion, puts: Puts) -> Result<[u8; 8], FabricError> {
    let mut found = [0; 8];
    memory.as_remote().get(puts.offset(puts.count - 1) as u64, &mut found, std::time::Instant::now())?;
    Ok(found)
}

/// Posts each put with a completion of its own, as many at a time as the queue is deep.
fn raw(sender: &Sender<'_>, count: u64) -> Result<(), FabricError> {
    let deadline = sender.end.clock().now() + PATIENCE;
    let puts = sender.puts(count);
    let mut posted: VecDeque<Completion> = VecDeque::new();
    let mut spare = vec![vec![1; puts.bytes]; puts.under_way];
    let take_back = |posted: &mut VecDeque<Completion>| {
        let oldest = posted.pop_front().expect("every buffer is here or under way");
        match oldest.wait(&**sender.end, sender.to, deadline)? {
            Outcome::Put(data) => Ok::<_, FabricError>(data),
            Outcome::Got(_) | Outcome::Previous(_) => unreachable!("a put ends as a put"),
        }
    };
    for at in 0..count {
        let mut data = match spare.pop() {
            Some(data) => data,
            None => take_back(&mut posted)?,
        };
        data[..8].copy_from_slice(&at.to_le_bytes());
        let put = Operation::Put { offset: puts.offset(at) as u64, data };
        posted.push_back(sender.end.post(sender.region.key(), put)?);
    }
    while !posted.is_empty() {
        take_back(&mut posted)?;
    }
    Ok(())
}

fn manual(sender: &Sender<'_>, count: u64) -> Result<(), FabricError> {
    let puts = sender.puts(count);
    let memory = sender.end.register(puts.area_bytes())?;
    let queue = Queue::open(sender.end, sender.to, QueueOptions { depth: signalled::depth(puts.bytes) })?;
    put_by_hand(&queue, &memory, &sender.region, puts, sender.end.clock().now() + PATIENCE)
}

fn auto(sender: &Sender<'_>, count: u64) -> Result<(), FabricError> {
    let puts = sender.puts(count);
    let (unit_bytes, units) = (puts.bytes, puts.under_way);
    let options = CircularOptions { unit_bytes, units, growth: Growth::Linear, units_max: units };
    let mut units = Circular::new(Box::new(sender.end.clone()), options);
    let options = QueueOptions { depth: signalled::depth(puts.bytes) };
    let transmitter = Transmitter::open(sender.end, sender.to, options)?;
    put_units(&transmitter, &mut units, &sender.region, puts, sender.end.clock().now() + PATIENCE)
}
