//! Options that are not there, or not here.

use farside::Wire;

#[derive(Wire)]
#[wire(krate = "::farside")]
struct Misspelt(u8);

#[derive(Wire)]
#[wire(crate = "not a path")]
struct NoPath(u8);

#[derive(Wire)]
struct OnField(#[wire(skip)] u8);

fn main() {}
