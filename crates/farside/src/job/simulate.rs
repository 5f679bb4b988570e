//! A whole job inside this program, over a simulated network.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use farside_fabric::sim::{SimFabric, SimOptions};
use farside_fabric::{ProcessId, Transport};

use crate::Worker;
use crate::error::{ProcessEnd, Result};
use crate::job::child::{Member, TransportChoice};
use crate::job::control::{LocalControl, ToCoordinator};
use crate::job::coordinator::{Coordinator, Plan};
use crate::job::home::{HomeLayout, Shape};
use crate::job::run::run_process;
use crate::job::settings::{Choices, Settings, own_environment};

/// Runs a job whose processes are groups of threads of this program, on a network that delays and reorders what the seed
/// tells it to.
///
/// It is the same job as [`Job::run`](crate::Job::run) would start, and has the same verdict. Nothing is mapped from one
/// process into another, so every access takes the way that it would take between machines. Any number of such jobs can be
/// run, one after the other or at once. What `body` borrows is shared by all the processes, which those of a real job could
/// not do.
///
/// *Cost*: a few threads and a few hundred KiB of memory for each process.
///
/// # Errors
/// Those of [`Job::run`](crate::Job::run) in the process that starts the job. A worker that panics is an error here, not a
/// panic.
pub fn simulate<F>(processes: u32, threads: u32, seed: u64, body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    let choices = Choices { processes: Some(processes), threads: Some(threads), ..Choices::default() };
    let settings = choices.resolve(&own_environment)?;
    let starter_bytes = HomeLayout::new(Shape::new(&settings)).bytes();
    let fabric = SimFabric::new(processes, starter_bytes, seed, SimOptions::default())?;
    let endpoints = (0..processes).map(|process| fabric.endpoint(ProcessId::new(process))).collect();
    run_in_this_program(&settings, seed, endpoints, body)
}

/// Runs a job whose processes are threads of this program, each at its end of a fabric.
fn run_in_this_program<F>(settings: &Settings, job_id: u64, endpoints: Vec<Arc<dyn Transport>>, body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    let coordinator = Coordinator::new(Plan {
        processes: settings.processes,
        job_id,
        secret: [0; 16],
        start_deadline: settings.deadline,
        finalize_deadline: settings.finalize_deadline,
    });
    let (tell, news) = mpsc::channel();
    let mut links = Vec::new();
    let mut members = Vec::new();
    for (process, endpoint) in (0..).map(ProcessId::new).zip(endpoints) {
        let control = Arc::new(link(process, Arc::downgrade(&endpoint), tell.clone()));
        links.push(control.clone());
        let transport = TransportChoice::Ready(endpoint);
        members.push(Member { process, settings: settings.clone(), control, transport, kill_plan: None });
    }
    std::thread::scope(|scope| {
        for member in members {
            let (tell, body) = (tell.clone(), &body);
            scope.spawn(move || {
                let process = member.process;
                let end = run_member(member, body);
                // Nobody listens only when the verdict is known, and then this is no news.
                let _ = tell.send((process, News::Ended(end)));
            });
        }
        drop(tell);
        coordinate(coordinator, &links, &news)
    })
}

/// What a process has to report.
#[derive(Debug)]
enum News {
    Said(ToCoordinator),
    Ended(ProcessEnd),
}

/// A process's link with the coordinator. It does not keep the process's end of the fabric open.
fn link(process: ProcessId, endpoint: Weak<dyn Transport>, tell: mpsc::Sender<(ProcessId, News)>) -> LocalControl {
    LocalControl::new(
        move |message| {
            // As above.
            let _ = tell.send((process, News::Said(message)));
        },
        move || {
            if let Some(endpoint) = endpoint.upgrade() {
                endpoint.wake();
            }
        },
    )
}

