//! A lock service: several processes take turns to update something outside Farside, here a file.
//!
//! ```console
//! cargo run -p farside-kit --example lock_service
//! cargo run -p farside-kit --example lock_service -- without-lock
//! ```
//!
//! An update reads the number in the file and writes the next one. Without the lock, two processes
//! sometimes read the same number, and one of their updates is lost.

use std::fs;
use std::path::{Path, PathBuf};

use farside::prelude::*;
use farside_kit::sync::LockManager;

const UPDATES: u64 = 200;

fn main() -> farside::Result<()> {
    let with_lock = !std::env::args().any(|argument| argument == "without-lock");
    farside::job().processes(4).run(|me: &Worker| {
        // Process 0 makes the file and broadcasts its name.
        let is_first = me.id().number() == 0;
        let path = is_first.then(|| format!("farside-lock-service-{}", std::process::id()));
        let path = std::env::temp_dir().join(me.broadcast(WorkerId::new(0), path)?);
        let _file = is_first.then(|| File::new(&path));
        let locks = LockManager::new(me)?;

        let counter = locks.named(me, "counter");
        for _ in 0..UPDATES {
            // The guard is dropped at the end of the turn. The lock is also released if the update
            // panics or the process dies.
            let _guard = if with_lock { Some(counter.lock()?) } else { None };
            update(&path);
        }

        me.barrier()?;
        if is_first {
            let (found, expected) = (read(&path), UPDATES * u64::from(me.worker_count()));
            println!("{found} of {expected} updates are in the file");
        }
        me.barrier()
    })
}

/// A file that is removed when this is dropped.
struct File(PathBuf);

impl File {
    fn new(path: &Path) -> Self {
        fs::write(path, "0").expect("files can be made there");
        Self(path.to_owned())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The file may be gone already if the temporary folder was cleaned up.
        let _ = fs::remove_file(&self.0);
    }
}

fn read(path: &Path) -> u64 {
    // Without the lock the file may be empty, while another process writes it.
    fs::read_to_string(path).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn update(path: &Path) {
    let number = read(path);
    fs::write(path, (number + 1).to_string()).expect("the file can be written");
}
