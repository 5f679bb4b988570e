//! The errors of the program that is looked at.

use farside::Error;

use crate::network::{INSPECT, TokenError};

/// Why an area was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExposeError {
    /// The name cannot be written by readers.
    #[error("invalid name {name:?} of an area: give it 1 to {max} bytes without brackets and control characters")]
    Name {
        /// The name.
        name: String,
        /// The most bytes.
        max: usize,
    },
    /// The units are too long, or have characters that move a terminal's cursor.
    #[error("invalid units {units:?} of the area {name:?}: give at most {max} bytes without control characters")]
    Units {
        /// The area.
        name: String,
        /// The units.
        units: String,
        /// The most bytes.
        max: usize,
    },
    /// The worker has such an area already.
    #[error("worker {worker} has an area {name:?} already: drop that first, or choose another name")]
    Taken {
        /// The area.
        name: String,
        /// The worker.
        worker: u32,
    },
    /// The shape of the part, or of the whole, is impossible.
    #[error("impossible shape of the area {name:?}: {what}")]
    Shape {
        /// The area.
        name: String,
        /// The fault, and the remedy.
        what: &'static str,
    },
    /// The bounds of a parameter are impossible.
    #[error(
        "impossible bounds of the parameter {name:?}: give finite bounds with the value inside, not {default} in {least} to {most}"
    )]
    Bounds {
        /// The parameter.
        name: String,
        /// Its value at first.
        default: f64,
        /// The lowest value.
        least: f64,
        /// The highest value.
        most: f64,
    },
    /// The worker's elements do not follow each other in the array.
    #[error(
        "{length} elements of the array are not dealt in whole rounds of {round}, so the parts have no shape: make it longer"
    )]
    Scattered {
        /// The length of the array.
        length: u64,
        /// The number of elements that all parts get in a round.
        round: u64,
    },
    /// The process has as many areas as are allowed.
    #[error("the process has {max} areas already: drop some first")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The setting has no such value.
    #[error("invalid value {value:?} for {name}: expected on, off, tcp or tcp://HOST:PORT", name = INSPECT)]
    Setting {
        /// The value.
        value: String,
    },
    /// The environment keeps the door shut.
    #[error("{name}=off keeps the door shut: unset it to look into the program", name = INSPECT)]
    Off,
    /// There is no token that a door on the network could ask for.
    #[error("cannot open a door on the network: {0}")]
    Token(#[from] TokenError),
    /// The door could not be opened.
    #[error("cannot open the door for those who look into the job: {0}; {name}=off goes without", name = INSPECT)]
    Door(#[from] farside_rpc::server::StartError),
}

/// Why a step was not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The step is not higher than the last one.
    #[error("step {step} of {name:?} does not come after step {last}: publish each step once, in rising order")]
    Back {
        /// The area.
        name: String,
        /// The step.
        step: u64,
        /// The step that was published last.
        last: u64,
    },
    /// The highest number cannot be a step: none could follow.
    #[error("{step} cannot be a step of {name:?}: use lower numbers", step = u64::MAX)]
    Last {
        /// The area.
        name: String,
    },
    /// The part has another number of elements.
    #[error("{given} elements were published for {name:?}, whose part has {expected}: publish the whole part")]
    Length {
        /// The area.
        name: String,
        /// The number of elements that were published.
        given: usize,
        /// The number of elements of the part.
        expected: usize,
    },
    /// A wait for a reader who had the job pause has failed, or an action that a reader asked for.
    #[error(transparent)]
    Job(Box<Error>),
}

impl From<ExposeError> for Error {
    fn from(error: ExposeError) -> Self {
        Self::Room(Box::new(error))
    }
}

impl From<PublishError> for Error {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Job(error) => *error,
            error => Self::Room(Box::new(error)),
        }
    }
}
