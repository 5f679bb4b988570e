//! The integration tests of `farside`: one program, so that the crate is linked once.
//!
//! Many tests start this program again, as the processes of a job, with the path of one test as its
//! argument.

#[macro_use]
mod everywhere;
mod accesses;
mod activity;
mod atomics;
mod attention;
mod bad_input;
mod broadcast;
mod buffers;
mod callers;
mod calls;
mod collectives;
mod compile_fail;
mod examples;
mod faults;
mod forged_handles;
mod global;
mod heap;
mod holds;
mod identity;
mod launch;
mod memory;
mod movement;
mod movement_history;
mod names;
mod notifications;
mod objects;
mod other_types;
mod pipes;
mod pools;
mod quiescence;
mod registration;
mod rendezvous;
mod replies;
mod scarcity;
mod sections;
mod signals;
mod simulated;
mod simulation;
mod state;
mod strangers;
mod support;
mod survivors;
mod sync;
mod tasks;
mod ways;
