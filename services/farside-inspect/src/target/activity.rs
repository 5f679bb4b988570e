//! [`Lookout`]: the activity of the workers of a process.

use std::thread;
use std::time::{Duration, Instant};

use farside::job::launch::{AskError, Monitor};
use farside::wire;
use farside::{Activity, ProcessId};
use farside_rpc::Call;

use crate::protocol::{Answer, Question, Refused, WorkersNow};

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

    pub(super) fn look(&self, cx: &Call, question: Question) -> Result<Answer, Refused> {
        // The process answers its launcher so soon that the caller still hears if it does not.
        let until = Instant::now() + cx.time_left() * 3 / 4;
        let most = if matches!(self, Self::Own(_)) { EVENTS_MAX } else { LAUNCHER_EVENTS_MAX };
        let answer = match question {
            Question::Events { session, max } => self.ask(until, Question::Events { session, max: max.min(most) })?,
            Question::Watch(_) if self.ask(until, question)?.is_some() => {
                thread::sleep(ANSWER_TIME);
                self.ask(until, Question::Workers)?
            }
            Question::Watch(_) => None,
            question => self.ask(until, question)?,
        };
        match question {
            Question::Watch(_) | Question::Workers => Ok(answer.unwrap_or(Answer::Workers(WorkersNow::default()))),
            _ => answer.ok_or(Refused::NoJob),
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
