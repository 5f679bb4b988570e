//! Memory of a process in a job that was made of several, compared with the same processes started
//! as one.
//!
//! The program is that of ACP's authors for "ACP + MPI". A master assigns work to the sub-masters
//! of groups, and each assigns it to the workers of its group. The results return the same way. The
//! master and each group are launched separately and join (`joined`), or all are launched together
//! (`one-job`).
//!
//! **Both take the same memory**, because groups that join become one job with one numbering. ACP
//! saves memory by joining small MPI jobs. Farside saves it in any job: a process pays for the
//! peers that it talks with, not for all processes. In `all-meet` each process talks with
//! all, as the ranks of a large communicator may.
//!
//! Metrics: `bytes_per_process`, the physical memory of a process, the mean over all processes;
//! `data_bytes`, the same without the program and its libraries; `data_bytes_max`, the most of one
//! process; `reported_bytes`, what Farside reports as reserved for a process (starter memory and
//! rings, touched or not, without the memory of libfabric).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside::job::footprint;
use farside::{Reply, Worker, WorkerId};

use crate::kit::*;
use crate::resident::Resident;

pub(crate) const ABOUT: &str = "memory of a process where groups launched separately join: they become one job, and cost what it costs (ACP + MPI)";

/// Groups under the master, and workers under each sub-master. The names of the first shape's cases
/// have no suffix.
const SHAPES: [Arrangement; 2] = [Arrangement { groups: 2, workers: 2 }, Arrangement { groups: 4, workers: 4 }];
/// Rounds of work by default.
const ROUNDS: u64 = 1000;
/// Numbers that a task examines.
const TASK_NUMBERS: u64 = 100;
const MASTER: WorkerId = WorkerId::new(0);
/// The limit of the memory.
const BEFORE: &str = "before the first call";

/// "Estimated memory consumption per process of ACP with 1M procs", in MB, by network. For ACP +
/// MPI its authors show only a chart, in which it takes less than MPI alone.
pub(super) const PUBLISHED: [(&str, f64); 3] =
    [("acp-infiniband-published", 369e6), ("acp-tofu-published", 67e6), ("acp-udp-published", 34e6)];

pub(crate) fn cases() -> Vec<Case> {
    let published = |(peer, bytes)| Metric::new("bytes_per_process", "B", vec![bytes]).of_peer(peer);
    let estimate = Case::here("estimate/1M", move |_| Ok(PUBLISHED.map(published).into()));
    cases_in_jobs(&SHAPES).into_iter().chain([estimate]).collect()
}

/// One shape only: a process takes much memory for libfabric, and many processes take long to
/// start.
pub(crate) fn over_ofi(_: &OfiFabric) -> Vec<Case> {
    cases_in_jobs(&SHAPES[..1])
}

fn cases_in_jobs(shapes: &[Arrangement]) -> Vec<Case> {
    let case = |groups: Arrangement, name: &str, meeting: Meeting| {
        let name = if groups == SHAPES[0] { name.to_owned() } else { format!("{name}/{groups}") };
        Case::around_job(name, groups.processes(), move |me, options| measure(me, groups, meeting, options), repeat)
    };
    let of_groups = |groups: &Arrangement| {
        let groups = *groups;
        [
            case(groups, "joined", Meeting::AsWorkGoes).launched_in(groups.group_sizes()),
            case(groups, "one-job", Meeting::AsWorkGoes),
            case(groups, "all-meet", Meeting::All),
        ]
    };
    shapes.iter().flat_map(of_groups).collect()
}

/// The pairs of processes that talk with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// The master and its sub-masters, and they and their workers.
    AsWorkGoes,
    /// The same, and after that each process with each.
    All,
}

/// Measures one run of the job. Worker 0 returns the metrics.
fn measure(me: &Worker, groups: Arrangement, meeting: Meeting, options: Options) -> Measured {
    let before = Resident::of_this_process()?;
    if me.id() == MASTER {
        let rounds = options.operations_or(ROUNDS);
        let found = groups.direct(me, rounds)?;
        let expected = (0..rounds * groups.tasks()).map(work).sum();
        if found != expected {
            return Err(BenchError::WrongSum { what: "the work of a hierarchy", expected, found });
        }
    }
    me.barrier()?;
    if meeting == Meeting::All {
        for worker in me.workers().filter(|worker| *worker != me.id()) {
            me.call_return(worker, (), |_, ()| ()).map_err(farside::Error::from)?.wait()?;
        }
        me.barrier()?;
    }
    let after = Resident::of_this_process()?;
    let reported =
        footprint(me.process_count(), me.threads_per_process()).starter_bytes + me.counters().ring_bytes_here;
    let own = [before.bytes, before.data_bytes, after.bytes, after.data_bytes, reported];
    let all = me.gather(MASTER, own)?.unwrap_or_default();
    Ok(metrics_of(&all))
}

/// Returns the metrics of all processes: memory before and after, in all and data alone, and the
/// memory that Farside reports.
fn metrics_of(all: &[[u64; 5]]) -> Vec<Metric> {
    let mean = |index: usize| vec![all.iter().map(|own| own[index] as f64).sum::<f64>() / all.len() as f64];
    let largest = |index: usize| vec![all.iter().map(|own| own[index]).max().unwrap_or(0) as f64];
    vec![
        Metric::new("bytes_per_process", "B", mean(2)).against(BEFORE, mean(0)),
        Metric::new("data_bytes", "B", mean(3)).against(BEFORE, mean(1)),
        Metric::new("data_bytes_max", "B", largest(3)).against(BEFORE, largest(1)),
        Metric::new("reported_bytes", "B", mean(4)),
    ]
}

