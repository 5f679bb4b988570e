//! The workloads among the examples. They check their own results.

use std::process::{Command, Stdio};

/// Runs an example with these numbers and returns its output. It lies next to the folder of
/// test programs.
fn run(name: &str, flags: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).expect("a folder of a target").join("examples").join(name);
    assert!(example.exists(), "{name} is missing: build it with `cargo build -p farside-containers --examples`");
    let output = Command::new(example).args(flags).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn workloads_are_right_in_all_forms() {
    for (name, flags) in [
        ("histo", ["-n", "20000", "-T", "300"]),
        ("ig", ["-n", "20000", "-T", "300"]),
        ("randperm", ["-n", "5000", "-f", "2"]),
        ("toposort", ["-n", "3000", "-z", "5"]),
        ("triangles", ["-n", "1000", "-z", "10"]),
        ("gups", ["-n", "1000", "-u", "4"]),
        ("bfs", ["-n", "512", "-e", "16"]),
        ("kmers", ["-n", "200", "-k", "21"]),
    ] {
        assert_eq!(forms(&run(name, &flags)), ["agp", "exchange"], "{name}");
    }
}

/// The forms that an example has printed.
fn forms(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.split_once(':')).map(|(form, _)| form).collect()
}

/// Flags of bale choose forms, seed and batches. Workloads are right with short batches, too.
#[test]
fn flags_are_those_of_bale() {
    for (mask, expected) in [("1", &["agp"][..]), ("2", &["exchange"]), ("8", &["exchange"]), ("0", &[])] {
        let flags = ["-n", "2000", "-T", "30", "-b", "3", "-s", "7", "-M", mask];
        assert_eq!(forms(&run("histo", &flags)), expected, "mask {mask}");
    }
}
