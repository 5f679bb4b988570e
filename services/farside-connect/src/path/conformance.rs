//! The duties of every [`Path`], whatever carries its frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use farside_sys::net::{Interest, wait_ready};
use farside_sys::shm::{Mapping, MemoryPreference};
use farside_testbed::{deadline, soon, spin_for, wait_for};

use super::rdma::{Rdma, RdmaDoor};
use super::simulated::{Network, Profile};
use super::{LinkEnd, Path};
use crate::Credentials;
use crate::dial::{Ways, dial};
use crate::door::{Door, Policy, Progress};
use crate::frame::{BODY_BYTES_MAX, Head, Kind};
use crate::greeting::Tokens;

const TOKEN: (&str, &str) = ("conformance", "the two ends of a test");

pub(crate) type Ends = [Box<dyn Path>; 2];

/// The client's and the server's end of a connection.
fn connect(address: &str, rdma: Option<&Rdma>) -> Ends {
    let door = Door::open(&address.parse().unwrap()).unwrap();
    let tokens = Tokens::new().with(TOKEN.0, TOKEN.1, ["test"]);
    let policy = Policy {
        tokens,
        incarnation: 1,
        calls_max: 1,
        bytes_max: 1,
        rdma: rdma.map(|rdma| Arc::new(RdmaDoor::open(rdma).unwrap())),
        nearby: None,
    };
    let ways = Ways { rdma: rdma.cloned(), ..Ways::default() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dialling = scope.spawn(|| {
            // One attempt takes a few seconds at most, so it may fail on a busy machine.
            let credentials = Credentials::token(TOKEN.0, TOKEN.1);
            let attempt = || dial(door.address(), &credentials, &ways, deadline()).ok();
            let path = wait_for("the client connects", attempt).0;
            is_over.store(true, Ordering::Relaxed);
            path
        });
        // An attempt that came to nothing leaves a guest that is gone.
        let (mut guests, mut server) = (Vec::new(), None);
        wait_for("a connection", || {
            guests.extend(door.accept().ok());
            let advanced = guests.drain(..).map(|guest| guest.advance(&policy)).collect::<Vec<_>>();
            for progress in advanced {
                match progress {
                    Progress::Waiting(guest) => guests.push(guest),
                    Progress::Greeted(greeted) => server = Some(greeted.path),
                    Progress::Gone => {}
                }
            }
            (is_over.load(Ordering::Relaxed) && server.is_some()).then_some(())
        });
        [dialling.join().unwrap(), server.unwrap()]
    })
}

/// Runs a test over a simulated network.
fn simulate() -> Ends {
    Network::new(Profile::default(), 1).unwrap().connect().unwrap().map(|path| Box::new(path) as Box<dyn Path>)
}

/// Runs a check over each path, in both directions.
fn everywhere(name: &str, check: impl Fn(&Ends)) {
    with_each(name, |make| {
        check(&make());
        let [client, server] = make();
        check(&[server, client]);
    });
}

/// Passes a function that makes the two ends of each path.
pub(crate) fn with_each(name: &str, pass: impl Fn(&dyn Fn() -> Ends)) {
    let shm = format!("shm:conformance-{name}-{}", std::process::id());
    let (tcp, rdma) = ("tcp://127.0.0.1:0", Rdma::over("tcp").at([127, 0, 0, 1].into()));
    let (by_shm, by_tcp, by_rdma) = (|| connect(&shm, None), || connect(tcp, None), || connect(tcp, Some(&rdma)));
    let mut makers: Vec<&dyn Fn() -> Ends> = vec![&by_shm, &by_tcp, &simulate];
    if !farside_testbed::is_left_out("fabric") {
        makers.push(&by_rdma);
    }
    makers.into_iter().for_each(pass);
}

fn frame(number: u64) -> Head {
    Head { status: 7, provider: 8, procedure: 9, ..Head::new(Kind::Data, number).with_value(!number) }
}

/// Receives until something came or the connection ended.
fn receive(path: &dyn Path, max: usize) -> Result<Vec<(Head, Vec<u8>)>, LinkEnd> {
    let (mut scratch, mut frames) = (Vec::new(), Vec::new());
    spin_for("frames", || {
        if let Err(end) = path.receive(&mut scratch, max, &mut |head, body| frames.push((head, body.to_vec()))) {
            return Some(Err(end));
        }
        if frames.is_empty() {
            path.look();
            path.pass_time();
        }
        (!frames.is_empty()).then(|| Ok(std::mem::take(&mut frames)))
    })
}

#[test]
fn frames_arrive_whole_and_in_order() {
    everywhere("whole", |[near, far]| {
        let lengths = [0, 1, 7, 8, 9, 4095, 65_536, BODY_BYTES_MAX];
        let body = |length: usize| (0..length).map(|index| (index * length % 251) as u8).collect::<Vec<_>>();
        for (number, length) in (0..).zip(lengths) {
            let body = body(length);
            let (one, two) = body.split_at(length / 3);
            near.send(frame(number), &[one, &[], two]).unwrap();
            assert_eq!(receive(&**far, 64).unwrap(), [(frame(number), body)], "{length} bytes");
        }
    });
}

#[test]
fn a_receiver_gets_no_more_than_it_asks_for() {
    everywhere("max", |[near, far]| {
        (0..10).for_each(|number| near.send(frame(number), &[b"body"]).unwrap());
        let mut numbers = Vec::new();
        while numbers.len() < 10 {
            let received = receive(&**far, 3).unwrap();
            assert!(received.len() <= 3);
            numbers.extend(received.iter().map(|(head, _)| head.id));
        }
        assert!(numbers.into_iter().eq(0..10));
    });
}

