//! The parts of every check: processes that are threads, a meeting point outside of the fabric, and
//! a watchdog.

mod observed;
mod process;

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use farside_testbed::now;

use super::{Fabric, QueueOpener};
use farside_fabric::sim::Random;
use farside_fabric::transport::RemoteKey;

pub(super) use self::observed::Observed;
pub(super) use self::process::Process;

/// The setup of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    check: &'static str,
    processes: u32,
    starter_bytes: usize,
    service: Service,
}

/// The processes that have a service thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Everybody,
    /// All but process 0.
    TargetsOnly,
    Nobody,
}

impl Trial {
    /// Sets up a check with `processes` processes, each with a page of starter memory and a service
    /// thread.
    pub(super) fn new(check: &'static str, processes: u32) -> Self {
        Self { check, processes, starter_bytes: 4096, service: Service::Everybody }
    }

    pub(super) fn starter_bytes(self, starter_bytes: usize) -> Self {
        Self { starter_bytes, ..self }
    }

    pub(super) fn service(self, service: Service) -> Self {
        Self { service, ..self }
    }

    /// Runs `body` as each process. No process leaves before all are done.
    #[track_caller]
    pub(super) fn run(self, fabric: &dyn Fabric, body: impl Fn(&Process) + Send + Sync + 'static) {
        self.run_with_leavers(fabric, move |process| {
            body(&process);
            process.meet();
        });
    }

    /// Runs `body` as each process. A process ends when its `Process` is dropped.
    ///
    /// The threads are not joined: if one is stuck in the fabric, the check must still be able to
    /// fail.
    #[track_caller]
    pub(super) fn run_with_leavers(self, fabric: &dyn Fabric, body: impl Fn(Process) + Send + Sync + 'static) {
        let fail = |why: &str| -> ! { panic!("{} on fabric {}: {why}", self.check, fabric.name()) };
        let ends = match fabric.start(self.processes, self.starter_bytes) {
            Ok(ends) => ends,
            Err(error) => fail(&format!("it does not start: {error}")),
        };
        let shared = Arc::new(Shared::new(self, fabric));
        let body = Arc::new(body);
        let (ended, ends_of_processes) = mpsc::channel();
        for end in ends {
            let (shared, body, ended) = (shared.clone(), body.clone(), ended.clone());
            let enter = fabric.entrance(end.process());
            thread::spawn(move || {
                shared.clone().guard(|| {
                    enter();
                    body(Process::new(end, shared));
                });
                // The receiver is gone if the check has already failed.
                let _ = ended.send(());
            });
        }
        // A check has several waits.
        let give_up = now() + 2 * fabric.patience();
        for _ in 0..self.processes {
            let left = give_up.saturating_duration_since(now());
            if ends_of_processes.recv_timeout(left).is_err() {
                shared.fail("it does not come to its end".into());
            }
            if let Some(why) = shared.failure.get() {
                fail(why);
            }
        }
    }
}

/// The state that the processes of a check share outside of the fabric under test.
#[derive(Debug)]
struct Shared {
    trial: Trial,
    patience: Duration,
    open_queue: QueueOpener,
    /// The reason for which the check failed. Every thread that waits looks here too.
    failure: OnceLock<String>,
    /// Number of arrivals at the meeting point, of all processes together.
    arrivals: AtomicU64,
    keys: Mutex<Vec<Option<RemoteKey>>>,
    values: Mutex<Vec<u64>>,
}

impl Shared {
    fn new(trial: Trial, fabric: &dyn Fabric) -> Self {
        Self {
            trial,
            patience: fabric.patience(),
            open_queue: fabric.queue_opener(),
            failure: OnceLock::new(),
            arrivals: AtomicU64::new(0),
            keys: Mutex::new(vec![None; trial.processes as usize]),
            values: Mutex::new(Vec::new()),
        }
    }

    /// Records a failure. The first one counts, because the others follow from it.
    fn fail(&self, why: String) {
        self.failure.get_or_init(|| why);
    }

    fn guard(&self, body: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            self.fail(text_of(&*payload));
        }
    }

    fn check_failure(&self) {
        if let Some(why) = self.failure.get() {
            panic!("given up, because: {why}");
        }
    }
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

#[track_caller]
pub(super) fn expect<T>(result: Result<T, impl Display>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error}"))
}

/// Returns bytes that differ for each seed.
pub(super) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Random::new(seed).fill(&mut data);
    data
}

/// Asserts that two byte strings are equal, and reports briefly where they differ.
#[track_caller]
pub(super) fn assert_same(found: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: the length");
    if let Some(at) = found.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
        let count = found.iter().zip(wanted).filter(|(found, wanted)| found != wanted).count();
        panic!("{what}: {count} of {} bytes are wrong, the first at {at}", wanted.len());
    }
}
