//! A store on another host, from which the client is cut off.

use std::io::BufRead;

use farside_kv::Store;
use farside_testbed::netns::{Pair, Side};
use farside_testbed::wait_until;

use crate::crashes::Other;
use crate::{Folder, bytes, connect};

/// The bytes of a put.
const BYTES: usize = 256 << 20;
/// Where the server listens. The ports of its host are all free.
const PORT: u16 = 7079;

/// Puts a value again and again until that fails, and says why. Then, when there is a connection
/// again, reads what the store has, and puts something else.
pub(crate) fn be_cut_off(address: &str) {
    let kv = connect(address);
    let value = bytes(1, BYTES);
    let error = loop {
        if let Err(error) = kv.put("long", &value) {
            break error;
        }
    };
    println!("failed: {error}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let kv = connect(address);
    let found = kv.get("long").unwrap();
    assert!(found == b"first" || found == value);
    kv.put("after", b"all is well").unwrap();
    println!("found {} bytes", found.len());
}

mod deep {
    use super::*;

    /// The cable between client and server is cut in the middle of a put. Both sides find out,
    /// though neither hears anything. The server removes what it had, and the earlier value stays.
    #[test]
    fn a_put_that_is_cut_off_leaves_nothing() {
        farside_testbed::needs!("netns");
        let pair = Pair::new().unwrap();
        let folder = Folder::new("hosts");
        Store::open(folder.path()).unwrap().put("long", b"first").unwrap();
        let address = format!("tcp://{}:{PORT}", Side::A.address());
        let path = folder.path().to_str().unwrap();
        let on = |side| pair.command(side, std::env::current_exe().unwrap());
        let mut server = Other::start_by(on(Side::A), "server", &address, path);
        assert!(server.stdout().lines().any(|line| line.unwrap().contains("ready")));
        let mut client = Other::start_by(on(Side::B), "cut-off", &address, "-");
        let mut said = client.stdout().lines().map(Result::unwrap);
        let long = || folder.values().iter().map(|path| path.metadata().map_or(0, |file| file.len())).max();
        let is_under_way = |bytes: u64| (1 << 20..BYTES as u64 * 3 / 4).contains(&bytes);
        wait_until("a put is under way", || folder.values().len() == 1 && long().is_some_and(is_under_way));
        pair.cut().unwrap();

        let failed = said.find_map(|line| line.split_once("failed: ").map(|(_, error)| error.to_string())).unwrap();
        assert!(!failed.contains("deadline"), "the connection has ended before the time of the put: {failed}");
        let store_has_long =
            || folder.values().iter().any(|path| path.metadata().is_ok_and(|it| it.len() == BYTES as u64));
        wait_until("what was there of the put is removed", || folder.values().is_empty() || store_has_long());

        pair.reconnect().unwrap();
        client.go_on();
        let found = said.find_map(|line| line.split_once("found ").map(|(_, bytes)| bytes.to_string())).unwrap();
        assert!(client.succeeds());
        server.kill();
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.get("after").unwrap(), b"all is well");
        let kept = store.get("long").unwrap().len();
        assert_eq!(found, format!("{kept} bytes"));
        assert_eq!(folder.values().len(), usize::from(kept == BYTES));
    }
}
