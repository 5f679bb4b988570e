//! Looks into a running job of Farside from outside, without stopping it.
//!
//! A program shows what it has with `farside-inspect`. Another program, of the same user on the
//! same machine, finds the job and reads it with [`Inspector`]. So does the command
//! `farside inspect`. From another machine, a [`Target`] says where the job is, and proves a token.
//!
//! | to | use |
//! |---|---|
//! | find jobs | [`jobs()`] |
//! | list what a job shows, and read it | [`Inspector`] |
//! | read a part | [`Selection`] |
//! | read a step in place | [`Area::pin`] |
//! | change the job | [`Inspector::set`], [`Area::put`], [`Inspector::act`] |
//! | have the job pause | [`Inspector::pause_at`] |
//! | see what workers do and wait for | [`Inspector::workers`], [`cycles`] |
//! | record what they did | [`Inspector::trace`] |
//! | ask in JSON | [`session::Session`] |
//! | show jobs in a browser | [`page::Page`] |
//!
//! # Rooms
//!
//! From the bottom up.
//!
//! | room | contents |
//! |---|---|
//! | `selection`, `target` | what a reader selects; which job is meant |
//! | `client` | the reader's side |
//! | `session` | questions and answers as JSON, for the page, Python and scripts |
//! | `page` | a page for browsers, and its server |

#![forbid(unsafe_code)]

mod client;
pub mod page;
mod selection;
pub mod session;
mod target;

pub use client::{
    Area, AreaInfo, At, Awaited, CallSite, CallState, Frame, InspectError, Inspector, JobInfo, Late, Locked,
    MessageSum, Missing, Number, Occurrence, PartInfo, Paused, Pinned, PutSite, RawFrame, Shares, Site, Trace,
    TraceEvent, WaitSite, WaitState, Watch, WorkerCounters, WorkerState, WorkerTrace, cycles, jobs,
};
pub use farside_inspect::{
    About, Element, ElementType, Field, JobId, Kind, Refused, Role, TokenError, create_token_file, first_secret,
};
pub use selection::{Places, Selected, Selection, SelectionError};
pub use target::Target;
