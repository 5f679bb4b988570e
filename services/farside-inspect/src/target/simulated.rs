//! [`SimulatedWorker`]: a worker without a job, for tests of readers over a simulated network.

use std::sync::Arc;

use farside_rpc::Service;

use super::activity::Lookout;
use super::areas::{Areas, Listed, Source};
use super::handlers::Handlers;
use super::shared::Shared;
use crate::protocol::{About, DoorServer, Part};

/// A worker that shows one view, and is alone in its process.
#[derive(Debug)]
pub struct SimulatedWorker(Arc<Shared>, #[expect(dead_code, reason = "it keeps the area")] Listed);

impl SimulatedWorker {
    /// Returns the worker, and the service of its process's door.
    ///
    /// # Panics
    /// If the part cannot be shown.
    #[must_use]
    pub fn new(about: About, part: Part) -> (Self, Service) {
        let (areas, stays) = (Arc::new(Areas::default()), Arc::default());
        let shared = Arc::new(Shared::new(part.clone(), Arc::clone(&stays), areas.budget().clone()));
        let listed = areas.add(part, Source::View(shared.clone())).expect("it is the first area");
        let handlers = Handlers::new(about, areas, stays, Arc::default(), Lookout::None, None);
        (Self(shared, listed), DoorServer::new(handlers).into())
    }

    /// Publishes a step, behind the one that has the number before it.
    pub fn publish(&self, step: u64, bytes: &[u8]) {
        self.0.publish(step, step, bytes);
    }
}
