//! Wrong arguments of `#[farside_rpc::service]`.

#[farside_rpc::service]
trait WithoutName {}

#[farside_rpc::service(name = "")]
trait EmptyName {}

#[farside_rpc::service(name = a)]
trait NoText {}

#[farside_rpc::service(name = "a", port = 7)]
trait UnknownArgument {}

#[farside_rpc::service(name = "a", name = "b")]
trait GivenTwice {}

#[farside_rpc::service(name = "a", crate = "not a path")]
trait NoPath {}

fn main() {}
