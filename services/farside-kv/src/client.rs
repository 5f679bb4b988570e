//! [`Client`]: the store, as other programs see it.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crc32fast::Hasher;
use farside_rpc::bulk::{Bulk, Memory, MemoryError, Read as Pull, Write as Push, scope};
use farside_rpc::{ConnectError, Credentials, Pending, Wire};

use crate::error::{ClientError, KvError};
use crate::service::{Entry, KvClient, PAGE_ENTRIES_MAX, Page, Part, Stat};

/// A long value is moved by calls of this size.
const PART_BYTES: usize = 4 << 20;
/// The bytes that are copied at once between a part and its reader or writer: they stay in a cache.
const COPY_BYTES: usize = 256 << 10;
/// The calls that are under way at once.
const WINDOW: usize = 2;
/// How often a value that is replaced again and again is read anew.
const TRIES: u32 = 10;
/// How often the store hears that the client of a value that is put in parts is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// The time that each call has, besides that for its bytes.
const DEADLINE: Duration = Duration::from_secs(30);

/// A store that another program serves. Clones share one connection.
///
/// ```
/// use farside_kv::{Client, KvServer, Store};
/// use farside_rpc::{Credentials, Server};
///
/// let address = format!("shm:kv-{}", std::process::id());
/// let store = KvServer::new(Store::memory());
/// let server = Server::builder().listen(&address)?.provider(0, store).start()?;
///
/// let kv = Client::connect(&address, Credentials::own_user())?;
/// kv.put("name", b"Ada")?;
/// assert_eq!(kv.get("name")?, b"Ada");
/// assert_eq!(kv.stat("name")?.bytes, 3);
/// kv.remove("name")?;
/// assert!(kv.get("name").unwrap_err().is_not_found());
/// # drop(server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Cost.* A value of at most 64 KiB is read by one call. One of at most 4 KiB travels with the
/// call that puts it.
#[derive(Clone, Debug)]
pub struct Client {
    kv: KvClient,
    deadline: Duration,
}

