//! Wrong options of procedures. All are reported at once.

use farside_rpc::bulk::{Bulk, Read};
use farside_rpc::{Call, Never, Stream};

#[farside_rpc::service(name = "a")]
trait Service {
    #[rpc(quick)]
    fn unknown(&self, cx: &Call) -> Result<(), Never>;

    #[rpc]
    fn empty(&self, cx: &Call) -> Result<(), Never>;

    #[rpc(inline, inline)]
    fn given_twice(&self, cx: &Call) -> Result<(), Never>;

    #[rpc(name = "")]
    fn empty_name(&self, cx: &Call) -> Result<(), Never>;

    #[rpc(inline)]
    fn inline_with_bulk(&self, cx: &Call, memory: Bulk<Read>) -> Result<(), Never>;

    #[rpc(inline)]
    fn inline_with_stream(&self, cx: &Call) -> Result<Stream<u8>, Never>;

    #[rpc(oneway)]
    fn one_way_with_result(&self, cx: &Call) -> Result<u8, Never>;

    #[rpc(oneway, idempotent)]
    fn again(&self, cx: &Call);

    #[cfg(test)]
    fn in_some_builds(&self, cx: &Call) -> Result<(), Never>;
}

fn main() {}
