//! A store whose process is killed at every point of its work.
//!
//! The points are numbered in the order in which a process passes them. The test kills a process at
//! its first point, the next one at its second, and so on, until one comes to its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::Store;

/// The number of points after which this process is killed.
static POINTS_LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

/// Passes a point.
pub(crate) fn point() {
    if POINTS_LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        let killed = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        unreachable!("this process is killed: {killed:?}");
    }
}

/// The variable that makes this program work on a store: the point, and the folder.
const PART: &str = "FARSIDE_KV_KILLS";
const TEST: &str = "kills::what_was_acknowledged_survives_a_kill_at_every_point";

/// Keys, and the lengths of their new values. `None` removes the key. Values of more than 64 KiB
/// are files.
const CHANGES: [(&str, Option<usize>); 9] = [
    ("short", Some(100)),
    ("long", Some(200_000)),
    ("short", Some(60_000)),
    ("long", Some(150_000)),
    ("grows", Some(7)),
    ("grows", Some(80_000)),
    ("long", Some(0)),
    ("short", None),
    ("grows", None),
];

fn value(change: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 + change * 7) as u8).collect()
}

/// The contents of the store after this number of changes.
fn state_after(changes: usize) -> BTreeMap<String, Vec<u8>> {
    let mut state = BTreeMap::new();
    for (number, (key, bytes)) in CHANGES.into_iter().enumerate().take(changes) {
        match bytes {
            Some(bytes) => drop(state.insert(key.to_string(), value(number, bytes))),
            None => drop(state.remove(key)),
        }
    }
    state
}

/// Makes all changes, and says of each that it was made.
fn work(folder: &Path) {
    let store = Store::open(folder).unwrap();
    for (number, (key, bytes)) in CHANGES.into_iter().enumerate() {
        match bytes {
            Some(bytes) => store.put(key, &value(number, bytes)).unwrap(),
            None => store.remove(key).unwrap(),
        };
        println!("made {number}.");
    }
}

/// The contents of a store. Each value is whole, or reading it fails.
fn state_of(store: &Store) -> BTreeMap<String, Vec<u8>> {
    let keys = store.list("", "", 100).unwrap().entries.into_iter().map(|entry| entry.key);
    keys.map(|key| (key.clone(), store.get(&key).unwrap())).collect()
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A change that is under way when the process is killed is there as a whole or not at all.
#[test]
fn what_was_acknowledged_survives_a_kill_at_every_point() {
    if let Ok(part) = std::env::var(PART) {
        let (point, folder) = part.split_once(' ').unwrap();
        POINTS_LEFT.store(point.parse().unwrap(), Ordering::Relaxed);
        return work(Path::new(folder));
    }
    // A kill loses nothing that the system has, so files in memory serve as well.
    let memory = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
    let folder = memory.unwrap_or_else(std::env::temp_dir).join(format!("farside-kv-kills-{}", std::process::id()));
    for point in 1.. {
        let folder = Folder(folder.clone());
        std::fs::create_dir(&folder.0).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(PART, format!("{point} {}", folder.0.display()));
        let output = command.output().unwrap();
        let made = String::from_utf8(output.stdout).unwrap().matches("made ").count();
        let store = Store::open(&folder.0).unwrap();
        let found = state_of(&store);
        assert!(
            [made, made + 1].iter().any(|changes| found == state_after(*changes)),
            "killed at point {point}, after {made} changes: {:?}",
            found.keys()
        );
        let files = std::fs::read_dir(folder.0.join("values")).unwrap().count();
        let long = found.values().filter(|value| value.len() > 65_536).count();
        assert_eq!(files, long, "killed at point {point}: files of values");
        // The store goes on.
        store.put("after", b"a kill").unwrap();
        assert_eq!(store.get("after").unwrap(), b"a kill");
        if output.status.success() {
            assert_eq!(made, CHANGES.len());
            assert!(point > 2 * CHANGES.len(), "there are only {point} points");
            break;
        }
        assert!(point < 1000, "the process does not come to its end");
    }
}
