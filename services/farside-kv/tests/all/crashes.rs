//! Servers and clients in processes of their own, which are killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use farside_kv::{ClientError, KvError, Store};
use farside_rpc::CallError;
use farside_testbed::{hold_still, scaled, wait_until};

use crate::{Folder, bytes, connect, near, paths, serve, start, unique};

/// The variable that makes this test program play a part.
const PART: &str = "FARSIDE_KV_TEST_PART";

/// A process that is killed in the end.
pub(crate) struct Other(Child);

impl Other {
    pub(crate) fn start(part: &str, address: &str, folder: &str) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), part, address, folder)
    }

    /// Starts a process whose files end at about 10 MiB, as if its disk was full.
    fn start_limited(part: &str, address: &str, folder: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 20000; exec \"$0\" \"$@\""]);
        shell.arg(std::env::current_exe().unwrap());
        Self::start_by(shell, part, address, folder)
    }

    pub(crate) fn start_by(mut command: Command, part: &str, address: &str, folder: &str) -> Self {
        command.args(["--exact", "crashes::other", "--nocapture", "--quiet"]);
        command.env(PART, format!("{part} {address} {folder}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends the standard input, for which the process waits.
    pub(crate) fn go_on(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Returns whether the process ends well.
    pub(crate) fn succeeds(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    pub(crate) fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.stdout.take().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A reader that waits.
struct Silent;

impl Read for Silent {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        hold_still();
    }
}

/// The value that a writer puts under its n-th key. Every fourth one is long.
fn value(writer: u64, number: u64) -> Vec<u8> {
    bytes(writer << 32 | number, if number.is_multiple_of(4) { 150_000 } else { 300 })
}

/// Plays a part, if this process was started for one.
#[test]
fn other() {
    let Ok(part) = std::env::var(PART) else { return };
    let [part, address, folder] = part.split(' ').collect::<Vec<_>>()[..] else { panic!("three words") };
    match part {
        "server" => {
            let _server = serve(address, Store::open(folder).unwrap());
            println!("ready");
            hold_still();
        }
        // Puts further keys, and prints the number of each as soon as it is acknowledged.
        "writer" => {
            let (kv, writer) = (connect(address), folder.parse().unwrap());
            for number in 0.. {
                let put = |key: &str| kv.put(key, &value(writer, number));
                if put(&format!("key {writer} {number}")).and_then(|_| put("last")).is_err() {
                    // The server was killed.
                    return;
                }
                println!("put {number}");
                std::io::stdout().flush().unwrap();
            }
        }
        // Puts a long value again and again.
        "filler" => {
            let kv = connect(address);
            let value = bytes(1, 256 << 20);
            loop {
                kv.put("long", &value).unwrap();
            }
        }
        "crowd" => crate::soak::crowd(address),
        "cut-off" => crate::hosts::be_cut_off(address),
        // Puts a value without an end, in parts.
        "endless" => drop(connect(address).put_from("endless", std::io::repeat(1), |_| ())),
        // Puts two parts, and is silent then.
        "silent" => drop(connect(address).put_from("endless", std::io::repeat(1).take(20 << 20).chain(Silent), |_| ())),
        part => panic!("unknown part {part}"),
    }
}

/// A server that is killed has every value that it acknowledged, and each is whole.
#[test]
fn a_killed_server_keeps_what_it_acknowledged() {
    let folder = Folder::new("killed");
    let path = folder.path().to_str().unwrap();
    for round in 0..scaled(2) {
        let address = format!("shm:{}", unique("killed"));
        let mut server = Other::start("server", &address, path);
        assert!(server.stdout().lines().any(|line| line.unwrap().contains("ready")));
        // Each writer of each round has keys and values of its own.
        let first = 2 * round;
        let mut writers: Vec<_> =
            [first, first + 1].map(|writer| Other::start("writer", &address, &writer.to_string())).into();
        let mut acknowledged = Vec::new();
        let mut lines = writers[0].stdout().lines();
        for line in lines.by_ref() {
            let line = line.unwrap();
            let Some((_, number)) = line.split_once("put ") else { continue };
            acknowledged.push(number.parse::<u64>().unwrap());
            if acknowledged.len() as u64 == 15 + round % 20 {
                break;
            }
        }
        server.kill();
        // What was acknowledged before the server died counts.
        let rest = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("put ")?.parse::<u64>().ok());
        drop(writers.pop());
        acknowledged.extend(rest);
        writers.iter_mut().for_each(Other::kill);

        let store = Store::open(path).unwrap();
        for number in &acknowledged {
            let stored = store.get(&format!("key {first} {number}")).unwrap();
            assert!(stored == value(first, *number), "round {round}, key {number}");
        }
        let keys = store.list("", "", 1000).unwrap().entries;
        assert!(keys.len() > acknowledged.len());
        let mut long = 0;
        for entry in keys {
            assert_eq!(store.get(&entry.key).unwrap().len() as u64, entry.stat.bytes);
            long += usize::from(entry.stat.bytes > 65536);
        }
        assert_eq!(folder.values().len(), long, "no file is left over");
    }
}

/// A client that is killed in the middle of a put leaves nothing, and the earlier value stays.
#[test]
fn an_interrupted_put_leaves_nothing() {
    for address in paths() {
        let folder = Folder::new("interrupted");
        let (server, kv) = start(&address, Store::open(folder.path()).unwrap());
        let address = server.addresses()[0].to_string();
        kv.put("long", b"first").unwrap();
        let mut filler = Other::start("filler", &address, "-");
        let is_begun = || {
            let values = folder.values();
            values.iter().any(|path| path.metadata().is_ok_and(|file| file.len() > 1 << 20))
        };
        wait_until("a put has begun", is_begun);
        filler.kill();
        drop(filler);
        wait_until("the put has ended", || server.connection_count() == 1);
        let is_long = || kv.stat("long").unwrap().bytes > 5;
        wait_until("its file is removed", || folder.values().len() == usize::from(is_long()));
        assert_eq!(kv.get("long").unwrap().len(), if is_long() { 256 << 20 } else { 5 });
    }
}

/// Interrupts a put in parts by the death of its client, which plays `part`.
fn interrupt_put_in_parts(address: &str, part: &str) {
    let folder = Folder::new("parts");
    // On a busy machine, it may pass before the client is killed. Then another one tries it.
    let store = Store::open(folder.path()).unwrap().upload_time(Duration::from_secs(2));
    let (server, kv) = start(address, store);
    let address = server.addresses()[0].to_string();
    kv.put("endless", b"first").unwrap();
    let mut client = Other::start(part, &address, "-");
    let bytes = || folder.values().iter().map(|path| path.metadata().map_or(0, |file| file.len())).sum::<u64>();
    wait_until("parts have arrived", || {
        if client.has_ended() {
            client = Other::start(part, &address, "-");
        }
        bytes() >= 16 << 20
    });
    client.kill();
    wait_until("its file is removed", || folder.values().is_empty());
    assert_eq!(kv.get("endless").unwrap(), b"first");
}

/// A put in parts that is interrupted between two parts leaves nothing.
#[test]
fn an_interrupted_put_in_parts_leaves_nothing() {
    interrupt_put_in_parts(&near(), "silent");
}

#[test]
fn two_servers_do_not_share_a_folder() {
    let folder = Folder::new("shared");
    let address = format!("shm:{}", unique("shared"));
    let mut server = Other::start("server", &address, folder.path().to_str().unwrap());
    assert!(server.stdout().lines().any(|line| line.unwrap().contains("ready")));
    let error = Store::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("another process serves the store"), "{error}");
    server.kill();
    Store::open(folder.path()).unwrap();
}

/// A full disk is an error that says so. What is there stays readable, and space that is made is
/// used.
#[test]
fn a_full_disk_is_told() {
    let folder = Folder::new("full");
    let address = format!("shm:{}", unique("full"));
    let mut server = Other::start_limited("server", &address, folder.path().to_str().unwrap());
    assert!(server.stdout().lines().any(|line| line.unwrap().contains("ready")));
    let kv = connect(&address);
    kv.put("long", b"first").unwrap();
    let is_full = |error: &ClientError| {
        let is_full = matches!(error, ClientError::Call(CallError::Service(KvError::NoSpace { .. })));
        assert!(is_full, "{error}");
        assert!(error.to_string().contains("remove keys"), "{error}");
    };
    is_full(&kv.put("long", &bytes(1, 64 << 20)).unwrap_err());
    is_full(&kv.put_from("long", std::io::repeat(1), |_| ()).unwrap_err());
    wait_until("its files are removed", || folder.values().is_empty());
    assert_eq!(kv.get("long").unwrap(), b"first");

    // The index is full, too.
    let mut count = 0;
    let error = loop {
        match kv.put(&format!("{count}"), &bytes(count, 60_000)) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 1000, "the index has no limit");
    };
    is_full(&error);
    for number in 0..count {
        assert!(kv.get(&format!("{number}")).unwrap() == bytes(number, 60_000), "{number} of {count}");
    }
    assert!(kv.get(&format!("{count}")).unwrap_err().is_not_found());
    for number in 0..count {
        kv.remove(&format!("{number}")).unwrap();
    }
    kv.put("new", &bytes(1, 60_000)).unwrap();
    assert!(kv.get("new").unwrap() == bytes(1, 60_000));
}

mod deep {
    use super::*;

    /// In the middle of a part.
    #[test]
    fn an_interrupted_part_leaves_nothing() {
        interrupt_put_in_parts(&near(), "endless");
        interrupt_put_in_parts("tcp://127.0.0.1:0", "endless");
    }
}
