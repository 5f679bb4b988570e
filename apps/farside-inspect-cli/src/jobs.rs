//! Shows the jobs that this program starts.

use std::any::Any;
use std::net::SocketAddr;

use farside::Worker;
use farside::job::launch::{Launch, Monitor};
use farside_cli::{Inspection, NotShown, ShownSearch};
use farside_command::Failure;
use farside_inspect::{Expose, ExposeError, JobId, LauncherDoor};
use farside_mcts::games::hex::{Hex, Position};
use farside_mcts::{JobError, OnJob, Search, Window};

use crate::error::ShowError;
use crate::inspect::serve;
use crate::search;

/// Shows jobs to `farside inspect` and `farside top`, and on a page.
pub(crate) struct Shown;

impl Inspection for Shown {
    fn serve(&self, address: SocketAddr) -> Result<Box<dyn Any>, NotShown> {
        // The number of a job is that of the process that starts it.
        let job = if farside::job::is_member() { JobId::own().to_string() } else { std::process::id().to_string() };
        Ok(Box::new(serve::with_job(address, &job).map_err(not_shown)?))
    }

    fn answer_for(&self, launch: Launch) -> Result<(Launch, Box<dyn Any>), NotShown> {
        match open_door(&launch) {
            Ok((door, monitor)) => Ok((launch.name(door.job().name.clone()).monitor(monitor), Box::new(door))),
            Err(error @ ExposeError::Setting { .. }) => Err(not_shown(error.into())),
            // The job matters more.
            Err(error) => {
                eprintln!("farside: warning: `farside inspect` finds only what the program itself shows: {error}");
                Ok((launch, Box::new(())))
            }
        }
    }

    fn show<'w>(
        &self,
        me: &'w Worker,
        position: &Position,
        exploration: f32,
        search: Search<Hex, OnJob<'w>>,
        window: Window,
    ) -> Result<ShownSearch<'w>, JobError> {
        if me.is_first() {
            // `farside top` and `farside inspect trace` see the others through this process.
            me.open_door().map_err(|error| JobError::Job(error.into()))?;
        }
        search::show(me, position, exploration, search, window)
    }
}

fn not_shown(error: ShowError) -> NotShown {
    NotShown { exit_status: error.exit_status(), cause: error.into() }
}

/// Opens the door at which this program answers for the processes.
fn open_door(launch: &Launch) -> Result<(LauncherDoor, Monitor), ExposeError> {
    let monitor = Monitor::new().map_err(|cause| ExposeError::Door(cause.into()))?;
    let name = launch.programs.first().and_then(|program| program.command.file_name()).unwrap_or_default();
    let count = launch.programs.iter().map(|program| program.processes).fold(0, u32::saturating_add);
    Ok((LauncherDoor::open(name, count, &monitor)?, monitor))
}
