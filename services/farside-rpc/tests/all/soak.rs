//! Thousands of clients that connect, call and die in the middle of a transfer: the server's
//! memory, descriptors and mappings stay as they were, however it serves.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use farside_rpc::bulk::{Bulk, Memory, Read, Write, scope};
use farside_rpc::{Client, Credentials, Handling, Never, Server, Service, Stream};
use farside_testbed::Holdings;

use crate::processes::Other;
use crate::{credentials, tokens, unique};

/// The clients of a process, which dies as a whole.
const CLIENTS: usize = 50;
/// The threads of such a process. Each calls with its share of the clients.
const THREADS: usize = 5;

/// What a server uses: descriptors, mappings, and resident KiB of its own memory.
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

/// The server, in a process of its own, until its parent kills it. It is told how to serve, its
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
            std::thread::sleep(Duration::from_secs(3600));
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
    Client::to(address, credentials()).unwrap().deadline(Duration::from_secs(60)).connect().unwrap()
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

fn shared_files() -> usize {
    std::fs::read_dir("/dev/shm").map_or(0, |files| {
        files.flatten().filter(|file| file.file_name().to_string_lossy().contains("farside-rpc")).count()
    })
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
    let patient = Client::to(&shm, Credentials::own_user()).unwrap().deadline(Duration::from_secs(60));
    let honest = patient.connect().unwrap();
    let tcp = format!("file:{}", file.display());
    let usage = honest.procedure::<(), Usage, Never>("soak", 0, "usage");
    let done = || {
        let stats = honest.stats().unwrap();
        stats.iter().filter(|stats| stats.name.starts_with("soak/0/p")).map(|stats| stats.done).sum::<u64>()
    };
    let mut first = None;
    for process in 0..processes {
        let (before, until) = (done(), Instant::now() + Duration::from_secs(60));
        let mut crowd = Other::start("crowd", if process % 2 == 0 { &shm } else { &tcp });
        // All of its clients have called, and some are in the middle of something.
        while honest.dump().unwrap().connections.len() < CLIENTS + 1 || done() < before + 200 + process as u64 % 50 {
            assert!(Instant::now() < until, "the clients did not call in a minute");
            std::thread::sleep(Duration::from_millis(2));
        }
        crowd.kill();
        let is_clean = || {
            let dump = honest.dump().unwrap();
            dump.connections.len() == 1 && dump.calls.len() <= 1
        };
        while !is_clean() {
            assert!(Instant::now() < until, "a dead client is kept: {:#?}", honest.dump().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
        if process == 3 {
            first = Some(usage.call(&()).unwrap());
        }
    }
    let last = usage.call(&()).unwrap();
    server.kill();
    [first.expect("there are enough processes"), last]
}

fn check(way: Way, processes: usize) {
    let files = shared_files();
    let [first, last] = soak(way, processes);
    println!("{way:?}, {} clients: {first:?}, in the end {last:?}", processes * CLIENTS);
    assert_eq!((first.0, first.1), (last.0, last.1), "{way:?}: descriptors and mappings");
    // Allocators keep some of what was freed.
    assert!(last.2 < first.2 + 32 * 1024, "{way:?}: {} KiB resident, then {} KiB", first.2, last.2);
    assert_eq!(shared_files(), files);
}

#[test]
fn dead_clients_leave_nothing_behind() {
    WAYS.iter().for_each(|way| check(*way, 6));
}

#[test]
#[ignore = "takes a minute: 10,000 clients, and 1,000 for each other way to serve"]
fn ten_thousand_dead_clients_leave_nothing_behind() {
    for way in WAYS {
        check(*way, if matches!(way, Way::Threads) { 10_000 } else { 1000 } / CLIENTS);
    }
}
