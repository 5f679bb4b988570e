//! What the machine can do: the yardsticks that cases are set against, measured in the same run between the same processes.

pub(crate) mod ping_pong;
pub(crate) mod stream;
