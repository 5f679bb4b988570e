//! The access checker. It reports each kind of conflict with both places in the program, and
//! reports nothing for programs that order their accesses. The tests run as processes over shared
//! memory and libfabric, and in the simulator.

mod in_use;
mod losses;
mod ordered;
mod races;
mod released;
mod started;
mod support;
mod textbook;
