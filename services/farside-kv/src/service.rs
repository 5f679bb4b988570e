//! The messages of the store: the trait [`Kv`] and its types.

use farside_rpc::bulk::{Bulk, Read, Write};
use farside_rpc::{Call, Wire};

use crate::error::KvError;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value that is kept with its key. A longer one is a file.
pub const SMALL_BYTES_MAX: u64 = 64 << 10;
/// Long values are written, checked and read in pieces of this size.
pub const PIECE_BYTES: usize = 1 << 20;
/// The most entries of one [`Page`].
pub const PAGE_ENTRIES_MAX: u32 = 1000;

/// The facts about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Stat {
    /// The number of this value. No other value of the store has it, before or after.
    pub version: u64,
    /// The size.
    pub bytes: u64,
    /// When it was put: microseconds since 1970, by the server's clock.
    pub modified_us: u64,
    /// The CRC-32 of the whole value, as `crc32` and zip compute it.
    pub crc32: u32,
}

impl Stat {
    pub(crate) fn is_long(&self) -> bool {
        self.bytes > SMALL_BYTES_MAX
    }
}

/// A key with what the store knows of its value.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub stat: Stat,
}

/// A part of the keys, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Page {
    /// The keys.
    pub entries: Vec<Entry>,
    /// True if more keys follow. Ask for those after the last one.
    pub has_more: bool,
}

/// The place of a part in the value that it belongs to. Most values have one part, the
/// [whole](Self::whole).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
pub struct Part {
    /// The version that the first part returned. 0 for the first part.
    pub version: u64,
    /// Number of bytes before this part.
    pub offset: u64,
    /// The CRC-32 of the whole value, if this is the last part.
    pub crc32: Option<u32>,
}

impl Part {
    /// The only part of a value.
    #[must_use]
    pub fn whole(value: &[u8]) -> Self {
        Self { version: 0, offset: 0, crc32: Some(crc32fast::hash(value)) }
    }
}

/// The calls of the store. [`Client`](crate::Client) is more convenient.
///
/// Readers need the right `read`, writers the right `write`. A client of the server's own user that
/// proved no token has both.
#[farside_rpc::service(name = "kv")]
pub trait Kv {
    /// The facts about a value.
    #[rpc(inline, idempotent)]
    fn stat(&self, cx: &Call, key: String) -> Result<Stat, KvError>;
    /// The facts about a value, and the value itself if it has at most [`SMALL_BYTES_MAX`] bytes.
    #[rpc(inline, idempotent)]
    fn get(&self, cx: &Call, key: String) -> Result<(Stat, Option<Vec<u8>>), KvError>;
    /// Fills memory of the caller with a part of a longer value. The version is that of the value's
    /// [`Stat`], so all parts come from one value.
    #[rpc(idempotent)]
    fn read(&self, cx: &Call, key: String, version: u64, offset: u64, into: Bulk<Write>) -> Result<(), KvError>;
    /// Takes a value or the next part of one, and stores the value after its last part. Returns
    /// what is known of the value so far. A value that is stored replaces any earlier one of the
    /// key, and is safe when this returns.
    ///
    /// All parts but the last one have a multiple of [`PIECE_BYTES`] bytes, and a value of several
    /// parts has more than [`SMALL_BYTES_MAX`]. A part without bytes that is not the last one
    /// begins a value, or says that the next part is still to come: a value is removed after 15 s
    /// without a call for it. A part that does not fit ends its value, so a last part at the offset
    /// `u64::MAX` gives the value up.
    fn put(&self, cx: &Call, key: String, part: Part, bytes: Bulk<Read>) -> Result<Stat, KvError>;
    /// Removes a key. Returns what was known of its value.
    fn remove(&self, cx: &Call, key: String) -> Result<Stat, KvError>;
    /// The first keys that begin with `prefix` and come after `after`, in order of their bytes.
    #[rpc(idempotent)]
    fn list(&self, cx: &Call, prefix: String, after: String, limit: u32) -> Result<Page, KvError>;
}
