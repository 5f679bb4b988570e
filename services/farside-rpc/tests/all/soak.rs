//! Thousands of clients that connect, call and die in the middle of a transfer: the server's
//! memory, descriptors and mappings stay as they were, however it serves.

use std::path::PathBuf;
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::{Client, Credentials, Handling, Never, Server, Service, Stream};
use farside_testbed::{Holdings, hold_still, wait_until};

use crate::processes::Other;
use crate::{credentials, tokens, unique};

/// The clients of a process, which dies as a whole.
const CLIENTS: usize = 50;
/// The process after which the server has what it needs.
const WARM: usize = 1;
/// The threads of such a process. Each calls with its share of the clients.
const THREADS: usize = 5;

/// The holdings of a server: descriptors, mappings, and resident KiB of its own memory.
type Usage = (u64, u64, u64);

fn usage() -> Usage {
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = mappings.lines().filter(|line| line.contains("farside")).count() as u64;
    let Holdings { descriptors, memory_bytes, .. } = Holdings::of("self");
    (descriptors as u64, mappings, memory_bytes >> 10)
}

/// How the server serves.
#[derive(Clone, Copy, Debug)]
enum Way {
    Threads,
    Turns,
    #[cfg(feature = "tokio")]
    Tokio,
}

const WAYS: &[Way] = &[
    Way::Threads,
    Way::Turns,
    #[cfg(feature = "tokio")]
    Way::Tokio,
];

/// The server, in a process of its own, until its parent kills it. It gets its way to serve, its
/// address in shared memory, and the file that tells the port, separated by commas.
pub(crate) fn serve(order: &str) {
    let [way, shm, file] = order.split(',').collect::<Vec<_>>().try_into().unwrap();
    let way = WAYS.iter().find(|it| format!("{it:?}") == way).unwrap();
    let memory = Memory::new(1 << 20).unwrap();
    let service = Service::new("soak")
        .procedure("usage", Handling::Pooled, |_, ()| Ok::<_, Never>(usage()))
        .procedure("pull", Handling::Pooled, |_, memory: Bulk<Read>| {
            memory.pull_all().map(|bytes| bytes.len() as u64).map_err(|error| error.to_string())
        })
        .procedure("push", Handling::Pooled, |_, memory: Bulk<Write>| {
            memory.push(0, &vec![7; memory.bytes() as usize]).map_err(|error| error.to_string())
        })
        .async_procedure("pull_async", |_, memory: Bulk<Read>| async move {
            let pulled = memory.pull_async(0, memory.bytes() as usize).await;
            pulled.map(|bytes| bytes.len() as u64).map_err(|error| error.to_string())
        })
        .procedure("show", Handling::Pooled, move |_, ()| {
            Ok::<_, Never>(memory.to_read(0..1 << 20).expect("the part is inside"))
        })
        .procedure("count", Handling::Pooled, |_, ()| Ok::<_, Never>(Stream::new(0_u64..)));
    let builder = Server::builder().listen("tcp://127.0.0.1:0").unwrap().listen(shm).unwrap();
    let builder = builder.announce(file).tokens(tokens()).provider(0, service);
    match way {
        Way::Threads => {
            let _server = builder.pool(4).start().unwrap();
            hold_still();
        }
        Way::Turns => {
            let mut turns = builder.turns().unwrap();
            loop {
                turns.turn(Duration::from_secs(1));
            }
        }
        #[cfg(feature = "tokio")]
        Way::Tokio => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(builder.turns().unwrap().run(std::future::pending())).unwrap();
        }
    }
}

fn connect(address: &str) -> Client {
    crate::connect(address, credentials())
}

