//! A live server against clients that describe memory which they do not have, and peers that write
//! random bytes into the memory of a connection.

use std::os::fd::AsFd;
use std::time::Duration;

use farside_connect::attachments::Description;
use farside_connect::frame::{Fetch, Head, Kind, Take};
use farside_connect::testing::{
    GONE, Hello, MAGIC, Offer, Proof, READ_ONLY, Reply, Segment, ShmPath, Socket, Stream, VERSION, Wakers,
    abstract_name, pack,
};
use farside_connect::{Path, Ways, Welcome};
use farside_sys::net::{Listener, MessageSocket, Waker};
use farside_sys::shm::{Mapping, MemoryPreference};
use farside_testbed::{deadline, limit, scaled, spin_for, wait_until};
use farside_wire::{Decoder, Wire};

use crate::answer::{self, WITH_MEMORY};
use crate::bulk::{Bulk, Read, Write};
use crate::hostile::random;
use crate::testing::{connect, dialled};
use crate::{CallError, Client, Credentials, Handling, Never, Server, Service};

fn start(what: &str) -> (Server, String) {
    let text = |error: crate::TransferError| error.to_string();
    let service = Service::new("target")
        .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("pull", Handling::Pooled, move |_, memory: Bulk<Read>| {
            memory.pull_all().map(|bytes| bytes.len() as u64).map_err(text)
        })
        .procedure("push", Handling::Pooled, move |_, memory: Bulk<Write>| {
            memory.push(0, &[7; 100]).map(|()| 100_u64).map_err(text)
        });
    let address = format!("shm:{what}-{}", std::process::id());
    let server = Server::builder().listen(&address).unwrap().provider(0, service).pool(2).start().unwrap();
    (server, address)
}

fn procedure(server: &Server, name: &str) -> u32 {
    server.stats().iter().position(|stats| stats.name == name).unwrap() as u32
}

/// Calls a procedure with described memory. Refuses what the server asks for meanwhile.
fn call(path: &dyn Path, id: u64, procedure: u32, memory: &Description) -> Result<u64, CallError<String>> {
    let mut head = Head::new(Kind::Call, id).with_value(60_000_000).with_status(WITH_MEMORY);
    head.procedure = procedure;
    path.send(head, &[&farside_wire::encode(&(vec![memory.clone()], 0_u32), Vec::new())]).unwrap();
    loop {
        let (head, body) = spin_for("an answer", || {
            let mut found = None;
            path.receive(&mut Vec::new(), 1, &mut |head, body| found = Some((head, body.to_vec()))).unwrap();
            found
        });
        let refuse = |operation, status| path.send(Head::new(Kind::Ack, operation).with_status(status), &[]).unwrap();
        match head.kind {
            Kind::Answer => return answer::read(head.status, Decoder::new(&body)),
            Kind::Fetch => refuse(Fetch::decode(&mut Decoder::new(&body)).unwrap().into, GONE),
            Kind::Take => refuse(Take::decode(&mut Decoder::new(&body)).unwrap().operation, READ_ONLY),
            kind => panic!("{kind:?}"),
        }
    }
}

fn described(number: u64, bytes: u64, parts: &[Segment]) -> Description {
    let segments = pack(parts.iter().copied(), usize::MAX).unwrap();
    Description { number, bytes, inline: None, segments, shared: None, may_write: false }
}

