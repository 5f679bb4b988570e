//! Decides when a job starts, when it is quiescent, and what its verdict is.
//!
//! ```text
//! Gathering ──all said hello──► Running ──all idle, and the counts agree twice──► Finished
//!     │  └─► Exchanging ──cards─►  │
//!     │          │                 │
//!     └──────────┴─ one is lost, is late, is out of reach, takes the job for another,
//!                   or the job does not become idle ────────────────────────────► Ended
//! ```
//!
//! Processes that all reach each other over shared memory start at once. Otherwise each first opens
//! the fabric and sends its card (its address), and all receive all cards. With P processes and
//! cards of C bytes, that is P² × (C + 24 B): 56 MB for 1000 processes over `tcp`, whose cards have
//! 32 B. The coordinator sends them within a second. Until then, each process's share is in the
//! coordinator's memory or in the buffers of its link. A card has at most 256 B. Ten thousand
//! processes would need another method.
//!
//! While the job runs, a process that ends or fails is *lost*: the coordinator tells the others,
//! and they continue. The first failure is the job's verdict, whatever follows from it. From then
//! on the coordinator asks now and then whether the survivors still answer. It ends the job if none
//! does: a stopped process may be the cause of the failure, and would be waited for in vain.
//!
//! This is a state machine without I/O or clock. Its input is the messages of the processes and the
//! ends of processes, each with the time since the job began. It returns
//! [messages](Coordinator::next_message) to processes and, when all have ended, the
//! [verdict](Coordinator::verdict). A launcher drives it over sockets, the simulator over queues.

mod census;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::ProcessId;
use farside_fabric::route::FabricChoice;

use self::census::{Census, Counts};
use crate::control::link::News;
use crate::control::{Ending, Greeting, JobShape, PeerCard, ToCoordinator, ToProcess, builds_messages, peers_messages};
use crate::error::{LaunchError as Error, ProcessEnd, Result};
use crate::settings::opening_time;

/// The pause before the next round if the counts differ, because calls are still under way.
const PACE: Duration = Duration::from_millis(1);
/// The maximum number of processes that a text names.
const NAMED_MAX: usize = 16;

/// The parameters of a job.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Processes of the job.
    pub processes: u32,
    /// The number that tells this job from others.
    pub job_id: u64,
    /// The secret of this job's processes.
    pub secret: [u8; 16],
    /// The time limit until all processes have greeted, and again until all have sent their cards.
    pub start_deadline: Duration,
    /// The time limit from the return of the workers to quiescence.
    pub finalize_deadline: Duration,
}

/// One job, from its start to its verdict.
#[derive(Debug)]
pub struct Coordinator {
    plan: Plan,
    phase: Phase,
    processes: Vec<ProcessState>,
    census: Census,
    /// The messages to send. A message to all processes is in memory once.
    messages: VecDeque<(ProcessId, Arc<ToProcess>)>,
    first_failure: Option<Failure>,
    /// The periodic check whether the survivors of a loss answer. `None` until a process is lost.
    watch: Option<Watch>,
    /// Descriptions of processes that were turned away, for the text that names missing processes.
    /// At most [`NAMED_MAX`].
    turned_away: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Some processes have not greeted.
    Gathering,
    /// All have greeted and were asked for their cards.
    Exchanging {
        /// The time of the question.
        since: Duration,
    },
    /// The workers run. Idle processes have been counted for round 0.
    Running,
    /// All processes were idle, and are counted again until the counts agree.
    Settling {
        /// The time at which the last process became idle.
        since: Duration,
        /// The start of the next round. `None` while a round is under way.
        next_round_at: Option<Duration>,
    },
    /// All processes were ordered to return.
    Finished,
    /// All processes were notified that the job ended.
    Ended,
}

#[derive(Clone, Debug, Default)]
struct ProcessState {
    greeting: Option<Greeting>,
    card: Option<Vec<u8>>,
    /// Set once it has failed or ended early. It then has no further part in the job.
    lost: Option<Loss>,
    /// True if the process has ended.
    ended: bool,
}

/// The periodic check for stopped processes. Workers may run without a time limit, so only answers
/// of the service threads show that a process is not stopped.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// The time of the next check.
    due: Duration,
    /// True if all survivors were asked, and none has said anything since.
    unanswered: bool,
}

