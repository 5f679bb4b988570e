//! The tests of the command `farside`, which they start: one program, so that it is linked once.

mod between_hosts;
mod command;
#[cfg(feature = "page")]
mod demonstrations;
mod htp;
mod inspect;
mod kv;
mod launchers;
mod missing;
mod python;
mod rpc;
mod steering;
mod top;
mod watching;
