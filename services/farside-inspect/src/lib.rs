//! Looks into a running job of Farside from outside, without stopping it.
//!
//! A program shows what it has with [`Expose`]. Another program, of the same user on the same
//! machine, finds the job and reads it with [`Inspector`]. So does the command `farside inspect`.
//! From another machine, a [`Target`] says where the job is, and proves a token.
//! The job itself stays closed: who looks takes no part in its collectives, calls or verdicts.
//!
//! | to | use |
//! |---|---|
//! | show an array that changes from step to step | [`Expose::view`], [`View::publish`] |
//! | show memory as it is now | [`Expose::expose`], [`Exposed::lock`] |
//! | show and take in single numbers | [`Expose::gauge`], [`Expose::parameter`] |
//! | have readers start something, or ask | [`Expose::action`], [`Expose::probe`] |
//! | find jobs | [`jobs()`] |
//! | show what a program has that is no job | [`Standalone`] |
//! | have a launcher answer for processes that show nothing | [`LauncherDoor`] |
//! | list what a job shows, and read it | [`Inspector`] |
//! | read a part | [`Selection`] |
//! | read a step in place | [`Area::pin`] |
//! | change the job | [`Inspector::set`], [`Area::put`], [`Inspector::act`] |
//! | have the job pause | [`Inspector::pause_at`] |
//! | ask in JSON, with the feature `session` | `session::Session` |
//! | show jobs in a browser, with the feature `page` | `page::Page` |
//! | see what workers do and wait for | [`Inspector::workers`], [`cycles`] |
//! | record what they did | [`Inspector::trace`] |
//!
//! # Rooms
//!
//! From the bottom up.
//!
//! | room | contents |
//! |---|---|
//! | `element`, `spans`, `selection`, `points` | types of elements; places in arrays; what a reader selects; places for tests |
//! | `names`, `network`, `protocol` | where doors are, on the machine and on the network; what travels |
//! | `client` | the side of those who look |
//! | `target` | the side of the program: what it shows, and the door of its process |
//! | `session` | questions and answers as JSON, for the page, Python and scripts |
//! | `page` | a page for browsers, and its server |

#![forbid(unsafe_code)]

mod client;
mod element;
mod names;
mod network;
#[cfg(feature = "page")]
pub mod page;
mod points;
mod protocol;
mod selection;
#[cfg(feature = "session")]
pub mod session;
mod spans;
mod sync;
mod target;

/// The messages between doors and their clients, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<farside_rpc::wire::check::MessageKind> {
    protocol::message_kinds()
}

/// For what macros write, not for programs.
#[doc(hidden)]
pub mod __private {
    pub use crate::element::derived::{Sealed, add_field, bytes_of, struct_of};
}

pub use client::{
    Area, AreaInfo, At, Awaited, CallSite, CallState, Frame, InspectError, Inspector, JobInfo, Late, Locked,
    MessageSum, Missing, Number, Occurrence, PartInfo, Paused, Pinned, PutSite, RawFrame, Shares, Site, Trace,
    TraceEvent, WaitSite, WaitState, Watch, WorkerCounters, WorkerState, WorkerTrace, cycles, jobs,
};
pub use element::{Element, ElementType, Field};
/// Makes a struct an [element](trait@Element).
pub use farside_macros::Element;
pub use names::JobId;
pub use network::{Target, TokenError, create_token_file, first_secret};
pub use protocol::{About, Kind, Refused, Role};
pub use selection::{Places, Selected, Selection, SelectionError};
pub use target::{
    Expose, ExposeError, Exposed, Gauge, LauncherDoor, LockedHere, Memory, OwnMemory, Parameter, PublishError, Shown,
    Standalone, View, ViewBuilder,
};
