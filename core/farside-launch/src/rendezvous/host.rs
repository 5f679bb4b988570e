//! The coordinator in process 0: it runs on its own thread and holds the links with the processes.

mod strangers;

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farside_fabric::ProcessId;
use farside_sys::net::{Interest, MessageSocket, Waker, wait_ready};
use farside_sys::pmix::Session;
use farside_sys::process::random_bytes;

pub(crate) use self::strangers::{Request, Strangers};
use super::greeting::{Answer, Secret};
use super::groups::{Groups, complaint};
use crate::control::SocketControl;
use crate::control::link::{Link, LinkState, News};
use crate::coordinator::{Coordinator, Plan};
use crate::error::{LaunchError as Error, ProcessEnd, Result};
use crate::settings::{Limits, Settings};

/// The time that processes have to leave once all that remain have failed or know that the job
/// ended.
const GRACE: Duration = Duration::from_secs(2);

/// Process 0's handle on the coordinator's thread.
#[derive(Debug)]
pub struct Hosting {
    thread: JoinHandle<Result<()>>,
    own_end: Arc<OwnEnd>,
}

/// The end of process 0's own part in the job.
#[derive(Debug)]
struct OwnEnd {
    end: Mutex<Option<ProcessEnd>>,
    /// Wakes the coordinator when `end` is set.
    waker: Waker,
}

impl OwnEnd {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ProcessEnd>> {
        // The lock guards a plain value that no panic can leave half written.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listener for the other processes.
#[derive(Debug)]
pub(crate) struct Door {
    pub listener: TcpListener,
    pub secret: Secret,
    /// The PMIx session that published the bulletin.
    #[expect(dead_code, reason = "other processes can read the bulletin while the session is open")]
    pub pmix: Option<Session>,
}

/// The processes that can join a job, and those that have asked to.
#[derive(Debug)]
pub(crate) struct Guests {
    /// The connections without a proof. `None` in a job of one process.
    pub strangers: Option<Strangers>,
    pub groups: Groups,
    /// The requests with a valid proof, to be admitted.
    pub requests: Vec<Request>,
}

/// Starts the coordinator's thread. Returns process 0's link with it.
///
/// # Errors
/// - [`Error::JobShape`] if the job has more processes than this process may have connections.
/// - [`Error::System`] if a system call fails.
pub(crate) fn start(mut guests: Guests, settings: &Settings) -> Result<(Arc<SocketControl>, Hosting)> {
    settings.check_open_files("process 0", settings.processes.into(), &Limits::here())?;
    let failed = |doing| move |cause| Error::System { doing, cause };
    let random = failed("getting random bytes");
    let coordinator = Coordinator::new(Plan {
        processes: settings.processes,
        job_id: u64::from_le_bytes(random_bytes().map_err(random)?),
        secret: random_bytes().map_err(random)?,
        start_deadline: settings.deadline,
        finalize_deadline: settings.finalize_deadline,
    });
    let (near, far) = MessageSocket::pair().map_err(failed("making the link of process 0"))?;
    let waker = Waker::new().map_err(failed("making the link of process 0"))?;
    let own_end = Arc::new(OwnEnd { end: Mutex::default(), waker });
    let mut links: Vec<Option<Link>> = (0..settings.processes).map(|_| None).collect();
    links[0] = Some(Link::over_socket(near));
    if let Some(strangers) = &mut guests.strangers {
        strangers.expect(settings.processes);
    }
    let host = Host {
        coordinator,
        links,
        guests,
        own_end: own_end.clone(),
        started: Instant::now(),
        patience: settings.deadline,
        leave_by: None,
    };
    let thread = thread::Builder::new().name("farside coordinator".to_owned());
    let thread = thread.spawn(move || host.run()).map_err(failed("starting the coordinator's thread"))?;
    Ok((Arc::new(SocketControl::new(far)), Hosting { thread, own_end }))
}

impl Hosting {
    /// Runs process 0's own part. Returns when the whole job is over and all processes know it.
    ///
    /// # Errors
    /// The job's verdict. If process 0 itself was the first to fail, its own error.
    ///
    /// # Panics
    /// If `run` panics.
    pub fn see_through<E: From<Error>>(self, run: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // The panic resumes below. Nothing uses the state that it left until then.
        let outcome = catch_unwind(AssertUnwindSafe(run));
        *self.own_end.lock() = Some(ProcessEnd::Exited(match &outcome {
            Ok(Ok(())) => 0,
            Ok(Err(_)) => 1,
            Err(_) => 101,
        }));
        self.own_end.waker.wake();
        let verdict = self.thread.join();
        let own = outcome.unwrap_or_else(|panic| resume_unwind(panic));
        match verdict.unwrap_or_else(|panic| resume_unwind(panic)) {
            Err(Error::ProcessFailed { process, .. }) if process.number() == 0 && own.is_err() => own,
            verdict => verdict.map_err(E::from).and(own),
        }
    }
}

/// A running job.
#[derive(Debug)]
struct Host {
    coordinator: Coordinator,
    /// The links with the processes that have joined and not left.
    links: Vec<Option<Link>>,
    guests: Guests,
    own_end: Arc<OwnEnd>,
    started: Instant,
    /// The time that processes have to receive the order to return.
    patience: Duration,
    /// The time at which the coordinator stops waiting for processes that should have left.
    leave_by: Option<Instant>,
}

impl Host {
    fn run(mut self) -> Result<()> {
        self.admit_all();
        loop {
            while let Some((process, message)) = self.coordinator.next_message() {
                if let Some(link) = &mut self.links[process.index()] {
                    link.tell(&message);
                }
            }
            self.drop_stragglers();
            if let Some(verdict) = self.coordinator.verdict() {
                tracing::debug!(success = verdict.is_ok(), "all processes have ended");
                return verdict;
            }
            let ready = self.wait()?;
            self.listen(&ready);
            self.meet_strangers();
            self.coordinator.tick(self.started.elapsed());
        }
    }

