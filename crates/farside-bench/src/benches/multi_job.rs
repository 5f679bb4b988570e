//! What memory a process of a job takes that was made of several, beside the same processes started as one.
//!
//! The program is that of ACP's authors for "ACP + MPI": a master hands work to the sub-masters of groups, and each hands it on to the
//! workers of its group; the results come back the same way. The master and each group are launched by themselves and
//! join (`joined`), or all are launched together (`one-job`).
//!
//! **Both come out equal**, for groups that join become one job with one numbering. What ACP saves by joining small MPI jobs is here saved in
//! any job: a process pays for those whom it talks with, not for those who are there. `everybody-meets` shows what one pays
//! who talks with all, as the ranks of one large communicator may.
//!
//! Metrics: `bytes_per_process`, the mean over all processes of what each has of the machine's memory; `data_bytes`, the same without the
//! program and its libraries, and `data_bytes_max`, the most that one process has; `reported_bytes`, what Farside says that it has
//! reserved for a process (starter memory and rings, touched or not; not what libfabric takes).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside::job::footprint;
use farside::{Reply, Worker, WorkerId};

use crate::case::{Case, RunOnce};
use crate::fabric::Fabric;
use crate::metric::Metric;
use crate::resident::Resident;
use crate::{BenchError, Options};

pub(crate) const ABOUT: &str = "memory of a process where groups launched separately join: they become one job, and cost what it costs (ACP + MPI)";

/// Groups under the master, and workers under each sub-master. The first shape's cases have no suffix.
const SHAPES: [Crew; 2] = [Crew { groups: 2, workers: 2 }, Crew { groups: 4, workers: 4 }];
/// Rounds of work, when nothing else is asked for.
const ROUNDS: u64 = 1000;
/// What a task is: so many numbers to look at.
const TASK_NUMBERS: u64 = 100;
const MASTER: WorkerId = WorkerId::new(0);
/// What the memory is set against.
const BEFORE: &str = "before the first call";

/// "Estimated memory consumption per process of ACP with 1M procs", in MB, by network. Of ACP + MPI its authors show a chart only, in which it
/// takes less than MPI alone.
pub(super) const PUBLISHED: [(&str, f64); 3] =
    [("acp-infiniband-published", 369e6), ("acp-tofu-published", 67e6), ("acp-udp-published", 34e6)];

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    match on {
        Fabric::Shm => {
            let published = |(peer, bytes)| Metric::new("bytes_per_process", "B", vec![bytes]).of_peer(peer);
            let estimate = Case::here("estimate/1M", move |_| Ok(PUBLISHED.map(published).into()));
            cases_in_jobs(&SHAPES).into_iter().chain([estimate]).collect()
        }
        // A process takes so much memory for libfabric that many take long to start.
        Fabric::Ofi(_) => cases_in_jobs(&SHAPES[..1]),
        Fabric::Simulated(_) => Vec::new(),
    }
}

fn cases_in_jobs(shapes: &[Crew]) -> Vec<Case> {
    let case = |crew: Crew, name: &str, meeting: Meeting| {
        let name = if crew == SHAPES[0] { name.to_owned() } else { format!("{name}/{crew}") };
        Case::around_job(name, crew.processes(), move |me, options| measure(me, crew, meeting, options), repeat)
    };
    let of_crew = |crew: &Crew| {
        let crew = *crew;
        [
            case(crew, "joined", Meeting::AsWorkGoes).launched_in(crew.group_sizes()),
            case(crew, "one-job", Meeting::AsWorkGoes),
            case(crew, "everybody-meets", Meeting::Everybody),
        ]
    };
    shapes.iter().flat_map(of_crew).collect()
}

/// Who talks with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// The master with sub-masters, and they with their workers.
    AsWorkGoes,
    /// After that each with each.
    Everybody,
}

/// One run of the job, as its worker 0 sees it in the end.
fn measure(me: &Worker, crew: Crew, meeting: Meeting, options: Options) -> Result<Vec<Metric>, BenchError> {
    let before = Resident::of_this_process()?;
    if me.id() == MASTER {
        let rounds = options.operations_or(ROUNDS);
        let found = crew.direct(me, rounds)?;
        let expected = (0..rounds * crew.tasks()).map(work).sum();
        if found != expected {
            return Err(BenchError::WrongSum { what: "the work of a hierarchy", expected, found });
        }
    }
    me.barrier()?;
    if meeting == Meeting::Everybody {
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

/// What all processes found: before and after, all of it and data alone, and what Farside says.
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

/// How often the memory is measured, which hardly varies.
fn runs(options: Options) -> usize {
    options.runs().div_ceil(2)
}

/// Each run is a job of its own, for memory is not given back.
pub(super) fn repeat(options: Options, run_once: RunOnce<'_>) -> Result<Vec<Metric>, BenchError> {
    let mut all = run_once()?;
    for _ in 1..runs(options) {
        for (metric, again) in all.iter_mut().zip(run_once()?) {
            metric.extend(again);
        }
    }
    Ok(all)
}

/// One master, groups under it, and in each a sub-master with workers under it. Displayed as cases spell it, `4x4`.
///
/// The master is process 0. Behind it comes one group after the other, its sub-master first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Crew {
    groups: u32,
    workers: u32,
}

impl std::fmt::Display for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.groups, self.workers)
    }
}

impl Crew {
    fn processes(self) -> u32 {
        self.group_sizes().iter().sum()
    }

    /// The master is a group of its own.
    fn group_sizes(self) -> Vec<u32> {
        std::iter::once(1).chain((0..self.groups).map(|_| 1 + self.workers)).collect()
    }

    fn sub_master(self, group: u32) -> WorkerId {
        WorkerId::new(1 + group * (1 + self.workers))
    }

    /// Tasks of one round: one for each worker.
    fn tasks(self) -> u64 {
        u64::from(self.groups) * u64::from(self.workers)
    }

    /// The master's part. Returns the sum of all results.
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

/// The sub-master's part: one task for each of its workers, who follow it in number. When one fails, the answer is dropped, and so the master
/// learns of it.
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

/// The worker's part.
fn work(task: u64) -> u64 {
    let numbers = task * TASK_NUMBERS..(task + 1) * TASK_NUMBERS;
    numbers.map(|number| u64::from(number.wrapping_mul(0x9E37_79B9_7F4A_7C15).count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crew_is_numbered_group_by_group() {
        let crew = Crew { groups: 3, workers: 2 };
        assert_eq!((crew.processes(), crew.group_sizes(), crew.tasks()), (10, vec![1, 3, 3, 3], 6));
        assert_eq!([0, 1, 2].map(|group| crew.sub_master(group).number()), [1, 4, 7]);
        assert_eq!(crew.to_string(), "3x2");
    }

    #[test]
    fn the_work_of_all_comes_back() {
        for crew in [Crew { groups: 1, workers: 1 }, Crew { groups: 2, workers: 3 }] {
            let result = farside::job::simulate(crew.processes(), 1, 1, |me| {
                if me.id() == MASTER {
                    assert_eq!(crew.direct(me, 5)?, (0..5 * crew.tasks()).map(work).sum::<u64>());
                }
                me.barrier()
            });
            result.unwrap();
        }
    }

    #[test]
    fn each_run_is_a_sample() {
        let mut count = 0;
        let run_once: RunOnce<'_> = &mut || {
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
