//! [`Member`]: a process of a job, before it runs anything.

use std::sync::Arc;

use farside_fabric::{ProcessId, Transport};

use crate::control::Control;
use crate::kill_point::KillPlan;
use crate::settings::Settings;

/// A process of a job, before it runs anything.
#[derive(Debug)]
pub struct Member {
    /// The number of the process.
    pub process: ProcessId,
    /// The settings of the job.
    pub settings: Settings,
    /// The link to the coordinator.
    pub control: Arc<dyn Control>,
    /// The source of the process's transport.
    pub transport: TransportChoice,
    /// The point at which a test kills the process, if it does.
    pub kill_plan: Option<KillPlan>,
    /// A number that makes this process one of another binary unless it is 0. For simulations.
    pub build: u64,
}

/// The source of a process's transport.
#[derive(Clone, Debug)]
pub enum TransportChoice {
    /// The process opens it once it knows the addresses of its peers and the job's secret.
    ByRoute,
    /// The transport exists already.
    Ready(Arc<dyn Transport>),
}