    /// Counts processes as ended that should have left and did not in time.
    fn drop_stragglers(&mut self) {
        let stays = if self.coordinator.only_stragglers_run() {
            GRACE
        } else if self.coordinator.is_finished() {
            self.patience
        } else {
            return;
        };
        let now = Instant::now();
        let leave_by = *self.leave_by.get_or_insert(now + stays);
        let running: Vec<_> = self.coordinator.running().collect();
        for process in running {
            // A process that never joined is not waited for. Process 0 reports its own end.
            let is_absent = self.links[process.index()].is_none();
            if process.number() > 0 && (is_absent || now >= leave_by) {
                tracing::debug!(process = process.number(), "no longer waiting for the process to leave");
                self.links[process.index()] = None;
                self.coordinator.ended(process, ProcessEnd::Exited(0), self.started.elapsed());
            }
        }
    }

    /// Sleeps until there is work. Returns the processes whose links are ready.
    fn wait(&self) -> Result<Vec<ProcessId>> {
        let tick = self.coordinator.next_tick().and_then(|at| self.started.checked_add(at));
        let strangers = self.guests.strangers.as_ref().and_then(Strangers::next_deadline);
        // A deadline that has passed was handled by `drop_stragglers`.
        let leave_by = self.leave_by.filter(|at| *at > Instant::now());
        let deadline = [tick, strangers, leave_by].into_iter().flatten().min();

        let mut interests = Vec::with_capacity(self.links.len() + 8);
        let mut owners = Vec::with_capacity(self.links.len());
        for (process, link) in (0..).map(ProcessId::new).zip(&self.links) {
            if let Some(link) = link {
                interests.push(Interest { fd: link.fd(), writable: link.has_unsent() });
                owners.push(process);
            }
        }
        interests.push(Interest { fd: self.own_end.waker.as_fd(), writable: false });
        if let Some(strangers) = &self.guests.strangers {
            interests.extend(strangers.interests());
        }
        let doing = "waiting for the processes of the job";
        let ready = wait_ready(&interests, deadline).map_err(|cause| Error::System { doing, cause })?;
        Ok(owners.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(owner, _)| owner).collect())
    }

    /// Passes the processes' messages and ends on to the coordinator.
    fn listen(&mut self, ready: &[ProcessId]) {
        let news = ready.iter().filter_map(|process| self.news_of(*process)).collect();
        let now = self.started.elapsed();
        self.coordinator.heard(news, now);
        self.own_end.waker.reset();
        // Process 0's last messages are in its link by now. Take those that arrived just before its
        // end.
        let ended = self.own_end.lock().clone();
        if let Some(end) = ended {
            let process = ProcessId::new(0);
            let rest = self.news_of(process).map_or(Vec::new(), |news| news.messages);
            rest.into_iter().for_each(|message| self.coordinator.said(process, message, now));
            self.coordinator.ended(process, end, now);
        }
    }

    fn news_of(&mut self, process: ProcessId) -> Option<News> {
        let link = self.links[process.index()].as_mut()?;
        link.flush();
        let mut messages = Vec::new();
        let mut end = None;
        if link.receive(&mut messages) == LinkState::Closed {
            self.links[process.index()] = None;
            end = Some(if self.coordinator.is_finished() {
                ProcessEnd::Exited(0)
            } else {
                ProcessEnd::Reported("its connection with process 0 ended: it ended, or the network was cut".into())
            });
        }
        Some(News { process, messages, end })
    }

    /// Accepts strangers and admits those with a valid proof.
    fn meet_strangers(&mut self) {
        let Some(strangers) = &mut self.guests.strangers else { return };
        let (requests, turned_away) = strangers.meet();
        turned_away.into_iter().for_each(|why| self.coordinator.turned_away(why));
        self.guests.requests.extend(requests);
        self.admit_all();
    }

    /// Admits the requests for a free seat, and refuses the others.
    fn admit_all(&mut self) {
        for request in std::mem::take(&mut self.guests.requests) {
            let claim = *request.claim();
            match self.guests.groups.seat(&claim) {
                Ok(seat) => {
                    let place = ProcessId::new(seat.process);
                    let is_free = self.coordinator.running().any(|running| running == place);
                    match self.links.get_mut(place.index()) {
                        Some(link @ None) if is_free => {
                            tracing::debug!(process = seat.process, address = %request.address(), "process joined");
                            *link = Some(request.welcome(seat));
                        }
                        _ => self.refuse(request, Answer::Taken),
                    }
                }
                Err(answer) => self.refuse(request, answer),
            }
        }
    }

    /// Refuses a process that knows the secret but was started wrongly. The job cannot become
    /// complete and is given up.
    fn refuse(&mut self, request: Request, answer: Answer) {
        let why = complaint(request.claim(), answer);
        tracing::warn!(address = %request.address(), why, "process refused");
        self.coordinator.give_up(why);
        request.refuse(answer);
    }
}
