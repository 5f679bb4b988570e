//! The tests of the command `farside`, which they start: one program, so that it is linked once.

mod between_hosts;
mod command;
mod htp;
mod launchers;
mod plugins;
