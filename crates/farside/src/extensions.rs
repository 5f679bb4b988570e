//! State that libraries keep in each process: [`Worker::process_state`]; functions that a process
//! runs beside its workers: [`Caller::run_beside`].

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_fabric::ProcessId;

use crate::error::{Error, Result};
use crate::invoke::caller::Caller;
use crate::invoke::function::{Errand, ErrandName};
use crate::runtime::activity::Activity;
use crate::runtime::aside::Aside;
use crate::runtime::process::{Process, lock};
use crate::runtime::room::{Room, Seed};
use crate::runtime::worker::Worker;
use crate::wire::Wire;

/// The most bytes of an errand.
const ERRAND_BYTES_MAX: usize = 4096;
/// The number of errands that a process runs at once.
const ERRANDS_MAX: usize = 16;

type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The state of libraries in one process.
#[derive(Default)]
pub(crate) struct Extensions {
    states: Mutex<States>,
    /// The threads of errands, perhaps with some that have ended.
    errands: Mutex<Vec<Aside>>,
}

/// A function for a process to run, and its bytes.
#[derive(Debug, Wire)]
#[wire(crate = "crate::wire")]
pub(crate) struct ErrandMessage {
    name: ErrandName,
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

    /// Runs an errand on a thread of its own. Drops it if as many as are allowed run already.
    fn begin_errand(&self, process: &Arc<Process>, errand: Errand, bytes: Vec<u8>) -> Result<()> {
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
        let ErrandMessage { name, bytes } = message;
        if let Some(errand) = name.find(process, from) {
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
    /// # use farside::{ProcessId, Worker};
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let greet = |there: &farside::Caller, name: &[u8]| println!("{}: {name:?}", there.process());
    /// me.caller().run_beside(ProcessId::new(1), greet, b"hello")
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
    /// [`Error::TooLarge`] for more than 4096 bytes; [`Error::ForeignFunction`]; [`Error::System`]
    /// if the process is this one and has no thread; the loss of the process.
    pub fn run_beside(&self, process: ProcessId, errand: fn(&Caller, &[u8]), bytes: &[u8]) -> Result<()> {
        if bytes.len() > ERRAND_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "the bytes of a function beside the workers",
                bytes: bytes.len(),
                max: ERRAND_BYTES_MAX,
                remedy: "pass fewer, or use a call",
            });
        }
        let own = self.process_handle();
        if process == own.id() {
            return own.room::<Extensions>().begin_errand(own, errand, bytes.to_vec());
        }
        let name = ErrandName::of(own, errand)?;
        own.send::<Extensions>(process, &ErrandMessage { name, bytes: bytes.to_vec() })
    }
}
