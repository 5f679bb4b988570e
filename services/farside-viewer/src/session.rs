//! [`Session`]: questions and answers as JSON.
//!
//! The page's server, Python and scripts ask through it. A question is an object whose `do` says
//! what is asked:
//!
//! | `do` | further fields | answer |
//! |---|---|---|
//! | `jobs` | – | `jobs`: [`job_object`] of each |
//! | `list` | `job` | `areas`: [`area_object`] of each; `paused`, if the job is |
//! | `get` | `job`, `area`, `select`, `step` | `name`, `type`, `shape`, `units`, `step`, and the elements |
//! | `parts` | `job`, `area`, `select`, `step`, `in_place` | `step`, `type`, `shape`, `parts`; or the answer of `get` |
//! | `valid` | `pin` or `pins` | `valid` |
//! | `unpin` | `unpin` | – |
//! | `put` | `job`, `area`, `select`, `values` | `step` |
//! | `set` | `job`, `parameter`, `value` | `step` |
//! | `act` | `job`, `action` | `step` |
//! | `ask` | `job`, `probe`, `worker`, `question` | `answers`: `worker` and `answer` of each |
//! | `workers` | `job` | [`workers_object`], since the last such question |
//! | `pause` | `job`, `step` | `step` at which the job stands |
//! | `next` | `job` | the same, one step later |
//! | `resume` | `job` | – |
//! | `lock`, `unlock` | `job`, `area` | – |
//!
//! `job` is a job's name, its number or both; without it, the only job is meant. `select` is the
//! text of a [`Selection`]; without it, all is meant. Without `step` it is the next step that can
//! be had. A field that a question does not have is refused.
//!
//! `values` of `put` is a list of numbers in row-major order, or one number for all places. A
//! question with `bytes` instead has elements behind it, as an answer has. The `step` in the answer
//! to a change is the last one before it, or `null` if the job publishes none. A pause and a lock
//! last until they are undone or the session ends. An answer of a probe that is JSON is part of the
//! object as such; otherwise it is a text.
//!
//! If a process is gone, the answer of `get` has the elements of the others, and a list `missing`:
//! [`missing_object`] of each part that is not there.
//!
//! `parts` pins a step: the answer says where [`Pinned`] elements are, so that the client can read
//! them in place. Each item of `parts` has the elements of one worker. Its `file` is to be opened
//! for reading and mapped; the worker's part begins at `offset`, in row-major order of `shape`. An
//! item of `places` is one place, or the start, the step and the number of places. `block` is the
//! place of the elements in the selection: the first place and the number of places by dimension.
//! The answer of `valid` to a list of each `pin` says whether the memory has been the step's up to
//! then. A session keeps 64 pins, and beyond that drops the oldest. Any question may have a list
//! `unpin` of pins that it ends. If the elements are few or cannot be mapped, the answer is that of
//! `get`; with `in_place` true, all are pinned, and an error says why that cannot be.
//!
//! The elements of the type `struct` have `bytes_each` bytes each, and `fields`: `name`, `type`,
//! `offset` and `shape` of each.
//!
//! An answer is an object, and elements behind it, in row-major order and in the machine's order of
//! bytes. If something failed, the object has the field `error`, with the reason.

mod encode;
mod lines;
mod objects;
mod question;
mod workers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_inspect::__private::lock;
use farside_inspect::Refused;
use serde_json::{Value, json};

pub use self::lines::serve_lines;
use self::objects::add_fields;
pub use self::objects::{area_object, job_object, missing_object, value, values};
pub(crate) use self::question::Fields;
pub use self::workers::workers_object;
use crate::client::{Area, At, InspectError, Inspector, Locked, Paused, Pinned, WorkerState, jobs};
use crate::selection::{Places, Selection, SelectionError};
use crate::target::Target;

/// The most opened areas that are kept. Beyond, all are opened again when they are asked for.
const AREAS_MAX: usize = 1024;
/// The most steps that are pinned.
const PINS_MAX: usize = 64;
/// The size from which on elements of several workers are pinned. Fewer are copied sooner.
const PARTS_MIN: u64 = 64 << 10;

