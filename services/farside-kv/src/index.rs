//! [`Index`]: the database of keys, with small values.
//!
//! | table | from | to |
//! |---|---|---|
//! | `stats` | key | version, bytes, time, CRC-32 |
//! | `bodies` | key | a small value, or the CRC-32 of each piece of a long one |
//! | `long` | version of a long value | its key |
//! | `counters` | `format`, `next` | the format of the store; a number above all versions |

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

use redb::backends::InMemoryBackend;
use redb::{Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use crate::error::{KvError, OpenError};
use crate::lock;
use crate::service::{Entry, Page, Stat};

type Row = (u64, u64, u64, u32);

const STATS: TableDefinition<'_, &str, Row> = TableDefinition::new("stats");
const BODIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("bodies");
const LONG: TableDefinition<'_, u64, &str> = TableDefinition::new("long");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// The format of the tables and of the files.
const FORMAT: u64 = 1;
/// The most memory for pages of the database.
const CACHE_BYTES: usize = 64 << 20;

/// A change of one key.
#[derive(Debug)]
pub(crate) enum Change {
    Put { key: String, stat: Stat, body: Vec<u8> },
    Remove { key: String },
}

/// The database. It is opened again after a failure, for instance of a full disk.
#[derive(Debug)]
pub(crate) struct Index {
    /// `None` in memory.
    path: Option<PathBuf>,
    /// `None` after a failure.
    database: RwLock<Option<Opened>>,
}

/// A database that is open.
#[derive(Debug)]
struct Opened {
    /// The tables as readers had them since the last change. To open them takes longer than to find
    /// a key. They are closed before the database.
    tables: Mutex<Option<Arc<Tables>>>,
    database: Database,
}

/// The tables at one moment.
struct Tables {
    stats: ReadOnlyTable<&'static str, Row>,
    bodies: ReadOnlyTable<&'static str, &'static [u8]>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

impl Opened {
    fn new(database: Database) -> Self {
        Self { tables: Mutex::default(), database }
    }

    /// The tables with all changes whose writers have gone on. No later call has fewer changes:
    /// tables are opened one after the other, under the lock.
    fn tables(&self) -> Result<Arc<Tables>, redb::Error> {
        let mut kept = lock(&self.tables);
        if let Some(tables) = &*kept {
            return Ok(tables.clone());
        }
        let read = self.database.begin_read()?;
        let tables = Arc::new(Tables { stats: read.open_table(STATS)?, bodies: read.open_table(BODIES)? });
        *kept = Some(tables.clone());
        Ok(tables)
    }

    /// Makes changes. Readers that begin afterwards see them.
    fn change(&self, changes: &[Change], next_version: u64) -> Result<Vec<Option<Stat>>, redb::Error> {
        let applied = apply(&self.database, changes, next_version);
        // Tables from before are given up also after a failure: the changes may be on the disk.
        let old = lock(&self.tables).take();
        // The lock is free while they are closed.
        drop(old);
        applied
    }
}

fn row(stat: &Stat) -> Row {
    (stat.version, stat.bytes, stat.modified_us, stat.crc32)
}

fn stat((version, bytes, modified_us, crc32): Row) -> Stat {
    Stat { version, bytes, modified_us, crc32 }
}

impl Index {
    /// Opens the database in `dir`, and creates it if there is none.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("index.redb");
        let failed = |error: redb::Error| OpenError::Failed { dir: dir.into(), cause: error.into() };
        let database = match Database::builder().set_cache_size(CACHE_BYTES).create(&path) {
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(OpenError::InUse { dir: dir.into() }),
            opened => opened.map_err(|error| failed(error.into()))?,
        };
        let format = prepare(&database).map_err(failed)?;
        if format != FORMAT {
            return Err(OpenError::Format { dir: dir.into(), format, known: FORMAT });
        }
        Ok(Self { path: Some(path), database: RwLock::new(Some(Opened::new(database))) })
    }

    /// A database in memory.
    pub(crate) fn memory() -> Self {
        let created = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(InMemoryBackend::new());
        let database = created.expect("memory does not fail");
        prepare(&database).expect("memory does not fail");
        Self { path: None, database: RwLock::new(Some(Opened::new(database))) }
    }

    fn with<T>(&self, run: impl Fn(&Opened) -> Result<T, redb::Error>) -> Result<T, KvError> {
        let error = loop {
            {
                let database = self.database.read().unwrap_or_else(std::sync::PoisonError::into_inner);
                if let Some(database) = &*database {
                    match run(database) {
                        Err(error @ (redb::Error::Io(_) | redb::Error::PreviousIo)) => break error,
                        done => return Ok(done?),
                    }
                }
            }
            self.reopen()?;
        };
        self.give_up();
        Err(error.into())
    }

    /// A database that has failed stays so until it is opened again.
    fn give_up(&self) {
        if self.path.is_some() {
            *self.database.write().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        }
    }

    fn reopen(&self) -> Result<(), KvError> {
        let mut database = self.database.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let (None, Some(path)) = (&*database, &self.path) {
            let opened = Database::builder().set_cache_size(CACHE_BYTES).open(path);
            *database = Some(Opened::new(opened.map_err(redb::Error::from)?));
        }
        Ok(())
    }

    fn read<T>(&self, run: impl Fn(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, KvError> {
        self.with(|opened| run(&opened.database.begin_read()?))
    }

    pub(crate) fn stat(&self, key: &str) -> Result<Stat, KvError> {
        let found = self.with(|opened| Ok(opened.tables()?.stats.get(key)?.map(|row| stat(row.value()))))?;
        found.ok_or_else(|| KvError::NotFound { key: key.into() })
    }

    /// The facts about a key's value, and its body.
    pub(crate) fn get(&self, key: &str, with_body: impl Fn(&Stat) -> bool) -> Result<(Stat, Option<Vec<u8>>), KvError> {
        let found = self.with(|opened| {
            let tables = opened.tables()?;
            let Some(stat) = tables.stats.get(key)?.map(|row| stat(row.value())) else { return Ok(None) };
            if !with_body(&stat) {
                return Ok(Some((stat, None)));
            }
            let body = tables.bodies.get(key)?.map(|body| body.value().to_vec());
            Ok(Some((stat, Some(body.unwrap_or_default()))))
        })?;
        found.ok_or_else(|| KvError::NotFound { key: key.into() })
    }

    pub(crate) fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, KvError> {
        self.with(|opened| {
            let tables = opened.tables()?;
            let mut page = Page::default();
            for found in tables.stats.range(prefix.max(after)..)? {
                let (key, row) = found?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                if key.value() <= after {
                    continue;
                }
                page.has_more = page.entries.len() == limit;
                if page.has_more {
                    break;
                }
                page.entries.push(Entry { key: key.value().into(), stat: stat(row.value()) });
            }
            Ok(page)
        })
    }

    /// Returns whether a key names the long value.
    pub(crate) fn has_long(&self, version: u64) -> Result<bool, KvError> {
        self.read(|read| Ok(read.open_table(LONG)?.get(version)?.is_some()))
    }

    /// A number above all versions that were ever stored.
    pub(crate) fn next_version(&self) -> Result<u64, KvError> {
        self.read(|read| Ok(read.open_table(COUNTERS)?.get("next")?.map_or(0, |next| next.value())))
    }

    /// Makes changes in one transaction: all or none. Returns what was known of each key before.
    /// When this returns, the changes are on the disk.
    pub(crate) fn apply(&self, changes: &[Change], next_version: u64) -> Result<Vec<Option<Stat>>, KvError> {
        let applied = self.with(|opened| opened.change(changes, next_version));
        if applied.is_err() && self.path.is_some() {
            self.give_up();
            // Readers find it open again. A failure is theirs to report.
            let _ = self.reopen();
        }
        applied
    }
}

fn apply(database: &Database, changes: &[Change], next_version: u64) -> Result<Vec<Option<Stat>>, redb::Error> {
    let write = database.begin_write()?;
    let mut before = Vec::with_capacity(changes.len());
    {
        let (mut stats, mut bodies) = (write.open_table(STATS)?, write.open_table(BODIES)?);
        let mut long = write.open_table(LONG)?;
        for change in changes {
            let old = match change {
                Change::Put { key, stat: new, body } => {
                    let key = key.as_str();
                    bodies.insert(key, body.as_slice())?;
                    if new.is_long() {
                        long.insert(new.version, key)?;
                    }
                    stats.insert(key, row(new))?.map(|row| stat(row.value()))
                }
                Change::Remove { key } => {
                    bodies.remove(key.as_str())?;
                    stats.remove(key.as_str())?.map(|row| stat(row.value()))
                }
            };
            if let Some(old) = old.filter(Stat::is_long) {
                long.remove(old.version)?;
            }
            before.push(old);
        }
        write.open_table(COUNTERS)?.insert("next", next_version)?;
    }
    crate::kills::point();
    write.commit()?;
    crate::kills::point();
    Ok(before)
}

/// Creates the tables of a new database. Returns the format of the store.
fn prepare(database: &Database) -> Result<u64, redb::Error> {
    let write = database.begin_write()?;
    let format = {
        let mut counters = write.open_table(COUNTERS)?;
        let format = counters.get("format")?.map(|format| format.value());
        if format.is_none() {
            counters.insert("format", FORMAT)?;
        }
        format.unwrap_or(FORMAT)
    };
    if format == FORMAT {
        write.open_table(STATS)?;
        write.open_table(BODIES)?;
        write.open_table(LONG)?;
        crate::kills::point();
        write.commit()?;
        crate::kills::point();
    }
    Ok(format)
}
