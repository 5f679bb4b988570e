//! Servers and clients in processes of their own, which are killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use farside_kv::Store;

use crate::{Folder, bytes, connect, serve, unique, until};

/// The variable that makes this test program play a part.
const PART: &str = "FARSIDE_KV_TEST_PART";

/// A process that is killed in the end.
struct Other(Child);

impl Other {
    fn start(part: &str, address: &str, folder: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crashes::other", "--nocapture", "--quiet"]);
        command.env(PART, format!("{part} {address} {folder}")).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.stdout.take().unwrap())
    }

    fn kill(&mut self) {
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

/// The value that the writer puts under its n-th key. Every fourth one is long.
fn value(number: u64) -> Vec<u8> {
    bytes(number, if number.is_multiple_of(4) { 150_000 } else { 300 })
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
            std::thread::sleep(Duration::from_secs(120));
        }
        // Puts further keys, and prints the number of each as soon as it is acknowledged.
        "writer" => {
            let kv = connect(address);
            for number in 0.. {
                kv.put(&format!("key {number}"), &value(number)).unwrap();
                kv.put("last", &value(number)).unwrap();
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
        // Puts a value without an end, in parts.
        "endless" => {
            connect(address).put_from("endless", std::io::repeat(1), |_| ()).unwrap();
        }
        part => panic!("unknown part {part}"),
    }
}

/// A server that is killed has every value that it acknowledged, and each is whole.
#[test]
fn a_killed_server_keeps_what_it_acknowledged() {
    let folder = Folder::new("killed");
    let path = folder.path().to_str().unwrap();
    for round in 0..5 {
        let address = format!("shm:{}", unique("killed"));
        let mut server = Other::start("server", &address, path);
        assert!(server.stdout().lines().any(|line| line.unwrap().contains("ready")));
        let mut writers: Vec<_> = (0..2).map(|_| Other::start("writer", &address, "-")).collect();
        let mut acknowledged = Vec::new();
        let mut lines = writers[0].stdout().lines();
        for line in lines.by_ref() {
            let line = line.unwrap();
            let Some((_, number)) = line.split_once("put ") else { continue };
            acknowledged.push(number.parse::<u64>().unwrap());
            if acknowledged.len() == 15 + round {
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
            assert!(store.get(&format!("key {number}")).unwrap() == value(*number), "round {round}, key {number}");
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
    for address in [format!("shm:{}", unique("interrupted")), "tcp://127.0.0.1:0".into()] {
        let folder = Folder::new("interrupted");
        let server = serve(&address, Store::open(folder.path()).unwrap());
        let address = server.addresses()[0].to_string();
        let kv = connect(&address);
        kv.put("long", b"first").unwrap();
        let mut filler = Other::start("filler", &address, "-");
        let is_begun = || {
            let values = folder.values();
            values.iter().any(|path| path.metadata().is_ok_and(|file| file.len() > 1 << 20))
        };
        until("a put has begun", is_begun);
        filler.kill();
        drop(filler);
        until("the put has ended", || server.connection_count() == 1);
        let is_long = || kv.stat("long").unwrap().bytes > 5;
        until("its file is removed", || folder.values().len() == usize::from(is_long()));
        assert_eq!(kv.get("long").unwrap().len(), if is_long() { 256 << 20 } else { 5 });
    }
}

/// The same of a put in parts. The store waits a moment for the next part.
#[test]
fn an_interrupted_put_in_parts_leaves_nothing() {
    for address in [format!("shm:{}", unique("parts")), "tcp://127.0.0.1:0".into()] {
        let folder = Folder::new("parts");
        let store = Store::open(folder.path()).unwrap().upload_time(Duration::from_secs(4));
        let server = serve(&address, store);
        let address = server.addresses()[0].to_string();
        let kv = connect(&address);
        kv.put("endless", b"first").unwrap();
        let mut endless = Other::start("endless", &address, "-");
        let bytes = || folder.values().iter().map(|path| path.metadata().map_or(0, |file| file.len())).sum::<u64>();
        until("parts have arrived", || bytes() > 9 << 20);
        endless.kill();
        until("its file is removed", || folder.values().is_empty());
        assert_eq!(kv.get("endless").unwrap(), b"first");
    }
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
