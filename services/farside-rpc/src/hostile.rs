//! A live server against clients that break the protocol.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_connect::attachments::Description;
use farside_connect::door::{Door, Guest, Policy, Progress};
use farside_connect::frame::{BODY_BYTES_MAX, Fetch, Head, Kind, Take};
use farside_connect::testing::{OUT_OF_RANGE, READ_ONLY, pack};
use farside_connect::{Address, Path, Ways};
use farside_sys::shm::{Mapping, MemoryPreference};
use farside_testbed::{deadline, limit, scaled, spin_for, wait_for, wait_until};
use farside_wire::{Decoder, Wire};
use proptest::prelude::*;

use crate::answer::{BY_BULK, Bind, Bound, DONE, MORE, REFUSED, Refused, STREAMED, WITH_MEMORY};
use crate::bulk::{self, Bulk};
use crate::stream::WINDOW;
use crate::testing::{connect, dialled};
use crate::{Call, Credentials, Handling, LinkEnd, Never, Server, Service, Stream, Tokens};

mod rdma;

proptest! {
    /// `message_kinds` of this crate has the other decoders.
    #[test]
    fn outside_of_a_call_memory_is_an_error(bytes: Vec<u8>) {
        prop_assert!(farside_wire::decode::<Bulk<bulk::Read>>(Decoder::new(&bytes), 0).is_err());
    }
}

fn service() -> Service {
    Service::new("target")
        .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("pull", Handling::Pooled, |_, memory: Bulk<bulk::Read>| {
            memory.pull_all().map(|bytes| bytes.len() as u64).map_err(|error| error.to_string())
        })
        .procedure("stream", Handling::Pooled, |_, ()| Ok::<_, Never>(Stream::new(0_u64..)))
        .procedure("push", Handling::Pooled, |_, memory: Bulk<bulk::Write>| {
            let bytes = vec![7; memory.bytes().min(1 << 20) as usize];
            memory.push(0, &bytes).map_err(|error| error.to_string())
        })
}

/// The kinds of frames that a client may send.
const KINDS: [Kind; 11] = [
    Kind::Call,
    Kind::Cancel,
    Kind::Data,
    Kind::Fetch,
    Kind::Settle,
    Kind::Ack,
    Kind::Release,
    Kind::Credit,
    Kind::Forget,
    Kind::Share,
    Kind::Forgotten,
];
/// The kinds that end its connection.
const WRONG: [Kind; 3] = [Kind::Answer, Kind::Take, Kind::Item];

