//! [`Uploads`]: the values that are being put in parts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::KvError;
use crate::values::Writer;
use crate::{lock, watch};

/// The most values that are put in parts at once.
const UPLOADS_MAX: usize = 64;
/// The most of them of one client.
const UPLOADS_OF_CLIENT_MAX: usize = 16;
/// The default of [`Store::upload_time`](crate::Store::upload_time).
const TIME: Duration = Duration::from_secs(15);

/// The values that are being put in parts, by number. A value whose client is silent is removed.
#[derive(Debug)]
pub(crate) struct Uploads(Mutex<State>);

#[derive(Debug)]
struct State {
    of: HashMap<u64, Held>,
    time: Duration,
    /// True if a thread looks for silent clients.
    is_watched: bool,
}

#[derive(Debug)]
struct Held {
    /// The connection that has begun the value. Others do not find it.
    connection: u64,
    used: Instant,
    upload: Arc<Mutex<Upload>>,
}

/// A value that is being put in parts.
#[derive(Debug)]
pub(crate) struct Upload {
    key: String,
    /// `None` once it has ended.
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

    /// Adds a value of a connection. Returns its number.
    pub(crate) fn add(self: &Arc<Self>, connection: u64, key: String, writer: Writer) -> Result<u64, KvError> {
        let number = writer.version();
        let mut state = lock(&self.0);
        if state.of.len() == UPLOADS_MAX {
            return Err(KvError::Busy { max: UPLOADS_MAX as u64 });
        }
        if state.of.values().filter(|held| held.connection == connection).count() == UPLOADS_OF_CLIENT_MAX {
            return Err(KvError::TooManyUploads { max: UPLOADS_OF_CLIENT_MAX as u64 });
        }
        if !state.is_watched {
            watch(self, Self::look).map_err(|cause| KvError::io("starting a thread", &cause))?;
            state.is_watched = true;
        }
        let upload = Upload { key, writer: Some(writer) };
        let held = Held { connection, used: Instant::now(), upload: Arc::new(Mutex::new(upload)) };
        state.of.insert(number, held);
        Ok(number)
    }

    /// A value that a connection has begun.
    pub(crate) fn find(&self, connection: u64, number: u64) -> Result<Arc<Mutex<Upload>>, KvError> {
        let mut state = lock(&self.0);
        let held = state.of.get_mut(&number).filter(|held| held.connection == connection);
        let held = held.ok_or(KvError::NoUpload { number })?;
        held.used = Instant::now();
        Ok(held.upload.clone())
    }

    /// Forgets a value of a connection. Its bytes go when the last call that uses it ends.
    pub(crate) fn take(&self, connection: u64, number: u64) {
        let is_meant = |found: &u64, held: &mut Held| *found == number && held.connection == connection;
        // The lock is free while a file is removed.
        let removed = lock(&self.0).of.extract_if(is_meant).next();
        drop(removed);
    }

    /// Forgets the values whose clients are silent. Returns when to look again, if any is left.
    fn look(&self) -> Option<Duration> {
        let mut state = lock(&self.0);
        let time = state.time;
        // A value that a call uses has a client.
        let is_over = |held: &Held| Arc::strong_count(&held.upload) == 1 && held.used.elapsed() >= time;
        let removed: Vec<_> = state.of.extract_if(|_, held| is_over(held)).collect();
        state.is_watched = !state.of.is_empty();
        let again = state.is_watched.then_some(time / 4);
        // The lock is free while files are removed.
        drop(state);
        drop(removed);
        again
    }
}

impl Upload {
    pub(crate) fn writer(&mut self, number: u64) -> Result<&mut Writer, KvError> {
        self.writer.as_mut().ok_or(KvError::NoUpload { number })
    }

    /// Ends the value: nothing more is added.
    pub(crate) fn end(&mut self, number: u64) -> Result<(String, Writer), KvError> {
        let writer = self.writer.take().ok_or(KvError::NoUpload { number })?;
        Ok((std::mem::take(&mut self.key), writer))
    }
}
