//! State that libraries keep in each process: [`Worker::process_state`].

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::runtime::process::Process;
use crate::runtime::room::{Room, Seed};
use crate::runtime::worker::Worker;

type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The state of libraries in one process.
#[derive(Default)]
pub(crate) struct Extensions(Mutex<States>);

impl Extensions {
    fn lock(&self) -> MutexGuard<'_, States> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").field("count", &self.lock().len()).finish()
    }
}

impl Room for Extensions {
    const TAG: u8 = 10;

    type Message = ();

    type Local = ();

    fn new(_: &Seed<'_>) -> Self {
        Self::default()
    }

    fn local(&self, _: &Arc<Process>, _: usize) {}

    fn stop(&self, _: &Process) {
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
        let extensions: &Extensions = self.process_handle().room();
        let mut states = extensions.lock();
        let state = states.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        drop(states);
        state.downcast().expect("a state has the type under which it was stored")
    }
}
