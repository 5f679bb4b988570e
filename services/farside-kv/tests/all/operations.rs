//! Each operation, over each path.

use std::io::Read;

use farside_kv::{Client, ClientError, KEY_BYTES_MAX, KvError, KvServer, PAGE_ENTRIES_MAX, Part, Stat, Store};
use farside_rpc::{CallError, Credentials, Server};
use farside_testbed::{limit, wait_until};

use crate::{Folder, bytes, connect_as, everywhere, near, start, unique};

/// The sizes around the limits, and a value of several pieces.
const SIZES: [usize; 7] = [0, 1, 4096, 64 << 10, (64 << 10) + 1, 8 << 20, (17 << 20) + 3];

fn refused(error: ClientError) -> KvError {
    match error {
        ClientError::Call(CallError::Service(error)) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn values_of_all_sizes_come_back() {
    everywhere(|kv| {
        for size in SIZES {
            let value = bytes(size as u64, size);
            let stat = kv.put("key", &value).unwrap();
            assert_eq!((stat.bytes, stat.crc32), (size as u64, crc32fast::hash(&value)));
            assert_eq!(kv.stat("key").unwrap(), stat);
            assert!(kv.get("key").unwrap() == value, "{size} bytes");
            let mut written = Vec::new();
            assert_eq!(kv.get_to("key", &mut written).unwrap(), stat);
            assert!(written == value, "{size} bytes");
            assert_eq!(kv.remove("key").unwrap(), stat);
            let missing = KvError::NotFound { key: "key".into() };
            assert_eq!(refused(kv.get("key").unwrap_err()), missing);
            assert_eq!(refused(kv.stat("key").unwrap_err()), missing);
            assert_eq!(refused(kv.remove("key").unwrap_err()), missing);
        }
    });
}

#[test]
fn keys_are_listed_in_order() {
    everywhere(|kv| {
        for key in ["b", "a/2", "a/10", "a", "a/é", "c"] {
            kv.put(key, key.as_bytes()).unwrap();
        }
        let list = |prefix: &str| kv.list(prefix).map(|entry| entry.unwrap().key).collect::<Vec<_>>();
        assert_eq!(list(""), ["a", "a/10", "a/2", "a/é", "b", "c"]);
        assert_eq!(list("a/"), ["a/10", "a/2", "a/é"]);
        assert_eq!(list("d"), [""; 0]);
        let page = kv.page("a", "a/10", 2).unwrap();
        assert_eq!(page.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["a/2", "a/é"]);
        assert!(!page.has_more);
        assert!(kv.page("a", "a", 2).unwrap().has_more);
        assert_eq!(page.entries[0].stat, kv.stat("a/2").unwrap());
        // The limit of a page is the server's, too.
        assert_eq!(kv.page("", "", 0).unwrap().entries.len(), 1);
        assert_eq!(kv.page("", "", u32::MAX).unwrap().entries.len(), 6);
    });
}

#[test]
fn a_long_list_has_pages() {
    let store = Store::memory();
    let count = PAGE_ENTRIES_MAX as usize + 10;
    for number in 0..count {
        store.put(&format!("{number:05}"), b"").unwrap();
    }
    let (_server, kv) = start(&near(), store);
    let page = kv.page("", "", u32::MAX).unwrap();
    assert_eq!((page.entries.len(), page.has_more), (PAGE_ENTRIES_MAX as usize, true));
    let keys: Vec<_> = kv.list("").map(|entry| entry.unwrap().key).collect();
    assert_eq!(keys, (0..count).map(|number| format!("{number:05}")).collect::<Vec<_>>());
}

#[test]
fn keys_have_limits() {
    everywhere(|kv| {
        let long = "x".repeat(KEY_BYTES_MAX);
        kv.put(&long, b"1").unwrap();
        assert_eq!(kv.get(&long).unwrap(), b"1");
        let longer = "x".repeat(KEY_BYTES_MAX + 1);
        let too_long = KvError::KeyTooLong { bytes: KEY_BYTES_MAX as u64 + 1, max: KEY_BYTES_MAX as u64 };
        assert_eq!(refused(kv.put(&longer, b"1").unwrap_err()), too_long);
        assert_eq!(refused(kv.put(&longer, &bytes(1, 1 << 20)).unwrap_err()), too_long);
        assert_eq!(refused(kv.get(&longer).unwrap_err()), too_long);
        assert_eq!(refused(kv.put("", b"1").unwrap_err()), KvError::KeyEmpty);
        assert_eq!(refused(kv.stat("").unwrap_err()), KvError::KeyEmpty);
    });
}

#[test]
fn a_range_outside_the_value_is_refused() {
    everywhere(|kv| {
        let stat = kv.put("key", &bytes(1, 3 << 20)).unwrap();
        let read = |version, offset, bytes| {
            let mut room = vec![0; bytes];
            let call = |room| kv.calls().read("key".into(), version, offset, room)?.wait();
            farside_rpc::bulk::scope(|scope| call(scope.lend_mut(&mut room))).map(|()| room)
        };
        let value = bytes(1, 3 << 20);
        // A part that begins and ends inside pieces.
        assert!(read(stat.version, 1000, 2 << 20).unwrap() == value[1000..][..2 << 20]);
        assert!(read(stat.version, (3 << 20) - 1, 1).unwrap() == value[(3 << 20) - 1..]);
        for (offset, bytes) in [((3 << 20) - 1, 2), (3 << 20, 1), (u64::MAX, 2)] {
            let error = read(stat.version, offset, bytes).unwrap_err();
            assert!(matches!(error, CallError::Service(KvError::OutOfRange { .. })), "{error}");
        }
        let error = read(stat.version + 1, 0, 1).unwrap_err();
        assert_eq!(error, CallError::Service(KvError::Changed { key: "key".into() }));
    });
}

#[test]
fn a_token_gives_rights() {
    let (server, owner) = start("tcp://127.0.0.1:0", Store::memory());
    owner.put("key", b"1").unwrap();
    let guest = connect_as(&server.addresses()[0].to_string(), Credentials::token("guest", "g"));
    assert_eq!(guest.get("key").unwrap(), b"1");
    let forbidden = KvError::Forbidden { right: "write".into() };
    assert_eq!(refused(guest.put("key", b"2").unwrap_err()), forbidden);
    assert_eq!(refused(guest.put("key", &bytes(1, 1 << 20)).unwrap_err()), forbidden);
    assert_eq!(refused(guest.remove("key").unwrap_err()), forbidden);
    assert_eq!(guest.get("key").unwrap(), b"1");
}

#[test]
fn files_are_put_and_fetched() {
    let folder = Folder::new("files");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    everywhere(|kv| {
        for size in SIZES {
            let value = bytes(size as u64, size);
            std::fs::write(&from, &value).unwrap();
            let mut sent = 0;
            let stat = kv.put_file("key", &from, |done, _| sent = done).unwrap();
            assert_eq!(sent, size as u64);
            let mut progress = Vec::new();
            assert_eq!(kv.get_to_file("key", &to, |done, of| progress.push((done, of))).unwrap(), stat);
            assert!(std::fs::read(&to).unwrap() == value, "{size} bytes");
            assert_eq!(progress.last(), Some(&(size as u64, size as u64)));
        }
        let error = kv.put_file("key", folder.path().join("absent"), |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    });
}

/// A transfer that was interrupted goes on where it ended, if the value is the same.
#[test]
fn a_file_is_fetched_in_two_attempts() {
    let folder = Folder::new("resumed");
    let to = folder.path().join("to");
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    everywhere(|kv| {
        for size in [100, 20 << 20] {
            let value = bytes(7, size);
            let version = kv.put("key", &value).unwrap().version;
            let part = folder.path().join(format!("to.{version:016x}.part"));
            std::fs::write(&part, &value[..size / 2 + 1]).unwrap();
            let mut first = None;
            kv.get_to_file("key", &to, |done, _| first = first.or(Some(done))).unwrap();
            assert_eq!(first, Some(size as u64 / 2 + 1), "the first half is not fetched again");
            assert!(std::fs::read(&to).unwrap() == value);
            assert_eq!(left(), 1);

            // The value is another one now.
            let value = bytes(8, size);
            std::fs::write(&part, &value[..10]).unwrap();
            kv.put("key", &value).unwrap();
            let mut first = None;
            kv.get_to_file("key", &to, |done, _| first = first.or(Some(done))).unwrap();
            assert_eq!(first, Some(0));
            assert!(std::fs::read(&to).unwrap() == value);
            assert_eq!(left(), 1);

            // Bytes that are not those of the value do not pass for them.
            let version = kv.stat("key").unwrap().version;
            let part = folder.path().join(format!("to.{version:016x}.part"));
            std::fs::write(&part, vec![0; size / 2]).unwrap();
            let error = kv.get_to_file("key", &to, |_, _| ()).unwrap_err();
            assert!(matches!(error, ClientError::Damaged { .. }), "{error}");
            kv.get_to_file("key", &to, |_, _| ()).unwrap();
            assert!(std::fs::read(&to).unwrap() == value);

            // All bytes are there, and only the name is missing.
            std::fs::rename(&to, &part).unwrap();
            let mut first = None;
            kv.get_to_file("key", &to, |done, _| first = first.or(Some(done))).unwrap();
            assert_eq!(first, Some(size as u64));
            assert!(std::fs::read(&to).unwrap() == value);
        }
    });
}

/// A reader that fails in the middle ends the put, and leaves nothing.
#[test]
fn a_put_in_parts_is_given_up() {
    struct Failing(usize);

    impl Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let bytes = into.len().min(self.0);
            self.0 -= bytes;
            into[..bytes].fill(1);
            if bytes == 0 { Err(std::io::Error::other("the cable is cut")) } else { Ok(bytes) }
        }
    }

    let folder = Folder::new("given-up");
    let (_server, kv) = start(&near(), Store::open(folder.path()).unwrap());
    kv.put("key", b"first").unwrap();
    let error = kv.put_from("key", Failing(20 << 20), |_| ()).unwrap_err();
    assert!(error.to_string().contains("the cable is cut"), "{error}");
    wait_until("the file is removed", || folder.values().is_empty());
    assert_eq!(kv.get("key").unwrap(), b"first");
}

/// Sends a part without waiting for its turn.
fn part(kv: &Client, version: u64, offset: u64, bytes: usize, crc32: Option<u32>) -> Result<Stat, CallError<KvError>> {
    kv.calls().put("key".into(), Part { version, offset, crc32 }, vec![1; bytes].into())?.wait()
}

/// Begins a value. Returns its version.
fn begin(kv: &Client) -> Result<u64, CallError<KvError>> {
    part(kv, 0, 0, 0, None).map(|stat| stat.version)
}

/// Gives up a value that was begun.
fn give_up(kv: &Client, number: u64) {
    let error = part(kv, number, u64::MAX, 0, Some(0)).unwrap_err();
    assert!(matches!(error, CallError::Service(KvError::Transfer { .. })), "{error}");
}

/// Parts that do not follow each other, and numbers that are not known, are refused.
#[test]
fn parts_follow_each_other() {
    everywhere(|kv| {
        let is_refused = |put: Result<Stat, _>| {
            let error = put.unwrap_err();
            assert!(matches!(error, CallError::Service(KvError::Transfer { .. })), "{error}");
            error.to_string()
        };
        let none = |number| Err(CallError::Service(KvError::NoUpload { number }));
        const MIB: usize = 1 << 20;
        let number = begin(kv).unwrap();
        part(kv, number, 0, MIB, None).unwrap();
        is_refused(part(kv, number, 0, MIB, None));
        assert_eq!(part(kv, number, 1 << 20, MIB, None), none(number), "what is wrong ends the put");

        // Parts but the last have whole MiB.
        is_refused(part(kv, begin(kv).unwrap(), 0, MIB + 10, None));
        is_refused(part(kv, 0, 0, 10, None));
        is_refused(part(kv, 0, 1 << 20, MIB, None));
        // A short value has one part.
        is_refused(part(kv, begin(kv).unwrap(), 0, 10, Some(crc32fast::hash(&[1; 10]))));

        let number = begin(kv).unwrap();
        part(kv, number, 0, MIB, None).unwrap();
        let kept = part(kv, number, 0, 0, None).unwrap();
        assert_eq!((kept.version, kept.bytes, kept.crc32), (number, 1 << 20, crc32fast::hash(&vec![1; MIB])));
        assert!(is_refused(part(kv, number, 1 << 20, 1, Some(0))).contains("checksum"));
        for (bytes, crc32) in [(MIB, None), (0, None), (0, Some(0))] {
            assert_eq!(part(kv, number, 0, bytes, crc32), none(number));
        }
        // A whole value with a wrong checksum replaces none.
        for bytes in [0, 10, 70_000] {
            assert!(is_refused(part(kv, 0, 0, bytes, Some(7))).contains("checksum"));
        }
        assert!(kv.get("key").unwrap_err().is_not_found());

        let number = part(kv, 0, 0, MIB, None).unwrap().version;
        let value = vec![1; MIB + 1];
        let stored = part(kv, number, 1 << 20, 1, Some(crc32fast::hash(&value))).unwrap();
        assert_eq!(stored, kv.stat("key").unwrap());
        assert!(kv.get("key").unwrap() == value);

        let numbers: Vec<_> = (0..16).map(|_| begin(kv).unwrap()).collect();
        assert_eq!(begin(kv), Err(CallError::Service(KvError::TooManyUploads { max: 16 })));
        numbers.into_iter().for_each(|number| give_up(kv, number));
        give_up(kv, begin(kv).unwrap());
        kv.remove("key").unwrap();
    });
}

/// A client has some of the places for values that are put in parts, and only its own values.
#[test]
fn clients_do_not_share_their_uploads() {
    let folder = Folder::new("uploads");
    let address = format!("shm:{}", unique("uploads"));
    let store = Store::open(folder.path()).unwrap();
    let server = Server::builder().listen(&address).unwrap().provider(0, KvServer::new(store)).start().unwrap();
    let connect = || connect_as(&address, Credentials::own_user());
    let clients: Vec<_> = (0..5).map(|_| connect()).collect();
    let numbers: Vec<_> = clients[..4].iter().flat_map(|client| (0..16).map(|_| begin(client).unwrap())).collect();
    let busy = CallError::Service(KvError::Busy { max: 64 });
    assert_eq!(begin(&clients[4]).unwrap_err(), busy);
    // Another client's value is none.
    let number = numbers[0];
    let none = CallError::Service(KvError::NoUpload { number });
    assert_eq!(part(&clients[1], number, 0, 0, None).unwrap_err(), none);
    assert_eq!(part(&clients[1], number, u64::MAX, 0, Some(0)).unwrap_err(), none);
    assert_eq!(begin(&clients[4]).unwrap_err(), busy);
    give_up(&clients[0], number);
    begin(&clients[4]).unwrap();
    drop(clients);
    drop(server);
}

/// A reader that waits once, in the middle of a value.
struct Pause<F>(Option<F>);

impl<F: FnOnce()> Read for Pause<F> {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        if let Some(pause) = self.0.take() {
            pause();
        }
        Ok(0)
    }
}