impl Client {
    /// Connects to a store. An absent server is an error at once.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(address: impl AsRef<str>, credentials: Credentials) -> Result<Self, ConnectError> {
        Ok(Self::new(farside_rpc::Client::connect(address, credentials)?))
    }

    /// The store of provider 0 of a server.
    #[must_use]
    pub fn new(client: farside_rpc::Client) -> Self {
        Self { kv: KvClient::new(client), deadline: DEADLINE }.deadline(DEADLINE)
    }

    /// The same connection, with another time for each call. A call that moves a value has one
    /// second more for each MiB. The default is 30 s.
    #[must_use]
    pub fn deadline(&self, time: Duration) -> Self {
        Self { kv: self.kv.deadline(time), deadline: time }
    }

    /// The calls themselves, to have several under way.
    #[must_use]
    pub fn calls(&self) -> &KvClient {
        &self.kv
    }

    /// The facts about a value.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stat(&self, key: &str) -> Result<Stat, ClientError> {
        Ok(self.kv.stat(key.into())?.wait()?)
    }

    /// A value.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get(&self, key: &str) -> Result<Vec<u8>, ClientError> {
        self.again(key, |stat, small| {
            let value = match small {
                Some(value) => value,
                None => self.get_long(key, stat)?,
            };
            if crc32fast::hash(&value) == stat.crc32 { Ok(value) } else { Err(damaged(key)) }
        })
    }

    /// Writes a value to `out`. Returns what is known of it.
    ///
    /// # Errors
    /// [`ClientError`]. A part of the value may have been written then.
    pub fn get_to(&self, key: &str, mut out: impl Write) -> Result<Stat, ClientError> {
        let (stat, small) = self.kv.get(key.into())?.wait()?;
        let mut crc = Hasher::new();
        let mut write = |bytes: &[u8]| {
            crc.update(bytes);
            out.write_all(bytes).map_err(ClientError::Stream)
        };
        match small {
            Some(value) => write(&value)?,
            None => self.fetch(key, &stat, 0, &mut write)?,
        }
        if crc.finalize() == stat.crc32 { Ok(stat) } else { Err(damaged(key)) }
    }

    /// Writes a value to a file. `progress` hears how many bytes are there, of how many.
    ///
    /// The bytes go to `PATH.VERSION.part`, which gets its name when it is complete. If such a file
    /// is there, because an earlier attempt was interrupted, the transfer goes on at its end. What
    /// is no regular file, such as a device or a pipe, is written as it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_to_file(
        &self,
        key: &str,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Stat, ClientError> {
        let path = path.as_ref();
        let known = fs::metadata(path).ok();
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            let failed = ClientError::file(path);
            let file = OpenOptions::new().write(true).open(path).map_err(&failed)?;
            return self.get_to(key, file).map_err(|error| match error {
                ClientError::Stream(cause) => failed(cause),
                error => error,
            });
        }
        // A link stays one.
        let path = &known.and_then(|_| fs::canonicalize(path).ok()).unwrap_or_else(|| path.into());
        self.again(key, |stat, small| {
            let part = part_of(path, stat.version);
            let failed = ClientError::file(&part);
            remove_other_parts(path, &part);
            let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part);
            let mut file = opened.map_err(&failed)?;
            file.try_lock().map_err(|error| match error {
                fs::TryLockError::WouldBlock => ClientError::FileInUse { path: path.into() },
                fs::TryLockError::Error(cause) => failed(cause),
            })?;
            let (there, mut crc) = checksum(&mut file, stat.bytes).map_err(&failed)?;
            let mut done = there;
            progress(done, stat.bytes);
            let mut write = |bytes: &[u8]| {
                crc.update(bytes);
                file.write_all(bytes).map_err(&failed)?;
                done += bytes.len() as u64;
                progress(done, stat.bytes);
                Ok(())
            };
            match &small {
                Some(value) => write(value.get(there as usize..).unwrap_or_default())?,
                None => self.fetch(key, stat, there, &mut write)?,
            }
            if crc.finalize() != stat.crc32 {
                fs::remove_file(&part).map_err(&failed)?;
                return Err(damaged(key));
            }
            fs::rename(&part, path).map_err(ClientError::file(path))?;
            Ok(*stat)
        })
    }

    /// Stores a value in place of any earlier one. When this returns, the value is safe.
    ///
    /// # Errors
    /// [`ClientError`]. The store has the earlier value then. After a lost connection and a
    /// deadline it may have the new one, or get it a moment later.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<Stat, ClientError> {
        let kv = self.kv.deadline(self.time_for(value.len() as u64));
        Ok(scope(|scope| kv.put(key.into(), Part::whole(value), scope.lend(value))?.wait())?)
    }

    /// Stores what a reader has, in parts of 4 MiB, until its end. `progress` hears how many bytes
    /// were sent. The reader may take its time. If this program ends meanwhile, the store removes
    /// the parts, at the latest after 20 s.
    ///
    /// # Errors
    /// [`ClientError`], as for [`put`](Self::put).
    pub fn put_from(&self, key: &str, mut from: impl Read, mut progress: impl FnMut(u64)) -> Result<Stat, ClientError> {
        let mut start = Vec::new();
        (&mut from).take(COPY_BYTES as u64).read_to_end(&mut start).map_err(ClientError::Stream)?;
        if start.len() < COPY_BYTES {
            let stat = self.put(key, &start)?;
            progress(stat.bytes);
            return Ok(stat);
        }
        let mut from = start.as_slice().chain(from);
        let (mut parts, mut crc) = (Parts::new(PART_BYTES)?, Hasher::new());
        let empty = |kv: &KvClient, version, offset, crc32| {
            kv.put(key.into(), Part { version, offset, crc32 }, Vec::new().into())?.wait()
        };
        let version = empty(&self.kv, 0, 0, None)?.version;
        let mut send = || {
            let (mut offset, mut bytes) = (0, parts.fill(0, &mut from, &mut crc)?);
            for index in 0.. {
                let is_last = bytes < PART_BYTES;
                let part = Part { version, offset, crc32: is_last.then(|| crc.clone().finalize()) };
                // In the end, the store writes to the disk what its system has kept in memory.
                let kv = self.kv.deadline(self.time_for(if is_last { offset } else { 0 } + PART_BYTES as u64));
                let sent = kv.put(key.into(), part, parts.to_read(index, bytes)?)?;
                offset += bytes as u64;
                // The next part is read while the store takes this one.
                let stat = meanwhile(sent, || {
                    bytes = if is_last { 0 } else { parts.fill(index + 1, &mut from, &mut crc)? };
                    Ok(())
                })?;
                progress(offset);
                if is_last {
                    return Ok(stat);
                }
            }
            unreachable!("the last part returns")
        };
        // A reader may pause. The store hears that its client is there.
        let (ended, end) = mpsc::channel::<()>();
        let sent: Result<Stat, ClientError> = thread::scope(|threads| {
            threads.spawn(move || {
                let kv = self.kv.deadline(5 * SIGN_OF_LIFE);
                while end.recv_timeout(SIGN_OF_LIFE) == Err(RecvTimeoutError::Timeout) {
                    // The next part finds out what is wrong.
                    let _ = empty(&kv, version, 0, None);
                }
            });
            // The other thread ends with this, also if the reader panics.
            let _ended = ended;
            send()
        });
        if let Err(ClientError::Stream(_)) = sent {
            // Where a call has failed, the store has removed the parts, or will.
            let _ = empty(&self.kv, version, u64::MAX, Some(0));
        }
        sent
    }

    /// Stores a file. `progress` hears how many bytes were sent, of how many.
    ///
    /// # Errors
    /// [`ClientError`], as for [`put`](Self::put); `File` if the file cannot be read.
    pub fn put_file(
        &self,
        key: &str,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Stat, ClientError> {
        let path = path.as_ref();
        let failed = ClientError::file(path);
        let file = File::open(path).map_err(&failed)?;
        let bytes = file.metadata().map_err(&failed)?.len();
        self.put_from(key, file, |done| progress(done, bytes)).map_err(|error| match error {
            ClientError::Stream(cause) => failed(cause),
            error => error,
        })
    }

    /// Removes a key. Returns what was known of its value.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn remove(&self, key: &str) -> Result<Stat, ClientError> {
        Ok(self.kv.remove(key.into())?.wait()?)
    }

    /// The first keys that begin with `prefix` and come after `after`, in order of their bytes. At
    /// most `limit`, and at most [`PAGE_ENTRIES_MAX`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn page(&self, prefix: &str, after: &str, limit: u32) -> Result<Page, ClientError> {
        Ok(self.kv.list(prefix.into(), after.into(), limit)?.wait()?)
    }

    /// All keys that begin with `prefix`, in order of their bytes, page by page. Keys that are put
    /// or removed meanwhile may be among them or not.
    pub fn list(&self, prefix: &str) -> impl Iterator<Item = Result<Entry, ClientError>> {
        let mut entries = VecDeque::new();
        let (mut after, mut has_more) = (String::new(), true);
        std::iter::from_fn(move || {
            if entries.is_empty() && has_more {
                match self.page(prefix, &after, PAGE_ENTRIES_MAX) {
                    Ok(page) => {
                        has_more = page.has_more;
                        after = page.entries.last().map(|entry| entry.key.clone()).unwrap_or_default();
                        entries.extend(page.entries);
                    }
                    Err(error) => {
                        has_more = false;
                        return Some(Err(error));
                    }
                }
            }
            entries.pop_front().map(Ok)
        })
    }

    fn time_for(&self, bytes: u64) -> Duration {
        self.deadline.saturating_add(Duration::from_secs(bytes >> 20))
    }

    /// Reads a value, and reads it anew if it is replaced meanwhile.
    fn again<T>(
        &self,
        key: &str,
        mut read: impl FnMut(&Stat, Option<Vec<u8>>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut tries = 0;
        loop {
            let (stat, small) = self.kv.get(key.into())?.wait()?;
            tries += 1;
            match read(&stat, small) {
                Err(error) if error.is_changed() && tries < TRIES => {}
                read => return read,
            }
        }
    }

    fn get_long(&self, key: &str, stat: &Stat) -> Result<Vec<u8>, ClientError> {
        let mut value = Vec::new();
        let bytes = usize::try_from(stat.bytes).unwrap_or(usize::MAX);
        let reserved = value.try_reserve_exact(bytes);
        reserved.map_err(|_| ClientError::Stream(io::ErrorKind::OutOfMemory.into()))?;
        value.resize(bytes, 0);
        let kv = self.kv.deadline(self.time_for(2 * PART_BYTES as u64));
        scope(|scope| {
            let mut started: VecDeque<Pending<(), KvError>> = VecDeque::new();
            for (number, part) in (0..).zip(value.chunks_mut(PART_BYTES)) {
                if started.len() == WINDOW
                    && let Some(first) = started.pop_front()
                {
                    first.wait()?;
                }
                let offset = number * PART_BYTES as u64;
                started.push_back(kv.read(key.into(), stat.version, offset, scope.lend_mut(part))?);
            }
            started.into_iter().try_for_each(Pending::wait)
        })?;
        Ok(value)
    }

    /// Passes a long value on from an offset. The next part is on its way meanwhile.
    fn fetch(
        &self,
        key: &str,
        stat: &Stat,
        from: u64,
        mut pass: impl FnMut(&[u8]) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let kv = self.kv.deadline(self.time_for(PART_BYTES as u64));
        let mut parts = Parts::new(PART_BYTES.min(usize::try_from(stat.bytes - from).unwrap_or(PART_BYTES)))?;
        // The index and the size of the part that is here.
        let (mut offset, mut here) = (from, None);
        for index in 0.. {
            let bytes = (PART_BYTES as u64).min(stat.bytes - offset) as usize;
            let next = match bytes {
                0 => None,
                _ => Some(kv.read(key.into(), stat.version, offset, parts.to_write(index, bytes)?)?),
            };
            match (next, here) {
                (Some(next), Some((part, bytes))) => meanwhile(next, || parts.pass(part, bytes, &mut pass))?,
                (Some(next), None) => next.wait()?,
                (None, Some((part, bytes))) => return parts.pass(part, bytes, &mut pass),
                (None, None) => break,
            }
            (offset, here) = (offset + bytes as u64, Some((index, bytes)));
        }
        Ok(())
    }
}

