//! Names of machines, processes and workers inside one job.

use std::fmt;

use farside_wire::Wire;

/// A process of the job, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
#[wire(crate = "farside_wire")]
#[repr(transparent)]
pub struct ProcessId(u32);

/// A worker thread of the job, counted from 0 through all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
#[wire(crate = "farside_wire")]
#[repr(transparent)]
pub struct WorkerId(u32);

/// A machine of the job, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Wire)]
#[wire(crate = "farside_wire")]
#[repr(transparent)]
pub struct MachineId(u32);

macro_rules! id {
    ($name:ident, $noun:literal) => {
        impl $name {
            #[doc = concat!("The ", $noun, " with this number.")]
            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            /// The number, counted from 0.
            pub const fn number(self) -> u32 {
                self.0
            }

            /// The number as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($noun, " {}"), self.0)
            }
        }
    };
}

id!(ProcessId, "process");
id!(WorkerId, "worker");

impl WorkerId {
    /// Worker 0, which every job has.
    pub const FIRST: Self = Self(0);
}

id!(MachineId, "machine");
