//! [`Lookout`]: the activity of the workers of a process.

use std::thread;
use std::time::{Duration, Instant};

use farside::job::launch::{AskError, Monitor};
use farside::wire;
use farside::{Activity, ProcessId};
use farside_rpc::Call;

use crate::protocol::{Answer, EventsNow, Question, Refused, WorkersNow};

/// The most events of a process in one answer, which then has less than 16 MiB.
const EVENTS_MAX: u32 = 200_000;
/// The same for an answer by way of the launcher.
const LAUNCHER_EVENTS_MAX: u32 = 20_000;
/// The time in which workers that wait publish their counters.
const ANSWER_TIME: Duration = Duration::from_millis(1);

/// Who tells what the workers of a process do.
#[derive(Clone, Debug)]
pub(crate) enum Lookout {
    /// This process, of its own workers.
    Own(Activity),
    /// The launcher, of a process that it has started.
    Launcher(Monitor, ProcessId),
    /// There are no workers.
    None,
}

impl Lookout {
    /// The number of the process in the system, if the launcher answers for it; 0 if it does not
    /// run.
    pub(super) fn launched(&self) -> Option<u32> {
        let Self::Launcher(monitor, process) = self else { return None };
        Some(monitor.system_process(*process).unwrap_or(0))
    }

    /// The time in which a process must answer its launcher, so that the caller still hears if it
    /// does not.
    fn until(cx: &Call) -> Instant {
        Instant::now() + cx.time_left() * 3 / 4
    }

    pub(super) fn workers(&self, cx: &Call, watch_ms: u32) -> Result<WorkersNow, Refused> {
        let until = Self::until(cx);
        if watch_ms > 0 && self.ask(until, Question::Watch(watch_ms))?.is_some() {
            thread::sleep(ANSWER_TIME);
        }
        match self.ask(until, Question::Workers)? {
            Some(Answer::Workers(now)) => Ok(now),
            _ => Ok(WorkersNow::default()),
        }
    }

    pub(super) fn trace(&self, cx: &Call, session: u32, time_ms: u32, sends: bool) -> Result<(), Refused> {
        self.ask(Self::until(cx), Question::Trace { session, time_ms, sends })?.map(drop).ok_or(Refused::NoJob)
    }

    pub(super) fn events(&self, cx: &Call, session: u32) -> Result<Vec<EventsNow>, Refused> {
        let max = if matches!(self, Self::Own(_)) { EVENTS_MAX } else { LAUNCHER_EVENTS_MAX };
        match self.ask(Self::until(cx), Question::Events { session, max })? {
            Some(Answer::Events(events)) => Ok(events),
            _ => Err(Refused::NoJob),
        }
    }

    /// Asks the process. `None` if it has no workers now.
    fn ask(&self, until: Instant, question: Question) -> Result<Option<Answer>, Refused> {
        let answer = match self {
            Self::Own(activity) => activity.answer(question),
            Self::Launcher(monitor, process) => {
                let bytes = wire::encode(&question, Vec::new());
                let failed = |cause: String| Refused::Failed { cause };
                match monitor.ask(*process, bytes, until) {
                    Ok(bytes) => {
                        wire::decode(wire::Decoder::new(&bytes), 0).map_err(|error| failed(error.to_string()))?
                    }
                    Err(AskError::NotBegun | AskError::Ended) => return Ok(None),
                    Err(error) => return Err(failed(error.to_string())),
                }
            }
            Self::None => return Ok(None),
        };
        if answer == Answer::Traced { Err(Refused::Traced) } else { Ok(Some(answer)) }
    }
}
