//! The checker of accesses: each kind of conflict is reported with both places in the program, and programs that order their accesses get no
//! report. By processes over shared memory and libfabric, and in the simulator.

mod in_use;
mod losses;
mod ordered;
mod races;
mod released;
mod started;
mod support;
