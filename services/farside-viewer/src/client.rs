//! The reader's side: [`jobs()`], [`Inspector`], [`Area`].

mod area;
mod attendance;
mod error;
mod info;
mod inspector;
mod launched;
mod missing;
mod number;
mod pinned;
#[cfg(test)]
mod simulated;
mod steering;
mod trace;
mod watch;
mod workers;

pub use self::area::{Area, At, Frame, RawFrame};
pub use self::error::{InspectError, Late};
pub use self::info::{AreaInfo, JobInfo, PartInfo};
pub use self::inspector::{Inspector, jobs};
pub use self::missing::Missing;
pub use self::number::Number;
pub use self::pinned::Pinned;
pub use self::steering::{Locked, Paused};
pub use self::trace::{CallSite, MessageSum, Occurrence, PutSite, Trace, TraceEvent, WaitSite, WorkerTrace};
pub use self::watch::Watch;
pub use self::workers::{Awaited, CallState, Shares, Site, WaitState, WorkerCounters, WorkerState, cycles};