/// Opened areas, by job and name.
type Opened = BTreeMap<(String, String), Arc<Area<()>>>;

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// An object.
    pub head: Value,
    /// Elements, for those questions that ask for some.
    pub body: Vec<u8>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The question has another form.
    #[error("invalid question: {0}")]
    Question(String),
    /// The session is for another job.
    #[error("this session is for the job {only:?}, not for {wanted:?}: start another one")]
    OtherJob {
        /// The job of the session.
        only: String,
        /// The job that was asked for.
        wanted: String,
    },
    /// More bytes are selected than are read at once.
    #[error("{bytes} bytes are selected, and {max} are the limit: select less, such as every second place with [::2]")]
    TooLarge {
        /// The bytes selected.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The job is not paused.
    #[error("the job {job:?} is not paused: have it pause first")]
    NotPaused {
        /// The job.
        job: String,
    },
    /// The area is not locked.
    #[error("{area:?} is not locked: lock it first; a lock ends after 10 s in any case")]
    NotLocked {
        /// The name of the area.
        area: String,
    },
    /// The values do not fit the area.
    #[error("the values do not fit: {0}")]
    Values(String),
    /// The look into the job failed.
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

impl From<SelectionError> for SessionError {
    fn from(error: SelectionError) -> Self {
        Self::Inspect(error.into())
    }
}

/// Answers questions about running jobs. Connections and opened areas are kept between questions.
///
/// ```no_run
/// use farside_viewer::session::Session;
/// use serde_json::json;
///
/// let session = Session::new("", std::time::Duration::from_secs(5));
/// let question = json!({ "do": "get", "area": "temperature", "select": "[::4, ::4]" });
/// let answer = session.answer(&question, &[]);
/// println!("step {}: {} bytes", answer.head["step"], answer.body.len());
/// ```
#[derive(Debug)]
pub struct Session {
    only: Target,
    time: Duration,
    bytes_max: u64,
    jobs: Mutex<BTreeMap<String, Inspector>>,
    areas: Mutex<Opened>,
    pauses: Mutex<BTreeMap<String, Arc<Paused>>>,
    locks: Mutex<BTreeMap<(String, String), Arc<Locked>>>,
    /// The last step before the last change of each job by this session.
    changes: Mutex<BTreeMap<String, u64>>,
    /// The last look at the workers of each job.
    looks: Mutex<BTreeMap<String, Vec<WorkerState>>>,
    pins: Mutex<Pins>,
}

/// Steps that are pinned, by number.
#[derive(Debug, Default)]
struct Pins {
    all: BTreeMap<u64, Pinned>,
    last: u64,
}

impl Session {
    /// Creates a session for one job, or for all jobs of this machine if `job` is empty. Each
    /// question has this time.
    #[must_use]
    pub fn new(job: impl Into<Target>, time: Duration) -> Self {
        Self {
            only: job.into(),
            time,
            bytes_max: u64::MAX,
            jobs: Mutex::default(),
            areas: Mutex::default(),
            pauses: Mutex::default(),
            locks: Mutex::default(),
            changes: Mutex::default(),
            looks: Mutex::default(),
            pins: Mutex::default(),
        }
    }

    /// Refuses to read more bytes at once. The default is no limit.
    #[must_use]
    pub fn bytes_max(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    /// Answers a question. `elements` are those behind it. A failure is an answer, too.
    #[must_use]
    pub fn answer(&self, question: &Value, elements: &[u8]) -> Answer {
        self.try_answer(question, elements).unwrap_or_else(|error| Answer { head: failure(&error), body: Vec::new() })
    }

    fn try_answer(&self, question: &Value, elements: &[u8]) -> Result<Answer, SessionError> {
        let mut fields = Fields::of(question)?;
        let asked = fields.text("do")?;
        for pin in fields.numbers("unpin")? {
            lock(&self.pins).all.remove(&pin);
        }
        if asked == "jobs" {
            fields.end()?;
            return Ok(Answer { head: self.jobs()?, body: Vec::new() });
        }
        let job = fields.text_or_empty("job")?;
        let head = match asked.as_str() {
            "list" => {
                fields.end()?;
                self.list(&job)?
            }
            "get" => {
                let (area, select) = (fields.text("area")?, fields.text_or_empty("select")?);
                let step = fields.number("step")?;
                fields.end()?;
                return self.get(&job, &area, &select, step.map_or(At::Now, At::Step));
            }
            "parts" => {
                let (area, select) = (fields.text("area")?, fields.text_or_empty("select")?);
                let at = fields.number("step")?.map_or(At::Now, At::Step);
                let in_place = fields.flag("in_place")?;
                fields.end()?;
                match self.parts(&job, &area, &select, at, in_place)? {
                    Some(head) => head,
                    None => return self.get(&job, &area, &select, at),
                }
            }
            "valid" => {
                let mut asked = fields.numbers("pins")?;
                asked.extend(fields.number("pin")?);
                fields.end()?;
                let pins = lock(&self.pins);
                let is_valid = |pin: &u64| pins.all.get(pin).is_some_and(Pinned::is_valid);
                json!({ "valid": !asked.is_empty() && asked.iter().all(is_valid) })
            }
            "unpin" => {
                fields.end()?;
                json!({})
            }
            "put" => {
                let (area, select) = (fields.text("area")?, fields.text_or_empty("select")?);
                let (values, bytes) = (fields.value("values"), fields.number("bytes")?);
                fields.end()?;
                if values.is_some() == bytes.is_some() {
                    return Err(SessionError::Question("give either \"values\" or \"bytes\"".into()));
                }
                let step = self.put(&job, &area, &select, values.as_ref(), elements)?;
                self.changed(job, step)
            }
            "set" => {
                let (parameter, value) = (fields.text("parameter")?, fields.float("value")?);
                fields.end()?;
                let step = self.again_if_lost(&job, |inspector| Ok(inspector.set(&parameter, value)?))?;
                self.changed(job, step)
            }
            "act" => {
                let action = fields.text("action")?;
                fields.end()?;
                // An action is not started twice.
                let step = self.inspector(&job)?.act(&action)?;
                self.changed(job, step)
            }
            "ask" => {
                let (probe, worker) = (fields.text("probe")?, fields.number("worker")?);
                let question = fields.text_or_empty("question")?;
                fields.end()?;
                let worker = worker.map(|worker| u32::try_from(worker).unwrap_or(u32::MAX));
                self.ask(&job, &probe, worker, &question)?
            }
            "workers" => {
                fields.end()?;
                self.workers(&job)?
            }
            "pause" => {
                let step = fields.number("step")?;
                fields.end()?;
                let paused = self.inspector(&job)?.pause_at(step.map_or(At::Next, At::Step))?;
                let step = paused.step();
                lock(&self.pauses).insert(job, paused.into());
                json!({ "step": step })
            }
            "next" => {
                fields.end()?;
                let inspector = self.inspector(&job)?;
                // A pause of another reader can be moved on, too.
                let own = lock(&self.pauses).get(&job).cloned();
                let step = match own.map(|own| (own.go_to_next(), own)) {
                    Some((step, own)) if !own.has_ended() => step?,
                    _ => Some(inspector.step_on()?.ok_or_else(|| SessionError::NotPaused { job: job.clone() })?),
                };
                json!({ "step": step })
            }
            "resume" => {
                fields.end()?;
                let own = lock(&self.pauses).remove(&job);
                let was_own = own.is_some();
                drop(own);
                if !was_own && !self.inspector(&job)?.resume()? {
                    return Err(SessionError::NotPaused { job });
                }
                json!({})
            }
            "lock" => {
                let area = fields.text("area")?;
                fields.end()?;
                let locked = self.inspector(&job)?.lock(&area)?;
                lock(&self.locks).insert((job, area), locked.into());
                json!({})
            }
            "unlock" => {
                let area = fields.text("area")?;
                fields.end()?;
                let own = lock(&self.locks).remove(&(job.clone(), area.clone()));
                let was_own = own.is_some();
                drop(own);
                if !was_own && !self.inspector(&job)?.unlock(&area)? {
                    return Err(SessionError::NotLocked { area });
                }
                json!({})
            }
            other => return Err(SessionError::Question(format!("nothing is called {other:?}"))),
        };
        Ok(Answer { head, body: Vec::new() })
    }

    /// The jobs that there are.
    pub(crate) fn jobs(&self) -> Result<Value, SessionError> {
        if self.only.network().is_some() {
            return match self.inspector("").and_then(|inspector| Ok(inspector.found()?)) {
                Ok(job) => Ok(json!({ "jobs": [job_object(&job)] })),
                // It has ended.
                Err(SessionError::Inspect(InspectError::NoJob { .. })) => Ok(json!({ "jobs": [] })),
                Err(error) => Err(error),
            };
        }
        let (jobs, only) = (jobs()?, self.only.text());
        let is_meant = |job: &&crate::JobInfo| only.is_empty() || job.id.is_meant_by(only);
        Ok(json!({ "jobs": jobs.iter().filter(is_meant).map(job_object).collect::<Vec<_>>() }))
    }

    /// The areas of a job, and its pause if it has one.
    pub(crate) fn list(&self, job: &str) -> Result<Value, SessionError> {
        let ask = |inspector: &Inspector| Ok((inspector.list()?, inspector.is_paused()?));
        let (areas, paused) = self.again_if_lost(job, ask)?;
        let mut head = json!({ "areas": areas.iter().map(area_object).collect::<Vec<_>>() });
        if let Some(step) = paused {
            head["paused"] = json!({ "step": step });
        }
        Ok(head)
    }

    /// Elements of an area.
    pub(crate) fn get(&self, job: &str, name: &str, select: &str, at: At) -> Result<Answer, SessionError> {
        let selection = selection(select)?;
        self.again_if_lost(job, |inspector| {
            let area = self.area(inspector, job, name)?;
            let info = area.info();
            let bytes = selection.of(&info.shape)?.count().saturating_mul(info.element.bytes() as u64);
            if bytes > self.bytes_max {
                return Err(SessionError::TooLarge { bytes, max: self.bytes_max });
            }
            let mut frame = area.get_raw(&selection, at)?;
            if at == At::Now && self.is_outdated_step(job, frame.step) {
                frame = area.get_raw(&selection, At::Next)?;
            }
            let (element, units) = (frame.element.name(), &info.units);
            let mut head = json!({
                "name": frame.name, "type": element, "shape": frame.shape, "units": units, "step": frame.step,
            });
            add_fields(&mut head, frame.element.bytes(), &frame.fields);
            if !frame.missing.is_empty() {
                head["missing"] = frame.missing.iter().map(missing_object).collect();
            }
            Ok(Answer { head, body: frame.bytes })
        })
    }

    /// Pins elements of an area. Returns `None` if they are few or cannot be mapped, unless the
    /// caller needs them `in_place`.
    fn parts(
        &self,
        job: &str,
        name: &str,
        select: &str,
        at: At,
        in_place: bool,
    ) -> Result<Option<Value>, SessionError> {
        let selection = selection(select)?;
        self.again_if_lost(job, |inspector| {
            let area = self.area(inspector, job, name)?;
            let selected = selection.of(&area.info().shape)?;
            let shape = selected.shape();
            let bytes = selected.count().saturating_mul(area.info().element.bytes() as u64);
            if bytes < PARTS_MIN && !in_place {
                return Ok(None);
            }
            let pin = |at| match area.pin_all(&selection, at) {
                Err(InspectError::NotMapped { .. } | InspectError::Incomplete { .. }) if !in_place => Ok(None),
                pinned => pinned.map(Some),
            };
            let mut all = pin(at)?;
            if all.as_ref().is_some_and(|all| at == At::Now && self.is_outdated_step(job, Some(all[0].step()))) {
                all = pin(At::Next)?;
            }
            let Some(all) = all else { return Ok(None) };
            let (element, step) = (area.info().element, all[0].step());
            let mut head = json!({ "name": name, "type": element.name(), "shape": shape, "step": step });
            add_fields(&mut head, element.bytes(), &area.info().fields);
            let part = |pinned: Pinned| {
                let mut part = json!({ "block": pinned.block() });
                self.keep(pinned, &mut part);
                part
            };
            head["parts"] = all.into_iter().map(part).collect();
            Ok(Some(head))
        })
    }

    /// Returns whether a step is from before the last change by this session. Who changes something
    /// and then reads sees the change.
    fn is_outdated_step(&self, job: &str, step: Option<u64>) -> bool {
        let is_before = step.is_some_and(|step| lock(&self.changes).get(job).is_some_and(|last| step <= *last));
        is_before && lock(&self.pauses).get(job).is_none_or(|paused| paused.has_ended())
    }

    /// Keeps what is pinned, and says where it is.
    fn keep(&self, pinned: Pinned, head: &mut Value) {
        let places = pinned.places().iter().map(|places| match *places {
            Places::One(place) => json!(place),
            Places::Many { start, step, count } => json!([start, step, count]),
        });
        head["places"] = places.collect();
        (head["file"], head["offset"]) = (json!(pinned.file()), pinned.offset().into());
        head["shape"] = json!(pinned.shape());
        let mut pins = lock(&self.pins);
        pins.last += 1;
        let number = pins.last;
        pins.all.insert(number, pinned);
        let oldest = if pins.all.len() > PINS_MAX { pins.all.pop_first() } else { None };
        drop(pins);
        drop(oldest);
        head["pin"] = number.into();
    }

    fn put(
        &self,
        job: &str,
        name: &str,
        select: &str,
        values: Option<&Value>,
        elements: &[u8],
    ) -> Result<Option<u64>, SessionError> {
        let selection = selection(select)?;
        let inspector = self.inspector(job)?;
        let area = self.area(&inspector, job, name)?;
        // Others ask meanwhile.
        let locked = lock(&self.locks).get(&(job.to_owned(), name.to_owned())).cloned();
        let encoded = match values {
            None => None,
            Some(values) => {
                let count = selection.of(&area.info().shape)?.count();
                Some(encode::encode(values, count, area.info().element)?)
            }
        };
        Ok(area.put_locked(&selection, encoded.as_deref().unwrap_or(elements), locked.as_deref())?)
    }

    /// Notes a change, and answers with the last step before it.
    fn changed(&self, job: String, step: Option<u64>) -> Value {
        if let Some(step) = step {
            lock(&self.changes).insert(job, step);
        }
        json!({ "step": step })
    }

    /// Asks a probe.
    pub(crate) fn ask(
        &self,
        job: &str,
        probe: &str,
        worker: Option<u32>,
        question: &str,
    ) -> Result<Value, SessionError> {
        let answers = self.again_if_lost(job, |inspector| Ok(inspector.ask(probe, worker, question)?))?;
        let answer = |(worker, bytes): (u32, Vec<u8>)| {
            let text = || String::from_utf8_lossy(&bytes).into_owned().into();
            let answer: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
            json!({ "worker": worker, "answer": answer })
        };
        Ok(json!({ "answers": answers.into_iter().map(answer).collect::<Vec<_>>() }))
    }

    /// The activity of the workers of a job, and the use of their time since the last question for
    /// it.
    pub(crate) fn workers(&self, job: &str) -> Result<Value, SessionError> {
        let now = self.again_if_lost(job, |inspector| Ok(inspector.workers()?))?;
        let before = lock(&self.looks).insert(job.into(), now.clone());
        Ok(workers_object(&before.unwrap_or_default(), &now))
    }

    /// Lets all jobs go on that this session has paused, and undoes its locks.
    pub fn let_go(&self) {
        let (pauses, locks) = (std::mem::take(&mut *lock(&self.pauses)), std::mem::take(&mut *lock(&self.locks)));
        drop((pauses, locks));
    }

    /// An opened area, from an earlier question or opened now.
    fn area(&self, inspector: &Inspector, job: &str, name: &str) -> Result<Arc<Area<()>>, SessionError> {
        let key = (job.to_owned(), name.to_owned());
        if let Some(area) = lock(&self.areas).get(&key) {
            return Ok(Arc::clone(area));
        }
        let area = Arc::new(inspector.open_any(name)?);
        let mut areas = lock(&self.areas);
        if areas.len() >= AREAS_MAX {
            areas.clear();
        }
        areas.insert(key, Arc::clone(&area));
        Ok(area)
    }

    /// Asks a job. If what was known of it holds no longer, it is asked again, once.
    fn again_if_lost<T>(
        &self,
        job: &str,
        ask: impl Fn(&Inspector) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        match self.inspector(job).and_then(|inspector| ask(&inspector)) {
            Err(SessionError::Inspect(error)) if is_outdated(&error) => {
                // Another job may have the same name now. One that is paused is still there.
                if matches!(error, InspectError::NoJob { .. }) {
                    lock(&self.jobs).remove(job);
                    lock(&self.pauses).remove(job);
                    lock(&self.changes).remove(job);
                    lock(&self.looks).remove(job);
                }
                lock(&self.areas).retain(|(of, _), _| of != job);
                self.inspector(job).and_then(|inspector| ask(&inspector))
            }
            other => other,
        }
    }

    fn inspector(&self, job: &str) -> Result<Inspector, SessionError> {
        if let Some(inspector) = lock(&self.jobs).get(job) {
            return Ok(inspector.clone());
        }
        let only = &self.only;
        let other = || SessionError::OtherJob { only: only.text().into(), wanted: job.into() };
        let is_one = only.network().is_some();
        let inspector = match job {
            "" => Inspector::connect(only)?,
            _ if is_one => self.inspector("")?,
            // A session that reads jobs of this machine connects to no other.
            _ if Target::new(job).network().is_some() => return Err(other()),
            _ => Inspector::connect(job)?,
        };
        let meant = if is_one { job } else { only.text() };
        if !meant.is_empty() && !inspector.job().is_meant_by(meant) {
            return Err(other());
        }
        let inspector = inspector.deadline(self.time);
        lock(&self.jobs).insert(job.into(), inspector.clone());
        Ok(inspector)
    }
}

/// The object that says why something failed.
pub(crate) fn failure(error: &SessionError) -> Value {
    json!({ "error": error.to_string() })
}

/// Returns whether what is known of a job and its areas may hold no longer.
fn is_outdated(error: &InspectError) -> bool {
    matches!(
        error,
        InspectError::NoJob { .. }
            | InspectError::Lost { .. }
            | InspectError::Refused { refused: Refused::Unknown { .. }, .. }
            | InspectError::Incomplete { .. }
    )
}

fn selection(text: &str) -> Result<Selection, SelectionError> {
    if text.is_empty() { Ok(Selection::all()) } else { text.parse() }
}
