//! The store as a service.

use farside_rpc::Call;
use farside_rpc::bulk::{Bulk, Read, Write};

use crate::error::KvError;
use crate::service::{Kv, PIECE_BYTES, Page, Part, SMALL_BYTES_MAX, Stat};
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
        let Part { version, offset, crc32 } = part;
        let check = |found| match crc32 == Some(found) {
            true => Ok(()),
            false => Err(KvError::Transfer { cause: "the checksum of what arrived is wrong; put it again".into() }),
        };
        if version == 0 && crc32.is_some() && bytes.bytes() <= SMALL_BYTES_MAX {
            let (value, crc32) = (bytes.pull_all()?, crc32.unwrap_or_default());
            check(crc32fast::hash(&value))?;
            return self.put_small(&key, value, crc32);
        }
        if version != 0 && crc32.is_none() && bytes.bytes() == 0 {
            return self.uploads.keep(cx.connection(), version);
        }
        let mut writer = if version == 0 { self.writer(&key)? } else { self.uploads.take(cx.connection(), version)? };
        if version == 0 && crc32.is_none() {
            self.uploads.add(cx.connection(), writer.version())?;
        }
        let (there, more) = (writer.bytes(), bytes.bytes());
        let has_size = match crc32 {
            Some(_) => there.saturating_add(more) > SMALL_BYTES_MAX,
            None => more.is_multiple_of(PIECE_BYTES as u64),
        };
        let arrived = if there == offset && has_size {
            bytes.pipeline(PIECE_BYTES, DEPTH, |_, piece| writer.add(piece))
        } else {
            Err(KvError::Transfer { cause: format!("{more} bytes for byte {offset}, where byte {there} is due") })
        };
        if arrived.is_ok() && crc32.is_none() {
            let stat = writer.stat();
            self.uploads.give_back(writer);
            return Ok(stat);
        }
        // The value is complete, or a part of a part may be there.
        self.uploads.remove(writer.version());
        arrived?;
        check(writer.stat().crc32)?;
        self.put_long(&key, writer)
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