/// The part of a value that is on its way, and the one that is read or written meanwhile. Peers on
/// the same machine map them.
struct Parts {
    memory: Memory,
    /// The room of each part.
    room: usize,
    buffer: Vec<u8>,
}

impl Parts {
    fn new(room: usize) -> Result<Self, ClientError> {
        let memory = Memory::new(2 * room.max(1))?;
        Ok(Self { memory, room, buffer: vec![0; COPY_BYTES.min(room)] })
    }

    /// Where a part is. Parts take turns.
    fn place(&self, index: usize) -> usize {
        index % 2 * self.room
    }

    fn to_read(&self, index: usize, bytes: usize) -> Result<Bulk<Pull>, ClientError> {
        self.memory.to_read(self.place(index)..self.place(index) + bytes).map_err(not_ours)
    }

    fn to_write(&self, index: usize, bytes: usize) -> Result<Bulk<Push>, ClientError> {
        self.memory.to_write(self.place(index)..self.place(index) + bytes).map_err(not_ours)
    }

    /// Fills a part, and adds it to the checksum. Returns the number of its bytes: less than a
    /// whole part at the reader's end.
    fn fill(&mut self, index: usize, from: &mut impl Read, crc: &mut Hasher) -> Result<usize, ClientError> {
        let (place, mut filled) = (self.place(index), 0);
        while filled < self.room {
            let room = &mut self.buffer[..COPY_BYTES.min(self.room - filled)];
            let read = match from.read(room) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ClientError::Stream(error)),
            };
            crc.update(&room[..read]);
            self.memory.write(place + filled, &room[..read]).map_err(not_ours)?;
            filled += read;
        }
        Ok(filled)
    }

    /// Passes the bytes of a part on.
    fn pass(
        &mut self,
        index: usize,
        bytes: usize,
        pass: &mut impl FnMut(&[u8]) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        for done in (0..bytes).step_by(COPY_BYTES) {
            let place = self.place(index) + done;
            let copy = &mut self.buffer[..COPY_BYTES.min(bytes - done)];
            self.memory.read(place, copy).map_err(not_ours)?;
            pass(copy)?;
        }
        Ok(())
    }
}

