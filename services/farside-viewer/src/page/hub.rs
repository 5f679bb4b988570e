//! [`Hub`]: one reader for all viewers of the same topic.
//!
//! A *topic* is what several viewers may watch: the jobs, what a job shows, or elements of an area
//! at a rate. Each topic that someone watches has one thread, which reads it and keeps the newest
//! [`News`]. It rings the bell of each viewer. It never waits for a viewer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use farside_inspect::__private::lock;
use serde_json::Value;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::client::{At, InspectError};
use crate::session::{Answer, Fields, Session, SessionError, failure};

/// The number of topics that are watched at once, by all viewers together.
const TOPICS_MAX: usize = 64;
/// The memory of all frames that are sent or kept, in KiB.
const MEMORY_KIB_MAX: usize = 256 << 10;
/// The period of topics that are no areas.
const LIST_PERIOD: Duration = Duration::from_secs(1);
/// The same at first: a program that has just begun shows more from moment to moment.
const FIRST_LIST_PERIOD: Duration = Duration::from_millis(50);
/// How long that lasts.
const FIRST_TIME: Duration = Duration::from_secs(5);
/// The periods that an area may have, in milliseconds.
const PERIODS_MS: std::ops::RangeInclusive<u64> = 8..=60_000;

/// A topic that may be watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// The jobs that there are.
    Jobs,
    /// The areas of a job.
    List { job: String },
    /// The activity of the workers of a job.
    Workers { job: String },
    /// Elements of an area, once in a period.
    Area { job: String, area: String, select: String, period_ms: u64 },
    /// The answers of all workers to a probe.
    Probe { job: String, probe: String, question: String, period_ms: u64 },
}

impl Topic {
    /// Reads a topic from a question.
    pub(super) fn of(question: &Value) -> Result<Self, SessionError> {
        let mut fields = Fields::of(question)?;
        let topic = match fields.text("watch")?.as_str() {
            "jobs" => Self::Jobs,
            "list" => Self::List { job: fields.text_or_empty("job")? },
            "workers" => Self::Workers { job: fields.text_or_empty("job")? },
            "area" => Self::Area {
                job: fields.text_or_empty("job")?,
                area: fields.text("area")?,
                select: fields.text_or_empty("select")?,
                period_ms: fields.number("period_ms")?.unwrap_or(100),
            },
            "probe" => Self::Probe {
                job: fields.text_or_empty("job")?,
                probe: fields.text("probe")?,
                question: fields.text_or_empty("question")?,
                period_ms: fields.number("period_ms")?.unwrap_or(1000),
            },
            other => return Err(SessionError::Question(format!("nothing called {other:?} can be watched"))),
        };
        fields.end()?;
        match &topic {
            Self::Area { period_ms, .. } | Self::Probe { period_ms, .. } if !PERIODS_MS.contains(period_ms) => {
                Err(SessionError::Question(format!("\"period_ms\" is not in {PERIODS_MS:?}")))
            }
            _ => Ok(topic),
        }
    }

    /// The time from one reading to the next, for a topic that has been watched for some time.
    fn period(&self, watched: Duration) -> Duration {
        match self {
            Self::Jobs | Self::List { .. } if watched < FIRST_TIME => FIRST_LIST_PERIOD,
            Self::Jobs | Self::List { .. } | Self::Workers { .. } => LIST_PERIOD,
            Self::Area { period_ms, .. } | Self::Probe { period_ms, .. } => Duration::from_millis(*period_ms),
        }
    }
}

/// The news of a topic.
pub(super) struct News {
    /// Rises by one with each that is read.
    pub(super) number: u64,
    pub(super) answer: Answer,
    /// The memory of the answer.
    _memory: OwnedSemaphorePermit,
}

/// The viewers of a topic, and the newest that was read for them.
struct Channel {
    state: Mutex<ChannelState>,
    /// Wakes the reader when the hub closes.
    wake: Condvar,
}

struct ChannelState {
    newest: Option<Arc<News>>,
    viewers: Vec<Weak<Notify>>,
}

/// A viewer's place at a topic.
pub(super) struct Place {
    channel: Arc<Channel>,
    seen: u64,
}

impl Place {
    /// The news since the last look, and the number of skipped ones.
    pub(super) fn look(&mut self) -> Option<(Arc<News>, u64)> {
        let newest = lock(&self.channel.state).newest.clone()?;
        let skipped = newest.number.checked_sub(self.seen + 1)?;
        let skipped = if self.seen == 0 { 0 } else { skipped };
        self.seen = newest.number;
        Some((newest, skipped))
    }
}

/// All topics that someone watches.
pub(super) struct Hub {
    session: Session,
    topics: Mutex<BTreeMap<Topic, Arc<Channel>>>,
    memory: Arc<Semaphore>,
    is_closing: AtomicBool,
    frames: AtomicU64,
    dropped: AtomicU64,
}

