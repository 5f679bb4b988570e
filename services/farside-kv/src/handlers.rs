//! The store as a service.

use farside_rpc::Call;
use farside_rpc::bulk::{Bulk, Read, Write};

use crate::error::KvError;
use crate::service::{Kv, PIECE_BYTES, Page, Part, SMALL_BYTES_MAX, Stat, Then};
use crate::store::{Store, read};

/// The pieces that are on their way while one is written.
const DEPTH: usize = 4;

fn may_read(cx: &Call) -> Result<(), KvError> {
    may(cx, "read")
}

fn may_write(cx: &Call) -> Result<(), KvError> {
    may(cx, "write")
}

fn may(cx: &Call, right: &str) -> Result<(), KvError> {
    if cx.peer().has_right(right) { Ok(()) } else { Err(KvError::Forbidden { right: right.into() }) }
}

fn check_sum(found: u32, crc32: u32) -> Result<(), KvError> {
    let wrong = || KvError::Transfer { cause: "the checksum of what arrived is wrong; put it again".into() };
    (found == crc32).then_some(()).ok_or_else(wrong)
}

impl Kv for Store {
    fn stat(&self, cx: &Call, key: String) -> Result<Stat, KvError> {
        may_read(cx)?;
        Self::stat(self, &key)
    }

    fn get(&self, cx: &Call, key: String) -> Result<(Stat, Option<Vec<u8>>), KvError> {
        may_read(cx)?;
        loop {
            let (stat, small) = self.get_small(&key)?;
            if small.is_some() {
                return Ok((stat, small));
            }
            // The caller reads the value next, also if it is replaced in between.
            match self.open_value(&key, stat.version) {
                Ok(_) => return Ok((stat, None)),
                Err(KvError::Changed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&self, cx: &Call, key: String, version: u64, offset: u64, into: Bulk<Write>) -> Result<(), KvError> {
        may_read(cx)?;
        let value = self.open_value(&key, version)?;
        read(&value, offset, into.bytes(), |at, part| Ok(into.push(at, part)?))
    }

    fn put(&self, cx: &Call, key: String, part: Part, bytes: Bulk<Read>) -> Result<Stat, KvError> {
        may_write(cx)?;
        let (connection, Part { version, offset, then }) = (cx.connection(), part);
        let is_last = match then {
            Then::GiveUp => {
                let writer = self.uploads.take(connection, version)?;
                self.uploads.remove(version);
                return Ok(writer.stat());
            }
            Then::More if version != 0 && bytes.bytes() == 0 => return self.uploads.keep(connection, version),
            Then::More => false,
            Then::Store { crc32 } if version == 0 && bytes.bytes() <= SMALL_BYTES_MAX => {
                let value = bytes.pull_all()?;
                check_sum(crc32fast::hash(&value), crc32)?;
                return self.put_small(&key, value, crc32);
            }
            Then::Store { .. } => true,
        };
        let mut writer = if version == 0 { self.writer(&key)? } else { self.uploads.take(connection, version)? };
        if version == 0 && !is_last {
            self.uploads.add(connection, writer.version())?;
        }
        let (there, piece) = (writer.bytes(), PIECE_BYTES as u64);
        let is_whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(piece);
        let added = match there == offset && (is_last || is_whole(bytes.bytes())) {
            true => bytes.pipeline(PIECE_BYTES, DEPTH, |_, piece| writer.add(piece)),
            false => Err(KvError::Transfer {
                cause: format!("{} bytes for byte {offset}, where whole MiB for byte {there} are due", bytes.bytes()),
            }),
        };
        match (added, then) {
            (Ok(()), Then::Store { crc32 }) => {
                self.uploads.remove(writer.version());
                check_sum(writer.stat().crc32, crc32)?;
                self.put_long(&key, writer)
            }
            (Ok(()), _) => {
                let stat = writer.stat();
                self.uploads.give_back(writer);
                Ok(stat)
            }
            (Err(error), _) => {
                // A part of a part may be there.
                self.uploads.remove(writer.version());
                Err(error)
            }
        }
    }

    fn remove(&self, cx: &Call, key: String) -> Result<Stat, KvError> {
        may_write(cx)?;
        Self::remove(self, &key)
    }

    fn list(&self, cx: &Call, prefix: String, after: String, limit: u32) -> Result<Page, KvError> {
        may_read(cx)?;
        Self::list(self, &prefix, &after, limit)
    }
}
