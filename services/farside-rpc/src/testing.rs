//! Helpers that the tests of several modules share.

use farside_connect::{Address, Path, Ways, Welcome, dial};
use farside_testbed::{deadline, limit, wait_for};

use crate::{Client, Credentials};

/// Connects to a server. Neither this nor a call fails because the machine is busy.
#[track_caller]
pub(crate) fn connect(address: impl AsRef<str>, credentials: Credentials) -> Client {
    Client::to(address, credentials).unwrap().deadline(limit()).connect().unwrap()
}

/// Connects to a server, and returns the client's end of the path.
#[track_caller]
pub(crate) fn dialled(address: &Address, credentials: &Credentials, ways: &Ways) -> (Box<dyn Path>, Welcome) {
    // One attempt takes a few seconds at most, so it may fail on a busy machine.
    wait_for("a connection", || dial(address, credentials, ways, deadline()).ok())
}