/// Why a process is lost.
#[derive(Clone, Debug)]
struct Loss {
    /// The process that failed first: the lost one itself, or one because of which it failed.
    root: ProcessId,
    /// The end of `root`, as the end of a sentence about it.
    why: String,
}

#[derive(Clone, Debug)]
enum Failure {
    Process { process: ProcessId, how: ProcessEnd, because_of: Option<ProcessId> },
    Job(Ending),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Process { process, how, .. } => Error::ProcessFailed { process, how },
            Failure::Job(why) => why.into(),
        }
    }
}

impl Coordinator {
    /// Makes the coordinator of a job whose processes start at time 0.
    pub fn new(plan: Plan) -> Self {
        let count = plan.processes as usize;
        Self {
            plan,
            phase: Phase::Gathering,
            processes: vec![ProcessState::default(); count],
            census: Census::new(count),
            messages: VecDeque::new(),
            first_failure: None,
            watch: None,
            turned_away: Vec::new(),
        }
    }

    /// Records that a process was turned away, with its description.
    pub fn turned_away(&mut self, why: String) {
        if self.turned_away.len() < NAMED_MAX && !self.turned_away.contains(&why) {
            tracing::warn!(why, "process turned away");
            self.turned_away.push(why);
        }
    }

    /// Ends a job that has not begun, for a reason that the caller found.
    pub fn give_up(&mut self, why: String) {
        if self.has_begun() {
            return;
        }
        self.end_job(Ending::Other(why));
    }

    /// Takes in the news of some processes.
    pub(crate) fn heard(&mut self, mut news: Vec<News>, now: Duration) {
        // Of simultaneous news, an end without a reason comes first. A process that reports its
        // failure takes longer, and may have failed because of the other's end.
        news.sort_by_key(|news| !news.is_sudden_end());
        for news in news {
            for message in news.messages {
                self.said(news.process, message, now);
            }
            if let Some(end) = news.end {
                self.ended(news.process, end, now);
            }
        }
    }

    /// Handles a message of a process. Ignores a message that makes no sense in the current phase.
    pub fn said(&mut self, process: ProcessId, message: ToCoordinator, now: Duration) {
        if !self.is_live(process) {
            return;
        }
        if let Some(watch) = &mut self.watch {
            watch.unanswered = false;
        }
        match message {
            ToCoordinator::Hello(greeting) => self.greeted(process, greeting, now),
            ToCoordinator::Card { bytes } => self.gave_card(process, bytes),
            ToCoordinator::Idle { round, sent, executed } => {
                let counting = matches!(self.phase, Phase::Running | Phase::Settling { .. });
                if counting && self.census.answer(process, round, Counts { sent, executed }) {
                    self.conclude_round(now);
                }
            }
            ToCoordinator::Failed { message, because_of } => {
                self.failed(process, ProcessEnd::Reported(message), because_of, now);
            }
            // That it said anything counts. The launcher takes answers to its own questions.
            ToCoordinator::Alive | ToCoordinator::Told { .. } => {}
        }
    }

    /// Handles the end of a process. All its messages came before.
    pub fn ended(&mut self, process: ProcessId, end: ProcessEnd, now: Duration) {
        let state = &mut self.processes[process.index()];
        if std::mem::replace(&mut state.ended, true) || state.lost.is_some() {
            return;
        }
        let how = match (end, self.phase) {
            (ProcessEnd::Exited(0), Phase::Finished) => return,
            (ProcessEnd::Exited(0), Phase::Gathering) => {
                ProcessEnd::Reported("it ended before it joined the job".into())
            }
            (ProcessEnd::Exited(0), _) => ProcessEnd::Reported("it ended before the job was done".into()),
            (end, _) => end,
        };
        self.failed(process, how, None, now);
    }

