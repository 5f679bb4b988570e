//! Clients and servers in a forked child, while other threads of the parent use them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Memory, MemoryError, Read, scope};
use farside_rpc::{
    CallError, Client, ConnectError, Handling, LinkEnd, Never, Ran, Server, Service, Stream, TransferError,
};

use farside_testbed::{deadline, limit, scaled, soon};

use crate::processes::Other;
use crate::rdma::rdma;
use crate::{credentials, hold_until_cancelled, tokens, unique};

const BYTES: usize = 100_000;

fn service(memory: &Memory) -> Service {
    let shown = memory.clone();
    Service::new("forks")
        .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("wait", Handling::Pooled, |call, ()| {
            hold_until_cancelled(call);
            Ok::<_, Never>(())
        })
        .procedure("count", Handling::Pooled, |_, ()| Ok::<_, Never>(Stream::new(0_u64..)))
        .procedure("bytes", Handling::Pooled, |_, memory: Bulk<Read>| Ok::<_, Never>(memory.bytes()))
        .procedure("show", Handling::Pooled, move |_, ()| Ok::<_, Never>(shown.to_read(0..BYTES).unwrap()))
}

fn connect(address: &str, by_rdma: bool) -> Client {
    let connect = Client::to(address, credentials()).unwrap().deadline(limit());
    let connect = if by_rdma { connect.rdma(rdma()) } else { connect };
    connect.connect().unwrap()
}

/// The prefix of an address whose bulk data goes by RDMA.
const BY_RDMA: &str = "rdma+";

/// Forks, in a process that has no other tests.
pub(crate) fn fork(address: &str) {
    let by_rdma = address.starts_with(BY_RDMA);
    let address = address.trim_start_matches(BY_RDMA);
    let memory = Memory::new(BYTES).unwrap();
    let builder = Server::builder().listen(address).unwrap().tokens(tokens()).provider(0, service(&memory));
    let builder = if by_rdma { builder.rdma(&rdma()).unwrap() } else { builder };
    let server = RefCell::new(Some(builder.pool(2).start().unwrap()));
    let address = server.borrow().as_ref().unwrap().addresses()[0].to_string();
    let path = std::env::temp_dir().join(unique("forks"));
    let turns = Server::builder().listen(format!("shm:{}", path.display())).unwrap().turns().unwrap();
    let turns = RefCell::new(Some(turns));

    let client = connect(&address, by_rdma);
    let pending = RefCell::new(Some(client.procedure::<(), (), Never>("forks", 0, "wait").start(&()).unwrap()));
    let stream = client.procedure::<(), Stream<u64>, Never>("forks", 0, "count").call(&()).unwrap();
    let stream = RefCell::new(Some(stream));
    assert_eq!(stream.borrow_mut().as_mut().unwrap().next(), Some(Ok(0)));
    let shown = client.procedure::<(), Bulk<Read>, Never>("forks", 0, "show").call(&()).unwrap();
    shown.pull(0, &mut [0]).unwrap();
    let mapped = shown.mapped();
    assert_eq!(mapped.is_some(), address.starts_with("shm"));
    let shown = RefCell::new(Some(shown));
    let is_over = AtomicBool::new(false);
    let lent = vec![3; BYTES];

    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let echo = client.procedure::<u64, u64, Never>("forks", 0, "echo");
                let bytes = client.procedure::<Bulk<Read>, u64, Never>("forks", 0, "bytes");
                let show = client.procedure::<(), Bulk<Read>, Never>("forks", 0, "show");
                for number in 0.. {
                    assert_eq!(echo.call(&number), Ok(number));
                    assert_eq!(bytes.call(&vec![1; BYTES].into()), Ok(BYTES as u64));
                    assert_eq!(show.call(&()).unwrap().pull_all().unwrap().len(), BYTES);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..scaled(5) {
            let in_child = || {
                let forked = ConnectError::Forked { address: client.address().to_string() };
                assert_eq!(client.ping(1), Err(CallError::Connect(forked.clone())));
                assert_eq!(client.flush(), Err(CallError::Connect(forked)));
                assert_eq!(client.incarnation(), None);
                let lost = CallError::Lost { ran: Ran::Maybe, cause: LinkEnd::Forked };
                assert_eq!(pending.take().unwrap().wait(), Err(lost.clone()));
                let mut stream = stream.take().unwrap();
                assert_eq!(stream.find_map(Result::err), Some(lost));
                let shown = shown.take().unwrap();
                assert_eq!(shown.pull(0, &mut [0]), Err(TransferError::Link(LinkEnd::Forked)));
                assert!(!shown.is_valid() && shown.mapped().is_none());
                if let Some(mapped) = &mapped {
                    assert_eq!(mapped.copy_to(0, &mut [0]), Err(MemoryError::Forked));
                }
                assert_eq!(memory.write(0, &[1]), Err(MemoryError::Forked));
                assert_eq!(memory.read(0, &mut [1]), Err(MemoryError::Forked));
                assert_eq!(scope(|scope| scope.lend(&lent).bytes()), BYTES as u64);
                drop((stream, shown));
                assert_eq!(turns.borrow_mut().as_mut().unwrap().turn(Duration::ZERO), 0);
                drop(turns.take());
                server.take().unwrap().shutdown(soon()).unwrap();
                // A client of its own works as usual.
                assert_eq!(connect(&address, false).ping(7), Ok(7));
                0
            };
            // SAFETY: what other threads of the parent may be changing has an origin in the parent,
            // by which the library keeps away from it. That is what is tested.
            let status = unsafe { farside_sys::process::in_child(in_child) }.unwrap();
            assert!(status.success(), "{status}");
            // The parent goes on.
            assert_eq!(client.ping(2), Ok(2));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut stream = stream.take().unwrap();
    for number in 1..10_000 {
        assert_eq!(stream.next(), Some(Ok(number)));
    }
    memory.write(0, &[9]).unwrap();
    let mut found = [0];
    shown.take().unwrap().pull(0, &mut found).unwrap();
    assert_eq!(found, [9]);
    drop(stream);
    pending.take().unwrap().cancel();
    assert!(path.exists());
    drop(turns.take());
    assert!(!path.exists());
    drop((client, mapped));
    server.take().unwrap().shutdown(deadline()).unwrap();
}

#[test]
fn a_forked_child_is_refused_and_disturbs_nothing() {
    let tcp = "tcp://127.0.0.1:0".to_string();
    let mut addresses = vec![format!("shm:{}", unique("forks")), tcp.clone()];
    if !farside_testbed::is_left_out("fabric") {
        addresses.push(format!("{BY_RDMA}{tcp}"));
    }
    for address in addresses {
        assert!(Other::start("forker", &address).succeeds(), "{address}");
    }
}