/// Number of measurements of the memory, which hardly varies.
fn runs(options: Options) -> usize {
    options.runs().div_ceil(2)
}

/// Repeats the job for each run, because a process does not return memory.
pub(super) fn repeat(options: Options, run_once: RunOnce<'_>) -> Measured {
    let mut all = run_once(options)?;
    for _ in 1..runs(options) {
        for (metric, again) in all.iter_mut().zip(run_once(options)?) {
            metric.extend(again);
        }
    }
    Ok(all)
}

/// A master, groups under it, and in each group a sub-master with workers under it. Displayed as
/// cases spell it, `4x4`.
///
/// The master is process 0. The groups follow one after the other, each with its sub-master first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrangement {
    groups: u32,
    workers: u32,
}

impl std::fmt::Display for Arrangement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.groups, self.workers)
    }
}

impl Arrangement {
    fn processes(self) -> u32 {
        self.group_sizes().iter().sum()
    }

    /// The master forms a group of its own.
    fn group_sizes(self) -> Vec<u32> {
        std::iter::once(1).chain((0..self.groups).map(|_| 1 + self.workers)).collect()
    }

    fn sub_master(self, group: u32) -> WorkerId {
        WorkerId::new(1 + group * (1 + self.workers))
    }

    /// Number of tasks of one round: one for each worker.
    fn tasks(self) -> u64 {
        u64::from(self.groups) * u64::from(self.workers)
    }

    /// Takes the part of the master. Returns the sum of all results.
    fn direct(self, me: &Worker, rounds: u64) -> farside::Result<u64> {
        let mut sum = 0;
        for round in 0..rounds {
            let hand_out = |group: u32| {
                let first = round * self.tasks() + u64::from(group) * u64::from(self.workers);
                me.call_with_reply(self.sub_master(group), (first, self.workers), hand_on)
            };
            let pending = (0..self.groups).map(hand_out).collect::<Result<Vec<_>, _>>()?;
            for result in pending {
                sum += result.wait()?;
            }
        }
        Ok(sum)
    }
}

/// Takes the part of a sub-master: passes one task to each of its workers, which follow it in
/// number. If a task fails, the reply is dropped, and so the master learns of the failure.
fn hand_on(me: &Worker, (first, workers): (u64, u32), reply: Reply<u64>) {
    let reply = Rc::new(RefCell::new(Some(reply)));
    let (left, sum) = (Rc::new(Cell::new(workers)), Rc::new(Cell::new(0)));
    for (task, worker) in (first..).zip(1..=workers) {
        let Ok(pending) = me.call_return(me.neighbor(worker), task, |_, task| work(task)) else {
            return;
        };
        let (reply, left, sum) = (reply.clone(), left.clone(), sum.clone());
        pending.then(move |_, result: farside::Result<u64>| {
            let Ok(result) = result else { return };
            sum.set(sum.get() + result);
            left.set(left.get() - 1);
            if left.get() == 0
                && let Some(reply) = reply.take()
            {
                reply.send(sum.get());
            }
        });
    }
}

/// Takes the part of a worker.
fn work(task: u64) -> u64 {
    let numbers = task * TASK_NUMBERS..(task + 1) * TASK_NUMBERS;
    numbers.map(|number| u64::from(number.wrapping_mul(0x9E37_79B9_7F4A_7C15).count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_numbered_group_by_group() {
        let groups = Arrangement { groups: 3, workers: 2 };
        assert_eq!((groups.processes(), groups.group_sizes(), groups.tasks()), (10, vec![1, 3, 3, 3], 6));
        assert_eq!([0, 1, 2].map(|group| groups.sub_master(group).number()), [1, 4, 7]);
        assert_eq!(groups.to_string(), "3x2");
    }

    #[test]
    fn the_work_of_all_comes_back() {
        for groups in [Arrangement { groups: 1, workers: 1 }, Arrangement { groups: 2, workers: 3 }] {
            let result = farside::job::simulate(groups.processes(), 1, 1, |me| {
                if me.id() == MASTER {
                    assert_eq!(groups.direct(me, 5)?, (0..5 * groups.tasks()).map(work).sum::<u64>());
                }
                me.barrier()
            });
            result.unwrap();
        }
    }

    #[test]
    fn each_run_is_a_sample() {
        let mut count = 0;
        let run_once: RunOnce<'_> = &mut |_| {
            count += 1;
            Ok(metrics_of(&[[10, 4, 20, 8, 7], [30, 6, 40, 16, 9]]))
        };
        let runs = runs(Options::new());
        let metrics = repeat(Options::new(), run_once).unwrap();
        assert_eq!(count, runs);
        let found = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
        let whole = found("bytes_per_process");
        assert_eq!((&whole.samples, &whole.limit.as_ref().unwrap().samples), (&vec![30.0; runs], &vec![20.0; runs]));
        assert_eq!(found("data_bytes").samples, vec![12.0; runs]);
        assert_eq!(found("data_bytes_max").samples, vec![16.0; runs]);
        assert_eq!(found("reported_bytes").samples, vec![8.0; runs]);
    }
}