/// Each description of memory that is not there, or not so, has the error that it should have.
#[test]
fn wrong_descriptions_are_typed_errors() {
    const MARKED: u64 = 1 << 32 | 3;
    const UNMARKED: u64 = 1 << 32 | 4;
    let (server, address) = start("described");
    let (path, _) = dialled(&server.addresses()[0], &Credentials::own_user(), &Ways::default());
    let [pull, push] = ["target/0/pull", "target/0/push"].map(|name| procedure(&server, name));
    let own = vec![5_u8; 10_000];
    let place = own.as_ptr().expose_provenance();
    let direct = path.direct().unwrap();
    assert!(direct.set_mark(3, MARKED));
    let mapping = Mapping::create("scribbles", 4096, MemoryPreference::default()).unwrap();
    assert!(direct.share(5, &mapping));
    let here = |bytes: usize| described(MARKED, bytes as u64, &[(place, bytes)]);
    let mut numbers = 1_u64..;
    let mut try_it = |procedure, memory: &Description| {
        let id = 1 << 32 | numbers.next().unwrap();
        call(&*path, id, procedure, memory)
    };

    assert_eq!(try_it(pull, &here(10_000)), Ok(10_000));
    assert_eq!(try_it(pull, &described(MARKED, 0, &[])), Ok(0), "empty");
    let overlapping = described(MARKED, 4_000, &[(place, 2_000), (place + 500, 2_000)]);
    assert_eq!(try_it(pull, &overlapping), Ok(4_000), "overlapping");
    let shared = Description { shared: Some(5), ..described(MARKED, 4_096, &[(0, 4_096)]) };
    assert_eq!(try_it(pull, &shared), Ok(4_096), "shared");

    let no_memory = "no memory for 1152921504606846976 bytes";
    let failed: [(&str, Description, &str); 6] = [
        ("huge", described(MARKED, 1 << 60, &[]), no_memory),
        ("taken back", described(UNMARKED, 10_000, &[(place, 10_000)]), "the memory is gone"),
        ("foreign", described(MARKED, 10_000, &[(16, 10_000)]), "the memory is gone"),
        ("unknown", described(77, 10_000, &[]), "the memory is gone"),
        ("not shared", Description { shared: Some(6), ..shared.clone() }, "the memory is gone"),
        ("past the end", Description { shared: Some(5), ..described(MARKED, 4_096, &[(1, 4_096)]) }, "is gone"),
    ];
    for (what, memory, expected) in failed {
        let error = try_it(pull, &memory).unwrap_err();
        assert!(matches!(&error, CallError::Service(text) if text.contains(expected)), "{what}: {error}");
    }
    let undecodable: [(&str, u32, Description); 7] = [
        ("longer than any memory", pull, described(MARKED, u64::MAX, &[])),
        ("segments of another size", pull, described(MARKED, 9_999, &[(place, 10_000)])),
        ("fewer bytes than said", pull, Description { inline: Some(vec![1; 9]), ..described(MARKED, 10, &[]) }),
        ("to be written", pull, Description { may_write: true, ..here(10_000) }),
        ("to be read", push, here(10_000)),
        ("segments that are none", pull, Description { segments: vec![0xff; 5], ..here(10_000) }),
        ("no bytes in a segment", pull, Description { segments: vec![2, 0], ..here(10_000) }),
    ];
    for (what, procedure, memory) in undecodable {
        let error = try_it(procedure, &memory).unwrap_err();
        assert!(matches!(error, CallError::Undecodable { .. }), "{what}: {error}");
    }
    // A client that says it may be written, and refuses to.
    let error = try_it(push, &Description { may_write: true, ..described(MARKED, 100, &[]) }).unwrap_err();
    assert!(matches!(&error, CallError::Service(text) if text.contains("may only be read")), "{error}");
    // Too short for what the handler pushes.
    let error = try_it(push, &Description { may_write: true, ..described(MARKED, 99, &[]) }).unwrap_err();
    assert!(matches!(&error, CallError::Service(text) if text.contains("0..100 is not inside")), "{error}");

    assert_eq!(try_it(pull, &here(10_000)), Ok(10_000), "the connection still works");
    assert_eq!(connect(&address, Credentials::own_user()).ping(1), Ok(1));
    drop(path);
    server.shutdown(deadline()).unwrap();
}

/// Receives a message of a greeting.
fn hear(socket: &mut Socket) -> (Vec<u8>, Option<std::os::fd::OwnedFd>) {
    spin_for("a message", || socket.receive().unwrap())
}

