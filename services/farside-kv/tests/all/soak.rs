//! Clients that put, get and list, and are killed in the middle of that: the server's memory,
//! descriptors and threads stay as they were, and no file is left over.

use std::io::BufRead;

use farside_kv::Store;
use farside_testbed::{Holdings, wait_until};

use crate::crashes::Other;
use crate::{Folder, bytes, connect, unique};

/// The clients of a process, which dies as a whole.
const CLIENTS: u64 = 4;
/// The keys that all of them put again and again.
const KEYS: u64 = 8;
/// The processes after which the server has what it needs.
const WARM: usize = 2;
/// The most bytes that allocators and caches may keep in addition.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// Plays the clients, until the server ends.
pub(crate) fn crowd(address: &str) {
    let client = |client: u64| {
        let kv = connect(address);
        for number in 0.. {
            let key = format!("key {}", (number + client) % KEYS);
            // Every third value has a file of its own.
            let value = bytes(client << 32 | number, if number % 3 == 0 { 2 << 20 } else { 300 });
            let done = kv.put(&key, &value).and_then(|_| kv.get(&key)).map(|value| value.len());
            if done.is_err() || kv.list("key").any(|entry| entry.is_err()) {
                return;
            }
            println!("done");
        }
    };
    std::thread::scope(|threads| (0..CLIENTS).for_each(|number| drop(threads.spawn(move || client(number)))));
}

/// The number of files of values that a process has open. They stay so for a while after they were
/// read.
fn open_values(process: u32) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let files = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    files.filter(|path| path.to_string_lossy().contains("/values/")).count()
}

/// With `is_long`, also memory is as before, and no value stays open.
fn check(processes: usize, is_long: bool) {
    let folder = Folder::new("soak");
    let address = format!("shm:{}", unique("soak"));
    let mut server = Other::start("server", &address, folder.path().to_str().unwrap());
    assert!(server.stdout().lines().any(|line| line.unwrap().contains("ready")));
    let kv = connect(&address);
    // It opens what it opens once.
    kv.put("key 0", b"first").and_then(|_| kv.get("key 0")).unwrap();
    let holdings = || Holdings::of(&server.id().to_string());
    let (idle, mut warm) = (holdings(), None);
    for number in 0..processes {
        if number == WARM {
            warm = Some(holdings());
        }
        let mut crowd = Other::start("crowd", &address, "-");
        // Each process is killed at another moment.
        let mut done = crowd.stdout().lines().filter(|line| line.as_ref().unwrap().contains("done"));
        assert!(done.nth(CLIENTS as usize * 2 + number * 7 % 20).is_some());
        crowd.kill();
    }
    let warm = warm.expect("there are enough processes");
    let is_flat = || {
        let (values, now) = (open_values(server.id()), holdings());
        // One thread closes values that are not read any more.
        now.descriptors <= idle.descriptors + values
            && now.threads <= idle.threads + 1
            && (!is_long || now.memory_bytes <= warm.memory_bytes + KEPT_BYTES_MAX)
    };
    wait_until("descriptors, threads and memory are as before", is_flat);
    println!("{processes} processes: {idle:?}, {warm:?}, then {:?}", holdings());
    let long = || (0..KEYS).filter(|key| kv.stat(&format!("key {key}")).is_ok_and(|stat| stat.bytes > 65_536)).count();
    wait_until("each long value has a file, and there is no other", || folder.values().len() == long());
    if is_long {
        wait_until("no value is open", || open_values(server.id()) == 0);
    }
    server.kill();
    // The store is whole.
    drop(Store::open(folder.path()).unwrap());
}

#[test]
fn killed_clients_leave_nothing_behind() {
    check(3, false);
}

mod deep {
    use super::*;

    /// It takes a minute: 400 clients, and until no value is open.
    #[test]
    fn many_killed_clients_leave_nothing_behind() {
        check(100, true);
    }
}
