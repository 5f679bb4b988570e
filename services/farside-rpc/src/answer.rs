//! The contents of an `Answer` frame.

use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use crate::error::{ARGUMENTS, CallError, RESULT, Stage};

/// The statuses of an `Answer`.
pub(crate) const DONE: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const REFUSED: u8 = 2;
/// Set in the status if the body describes memory that holds the bytes.
pub(crate) const BY_BULK: u8 = 0x80;
/// Set in the status if the items of a stream follow.
pub(crate) const STREAMED: u8 = 0x40;
/// Set in the status if the body begins with descriptions of memory of the server.
pub(crate) const MEMORY: u8 = 0x20;
/// The status of an `Item` frame that others follow. The last one is [`DONE`] or [`REFUSED`].
pub(crate) const MORE: u8 = 3;
/// The status of a `Call` whose body begins with descriptions of memory.
pub(crate) const WITH_MEMORY: u8 = 1;

/// The limit that [`Refused::Busy`] names when a connection has too many calls under way.
pub(crate) const CALLS_OF_ONE: &str = "calls of one connection";

/// Why a server has no result: the body of an `Answer` with the status [`REFUSED`].
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) enum Refused {
    Expired,
    Cancelled,
    Busy { limit: u64, what: String },
    Unknown { name: String, served: String },
    Undecodable { cause: String },
    TooLarge { is_result: bool, bytes: u64, max: u64 },
    Panicked { message: String },
    ShuttingDown,
    Late,
}

impl<E> From<Refused> for CallError<E> {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Expired => Self::Deadline { stage: Stage::Queued },
            // Its handler had begun.
            Refused::Late => Self::Deadline { stage: Stage::Waiting },
            Refused::Cancelled => Self::Cancelled,
            Refused::Busy { limit, what } => Self::Busy { limit, what },
            Refused::Unknown { name, served } => Self::Unknown { name, served },
            Refused::Undecodable { cause } => Self::Undecodable { what: ARGUMENTS, cause },
            Refused::TooLarge { is_result, bytes, max } => {
                Self::TooLarge { what: if is_result { RESULT } else { ARGUMENTS }, bytes, max }
            }
            Refused::Panicked { message } => Self::Panicked(message),
            Refused::ShuttingDown => Self::ShuttingDown,
        }
    }
}

/// Reads the bytes of an answer.
pub(crate) fn read<T: Wire, E: Wire>(status: u8, bytes: Decoder<'_>) -> Result<T, CallError<E>> {
    let undecodable = |error| CallError::undecodable(RESULT, &error);
    match status {
        DONE => farside_wire::decode(bytes, 0).map_err(undecodable),
        FAILED => {
            let error = farside_wire::decode(bytes, 0).map_err(undecodable)?;
            Err(CallError::Service(error))
        }
        _ => {
            let refused: Refused = farside_wire::decode(bytes, 0).map_err(undecodable)?;
            Err(refused.into())
        }
    }
}

/// The number of the procedure that resolves names to numbers, at every server.
pub(crate) const BIND: u32 = 0;

/// The request that resolves names to numbers.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) struct Bind {
    pub(crate) service: String,
    pub(crate) provider: u16,
    /// The name and the types of each procedure.
    pub(crate) procedures: Vec<(String, String)>,
}

/// The procedure that the server has under one name.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub(crate) enum Bound {
    /// The procedure, by its number.
    Procedure { number: u32 },
    /// Nothing of this name.
    Unknown { served: String },
    /// A procedure of other types.
    Shape { theirs: String },
}

/// The answers of servers other than results, and the resolving of names, for tests of their
/// decoders.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    vec![
        MessageKind::of::<Refused>(),
        MessageKind::of::<Bind>(),
        MessageKind::of::<Bound>(),
        MessageKind::of::<Vec<Bound>>(),
    ]
}
