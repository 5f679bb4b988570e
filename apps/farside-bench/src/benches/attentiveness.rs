//! Pushes to a queue whose owner computes between its looks at arrived calls (Brock et al., Figure
//! 6).
//!
//! The owner computes for a time, looks once, and so on. The other process pushes at random times,
//! because two processes with equal steps would meet at the same moment of each.
//!
//! - `call`: a queue of the library by calls: each push waits for the owner's next look, on average
//!   for half of its computation.
//! - `call+progress-thread`: the same queue, while another worker of the owner's process computes.
//!   The worker that has the queue only serves.
//! - `one-sided`: a queue of the library by one-sided operations.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside::{Dist, ProcessId, Simulation, Worker, WorkerId};
use farside_containers::queue::Queue;
use farside_containers::{Implementation, Promise};

use crate::kit::*;

pub(crate) const ABOUT: &str = "pushes to a process that computes between its looks (Brock et al., Figure 6)";

/// Microseconds between two looks.
const COMPUTES_US: [u64; 9] = [0, 1, 2, 4, 8, 16, 32, 64, 128];
/// Pushes of a run by default.
const PUSHES: u64 = 4000;
const PUSHES_SIMULATED: u64 = 300;
/// The least range of the random pause before a push.
const PAUSE_NS_MIN: u64 = 2000;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Call,
    ProgressThread,
    OneSided,
}

const MODES: [(Mode, &str); 3] =
    [(Mode::Call, "call"), (Mode::ProgressThread, "call+progress-thread"), (Mode::OneSided, "one-sided")];

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    let mut cases = Vec::new();
    for (mode, name) in MODES {
        for compute_us in COMPUTES_US {
            let (name, compute) = (format!("{name}/{compute_us}us"), Duration::from_micros(compute_us));
            cases.push(match on {
                Fabric::Shm | Fabric::Ofi(_) => {
                    Case::job(name, 2, move |me, options| measure(me, options, mode, compute)).threads(mode.threads())
                }
                Fabric::Simulated(network) => {
                    let network = *network;
                    Case::here(name, move |options| simulate(network, options, mode, compute))
                }
            });
        }
    }
    cases
}

impl Mode {
    /// Number of workers of each process. The first of the owner's process has the queue, and the
    /// last computes.
    fn threads(self) -> u32 {
        1 + u32::from(self == Self::ProgressThread)
    }

    fn implementation(self) -> Implementation {
        if self == Self::OneSided { Implementation::OneSided } else { Implementation::Call }
    }
}

/// The queue in process 1, to which worker 0 pushes.
struct Target {
    queue: Queue<u64>,
    /// True when all was pushed.
    is_done: Dist<AtomicBool>,
}

impl Target {
    /// Makes the queue, with room for the values of a run. Collective.
    fn new(me: &Worker, mode: Mode, count: u64) -> farside::Result<Self> {
        let queue = Queue::with_implementation(me, ProcessId::new(1), count, mode.implementation())?;
        Ok(Self { queue, is_done: Dist::new(me, AtomicBool::default)? })
    }

    /// Takes the part of the owner until the other side is done.
    fn attend(&self, me: &Worker, compute: &dyn Fn(&Worker)) -> farside::Result<()> {
        while !self.is_done.here(me).load(Ordering::Acquire) {
            compute(me);
            me.progress()?;
        }
        self.is_done.here(me).store(false, Ordering::Release);
        Ok(())
    }

    /// Pushes `count` values, each after a random pause, and returns the nanoseconds of each push.
    fn push_all(
        &self,
        me: &Worker,
        count: u64,
        spread_ns: u64,
        pause: &dyn Fn(&Worker, Duration),
    ) -> farside::Result<Vec<f64>> {
        let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
        let mut times = Vec::new();
        for value in 0..count {
            pause(me, Duration::from_nanos(random.below(spread_ns as usize) as u64));
            let start = me.now();
            self.queue.on(me).push_with(Promise::PUSH_ONLY, value)?.expect("there is room for all");
            times.push((me.now() - start).as_nanos() as f64);
        }
        me.call(computing(me), self.is_done, |there, is_done| is_done.here(there).store(true, Ordering::Release))?;
        Ok(times)
    }
}

/// The worker that computes between its looks.
fn computing(me: &Worker) -> WorkerId {
    WorkerId::new(me.worker_count() - 1)
}

