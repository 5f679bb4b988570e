//! A reference is an address of one process.

use farside::Wire;

#[derive(Wire)]
struct Static {
    id: u64,
    name: &'static str,
}

#[derive(Wire)]
struct Borrowed<'a>(Vec<u8>, &'a mut u64);

fn main() {}
