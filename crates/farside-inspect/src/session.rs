//! [`Session`]: questions and answers as JSON.
//!
//! The page's server, Python and scripts ask through it. A question is an object whose `do` says
//! what is asked:
//!
//! | `do` | further fields | answer |
//! |---|---|---|
//! | `jobs` | – | `jobs`: [`job_object`] of each |
//! | `list` | `job` | `areas`: [`area_object`] of each |
//! | `get` | `job`, `area`, `select`, `step` | `name`, `type`, `shape`, `units`, `step`, and the elements |
//!
//! `job` is a job's name, its number or both; without it, the only job is meant. `select` is the
//! text of a [`Selection`]; without it, all is meant. Without `step` it is the next step that can
//! be had. A field that a question does not have is refused.
//!
//! An answer is an object, and elements behind it, in row-major order and in the machine's order of
//! bytes. If something failed, the object has the field `error`, with the reason.

mod lines;
mod objects;
mod question;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

pub use self::lines::serve_lines;
pub use self::objects::{area_object, job_object, value};
pub(crate) use self::question::Fields;
use crate::client::{Area, At, InspectError, Inspector, jobs};
use crate::selection::{Selection, SelectionError};

/// The most opened areas that are kept. Beyond, all are opened again when they are asked for.
const AREAS_MAX: usize = 1024;

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
/// use farside_inspect::session::Session;
/// use serde_json::json;
///
/// let session = Session::new("", std::time::Duration::from_secs(5));
/// let answer = session.answer(&json!({ "do": "get", "area": "temperature", "select": "[::4, ::4]" }));
/// println!("step {}: {} bytes", answer.head["step"], answer.body.len());
/// ```
#[derive(Debug)]
pub struct Session {
    only: String,
    time: Duration,
    bytes_max: u64,
    jobs: Mutex<BTreeMap<String, Inspector>>,
    areas: Mutex<BTreeMap<(String, String), Arc<Area<()>>>>,
}

impl Session {
    /// Creates a session for one job, or for all jobs if `job` is empty. Each question has this
    /// time.
    #[must_use]
    pub fn new(job: &str, time: Duration) -> Self {
        Self { only: job.into(), time, bytes_max: u64::MAX, jobs: Mutex::default(), areas: Mutex::default() }
    }

    /// Refuses to read more bytes at once. The default is no limit.
    #[must_use]
    pub fn bytes_max(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    /// Answers a question. A failure is an answer, too.
    #[must_use]
    pub fn answer(&self, question: &Value) -> Answer {
        self.try_answer(question).unwrap_or_else(|error| Answer { head: failure(&error), body: Vec::new() })
    }

    fn try_answer(&self, question: &Value) -> Result<Answer, SessionError> {
        let mut fields = Fields::of(question)?;
        let plain = |head| Answer { head, body: Vec::new() };
        match fields.text("do")?.as_str() {
            "jobs" => {
                fields.end()?;
                Ok(plain(self.jobs()?))
            }
            "list" => {
                let job = fields.text_or_empty("job")?;
                fields.end()?;
                Ok(plain(self.list(&job)?))
            }
            "get" => {
                let (job, area) = (fields.text_or_empty("job")?, fields.text("area")?);
                let (select, step) = (fields.text_or_empty("select")?, fields.number("step")?);
                fields.end()?;
                self.get(&job, &area, &select, step.map_or(At::Now, At::Step))
            }
            other => Err(SessionError::Question(format!("nothing is called {other:?}; ask for jobs, list or get"))),
        }
    }

    /// The jobs that there are.
    pub(crate) fn jobs(&self) -> Result<Value, SessionError> {
        let jobs = jobs()?;
        let is_meant = |job: &&crate::JobInfo| self.only.is_empty() || job.id.is_meant_by(&self.only);
        Ok(json!({ "jobs": jobs.iter().filter(is_meant).map(job_object).collect::<Vec<_>>() }))
    }

    /// What a job shows.
    pub(crate) fn list(&self, job: &str) -> Result<Value, SessionError> {
        let areas = self.again_if_lost(job, |inspector| Ok(inspector.list()?))?;
        Ok(json!({ "areas": areas.iter().map(area_object).collect::<Vec<_>>() }))
    }

    /// Elements of an area.
    pub(crate) fn get(&self, job: &str, name: &str, select: &str, at: At) -> Result<Answer, SessionError> {
        let selection = if select.is_empty() { Selection::all() } else { select.parse()? };
        let key = (job.to_owned(), name.to_owned());
        self.again_if_lost(job, |inspector| {
            let kept = lock(&self.areas).get(&key).cloned();
            let area = match kept {
                Some(area) => area,
                None => {
                    let area = Arc::new(inspector.open_any(name)?);
                    let mut areas = lock(&self.areas);
                    if areas.len() >= AREAS_MAX {
                        areas.clear();
                    }
                    areas.insert(key.clone(), Arc::clone(&area));
                    area
                }
            };
            let info = area.info();
            let count = selection.of(&info.shape)?.shape().iter().product::<u64>();
            let bytes = count.saturating_mul(info.element.bytes() as u64);
            if bytes > self.bytes_max {
                return Err(SessionError::TooLarge { bytes, max: self.bytes_max });
            }
            let frame = area.get_raw(&selection, at)?;
            let (element, units) = (frame.element.name(), &info.units);
            let head = json!({
                "name": frame.name, "type": element, "shape": frame.shape, "units": units, "step": frame.step,
            });
            Ok(Answer { head, body: frame.bytes })
        })
    }

    /// Asks a job. If what was known of it holds no longer, it is asked again, once.
    fn again_if_lost<T>(
        &self,
        job: &str,
        ask: impl Fn(&Inspector) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let was_known = lock(&self.jobs).contains_key(job);
        match self.inspector(job).and_then(|inspector| ask(&inspector)) {
            Err(SessionError::Inspect(error)) if is_outdated(&error) => {
                lock(&self.jobs).remove(job);
                lock(&self.areas).retain(|(of, _), _| of != job);
                if was_known { self.inspector(job).and_then(|inspector| ask(&inspector)) } else { Err(error.into()) }
            }
            other => other,
        }
    }

    fn inspector(&self, job: &str) -> Result<Inspector, SessionError> {
        if let Some(inspector) = lock(&self.jobs).get(job) {
            return Ok(inspector.clone());
        }
        let inspector = Inspector::connect(if job.is_empty() { &self.only } else { job })?.deadline(self.time);
        if !self.only.is_empty() && !inspector.job().is_meant_by(&self.only) {
            return Err(SessionError::OtherJob { only: self.only.clone(), wanted: job.into() });
        }
        lock(&self.jobs).insert(job.into(), inspector.clone());
        Ok(inspector)
    }
}

/// The object that says why something failed.
pub(crate) fn failure(error: &SessionError) -> Value {
    json!({ "error": error.to_string() })
}

/// Whether what is known of a job and its areas may hold no longer.
fn is_outdated(error: &InspectError) -> bool {
    matches!(
        error,
        InspectError::NoJob { .. }
            | InspectError::Lost { .. }
            | InspectError::Silent { .. }
            | InspectError::Refused { .. }
            | InspectError::Incomplete { .. }
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
