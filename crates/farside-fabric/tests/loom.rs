//! The ring, the arrival bits and the doorbell under a model checker, which tries every order in which the threads can run
//! and every value that a load can return (up to load buffering, which it does not know).
//!
//! ```console
//! RUSTFLAGS="--cfg loom" cargo test --package farside-fabric --release --test loom
//! ```
//!
//! Each model is tiny, so that it ends. That it would find an error is shown by the *mutants*: the protocol's steps once more,
//! with one fence or ordering left out. The checker must find a failure in each of them, and none in the whole.
//!
//! The checker's sequentially consistent fences order more than the language's do (all that came before them, not only
//! atomics). So what release and acquire must order is checked in models that have no fences.

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

/// Checks a model with at most so many preemptions at moments when a thread could have gone on; `None` for any number.
fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// Checks a model of a protocol with something left out, in which a failure must be found that says `expected`.
#[track_caller]
fn check_finds(expected: &str, what: &str, model: impl Fn() + Send + Sync + 'static) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(Some(3), model))) else {
        panic!("nothing is found with no {what}");
    };
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let said = said.expect("a panic says something");
    assert!(said.contains(expected), "with no {what} is found: {said}");
}
