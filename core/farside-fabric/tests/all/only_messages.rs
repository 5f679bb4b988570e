//! The smallest transport: it carries messages only, and passes the whole suite.
//! `docs/adding-a-transport.md` walks through it.

mod end;
mod wire;

use std::sync::Arc;

use farside_conformance::Fabric;
use farside_fabric::emulated::{Limits, MESSAGE_BYTES_MIN};
use farside_fabric::{FabricError, ProcessId, Transport};

use end::End;
use wire::Wire;

struct OnlyMessages {
    limits: Limits,
    /// How many packets from one process wait at another before there is no room.
    packets_max: usize,
}

impl Fabric for OnlyMessages {
    fn name(&self) -> String {
        format!("only messages, {:?}, {} at a time", self.limits, self.packets_max)
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        let wire = Arc::new(Wire::new(processes, self.packets_max)?);
        let open = |number| -> Result<Arc<dyn Transport>, FabricError> {
            Ok(End::open(ProcessId::new(number), processes, starter_bytes, self.limits, wire.clone())?)
        };
        (0..processes).map(open).collect()
    }
}

const ROOMY: Limits = Limits { message_bytes_max: 4096, operations_max: 64, messages_max: 64 };
const TIGHT: Limits = Limits { operations_max: 1, messages_max: 1, ..ROOMY };

farside_conformance::conformance_tests!(roomy, OnlyMessages { limits: ROOMY, packets_max: 64 });

/// Queues and messages as short as they can be.
mod deep {
    use super::*;

    farside_conformance::conformance_tests!(short_queues, OnlyMessages { limits: TIGHT, packets_max: 1 });
    farside_conformance::conformance_tests!(
        short_messages,
        OnlyMessages { limits: Limits { message_bytes_max: MESSAGE_BYTES_MIN, ..ROOMY }, packets_max: 64 }
    );
}
