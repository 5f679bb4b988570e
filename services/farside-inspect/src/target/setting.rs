//! [`Setting`]: what the environment says of doors, and the limits of their servers.

use std::path::Path;
use std::time::Duration;

use farside_rpc::Server;
use farside_rpc::server::{Builder, StartError};

use super::error::ExposeError;
use crate::network::{INSPECT, listening, read_tokens};
use crate::protocol::Listen;

/// Connections at once, and calls of each. The server of a page has one connection, and a call
/// under way for each area that is watched.
const CONNECTIONS_MAX: u32 = 512;
pub(super) const CALLS_MAX: u32 = 256;
/// The most bytes of a call's arguments and of its result: a list of all areas.
const BYTES_MAX: u64 = 16 << 20;
/// The longest time of a call. A reader that has stopped keeps a copy for as long.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Threads that move elements to readers.
const POOL: usize = 2;

/// A server at an address, with the limits of a door.
pub(super) fn builder(address: &str) -> Result<Builder, StartError> {
    Ok(Server::builder()
        .listen(address)?
        .pool(POOL)
        .max_connections(CONNECTIONS_MAX)
        .max_calls(CALLS_MAX)
        .max_bytes(BYTES_MAX)
        .max_time(TIME_MAX))
}

/// The setting of doors in the environment.
pub(super) enum Setting {
    Off,
    Machine,
    /// Process 0 listens at this address, too.
    Network(String),
}

pub(super) fn setting() -> Result<Setting, ExposeError> {
    let Some(value) = std::env::var_os(INSPECT) else { return Ok(Setting::Machine) };
    let value = value.to_string_lossy();
    match &*value {
        "on" | "" => Ok(Setting::Machine),
        "off" => Ok(Setting::Off),
        text if listening(text).is_some() => Ok(Setting::Network(text.into())),
        text => Err(ExposeError::Setting { value: text.into() }),
    }
}

/// Returns the address and the tokens of a door on the network.
pub(super) fn listen(address: &str, token_file: &Path) -> Result<Listen, ExposeError> {
    let (host, port) = listening(address).ok_or_else(|| ExposeError::Setting { value: address.into() })?;
    Ok(Listen { host, port, tokens: read_tokens(token_file)? })
}