/// Runs one process, which ends as a process of its own would.
fn run_member<F>(member: Member, body: &F) -> ProcessEnd
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    // A panic ends the process, so nobody sees what it left half done; the others share with it what `body` borrows, whose
    // owner gets to know of the panic by the verdict.
    match catch_unwind(AssertUnwindSafe(|| run_process(member, body))) {
        Ok(Ok(())) => ProcessEnd::Exited(0),
        Ok(Err(_)) => ProcessEnd::Exited(1),
        Err(_) => ProcessEnd::Exited(101),
    }
}

fn coordinate(
    mut coordinator: Coordinator,
    links: &[Arc<LocalControl>],
    news: &mpsc::Receiver<(ProcessId, News)>,
) -> Result<()> {
    let started = Instant::now();
    loop {
        while let Some((process, message)) = coordinator.next_message() {
            links[process.index()].deliver(message);
        }
        if let Some(verdict) = coordinator.verdict() {
            return verdict;
        }
        let patience = match coordinator.next_tick() {
            Some(at) => at.saturating_sub(started.elapsed()),
            None => Duration::MAX,
        };
        match news.recv_timeout(patience) {
            Ok((process, News::Said(message))) => coordinator.said(process, message, started.elapsed()),
            Ok((process, News::Ended(end))) => coordinator.ended(process, end, started.elapsed()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("every process reports its end"),
        }
        coordinator.tick(started.elapsed());
    }
}

/// Runs a job whose processes are threads of this program and reach each other over shared memory, as those of a real job do. So
/// that tests can look inside.
#[cfg(test)]
pub(crate) fn share_memory<F>(processes: u32, body: F) -> Result<()>
where
    F: Fn(&Worker) -> Result<()> + Send + Sync,
{
    use farside_fabric::shm::{ShmConfig, ShmEndpoint};

    let settings = Choices { processes: Some(processes), ..Choices::default() }.resolve(&|_| None)?;
    let starter_bytes = HomeLayout::new(Shape::new(&settings)).bytes();
    let random = farside_sys::process::random_bytes().expect("the system has random bytes");
    let job_id = u64::from_le_bytes(random);
    let open = |process| -> Result<Arc<dyn Transport>> {
        let process = ProcessId::new(process);
        Ok(ShmEndpoint::open(ShmConfig { process, process_count: processes, job_id, secret: [0; 16], starter_bytes })?)
    };
    let endpoints = (0..processes).map(open).collect::<Result<_>>()?;
    run_in_this_program(&settings, job_id, endpoints, body)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::Error;

    #[test]
    fn every_worker_of_every_process_runs_once() {
        for (processes, threads) in [(1, 1), (2, 1), (3, 2), (4, 1), (5, 3)] {
            let runs: Vec<AtomicU32> = (0..processes * threads).map(|_| AtomicU32::new(0)).collect();
            simulate(processes, threads, 1, |me| {
                runs[me.id().index()].fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{runs:?}");
        }
    }

    #[test]
    fn the_first_failure_is_the_verdict() {
        let verdict = simulate(3, 1, 2, |me| match me.id().number() {
            1 => Err(Error::JobEnded { why: "I would rather not".into() }),
            _ => Ok(()),
        });
        let Err(Error::ProcessFailed { process, how: ProcessEnd::Reported(why) }) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(process, ProcessId::new(1));
        assert!(why.contains("rather not"), "{why}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let verdict = simulate(2, 2, 3, |me| {
            assert_ne!(me.id().number(), 3, "number three has to go");
            Ok(())
        });
        let Err(Error::ProcessFailed { process, how: ProcessEnd::Reported(why) }) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(process, ProcessId::new(1));
        assert!(why.contains("number three has to go"), "{why}");
    }

    #[test]
    fn an_impossible_shape_is_an_error() {
        assert!(matches!(simulate(0, 1, 0, |_| Ok(())), Err(Error::JobShape { .. })));
        assert!(matches!(simulate(1, 0, 0, |_| Ok(())), Err(Error::JobShape { .. })));
    }
}