/// Many clients in a process that is killed.
pub(crate) fn crowd(address: &str) {
    let thread = || {
        let clients: Vec<_> = (0..CLIENTS / THREADS).map(|_| connect(address)).collect();
        let mapped = Memory::new(300_000).unwrap();
        let mut room = vec![1; 700_000];
        let mut kept = Vec::new();
        for client in clients.iter().cycle() {
            let pull = client.procedure::<Bulk<Read>, u64, String>("soak", 0, "pull");
            let pull_async = client.procedure::<Bulk<Read>, u64, String>("soak", 0, "pull_async");
            let push = client.procedure::<Bulk<Write>, (), String>("soak", 0, "push");
            scope(|scope| pull.call(&scope.lend(&room)).unwrap());
            scope(|scope| pull_async.call(&scope.lend(&room)).unwrap());
            scope(|scope| push.call(&scope.lend_mut(&mut room)).unwrap());
            pull.call(&mapped.to_read(0..300_000).unwrap()).unwrap();
            push.call(&mapped.to_write(5..200_000).unwrap()).unwrap();
            if kept.len() < 2 * CLIENTS {
                kept.push((
                    client.procedure::<(), Bulk<Read>, Never>("soak", 0, "show").call(&()).unwrap(),
                    client.procedure::<(), Stream<u64>, Never>("soak", 0, "count").call(&()).unwrap(),
                ));
            }
        }
    };
    std::thread::scope(|threads| (0..THREADS).for_each(|_| drop(threads.spawn(thread))));
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // It holds nothing if the server did not start.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lets processes full of clients connect, call and die. Returns the server's use of the system
/// after the first ones and in the end.
fn soak(way: Way, processes: usize) -> [Usage; 2] {
    let folder = Folder(std::env::temp_dir().join(unique("farside-rpc-soak")));
    std::fs::create_dir(&folder.0).unwrap();
    let (shm, file) = (format!("shm:{}", unique("soak")), folder.0.join("address"));
    let mut server = Other::start("soak-server", &format!("{way:?},{shm},{}", file.display()));
    let honest = crate::connect(&shm, Credentials::own_user());
    let tcp = format!("file:{}", file.display());
    let usage = honest.procedure::<(), Usage, Never>("soak", 0, "usage");
    let done = || {
        let stats = honest.stats().unwrap();
        stats.iter().filter(|stats| stats.name.starts_with("soak/0/p")).map(|stats| stats.done).sum::<u64>()
    };
    let mut first = None;
    for process in 0..processes {
        let before = done();
        let mut crowd = Other::start("crowd", if process % 2 == 0 { &shm } else { &tcp });
        let connections = || honest.dump().unwrap().connections.len();
        // All of its clients have called, and some are in the middle of something.
        let is_busy = || connections() > CLIENTS && done() >= before + 200 + process as u64 % 50;
        wait_until("the clients call", is_busy);
        crowd.kill();
        wait_until("no dead client is kept", || {
            let dump = honest.dump().unwrap();
            dump.connections.len() == 1 && dump.calls.len() <= 1
        });
        if process == WARM {
            first = Some(usage.call(&()).unwrap());
        }
    }
    let first = first.expect("there are enough processes");
    let mut last = first;
    wait_until("descriptors and mappings are as before", || {
        last = usage.call(&()).unwrap();
        (last.0, last.1) == (first.0, first.1)
    });
    server.kill();
    [first, last]
}

#[test]
fn dead_clients_leave_nothing_behind() {
    soak(Way::Threads, 3);
}

mod deep {
    use super::*;

    fn check(way: Way, clients: usize) {
        let [first, last] = soak(way, clients / CLIENTS);
        println!("{way:?}, {clients} clients: {first:?}, in the end {last:?}");
        // Allocators keep some of what was freed: less than 10 KiB for each client.
        assert!(last.2 < first.2 + 10 * clients as u64, "{way:?}: {} KiB resident, then {} KiB", first.2, last.2);
    }

    #[test]
    fn ten_thousand_dead_clients_leave_nothing_behind() {
        check(Way::Threads, 10_000);
    }

    #[test]
    fn a_thousand_dead_clients_leave_nothing_behind_however_it_serves() {
        WAYS.iter().filter(|way| !matches!(way, Way::Threads)).for_each(|way| check(*way, 3000));
    }
}
