//! [`Store`]: keys and values, in a folder or in memory.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farside_rpc::wire::{Decoder, decode, encode};

use crate::error::{KvError, OpenError};
use crate::group::Group;
use crate::index::{Change, Index};
use crate::open::{OpenValue, OpenValues};
use crate::service::{KEY_BYTES_MAX, PAGE_ENTRIES_MAX, PIECE_BYTES, Page, SMALL_BYTES_MAX, Stat};
use crate::uploads::Uploads;
use crate::values::{Values, Writer, now_us};

/// Keys with values of any size.
///
/// Any number of threads may use a store. Serve it with [`KvServer`](crate::KvServer).
///
/// ```
/// use farside_kv::Store;
///
/// let store = Store::memory();
/// store.put("name", b"Ada")?;
/// assert_eq!(store.get("name")?, b"Ada");
/// # Ok::<(), farside_kv::KvError>(())
/// ```
///
/// *Completion.* When [`put`](Self::put) or [`remove`](Self::remove) return, the change is on the
/// disk. A reader sees one whole value, also while it is replaced.
#[derive(Debug)]
pub struct Store {
    index: Index,
    values: Arc<Values>,
    group: Group,
    open: Arc<OpenValues>,
    pub(crate) uploads: Arc<Uploads>,
    /// The next version. Versions are unique for the life of the store, and across stores that
    /// follow each other in memory: the first one is the time.
    next_version: AtomicU64,
    /// The folder, locked for this process.
    folder: Option<File>,
}

/// Creates a folder with its parents. Their names are safe when this returns.
fn create(dir: &Path) -> io::Result<()> {
    let parent = dir.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    match (DirBuilder::new().mode(0o700).create(dir), parent) {
        (Ok(()), Some(parent)) => File::open(parent)?.sync_all(),
        (Err(error), _) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        (Err(error), Some(parent)) if error.kind() == ErrorKind::NotFound => {
            create(parent)?;
            create(dir)
        }
        (created, _) => created,
    }
}