/// Returns the median and the 99th percentile of the pushes, while the owner computes for `compute`
/// between its looks. Both are 0 on other workers than the first.
fn run(
    me: &Worker,
    target: &Target,
    count: u64,
    compute: Duration,
    spend: &dyn Fn(&Worker, Duration),
) -> farside::Result<[f64; 2]> {
    me.barrier()?;
    if me.id() == computing(me) {
        target.queue.on(me).clear()?;
    }
    me.barrier()?;
    let mut times = Vec::new();
    if me.is_first() {
        let spread_ns = PAUSE_NS_MIN.max(2 * compute.as_nanos() as u64);
        times = target.push_all(me, count, spread_ns, spend)?;
    } else if me.id() == computing(me) {
        target.attend(me, &|me| spend(me, compute))?;
    }
    // All others serve meanwhile.
    me.barrier()?;
    Ok([0.5, 0.99].map(|share| quantile(&times, share)))
}

/// The prediction from a push to an owner that only looks.
fn predicted(mode: Mode, attentive_ns: f64, compute: Duration) -> f64 {
    attentive_ns + if mode == Mode::Call { compute.as_nanos() as f64 / 2.0 } else { 0.0 }
}

fn measure(me: &Worker, options: Options, mode: Mode, compute: Duration) -> Measured {
    let count = options.operations_or(PUSHES);
    let target = Target::new(me, mode, count)?;
    let spend = |_: &Worker, time: Duration| {
        let start = Instant::now();
        while start.elapsed() < time {
            hint::spin_loop();
        }
    };
    // The first run makes the connection.
    let taken = warmed(options, |_| Ok(against_attentive(me, &target, count, mode, compute, &spend)?))?;
    Ok(metrics(&taken))
}

/// Returns the median and the 99th percentile of pushes, and the prediction for them.
fn against_attentive(
    me: &Worker,
    target: &Target,
    count: u64,
    mode: Mode,
    compute: Duration,
    spend: &dyn Fn(&Worker, Duration),
) -> farside::Result<[f64; 3]> {
    let [attentive_ns, _] = run(me, target, count, Duration::ZERO, spend)?;
    let [median_ns, p99_ns] = run(me, target, count, compute, spend)?;
    Ok([median_ns, p99_ns, predicted(mode, attentive_ns, compute)])
}

fn metrics(taken: &Taken) -> Vec<Metric> {
    taken.rows((0..).zip(["ns", "p99_ns", "predicted_ns"]).map(|(thing, name)| column(name, "ns", thing)))
}

fn simulate(network: SimNetwork, options: Options, mode: Mode, compute: Duration) -> Measured {
    let count = options.operations_or(PUSHES_SIMULATED);
    let simulation = Simulation::new(2, mode.threads(), options.seed).options(network.settings());
    let found = on_simulation(simulation, |me| {
        let target = Target::new(me, mode, count)?;
        let spend = |me: &Worker, time: Duration| me.charge(time);
        run(me, &target, 1, Duration::ZERO, &spend)?;
        Ok(against_attentive(me, &target, count, mode, compute, &spend)?)
    })?;
    Ok(metrics(&Taken::of(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(mode: Mode, compute_us: u64) -> [f64; 3] {
        let network = SimNetwork::of_preset("aries").unwrap();
        let options = Options::new().operations(Some(200));
        let metrics = simulate(network, options, mode, Duration::from_micros(compute_us)).unwrap();
        [0, 1, 2].map(|metric| metrics[metric].samples[0])
    }

    #[test]
    fn only_a_call_waits_for_the_next_look() {
        for compute_us in [32, 128] {
            let [median, p99, predicted] = simulated(Mode::Call, compute_us);
            let within = 1000.0 * compute_us as f64;
            assert!((median / predicted - 1.0).abs() < 0.25, "{median} and {predicted}");
            assert!(p99 > 0.8 * within && p99 < 1.5 * within, "{p99}");
            for mode in [Mode::ProgressThread, Mode::OneSided] {
                let [median, p99, predicted] = simulated(mode, compute_us);
                assert!(median < 1.1 * predicted && p99 < 2.0 * predicted, "{mode:?}: {median}, {p99}, {predicted}");
            }
        }
    }
}
