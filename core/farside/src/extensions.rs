//! State that libraries keep in each process: [`Worker::process_state`]; functions that a process
//! runs on threads of their own: [`Caller::run_in_background`].

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_fabric::threads::{PoolOptions, ThreadPool};
use farside_fabric::{ProcessId, WorkerId};

use crate::error::{Error, Result};
use crate::invoke::caller::Caller;
use crate::invoke::table::Background;
use crate::runtime::activity::Activity;
use crate::runtime::process::Process;
use crate::runtime::room::{Room, Seed};
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The most bytes of arguments of a background function.
const BACKGROUND_BYTES_MAX: usize = 4096;
/// The number of background functions that a process runs at once.
const BACKGROUND_MAX: usize = 16;

type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The state of libraries in one process.
pub(crate) struct Extensions {
    states: Mutex<States>,
    /// The threads of background functions.
    threads: ThreadPool,
}

/// A function for a process to run, and its bytes.
#[derive(Debug, Wire)]
#[wire(crate = "crate::wire")]
pub(crate) struct BackgroundMessage {
    /// The number of the function's entry in the table of functions.
    function: u16,
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

    /// Runs a background function on a thread of its own. Drops it if [`BACKGROUND_MAX`] of them
    /// run or the process ends.
    fn spawn(&self, process: &Arc<Process>, function: fn(&Caller, &[u8]), bytes: Vec<u8>) -> Result<()> {
        let caller = Caller::new(process.clone());
        let added = self.threads.add(0, Box::new(move || function(&caller, &bytes)));
        added.map_err(|cause| Error::System { doing: "starting a background thread", cause })?;
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

    type Message = BackgroundMessage;

    type Local = ();

    fn new(seed: &Seed<'_>) -> Self {
        let options =
            PoolOptions { unfinished_max: BACKGROUND_MAX, ..PoolOptions::new("farside background", BACKGROUND_MAX) };
        Self { states: Mutex::default(), threads: ThreadPool::new(seed.transport.clock(), options) }
    }

    fn local(&self, _: &Arc<Process>, _: usize) {}

    fn take(&self, process: &Arc<Process>, from: ProcessId, message: BackgroundMessage) {
        let BackgroundMessage { function, bytes } = message;
        // In another binary, the number is that of another function.
        if let Some(function) = process.calls.table.background(function).filter(|_| process.job.is_alike(from)) {
            // Without a thread, it is as if the message was lost: its sender asks again.
            let _ = self.spawn(process, function, bytes);
        }
    }

    fn stop(&self, _: &Process) {
        self.threads.close();
        if let Err(panic) = self.threads.join() {
            resume_unwind(panic);
        }
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
    /// # use farside::{Background, Caller, ProcessId, Worker};
    /// struct Greet;
    ///
    /// impl Background for Greet {
    ///     fn run(here: &Caller, name: &[u8]) {
    ///         println!("{} greets {name:?}", here.process());
    ///     }
    /// }
    ///
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// me.caller().run_in_background::<Greet>(ProcessId::new(1), b"Ann")
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
    pub fn run_in_background<B: Background>(&self, process: ProcessId, bytes: &[u8]) -> Result<()> {
        if bytes.len() > BACKGROUND_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "the bytes of a background function",
                bytes: bytes.len(),
                max: BACKGROUND_BYTES_MAX,
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
            return own.room::<Extensions>().spawn(own, B::run, bytes.to_vec());
        }
        let function = own.calls.table.entries().number_of_background::<B>()?;
        own.send::<Extensions>(process, &BackgroundMessage { function, bytes: bytes.to_vec() })
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

    impl Background for Count {
        fn run(here: &Caller, bytes: &[u8]) {
            here.process_state::<Seen>().0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if here.process().number() > 0 {
                here.run_in_background::<Self>(ProcessId::new(0), &[bytes, bytes].concat()).unwrap();
            }
        }
    }

    #[test]
    fn functions_run_in_the_background() {
        let body = |me: &Worker| -> Result<()> {
            let seen = me.process_state::<Seen>();
            let count = || seen.0.load(Ordering::Relaxed);
            if me.is_first() {
                let caller = me.caller();
                let error =
                    caller.run_in_background::<Count>(ProcessId::new(1), &[0; BACKGROUND_BYTES_MAX + 1]).unwrap_err();
                assert!(matches!(error, Error::TooLarge { .. }), "{error}");
                let error = caller.run_in_background::<Count>(ProcessId::new(2), &[]).unwrap_err();
                assert!(matches!(error, Error::UnknownWorker { .. }), "{error}");
                caller.run_in_background::<Count>(ProcessId::new(1), b"abc")?;
                caller.run_in_background::<Count>(ProcessId::new(0), b"d")?;
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