/// The memory belongs to the process from which this one was forked.
fn not_ours(error: MemoryError) -> ClientError {
    ClientError::Stream(io::Error::other(error))
}

/// Works while a thread waits for a call. A call for which nothing waits makes no progress.
fn meanwhile<T: Wire>(
    call: Pending<T, KvError>,
    work: impl FnOnce() -> Result<(), ClientError>,
) -> Result<T, ClientError> {
    thread::scope(|threads| {
        let called = threads.spawn(move || call.wait());
        let worked = work();
        let called = called.join().expect("waiting does not panic")?;
        worked.map(|()| called)
    })
}

fn damaged(key: &str) -> ClientError {
    ClientError::Damaged { key: key.into() }
}

/// The file that holds the first bytes of a value.
fn part_of(path: &Path, version: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{version:016x}.part"));
    name.into()
}

/// Removes what earlier attempts have left of other values.
fn remove_other_parts(path: &Path, part: &Path) {
    let (Some(folder), Some(name)) = (part.parent(), path.file_name().and_then(|name| name.to_str())) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let middle =
            other.to_str().and_then(|other| other.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".part"));
        let is_part = middle.is_some_and(|version| version.len() == 16 && u64::from_str_radix(version, 16).is_ok());
        if is_part && Some(other.as_os_str()) != part.file_name() {
            // What another program writes stays. A file that stays costs space, and nothing else.
            let is_free = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
            let _ = is_free.then(|| fs::remove_file(entry.path()));
        }
    }
}

/// The checksum of a file that holds the first bytes of a value, and the number of its bytes.
/// Leaves the file at its end. A file that is too long is emptied.
fn checksum(file: &mut File, bytes_max: u64) -> io::Result<(u64, Hasher)> {
    let mut crc = Hasher::new();
    let bytes = file.metadata()?.len();
    if bytes > bytes_max {
        file.set_len(0)?;
        return Ok((0, crc));
    }
    file.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    while done < bytes {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        crc.update(&buffer[..read]);
        done += read as u64;
    }
    Ok((done, crc))
}
