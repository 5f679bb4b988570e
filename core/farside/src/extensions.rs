//! State that libraries keep in each process: [`Worker::process_state`]; functions that a process
//! runs on threads of their own: [`Caller::run_beside`].

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_fabric::{ProcessId, WorkerId};

use crate::error::{Error, Result};
use crate::invoke::caller::Caller;
use crate::invoke::table::Errand;
use crate::runtime::activity::Activity;
use crate::runtime::aside::Aside;
use crate::runtime::process::{Process, lock};
use crate::runtime::room::{Room, Seed};
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The most bytes of arguments of a background function.
const ERRAND_BYTES_MAX: usize = 4096;
/// The number of background functions that a process runs at once.
const ERRANDS_MAX: usize = 16;

type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The state of libraries in one process.
#[derive(Default)]
pub(crate) struct Extensions {
    states: Mutex<States>,
    /// The threads of background functions, perhaps with some that have ended.
    errands: Mutex<Vec<Aside>>,
}

/// A function for a process to run, and its bytes.
#[derive(Debug, Wire)]
#[wire(crate = "crate::wire")]
pub(crate) struct ErrandMessage {
    /// The number of the function's entry in the table of functions.
    errand: u16,
    bytes: Vec<u8>,
}

impl Extensions {
    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let state = self.lock().entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        state.downcast().expect("a state has the type under which it was stored")
    }

    /// Runs a background function on a thread of its own. Drops it if the limit of [`ERRANDS_MAX`]
    /// is reached.
    fn begin_errand(&self, process: &Arc<Process>, errand: fn(&Caller, &[u8]), bytes: Vec<u8>) -> Result<()> {
        let mut errands = lock(&self.errands);
        errands.retain(|errand| !errand.has_ended());
        if errands.len() < ERRANDS_MAX {
            let run = move |process: &Arc<Process>| errand(&Caller::new(process.clone()), &bytes);
            errands.push(Aside::start(process, "farside errand", run)?);
        }
        Ok(())
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").field("count", &self.lock().len()).finish()
    }
}

impl Room for Extensions {
    const TAG: u8 = 10;

    type Message = ErrandMessage;

    type Local = ();

    fn new(_: &Seed<'_>) -> Self {
        Self::default()
    }

    fn local(&self, _: &Arc<Process>, _: usize) {}

    fn take(&self, process: &Arc<Process>, from: ProcessId, message: ErrandMessage) {
        let ErrandMessage { errand, bytes } = message;
        // In another binary, the number is that of another function.
        if let Some(errand) = process.calls.table.errand(errand).filter(|_| process.job.is_alike(from)) {
            // Without a thread, it is as if the message was lost: its sender asks again.
            let _ = self.begin_errand(process, errand, bytes);
        }
    }

    fn stop(&self, _: &Process) {
        let errands = mem::take(&mut *lock(&self.errands));
        errands.into_iter().for_each(Aside::join);
        let states = mem::take(&mut *self.lock());
        // A destructor may take its time, and must not find the lock taken.
        drop(states);
    }
}

impl Worker {
    /// Returns the state of type `T` of this process. The first call in the process makes it.
    ///
    /// For libraries that keep something in each process, such as a thread. It is not collective,
    /// unlike [`Dist`](crate::Dist), so there is one state of a type. Give the type no other use.
    ///
    /// The process drops its handle after its workers have ended, before
    /// [`Job::run`](crate::Job::run) returns.
    ///
    /// *Cost*: a lock and a look-up by hash. Keep the handle.
    ///
    /// # Panics
    /// If `T::default` panics.
    ///
    /// ```no_run
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// #[derive(Default)]
    /// struct Hits(AtomicU64);
    ///
    /// # fn example(me: &farside::Worker) {
    /// me.process_state::<Hits>().0.fetch_add(1, Ordering::Relaxed);
    /// # }
    /// ```
    pub fn process_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.process_handle().room::<Extensions>().state()
    }
}

