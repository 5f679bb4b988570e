//! The examples of what several do together: that they find what must be found.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An example of this package. It lies beside the folder that test binaries are in.
fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let target = this.parent().and_then(Path::parent).expect("test binaries are in a folder of the target folder");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "{} is missing: build it with `cargo build -p farside --examples`", path.display());
    path
}

/// What an example prints. Every wait of a job has a deadline, and so it ends.
fn output(name: &str) -> String {
    let output = Command::new(example(name)).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_update_is_lost_with_the_lock_service() {
    assert_eq!(output("lock_service"), "800 of 800 updates are in the file\n");
}

#[test]
fn thieves_count_every_node_once() {
    let text = output("work_stealing");
    let first = text.lines().next().unwrap();
    let numbers: Vec<u64> = first.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [nodes, workers, alone] = numbers[..] else { panic!("{text}") };
    assert_eq!((nodes, workers), (alone, 4), "{text}");
    assert!(nodes > 100_000, "{text}");
    assert_eq!(text.lines().count(), 5, "{text}");
}
