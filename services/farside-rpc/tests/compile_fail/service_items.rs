//! Items that are no service.

#[farside_rpc::service(name = "a")]
struct NoTrait;

#[farside_rpc::service(name = "a")]
trait WithParameter<T> {}

#[farside_rpc::service(name = "a")]
unsafe trait Unsafe {}

#[farside_rpc::service(name = "a")]
trait OtherItems {
    type Key;
    const LIMIT: u64;
}

fn main() {}
