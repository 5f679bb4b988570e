//! The trait that sends calls trusts its caller, so programs cannot reach it.

use farside::Sends;

fn main() {}
