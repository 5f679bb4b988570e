//! A type that cannot travel, and handlers that threads cannot share.

use farside_rpc::{Call, Never};

struct Private;

#[farside_rpc::service(name = "a")]
trait Service {
    fn argument(&self, cx: &Call, first: u8, second: Private) -> Result<(), Never>;
}

#[farside_rpc::service(name = "b")]
trait Shared {
    fn procedure(&self, cx: &Call) -> Result<(), Never>;
}

struct OneThread(std::cell::Cell<u8>);

impl Shared for OneThread {
    fn procedure(&self, _: &Call) -> Result<(), Never> {
        Ok(())
    }
}

fn main() {}