    /// Handles the passing of time.
    pub fn tick(&mut self, now: Duration) {
        if self.next_tick().is_none_or(|at| now < at) {
            return;
        }
        match self.phase {
            Phase::Gathering => {
                let why = self.describe_late_processes();
                self.end_job(Ending::Other(why));
            }
            Phase::Exchanging { .. } => {
                let why = self.describe_missing_cards();
                self.end_job(Ending::Other(why));
            }
            Phase::Settling { since, .. } if now >= since.saturating_add(self.plan.finalize_deadline) => {
                let why = self.describe_outstanding_calls();
                self.end_job(Ending::Other(why));
            }
            Phase::Settling { since, .. } => {
                self.phase = Phase::Settling { since, next_round_at: None };
                self.begin_round();
            }
            Phase::Running if self.watch.is_some_and(|watch| watch.unanswered) => {
                let why = self.describe_silent_processes();
                self.end_job(Ending::Other(why));
            }
            Phase::Running => {
                self.watch = Some(Watch { unanswered: true, ..self.next_watch(now) });
                self.tell_all(ToProcess::Probe);
            }
            Phase::Finished | Phase::Ended => {}
        }
    }

    fn next_watch(&self, now: Duration) -> Watch {
        Watch { due: now.saturating_add(self.answer_deadline()), unanswered: false }
    }

    /// Returns the time that survivors of a loss have to answer. It is long, because their machines
    /// may be very busy.
    fn answer_deadline(&self) -> Duration {
        self.plan.start_deadline.saturating_add(self.plan.finalize_deadline)
    }

    /// Returns when [`tick`](Self::tick) next has work. `None` if only messages and ends of
    /// processes can advance the job.
    pub fn next_tick(&self) -> Option<Duration> {
        match self.phase {
            Phase::Gathering => Some(self.plan.start_deadline),
            Phase::Exchanging { since } => Some(since.saturating_add(self.exchange_deadline())),
            Phase::Settling { since, next_round_at } => {
                let deadline = since.saturating_add(self.plan.finalize_deadline);
                Some(next_round_at.map_or(deadline, |at| at.min(deadline)))
            }
            Phase::Running => self.watch.map(|watch| watch.due),
            Phase::Finished | Phase::Ended => None,
        }
    }

    /// Takes the next message to send.
    pub fn next_message(&mut self) -> Option<(ProcessId, Arc<ToProcess>)> {
        self.messages.pop_front()
    }

    /// Returns the result of the job, once all processes have ended.
    pub fn verdict(&self) -> Option<Result<()>> {
        let all_ended = self.processes.iter().all(|state| state.ended);
        all_ended.then(|| self.first_failure.clone().map_or(Ok(()), |failure| Err(failure.into())))
    }

    /// Returns whether all processes were ordered to return, so that any of them may end.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Returns whether every running process has failed or was notified that the job ended, and so
    /// should leave.
    pub fn only_stragglers_run(&self) -> bool {
        self.phase == Phase::Ended || self.processes.iter().all(|state| state.ended || state.lost.is_some())
    }

    /// Returns the processes that have not ended.
    pub fn running(&self) -> impl Iterator<Item = ProcessId> {
        self.select(|state| !state.ended)
    }

    /// Returns whether the process takes part in the job.
    fn is_live(&self, process: ProcessId) -> bool {
        let state = &self.processes[process.index()];
        !state.ended && state.lost.is_none()
    }

    fn live(&self) -> impl Iterator<Item = ProcessId> {
        self.select(|state| !state.ended && state.lost.is_none())
    }

    fn select(&self, which: impl Fn(&ProcessState) -> bool) -> impl Iterator<Item = ProcessId> {
        (0..).map(ProcessId::new).zip(&self.processes).filter(move |(_, state)| which(state)).map(|(id, _)| id)
    }

    fn tell_all(&mut self, message: ToProcess) {
        let message = Arc::new(message);
        let addressed: Vec<_> = self.live().map(|process| (process, message.clone())).collect();
        self.messages.extend(addressed);
    }

