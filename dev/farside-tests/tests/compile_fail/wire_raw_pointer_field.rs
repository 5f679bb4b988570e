//! A raw pointer is an address of one process, and so is a function pointer.

use farside::Wire;

#[derive(Wire)]
enum Message {
    Buffer { start: *const u8, bytes: usize },
    Function(fn(u64) -> u64),
}

fn main() {}
