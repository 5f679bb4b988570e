//! Objects that all workers have together, and the ways in which a process gets at its own part of them.
//!
//! `spread` is memory of several processes that all have or none. Symmetric memory, arrays and byte spaces are each a spread and the
//! arithmetic of who has what.

mod array;
mod byte_space;
mod epoch;
mod object_error;
mod racy_slice;
mod spread;
mod symmetric;

pub use self::array::{Distribution, GlobalArray};
pub use self::byte_space::ByteSpace;
pub use self::epoch::ReadEpoch;
pub use self::object_error::ObjectError;
pub use self::racy_slice::RacySlice;
pub use self::symmetric::Symmetric;
