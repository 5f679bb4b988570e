//! [`Uploads`]: the values that are being put in parts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::KvError;
use crate::service::Stat;
use crate::values::Writer;
use crate::{lock, watch};

/// The most values that are put in parts at once.
const UPLOADS_MAX: usize = 64;
/// The most values of one client.
const UPLOADS_OF_CLIENT_MAX: usize = 16;
/// The default of [`Store::upload_time`](crate::Store::upload_time).
const TIME: Duration = Duration::from_secs(15);

/// The values that are being put in parts, by version. A value whose client is silent is removed.
#[derive(Debug)]
pub(crate) struct Uploads(Mutex<State>);

#[derive(Debug)]
struct State {
    of: HashMap<u64, Upload>,
    time: Duration,
    /// True if a thread looks for silent clients.
    is_watched: bool,
}

#[derive(Debug)]
struct Upload {
    /// The connection that has begun the value. Others do not find it.
    connection: u64,
    used: Instant,
    /// `None` while a part arrives.
    writer: Option<Writer>,
}

impl Default for Uploads {
    fn default() -> Self {
        Self(Mutex::new(State { of: HashMap::new(), time: TIME, is_watched: false }))
    }
}

impl Uploads {
    pub(crate) fn set_time(&self, time: Duration) {
        lock(&self.0).time = time;
    }

    /// Adds a value of a connection, whose first part arrives.
    pub(crate) fn add(self: &Arc<Self>, connection: u64, version: u64) -> Result<(), KvError> {
        let mut state = lock(&self.0);
        if state.of.len() == UPLOADS_MAX {
            return Err(KvError::Busy { max: UPLOADS_MAX as u64 });
        }
        if state.of.values().filter(|upload| upload.connection == connection).count() == UPLOADS_OF_CLIENT_MAX {
            return Err(KvError::TooManyUploads { max: UPLOADS_OF_CLIENT_MAX as u64 });
        }
        if !state.is_watched {
            watch(self, Self::look).map_err(|cause| KvError::io("starting a thread", &cause))?;
            state.is_watched = true;
        }
        state.of.insert(version, Upload { connection, used: Instant::now(), writer: None });
        Ok(())
    }

    /// Takes a value of a connection, for a part of it that arrives.
    pub(crate) fn take(&self, connection: u64, version: u64) -> Result<Writer, KvError> {
        // A thread does not wait for the part of another one.
        lock(&self.0).find(connection, version)?.writer.take().ok_or_else(on_its_way)
    }

    /// Gives back a value of which a part has arrived.
    pub(crate) fn give_back(&self, writer: Writer) {
        if let Some(upload) = lock(&self.0).of.get_mut(&writer.version()) {
            // The time until the next part begins now.
            (upload.used, upload.writer) = (Instant::now(), Some(writer));
        }
    }

    /// Notes that the client of a value is there. Returns what is known of the value.
    pub(crate) fn keep(&self, connection: u64, version: u64) -> Result<Stat, KvError> {
        let mut state = lock(&self.0);
        let upload = state.find(connection, version)?;
        upload.used = Instant::now();
        upload.writer.as_ref().map(Writer::stat).ok_or_else(on_its_way)
    }

    /// Forgets a value that its caller has taken.
    pub(crate) fn remove(&self, version: u64) {
        lock(&self.0).of.remove(&version);
    }

    /// Forgets the values whose clients are silent. Returns when to look again, if any is left.
    fn look(&self) -> Option<Duration> {
        let mut state = lock(&self.0);
        let time = state.time;
        // A value of which a part arrives has a client.
        let is_over = |upload: &Upload| upload.writer.is_some() && upload.used.elapsed() >= time;
        let removed: Vec<_> = state.of.extract_if(|_, upload| is_over(upload)).collect();
        state.is_watched = !state.of.is_empty();
        let again = state.is_watched.then_some(time / 4);
        // The lock is free while files are removed.
        drop(state);
        drop(removed);
        again
    }
}

impl State {
    fn find(&mut self, connection: u64, number: u64) -> Result<&mut Upload, KvError> {
        let upload = self.of.get_mut(&number).filter(|upload| upload.connection == connection);
        upload.ok_or(KvError::NoUpload { number })
    }
}

fn on_its_way() -> KvError {
    KvError::Transfer { cause: "another part is on its way".into() }
}