impl Store {
    /// Opens the store in a folder, and creates it if there is none. Removes what an interrupted
    /// put has left.
    ///
    /// # Errors
    /// [`OpenError`]: among others, if another process has the store open.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        let failed = OpenError::failed(dir);
        create(dir).map_err(&failed)?;
        // The index has a lock of its own. It is open while a failed index is opened again.
        let folder = File::open(dir).map_err(&failed)?;
        folder.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::InUse { dir: dir.into() },
            TryLockError::Error(cause) => failed(cause),
        })?;
        let index = Index::open(dir)?;
        let values = Values::open(dir).map_err(&failed)?;
        // The names of what is in the folder are safe, too.
        folder.sync_all().map_err(&failed)?;
        let store = Self::new(index, values).and_then(|mut store| {
            store.folder = Some(folder);
            store.values.sweep(|version| store.index.has_long(version))?;
            Ok(store)
        });
        store.map_err(|cause| OpenError::Failed { dir: dir.into(), cause })
    }

    /// A store in memory, for as long as the program runs.
    #[must_use]
    pub fn memory() -> Self {
        Self::new(Index::memory(), Values::Memory(Mutex::default())).expect("memory does not fail")
    }

    fn new(index: Index, values: Values) -> Result<Self, KvError> {
        let next_version = AtomicU64::new(index.next_version()?.max(now_us()));
        let (group, open, uploads) = (Group::default(), Arc::default(), Arc::default());
        Ok(Self { index, values: Arc::new(values), group, open, uploads, next_version, folder: None })
    }

    /// The facts about a value.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn stat(&self, key: &str) -> Result<Stat, KvError> {
        self.index.stat(check(key)?)
    }

    /// A value.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn get(&self, key: &str) -> Result<Vec<u8>, KvError> {
        loop {
            let (stat, small) = self.get_small(key)?;
            let read = match small {
                Some(value) => Ok(value),
                None => self.open_value(key, stat.version).and_then(|value| {
                    let mut bytes = Vec::with_capacity(stat.bytes as usize);
                    read(&value, 0, stat.bytes, |_, part| {
                        bytes.extend_from_slice(part);
                        Ok(())
                    })?;
                    Ok(bytes)
                }),
            };
            match read {
                Err(KvError::Changed { .. }) => {}
                read => return read,
            }
        }
    }

    /// Stores a value in place of any earlier one.
    ///
    /// # Errors
    /// [`KvError`]. The earlier value stays, unless the disk has failed in the last step.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<Stat, KvError> {
        if value.len() as u64 <= SMALL_BYTES_MAX {
            return self.put_small(key, value.to_vec(), crc32fast::hash(value));
        }
        let mut writer = self.writer(key)?;
        value.chunks(PIECE_BYTES).try_for_each(|piece| writer.add(piece))?;
        self.put_long(key, writer)
    }

    /// Removes a key. Returns what was known of its value.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn remove(&self, key: &str) -> Result<Stat, KvError> {
        // A key that is not there costs no transaction.
        self.stat(key)?;
        let before = self.commit(Change::Remove { key: key.into() })?;
        before.ok_or_else(|| KvError::NotFound { key: key.into() })
    }

    /// The first keys that begin with `prefix` and come after `after`, in order of their bytes. At
    /// most `limit`, and at most [`PAGE_ENTRIES_MAX`].
    ///
    /// # Errors
    /// [`KvError`].
    pub fn list(&self, prefix: &str, after: &str, limit: u32) -> Result<Page, KvError> {
        self.index.list(prefix, after, limit.clamp(1, PAGE_ENTRIES_MAX) as usize)
    }

    pub(crate) fn get_small(&self, key: &str) -> Result<(Stat, Option<Vec<u8>>), KvError> {
        let (stat, body) = self.index.get(check(key)?, |stat| !stat.is_long())?;
        if let Some(body) = &body
            && crc32fast::hash(body) != stat.crc32
        {
            return Err(KvError::Corrupt { key: key.into(), what: "its checksum is wrong".into() });
        }
        Ok((stat, body))
    }

    pub(crate) fn put_small(&self, key: &str, body: Vec<u8>, crc32: u32) -> Result<Stat, KvError> {
        let version = self.next_version.fetch_add(1, Ordering::Relaxed);
        let stat = Stat { version, bytes: body.len() as u64, modified_us: now_us(), crc32 };
        self.commit(Change::Put { key: check(key)?.into(), stat, body })?;
        Ok(stat)
    }

    /// Sets for how long the client of a value that is put in parts may be silent. The default is
    /// 15 s. After that, the parts are removed. [`Client`](crate::Client) says every second that it
    /// is there.
    #[must_use]
    pub fn upload_time(self, time: std::time::Duration) -> Self {
        self.uploads.set_time(time);
        self
    }

    /// Begins a long value.
    pub(crate) fn writer(&self, key: &str) -> Result<Writer, KvError> {
        check(key)?;
        // A file without a name takes space as long as it is open.
        self.open.close_idle();
        self.values.writer(self.next_version.fetch_add(1, Ordering::Relaxed))
    }

    /// Names a long value that was written.
    pub(crate) fn put_long(&self, key: &str, mut writer: Writer) -> Result<Stat, KvError> {
        let (stat, pieces) = writer.finish()?;
        let put = self.commit(Change::Put { key: check(key)?.into(), stat, body: encode(&pieces, Vec::new()) });
        // A transaction that failed may be on the disk all the same.
        if put.is_ok() || self.index.has_long(stat.version) != Ok(false) {
            writer.keep();
        }
        put.map(|_| stat)
    }

    fn commit(&self, change: Change) -> Result<Option<Stat>, KvError> {
        let before = self.group.commit(&self.index, change, || self.next_version.load(Ordering::Relaxed))?;
        if let Some(old) = before.filter(Stat::is_long) {
            self.values.remove_soon(old.version, old.bytes);
        }
        self.open.close_idle();
        Ok(before)
    }

    /// Opens a long value, if it has this version or was read a moment ago.
    pub(crate) fn open_value(&self, key: &str, version: u64) -> Result<Arc<OpenValue>, KvError> {
        if let Some(value) = self.open.find(key, version) {
            return Ok(value);
        }
        let current = |stat: &Stat| stat.version == version && stat.is_long();
        let (stat, pieces) = self.index.get(check(key)?, current)?;
        let pieces = pieces.ok_or_else(|| KvError::Changed { key: key.into() })?;
        let corrupt = |what: &str| KvError::Corrupt { key: key.into(), what: what.into() };
        let pieces: Vec<u32> = decode(Decoder::new(&pieces), 0).map_err(|_| corrupt("its checksums are unreadable"))?;
        if pieces.len() as u64 != stat.bytes.div_ceil(PIECE_BYTES as u64) {
            return Err(corrupt("checksums are missing"));
        }
        let Some(value) = self.values.value(version)? else {
            // It may have been replaced since.
            let is_current = self.index.stat(key)?.version == version;
            return Err(if is_current { corrupt("its file is missing") } else { KvError::Changed { key: key.into() } });
        };
        Ok(self.open.add(OpenValue { key: key.into(), version, bytes: stat.bytes, value, pieces }))
    }
}

/// Passes a range of a long value on, piece by piece, with the offset of each part from the start
/// of the range. Each piece is checked as a whole.
pub(crate) fn read(
    open: &OpenValue,
    offset: u64,
    bytes: u64,
    mut pass: impl FnMut(u64, &[u8]) -> Result<(), KvError>,
) -> Result<(), KvError> {
    let end = offset.checked_add(bytes).filter(|end| *end <= open.bytes);
    let end = end.ok_or(KvError::OutOfRange { offset, bytes, value_bytes: open.bytes })?;
    let piece_bytes = PIECE_BYTES as u64;
    let mut buffer = vec![0; PIECE_BYTES.min(open.bytes as usize)];
    let mut at = offset;
    while at < end {
        let start = at - at % piece_bytes;
        let room = &mut buffer[..piece_bytes.min(open.bytes - start) as usize];
        let piece = open.value.piece(start, room, open.pieces[(start / piece_bytes) as usize]);
        let piece = piece.map_err(|what| KvError::Corrupt { key: open.key.clone(), what })?;
        let part = &piece[(at - start) as usize..piece.len().min((end - start) as usize)];
        pass(at - offset, part)?;
        at += part.len() as u64;
    }
    Ok(())
}

fn check(key: &str) -> Result<&str, KvError> {
    match key.len() {
        0 => Err(KvError::KeyEmpty),
        bytes if bytes > KEY_BYTES_MAX => Err(KvError::KeyTooLong { bytes: bytes as u64, max: KEY_BYTES_MAX as u64 }),
        _ => Ok(key),
    }
}
