//! The side of those who look: [`jobs()`], [`Inspector`], [`Area`].

mod area;
mod error;
mod info;
mod inspector;
mod number;

pub use self::area::{Area, At, Frame, RawFrame};
pub use self::error::{InspectError, Late};
pub use self::info::{AreaInfo, JobInfo, PartInfo};
pub use self::inspector::{Inspector, jobs};
pub use self::number::Number;