/// Random numbers, the same in each run with this seed.
pub(crate) fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut random = 0x1234_5678_9abc_def0_u64.wrapping_mul(2 * seed + 1);
    move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    }
}

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
        let honest = connect(address.to_string(), token());
        let echo = honest.procedure::<u64, u64, Never>("target", 0, "echo");
        let mut next = random(0);
        let mapping = Mapping::create("hostile", 1 << 16, MemoryPreference::default()).unwrap();
        for round in 0..scaled(60) {
            if round.is_multiple_of(60) {
                next = random(round / 60);
            }
            let (path, _) = dialled(&address, &token(), &Ways::default());
            let mut scratch = Vec::new();
            for _ in 0..200 {
                let wrong = next().is_multiple_of(200);
                let kinds = if wrong { &WRONG[..] } else { &KINDS };
                let kind = kinds[next() as usize % kinds.len()];
                let small = next() % 8;
                let value = if next().is_multiple_of(2) { next() } else { small };
                let id = if next().is_multiple_of(2) { 1 << 32 | small } else { next() };
                let head = Head {
                    kind,
                    status: [0, 1, 0x80, next() as u8][next() as usize % 4],
                    provider: 0,
                    procedure: (next() % 10) as u32,
                    id,
                    value,
                };
                // Descriptions of memory, and the arguments of `pull` and `push`.
                let segments = vec![(next() as usize, (next() >> (next() % 64)) as usize); next() as usize % 3];
                let segments = pack(segments, usize::MAX).expect("there is no limit");
                let inline = (next().is_multiple_of(2)).then(|| vec![1_u8; small as usize]);
                let shared = (next().is_multiple_of(2)).then_some(small);
                if let Some(direct) = path.direct().filter(|_| next().is_multiple_of(8)) {
                    direct.share(next() % 8, &mapping);
                    direct.set_mark(next() as usize % 8, 1 << 32 | small);
                }
                let memory =
                    vec![(next() % 5, next() >> (next() % 64), inline, segments, shared, next().is_multiple_of(2))];
                let memory = (memory, next() as u32 % 2);
                let body = match next() % 5 {
                    4 => Vec::new(),
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
        server.shutdown(deadline()).unwrap();
        drop(honest);
    }
}

/// After the greeting, a stream of frames that was spoiled: noise, bytes that were changed, a wrong
/// length, an end in the middle of a frame, frames that come twice. An honest client of the same
/// server notices nothing, and no connection is left.
#[test]
fn a_server_survives_any_bytes() {
    let token = || Credentials::token("hostile", "secret");
    let tokens = Tokens::new().with("hostile", "secret", ["all"]);
    let builder = Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(tokens).provider(0, service());
    let server = builder.max_time(Duration::from_millis(100)).pool(2).start().unwrap();
    let address = server.addresses()[0].clone();
    let honest = connect(address.to_string(), token());
    let echo = honest.procedure::<u64, u64, Never>("target", 0, "echo");
    let number_of = |name: &str| server.stats().iter().position(|stats| stats.name == name).unwrap() as u32;
    let [echo_number, pull_number] = ["target/0/echo", "target/0/pull"].map(number_of);
    let mut next = random(0);
    for round in 0..scaled(200) {
        if round.is_multiple_of(200) {
            next = random(round / 200);
        }
        let mut bytes = Vec::new();
        for id in 1..=4 {
            let memory = (vec![(id, 5_u64, Some(vec![1_u8; 5]), Vec::<u8>::new(), None::<u64>, false)], 0_u32);
            let (procedure, status, body) = match id % 2 {
                0 => (echo_number, 0, farside_wire::encode(&round, Vec::new())),
                _ => (pull_number, WITH_MEMORY, farside_wire::encode(&memory, Vec::new())),
            };
            let head = Head { procedure, status, ..Head::new(Kind::Call, id).with_value(1_000_000) };
            bytes.extend(farside_wire::encode(&(body.len() as u32), Vec::new()));
            bytes.extend(head.to_bytes());
            bytes.extend(body);
        }
        let place = next() as usize % bytes.len();
        match round % 5 {
            0 => bytes = (0..next() % 10_000).map(|_| next() as u8).collect(),
            1 => (0..1 + next() % 4).for_each(|_| bytes[(next() as usize) % place.max(1)] ^= 1 << (next() % 8)),
            2 => {
                bytes.splice(..4, farside_wire::encode(&((next() >> (next() % 64)) as u32), Vec::new())).for_each(drop)
            }
            3 => bytes.truncate(place),
            _ => bytes.extend_from_within(place..),
        }
        let (path, _) = dialled(&address, &token(), &Ways::default());
        let mut stream = TcpStream::from(path.descriptors().0.try_clone_to_owned().unwrap());
        // The server may have ended the connection in between.
        let _ = stream.write(&bytes);
        if next().is_multiple_of(2) {
            let _ = stream.write(&bytes);
            let _ = path.receive(&mut Vec::new(), 100, &mut |_, _| {});
        }
        assert_eq!(echo.call(&round), Ok(round));
    }
    wait_until("the server forgets the connections", || server.dump().connections.len() == 1);
    server.shutdown(deadline()).unwrap();
}

/// Receives frames until `wanted` returns something.
fn receive<T>(path: &dyn Path, mut wanted: impl FnMut(Head) -> Option<T>) -> Result<T, LinkEnd> {
    let mut scratch = Vec::new();
    spin_for("a frame", || {
        loop {
            let mut found = None;
            match path.receive(&mut scratch, 1, &mut |head, _| found = wanted(head)) {
                Err(end) => return Some(Err(end)),
                Ok(_) if found.is_some() => return found.map(Ok),
                Ok(0) => {
                    path.look();
                    return None;
                }
                Ok(_) => {}
            }
        }
    })
}

/// A stream sends what the credit allows and no more. Absurd credit ends the connection, and credit
/// for nothing changes nothing.
#[test]
fn credit_is_checked() {
    let name = format!("shm:credit-{}", std::process::id());
    let server = Server::builder().listen(&name).unwrap().provider(0, service()).start().unwrap();
    let address = server.addresses()[0].clone();
    let credentials = Credentials::own_user();
    // The procedures of the server behind those that all servers have.
    let stream = (server.stats().iter().position(|stats| stats.name == "target/0/stream")).unwrap();
    let begin = || {
        let (path, _) = dialled(&address, &credentials, &Ways::default());
        let mut head = Head::new(Kind::Call, 1 << 32).with_value(60_000_000);
        head.procedure = stream as u32;
        path.send(head, &[]).unwrap();
        receive(&*path, |head| (head.kind == Kind::Answer).then_some(())).unwrap();
        for _ in 0..WINDOW {
            receive(&*path, |head| (head.kind == Kind::Item).then_some(())).unwrap();
        }
        path
    };
    // The number of items that come before the answer to an inline call.
    let further = |path: &dyn Path| {
        let mut head = Head::new(Kind::Call, 2 << 32).with_value(60_000_000);
        head.procedure = 1;
        let mut items = 0;
        path.send(head, &[&farside_wire::encode(&7_u64, Vec::new())]).unwrap();
        receive(path, |head| {
            items += u64::from(head.kind == Kind::Item);
            (head.kind == Kind::Answer).then_some(())
        })
        .unwrap();
        items
    };
    let credit = |path: &dyn Path, id: u64, value: u64| path.send(Head::new(Kind::Credit, id).with_value(value), &[]);

    let path = begin();
    assert_eq!(further(&*path), 0);
    credit(&*path, 7 << 32, u64::MAX).unwrap();
    credit(&*path, 1 << 32, 0).unwrap();
    assert_eq!(further(&*path), 0);
    credit(&*path, 1 << 32, 2).unwrap();
    for _ in 0..2 {
        receive(&*path, |head| (head.kind == Kind::Item).then_some(())).unwrap();
    }
    assert_eq!(further(&*path), 0);
    for absurd in [WINDOW + 1, u64::MAX] {
        let path = begin();
        credit(&*path, 1 << 32, absurd).unwrap();
        assert_eq!(receive(&*path, |_| None::<()>), Err(LinkEnd::ByPeer));
    }
    let honest = connect(&name, credentials.clone());
    assert_eq!(honest.ping(1), Ok(1));
    drop(path);
    // The streams have ended with their connections.
    server.shutdown(deadline()).unwrap();
}

/// A server that sends items of its own accord. The frames follow the answer, and the error is what
/// a client makes of them.
#[test]
fn a_client_survives_any_items() {
    let item = |status, value| Head::new(Kind::Item, 0).with_status(status).with_value(value);
    let bodies: [&[u8]; 3] = [&[], &[0; 8], &[0; 20]];
    type Frames<'a> = Vec<(Head, &'a [u8])>;
    let cases: Vec<(Frames<'_>, Result<u64, &str>)> = vec![
        (vec![(item(DONE, 0), bodies[0])], Ok(0)),
        (vec![(item(MORE, 1), bodies[1]), (item(DONE, 1), bodies[1])], Ok(2)),
        (vec![(item(MORE, 1), bodies[1]); 17], Err("items without credit")),
        (vec![(item(MORE, 0), bodies[0])], Err("a frame without items")),
        (vec![(item(DONE, 1), bodies[2])], Err("12 bytes are left over")),
        (vec![(item(DONE, 3), bodies[2])], Err("needs 8 bytes")),
        (vec![(item(DONE, u64::MAX), bodies[0])], Err("needs 8 bytes")),
        (vec![(item(REFUSED, 0), bodies[0])], Err("the result could not be decoded")),
        (vec![(item(77, 5), bodies[1])], Err("the result could not be decoded")),
        (vec![(Head::new(Kind::Credit, 0), bodies[0])], Err("a Credit frame from a server")),
    ];
    for (case, (frames, expected)) in cases.into_iter().enumerate() {
        let name: Address = format!("shm:items-{}-{case}", std::process::id()).parse().unwrap();
        let door = Door::open(&name).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    match door.accept() {
                        Ok(guest) => play_server(guest, &frames, &is_over),
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
            let client = connect(name.to_string(), Credentials::own_user());
            let stream = client.procedure::<(), Stream<u64>, Never>("target", 0, "stream").call(&()).unwrap();
            // All frames have arrived when this returns.
            let _ = client.ping(1);
            let mut items = 0;
            let end = stream.inspect(|item| items += u64::from(item.is_ok())).find_map(Result::err);
            match (end, expected) {
                (None, Ok(expected)) => assert_eq!(items, expected),
                (Some(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (end, expected) => panic!("{expected:?} was expected, not {items} items and {end:?}"),
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// Answers the calls of one client: that of `stream` with these frames.
fn play_server(mut guest: Guest, frames: &[(Head, &[u8])], is_over: &AtomicBool) {
    let policy =
        Policy { tokens: Tokens::new(), incarnation: 1, calls_max: 8, bytes_max: 1 << 20, rdma: None, nearby: None };
    let path = loop {
        guest = match guest.advance(&policy) {
            Progress::Waiting(guest) => guest,
            Progress::Greeted(greeted) => break greeted.path,
            Progress::Gone => return,
        };
    };
    let mut scratch = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut calls = Vec::new();
        let received = path.receive(&mut scratch, 8, &mut |head, body| {
            if head.kind == Kind::Call {
                calls.push((head, body.to_vec()));
            }
        });
        for (head, body) in calls {
            let answer = Head::new(Kind::Answer, head.id);
            let mut sent = match head.procedure {
                0 => {
                    let bind: Bind = farside_wire::decode(Decoder::new(&body), 0).unwrap();
                    let number = if bind.service == "target" { 1 } else { 2 };
                    let bound = vec![Bound::Procedure { number }];
                    path.send(answer, &[&farside_wire::encode(&bound, Vec::new())])
                }
                1 => path.send(answer.with_status(STREAMED), &[&[0; 4]]),
                _ => path.send(answer, &[&body]),
            };
            if head.procedure == 1 {
                for (item, body) in frames {
                    sent = sent.and_then(|()| path.send(Head { id: head.id, ..*item }, &[body]));
                }
            }
            if sent.is_err() {
                return;
            }
        }
        if received.is_err() {
            return;
        }
    }
}

/// A client that lets the server push and takes nothing. What waits for it is bounded, others are
/// served, and its end frees everything.
#[test]
fn pushes_to_a_client_that_does_not_read_are_bounded() {
    const POOL: usize = 4;
    for address in [format!("shm:deaf-{}", std::process::id()), "tcp://127.0.0.1:0".into()] {
        let tokens = Tokens::new().with("deaf", "secret", ["all"]);
        let builder = Server::builder().listen(&address).unwrap().tokens(tokens).provider(0, service());
        let server = builder.pool(POOL).max_threads(POOL - 1).start().unwrap();
        let address = server.addresses()[0].clone();
        let token = || Credentials::token("deaf", "secret");
        let (path, _) = dialled(&address, &token(), &Ways::default());
        let push = (server.stats().iter().position(|stats| stats.name == "target/0/push")).unwrap();
        for call in 0..100 {
            let mut head = Head::new(Kind::Call, call << 32 | call).with_value(60_000_000).with_status(WITH_MEMORY);
            head.procedure = push as u32;
            let (inline, segments, shared) = (None::<Vec<u8>>, Vec::<u8>::new(), None::<u64>);
            let memory = vec![(1_u64 << 32, 1_u64 << 30, inline, segments, shared, true)];
            path.send(head, &[&farside_wire::encode(&(memory, 0_u32), Vec::new())]).unwrap();
        }
        let honest = connect(address.to_string(), token());
        let echo = honest.procedure::<u64, u64, Never>("target", 0, "echo");
        let pull = honest.procedure::<Bulk<bulk::Read>, u64, String>("target", 0, "pull");
        let mut most = 0;
        let held = || {
            let dump = server.dump();
            dump.calls.iter().filter(|call| call.connection == dump.connections[0].number).count()
        };
        wait_until("the pushes begin", || held() >= POOL - 1);
        // All threads that it may have are occupied for as long as this takes.
        for _ in 0..scaled(50) {
            assert_eq!(echo.call(&5), Ok(5));
            assert_eq!(pull.call(&vec![1; 100_000].into()), Ok(100_000));
            most = server.dump().connections.iter().map(|one| one.backlog_bytes).max().unwrap().max(most);
            assert!(held() >= POOL - 1, "{} calls are held up", held());
        }
        // A handler adds a block to a backlog that is not full.
        assert!(most <= (16 << 20) + POOL as u64 * (2 << 20), "{most} bytes wait to be sent");
        drop(path);
        let is_clean = || server.connection_count() == 1 && server.dump().calls.is_empty();
        wait_until("nothing of the client that has gone is left", is_clean);
        drop(honest);
        server.shutdown(deadline()).unwrap();
    }
}

/// Clients whose long arguments do not arrive. They occupy no thread, and their calls end when they
/// are cancelled, at their deadline, and with their connections.
#[test]
fn long_arguments_that_do_not_arrive_occupy_no_thread() {
    for address in [format!("shm:silent-{}", std::process::id()), "tcp://127.0.0.1:0".into()] {
        let tokens = Tokens::new().with("silent", "secret", ["all"]);
        let builder = Server::builder().listen(&address).unwrap().tokens(tokens).provider(0, service());
        let server = builder.pool(2).max_threads(2).start().unwrap();
        let address = server.addresses()[0].clone();
        let token = || Credentials::token("silent", "secret");
        let procedure = server.stats().iter().position(|stats| stats.name == "target/0/pull").unwrap() as u32;
        let call = |path: &dyn Path, number: u64, time: Duration| {
            let head = Head::new(Kind::Call, number << 32 | number).with_value(time.as_micros() as u64);
            let memory = Description {
                number: 1 << 32,
                bytes: 1 << 20,
                inline: None,
                segments: Vec::new(),
                shared: None,
                may_write: false,
            };
            let body = farside_wire::encode(&memory, Vec::new());
            path.send(Head { procedure, ..head }.with_status(BY_BULK), &[&body]).unwrap();
        };
        let silent: Vec<_> = (0..4).map(|_| dialled(&address, &token(), &Ways::default()).0).collect();
        for path in &silent {
            (0..5).for_each(|number| call(&**path, number, limit()));
        }
        let honest = connect(address.to_string(), token());
        let pull = honest.procedure::<Bulk<bulk::Read>, u64, String>("target", 0, "pull");
        for _ in 0..50 {
            assert_eq!(pull.call(&vec![1; 100_000].into()), Ok(100_000));
        }
        let wait_for_calls = |calls: usize| {
            wait_until(&format!("{calls} calls are under way"), || server.dump().calls.len() == calls);
        };
        wait_for_calls(20);
        assert!(server.dump().calls.iter().all(|call| call.running.is_none()), "no handler has begun");
        silent[0].send(Head::new(Kind::Cancel, 0), &[]).unwrap();
        silent[1].send(Head::new(Kind::Cancel, 1 << 32 | 1), &[]).unwrap();
        wait_for_calls(18);
        call(&*silent[2], 9, Duration::from_millis(20));
        let mut scratch = Vec::new();
        let refused = wait_for("an answer", || {
            let mut answer = None;
            let mut take = |head: Head, body: &[u8]| {
                if head.kind == Kind::Answer && head.id == 9 << 32 | 9 {
                    answer = Some((head.status, farside_wire::decode::<Refused>(Decoder::new(body), 0)));
                }
            };
            silent[2].receive(&mut scratch, 1, &mut take).unwrap();
            answer
        });
        // It did not run.
        assert_eq!(refused, (REFUSED, Ok(Refused::Expired)));
        drop(silent);
        wait_for_calls(0);
        assert_eq!(pull.call(&vec![1; 100_000].into()), Ok(100_000));
        drop(honest);
        server.shutdown(deadline()).unwrap();
    }
}

/// Clients that call and read no answer. What waits for all of them is bounded: their calls are
/// busy from half of the limit on, and they lose their connections beyond it. Others are served.
#[test]
fn what_waits_for_all_clients_is_bounded() {
    const MAX: u64 = 4 << 20;
    const RESULT: usize = 60_000;
    for address in [format!("shm:deaf-together-{}", std::process::id()), "tcp://127.0.0.1:0".into()] {
        let tokens = Tokens::new().with("deaf", "secret", ["all"]);
        let bytes = |_: &Call, (): ()| Ok::<_, Never>(vec![7_u8; RESULT]);
        let service = Service::new("target").procedure("bytes", Handling::Inline, bytes);
        let builder = Server::builder().listen(&address).unwrap().tokens(tokens).provider(0, service);
        let server = builder.max_unsent_bytes(MAX).start().unwrap();
        let address = server.addresses()[0].clone();
        let token = || Credentials::token("deaf", "secret");
        let stats = || server.stats().into_iter().find(|stats| stats.name == "target/0/bytes").unwrap();
        let procedure = server.stats().iter().position(|stats| stats.name == "target/0/bytes").unwrap() as u32;
        let unsent = || server.dump().connections.iter().map(|connection| connection.backlog_bytes).sum::<u64>();
        let deaf: Vec<_> = (0..4).map(|_| dialled(&address, &token(), &Ways::default()).0).collect();
        let mut calls = 0;
        let mut call = |path: &dyn Path| {
            calls += 1;
            let head = Head::new(Kind::Call, calls << 32 | calls).with_value(60_000_000);
            path.send(Head { procedure, ..head }, &[])
        };
        // Each can have what is allowed for one.
        for _ in 0..200 {
            deaf.iter().for_each(|path| call(&**path).unwrap());
        }
        wait_until("calls are refused", || stats().refused > 0);
        wait_until("all are answered", || stats().done + stats().refused == 800);
        assert!(unsent() < MAX / 2 + 100 * 800 + 5 * RESULT as u64, "{} bytes wait", unsent());

        let honest = connect(address.to_string(), token());
        let bytes = honest.procedure::<(), Vec<u8>, Never>("target", 0, "bytes");
        let is_served = || bytes.call(&()).is_ok_and(|bytes| bytes.len() == RESULT);
        (0..100).for_each(|_| assert!(is_served()));
        // Refusals wait to be sent, too.
        wait_until("they lose their connections", || {
            // A client that does not look hears of no end.
            deaf.iter().for_each(|path| (0..100).for_each(|_| drop(call(&**path))));
            server.connection_count() == 1
        });
        assert!(is_served() && unsent() < MAX / 2, "{} bytes wait", unsent());
        drop(honest);
        server.shutdown(deadline()).unwrap();
    }
}

/// A third party that asks for, and writes, what lies outside of the memory that was passed on to
/// it, or what it may not. It hears so, and the memory stays as it is.
#[test]
fn a_third_party_stays_inside_the_memory() {
    const BYTES: usize = 100_000;
    let address = |what| format!("shm:{what}-{}", std::process::id());
    let name: Address = address("third").parse().unwrap();
    let door = Door::open(&name).unwrap();
    std::thread::scope(|scope| {
        let third = scope.spawn(|| play_third_party(&door, BYTES as u64));
        let to = connect(name.to_string(), Credentials::own_user());
        let read = to.procedure::<Bulk<bulk::Read>, u8, Never>("target", 0, "read");
        let write = to.procedure::<Bulk<bulk::Write>, u8, Never>("target", 0, "write");
        let text = |error: crate::CallError<Never>| error.to_string();
        let forwarder = Service::new("forwarder")
            .procedure("read", Handling::Pooled, move |_, memory: Bulk<bulk::Read>| read.call(&memory).map_err(text))
            .procedure("write", Handling::Pooled, move |_, memory: Bulk<bulk::Write>| {
                write.call(&memory).map_err(text)
            });
        let server = Server::builder().listen(address("forwarder")).unwrap().provider(0, forwarder).start().unwrap();
        let client = connect(address("forwarder"), Credentials::own_user());
        let read = client.procedure::<Bulk<bulk::Read>, u8, String>("forwarder", 0, "read");
        let write = client.procedure::<Bulk<bulk::Write>, u8, String>("forwarder", 0, "write");
        let mut room = vec![5; BYTES];
        bulk::scope(|scope| {
            assert_eq!(read.call(&scope.lend(&room)), Ok(0));
            // These travel by messages, also on one machine.
            assert_eq!(read.call(&scope.lend_all(room.chunks(100))), Ok(0));
        });
        assert_eq!(bulk::scope(|scope| write.call(&scope.lend_mut(&mut room))), Ok(0));
        assert!(room.iter().all(|byte| *byte == 5));
        let memory = bulk::Memory::new(2 * BYTES).unwrap();
        assert_eq!(read.call(&memory.to_read(0..BYTES).unwrap()), Ok(0));
        assert_eq!(write.call(&memory.to_write(0..BYTES).unwrap()), Ok(0));
        let mut found = vec![1; 2 * BYTES];
        memory.read(0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
        drop((client, read, write));
        drop(server);
        third.join().unwrap();
    });
}

/// Answers two binds and five calls. Each answer comes after requests that must be refused.
fn play_third_party(door: &Door, bytes: u64) {
    let policy =
        Policy { tokens: Tokens::new(), incarnation: 1, calls_max: 8, bytes_max: 1 << 20, rdma: None, nearby: None };
    let mut guest = wait_for("a client", || door.accept().ok());
    let path = loop {
        guest = match guest.advance(&policy) {
            Progress::Waiting(guest) => guest,
            Progress::Greeted(greeted) => break greeted.path,
            Progress::Gone => panic!("the client went"),
        };
    };
    let send = |head: Head, body: &[u8]| path.send(head, &[body]).unwrap();
    let mut calls = 0;
    while calls < 5 {
        let (head, body) = spin_for("a call", || {
            let mut found = None;
            path.receive(&mut Vec::new(), 1, &mut |head, body| {
                found = (head.kind == Kind::Call).then(|| (head, body.to_vec()));
            })
            .unwrap();
            found
        });
        let answer = Head::new(Kind::Answer, head.id);
        if head.procedure == 0 {
            send(answer, &farside_wire::encode(&vec![Bound::Procedure { number: 1 }], Vec::new()));
            continue;
        }
        calls += 1;
        let memory: Vec<Description> = Vec::decode(&mut Decoder::new(&body)).unwrap();
        let number = memory[0].number;
        let refused = |expected: &[u8]| {
            let status = receive(&*path, |head| {
                assert_ne!(head.kind, Kind::Data, "bytes from outside");
                (head.kind == Kind::Ack && head.id == 77).then_some(head.status)
            });
            let status = status.unwrap();
            assert!(expected.contains(&status), "{status}, not {expected:?}");
        };
        for (offset, count) in [(0, 1 << 40), (u64::MAX, 2), (bytes, 1), (bytes - 1, 2)] {
            let fetch = Fetch { offset, bytes: count, into: 77, into_offset: 0 };
            send(Head::new(Kind::Fetch, number), &farside_wire::encode(&fetch, Vec::new()));
            refused(&[OUT_OF_RANGE, READ_ONLY]);
        }
        for segments in [vec![0xff; 5], pack([(1 << 40, 8 << 20)], 100).unwrap()] {
            let take = Take { operation: 77, segments };
            send(Head::new(Kind::Take, number).with_value(0), &farside_wire::encode(&take, Vec::new()));
            refused(&[OUT_OF_RANGE, READ_ONLY]);
        }
        for offset in [bytes - 1, bytes, u64::MAX] {
            send(Head::new(Kind::Data, number).with_value(offset), b"ab");
            send(Head::new(Kind::Settle, 77).with_value(number), &[]);
            refused(&[OUT_OF_RANGE, READ_ONLY]);
        }
        send(answer, &[0]);
    }
}
