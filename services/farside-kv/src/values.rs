//! [`Values`]: the values that are too long for the index.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use crc32fast::Hasher;

use crate::error::KvError;
use crate::lock;
#[cfg(doc)]
use crate::service::PIECE_BYTES;
use crate::service::Stat;

/// The bytes that are written to a file before a thread syncs them.
const SYNC_BYTES: usize = 32 << 20;

/// From this size on, the system takes 10 ms and more to remove a file.
const SLOW_BYTES: u64 = 64 << 20;

/// Where long values are.
#[derive(Debug)]
pub(crate) enum Values {
    /// Files in a folder, named by version.
    Files(PathBuf),
    /// Memory, by version.
    Memory(Mutex<HashMap<u64, Arc<Vec<u8>>>>),
}

/// A long value, to be read. It stays readable when it is removed.
#[derive(Debug)]
pub(crate) enum Value {
    File(File),
    Memory(Arc<Vec<u8>>),
}

/// A long value that is being written. It is removed when this is dropped, unless it is
/// [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct Writer {
    values: Arc<Values>,
    version: u64,
    sink: Sink,
    bytes: u64,
    pieces: Vec<u32>,
    whole: Hasher,
    is_kept: bool,
}

#[derive(Debug)]
enum Sink {
    File(Arc<File>, Syncing),
    Memory(Vec<u8>),
}

/// Brings a file to the disk while it is written, so that little is left to do in the end.
#[derive(Debug, Default)]
struct Syncing {
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Bytes that were written since it began.
    behind: usize,
}

impl Syncing {
    /// Notes that bytes were written.
    fn note(&mut self, file: &Arc<File>, bytes: usize) -> io::Result<()> {
        self.behind += bytes;
        if self.behind < SYNC_BYTES || self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        self.end()?;
        let (file, named) = (file.clone(), thread::Builder::new().name("farside kv sync".into()));
        // Without a thread, the end takes longer.
        (self.thread, self.behind) = (named.spawn(move || file.sync_data()).ok(), 0);
        Ok(())
    }

    /// Waits. A failure is reported once by the system, so it is passed on.
    fn end(&mut self) -> io::Result<()> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("a sync does not panic"))
    }
}

impl Values {
    /// The files below `dir`.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let folder = dir.join("values");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self::Files(folder))
    }

    /// Removes the files that no key names: what an earlier process had not finished. Returns their
    /// number.
    pub(crate) fn sweep(&self, is_named: impl Fn(u64) -> Result<bool, KvError>) -> Result<usize, KvError> {
        let Self::Files(folder) = self else { return Ok(0) };
        let failed = |cause: io::Error| KvError::io("looking for files that are left over", &cause);
        let mut removed = 0;
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A file of another name is not the store's.
            let Some(version) = entry.file_name().to_str().and_then(version_of) else { continue };
            if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            if !is_named(version)? {
                match fs::remove_file(entry.path()) {
                    Ok(()) => removed += 1,
                    // A thread of an earlier store removes it, too.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(removed)
    }

    /// Begins a value.
    pub(crate) fn writer(self: &Arc<Self>, version: u64) -> Result<Writer, KvError> {
        let sink = match &**self {
            Self::Files(folder) => {
                let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file(folder, version));
                let created = created.map_err(|cause| KvError::io("creating a file", &cause))?;
                crate::kills::point();
                Sink::File(Arc::new(created), Syncing::default())
            }
            Self::Memory(_) => Sink::Memory(Vec::new()),
        };
        let (pieces, whole) = (Vec::new(), Hasher::new());
        Ok(Writer { values: self.clone(), version, sink, bytes: 0, pieces, whole, is_kept: false })
    }

    /// Opens a value. `None` if it does not exist.
    pub(crate) fn value(&self, version: u64) -> Result<Option<Value>, KvError> {
        match self {
            Self::Files(folder) => match File::open(file(folder, version)) {
                Ok(file) => Ok(Some(Value::File(file))),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(cause) => Err(KvError::io("opening a file", &cause)),
            },
            Self::Memory(values) => Ok(lock(values).get(&version).cloned().map(Value::Memory)),
        }
    }

    /// Removes a value that no key names. Who reads it goes on reading it.
    pub(crate) fn remove(&self, version: u64) {
        match self {
            // What cannot be removed now is removed when the store is opened again.
            Self::Files(folder) => drop(fs::remove_file(file(folder, version))),
            Self::Memory(values) => drop(lock(values).remove(&version)),
        }
        crate::kills::point();
    }

    /// [Removes](Self::remove) a value of this size. The system takes long to remove a long file,
    /// so nothing waits for that.
    pub(crate) fn remove_soon(self: &Arc<Self>, version: u64, bytes: u64) {
        if bytes >= SLOW_BYTES {
            let (values, named) = (self.clone(), thread::Builder::new().name("farside kv remove".into()));
            if named.spawn(move || values.remove(version)).is_ok() {
                return;
            }
        }
        self.remove(version);
    }
}

pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn file(folder: &Path, version: u64) -> PathBuf {
    folder.join(format!("{version:016x}"))
}

fn version_of(name: &str) -> Option<u64> {
    let is_ours = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(name, 16).ok().filter(|_| is_ours)
}

impl Writer {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The facts about the value so far.
    pub(crate) fn stat(&self) -> Stat {
        let crc32 = self.whole.clone().finalize();
        Stat { version: self.version, bytes: self.bytes, modified_us: now_us(), crc32 }
    }

    /// Appends a piece. All but the last one have [`PIECE_BYTES`] bytes.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), KvError> {
        let mut crc = Hasher::new();
        crc.update(piece);
        self.whole.combine(&crc);
        self.pieces.push(crc.finalize());
        self.bytes += piece.len() as u64;
        let written = match &mut self.sink {
            Sink::File(file, syncing) => (&**file).write_all(piece).and_then(|()| syncing.note(file, piece.len())),
            Sink::Memory(memory) => match memory.try_reserve(piece.len()) {
                Ok(()) => {
                    memory.extend_from_slice(piece);
                    Ok(())
                }
                Err(_) => Err(ErrorKind::OutOfMemory.into()),
            },
        };
        crate::kills::point();
        written.map_err(|cause| KvError::io("writing a file", &cause))
    }

    /// Makes the value safe. Returns what is known of it, and the CRC-32 of each piece.
    pub(crate) fn finish(&mut self) -> Result<(Stat, Vec<u32>), KvError> {
        match (&mut self.sink, &*self.values) {
            (Sink::File(file, syncing), Values::Files(folder)) => {
                let synced = syncing.end().and_then(|()| file.sync_all()).and_then(|()| {
                    crate::kills::point();
                    File::open(folder)?.sync_all()
                });
                crate::kills::point();
                synced.map_err(|cause| KvError::io("writing a file to the disk", &cause))?;
            }
            (Sink::Memory(memory), Values::Memory(values)) => {
                let mut memory = std::mem::take(memory);
                memory.shrink_to_fit();
                lock(values).insert(self.version, Arc::new(memory));
            }
            _ => unreachable!("a writer and its values are of one kind"),
        }
        Ok((self.stat(), std::mem::take(&mut self.pieces)))
    }

    /// Keeps the value: a key may name it.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Sink::File(_, syncing) = &mut self.sink {
            // Of a value that is not kept, nothing needs to be on the disk.
            let _ = syncing.end();
        }
        if !self.is_kept {
            self.values.remove(self.version);
        }
    }
}

impl Value {
    /// A piece of the value: the bytes from `offset` on that fill `buffer`, checked.
    pub(crate) fn piece<'a>(&'a self, offset: u64, buffer: &'a mut [u8], crc32: u32) -> Result<&'a [u8], String> {
        match self {
            Self::File(file) => {
                file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof => "its file is too short".to_string(),
                    _ => error.to_string(),
                })?;
                let is_right = crc32fast::hash(buffer) == crc32;
                is_right
                    .then_some(&*buffer)
                    .ok_or_else(|| format!("the checksum of the bytes from {offset} on is wrong"))
            }
            Self::Memory(memory) => Ok(&memory[offset as usize..][..buffer.len()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long file goes to the disk while it is written, and all of it is there in the end.
    #[test]
    fn a_long_file_is_synced_early() {
        let dir = std::env::temp_dir().join(format!("farside-kv-values-{}", std::process::id()));
        let values = Arc::new(Values::open(&dir).unwrap());
        let mut writer = values.writer(7).unwrap();
        let piece = vec![5; 1 << 20];
        let mut has_begun = false;
        for _ in 0..SYNC_BYTES / piece.len() + 3 {
            writer.add(&piece).unwrap();
            has_begun |= matches!(&writer.sink, Sink::File(_, Syncing { thread: Some(_), .. }));
        }
        assert!(has_begun);
        let (_, pieces) = writer.finish().unwrap();
        writer.keep();
        let value = values.value(7).unwrap().unwrap();
        let mut room = vec![0; piece.len()];
        for (number, crc32) in pieces.iter().enumerate() {
            let found = value.piece((number * piece.len()) as u64, &mut room, *crc32).unwrap();
            assert!(found == piece);
        }
        assert_eq!(pieces.len(), SYNC_BYTES / piece.len() + 3);
        fs::remove_dir_all(dir).unwrap();
    }
}