    /// Returns whether all processes have started together.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Gathering | Phase::Exchanging { .. })
    }

    fn greeted(&mut self, process: ProcessId, greeting: Greeting, now: Duration) {
        tracing::debug!(process = process.number(), fabric = %greeting.fabric, "process greeted");
        self.processes[process.index()].greeting.get_or_insert(greeting);
        if self.phase != Phase::Gathering || self.processes.iter().any(|state| state.greeting.is_none()) {
            return;
        }
        match self.find_discord() {
            Some(why) => self.end_job(why),
            None if self.needs_cards() => {
                tracing::debug!("asking all processes to open the fabric");
                self.phase = Phase::Exchanging { since: now };
                self.tell_all(ToProcess::Exchange);
            }
            None => self.begin(),
        }
    }

    fn gave_card(&mut self, process: ProcessId, card: Vec<u8>) {
        if !matches!(self.phase, Phase::Exchanging { .. }) {
            return;
        }
        self.processes[process.index()].card.get_or_insert(card);
        let cards: Option<Vec<_>> = self.processes.iter().map(ProcessState::peer_card).collect();
        if let Some(cards) = cards {
            for message in peers_messages(cards) {
                self.tell_all(message);
            }
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.phase = Phase::Running;
        tracing::debug!(processes = self.plan.processes, "job started");
        let builds = self.builds();
        if builds.iter().any(|build| *build != 0) {
            for message in builds_messages(&builds) {
                self.tell_all(message);
            }
        }
        self.tell_all(ToProcess::Start { job_id: self.plan.job_id, secret: self.plan.secret });
    }

    /// Returns for each process the first that runs the same binary. All have greeted.
    fn builds(&self) -> Vec<u32> {
        let mut first = HashMap::new();
        let greetings = self.greetings();
        greetings.map(|(process, greeting)| *first.entry(greeting.build()).or_insert(process.number())).collect()
    }

    /// Returns the reason why the processes cannot form one job, if there is one. All have greeted.
    fn find_discord(&self) -> Option<Ending> {
        let (first, rest) = self.greetings().next().zip(Some(self.greetings().skip(1)))?;
        let (a, first) = first;
        for (b, other) in rest {
            if first.shape != other.shape {
                let [first, other] = [first.shape, other.shape].map(describe);
                let remedy = "start all with the same options and the same environment";
                return Some(Ending::Other(format!(
                    "{a} was started for a job of {first}, {b} for one of {other}: {remedy}"
                )));
            }
            if first.fabric != other.fabric {
                let (first, other) = (&first.fabric, &other.fabric);
                let remedy = "give all the same --fabric (or FARSIDE_FABRIC)";
                return Some(Ending::Other(format!(
                    "{a} was told to use the fabric {first}, {b} the fabric {other}: {remedy}"
                )));
            }
            if first.host != other.host && first.fabric == FabricChoice::Shm {
                return Some(Ending::Apart { a, b });
            }
        }
        None
    }

    /// Returns whether processes need the fabric. All have greeted and agree.
    fn needs_cards(&self) -> bool {
        let mut greetings = self.greetings().map(|(_, greeting)| greeting);
        let Some(first) = greetings.next() else { return false };
        matches!(first.fabric, FabricChoice::Ofi(_)) || greetings.any(|greeting| greeting.host != first.host)
    }

    fn greetings(&self) -> impl Iterator<Item = (ProcessId, &Greeting)> {
        let processes = (0..).map(ProcessId::new).zip(&self.processes);
        processes.filter_map(|(process, state)| Some((process, state.greeting.as_ref()?)))
    }

    fn failed(&mut self, process: ProcessId, how: ProcessEnd, because_of: Option<ProcessId>, now: Duration) {
        let cause = because_of.and_then(|cause| self.processes.get(cause.index())?.lost.clone());
        let loss = cause.unwrap_or_else(|| Loss { root: process, why: how.to_string() });
        let Loss { root, why } = loss.clone();
        self.processes[process.index()].lost = Some(loss);
        if self.is_first(process) {
            self.first_failure = Some(Failure::Process { process, how, because_of });
        }
        match self.phase {
            // An incomplete job does not begin.
            Phase::Gathering | Phase::Exchanging { .. } => {
                self.end_job(Ending::Other(format!("before the job began, {root} {why}")));
            }
            Phase::Running | Phase::Settling { .. } => {
                tracing::warn!(process = process.number(), root = root.number(), why, "process lost");
                self.tell_all(ToProcess::Lost { process, root, why });
                self.watch = Some(self.next_watch(now));
                self.census.lose(process);
                self.conclude_round(now);
            }
            Phase::Finished | Phase::Ended => {
                tracing::debug!(process = process.number(), why, "process failed after the job ended");
            }
        }
    }

    /// Returns whether this process failed first. A peer may notice its end before the launcher
    /// does, fail because of it, and report that.
    fn is_first(&self, process: ProcessId) -> bool {
        match &self.first_failure {
            None => true,
            Some(Failure::Process { because_of, .. }) => *because_of == Some(process),
            Some(Failure::Job(_)) => false,
        }
    }

    fn end_job(&mut self, why: Ending) {
        tracing::warn!(why = %Error::from(why.clone()), "job ended early");
        self.first_failure.get_or_insert_with(|| Failure::Job(why.clone()));
        self.tell_all(ToProcess::Ended { why });
        self.phase = Phase::Ended;
    }

    /// Evaluates the round once all processes have been counted.
    fn conclude_round(&mut self, now: Duration) {
        if !self.census.is_complete() {
            return;
        }
        let since = match self.phase {
            Phase::Settling { since, .. } => since,
            _ => now,
        };
        let count = self.census.conclude();
        if count.is_quiescent {
            self.phase = Phase::Finished;
            tracing::debug!("job finished: all processes are idle");
            self.tell_all(ToProcess::Finish);
        } else if count.balanced {
            // The job may be quiescent; one more round decides.
            self.phase = Phase::Settling { since, next_round_at: None };
            self.begin_round();
        } else {
            self.phase = Phase::Settling { since, next_round_at: Some(now.saturating_add(PACE)) };
        }
    }

    fn begin_round(&mut self) {
        let round = self.census.begin_round();
        self.tell_all(ToProcess::Confirm { round });
    }

    fn describe_late_processes(&self) -> String {
        let late = self.select(|state| state.greeting.is_none()).map(|process| process.to_string());
        let turned_away = match &self.turned_away[..] {
            [] => String::new(),
            reasons => format!(" (turned away: {})", reasons.join("; ")),
        };
        format!(
            "of {} processes, {} did not join the job within {:?}{turned_away}: check that they were started and that the \
             program calls `run` whatever its arguments, or raise the deadline (FARSIDE_TIMEOUT_S)",
            self.plan.processes,
            list(late),
            self.plan.start_deadline
        )
    }

    fn describe_missing_cards(&self) -> String {
        let missing = self.select(|state| state.card.is_none()).map(|process| process.to_string());
        format!(
            "{} did not open the fabric within {:?}: check these processes and the network's devices, or raise the \
             deadline (FARSIDE_TIMEOUT_S)",
            list(missing),
            self.exchange_deadline()
        )
    }

    /// Returns the time that all processes together have to open the fabric and send their cards.
    /// All have greeted.
    fn exchange_deadline(&self) -> Duration {
        let mut on_host = HashMap::<_, u32>::new();
        self.greetings().for_each(|(_, greeting)| *on_host.entry(greeting.host).or_default() += 1);
        self.plan.start_deadline.saturating_add(opening_time(on_host.into_values().max().unwrap_or(0)))
    }

    fn describe_silent_processes(&self) -> String {
        format!(
            "after the loss of others, {} did not answer within {:?}: look for stopped processes",
            list(self.live().map(|process| process.to_string())),
            self.answer_deadline()
        )
    }

    fn describe_outstanding_calls(&self) -> String {
        let outstanding = self.live().map(|process| match self.census.answer_of(process) {
            Some(Counts { sent, executed }) => format!("{process} has sent {sent} calls and executed {executed}"),
            None => format!("{process} did not answer"),
        });
        format!(
            "it did not become idle within {:?} after its workers returned ({}): let workers wait for their calls, or \
             look for calls that send further calls without end",
            self.plan.finalize_deadline,
            list(outstanding)
        )
    }
}

impl ProcessState {
    fn peer_card(&self) -> Option<PeerCard> {
        Some(PeerCard { host: self.greeting.as_ref()?.host, card: self.card.clone()? })
    }
}

fn describe(shape: JobShape) -> String {
    let JobShape { processes, threads, without_body } = shape;
    format!("{processes} processes with {threads} threads and {without_body} pool threads each")
}

/// Joins the first [`NAMED_MAX`] items.
fn list(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.collect();
    if items.len() > NAMED_MAX {
        let more = items.len() - NAMED_MAX;
        items.truncate(NAMED_MAX);
        items.push(format!("and {more} more"));
    }
    items.join(", ")
}
