//! The store as a service.

use farside_rpc::Call;
use farside_rpc::bulk::{Bulk, Read, Write};

use crate::error::KvError;
use crate::service::{Kv, Page, SMALL_BYTES_MAX, Stat};
use crate::store::{Store, read};
use crate::values::PIECE_BYTES;

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

    fn remove(&self, cx: &Call, key: String) -> Result<Stat, KvError> {
        may_write(cx)?;
        Self::remove(self, &key)
    }

    fn list(&self, cx: &Call, prefix: String, after: String, limit: u32) -> Result<Page, KvError> {
        may_read(cx)?;
        Self::list(self, &prefix, &after, limit)
    }
}
