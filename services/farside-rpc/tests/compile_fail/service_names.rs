//! Names that are taken.

use farside_rpc::{Call, Never};

#[farside_rpc::service(name = "a")]
trait Service {
    fn same(&self, cx: &Call) -> Result<(), Never>;
    fn same(&self, cx: &Call) -> Result<(), Never>;

    fn one(&self, cx: &Call) -> Result<(), Never>;
    #[rpc(name = "one")]
    fn other(&self, cx: &Call) -> Result<(), Never>;

    fn deadline(&self, cx: &Call) -> Result<(), Never>;
}

fn main() {}
