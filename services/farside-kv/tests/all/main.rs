//! Stores, and servers and clients of them.

mod crashes;
mod disk;
mod hosts;
mod operations;
mod overwriting;
mod soak;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use farside_kv::{Client, KvServer, Store};
use farside_rpc::{Credentials, Server, Tokens};
use farside_testbed::{deadline, limit};

/// The token of the tests' servers.
const TOKEN: (&str, &str) = ("tester", "a secret of the tests");

/// A name that no other test has.
fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("kv-{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(what: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farside-{}", unique(what)));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// The files of long values.
    fn values(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.join("values")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes that differ from those of another seed in each MiB.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut value = Vec::with_capacity(count + 8);
    while value.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(count);
    value
}

fn serve(address: &str, store: Store) -> Server {
    let tokens = Tokens::new().with(TOKEN.0, TOKEN.1, ["read", "write"]).with("guest", "g", ["read"]);
    let builder = Server::builder().listen(address).unwrap().tokens(tokens).pool(8);
    builder.provider(0, KvServer::new(store)).start().unwrap()
}

fn connect(address: &str) -> Client {
    connect_as(address, Credentials::token(TOKEN.0, TOKEN.1))
}

fn connect_as(address: &str, credentials: Credentials) -> Client {
    let client = farside_rpc::Client::to(address, credentials).unwrap().deadline(limit());
    Client::new(client.connect().unwrap()).deadline(limit())
}

/// Serves a store over a path, and connects to it.
fn start(address: &str, store: Store) -> (Server, Client) {
    let server = serve(address, store);
    let client = connect(&server.addresses()[0].to_string());
    (server, client)
}

/// An address on this machine that no other test has.
fn near() -> String {
    format!("shm:{}", unique("near"))
}

/// An address for each path.
fn paths() -> [String; 2] {
    [near(), "tcp://127.0.0.1:0".to_string()]
}

/// Runs a test over each path, with a store in memory and one on the disk.
fn everywhere(test: impl Fn(&Client)) {
    for address in paths() {
        for on_disk in [false, true] {
            let folder = Folder::new("all");
            let store = if on_disk { Store::open(folder.path()).unwrap() } else { Store::memory() };
            let (server, client) = start(&address, store);
            test(&client);
            drop(client);
            server.shutdown(deadline()).unwrap();
        }
    }
}