/// The counters of a hub.
pub(super) struct Counts {
    pub(super) readers: usize,
    pub(super) frames: u64,
    /// Frames for which there was no memory, because viewers hold too many.
    pub(super) dropped: u64,
}

impl Hub {
    pub(super) fn new(session: Session) -> Arc<Self> {
        Arc::new(Self {
            session,
            topics: Mutex::default(),
            memory: Arc::new(Semaphore::new(MEMORY_KIB_MAX)),
            is_closing: AtomicBool::new(false),
            frames: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn counts(&self) -> Counts {
        let readers = lock(&self.topics).len();
        let (frames, dropped) = (self.frames.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed));
        Counts { readers, frames, dropped }
    }

    /// Ends all readers.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        for channel in lock(&self.topics).values() {
            // The lock orders this after the reader's look at the flag.
            let _state = lock(&channel.state);
            channel.wake.notify_all();
        }
    }

    /// Gives a viewer a place at a topic. Its bell rings when there is something new.
    pub(super) fn watch(self: &Arc<Self>, topic: Topic, bell: &Arc<Notify>) -> Result<Place, SessionError> {
        let mut topics = lock(&self.topics);
        if let Some(channel) = topics.get(&topic) {
            lock(&channel.state).viewers.push(Arc::downgrade(bell));
            bell.notify_one();
            return Ok(Place { channel: Arc::clone(channel), seen: 0 });
        }
        if topics.len() >= TOPICS_MAX {
            let full = format!("{TOPICS_MAX} areas are watched at once, and no more can be: close some");
            return Err(SessionError::Question(full));
        }
        let state = ChannelState { newest: None, viewers: vec![Arc::downgrade(bell)] };
        let channel = Arc::new(Channel { state: Mutex::new(state), wake: Condvar::new() });
        let (hub, read, place) = (Arc::clone(self), Arc::clone(&channel), topic.clone());
        let started = std::thread::Builder::new().name("farside-reader".into()).spawn(move || hub.run(&place, &read));
        started.map_err(|error| SessionError::Question(format!("no thread can be started for it: {error}")))?;
        topics.insert(topic, Arc::clone(&channel));
        Ok(Place { channel, seen: 0 })
    }

    /// Reads a topic while someone watches it.
    fn run(&self, topic: &Topic, channel: &Channel) {
        let begun = Instant::now();
        let mut due = begun;
        while !self.is_deserted(topic, channel) {
            match self.read(topic) {
                Ok(answer) => self.publish(channel, answer),
                // The program is slower than the rate, or stands still. What was read last holds.
                Err(SessionError::Inspect(InspectError::NotThere { .. })) if has_news(channel) => {}
                Err(error) => self.publish(channel, Answer { head: failure(&error), body: Vec::new() }),
            }
            due = (due + topic.period(begun.elapsed())).max(Instant::now());
            let mut state = lock(&channel.state);
            while !self.is_closing.load(Ordering::Relaxed) {
                let Some(rest) = due.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) else {
                    break;
                };
                state = channel.wake.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    fn read(&self, topic: &Topic) -> Result<Answer, SessionError> {
        let plain = |head| Answer { head, body: Vec::new() };
        match topic {
            Topic::Jobs => self.session.jobs().map(plain),
            Topic::List { job } => self.session.list(job).map(plain),
            Topic::Workers { job } => self.session.workers(job).map(plain),
            Topic::Probe { job, probe, question, .. } => self.session.ask(job, probe, None, question).map(plain),
            Topic::Area { job, area, select, .. } => self.session.get(job, area, select, At::Now),
        }
    }

    fn publish(&self, channel: &Channel, answer: Answer) {
        let last = lock(&channel.state).newest.clone();
        if last.as_ref().is_some_and(|last| last.answer == answer) {
            return;
        }
        let kib = answer.body.len().div_ceil(1024) as u32;
        let Ok(memory) = Arc::clone(&self.memory).try_acquire_many_owned(kib) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.frames.fetch_add(1, Ordering::Relaxed);
        let number = last.map_or(0, |last| last.number) + 1;
        let mut state = lock(&channel.state);
        state.newest = Some(Arc::new(News { number, answer, _memory: memory }));
        for bell in state.viewers.iter().filter_map(Weak::upgrade) {
            bell.notify_one();
        }
    }

    /// Returns whether no one watches the topic any more. Then it is forgotten.
    fn is_deserted(&self, topic: &Topic, channel: &Channel) -> bool {
        let mut topics = lock(&self.topics);
        let mut state = lock(&channel.state);
        state.viewers.retain(|viewer| viewer.strong_count() > 0);
        let is_deserted = state.viewers.is_empty() || self.is_closing.load(Ordering::Relaxed);
        if is_deserted {
            topics.remove(topic);
        }
        is_deserted
    }
}

/// Returns whether something but a failure was read of a topic.
fn has_news(channel: &Channel) -> bool {
    lock(&channel.state).newest.as_ref().is_some_and(|newest| newest.answer.head.get("error").is_none())
}
