//! The header of every frame. A frame is what a path carries: a header and a body.
//!
//! | kind | body | meaning |
//! |---|---|---|
//! | `Call` | arguments | runs `procedure` of `provider`; `value` is the time left in microseconds |
//! | `Answer` | result | ends the call `id`; `status` says how |
//! | `Cancel` | – | the caller of `id` no longer waits |
//! | `Data` | bytes | goes to the exposed memory `id`, from the offset `value` on |
//! | `Fetch` | [`Fetch`] | asks for bytes of the exposed memory `id` as `Data` |
//! | `Take` | [`Take`] | asks the peer to read memory of the sender directly, into the exposed memory `id`, from the offset `value` on |
//! | `Settle` | – | asks for an `Ack` of the operation `id`: all earlier `Data` for the exposed memory `value` is in place. With a `status` of 1, that the memory is exposed still |
//! | `Ack` | – | ends the operation `id`; a `status` other than 0 says that it failed |
//! | `Release` | – | the exposed memory `id` is no longer used by the peer |
//! | `Forget` | – | the shared memory `id` of the sender is gone |
//! | `Share` | [`Share`] | the sender has registered memory for RDMA, under the number `id` |
//! | `Forgotten` | – | the sender has no transfer of the registered memory `id` of the receiver left |
//! | `Item` | items, or why the stream failed | the next `value` items of the stream that the call `id` has begun; `status` says whether it ends |
//! | `Credit` | – | the caller of `id` has consumed `value` frames of items |
//!
//! Integers are little endian. The body's encoding depends on the kind.

use farside_wire::Wire;
use farside_wire::check::MessageKind;

/// The length of a header.
pub(crate) const HEAD_BYTES: usize = 24;
/// The longest body. Arguments and results that are longer travel as bulk data.
pub const BODY_BYTES_MAX: usize = 64 * 1024 + 1024;
/// The most bytes of bulk data in one frame.
pub const PIECE_BYTES: usize = 64 * 1024;

/// The status of a `Settle` after reads by RDMA.
pub(crate) const AFTER_READS: u8 = 1;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of the frame.
    pub kind: Kind,
    /// How a call or operation ended.
    pub status: u8,
    /// The provider that a call goes to.
    pub provider: u16,
    /// The procedure that a call runs.
    pub procedure: u32,
    /// The call, memory or operation.
    pub id: u64,
    /// A number that depends on the kind.
    pub value: u64,
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The call of a procedure.
    Call = 1,
    /// The end of a call.
    Answer,
    /// The caller no longer waits.
    Cancel,
    /// Bytes for exposed memory.
    Data,
    /// A request for bytes of exposed memory.
    Fetch,
    /// A request to read memory of the sender.
    Take,
    /// A request for an `Ack` of what was sent before.
    Settle,
    /// The end of an operation.
    Ack,
    /// Exposed memory is no longer used.
    Release,
    /// Items of a stream.
    Item,
    /// Items of a stream were consumed.
    Credit,
    /// Shared memory is gone.
    Forget,
    /// Memory was registered for RDMA.
    Share,
    /// No transfer of registered memory is left.
    Forgotten,
}

const KINDS: [Kind; 14] = [
    Kind::Call,
    Kind::Answer,
    Kind::Cancel,
    Kind::Data,
    Kind::Fetch,
    Kind::Take,
    Kind::Settle,
    Kind::Ack,
    Kind::Release,
    Kind::Item,
    Kind::Credit,
    Kind::Forget,
    Kind::Share,
    Kind::Forgotten,
];

impl Head {
    /// Creates the header of a frame about `id`.
    #[inline]
    pub fn new(kind: Kind, id: u64) -> Self {
        Self { kind, status: 0, provider: 0, procedure: 0, id, value: 0 }
    }

    /// The same header with a status.
    #[inline]
    #[must_use]
    pub fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// The same header with a value.
    #[inline]
    #[must_use]
    pub fn with_value(self, value: u64) -> Self {
        Self { value, ..self }
    }

    /// The header as it travels.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        // Whole words: to copy what was written in parts takes longer.
        let [kind, status] = [self.kind as u8, self.status].map(u64::from);
        let first = kind | status << 8 | u64::from(self.provider) << 16 | u64::from(self.procedure) << 32;
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// Reads a header. `None` if its kind is unknown.
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let kind = *KINDS.get(usize::from(bytes[0]).wrapping_sub(1))?;
        let (words, _) = bytes.as_chunks::<8>();
        Some(Self {
            kind,
            status: bytes[1],
            provider: u16::from_le_bytes([bytes[2], bytes[3]]),
            procedure: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            id: u64::from_le_bytes(words[1]),
            value: u64::from_le_bytes(words[2]),
        })
    }
}

/// The body of a `Fetch`: which bytes, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Fetch {
    /// The first byte, counted from the start of the memory.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The exposed memory of the asking side into which they go.
    pub into: u64,
    /// Where in that memory the first byte goes.
    pub into_offset: u64,
}

/// The body of a `Take`: memory of the sender, and the operation that an `Ack` ends.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Take {
    /// The sender's number for the operation and for the memory.
    pub operation: u64,
    /// The addresses and lengths of the memory, packed.
    pub segments: Vec<u8>,
}

/// The body of a `Share`: what libfabric names memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Share {
    /// The key of the memory.
    pub key: u64,
    /// The address of the first byte, as libfabric counts.
    pub base: u64,
    /// The size.
    pub bytes: u64,
    /// True if the peer may write it.
    pub may_write: bool,
}

/// The header and the bodies that are not results, for tests of their decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    let recode = |bytes: &[u8]| Head::from_bytes(bytes.try_into().ok()?).map(|head| head.to_bytes().to_vec());
    vec![
        MessageKind::by_hand("frame::Head", recode),
        MessageKind::of::<Fetch>(),
        MessageKind::of::<Take>(),
        MessageKind::of::<Share>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of every version of the protocol so far.
    #[test]
    fn a_header_has_fixed_bytes() {
        let head =
            Head { kind: Kind::Call, status: 2, provider: 0x0304, procedure: 0x0506_0708, id: 0x0a0b, value: 0xff };
        let bytes = [1, 2, 4, 3, 8, 7, 6, 5, 0xb, 0xa, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(head.to_bytes(), bytes);
        assert_eq!(Head::from_bytes(&bytes), Some(head));
    }

    #[test]
    fn all_kinds_are_read_back_and_no_others() {
        for byte in 0..=u8::MAX {
            let mut bytes = [0; HEAD_BYTES];
            bytes[0] = byte;
            let head = Head::from_bytes(&bytes);
            assert_eq!(head.is_some(), (1..=KINDS.len()).contains(&usize::from(byte)));
            assert!(head.is_none_or(|head| head.to_bytes() == bytes));
        }
    }
}
