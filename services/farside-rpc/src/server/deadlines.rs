//! [`Deadlines`]: calls that no thread runs, and that must end nevertheless.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use farside_connect::lock;
use farside_sys::net::Waker;

/// A deadline, a connection and a call.
pub(super) type Key = (Instant, u64, u64);

/// The streams that wait for credit and the `async` handlers that wait, by their deadlines.
#[derive(Default)]
pub(super) struct Deadlines(Mutex<BTreeMap<Key, Box<dyn FnOnce() + Send>>>);

impl Deadlines {
    /// Calls `end` at the deadline of a call. It must not wait.
    pub(super) fn add(&self, key: Key, server: &Waker, end: impl FnOnce() + Send + 'static) {
        let mut all = lock(&self.0);
        all.insert(key, Box::new(end));
        let is_first = all.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(all);
        if is_first {
            // The loop may intend to sleep for longer.
            server.wake();
        }
    }

    /// Forgets a call.
    pub(super) fn remove(&self, key: Key) {
        let removed = lock(&self.0).remove(&key);
        drop(removed);
    }

    /// The first deadline.
    pub(super) fn first(&self) -> Option<Instant> {
        lock(&self.0).first_key_value().map(|((deadline, ..), _)| *deadline)
    }

    /// Ends the calls whose deadlines have passed.
    pub(super) fn expire(&self) {
        while self.first().is_some_and(|first| first <= Instant::now()) {
            let first = lock(&self.0).pop_first();
            if let Some((_, end)) = first {
                end();
            }
        }
    }
}

impl fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadlines").field("first", &self.first()).finish()
    }
}
