//! Two ends of a transport, separate from the job's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside::{ProcessId, Worker, WorkerId};
use farside_fabric::ofi::{OfiConfig, OfiEndpoint};
use farside_fabric::shm::{ShmConfig, ShmEndpoint};
use farside_fabric::{Event, FabricError, RemoteKey, RemoteRegion, Transport};
use farside_sys::process::random_bytes;

use crate::fabric::address;
use crate::kit::*;
use crate::limits::libfabric::{Puts, exchange};

/// The longest time of the first contact, and of any wait of a stream.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// One of two ends, and the puts from one into the starter memory of the other.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) end: Arc<dyn Transport>,
    pub(super) peer: ProcessId,
    pub(super) puts: Puts,
    pub(super) patience: Patience,
}

impl Ends {
    /// Connects two ends of libfabric, or of shared memory. Collective.
    ///
    /// # Errors
    /// The errors of collectives and of the transport.
    pub(super) fn new(me: &Worker, fabric: Option<&OfiFabric>, puts: Puts) -> Result<Self, BenchError> {
        let secret = random_bytes::<16>();
        let secret = secret.map_err(|cause| FabricError::System { doing: "getting random bytes", cause })?;
        let is_root = me.id() == WorkerId::new(0);
        let secret = me.broadcast(WorkerId::new(0), is_root.then_some(secret))?;
        let (process, process_count, starter_bytes) = (me.process(), me.process_count(), puts.area_bytes());
        let end: Arc<dyn Transport> = match fabric {
            None => {
                let job_id = u64::from_le_bytes(*secret.first_chunk().expect("a secret is longer"));
                let end = ShmEndpoint::open(ShmConfig {
                    process,
                    process_count,
                    job_id,
                    secret,
                    starter_bytes,
                    user_by_system_call: true,
                })?;
                // Both ends listen now.
                me.barrier()?;
                end
            }
            Some(fabric) => {
                let end = OfiEndpoint::open(OfiConfig {
                    process,
                    process_count,
                    starter_bytes,
                    provider: fabric.provider().map(str::to_owned),
                    address: address(),
                    device: None,
                })?;
                let cards = exchange(me, end.card().to_vec())?;
                end.introduce(&cards, &secret)?;
                end
            }
        };
        Ok(Self { end, peer: me.process_of(me.neighbor(1)), puts, patience: Patience::new(2) })
    }

    /// Returns the starter memory of the other end.
    pub(super) fn attach(&self) -> Result<RemoteRegion, BenchError> {
        Ok(self.end.attach(RemoteKey::starter(self.peer, self.puts.area_bytes() as u64), self.deadline())?)
    }

    /// Returns the deadline of an operation that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + WAIT_MAX
    }

    /// Tells the other end that all puts are complete.
    pub(super) fn tell(&self) -> Result<(), BenchError> {
        Ok(self.end.send(self.peer, &self.puts.count.to_le_bytes())?)
    }

    /// Takes the part of the other side: makes progress until all puts are complete, and checks the
    /// last.
    pub(super) fn attend(&self) -> Result<(), BenchError> {
        let event = self.patience.wait_for(|| {
            self.end.progress();
            self.end.receive()
        })?;
        let Event::Message { message, .. } = event else {
            return Err(FabricError::Disconnected { process: self.peer }.into());
        };
        debug_assert_eq!(message, self.puts.count.to_le_bytes());
        let last = self.puts.count - 1;
        let mut found = [0; 8];
        self.end.starter().as_remote().get(self.puts.offset(last) as u64, &mut found, Instant::now())?;
        let found = u64::from_le_bytes(found);
        if found != last {
            return Err(BenchError::WrongSum { what: "the number in the last put", expected: last, found });
        }
        Ok(())
    }
}
