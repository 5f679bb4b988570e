//! Wrong arguments of `#[farside::test]`, and functions that are no body of a worker.

struct Worker;

#[farside_macros::test(processes = 0)]
fn no_process(_me: &Worker) {}

#[farside_macros::test(processes = 2, threads = "two")]
fn a_word(_me: &Worker) {}

#[farside_macros::test(nodes = 3)]
fn unknown_argument(_me: &Worker) {}

#[farside_macros::test(threads = 2, threads = 3)]
fn given_twice(_me: &Worker) {}

#[farside_macros::test]
fn without_worker() {}

#[farside_macros::test]
async fn asynchronous(_me: &Worker) {}

#[farside_macros::test]
#[test]
fn two_tests(_me: &Worker) {}

fn main() {}
