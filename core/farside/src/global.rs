//! One address space: the memory of all processes, by global addresses.
//!
//! Every process has memory that others can name: its [starter](GlobalAddress::starter) from the
//! beginning, and what it [allocates](Worker::allocate_at) later. A [`GlobalAddress`] names a byte
//! of it in 64 bits, a [`GlobalPtr`] a value, and a [`GlobalSlice`] several values. Any worker that
//! has one puts, gets, and changes words atomically; the owner takes no part.
//!
//! A worker that [puts with a signal](crate::AwaitSignals::put_signal) announces that data is
//! there, and a worker that [waits](Until) for the signal sees the data.
//!
//! All of these return when they are done. Operations that do not wait have a [`Handle`] to
//! [wait](crate::MoveMemory::complete) for, and an [`Order`] in which they start:
//! [`Worker::copy`](crate::MoveMemory::copy) from anywhere to anywhere,
//! [`start_put`](crate::MoveMemory::start_put), [`start_get`](crate::MoveMemory::start_get) and
//! [`start_change`](crate::MoveMemory::start_change).
//!
//! Each process keeps a table of its regions in memory that its peers read. A worker reads the
//! entry of a region when it first uses the region, and remembers it. If the region is mapped here,
//! a later access checks whether the region is still there, and copies.
//!
//! Ordinary memory joins when it is [registered](crate::RegisterMemory::register): a vector, or a
//! slice that is [lent](crate::RegisterMemory::lend) for a while. All workers together can have
//! objects that lie in all processes: [symmetric](Symmetric) memory, [arrays](GlobalArray) and
//! [byte spaces](ByteSpace).
//!
//! Sources: ACP (Advanced Communication Primitives), the basic layer; the signals of OpenSHMEM and
//! the notifications of GASPI.

mod atomics;
mod error;
mod local_bytes;
mod methods;
mod movement;
mod objects;
mod pointer;
mod registration;
mod room;
mod signal;
mod slice;
pub(crate) mod space;
mod until;

pub use self::atomics::{Integer, Unsigned, Word};
pub use self::error::{AddressFault, GlobalError};
pub use self::local_bytes::{LocalBytes, LocalBytesError, LocalVec};
pub use self::methods::{AccessBytes, AwaitSignals, MakeArrays, MoveMemory, RegisterMemory};
pub use self::movement::{Completing, Handle, Incoming, MovementError, OperationValue, Order};
pub use self::objects::{ByteSpace, Distribution, GlobalArray, ObjectError, RacySlice, ReadEpoch, Symmetric};
pub use self::pointer::GlobalPtr;
pub use self::registration::{LentSegment, RawSegment, ReadOnlySegment, Rights, Segment, StillHeld};
pub(crate) use self::room::GlobalRoom;
pub use self::signal::{CallSignal, Signal};
pub use self::slice::GlobalSlice;
pub use self::until::{Comparison, Until};
pub use crate::memory::GlobalAddress;

#[cfg(doc)]
use crate::Worker;
