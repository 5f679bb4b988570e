//! The checker of accesses: each kind of conflict is reported with both places in the program, and programs that order their accesses get no
//! report. By processes over shared memory and libfabric, and in the simulator.

mod accesses {
    pub(crate) mod in_use;
    pub(crate) mod losses;
    pub(crate) mod ordered;
    pub(crate) mod races;
    pub(crate) mod released;
    pub(crate) mod started;
    pub(crate) mod support;
}
