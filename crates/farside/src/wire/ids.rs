//! The names of the fabric travel as the numbers they are.

use farside_fabric::{MachineId, ProcessId, RemoteKey, WorkerId};

use super::{Reader, Wire, WireError, read_plain, write_plain};

macro_rules! plain {
    ($($name:ty),+) => {
        $(
            // SAFETY: numbers that mean the same in every process of the job; copied whole, and any bytes are valid.
            unsafe impl Wire for $name {
                const PLAIN: bool = true;

                #[inline(always)]
                fn wire_bytes(&self) -> usize {
                    size_of::<Self>()
                }

                #[inline(always)]
                unsafe fn write(self, out: *mut u8) {
                    // SAFETY: passed on.
                    unsafe { write_plain(self, out) };
                }

                #[inline(always)]
                unsafe fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
                    // SAFETY: passed on.
                    unsafe { read_plain(input) }
                }
            }
        )+
    };
}

plain!(ProcessId, WorkerId, MachineId, RemoteKey);