impl Caller {
    /// Returns the state of type `T` of this process, as [`Worker::process_state`] does.
    ///
    /// # Panics
    /// If `T::default` panics.
    pub fn process_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.process_handle().room::<Extensions>().state()
    }

    /// Returns what the workers of this process are doing, as [`Worker::activity`] does.
    pub fn activity(&self) -> Activity {
        Activity::of(self.process_handle())
    }

    /// The number of processes of the job.
    pub fn process_count(&self) -> u32 {
        self.process_handle().shape().processes
    }

    /// Has a process run a function on a thread of its own, whatever its workers do: they may
    /// compute without making progress. For libraries that keep something in each process.
    ///
    /// ```no_run
    /// # use farside::{Caller, Errand, ProcessId, Worker};
    /// struct Greet;
    ///
    /// impl Errand for Greet {
    ///     fn run(here: &Caller, name: &[u8]) {
    ///         println!("{} greets {name:?}", here.process());
    ///     }
    /// }
    ///
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// me.caller().run_beside::<Greet>(ProcessId::new(1), b"Ann")
    /// # }
    /// ```
    ///
    /// *Completion*: the function may not have begun when this returns. It is not run if the
    /// process has ended, runs another binary, or runs 16 such functions already. Let it answer in
    /// the same way, and ask again after some time. The job may end without it, but not while it
    /// runs, so let it wait for no worker.
    ///
    /// *Cost*: a message between service threads, and a thread.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more than 4096 bytes; [`Error::UnknownWorker`] if there is no such
    /// process; [`Error::ForeignFunction`]; [`Error::System`] if the process is this one and has no
    /// thread; the loss of the process.
    pub fn run_beside<E: Errand>(&self, process: ProcessId, bytes: &[u8]) -> Result<()> {
        if bytes.len() > ERRAND_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "the bytes of a function beside the workers",
                bytes: bytes.len(),
                max: ERRAND_BYTES_MAX,
                remedy: "pass fewer, or use a call",
            });
        }
        let own = self.process_handle();
        let shape = own.shape();
        if process.number() >= shape.processes {
            let worker = WorkerId::new(process.number().saturating_mul(shape.threads));
            return Err(Error::UnknownWorker { worker, count: shape.workers() });
        }
        if process == own.id() {
            return own.room::<Extensions>().begin_errand(own, E::run, bytes.to_vec());
        }
        let errand = own.calls.table.entries().number_of_errand::<E>()?;
        own.send::<Extensions>(process, &ErrandMessage { errand, bytes: bytes.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Seen(AtomicU64);

    /// Counts, and goes on to process 0.
    struct Count;

    impl Errand for Count {
        fn run(here: &Caller, bytes: &[u8]) {
            here.process_state::<Seen>().0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if here.process().number() > 0 {
                here.run_beside::<Self>(ProcessId::new(0), &[bytes, bytes].concat()).unwrap();
            }
        }
    }

    #[test]
    fn errands_run_beside_the_workers() {
        let body = |me: &Worker| -> Result<()> {
            let seen = me.process_state::<Seen>();
            let count = || seen.0.load(Ordering::Relaxed);
            if me.is_first() {
                let caller = me.caller();
                let error = caller.run_beside::<Count>(ProcessId::new(1), &[0; ERRAND_BYTES_MAX + 1]).unwrap_err();
                assert!(matches!(error, Error::TooLarge { .. }), "{error}");
                let error = caller.run_beside::<Count>(ProcessId::new(2), &[]).unwrap_err();
                assert!(matches!(error, Error::UnknownWorker { .. }), "{error}");
                caller.run_beside::<Count>(ProcessId::new(1), b"abc")?;
                caller.run_beside::<Count>(ProcessId::new(0), b"d")?;
                while count() < 7 {
                    match me.wait_together(Duration::from_millis(1), || count() == 7) {
                        Err(Error::Deadline { .. }) => {}
                        waited => waited?,
                    }
                }
            }
            me.barrier()?;
            assert_eq!(count(), if me.is_first() { 7 } else { 3 });
            Ok(())
        };
        crate::simulate(2, 1, 1, body).unwrap();
    }
}
