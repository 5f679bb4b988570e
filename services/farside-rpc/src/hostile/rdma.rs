//! Clients with RDMA that break the protocol.

use std::sync::Arc;
use std::time::Duration;

use farside_connect::attachments::Description;
use farside_connect::frame::{Head, Kind, Share};
use farside_connect::testing::pack;
use farside_connect::{Path, Ways};
use farside_sys::shm::{Mapping, MemoryPreference};
use farside_testbed::deadline;

use super::{receive, service};
use crate::answer::WITH_MEMORY;
use crate::testing::{connect, dialled};
use crate::{Credentials, Never, Rdma, Server, Tokens};

const BYTES: u64 = 1 << 20;

fn rdma() -> Rdma {
    Rdma::over("tcp").at([127, 0, 0, 1].into())
}

fn token() -> Credentials {
    Credentials::token("hostile", "secret")
}

/// A client's claim about memory: the `Share`, and the place of the described memory in it.
struct Claim {
    share: Share,
    offset: usize,
    bytes: u64,
    number: u64,
    exposed: u64,
}

#[test]
fn claims_that_are_wrong_harm_the_own_connection_alone() {
    farside_testbed::needs!("fabric");
    let tokens = Tokens::new().with("hostile", "secret", ["all"]);
    let builder = Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(tokens).provider(0, service());
    let builder = builder.max_time(Duration::from_secs(2)).pool(4).rdma(&rdma()).unwrap();
    let server = builder.start().unwrap();
    let address = server.addresses()[0].clone();
    let honest = connect(address.to_string(), token());
    let echo = honest.procedure::<u64, u64, Never>("target", 0, "echo");
    type Change = fn(&mut Claim);
    // Each with whether the connection goes on.
    let changes: [(Change, bool); 9] = [
        (|_| {}, true),
        // Of the end of the memory the server knows itself.
        (|claim| claim.offset = 1, true),
        (|claim| claim.offset = usize::MAX, true),
        (|claim| claim.bytes = 1 << 50, true),
        (|claim| claim.number = 99, true),
        (|claim| claim.share.key ^= 1 << 40, false),
        (|claim| claim.share.base ^= 1 << 46, false),
        (|claim| (claim.share.bytes, claim.offset) = (u64::MAX, 1), false),
        (|claim| claim.exposed = 1 << 40, true),
    ];
    for (is_write, (change, goes_on)) in [false, true].into_iter().flat_map(|write| changes.map(|one| (write, one))) {
        let (path, _) = dialled(&address, &token(), &Ways { rdma: Some(rdma()), ..Ways::default() });
        let memory = Mapping::create("hostile", BYTES as usize, MemoryPreference::default()).unwrap();
        let connection = path.rdma().unwrap().connection().unwrap();
        let registered = connection.register(Arc::new(memory), true).unwrap().unwrap();
        let share = Share { key: registered.remote.key, base: registered.remote.base, bytes: BYTES, may_write: true };
        let mut claim = Claim { share, offset: 0, bytes: BYTES, number: 7, exposed: 1 << 32 };
        change(&mut claim);
        let send = |head: Head, body: &[u8]| path.send(head, &[body]).unwrap();
        send(Head::new(Kind::Share, 7), &farside_wire::encode(&claim.share, Vec::new()));
        let name = if is_write { "target/0/push" } else { "target/0/pull" };
        let procedure = server.stats().iter().position(|stats| stats.name == name).unwrap();
        call(&*path, procedure as u32, is_write, &claim);
        // The server may ask about the memory. It gets no answer to its reads by messages.
        let answered = receive(&*path, |head| {
            if head.kind == Kind::Settle {
                let done = u8::from(head.value != 1 << 32);
                path.send(Head::new(Kind::Ack, head.id).with_status(done), &[]).unwrap();
            }
            (head.kind == Kind::Answer && head.id == 2).then_some(head.status)
        });
        assert_eq!(answered.is_ok(), goes_on, "{answered:?}");
        assert_eq!(echo.call(&3), Ok(3));
    }
    server.shutdown(deadline()).unwrap();
}

/// Calls `pull` or `push` with memory that is described as the client claims.
fn call(path: &dyn Path, procedure: u32, is_write: bool, claim: &Claim) {
    let memory = Description {
        number: claim.exposed,
        bytes: claim.bytes,
        inline: None,
        segments: pack([(claim.offset, claim.bytes as usize)], 100).unwrap(),
        shared: Some(claim.number),
        may_write: is_write,
    };
    let body = farside_wire::encode(&(vec![memory], 0_u32), Vec::new());
    let head = Head { procedure, ..Head::new(Kind::Call, 2).with_value(60_000_000) };
    path.send(head.with_status(WITH_MEMORY), &[&body]).unwrap();
}