/// Connects, and keeps another mapping of the connection's memory, and what wakes the server.
fn connect_to_scribble(address: &str) -> (ShmPath, Mapping, Waker) {
    let name = abstract_name(address.trim_start_matches("shm:"));
    let mut socket = Socket::new(Stream::Unix(MessageSocket::connect(&name).unwrap()));
    let say = |socket: &Socket, message: Vec<u8>, fd| socket.send(&message, fd).unwrap();
    let hello = Hello { magic: MAGIC, version: VERSION, nonce: [1; 16], token: None };
    say(&socket, farside_wire::encode(&hello, Vec::new()), None);
    hear(&mut socket);
    let offer = Offer::new().unwrap();
    let memory = Mapping::of_stranger(offer.fd().try_clone_to_owned().unwrap()).unwrap();
    let proof = Proof { proof: [0; 32], secret: Some(offer.secret()) };
    say(&socket, farside_wire::encode(&proof, Vec::new()), Some(offer.fd()));
    let (welcome, peer) = hear(&mut socket);
    let Reply::Welcome(welcome) = Reply::decode(&mut Decoder::new(&welcome)).unwrap() else { panic!("refused") };
    let (_, own) = hear(&mut socket);
    let (peer, own) = (peer.unwrap(), own.unwrap());
    let waker = Waker::from_fd(peer.as_fd().try_clone_to_owned().unwrap());
    let Stream::Unix(socket) = socket.stream else { panic!("it is a Unix socket") };
    let identity = socket.peer().unwrap();
    let wakers = Wakers { own: Waker::from_fd(own), peer: Waker::from_fd(peer) };
    (ShmPath::new(offer, wakers, socket, identity, welcome.secret.unwrap()), memory, waker)
}

/// Random bytes in doorbells, control blocks, marks and rings, between correct calls. The server
/// ends that connection or goes on with it, and serves others.
#[test]
fn scribbles_in_shared_memory_harm_their_connection_alone() {
    let (server, address) = start("scribbled");
    let honest = connect(&address, Credentials::own_user());
    let echo = honest.procedure::<u64, u64, Never>("target", 0, "echo");
    let pull = procedure(&server, "target/0/pull");
    let own = vec![5_u8; 5_000];
    let mut random = random(0);
    let mut next = |below: usize| random() as usize % below;
    let mut ended = 0;
    for round in 0..scaled(200) {
        let (path, memory, waker) = connect_to_scribble(&address);
        path.direct().unwrap().set_mark(3, 1 << 32 | 3);
        // Doorbells, control blocks, marks, the start of the first ring, or anything.
        let places = [0..256, 256..512, 512..4608, 8192..8400, 0..memory.bytes()];
        let place = places[round as usize % places.len()].clone();
        for id in 0..30 {
            let mut head = Head::new(Kind::Call, 1 << 32 | id).with_value(1_000_000).with_status(WITH_MEMORY);
            head.procedure = pull;
            let described = described(1 << 32 | 3, 5_000, &[(own.as_ptr().expose_provenance(), 5_000)]);
            let body = farside_wire::encode(&(vec![described], 0_u32), Vec::new());
            if path.send(head, &[&body]).is_err() || path.receive(&mut Vec::new(), 8, &mut |_, _| {}).is_err() {
                break;
            }
            let length = [1, 4, 8, 64][next(4)];
            let at = (place.start + next(place.len())).min(memory.bytes() - length) & !(length.min(8) - 1);
            let fill = [0, 1, 0xff][next(3)];
            let bytes: Vec<_> = (0..length).map(|_| if id % 2 == 0 { fill } else { next(256) as u8 }).collect();
            memory.write(at, &bytes).unwrap();
            waker.wake();
        }
        assert_eq!(echo.call(&round), Ok(round));
        ended += usize::from(server.connection_count() == 1);
        drop(path);
    }
    let is_clean = || server.connection_count() == 1 && server.dump().calls.is_empty();
    wait_until("the server forgets the connections", is_clean);
    assert!(ended > 0, "no connection was ended");
    assert_eq!(echo.call(&1), Ok(1));
    drop((honest, echo));
    server.shutdown(deadline()).unwrap();
}

