//! The ring, the arrival bits and the doorbell under a model checker, which tries every order in
//! which the threads can run and every value that a load can return (except load buffering, which
//! it does not model).
//!
//! ```console
//! RUSTFLAGS="--cfg loom" cargo test --package farside-fabric --release --test loom
//! ```
//!
//! Each model is tiny, so that its check ends. The *mutants* show that the checker would find an
//! error: each repeats the protocol's steps without one fence or ordering. The checker must find a
//! failure in each of them, and none in the whole protocol.
//!
//! The checker's sequentially consistent fences order more than the language's do: everything
//! before them, not only atomics. The models that check release and acquire therefore have no
//! fences.

#![cfg(loom)]

#[path = "loom/bell.rs"]
mod bell;
#[path = "loom/bell_mutants.rs"]
mod bell_mutants;
#[path = "loom/credit.rs"]
mod credit;
#[path = "loom/futex.rs"]
mod futex;
#[path = "loom/memory.rs"]
mod memory;
#[path = "loom/ring.rs"]
mod ring;
#[path = "loom/ring_mutants.rs"]
mod ring_mutants;
#[path = "loom/watchers.rs"]
mod watchers;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Checks a model with at most `preemptions` preemptions of threads that could have continued;
/// `None` for any number.
fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// Checks a model of a protocol without one step. The checker must find a failure whose message
/// contains `expected`.
#[track_caller]
fn check_finds(expected: &str, what: &str, model: impl Fn() + Send + Sync + 'static) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(Some(3), model))) else {
        panic!("no failure is found without {what}");
    };
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let said = said.expect("a panic has a message");
    assert!(said.contains(expected), "without {what} the failure is: {said}");
}
