//! The fields of a packed type cannot be borrowed.

use farside::Wire;

#[derive(Wire)]
#[repr(C, packed)]
struct Packed(u8, u64);

fn main() {}