/// A peer that does not read holds up no sender. The frames wait on the sender's side.
#[test]
fn frames_without_room_wait_in_the_backlog() {
    everywhere("backlog", |[near, far]| {
        let body = vec![5; 60_000];
        (0..300).for_each(|number| near.send(frame(number), &[&body]).unwrap());
        assert!(near.backlog_bytes() > 1 << 20);
        let mut scratch = Vec::new();
        let mut next = 0;
        while next < 300 {
            for (head, received) in receive(&**far, 64).unwrap() {
                assert_eq!((head, received.len()), (frame(next), body.len()));
                next += 1;
            }
            // The sender receives nothing, but sends from the backlog.
            assert_eq!(near.receive(&mut scratch, 64, &mut |_, _| panic!("no frame was sent")), Ok(0));
        }
        assert_eq!(near.backlog_bytes(), 0);
    });
}

/// Returns whether a descriptor of a path that sleeps is ready before the deadline.
fn is_woken(path: &dyn Path, by: Instant) -> bool {
    path.pass_time();
    let (socket, waker) = path.descriptors();
    let interests: Vec<_> =
        [Some(socket), waker].into_iter().flatten().map(|fd| Interest { fd, writable: false }).collect();
    wait_ready(&interests, Some(by)).unwrap().contains(&true)
}

#[test]
fn a_frame_wakes_a_receiver_that_sleeps() {
    everywhere("sleep", |[near, far]| {
        for number in 0..3 {
            assert!(far.prepare_sleep());
            assert!(!is_woken(&**far, soon()));
            near.send(frame(number), &[]).unwrap();
            assert!(is_woken(&**far, deadline()));
            far.end_sleep();
            assert_eq!(receive(&**far, 64).unwrap().len(), 1);
        }
    });
}

#[test]
fn the_end_comes_after_what_was_sent() {
    everywhere("end", |[near, far]| {
        (0..5).for_each(|number| near.send(frame(number), &[b"last"]).unwrap());
        near.close();
        assert_eq!(near.receive(&mut Vec::new(), 1, &mut |_, _| ()), Err(LinkEnd::Here));
        let mut count = 0;
        let end = loop {
            match receive(&**far, 2) {
                Ok(frames) => count += frames.len(),
                Err(end) => break end,
            }
        };
        assert_eq!((count, end), (5, LinkEnd::ByPeer));
        // A sender learns of it, at the latest when the system does.
        wait_for("the end", || {
            far.pass_time();
            far.send(frame(0), &[]).err()
        });
    });
}

/// The two ends are one process here, so the peer's memory is this one's.
#[test]
fn a_direct_read_is_right_while_its_mark_is_set() {
    everywhere("direct", |[near, far]| {
        let (Some(owner), Some(reader)) = (near.direct(), far.direct()) else {
            assert!(near.direct().is_none() && far.direct().is_none());
            return;
        };
        let memory = *b"some memory of the owner";
        let address = memory.as_ptr().expose_provenance();
        let mut found = [0; 10];
        let mut read = |mark, number| {
            let into = &mut [std::io::IoSliceMut::new(&mut found)];
            reader.read(mark, number, &[(address, 4), (address + 12, 6)], into).map_err(|error| error.kind())
        };
        assert!(owner.set_mark(3, 77));
        match read(3, 77) {
            Err(std::io::ErrorKind::PermissionDenied) => return,
            done => done.unwrap(),
        }
        assert!(read(3, 78).is_err());
        owner.clear_mark(3);
        assert!(read(3, 77).is_err());
        assert!(!owner.set_mark(1 << 20, 1));
        assert!(read(1 << 20, 1).is_err());
        assert_eq!(&found, b"someof the");
    });
}

/// The two ends are one process here, so both mappings are its own.
#[test]
fn shared_memory_is_mapped_until_it_is_forgotten() {
    everywhere("shared", |[near, far]| {
        let (Some(owner), Some(reader)) = (near.direct(), far.direct()) else { return };
        let create = |preference| Mapping::create("conformance", 10_000, preference).unwrap();
        let open = create(MemoryPreference::default());
        let closed = create(MemoryPreference { is_ours_to_write: true, ..MemoryPreference::default() });
        assert!(reader.shared(1).is_none());
        assert!(owner.share(1, &open) && owner.share(2, &closed));
        let [one, two] = [1, 2].map(|number| reader.shared(number).unwrap());
        open.write(5000, b"shared").unwrap();
        let mut found = [0; 6];
        one.mapping.read(5000, &mut found).unwrap();
        assert_eq!((&found, one.mapping.may_write(), two.mapping.may_write()), (b"shared", true, false));
        one.mapping.write(0, b"answer").unwrap();
        open.read(0, &mut found).unwrap();
        assert_eq!(&found, b"answer");
        reader.forget(1);
        reader.forget(9);
        assert!(reader.shared(1).is_none() && reader.shared(2).is_some());
        // What the other end maps is bounded, and a look takes what has arrived.
        for number in 10..200 {
            assert!(owner.share(number, &open));
            far.look();
        }
        let kept = (10..200).filter(|number| reader.shared(*number).is_some()).count();
        assert!((64..190).contains(&kept), "{kept} memories are mapped");
    });
}
