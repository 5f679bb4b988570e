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
fn workloads_are_right_in_all_forms() {
    let both = ["agp", "exchange"];
    for (name, numbers, forms) in [
        ("histo", ["20000", "300"], &both[..]),
        ("ig", ["20000", "300"], &both[..]),
        ("randperm", ["5000", "2"], &both[..]),
        ("toposort", ["3000", "5"], &both[..]),
        ("triangles", ["1000", "10"], &both[..]),
        ("gups", ["1000", "4"], &both[..]),
        ("bfs", ["512", "16"], &both[1..]),
        ("kmers", ["200", "21"], &both[1..]),
    ] {
        let printed = run(name, numbers);
        let printed_forms = printed.lines().filter_map(|line| line.split_once(':')).map(|(form, _)| form);
        assert!(printed_forms.eq(forms.iter().copied()), "{name}: {printed}");
    }
}