fn put_with_pause(kv: &Client, pause: impl FnOnce()) {
    let value = bytes(1, 30 << 20);
    let from = value[..20 << 20].chain(Pause(Some(pause))).chain(&value[20 << 20..]);
    kv.put_from("key", from, |_| ()).unwrap();
    assert!(kv.get("key").unwrap() == value);
}

/// While a reader pauses, its client says that it is there.
#[test]
fn a_slow_reader_is_waited_for() {
    let (server, kv) = start(&near(), Store::memory().upload_time(limit()));
    let puts = || server.stats().iter().find(|stats| stats.name.ends_with("/put")).unwrap().done;
    put_with_pause(&kv, || {
        // The beginning and the five parts before the pause are no signs of life.
        wait_until("two signs of life", || puts() >= 8);
    });
}

/// Links, pipes and devices are written, not replaced.
#[test]
fn links_pipes_and_folders_stay_what_they_are() {
    everywhere(|kv| {
        let folder = Folder::new("kinds");
        let place = |name: &str| folder.path().join(name);
        let value = bytes(3, 70_000);
        kv.put("key", &value).unwrap();
        std::fs::write(place("target"), "old").unwrap();
        std::os::unix::fs::symlink(place("target"), place("link")).unwrap();
        kv.get_to_file("key", place("link"), |_, _| ()).unwrap();
        assert!(place("link").symlink_metadata().unwrap().is_symlink());
        assert!(std::fs::read(place("target")).unwrap() == value);
        let made = std::process::Command::new("mkfifo").arg(place("pipe")).status().unwrap();
        assert!(made.success());
        let pipe = place("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        kv.get_to_file("key", place("pipe"), |_, _| ()).unwrap();
        assert!(reader.join().unwrap() == value);
        let error = kv.get_to_file("key", folder.path(), |_, _| ()).unwrap_err();
        assert!(matches!(error, ClientError::File { .. }), "{error}");
    });
}

mod timing {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reader_may_pause_for_longer_than_a_client_may_be_silent() {
        let (_server, kv) = start(&near(), Store::memory().upload_time(Duration::from_secs(5)));
        put_with_pause(&kv, || thread::sleep(Duration::from_secs(7)));
    }
}