/// Accepts a client in the same way, as [`connect_to_scribble`] connects to a server.
fn accept_to_scribble(listener: &Listener) -> (ShmPath, Mapping, Waker) {
    let socket = spin_for("a client", || listener.accept().ok());
    let mut socket = Socket::new(Stream::Unix(socket));
    let say = |socket: &Socket, message: &Reply, fd| socket.send(&farside_wire::encode(message, Vec::new()), fd);
    hear(&mut socket);
    say(&socket, &Reply::Challenge { nonce: [2; 16] }, None).unwrap();
    let (proof, fd) = hear(&mut socket);
    let peer_secret = Proof::decode(&mut Decoder::new(&proof)).unwrap().secret.unwrap();
    let fd = fd.unwrap();
    let memory = Mapping::of_stranger(fd.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let offer = Offer::accept(fd).unwrap();
    let ((own, client_wakes), (client_own, peer)) = (Waker::pair().unwrap(), Waker::pair().unwrap());
    let secret = Some(offer.secret());
    let (calls_max, bytes_max) = (8, 1 << 20);
    let (proof, rdma, nearby) = ([0; 32], None, None);
    let welcome = Welcome { proof, secret, incarnation: 1, connection: 1, calls_max, bytes_max, rdma, nearby };
    say(&socket, &Reply::Welcome(welcome), Some(client_wakes.as_fd())).unwrap();
    socket.send(b"w", Some(client_own.as_fd())).unwrap();
    let waker = Waker::from_fd(peer.as_fd().try_clone_to_owned().unwrap());
    let Stream::Unix(socket) = socket.stream else { panic!("it is a Unix socket") };
    let identity = socket.peer().unwrap();
    (ShmPath::new(offer, Wakers { own, peer }, socket, identity, peer_secret), memory, waker)
}

/// A server that scribbles while it answers. Its client has answers, or errors within the deadline.
#[test]
fn scribbles_of_a_server_are_errors_of_its_client() {
    let name = format!("scribbling-{}", std::process::id());
    let listener = Listener::bind(&abstract_name(&name)).unwrap();
    let mut random = random(0);
    let mut next = |below: usize| random() as usize % below;
    let mut failed = 0;
    for round in 0..scaled(30) as usize {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let connect = Client::to(format!("shm:{name}"), Credentials::own_user()).unwrap().once();
                let client = connect.deadline(limit()).connect().unwrap().deadline(Duration::from_millis(100));
                (0..10).filter(|number| client.ping(*number).is_err()).count()
            });
            let (path, memory, waker) = accept_to_scribble(&listener);
            let places = [0..256, 256..512, 512..4608, 8192 + 2 * 132 * 1024..8192 + 2 * 132 * 1024 + 200];
            let place = places[round % places.len()].clone();
            while !client.is_finished() {
                let mut calls = Vec::new();
                let received = path.receive(&mut Vec::new(), 8, &mut |head, body| calls.push((head, body.to_vec())));
                for (head, body) in calls {
                    let _ = path.send(Head::new(Kind::Answer, head.id), &[&body]);
                    let length = [1, 4, 8, 64][next(4)];
                    let at = (place.start + next(place.len())).min(place.end - length) & !(length.min(8) - 1);
                    let bytes: Vec<_> = (0..length).map(|_| next(256) as u8).collect();
                    memory.write(at, &bytes).unwrap();
                    waker.wake();
                }
                if received.is_err() {
                    break;
                }
                std::thread::yield_now();
            }
            failed += client.join().unwrap();
        });
    }
    assert!(failed > 0, "no call failed");
}
