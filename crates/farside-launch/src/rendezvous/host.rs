//! Process 0 runs the job for all: the coordinator, on a thread of its own, and the links with the processes.

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

/// How long a process may stay that has failed or was told that the job is over, when it is the only kind left.
const GRACE: Duration = Duration::from_secs(2);

/// The thread that runs the job, for process 0 itself.
#[derive(Debug)]
pub struct Hosting {
    thread: JoinHandle<Result<()>>,
    own_end: Arc<OwnEnd>,
}

/// How process 0's own part in the job ended.
#[derive(Debug)]
struct OwnEnd {
    end: Mutex<Option<ProcessEnd>>,
    /// Woken when it has.
    waker: Waker,
}

impl OwnEnd {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ProcessEnd>> {
        // The lock guards a plain value that no panic can leave half written.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the other processes come in.
#[derive(Debug)]
pub(crate) struct Door {
    pub listener: TcpListener,
    pub secret: Secret,
    /// By what the others find it.
    #[expect(dead_code, reason = "it is held for as long as others may read what it published")]
    pub pmix: Option<Session>,
}

/// Who can come to a job, and who has.
#[derive(Debug)]
pub(crate) struct Guests {
    /// Those who have not proven anything. None come to a job of one process.
    pub strangers: Option<Strangers>,
    pub groups: Groups,
    /// Those who have, and wait to be let in.
    pub requests: Vec<Request>,
}

/// Starts to run a job. Returns process 0's link with it.
///
/// # Errors
/// [`Error::JobShape`] when the processes are more than this one may have connections; [`Error::System`].
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
    /// Runs process 0's own part, and returns when the whole job is over and all have been told.
    ///
    /// # Errors
    /// The job's verdict. Where process 0 itself was the first to fail, its own error.
    ///
    /// # Panics
    /// When `run` does.
    pub fn see_through<E: From<Error>>(self, run: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // The panic goes on below; whatever it left behind, nobody looks at before.
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

/// A job that runs.
#[derive(Debug)]
struct Host {
    coordinator: Coordinator,
    /// With those that have come and not gone.
    links: Vec<Option<Link>>,
    guests: Guests,
    own_end: Arc<OwnEnd>,
    started: Instant,
    /// How long those that were told to return may take until they have heard it.
    patience: Duration,
    /// When those that have no reason to stay are left to themselves.
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
            self.let_go();
            if let Some(verdict) = self.coordinator.verdict() {
                return verdict;
            }
            let ready = self.wait()?;
            self.listen(&ready);
            self.meet_strangers();
            self.coordinator.tick(self.started.elapsed());
        }
    }

    /// Counts those as ended that have no reason to stay and do not go.
    fn let_go(&mut self) {
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
            // Who never came will not be waited for, and process 0 is here until it says that it is done.
            let is_absent = self.links[process.index()].is_none();
            if process.number() > 0 && (is_absent || now >= leave_by) {
                self.links[process.index()] = None;
                self.coordinator.ended(process, ProcessEnd::Exited(0), self.started.elapsed());
            }
        }
    }

    /// Sleeps until there is something to do. Returns whose links are ready.
    fn wait(&self) -> Result<Vec<ProcessId>> {
        let tick = self.coordinator.next_tick().and_then(|at| self.started.checked_add(at));
        let strangers = self.guests.strangers.as_ref().and_then(Strangers::next_deadline);
        // Whoever was counted as gone is not waited for again.
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

    /// Passes on what the processes said and which of them have gone.
    fn listen(&mut self, ready: &[ProcessId]) {
        let mut news: Vec<_> = ready.iter().filter_map(|process| self.news_of(*process)).collect();
        // Of what came to light together, an end without a word came first: to fail in an orderly way takes longer, and may
        // be what a process did because it missed the other.
        news.sort_by_key(|news| !news.is_sudden_end());
        let now = self.started.elapsed();
        for news in news {
            for message in news.messages {
                self.coordinator.said(news.process, message, now);
            }
            if let Some(end) = news.end {
                self.coordinator.ended(news.process, end, now);
            }
        }
        self.own_end.waker.reset();
        // What process 0 said before is in its link by now, and was taken from there unless it came this moment.
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

    /// Hears who wants to come in.
    fn meet_strangers(&mut self) {
        let Some(strangers) = &mut self.guests.strangers else { return };
        let (requests, turned_away) = strangers.meet();
        turned_away.into_iter().for_each(|why| self.coordinator.turned_away(why));
        self.guests.requests.extend(requests);
        self.admit_all();
    }

    /// Lets those in who have a seat in the job.
    fn admit_all(&mut self) {
        for request in std::mem::take(&mut self.guests.requests) {
            let claim = *request.claim();
            match self.guests.groups.seat(&claim) {
                Ok(seat) => {
                    let place = ProcessId::new(seat.process);
                    let is_free = self.coordinator.running().any(|running| running == place);
                    match self.links.get_mut(place.index()) {
                        Some(link @ None) if is_free => *link = Some(request.welcome(seat)),
                        _ => self.refuse(request, Answer::Taken),
                    }
                }
                Err(answer) => self.refuse(request, answer),
            }
        }
    }

    /// Somebody who knows the secret was started wrongly, so that the job cannot become whole.
    fn refuse(&mut self, request: Request, answer: Answer) {
        self.coordinator.give_up(complaint(request.claim(), answer));
        request.refuse(answer);
    }
}
