//! Objects that all workers share, and how a process accesses its own part of one.
//!
//! `spread` allocates memory in several processes: in all of them or, on an error, in none.
//! Symmetric memory, arrays and byte spaces each add the arithmetic of which process owns which
//! part.

mod array;
mod byte_space;
mod epoch;
mod object_error;
mod own_words;
mod racy_slice;
mod spread;
mod symmetric;

pub use self::array::{Distribution, GlobalArray};
pub use self::byte_space::ByteSpace;
pub use self::epoch::ReadEpoch;
pub use self::object_error::ObjectError;
pub use self::racy_slice::RacySlice;
pub use self::symmetric::Symmetric;
