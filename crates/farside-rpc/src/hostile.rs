//! A live server against clients that break the protocol, and decoders against random bytes.

use std::time::{Duration, Instant};

use farside_wire::{Decoder, Wire};
use proptest::prelude::*;

use crate::answer::{Bind, Bound, Refused};
use crate::bulk::{self, Bulk, Description};
use crate::dial::dial;
use crate::frame::{BODY_BYTES_MAX, Fetch, Head, Kind, Take};
use crate::greeting::{Hello, Proof, Reply};
use crate::segments;
use crate::{Client, Credentials, Handling, Never, Server, Service, Tokens};

/// Decodes bytes as each type that a peer sends. A type that accepts them writes them again.
fn decode_as_everything(bytes: &[u8]) {
    fn one<T: Wire>(bytes: &[u8]) {
        if let Ok(value) = farside_wire::decode::<T>(Decoder::new(bytes), 0) {
            let again = farside_wire::encode(&value, Vec::new());
            assert!(farside_wire::decode::<T>(Decoder::new(&again), 0).is_ok());
        }
    }
    one::<Hello>(bytes);
    one::<Proof>(bytes);
    one::<Reply>(bytes);
    one::<Refused>(bytes);
    one::<Bind>(bytes);
    one::<Vec<Bound>>(bytes);
    one::<Vec<Description>>(bytes);
    one::<Fetch>(bytes);
    one::<Take>(bytes);
    one::<Vec<crate::server::ProcedureStats>>(bytes);
    one::<crate::server::Dump>(bytes);
    // Outside of a call, memory is an error.
    assert!(farside_wire::decode::<Bulk<bulk::Read>>(Decoder::new(bytes), 0).is_err());
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let encoded = prop_oneof![
        any::<[u8; 16]>().prop_map(|nonce| farside_wire::encode(&Reply::Challenge { nonce }, Vec::new())),
        any::<(u64, u64, u64, u64)>().prop_map(|(offset, bytes, into, into_offset)| {
            farside_wire::encode(&Fetch { offset, bytes, into, into_offset }, Vec::new())
        }),
        any::<(u64, Vec<(usize, usize)>)>().prop_map(|(operation, segments)| {
            let segments = segments::pack(segments, usize::MAX).expect("there is no limit");
            farside_wire::encode(&Take { operation, segments }, Vec::new())
        }),
        any::<(String, u16)>().prop_map(|(service, provider)| {
            let procedures = vec![(service.clone(), service.clone()); 3];
            farside_wire::encode(&Bind { service, provider, procedures }, Vec::new())
        }),
    ];
    // Whole messages, cut ones, and ones with a changed byte.
    (encoded, any::<prop::sample::Index>(), any::<Option<u8>>()).prop_map(|(mut bytes, at, change)| {
        let at = at.index(bytes.len());
        match change {
            Some(byte) => bytes[at] = byte,
            None => bytes.truncate(at),
        }
        bytes
    })
}

proptest! {
    #[test]
    fn random_bytes_are_errors(bytes in prop_oneof![messages(), any::<Vec<u8>>()]) {
        decode_as_everything(&bytes);
    }
}

fn service() -> Service {
    Service::new("target")
        .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("pull", Handling::Pooled, |_, memory: Bulk<bulk::Read>| {
            memory.pull_all().map(|bytes| bytes.len() as u64).map_err(|error| error.to_string())
        })
        .procedure("push", Handling::Pooled, |_, memory: Bulk<bulk::Write>| {
            let bytes = vec![7; memory.bytes().min(1 << 20) as usize];
            memory.push(0, &bytes).map_err(|error| error.to_string())
        })
}

/// What a client may send.
const KINDS: [Kind; 7] = [Kind::Call, Kind::Cancel, Kind::Data, Kind::Fetch, Kind::Settle, Kind::Ack, Kind::Release];
/// What ends its connection.
const WRONG: [Kind; 3] = [Kind::Answer, Kind::Take, Kind::Credit];

/// Well-formed frames with any contents, in any order. A connection that they end is made again.
/// An honest client of the same server notices nothing.
#[test]
fn a_server_survives_any_frames() {
    let token = || Credentials::token("hostile", "secret");
    for address in [format!("shm:hostile-{}", std::process::id()), "tcp://127.0.0.1:0".into()] {
        let tokens = Tokens::new().with("hostile", "secret", ["all"]);
        let builder = Server::builder().listen(&address).unwrap().tokens(tokens).provider(0, service());
        let server = builder.max_time(Duration::from_millis(100)).pool(4).start().unwrap();
        let address = server.addresses()[0].clone();
        let honest = Client::connect(address.to_string(), token()).unwrap();
        let echo = honest.procedure::<u64, u64, Never>("target", 0, "echo");
        let mut random = 0x1234_5678_9abc_def0_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for round in 0..60 {
            let (path, _) = dial(&address, &token(), Instant::now() + Duration::from_secs(60)).unwrap();
            let mut scratch = Vec::new();
            for _ in 0..200 {
                let wrong = next() % 200 == 0;
                let kinds = if wrong { &WRONG[..] } else { &KINDS };
                let kind = kinds[next() as usize % kinds.len()];
                let small = next() % 8;
                let value = if next() % 2 == 0 { next() } else { small };
                let id = if next() % 2 == 0 { 1 << 32 | small } else { next() };
                let head = Head {
                    kind,
                    status: [0, 1, 0x80, next() as u8][next() as usize % 4],
                    provider: 0,
                    procedure: (next() % 9) as u32,
                    id,
                    value,
                };
                // Descriptions of memory, and the arguments of `pull` and `push`.
                let segments = vec![(next() as usize, (next() >> (next() % 64)) as usize); next() as usize % 3];
                let segments = segments::pack(segments, usize::MAX).expect("there is no limit");
                let inline = (next() % 2 == 0).then(|| vec![1_u8; small as usize]);
                let memory = vec![(next() % 5, next() >> (next() % 64), inline, segments, next() % 2 == 0)];
                let memory = (memory, next() as u32 % 2);
                let body = match next() % 4 {
                    0 => farside_wire::encode(&(next(), small, 1_u64 << 32, next()), Vec::new()),
                    1 => farside_wire::encode(&memory, Vec::new()),
                    2 => next().to_string().repeat(small as usize).into_bytes(),
                    _ => vec![small as u8; next() as usize % BODY_BYTES_MAX],
                };
                if path.send(head, &[&body]).is_err() {
                    break;
                }
                // Half of the clients never read.
                if round % 2 == 0 && path.receive(&mut scratch, 10, &mut |_, _| {}).is_err() {
                    break;
                }
            }
            assert_eq!(echo.call(&round), Ok(round));
        }
        assert_eq!(server.shutdown(Instant::now() + Duration::from_secs(60)), 0);
        drop(honest);
    }
}
