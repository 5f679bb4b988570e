//! The store as a service.

use farside_rpc::Call;
use farside_rpc::bulk::{Bulk, Read, Write};

use crate::error::KvError;
use crate::lock;
use crate::service::{Kv, PIECE_BYTES, Page, SMALL_BYTES_MAX, Stat};
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

    fn put(&self, cx: &Call, key: String, value: Bulk<Read>) -> Result<Stat, KvError> {
        may_write(cx)?;
        if value.bytes() <= SMALL_BYTES_MAX {
            return self.put_small(&key, value.pull_all()?);
        }
        let mut writer = self.writer(&key)?;
        value.pipeline(PIECE_BYTES, DEPTH, |_, piece| writer.add(piece))?;
        self.put_long(&key, writer)
    }

    fn begin(&self, cx: &Call, key: String) -> Result<u64, KvError> {
        may_write(cx)?;
        self.uploads.add(cx.connection(), key.clone(), self.writer(&key)?)
    }

    fn keep(&self, cx: &Call, number: u64) -> Result<(), KvError> {
        may_write(cx)?;
        self.uploads.find(cx.connection(), number).map(drop)
    }

    fn append(&self, cx: &Call, number: u64, offset: u64, part: Bulk<Read>) -> Result<(), KvError> {
        may_write(cx)?;
        let upload = self.uploads.find(cx.connection(), number)?;
        // A thread does not wait for the part of another one.
        let another = |_| KvError::Transfer { cause: "another part is on its way".into() };
        let mut upload = upload.try_lock().map_err(another)?;
        let writer = upload.writer(number)?;
        let there = writer.bytes();
        let appended = if there == offset && offset.is_multiple_of(PIECE_BYTES as u64) {
            part.pipeline(PIECE_BYTES, DEPTH, |_, piece| writer.add(piece))
        } else {
            Err(KvError::Transfer { cause: format!("a part for byte {offset}, where byte {there} is due") })
        };
        if appended.is_err() {
            // A part of a part may be there.
            self.uploads.take(cx.connection(), number);
        }
        // The time until the next part begins now.
        appended.and_then(|()| self.uploads.find(cx.connection(), number).map(drop))
    }

    fn finish(&self, cx: &Call, number: u64, crc32: u32) -> Result<Stat, KvError> {
        may_write(cx)?;
        let upload = self.uploads.find(cx.connection(), number)?;
        self.uploads.take(cx.connection(), number);
        let (key, writer) = lock(&upload).end(number)?;
        if writer.crc32() != crc32 {
            return Err(KvError::Transfer { cause: "the checksum of what arrived is wrong; put it again".into() });
        }
        if writer.bytes() <= SMALL_BYTES_MAX {
            return Err(KvError::Transfer { cause: "a value this short is put by one call".into() });
        }
        self.put_long(&key, writer)
    }

    fn discard(&self, cx: &Call, number: u64) -> Result<(), KvError> {
        may_write(cx)?;
        self.uploads.take(cx.connection(), number);
        Ok(())
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
