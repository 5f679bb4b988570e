//! Arbitrary bytes for every decoder of what comes from a peer or a socket. The first byte selects
//! the kind of message. `docs/testing.md` says how to run it.

#![no_main]

use std::sync::LazyLock;

use farside::wire::check::{MessageKind, Watched};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static WATCHED: Watched = Watched;

static KINDS: LazyLock<Vec<MessageKind>> = LazyLock::new(|| {
    [farside::message_kinds(), farside_kit::message_kinds(), farside_rpc::message_kinds(), farside_inspect::message_kinds()].concat()
});

fuzz_target!(|input: &[u8]| {
    if let Some((number, bytes)) = input.split_first() {
        let kind = KINDS[usize::from(*number) % KINDS.len()];
        if let Err(broken) = kind.check(bytes) {
            panic!("{broken}");
        }
    }
});
