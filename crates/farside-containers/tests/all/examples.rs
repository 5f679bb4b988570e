//! The workloads among the examples. They check their own results.

use std::process::{Command, Stdio};

/// Runs an example with these numbers and returns its output. It lies beside the folder of test
/// programs.
fn run(name: &str, numbers: [&str; 2]) -> String {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).expect("a folder of a target").join("examples").join(name);
    let output = Command::new(example).args(numbers).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn workloads_are_right_in_both_forms() {
    for (name, numbers) in [
        ("histo", ["20000", "300"]),
        ("ig", ["20000", "300"]),
        ("randperm", ["5000", "2"]),
        ("toposort", ["3000", "5"]),
        ("triangles", ["1000", "10"]),
        ("gups", ["1000", "4"]),
    ] {
        let printed = run(name, numbers);
        let forms: Vec<_> = printed.lines().filter_map(|line| line.split_once(':')).map(|(form, _)| form).collect();
        assert_eq!(forms, ["agp", "exchange"], "{name}: {printed}");
    }
}
