//! The methods of workers for memory at any address.

mod access_bytes;
mod await_signals;
mod make_arrays;
mod move_memory;
mod register_memory;

pub use access_bytes::AccessBytes;
pub use await_signals::AwaitSignals;
pub use make_arrays::MakeArrays;
pub use move_memory::MoveMemory;
pub use register_memory::RegisterMemory;
