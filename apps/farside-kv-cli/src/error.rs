//! The errors of `farside kv`, and the exit status of each.

use std::io;

use farside_command::Failure;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KvError {
    /// The value to store would be typed by hand.
    #[error("the standard input is a terminal: name the file to store, or send the value by a pipe or `<`")]
    NoInput,
    /// The server could not be reached, or a secret not be read.
    #[error(transparent)]
    Server(#[from] farside_rpc_cli::RpcError),
    /// A store could not be used.
    #[error(transparent)]
    Kv(#[from] farside_kv::ClientError),
    /// A store could not be opened.
    #[error(transparent)]
    OpenStore(#[from] farside_kv::OpenError),
    /// A server could not be started.
    #[error(transparent)]
    StartServer(#[from] farside_rpc::server::StartError),
    /// Calls were still running when the server had to end.
    #[error(transparent)]
    CallsLeft(#[from] farside_rpc::server::Unfinished),
    /// The signals that end a server could not be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// The standard input failed.
    #[error("reading the standard input failed: {0}")]
    Input(io::Error),
    /// The standard output is closed.
    #[error("writing to the standard output failed: {0}")]
    Output(io::Error),
}

impl Failure for KvError {}
