//! [`LauncherDoor`]: the door of a job's launcher.

use std::ffi::OsStr;

use farside::ProcessId;
use farside::job::launch::Monitor;
use farside_rpc::Server;

use super::activity::Lookout;
use super::error::ExposeError;
use super::handlers::Handlers;
use super::setting::{CALLS_MAX, Setting, builder, setting};
use crate::names::{JOB, JobId};
use crate::protocol::{About, DoorServer};

/// Threads that wait for answers of processes.
const POOL: usize = 4;

/// The door of a launcher. It answers for the processes of its job that have no door of their own:
/// which there are, and what their workers do and wait for. These need not be built with this
/// crate. Dropping it shuts the door.
///
/// ```no_run
/// use farside::job::launch::{Launch, Monitor, Program};
/// use farside_inspect::LauncherDoor;
///
/// let monitor = Monitor::new()?;
/// let door = LauncherDoor::open("histogram".as_ref(), 4, &monitor)?;
/// let program = Program { command: "./histogram".into(), arguments: Vec::new(), processes: 4 };
/// Launch::new(vec![program]).name(door.job().name.clone()).monitor(monitor).run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LauncherDoor {
    job: JobId,
    _server: Option<Server>,
}

impl LauncherDoor {
    /// Opens the door of the job that this process starts next. `program` names the job, unless the
    /// environment does. The monitor must be that of the job. `FARSIDE_INSPECT=off` keeps the door
    /// shut.
    ///
    /// *Cost*: a server with a few threads that sleep until a reader asks.
    ///
    /// # Errors
    /// [`ExposeError::Setting`], [`ExposeError::Door`].
    pub fn open(program: &OsStr, process_count: u32, monitor: &Monitor) -> Result<Self, ExposeError> {
        let chosen = std::env::var_os(JOB).filter(|name| !name.is_empty());
        let job = JobId::started_here(&chosen.as_deref().unwrap_or(program).to_string_lossy());
        let setting = setting()?;
        if matches!(setting, Setting::Off) {
            return Ok(Self { job, _server: None });
        }
        let builder = builder(&job.launcher_address())?.pool(POOL).max_calls(process_count.max(CALLS_MAX));
        // The number of a provider has 16 bits.
        let processes = (0..=u16::MAX).take(process_count as usize);
        let builder = processes.fold(builder, |builder, number| {
            let process = number.into();
            // Process 0 opens the door on the network, when it opens its own.
            let awaits_network = process == 0 && matches!(setting, Setting::Network(_));
            let (system_process, job, network, key) = (0, job.clone(), None, 0);
            let about = About { process, process_count, system_process, job, network, awaits_network, key };
            let lookout = Lookout::Launcher(monitor.clone(), ProcessId::new(process));
            let (areas, stays, questions) = Default::default();
            let handlers = Handlers::new(about, areas, stays, questions, lookout, None);
            builder.provider(number, DoorServer::new(handlers))
        });
        Ok(Self { job, _server: Some(builder.start()?) })
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &JobId {
        &self.job
    }
}
