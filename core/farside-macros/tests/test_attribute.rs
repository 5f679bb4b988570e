//! `#[farside::test]` against a stand-in for the `farside` crate, which runs the body at once.

use std::cell::Cell;

/// The part of the crate that the expansion uses.
mod stand_in {
    pub(crate) type Error = String;
    pub(crate) type Result<T> = std::result::Result<T, Error>;

    pub(crate) struct Worker {
        pub(crate) test_name: &'static str,
        pub(crate) shape: [u32; 3],
    }

    pub(crate) mod __private {
        use super::{Result, Worker};

        pub(crate) struct TestShape {
            pub(crate) processes: u32,
            pub(crate) threads: u32,
            pub(crate) timeout_s: u32,
        }

        pub(crate) fn run_test(test_name: &'static str, shape: TestShape, body: fn(&Worker) -> Result<()>) {
            let shape = [shape.processes, shape.threads, shape.timeout_s];
            if let Err(error) = body(&Worker { test_name, shape }) {
                panic!("the body said: {error}");
            }
        }
    }
}

use stand_in::Worker;

thread_local! {
    static RUNS: Cell<u32> = const { Cell::new(0) };
}

fn count_run() {
    RUNS.set(RUNS.get() + 1);
}

#[farside_macros::test(processes = 4, threads = 2, timeout_s = 90, crate = "crate::stand_in")]
fn with_all_arguments(me: &Worker) -> stand_in::Result<()> {
    assert_eq!(me.shape, [4, 2, 90]);
    assert_eq!(me.test_name, "test_attribute::with_all_arguments");
    count_run();
    Ok(())
}

#[farside_macros::test(crate = "crate::stand_in")]
fn without_result(me: &Worker) {
    assert_eq!(me.shape, [2, 1, 30]);
    count_run();
    if me.shape[0] == 2 {
        return;
    }
    unreachable!("the body returns early");
}

mod inside {
    #[farside_macros::test(crate = "crate::stand_in")]
    pub(crate) fn a_module(me: &super::Worker) -> super::stand_in::Result<()> {
        assert_eq!(me.test_name, "test_attribute::inside::a_module");
        super::count_run();
        Ok(())
    }
}

#[farside_macros::test(crate = "crate::stand_in")]
#[should_panic(expected = "the body said: no luck")]
fn an_error_fails_the_test(_me: &Worker) -> stand_in::Result<()> {
    Err(String::from("no luck"))
}

#[farside_macros::test(crate = "crate::stand_in")]
#[should_panic(expected = "from the body")]
fn a_panic_fails_the_test(_me: &Worker) {
    panic!("from the body");
}

#[farside_macros::test(crate = "crate::stand_in")]
#[ignore = "only its being ignored is tested"]
#[should_panic(expected = "an ignored test has run")]
fn ignored(_me: &Worker) {
    panic!("an ignored test has run");
}

#[test]
fn the_test_runs_the_body_once() {
    with_all_arguments();
    assert_eq!(RUNS.get(), 1);
    without_result();
    assert_eq!(RUNS.get(), 2);
    inside::a_module();
    assert_eq!(RUNS.get(), 3);
}
